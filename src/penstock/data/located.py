"""`locate`: the datasets at a location, and the format of each. `datasets_in`: all datasets below a folder.

Names of public datasets are as users of Hugging Face, LeRobot and Minari type them: `lerobot/pusht`,
`D4RL/door/human-v2`. What is on this machine is opened first (`Format.locate`), then the dataset of the hub.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.core.damage import collected_damage, warn_damage
from penstock.core.narrowing import is_path
from penstock.errors import DataError, FormatError, MissingExtraError, PenstockError, RemoteError, UnknownFormatError
from penstock.files.listing import spread
from penstock.formats.base.account import UnfinishedWork
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format, HubDataset, available, folder_of, named, nothing_at, recognise
from penstock.formats.base.signatures import is_narrower_table
from penstock.formats.base.source import Source
from penstock.formats.joined import JoinedSource
from penstock.locations.hub import DATASETS, NotAskedError, download_cache, downloaded, is_repository
from penstock.locations.location import Location, LocationLike

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)*", re.ASCII)


def hub_datasets(name: str, formats: Iterable[Format]) -> list[HubDataset]:
    """The datasets of hubs that a name may stand for, the most likely first.

    A name in a folder that is here, or with the ending of a file of some format, is a path with nothing behind it: no
    hub is asked for it.
    """
    first, *others = name.split("/")
    endings = tuple(ending for each in available().values() for ending in (*each.suffixes, *each.file_suffixes))
    if _NAME.fullmatch(name) is None or name.endswith(endings) or (others and Path(first).exists()):
        return []
    datasets = [place for each in formats if (place := each.on_hub(name)) is not None]
    if is_repository(name):
        command = f"hf download {name} --repo-type dataset"
        datasets.append(HubDataset(f"{DATASETS}{name}", download_cache(), "HF_HUB_CACHE", command))
    return list({place.url: place for place in reversed(datasets)}.values())[::-1]


def open_on_hub(name: str, places: Sequence[HubDataset]) -> tuple[str, Path]:
    """The URL or path, and the path to read from, of the first dataset that exists: downloaded, else in place."""
    for place in places:
        if (copy := downloaded(place.url)) is not None:
            return str(copy), copy
    said: list[str] = []
    refused = False
    for place in places:
        try:
            return Location.of(place.url).resolve()[0]
        except (FileNotFoundError, MissingExtraError, NotAskedError) as error:
            said.append(str(error))
        except RemoteError as error:
            said.append(str(error))
            refused = True
    message = (
        f"{name} is not on this machine: nothing at {Path(name).absolute()}"
        f"{''.join(f', nor at {place.folder} ({place.setting})' for place in places)}"
        f", nor in {download_cache()} (HF_HUB_CACHE). On its hub: {'; '.join(said)}. "
        f"To have it here: {' or '.join(place.command for place in places)}"
    )
    raise RemoteError(message) if refused else FileNotFoundError(message)


DEPTH = 4  # levels of folders that `datasets_in` looks into
NAMED = 3  # datasets that an error names
LOOKED_AT = 100  # files and folders that are looked at for an error's hint


@dataclass(frozen=True)
class DatasetFiles:
    """One dataset: its format, and its file or folder, or several files."""

    format: Format
    paths: tuple[Path, ...]
    url: str | None = None

    def __str__(self) -> str:
        if len(self.paths) == 1:
            return self.url or str(self.paths[0])
        return (
            f"{len(self.paths)} files, first {self.url}"
            if self.url
            else (f"{len(self.paths)} files in {folder_of(self.paths)}")
        )

    def open(self, *, allow_unfinished: bool = False, **options: Any) -> Source:
        unfinished = UnfinishedWork.at(self.paths[0])
        if unfinished is not None and not allow_unfinished:
            raise self._refusal(unfinished, options)
        source = self._open(options)
        chooses = bool(options) or not self.paths[0].is_dir()  # options and files may choose episodes, but not none
        if unfinished is None and not (chooses and len(source)):
            with suppress(FormatError):  # damaged metadata are an error where they are read
                unfinished = UnfinishedWork.of_metadata(source.metadata, len(source))
            if unfinished is not None and not len(source) and not allow_unfinished:
                source.close()
                raise self._refusal(unfinished, options)
        if unfinished is not None:
            source.unfinished = unfinished.left_out(self._name, len(source))
        return source

    @property
    def _name(self) -> str:
        """The last part of the path or URL."""
        return (self.url or str(self.paths[0].absolute())).rstrip("/").rpartition("/")[2]

    def _refusal(self, unfinished: UnfinishedWork, options: Mapping[str, Any]) -> FormatError:
        """The error for a dataset that is not finished, with the number of its episodes if they can be read."""
        episodes = None
        with suppress(FormatError), collected_damage(), self._open(options) as source:
            episodes = len(source)
        entry = unfinished.left_out(self._name, episodes)
        return FormatError(f"{entry.message}, or open what is there with allow_unfinished=True", path=self)

    def _open(self, options: Mapping[str, Any]) -> Source:
        """Open the dataset, whether it is finished or not."""
        one = len(self.paths) == 1
        source = self.format.open(self.paths[0], **options) if one else self.format.open_files(self.paths, **options)
        if self.url is not None:
            source.location = str(self)
        return source

    def check(self, *, deep: bool = True, **options: Any) -> Iterator[Finding]:
        """Search for damage, unless `open` already finds all that the format's check does."""
        one = len(self.paths) == 1
        parameters = inspect.signature(self.format.check if one else self.format.check_files).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        own = {name: value for name, value in options.items() if name != "allow_unfinished"}
        given = {name: value for name, value in own.items() if takes_all or name in parameters}
        if self.format.opening_checks(self.paths[0], **given):
            return
        if "deep" in parameters:
            given["deep"] = deep
        yield from (self.format.check(self.paths[0], **given) if one else self.format.check_files(self.paths, **given))


@dataclass(frozen=True)
class LocatedData:
    """The datasets at a location."""

    location: Location
    datasets: tuple[DatasetFiles, ...]

    def __str__(self) -> str:
        return str(self.datasets[0]) if len(self.datasets) == 1 else str(self.location)

    @property
    def format(self) -> str:
        return ", ".join(dict.fromkeys(each.format.name for each in self.datasets))

    @property
    def name(self) -> str:
        """The last part of the location, as a title."""
        return str(self).rstrip("/").rpartition("/")[2]

    @property
    def paths(self) -> list[Path]:
        """All files and folders."""
        return [path for each in self.datasets for path in each.paths]

    def open(self, **options: Any) -> Source:
        """Open the datasets as one. One `DamageWarning` names what may hold data and was left out."""
        source = self._opened(options)
        one = self.format if len(self.datasets) == 1 else None
        source.opened = {"location": self.location, "format": one, "options": options}
        allowed = ("unfinished",) if options.get("allow_unfinished") else ()
        if (left_out := source.account.warning(without=allowed)) is not None:
            warn_damage(f"{self}: {left_out}", stacklevel=3)
        return source

    def _opened(self, options: Mapping[str, Any]) -> Source:
        if len(self.datasets) == 1:
            return self.datasets[0].open(**options)
        parts: list[Source] = []
        try:
            for each in self.datasets:
                parts.append(each.open(**options))
            source = JoinedSource(parts, [str(each) for each in self.datasets])
        except BaseException:
            for part in parts:
                part.close()
            raise
        source.location = str(self)
        return source


def locate(
    given: LocationLike, *, format: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> LocatedData:
    """Return the datasets at a location, with the format of each.

    Files that are shards of one dataset in their format are one dataset. Otherwise each place is a dataset. A text that
    is no path here may be the name of a dataset on a hub (`hub_names`).
    """
    location = Location.of(given, storage_options)
    chosen = None if format is None else named(format)
    typed = _typed(given)
    resolved = [_found(name, path, chosen, on_hubs=name in typed) for name, path in location.resolve()]
    places = [(entry, path) for entry, _, path in resolved]
    urls = [name if name != str(path) else None for _, name, path in resolved]
    if missing := [str(path) for entry, path in places if entry is None and not path.exists()]:
        if len(places) == 1:
            raise nothing_at(places[0][1], str(location))
        raise FileNotFoundError(
            f"expected {len(places)} files or folders, {len(missing)} are missing, first {missing[0]}"
        )
    paths = tuple(path for _, path in places)
    if len(paths) > 1 and all(path.is_file() for path in paths):
        known = places[0][0] or _format_of(paths)
        if known.are_shards(paths):
            return LocatedData(location, (DatasetFiles(known, paths, urls[0]),))
    datasets = [
        DatasetFiles(entry or _recognised(path, hub=str(path) in typed), (path,), url)
        for (entry, path), url in zip(places, urls, strict=True)
    ]
    return LocatedData(location, tuple(datasets))


def _typed(given: LocationLike) -> set[str]:
    """The names that were given as text: a `Path` is never the name of a dataset on a hub."""
    if isinstance(given, Location):
        return {given.text}
    names = [given] if isinstance(given, str) or is_path(given) else given
    return {name for name in names if isinstance(name, str)}


def datasets_in(
    folder: Path, depth: int = DEPTH, seconds: float = math.inf
) -> Iterator[tuple[Path, Format | Exception]]:
    """Yield the datasets in a folder and below it, in the order of their names. Hidden files are passed over.

    What cannot be looked at, such as a file without permission, comes with its error. So does the folder, if the search
    ended early.
    """
    last = time.monotonic()
    for path, entry in _entries(folder, depth):
        if entry is not None:
            yield path, entry
        if isinstance(entry, Format):
            last = time.monotonic()
        elif time.monotonic() - last > seconds:
            message = f"the search ended at {path.relative_to(folder)}, after {seconds:g} s without a dataset"
            yield folder, DataError(f"{message}; give a folder below")
            return


def _entries(
    folder: Path, depth: int, above: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[tuple[Path, Format | Exception | None]]:
    """Yield the files and folders in a folder, with the format of each, or None, or why it cannot be looked at.

    A link to a folder above it is not looked into.
    """
    try:
        status = os.stat(folder)
        inside = above | {(status.st_dev, status.st_ino)}
        if inside == above:
            return
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        yield folder, error
        return
    for path in paths:
        try:
            yield path, recognise(path)[0]
        except UnknownFormatError:
            yield path, None
            if path.is_dir() and depth > 1:
                yield from _entries(path, depth - 1, inside)
        except (PenstockError, OSError) as error:
            yield path, error


def _format_of(files: Sequence[Path]) -> Format:
    """The format of the first file that has one, in an order that looks at files far apart first."""
    for file in spread(files):
        with suppress(UnknownFormatError):
            return recognise(file)[0]
    return _recognised(files[0])


def _recognised(path: Path, *, hub: bool = False) -> Format:
    """The format of a dataset. The error of a folder that has datasets in it names some of them; with `hub`, the error
    of a folder that is named like a dataset of Hugging Face says that the folder is taken."""
    try:
        return _recognised_here(path)
    except UnknownFormatError as error:
        if not (hub and is_repository(str(path))):
            raise
        message = f"{error}. A folder here comes before the dataset of that name on Hugging Face, {DATASETS}{path}"
        raise UnknownFormatError(message) from error


def _recognised_here(path: Path) -> Format:
    try:
        return recognise(path)[0]
    except UnknownFormatError as error:
        if not path.is_dir() or is_narrower_table(path):
            return recognise(path, advise=True)[0]
        first = islice(_entries(path, depth=2), LOOKED_AT)
        names = [str(below.relative_to(path)) for below, entry in first if isinstance(entry, Format)]
        if not names:
            return recognise(path, advise=True)[0]
        message = f"expected one dataset, got a folder with datasets in it, such as {', '.join(names[:NAMED])}"
        hint = "open one of them, several by a list or a pattern, or list all with `penstock info`"
        raise UnknownFormatError(f"{message}; {hint}", path=path) from error


def _found(name: str, path: Path, chosen: Format | None, *, on_hubs: bool) -> tuple[Format | None, str, Path]:
    """The format, name and path of a place; also of an id, which is looked up on this machine, and then on hubs.

    The format is None where the content must tell it.
    """
    if path.exists():
        return chosen, name, path
    formats = list(available().values()) if chosen is None else [chosen]
    for known in formats:
        if (file := known.locate(os.fspath(path))) is not None:
            return known, str(file), file
    if on_hubs and (places := hub_datasets(name, formats)):
        return chosen, *open_on_hub(name, places)
    return chosen, name, path
