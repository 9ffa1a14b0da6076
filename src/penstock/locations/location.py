"""`Location`: where a dataset is. Every function and command that opens data reads locations by this one grammar.

A text is interpreted in this order:

1. `pipe:` is refused.
2. `scheme://` and `scheme::` begin a URL; `file:` begins the URL of a local path.
3. An existing local path is that path, also with `*` or `{` in its name.
4. Braces are expanded, then `~`, then globs.
5. Any other text is passed on as a path that does not exist: formats may know a dataset of that name.

Credentials occur in URLs and storage options. `Url` prints neither user names nor queries, and options are not printed.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from penstock.core.narrowing import is_listed, is_path
from penstock.errors import ArgumentError, DataError, MissingExtraError, RemoteError, RemoteWarning
from penstock.flow import map_on_threads
from penstock.locations.hub import DATASETS, NotAskedError, downloaded
from penstock.locations.mirror import mirror
from penstock.locations.objects import shown
from penstock.locations.patterns import expand_braces, local_glob, url_glob
from penstock.locations.stores import object_store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?=//|:)")
_LOST_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/(?!/)")
MARKER = "penstock-upload.json"
"""Object at a URL while a dataset is uploaded; see `penstock.locations.upload`."""

_THREADS = "penstock-locate"
_AT_ONCE = 16  # URLs that are listed at a time
_SHOWN = 3  # names of a list that are shown in messages


@dataclass(frozen=True)
class Url:
    """A URL that prints without credentials."""

    full: str

    def __str__(self) -> str:
        return shown(self.full)

    def __repr__(self) -> str:
        return f"Url({str(self)!r})"


Place: TypeAlias = Path | Url


@dataclass(frozen=True)
class Location:
    """Where a dataset is: one local path or URL, or several."""

    text: str
    places: tuple[Place, ...]
    storage_options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def of(cls, given: LocationLike, storage_options: Mapping[str, Any] | None = None) -> Location:
        """Interpret a path, a URL, a pattern, or a list of them."""
        if isinstance(given, Location):
            if storage_options:
                raise ArgumentError("expected storage_options with a path or URL, got them with a Location")
            return given
        if not is_path(given) and not is_listed(given):
            raise ArgumentError(f"expected a path, a URL, a pattern or a list of them, got {given!r}")
        names: Sequence[object] = [given] if is_path(given) else given
        if not names:
            raise DataError("expected at least one path or URL, got an empty list")
        places = tuple(place for name in names for place in _places(name))
        options = dict(storage_options or {})
        if options and not any(isinstance(place, Url) for place in places):
            raise ArgumentError(f"expected storage_options with a URL, got {sorted(options)} with local paths")
        return cls(_text([without_credentials(name) for name in names]), places, options)

    def __str__(self) -> str:
        return self.text

    def paths(self) -> tuple[Path, ...]:
        """Return the local path of each file and folder, as `resolve` does."""
        return tuple(path for _, path in self.resolve())

    def resolve(self) -> tuple[tuple[str, Path], ...]:
        """Return the name, for messages, and the local path of each file and folder.

        A URL is mirrored: its bytes are fetched when they are read. A URL with a glob becomes all its matches.
        """
        if not any(isinstance(place, Url) for place in self.places):
            return tuple((str(place), Path(str(place))) for place in self.places)
        commits: dict[str, str] = {}  # so that all files of a repository are of one commit
        matches = map_on_threads(lambda place: self._matches(place, commits), self.places, _AT_ONCE, name=_THREADS)
        places_of_all = [place for places in matches for place in places]
        paths = map_on_threads(lambda place: self._local(place, commits), places_of_all, _AT_ONCE, name=_THREADS)
        return tuple(zip(map(str, places_of_all), paths, strict=True))

    def _matches(self, place: Place, commits: dict[str, str]) -> list[Place]:
        if isinstance(place, Path):
            return [place]
        return [Url(url) for url in url_glob(place.full, self.storage_options, commits)]

    def _local(self, place: Place, commits: dict[str, str]) -> Path:
        if isinstance(place, Path):
            return place
        path = self._downloaded(place, commits) or self._mirrored(place, commits)
        if (path / MARKER).exists():
            raise RemoteError(f"expected a complete dataset at {place}, got an upload that was not finished; repeat it")
        return path

    def _mirrored(self, place: Url, commits: dict[str, str]) -> Path:
        try:
            return mirror(place.full, self.storage_options, commits)
        except FileNotFoundError:
            folder, colon, split = place.full.rpartition(":")
            if not colon or "/" in split:
                raise
            path = mirror(folder, self.storage_options, commits)
            return path.with_name(f"{path.name}:{split}")

    def _downloaded(self, place: Url, commits: dict[str, str]) -> Path | None:
        """The copy that the Hub's client downloaded of the commit at a URL; an earlier one if no answer comes."""
        if not place.full.startswith(DATASETS) or (earlier := downloaded(place.full, whole=False)) is None:
            return None
        try:
            return downloaded(object_store(place.full, self.storage_options, commits).pinned)
        except (RemoteError, MissingExtraError) as error:
            lacking = "" if downloaded(place.full) == earlier else ", which may lack files"
            if lacking or not isinstance(error, NotAskedError):
                message = f"{place}: opened what was downloaded to {earlier}{lacking}: {error}"
                warnings.warn(RemoteWarning(message), stacklevel=2)
            return earlier


LocationLike: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Location"


def has_url(given: LocationLike) -> bool:
    """Return whether a location has a URL."""
    return any(isinstance(place, Url) for place in Location.of(given).places)


def output_place(given: str | os.PathLike[str]) -> Place:
    """Return the path or URL of a dataset to be written. Braces and globs are not expanded."""
    text = _checked(given)
    if isinstance(given, str) and text.startswith("file:"):
        return Path(_path_of(text))
    return Url(text) if isinstance(given, str) and _SCHEME.match(text) else Path(text)


def local_path(given: str | os.PathLike[str]) -> Path:
    """Return the path of files that are written or appended to in place."""
    place = output_place(given)
    if isinstance(place, Url):
        raise DataError(f"expected a path on this machine to write to, got {place}; convert writes datasets to URLs")
    return place


def _places(name: object) -> list[Place]:
    text = _checked(name)
    if isinstance(name, str) and text.startswith("file:"):
        return list(_expanded(_path_of(text)))
    if isinstance(name, str) and _SCHEME.match(text):
        return [Url(one) for one in expand_braces(text)]
    return list(_expanded(text))


def _checked(name: object) -> str:
    """Return a name as text. Raises an error for what is no name, and for commands."""
    if not is_path(name):
        raise ArgumentError(f"expected a path or URL as text or as a Path, got {name!r}")
    text = os.fspath(name)
    if not text:
        raise DataError("expected a path or URL, got an empty text")
    if text.startswith("pipe:") and not os.path.exists(text):
        raise DataError(
            "expected a path or URL, got 'pipe:' with a command: penstock runs no commands; save the output to a file, "
            "or pass ShardStream a function that opens it, such as {'pipe': lambda: process.stdout}"
        )
    lost = _LOST_SLASH.match(text)
    if lost and not (isinstance(name, str) and lost[1] == "file") and not os.path.exists(f"{lost[1]}:"):
        got = "one slash" if isinstance(name, str) else f"it as a path, which keeps one slash of {lost[1]}://"
        raise DataError(f"expected the URL {shown(text.replace(':/', '://', 1))} as text, got {got}")
    return text


def _path_of(url: str) -> str:
    """Return the path of a URL of a local file: `file:///a`, `file://localhost/a`, `file:/a` or `file:a`."""
    rest = url.removeprefix("file:")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise DataError(f"expected file:///path of this machine, got the host {shown('//' + host)[2:]!r}")
        rest = slash + path
    return unquote(rest)


def _expanded(text: str) -> list[Path]:
    """Return the local paths that a text stands for."""
    if os.path.lexists(text):
        return [Path(text)]
    if (names := expand_braces(text)) != [text]:
        return [path for name in names for path in _expanded(name)]
    text = os.path.expanduser(text)
    return local_glob(text) if has_magic(text) and not os.path.lexists(text) else [Path(text)]


def without_credentials(name: object) -> str:
    """Return a name of a location as text; of a URL, without user, password and query."""
    text = os.fspath(name) if is_path(name) else str(name)
    return str(Url(text)) if _SCHEME.match(text) else text


def _text(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    others = [] if len(names) <= _SHOWN else [f"and {len(names) - _SHOWN} others"]
    return ", ".join([*names[:_SHOWN], *others])
