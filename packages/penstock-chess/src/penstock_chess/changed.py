"""Positions of games with small changed fields: games stay as they were read, and encoding combines both."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.ragged import Ragged
from penstock_chess.compact import encode
from penstock_chess.rescore import Changes
from penstock_chess.short_term import VERSION

CHANGED = np.dtype([("game", object), ("at", np.int64), ("tail", np.uint32, 31), ("filled", bool)])
"""A position: frame `at` of `game`, frames or records of version 6, with other small fields. Positions of several games
may stand in one array, which keeps the games."""

_HEAD, _KEPT = 6, 23  # words of a compact row before small fields, and of these


def changed(records: ByteArray, changes: Changes) -> AnyArray:
    """`[n]` `CHANGED` the positions of a game."""
    out = np.empty(len(records), CHANGED)
    out["game"].fill(records)
    out["at"] = np.arange(len(records))
    out["tail"] = changes.tails
    out["filled"] = changes.filled
    return out


def encode_changed(positions: AnyArray, places: IntArray) -> Ragged:
    """Compact rows of some `CHANGED` positions, as `compact.encode` of their frames. Cost: one `encode`; a call for
    every game that follows another."""
    chosen = positions[places]
    games = chosen["game"].tolist()
    ends = [i for i in range(1, len(games)) if games[i] is not games[i - 1]]
    parts: list[Ragged] = []
    for first, last in zip([0, *ends], [*ends, len(games)], strict=True):
        parts.append(encode(games[first], chosen["at"][first:last]))
    rows = parts[0] if len(parts) == 1 else Ragged.concatenate(parts)
    words, first = rows.values.view("<u4"), rows.offsets[:-1] // 4
    words[first[:, None] + np.arange(_HEAD, _HEAD + _KEPT)] = chosen["tail"][:, :_KEPT]
    words[first[chosen["filled"]]] = VERSION.view("<u4")
    return rows
