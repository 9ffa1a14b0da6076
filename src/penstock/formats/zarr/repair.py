"""Repairs of replay buffers: rows behind the last episode, as a killed writer leaves them, are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from penstock.containers.zarr.shorter import shortened
from penstock.formats.base.repairs import Repair
from penstock.formats.zarr.layout import DATA
from penstock.formats.zarr.source import ZarrSource


def unused_rows(path: Path) -> Iterator[Repair]:
    """Yield a repair for each file that says how many rows an array has. A ZIP archive has none that can change.

    Args:
        path: Folder of the buffer.
    """
    if not path.is_dir():
        return
    with ZarrSource(path, cache_bytes=0, missing="fill") as source:
        for stored in source.layout.columns.values():
            for name in stored.names():
                array = source.array(name)
                if not name.startswith(f"{DATA}/") or len(array) <= source.steps:
                    continue
                message = f"cut {len(array) - source.steps} rows of no episode off"
                for file, content in shortened(path, array, source.steps):
                    yield Repair("unused-rows", file, message, partial(bytes, content), None, name)
