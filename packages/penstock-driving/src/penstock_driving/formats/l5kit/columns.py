"""The columns of a dataset: frames are steps, agents and faces are ragged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, SpecError
from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, TL_FACE_DTYPE

FRAME_FIELDS = ("timestamp", "ego_translation", "ego_rotation")
NESTED = {
    "agents": (AGENT_DTYPE, "agent_index_interval"),
    "tl_faces": (TL_FACE_DTYPE, "traffic_light_faces_index_interval"),
}


def _fields() -> dict[str, Field]:
    fields = {name: Field(FRAME_DTYPE[name].base, FRAME_DTYPE[name].shape) for name in FRAME_FIELDS}
    for table, (dtype, _) in NESTED.items():
        for name in dtype.names or ():
            fields[f"{table}/{name}"] = Field(dtype[name].base, (), "step", "ragged")
    return fields


SPEC = Spec(_fields())
"""`timestamp`, `ego_translation` [3] and `ego_rotation` [3, 3] of each frame; `agents/<field>` and `tl_faces/<field>`
ragged: a frame of `n` agents has `n` times the numbers of one, agent by agent (`reshape(-1, 2)` gives centroids)."""

WIDTHS = {
    f"{table}/{name}": math.prod(dtype[name].shape)
    for table, (dtype, _) in NESTED.items()
    for name in dtype.names or ()
}
"""How many values of each ragged column one agent, or one face, has."""


def flat(rows: AnyArray, name: str) -> AnyArray:
    """`[n * width]` one field of rows, row by row."""
    return np.ascontiguousarray(rows[name]).reshape(-1)


def tables_of(episode: Episode) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Frames, agents and faces of an episode; the intervals of the frames count from 0."""
    check_spec(episode.spec)
    frames = np.zeros(len(episode), FRAME_DTYPE)
    for name in FRAME_FIELDS:
        frames[name] = episode.columns[name]
    nested: list[AnyArray] = []
    for table, (dtype, interval) in NESTED.items():
        rows, counts = _nested(episode, table, dtype)
        frames[interval] = intervals(counts)
        nested.append(rows)
    return frames, nested[0], nested[1]


def _nested(episode: Episode, table: str, dtype: np.dtype[Any]) -> tuple[AnyArray, IntArray]:
    counts: IntArray | None = None
    rows = np.zeros(0, dtype)
    for name in dtype.names or ():
        path = f"{table}/{name}"
        column: Any = episode.columns[path]
        ragged: Ragged = column
        points, rest = np.divmod(ragged.lengths, WIDTHS[path])
        if counts is None:
            counts = points
            rows = np.zeros(int(points.sum()), dtype)
        wrong = np.flatnonzero((points != counts) | (rest != 0))
        if len(wrong):
            t = int(wrong[0])
            message = f"expected {counts[t]} times {WIDTHS[path]} values of {path}, got {ragged.lengths[t]}"
            raise DataError(f"{message} - at frame {t} of episode {episode.id}")
        rows[name] = ragged.values.reshape(len(rows), *dtype[name].shape)
    return rows, np.zeros(0, np.int64) if counts is None else counts


def intervals(counts: IntArray, first: int = 0) -> IntArray:
    """`[n, 2]` half-open intervals without gaps."""
    offsets = offsets_of(counts) + first
    return np.stack([offsets[:-1], offsets[1:]], 1)


def check_spec(spec: Spec) -> None:
    """Raise `SpecError` for columns other than `SPEC`, in any order."""
    if dict(spec.fields) != dict(SPEC.fields):
        missing, others = [n for n in SPEC if n not in spec], [n for n in spec if n not in SPEC]
        wrong = [f"{n} as {SPEC[n]}, got {spec[n]}" for n in SPEC if n in spec and spec[n] != SPEC[n]]
        raise SpecError(
            f"expected the columns of L5Kit: missing {missing}, unknown {others}, {wrong[:1] or 'no'} other"
        )
