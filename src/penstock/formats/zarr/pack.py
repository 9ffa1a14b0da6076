"""One ZIP file of a buffer in a folder, as UMI ships its data."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from penstock.errors import FormatError
from penstock.files import atomic_path

_MOMENT = (1980, 1, 1, 0, 0, 0)  # equal folders make equal files


def pack_zip(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Pack a Zarr folder into one ZIP file, whose members are stored and so read in place.

    The file appears when it is complete.
    """
    root, place = Path(folder), Path(out)
    if not root.is_dir():
        raise FormatError("expected a folder to pack", path=root)
    with atomic_path(place, durable="file") as new_file, zipfile.ZipFile(new_file, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(path for path in root.rglob("*") if path.is_file() and ".penstock" not in path.name):
            member = zipfile.ZipInfo(file.relative_to(root).as_posix(), _MOMENT)
            with file.open("rb") as source, archive.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    return place
