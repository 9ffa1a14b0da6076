"""`Format`: how one kind of dataset is recognised, opened and written; and the registry of formats."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints

from penstock import formats
from penstock.core.boundary import is_of_call, parsing, refusal
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, DataError, FormatError, UnknownFormatError, suggestion
from penstock.files import locked
from penstock.files.remote import remote_errors_kept, set_remote_files
from penstock.files.user_cache import IndexFile
from penstock.formats.base.file_facts import FileSurvey, ReadFacts
from penstock.formats.base.findings import Finding, Repair
from penstock.formats.base.signatures import (
    DISTRIBUTIONS,
    POINTED,
    format_elsewhere,
    install,
    is_pointer,
    likely_formats,
)
from penstock.formats.base.source import Source
from penstock.formats.base.writer import PartStart, PartWriter, Target, Writer
from penstock.locations.mirror import MIRRORS

set_remote_files(MIRRORS)  # so that every process that reads data can read mirrors


GENERAL = ("webdataset",)  # whose containers other formats use too, in narrower ways
QUICK_BYTES = 1 << 28  # that a check reads at most if it is not deep
_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
GUARDED = ("recognises", "open", "open_files", "append", "check", "check_files", "opening_checks", "repairs")


@dataclass(frozen=True)
class HubDataset:
    """Where a dataset is on a hub, and where it would be on this machine."""

    url: str
    folder: Path
    setting: str  # the environment variable that says where the folder is
    command: str  # that downloads it there


class Format(ABC):
    """How one kind of dataset is recognised, opened, checked and written. Formats are stateless.

    A format is a folder in `penstock/formats/` whose package has `FORMAT = MyFormat()`, or an entry point in the group
    `penstock.formats` that names such an object.

    Errors that the data causes in these methods become `FormatError` with the path (`core/boundary.py`). A `TypeError`
    about an option of the caller stays a `TypeError`. A `RemoteError` within a method is its error, also where the
    method took it for other data.

    Example:
        >>> from penstock.formats.base.format import available
        >>> "minari" in available(), available()["columns"].name
        (True, 'columns')
    """

    name: ClassVar[str]
    description: ClassVar[str]
    extras: ClassVar[tuple[str, ...]] = ()  # extras of the distribution that some of the files need
    suffixes: ClassVar[tuple[str, ...]] = ()  # endings of names for which new datasets have this format by default
    file_suffixes: ClassVar[tuple[str, ...]] = ()  # endings of files that it reads, and that no new dataset can have
    places_values: ClassVar[bool] = False  # whether parts put ragged values where they are in the whole dataset

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in GUARDED:
            if name in vars(cls):
                setattr(cls, name, _guarded(vars(cls)[name]))

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Return whether the data at a path has this format, from its content and not only its name. This is cheap.

        Args:
            path: Existing file or folder.

        Raises:
            FormatError: The content cannot be inspected.
            OSError: The file cannot be read.
            RemoteError: A store does not answer.
        """

    @abstractmethod
    def open(self, path: Path, **options: Any) -> Source:
        """Open a dataset for reading.

        Args:
            path: File or folder.
            options: Options of the format.

        Raises:
            FormatError: The data is damaged.
            ArgumentError: An option is unknown.
        """

    def are_shards(self, files: Sequence[Path]) -> bool:
        """Return whether several files are one dataset, which `open_files` opens. The default is False.

        Args:
            files: Two or more existing files. This format recognises the first.
        """
        return False

    def open_files(self, files: Sequence[Path], **options: Any) -> Source:
        """Open several files as one dataset.

        Args:
            files: Files of one dataset, in order.
            options: Options of `open`.

        Raises:
            FormatError: The format has datasets of one file or folder only, or a file is damaged.
        """
        raise FormatError(f"the format {self.name!r} has no dataset of several files: {options}", path=files[0])

    def check_files(self, files: Sequence[Path], **options: Any) -> Iterator[Finding]:
        """Search for damage in several files that are one dataset. The default checks one file after another.

        Args:
            files: Files of one dataset, in order.
            options: Options of `check`.
        """
        for file in files:
            yield from self.check(file, **options)

    def target(self, options: Mapping[str, Any]) -> Target:
        """Return what `create` can store with these options, which a conversion keeps to. The default is everything.

        Args:
            options: Options of `create`.
        """
        return Target(self.name)

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> Writer:
        """Create an empty dataset and open it for writing.

        Args:
            path: File or folder to create.
            spec: Columns and spaces.
            metadata: Metadata of the dataset. The default is none.
            options: Options of the format.

        Raises:
            FileExistsError: The path exists.
            FormatError: The format cannot write.
        """
        raise FormatError(
            f"the format {self.name!r} is read-only here: cannot create {spec} {metadata} {options}", path=path
        )

    def append(self, path: Path, **options: Any) -> Writer:
        """Open an existing dataset for appending episodes.

        Args:
            path: File or folder.
            options: Options of the format.

        Raises:
            FormatError: The format cannot append.
        """
        raise FormatError(f"the format {self.name!r} is read-only here: cannot append {options}", path=path)

    def kind_name(self, path: Path) -> str | None:
        """Return the name of the kind of a dataset, where a format has several kinds. The default is None.

        Args:
            path: File or folder that this format recognises.
        """
        return None

    def advice(self, path: Path) -> str | None:
        """Return what is at a path that no format recognises, and how this format could open it. The default is None.

        Args:
            path: Existing file or folder.
        """
        return None

    def locate(self, name: str) -> Path | None:
        """Return the path of a dataset by its id, or None.

        Args:
            name: Id of the dataset.
        """
        return None

    def on_hub(self, name: str) -> HubDataset | None:
        """Return where a dataset is that has an id and is not on this machine. The default is None: on no hub.

        Args:
            name: Id of the dataset.
        """
        return None

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Search for damage. Yield nothing for an undamaged dataset. It may accept options of `open`.

        `penstock.check` reads the values of every format, so a check of a format looks at what only the format knows:
        metadata, indices, sizes, checksums.

        Args:
            path: File or folder.
            deep: Whether to read all values where the format has rules for them. Otherwise a check takes seconds, and
                decodes nothing. The default is True.

        Raises:
            FormatError: The format has no detailed check.
        """
        raise FormatError(f"the format {self.name!r} has no detailed check", path=path)

    def survey(self, paths: Sequence[Path]) -> FileSurvey | None:
        """Return the survey of the files of a dataset, if what opening learns of each is kept. The default is None.

        Args:
            paths: The file or folder, or several files.
        """
        return None

    def build_index(
        self, paths: Sequence[Path], *, force: bool = False, facts: ReadFacts | None = None
    ) -> dict[str, Any]:
        """Build the index in the user's cache that makes opening quick. The default keeps the survey, if there is one.

        Args:
            paths: The file or folder, or several files.
            force: Build the index also if it is up to date. The default is False.
            facts: Facts of files that other processes read for `survey`. The default is None: they are read here.

        Returns:
            Counts of `episodes` and `steps`; the file `index`, and whether it was `made` now. None is kept of small
            data, of files that changed less than 2 s ago, and without a folder for caches.
        """
        survey = self.survey(paths)
        index = index_entries(None, is_new=False)
        if survey is not None:
            if facts is None:
                numbers = survey.unknown(force=force)
                facts = ReadFacts(numbers, survey.facts(numbers.tolist()))
            is_new = len(facts.numbers) > 0 and survey.keep(survey.with_facts(facts))
            read = {"files": len(survey.files), "read": len(facts.numbers)}
            index = {**read, **index_entries(survey.index_file, is_new=is_new)}
        with self.open(paths[0]) if len(paths) == 1 else self.open_files(paths) as source:
            return {"episodes": len(source), "steps": source.steps, **index}

    def opening_checks(self, path: Path, **options: Any) -> bool:
        """Return whether `open` already checks everything that `check` does.

        Args:
            path: File or folder.
            options: Options of `open`.
        """
        return type(self).check is Format.check

    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        """Yield the changes that mend findings without loss of a complete episode. The default is none.

        Args:
            path: File or folder.
            findings: What `penstock.check` found.
        """
        yield from ()

    def parts_refusal(self, path: Path, **options: Any) -> str | None:
        """Return why several processes cannot write parts of a new dataset, and what to do; None if they can.

        Args:
            path: Where the dataset will be.
            options: Options of `create`.
        """
        if type(self).join_parts is not Format.join_parts:
            return None
        return (
            f"a file of the format {self.name!r} has episodes of several parts; convert in one run, or in parts to "
            "columns"
        )

    def begin_part(
        self, path: Path, spec: Spec, metadata: Mapping[str, Any], start: PartStart, **options: Any
    ) -> Writer:
        """Create a part of a new dataset, for `join_parts`. Several processes write parts at the same time.

        The default is `create`, and `PartWriter.begin_at`. Of other writers, joining numbers the episodes.

        Args:
            path: Folder of the part, which must not exist. Its last name is the one of the dataset.
            spec: Columns and spaces of the dataset.
            metadata: Metadata of the dataset.
            start: Where the part begins in the dataset.
            options: Options of `create`.

        Raises:
            DataError: The format cannot be written in parts.
        """
        if (refusal := self.parts_refusal(path, **options)) is not None:
            raise DataError(refusal)
        writer = self.create(path, spec, metadata, **options)
        try:
            if isinstance(writer, PartWriter):
                writer.begin_at(start)
        except BaseException:
            writer.close()
            raise
        return writer

    def open_part(self, path: Path) -> Source:
        """Open a part for reading. The default is `open`.

        It also shows the episodes before the part, with other values, if rows of the format have places in the whole
        dataset.

        Args:
            path: Folder of the part.
        """
        return self.open(path)

    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Put parts together to a dataset, in their order. Files are moved where they can be files of the dataset.

        Memory: some megabytes, however large the parts are.

        After a kill, a second call with the same arguments continues.

        Args:
            parts: Folders that `begin_part` created.
            out: Folder of the dataset.
            place: Where the dataset is moved to afterwards, for metadata that have its name.

        Raises:
            DataError: The format cannot be written in parts.
        """
        raise DataError(f"expected a format with parts, got {self.name!r}")

    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        """Return a context in which no writer can have the dataset open. The default locks the path itself.

        Args:
            path: File or folder.

        Raises:
            LockedError: A writer has the dataset open (when the context is entered).
        """
        return locked(path)


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method whose first argument is a path or files, so that errors of the data become `FormatError`."""

    is_check = method.__name__ in ("check", "check_files", "repairs")  # generators, which run as they are asked

    @wraps(method)
    def guarded(self: Format, given: Path | Sequence[Path], *args: Any, **kwargs: Any) -> Any:
        path = folder_of(given)
        try:
            with remote_errors_kept():
                result: Any = method(self, given, *args, **kwargs)
        except Exception as error:
            if unknown := _unknown_option(self, error, kwargs):
                raise unknown from error
            if is_of_call(error, kwargs) or (instead := refusal(error, path)) is None:
                raise
            raise instead from error
        if is_check:
            return _through(result, path)
        if isinstance(result, Source) and result.location is None:
            result.location = path
        return result

    return guarded


def folder_of(files: Path | Sequence[Path]) -> Path:
    """Return the path itself, or the folder that several files have in common."""
    if isinstance(files, Path):
        return files
    return files[0] if len(files) == 1 else Path(os.path.commonpath([file.absolute() for file in files]))


def _unknown_option(entry: Format, error: Exception, options: Mapping[str, Any]) -> ArgumentError | None:
    """Return the error to raise instead of Python's for an unknown keyword argument, or None for another error."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error)) if isinstance(error, TypeError) else None
    if unknown is None or unknown[1] not in options:
        return None
    return unknown_option(f"the format {entry.name!r}", unknown[1], _options_of(entry))


def _options_of(entry: Format) -> list[str]:
    """Options of the `open` of a format: keyword arguments of the method, and of the source that it says to return."""
    function: Any = type(entry).open
    source = get_type_hints(function).get("return")
    callables = [function, *(part for part in get_args(source) or [source] if isinstance(part, type))]
    parameters = [each for one in callables for each in inspect.signature(one).parameters.values()]
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sorted({each.name for each in parameters if each.kind in kinds} - {"self", "path"})


def index_entries(file: IndexFile | None, *, is_new: bool) -> dict[str, Any]:
    """Return what `build_index` says of an index: its file, or None, its size in bytes, and whether it is new."""
    if file is None or not file.path.exists():
        return {"index": None, "made": False}
    return {"index": str(file.path), "index_size": file.path.stat().st_size, "made": is_new}


def unknown_option(owner: str, name: str, known: Collection[str]) -> ArgumentError:
    options = f"its options are {list(known)}" if known else "it has no options"
    return ArgumentError(f"{owner} has no option {name!r}{suggestion(name, known)}; {options}")


def _through(findings: Iterator[Finding], path: Path) -> Iterator[Finding]:
    with parsing(path):
        yield from findings


@cache
def available() -> dict[str, Format]:
    """Return every format by name: folders of `penstock.formats` first, then entry points `penstock.formats`."""
    from importlib.metadata import entry_points  # heavy: most data have a format of the core

    by_name = {entry.name: entry for folder in _folders() if (entry := _built_in(folder)) is not None}
    for point in entry_points(group="penstock.formats"):
        entry = point.load()
        if not isinstance(entry, Format):
            raise FormatError(f"expected the entry point {point.name!r} to name a Format, got {entry!r}")
        by_name.setdefault(entry.name, entry)
    return by_name


def _formats_for(path: Path) -> Iterator[Format]:
    """Yield formats, imported when asked: by the first bytes, other folders, other distributions, then `GENERAL`."""
    asked: set[str] = set()
    known_layouts = {"mapping"} if path.suffix == ".npz" else set[str]()  # `demos` goes by the names of arrays alone
    likely = likely_formats(path) or known_layouts
    special = [folder for folder in _folders() if folder not in GENERAL]
    for folder in sorted(special, key=lambda folder: folder not in likely):
        if (entry := _built_in(folder)) is not None:
            asked.add(entry.name)
            yield entry
    others = [entry for name, entry in available().items() if name not in asked]
    yield from sorted(others, key=lambda entry: entry.name in GENERAL)


@cache
def _folders_in(places: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(places))


def _folders() -> tuple[str, ...]:
    """Names of the folders of `penstock.formats`."""
    return _folders_in(tuple(formats.__path__))


def _built_in(folder: str) -> Format | None:
    """The format in a folder of `penstock.formats`, which may be another kind of package."""
    entry = getattr(importlib.import_module(f"{formats.__name__}.{folder}"), "FORMAT", None)
    return entry if isinstance(entry, Format) else None


def named(name: str) -> Format:
    if name in _folders() and (entry := _built_in(name)) is not None and entry.name == name:
        return entry  # the usual case imports no other format
    try:
        return available()[name]
    except KeyError:
        if (distribution := DISTRIBUTIONS.get(name)) is not None:
            message = f"the format {name!r} is in {distribution}, which is not installed; {install(distribution)}"
            raise UnknownFormatError(message) from None
        known = sorted(available())
        raise UnknownFormatError(f"expected a format among {known}, got {name!r}{suggestion(name, known)}") from None


def format_to_write(path: str | os.PathLike[str], name: str | None = None) -> Format:
    if name is not None:
        return named(name)
    text = os.fspath(path).rstrip("/")
    if chosen := next((entry for entry in available().values() if text.endswith(entry.suffixes)), None):
        return chosen
    if reader := next((entry for entry in available().values() if text.endswith(entry.file_suffixes)), None):
        writers = [entry.name for entry in available().values() if type(entry).create is not Format.create]
        raise UnknownFormatError(
            f"expected a format for {text!r}: {reader.name} reads such files and does not write them; `format` "
            f"names another, one of {writers}"
        )
    return named("columns")


def recognise(location: str | os.PathLike[str], *, advise: bool = False) -> tuple[Format, Path]:
    """Return the format and path of a dataset, by path or id."""
    path = Path(location)
    if not path.exists():
        located = [(f, p) for f in available().values() if (p := f.locate(os.fspath(location))) is not None]
        if not located:
            raise nothing_at(path)
        return located[0]
    if (other := _without_data(path)) is not None:
        raise UnknownFormatError(f"expected a file with data or a folder, got {other}", path=path)
    failures: dict[str, FormatError] = {}
    for entry in _formats_for(path):
        try:
            if entry.recognises(path):
                return entry, path
        except FormatError as error:
            failures[entry.name] = error
    message = "expected a dataset, got what no format recognises"
    formats = f"The formats are {', '.join(sorted(available()))}"
    if is_pointer(path):
        raise UnknownFormatError(f"expected data, got {POINTED}", path=path)
    if (name := format_elsewhere(path, available())) is not None:
        distribution = DISTRIBUTIONS[name]
        message = f"this looks like data of the format {name!r} of {distribution}, which is not installed"
        raise UnknownFormatError(f"{message}; {install(distribution)}", path=path)
    advice = (said for entry in available().values() if (said := entry.advice(path)) is not None) if advise else ()
    for name, error in failures.items():
        unread = f"{message}; {name} could not look at it: {error}"
        raise UnknownFormatError(". ".join([unread, *advice, formats]), path=path) from error
    if path.is_dir() and not os.listdir(path):
        raise UnknownFormatError(
            "expected a dataset, got an empty folder; penstock.record(env, path) fills one", path=path
        )
    raise UnknownFormatError(". ".join([message, *advice, formats]), path=path)


def _without_data(path: Path) -> str | None:
    """What a path without data is. Reading such a file of the kernel, or a pipe, could wait for ever."""
    status = os.stat(path)
    if stat.S_ISREG(status.st_mode):
        return None if status.st_size else "an empty file"
    return None if stat.S_ISDIR(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "another kind of file")


def nothing_at(path: Path, text: str | None = None) -> FileNotFoundError:
    """Return the error for a path where nothing is. It suggests a similar name in the same folder."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        names = []
    hint = suggestion(path.name, names)
    if not path.is_absolute():
        known = "; public datasets have names, OWNER/NAME on Hugging Face and ids with a version on Minari's hub"
        hint = f" in {Path.cwd()}{hint or known}"
    return FileNotFoundError(f"nothing at {text or path}{hint}")
