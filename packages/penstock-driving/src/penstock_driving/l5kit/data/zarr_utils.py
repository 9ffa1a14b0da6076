"""Datasets made of others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import DataError
from penstock.files import move, scratch_folder
from penstock_driving.formats.l5kit import L5KitSource, chop, concat, split

Path_ = str | os.PathLike[str]

GIGABYTE = 1 << 30


def zarr_concat(input_zarrs: Sequence[Path_], output_zarr: Path_) -> None:
    """Concatenate the scenes of several datasets. Raises as `penstock_driving.formats.l5kit.concat` does."""
    concat(input_zarrs, output_zarr)


def zarr_scenes_chop(input_zarr: Path_, output_zarr: Path_, num_frames_to_copy: int) -> None:
    """Keep the first frames of every scene. Raises as `penstock_driving.formats.l5kit.chop` does."""
    chop(input_zarr, output_zarr, num_frames_to_copy)


def zarr_split(
    input_zarr: Path_, output_path: Path_, split_infos: Sequence[Mapping[str, Any]]
) -> list[tuple[int, int]]:
    """Parts of a dataset in the folder `output_path`, which may be there: `name` and `split_size_GB` (GiB) of each, -1
    for all that is left and in the last alone. Returns the scenes `[a, b)` of each.
    """
    if not split_infos or split_infos[-1]["split_size_GB"] != -1:
        raise DataError("expected parts of which the last has split_size_GB -1, for what is left")
    with L5KitSource(input_zarr) as source:
        scenes = len(source)
    size = sum(file.stat().st_size for file in Path(input_zarr).rglob("*") if file.is_file()) / GIGABYTE
    parts = {str(part["name"]): int(scenes * part["split_size_GB"] / size) for part in split_infos[:-1]}
    if sum(parts.values()) >= scenes or len(parts) + 1 != len({part["name"] for part in split_infos}):
        raise DataError(f"expected parts by different names that leave one of {scenes} scenes for the last")
    parts[str(split_infos[-1]["name"])] = -1
    folder = Path(output_path)
    if there := [name for name in parts if (folder / name).exists()]:
        raise FileExistsError(f"expected nothing at {folder / there[0]}; remove it, or choose another place")
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder / "parts") as scratch:
        cuts = split(input_zarr, scratch / "parts", parts)
        for name in parts:
            move(scratch / "parts" / name, folder / name)
    return cuts
