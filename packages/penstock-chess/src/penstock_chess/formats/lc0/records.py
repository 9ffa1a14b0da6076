"""The records of training data, versions 3 to 7 (packed, little-endian, one a position), and the columns of a game."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import ByteArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array
from penstock.core.spec import Field, Spec
from penstock.errors import SpecError

POLICY = 1858  # moves that a policy has a place for
PLANES = 104  # 8 positions of 13 planes
NO_MOVE = 65535  # the index of a move that was not played, past the end of a game

_HEAD: list[tuple[Any, ...]] = [("version", "<u4"), ("input_format", "<u4")]
_POSITION: list[tuple[Any, ...]] = [
    ("probabilities", "<f4", (POLICY,)),
    ("planes", "<u8", (PLANES,)),
    ("castling_us_ooo", "u1"),
    ("castling_us_oo", "u1"),
    ("castling_them_ooo", "u1"),
    ("castling_them_oo", "u1"),
    ("side_to_move_or_enpassant", "u1"),
    ("rule50_count", "u1"),
    ("invariance_info", "u1"),  # versions 3 and 4: the number of moves that are left
    ("dummy", "u1"),  # versions 3 to 5: the result, a signed byte
]
_V4 = [(name, "<f4") for name in ("root_q", "best_q", "root_d", "best_d")]
_V5 = [(name, "<f4") for name in ("root_m", "best_m", "plies_left")]
_V6: list[tuple[Any, ...]] = [
    *((name, "<f4") for name in ("result_q", "result_d", "played_q", "played_d", "played_m")),
    *((name, "<f4") for name in ("orig_q", "orig_d", "orig_m")),
    ("visits", "<u4"),
    ("played_idx", "<u2"),
    ("best_idx", "<u2"),
    ("policy_kld", "<f4"),
    ("q_st", "<f4"),
]
_V7: list[tuple[Any, ...]] = [
    ("d_st", "<f4"),
    ("opp_played_idx", "<u2"),
    ("next_played_idx", "<u2"),
    ("reserved", "<f4", (8,)),
]

RECORDS: dict[int, np.dtype[Any]] = {
    3: np.dtype([_HEAD[0], *_POSITION]),
    4: np.dtype([_HEAD[0], *_POSITION, *_V4]),
    5: np.dtype([*_HEAD, *_POSITION, *_V4, *_V5]),
    6: np.dtype([*_HEAD, *_POSITION, *_V4, *_V5, *_V6]),
    7: np.dtype([*_HEAD, *_POSITION, *_V4, *_V5, *_V6, *_V7]),
}
"""The record of each version."""

FRAME = RECORDS[7]
"""What all are brought to when they are loaded: 8396 bytes."""

INPUT_FORMATS = (1, 2, 3, 4, 5, 132, 133)


UNUSED = ("dummy", "reserved")
"""Fields that have no meaning: zeros in all known files. Columns all the same, for what is there is kept."""

_NAMES = tuple(name for name in FRAME.names or () if name != "version")


def _field(name: str) -> Field:
    dtype = FRAME[name]
    return Field(dtype.base, dtype.shape, "step")


SPEC = Spec({name: _field(name) for name in ("planes", "probabilities", *_NAMES)})
"""What every dataset of games has: `planes` `[104]` uint64, `probabilities` `[1858]` float32, and each other field of a
record but `version`, which the metadata of an episode has. A step is a position and what was played there; there is no
position after the last move."""


def check_spec(spec: Spec) -> None:
    """Raise `SpecError` unless the columns are the columns of `SPEC`, in any order; unused ones may be missing."""
    fields, expected = dict(spec.fields), dict(SPEC.fields)
    if {name: SPEC[name] for name in UNUSED} | fields != expected:
        wrong = sorted(name for name in fields.keys() | expected.keys() if fields.get(name) != expected.get(name))
        raise SpecError(f"expected the columns of a record (penstock_chess.formats.lc0.SPEC), got others: {wrong}")


def values(frames: ByteArray, name: str) -> npt.NDArray[np.generic]:
    """`[n, *shape]` one column of frames, a view of them."""
    return frames.view(FRAME)[:, 0][name]


def frames_of(episode: Episode) -> ByteArray:
    """`[n, 8396]` the frames of an episode."""
    check_spec(episode.spec)
    frames = np.zeros((len(episode), FRAME.itemsize), np.uint8)
    columns: Mapping[str, Array] = episode.columns
    frames.view(FRAME)["version"] = 7
    for name, column in columns.items():
        values(frames, name)[:] = np.asarray(column)
    return frames
