"""A format: it recognises what lies at a path, opens it, and writes it; and the registry that finds formats."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, ClassVar, Literal

from penstock import formats
from penstock.core.boundary import is_of_call, parsing, refusal
from penstock.core.spec import Spec
from penstock.errors import FormatError, UnknownFormatError
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Writer


@dataclass(frozen=True)
class Finding:
    """One thing that a check found: `level` says how bad, `where` the place, `message` what was expected and found."""

    level: Literal["error", "warning"]
    where: str
    message: str


class Format(ABC):
    """How one kind of dataset is recognised, opened, checked and written. Stateless.

    A new format is a folder in `penstock/formats/` whose package has `FORMAT = MyFormat()`, or an entry point in
    the group `penstock.formats` that names such an object.

    Whatever the methods raise because of the data becomes a `FormatError` with the path (`core/boundary.py`). A
    `TypeError` that names an option the caller gave stays one.
    """

    name: ClassVar[str]
    description: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("recognises", "open", "append", "check", "opening_checks"):
            if name in vars(cls):
                setattr(cls, name, _guarded(vars(cls)[name]))

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether the content at `path` (not its name alone) is this format's. Cheap; raises nothing but `FormatError`
        for content that cannot be looked at, and `OSError`."""

    @abstractmethod
    def open(self, path: Path, **options: Any) -> Source:
        """Open for reading. Raises `FormatError` for damaged data, `TypeError` for an unknown option."""

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> Writer:
        """Create an empty dataset and open it for writing. Raises `FileExistsError` if something lies there."""
        raise FormatError(
            f"the format {self.name!r} is read-only here: cannot create {spec} {metadata} {options}", path=path
        )

    def append(self, path: Path, **options: Any) -> Writer:
        """Open an existing dataset for writing more episodes."""
        raise FormatError(f"the format {self.name!r} is read-only here: cannot append {options}", path=path)

    def locate(self, name: str) -> Path | None:
        """The path of a dataset known to this format by an id, or None."""
        return None

    def check(self, path: Path) -> Iterator[Finding]:
        """Look for damage in detail; yields nothing for a sound dataset. May take options of `open` by keyword."""
        raise FormatError(f"the format {self.name!r} has no detailed check", path=path)

    def opening_checks(self, path: Path, **options: Any) -> bool:
        """Whether `check` looks at nothing that `open` does not, so that whoever opens the data need not call it."""
        return type(self).check is Format.check


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose first argument is a path, behind the boundary of errors."""

    through = _through if method.__name__ == "check" else None  # findings are looked for as they are asked for

    @wraps(method)
    def guarded(self: Format, path: Path, *args: Any, **kwargs: Any) -> Any:
        try:
            result: Any = method(self, path, *args, **kwargs)
        except Exception as error:
            if is_of_call(error, kwargs) or (instead := refusal(error, path)) is None:
                raise
            raise instead from error
        if through is not None:
            return through(result, path)
        if isinstance(result, Source) and result.location is None:
            result.location = path
        return result

    return guarded


def _through(findings: Iterator[Finding], path: Path) -> Iterator[Finding]:
    with parsing(path):
        yield from findings


@cache
def available() -> dict[str, Format]:
    """Every format by name: the folders of `penstock.formats` first, then the entry points `penstock.formats`.

    Cost: imports each format's package once (their heavy libraries stay unloaded).
    """
    found: dict[str, Format] = {}
    for module in pkgutil.iter_modules(formats.__path__):
        package = importlib.import_module(f"{formats.__name__}.{module.name}")
        if isinstance(entry := getattr(package, "FORMAT", None), Format):
            found[entry.name] = entry
    for point in importlib.metadata.entry_points(group="penstock.formats"):
        entry = point.load()
        if not isinstance(entry, Format):
            raise FormatError(f"expected the entry point {point.name!r} to name a Format, got {entry!r}")
        found.setdefault(entry.name, entry)
    return found


def named(name: str) -> Format:
    """The format of that name. Raises `UnknownFormatError` listing those there are."""
    try:
        return available()[name]
    except KeyError:
        raise UnknownFormatError(f"expected a format among {sorted(available())}, got {name!r}") from None


def recognise(location: str | os.PathLike[str]) -> tuple[Format, Path]:
    """The format and path of what lies at a path, or of what a format knows by that id.

    Raises `FileNotFoundError` if there is nothing, `UnknownFormatError` if no format recognises it.
    """
    path = Path(location)
    if not path.exists():
        located = [(f, p) for f in available().values() if (p := f.locate(os.fspath(location))) is not None]
        if not located:
            raise FileNotFoundError(f"nothing at {path}, and no format knows a dataset of that id")
        return located[0]
    failures: dict[str, FormatError] = {}
    for entry in available().values():
        try:
            if entry.recognises(path):
                return entry, path
        except FormatError as error:
            failures[entry.name] = error
    message = f"expected data of one of the formats {sorted(available())}, got none of them"
    for name, error in failures.items():
        raise UnknownFormatError(f"{message}; {name} could not look at it: {error}", path=path) from error
    raise UnknownFormatError(message, path=path)
