"""Datasets that were written in parts become one dataset, with the same bytes as a dataset of one writer.

`L5KitWriter.begin_at` puts the rows of a part where they are in the whole dataset, so the chunks of a part are moved,
and intervals count from the right row. If agents or faces were not known to begin elsewhere, intervals of frames are
changed here, and agents are encoded again. Arrays in `.npy` files are copied.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ATTRIBUTES, GROUP
from penstock.containers.zarr.writing import ArrayPart, join_arrays
from penstock.core.arrays import AnyArray
from penstock.files import sync
from penstock.files.remote import read_text
from penstock_driving.formats.l5kit import npy
from penstock_driving.formats.l5kit.dtypes import DTYPES
from penstock_driving.formats.l5kit.tables import FACES, PART

_INTERVALS = {"agents": "agent_index_interval", FACES: "traffic_light_faces_index_interval"}
_BLOCK_ROWS = 1 << 16  # that are copied at a time


def join_tables(parts: Sequence[Path], out: Path) -> None:
    """Join datasets to one dataset. A second call continues after a kill."""
    out.mkdir(parents=True, exist_ok=True)
    firsts: list[Mapping[str, int]] = [json.loads(read_text(part / PART))["first_rows"] for part in parts]
    flat = (parts[0] / "scenes.npy").exists()
    added = {name: _added(name, parts, [first[name] for first in firsts], flat) for name in _INTERVALS}
    for name in (npy.ATTRIBUTES,) if flat else (ATTRIBUTES, GROUP):
        shutil.copyfile(parts[0] / name, out / name)
    for name in DTYPES:
        changes: list[Callable[[AnyArray], AnyArray] | None] = [None] * len(parts)
        if name == "frames":
            changes = [
                partial(_shifted, {_INTERVALS[table]: added[table][p] for table in _INTERVALS})
                if any(added[table][p] for table in _INTERVALS)
                else None
                for p in range(len(parts))
            ]
        pieces = [
            ArrayPart(part, first[name], change) for part, first, change in zip(parts, firsts, changes, strict=True)
        ]
        if flat:
            _join_file(name, pieces, out)
        else:
            join_arrays(name, pieces, out)
    sync(out)


def _added(name: str, parts: Sequence[Path], firsts: Sequence[int], flat: bool) -> list[int]:
    """For each part, how many rows more there are before it than it counted."""
    ends = [len(npy.mapped(part / f"{name}.npy")) if flat else len(ZarrGroup(part).array(name)) for part in parts]
    before = accumulate((end - first for end, first in zip(ends, firsts, strict=True)), initial=0)
    return [rows - first for rows, first in zip(before, firsts, strict=False)]


def _shifted(added: Mapping[str, int], frames: AnyArray) -> AnyArray:
    """Frames whose intervals count from other rows."""
    shifted = frames.copy()
    for field, rows in added.items():
        shifted[field] += rows
    return shifted


def _join_file(name: str, parts: Sequence[ArrayPart], out: Path) -> None:
    """Copy the rows of all parts to one `.npy` file."""
    path = out / f"{name}.npy"
    path.unlink(missing_ok=True)
    file = npy.NpyAppender.create(path, DTYPES[name])
    try:
        for part in parts:
            rows = npy.mapped(part.group / f"{name}.npy")
            for row in range(part.first, len(rows), _BLOCK_ROWS):
                block = rows[row : row + _BLOCK_ROWS]
                file.append(block if part.change is None else part.change(block))
        file.commit()
        file.sync()
    finally:
        file.close()
