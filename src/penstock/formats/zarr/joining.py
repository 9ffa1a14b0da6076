"""Buffers that were written in parts become one buffer, with the same bytes as a buffer of one writer.

`ZarrWriter.begin_at` puts the rows of a part where they are in the whole buffer, so `join_arrays` moves their chunks.
How many values ragged columns and the metadata of episodes have before a part may not be known in advance. These values
are encoded again where they begin elsewhere, and what their ends count from is changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from penstock.containers.zarr import ArrayPart, ZarrGroup, join_arrays
from penstock.containers.zarr.metadata import ATTRIBUTES, GROUP, NODE
from penstock.core.arrays import AnyArray
from penstock.files import sync
from penstock.files.remote import read_text
from penstock.formats.zarr.layout import DATA, ENDS, EPISODES, META, PART, BufferLayout


def join_buffers(parts: Sequence[Path], out: Path) -> None:
    """Join buffers to one buffer. A second call continues after a kill."""
    firsts: list[Mapping[str, int]] = [json.loads(read_text(part / PART))["first_rows"] for part in parts]
    for folder in ("", DATA, META):
        (out / folder).mkdir(parents=True, exist_ok=True)
        for name in (GROUP, NODE, ATTRIBUTES):
            if (parts[0] / folder / name).exists():
                shutil.copyfile(parts[0] / folder / name, out / folder / name)
    groups = [ZarrGroup(part) for part in parts]
    layout = BufferLayout.of(groups[0], np.zeros(0, np.int64))
    values = {str(stored.ends): stored.rows for stored in layout.columns.values() if stored.ends}
    values[f"{EPISODES}.ends"] = f"{EPISODES}.values"
    names = {name for stored in layout.columns.values() for name in stored.names()}
    for name in sorted({*names, *values, *values.values(), ENDS}):
        changes: list[Callable[[AnyArray], AnyArray] | None] = [None] * len(parts)
        if name in values:
            counts = [len(group.array(values[name])) for group in groups]
            changes = _changes(counts, [first.get(values[name], 0) for first in firsts])
        begins = [first.get(name, 0) for first in firsts]
        join_arrays(name, [ArrayPart(*each) for each in zip(parts, begins, changes, strict=True)], out)
    sync(out)


def _changes(ends: Sequence[int], firsts: Sequence[int]) -> list[Callable[[AnyArray], AnyArray] | None]:
    """For each part, the function that adds the number of values before the part that it did not count to its ends."""
    changes: list[Callable[[AnyArray], AnyArray] | None] = []
    before = 0
    for end, first in zip(ends, firsts, strict=True):
        changes.append(partial(np.add, before - first) if before != first else None)
        before += end - first
    return changes
