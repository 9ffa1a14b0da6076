"""Repairs of replay buffers: rows behind the last episode, as a killed writer leaves them, are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from penstock.containers.zarr.shorter import cut_rows
from penstock.formats.base.repairs import Repair
from penstock.formats.zarr.layout import DATA
from penstock.formats.zarr.source import ZarrSource


def unused_rows(path: Path) -> Iterator[Repair]:
    """Yield a repair for each file that says how many rows an array has; of a ZIP archive, one for all arrays."""
    with ZarrSource(path, cache_bytes=0, missing="fill") as source:
        names = sorted({name for stored in source.layout.columns.values() for name in stored.names()})
        arrays = {name: source.array(name) for name in names if name.startswith(f"{DATA}/")}
        longer = {name: (array, source.steps) for name, array in arrays.items() if len(array) > source.steps}
        for change in cut_rows(path, longer):
            message = f"cut the rows of no episode off {', '.join(change.names)}"
            where = None if change.keep else change.names[0]
            yield Repair("unused-rows", change.path, message, partial(bytes, change.content), change.keep, where)
