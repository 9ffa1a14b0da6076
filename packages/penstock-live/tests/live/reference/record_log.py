"""Definitions of `penstock_live.kernels.record_log`, written to be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import IntArray


def frames_of(words: Any, at: Any, use: Any) -> tuple[Any, Any, Any, Any]:
    uses = words[at + 3]
    ends = at + 4 + use - words[at + 2]
    frames = words[at + 4 + uses]
    return words[ends], words[ends + 1], at + 5 + uses + frames, at + 6 + uses + 2 * frames


def find_records(
    words: Any, where: Any, base: int, number: IntArray, use: IntArray, frames: IntArray, nbytes: IntArray
) -> None:
    for i in range(len(number)):
        frames[i], nbytes[i] = -1, 0
        slot = number[i] - base
        at = where[slot] if 0 <= slot < len(where) else -1
        if at >= 0 and 0 <= use[i] - words[at + 2] < words[at + 3]:
            first, last, bytes_at = frames_of(words, at, use[i])[:3]
            frames[i], nbytes[i] = last - first, words[bytes_at + last] - words[bytes_at + first]


def copy_records(
    words: Any,
    where: Any,
    base: int,
    number: IntArray,
    use: IntArray,
    frames: IntArray,
    rows: Any,
    ends: IntArray,
    chunk: IntArray,
    place: Any,
) -> int:
    stored, done, freed = words.view(np.uint8), 0, 0
    for i in range(len(number)):
        if frames[i] < 0:
            continue
        at = where[number[i] - base]
        first, last, bytes_at, rows_at = frames_of(words, at, use[i])
        for j in range(first, last):
            lo, hi = (8 * rows_at + words[bytes_at + k] for k in (j, j + 1))
            rows[ends[done] : ends[done] + hi - lo] = stored[lo:hi]
            ends[done + 1] = ends[done] + hi - lo
            chunk[done], place[done] = number[i], words[bytes_at - words[at + 4 + words[at + 3]] + j]
            done += 1
        if use[i] - words[at + 2] == words[at + 3] - 1:
            where[number[i] - base] = -1
            freed += words[at + 1]
    return freed


def slide_records(words: IntArray, where: IntArray, base: int, end: int, excess: int) -> tuple[int, int]:
    at, to, dropped = 0, 0, 0
    while at < end:
        slot, size = words[at] - base, words[at + 1]
        if 0 <= slot < len(where) and where[slot] == at:
            if dropped < excess:
                where[slot] = -1
                dropped += size
            else:
                words[to : to + size] = words[at : at + size].copy()
                where[slot] = to
                to += size
        at += size
    return int(to), int(dropped)
