"""Where the data of a dataset are: in its directory, in `data` below it, or in a file."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import UnknownFormatError
from penstock.formats.minari import metadata, root
from penstock.formats.minari.arrow_source import episode_directories
from penstock.formats.minari.hdf5_index import MAIN


def place(path: Path) -> tuple[Path, str | None]:
    """The folder with the data, and the HDF5 file in it (None for the other back-ends).

    Raises `UnknownFormatError` where there is no such thing.
    """
    path = Path(path)
    if path.is_file():
        return path.parent, path.name
    for folder in (path / root.DATA, path):
        if (folder / MAIN).is_file():
            return folder, MAIN
        if (folder / metadata.FILE).is_file() or episode_directories(folder):
            return folder, None
    raise UnknownFormatError(f"expected {MAIN} or {metadata.FILE} in a data directory, got neither", path=path)
