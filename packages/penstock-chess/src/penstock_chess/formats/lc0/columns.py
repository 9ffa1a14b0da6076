"""The columns of a game: a field of the record each, one row a position."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import ByteArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, SpecError
from penstock_chess.formats.lc0.records import FRAME

_NO_COLUMNS = ("version", "dummy", "reserved")
_NAMES = tuple(name for name in FRAME.names or () if name not in _NO_COLUMNS)


def _field(name: str) -> Field:
    dtype = FRAME[name]
    return Field(dtype.base, dtype.shape, "step")


SPEC = Spec({name: _field(name) for name in ("planes", "probabilities", *_NAMES)})
"""What every dataset of games has: `planes` `[104]` uint64, `probabilities` `[1858]` float32, and one number a step for
each other field of a record but `version`, which the metadata of an episode has, and what is unused. A step is a
position and what was played there; there is no position after the last move."""


def check_spec(spec: Spec) -> None:
    """Raise `SpecError` unless the columns are the columns of `SPEC`, in any order."""
    fields, expected = dict(spec.fields), dict(SPEC.fields)
    if fields != expected:
        wrong = sorted(name for name in fields.keys() | expected.keys() if fields.get(name) != expected.get(name))
        raise SpecError(f"expected the columns of a record (penstock_chess.formats.lc0.SPEC), got others: {wrong}")


def values(frames: ByteArray, name: str) -> npt.NDArray[np.generic]:
    """`[n, *shape]` one column of frames, a view of them."""
    return frames.view(FRAME)[:, 0][name]


def frames_of(episode: Episode) -> ByteArray:
    """`[n, 8396]` the frames of an episode."""
    check_spec(episode.spec)
    if not len(episode):
        raise DataError("expected a game of at least one position, got none: there is no chunk without frames")
    frames = np.zeros((len(episode), FRAME.itemsize), np.uint8)
    columns: Mapping[str, Array] = episode.columns
    frames.view(FRAME)["version"] = 7
    for name in SPEC:
        values(frames, name)[:] = np.asarray(columns[name])
    return frames
