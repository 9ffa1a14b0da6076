"""`Listing`: all objects below a folder of a server that shows one folder at a time, and does not say what is a link.

A folder that links to itself, or to a folder above it, has no end: `run/latest/latest/...`. A folder with the names of
a folder above it, and the sizes and versions of all its files, is such a link, and is left out: its objects are listed
already, and reading a local folder does not follow such links either. A folder with the names of many folders above it
is an error where its files have no versions, and left out with a warning where it has folders alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.core.damage import warn_damage
from penstock.errors import RemoteError
from penstock.flow import map_on_threads
from penstock.locations.objects import ObjectInfo, joined

LISTED = 1 << 20  # objects of a listing at most
REPEATED = 8  # folders on one path that may have the same names
_ANSWERS = 64  # threads that ask for the sizes of listed objects


class Listing:
    """One listing of the objects below a folder."""

    def __init__(self, names: Callable[[str], Sequence[str]], stat: Callable[[str], ObjectInfo], url: str) -> None:
        self._names = names
        self._stat = stat
        self._url = url
        self._infos: dict[str, ObjectInfo | None] = {}

    def objects(self, folder: str, beginning: str) -> list[ObjectInfo]:
        """Return all objects below a folder whose names begin with a text, sorted by name."""
        names = sorted(name for name in self._below(folder) if name.startswith(folder + beginning))
        infos = self._infos_of(names)
        objects = [info for name in names if (info := infos[name]) is not None]
        if len(objects) < len(names):  # not left out: a missing chunk of Zarr is not missing data, but a fill value
            gone = next(name for name in names if infos[name] is None)
            message = f"{joined(self._url, gone)} is listed, and cannot be found: a link that leads nowhere?"
            raise RemoteError(f"{message} Remove it, or give the URLs of the files")
        return objects

    def _below(self, top: str) -> list[str]:
        """The names of all objects below a folder."""
        names: list[str] = []
        folders: list[tuple[str, tuple[str, ...]]] = [(top, ())]
        pages: dict[str, list[str]] = {}
        while folders:
            folder, above = folders.pop()
            page = pages[folder] = sorted(self._names(folder))
            alike = [each for each in above if pages[each] == page]
            if any(self._is_same(folder, each, page) for each in alike):
                continue
            files = [folder + name for name in page if not name.endswith("/")]
            if len(alike) > REPEATED and not files:
                warn_damage(f"{joined(self._url, folder)} seems to be a link to a folder above it, and is left out")
                continue
            names += files
            folders += [(folder + name, (*above, folder)) for name in page if name.endswith("/")]
            if len(alike) > REPEATED or len(names) > LISTED:
                message = f"{LISTED} objects, and no folder that links to itself"
                raise RemoteError(
                    f"expected at most {message}, got {joined(self._url, folder)}; give the URLs of files"
                )
        return names

    def _is_same(self, folder: str, above: str, names: Sequence[str]) -> bool:
        """Whether the files of two folders have the same sizes and versions; False where a file has no version."""
        files = [name for name in names if not name.endswith("/")]
        both = self._infos_of([place + name for name in files for place in (above, folder)])
        states = [[_state(both[place + name]) for name in files] for place in (above, folder)]
        return bool(files) and states[0] == states[1] and None not in states[0]

    def _infos_of(self, names: Sequence[str]) -> dict[str, ObjectInfo | None]:
        """Size and version of each object, asked for once; None for what cannot be found."""
        unknown = [name for name in names if name not in self._infos]
        self._infos |= zip(unknown, map_on_threads(self._info, unknown, _ANSWERS, name="penstock-list"), strict=True)
        return {name: self._infos[name] for name in names}

    def _info(self, name: str) -> ObjectInfo | None:
        try:
            return self._stat(name)
        except FileNotFoundError:
            return None


def _state(info: ObjectInfo | None) -> tuple[int, str] | None:
    if info is None:
        return -1, ""  # it cannot be found
    return (info.size, info.version) if info.version else None
