"""Repairs of driving logs: frames and agents behind the last scene, as a killed writer leaves them, are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from penstock.containers.npy import header_bytes
from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.writing import cut_rows
from penstock.core.cache import Cache
from penstock.errors import FormatError
from penstock.formats.base.findings import Repair
from penstock_driving.formats.l5kit.columns import NESTED
from penstock_driving.formats.l5kit.npy import mapped
from penstock_driving.formats.l5kit.source import offsets_in
from penstock_driving.formats.l5kit.tables import Tables, open_tables, stored_rows


def unused_rows(path: Path) -> Iterator[Repair]:
    """Yield a repair for each array with rows of no scene: of the file that says how many rows it has, of a `.npy` file
    as a whole, of a ZIP archive one for all arrays.
    """
    tables = open_tables(path, Cache(0))
    try:
        longer: dict[str, tuple[ZarrArray, int]] = {}
        for name, used in _used(tables, path).items():
            rows = stored_rows(tables.rows(name))
            if len(rows) > used and isinstance(rows, ZarrArray):
                longer[name] = rows, used
            elif len(rows) > used and (file := path / f"{name}.npy").exists():
                message = f"cut {len(rows) - used} rows of no scene off"
                yield Repair("unused-rows", file, message, partial(_first_rows, file, used), None, name)
        for change in cut_rows(path, longer):
            message = f"cut the rows of no scene off {', '.join(change.names)}"
            where = None if change.keep else change.names[0]
            yield Repair("unused-rows", change.path, message, partial(bytes, change.content), change.keep, where)
    finally:
        tables.close()


def _first_rows(file: Path, count: int) -> bytes:
    """A `.npy` file with the first rows of another one."""
    rows = mapped(file)[:count]
    return header_bytes(rows.dtype, (count,)) + rows.tobytes()


def _used(tables: Tables, path: Path) -> dict[str, int]:
    """Rows of each array that belong to a scene; none where intervals do not follow one another."""
    frames = len(tables.frames)
    try:
        used = int(offsets_in(tables.scenes[:]["frame_index_interval"], frames, "scenes", path)[-1])
        intervals = tables.frames[:used] if used else np.zeros(0, tables.frames.dtype)
        used_rows = {"frames": used}
        for table, (_, field) in NESTED.items():
            rows = tables.agents if table == "agents" else tables.tl_faces
            name = "agents" if table == "agents" else "traffic_light_faces"
            used_rows[name] = int(offsets_in(intervals[field], len(rows), name, path)[-1]) if used else 0
    except FormatError:
        return {}
    return used_rows
