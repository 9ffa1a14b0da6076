# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels of live data (numba, GIL released, cached on disk). Definitions: `live_reference`.

A draw is decided by the seed and its number alone, so results are the same on every machine and equal the
definitions'. The running sums of the ranges are a Fenwick tree: a draw among `S` ranges costs `log(S)` steps. The
caller owns all arrays; no kernel keeps one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels import live_reference
from penstock.kernels.intrinsics import memcpy
from penstock.kernels.jit import helper, kernel
from penstock.kernels.permute import CHUNK, GOLDEN, mix, permute_in

_GOLDEN = np.uint64(GOLDEN)


@kernel
def draw_ranges(left: Any, key: Any, counter: Any, out: Any) -> Any:
    """See `live_reference.draw_ranges`; the running sums are a Fenwick tree, so a draw costs `log(S)`."""
    ranges = len(left)
    tree = np.zeros(ranges + 1, np.int64)
    total = np.int64(0)
    for s in range(ranges):
        total += left[s]
        tree[s + 1] += left[s]
        above = s + 1 + ((s + 1) & -(s + 1))
        if above <= ranges:
            tree[above] += tree[s + 1]
    top = 1
    while top * 2 <= ranges:
        top *= 2
    n = min(len(out), total)
    for i in range(n):
        draw = mix(key + (np.uint64(counter) + np.uint64(i)) * _GOLDEN)
        place = np.int64(draw % np.uint64(total - i))
        s, step = 0, top
        while step > 0:
            if s + step <= ranges and tree[s + step] <= place:
                s += step
                place -= tree[s]
            step //= 2
        out[i] = s
        left[s] -= 1
        s += 1
        while s <= ranges:
            tree[s] -= 1
            s += s & -s
    return n


@kernel
def shuffle_places(key: Any, number: Any, n: Any, begin: Any, endless: Any, out: Any) -> None:
    """See `live_reference.shuffle_places`."""
    place, size, cycle = np.empty(len(out), np.int64), np.empty(len(out), np.int64), np.empty(len(out), np.int64)
    for i in range(len(out)):
        place[i], size[i] = (begin + i) % n, n
        cycle[i] = (begin + i) // n if endless else 0
    room = np.empty((4, CHUNK), np.uint64)
    permute_in(place, size, cycle, mix(np.uint64(number) * _GOLDEN + key), False, room, out)


exchange_references: Any = kernel(live_reference.exchange_references)


@kernel
def exchange(
    pages: Any,
    link: Any,
    free: Any,
    head: Any,
    length: Any,
    slots: Any,
    given: Any,
    given_ends: Any,
    taken: Any,
    taken_ends: Any,
    begin: Any,
) -> Any:
    """See `live_reference.exchange`."""
    size = pages.shape[1]
    base, source, to = pages.ctypes.data, given.ctypes.data, taken.ctypes.data
    for i in range(begin, len(slots)):
        slot = slots[i]
        old, new, out = length[slot], given_ends[i + 1] - given_ends[i], taken_ends[i]
        spare, needed = (old + size - 1) // size + len(pages) - free[1], (new + size - 1) // size
        page = free[0]
        while page >= 0 and spare < needed:
            spare, page = spare + 1, np.int64(link[page])
        if out + old > len(taken) or spare < needed:
            return i
        _take(base, size, link, free, np.int64(head[slot]), to + out, old)
        head[slot] = _put(base, size, link, free, source + given_ends[i], new)
        taken_ends[i + 1], length[slot] = out + old, new
    return len(slots)


@helper
def _take(base: Any, size: Any, link: Any, free: Any, page: Any, to: Any, n: Any) -> None:
    for lo in range(0, n, size):
        memcpy(to + lo, base + page * size, min(size, n - lo))
        following = np.int64(link[page])
        link[page] = free[0]
        free[0] = page
        page = following


@helper
def _put(base: Any, size: Any, link: Any, free: Any, source: Any, n: Any) -> Any:
    first, last = np.int64(0), np.int64(-1)
    for lo in range(0, n, size):
        page = free[0]
        if page >= 0:
            free[0] = link[page]
        else:
            page = free[1]
            free[1] += 1
        memcpy(base + page * size, source + lo, min(size, n - lo))
        if last < 0:
            first = page
        else:
            link[last] = page
        last = page
    return first


_frames_of: Any = helper(live_reference.frames_of)


@kernel
def find_held(words: Any, where: Any, base: Any, number: Any, use: Any, frames: Any, nbytes: Any) -> None:
    """See `live_reference.find_held`."""
    for i in range(len(number)):
        frames[i], nbytes[i] = -1, 0
        slot = number[i] - base
        at = where[slot] if 0 <= slot < len(where) else np.int64(-1)
        if at >= 0 and 0 <= use[i] - words[at + 2] < words[at + 3]:
            first, last, bytes_at, _ = _frames_of(words, at, use[i])
            frames[i], nbytes[i] = last - first, words[bytes_at + last] - words[bytes_at + first]


@kernel
def copy_held(
    words: Any,
    where: Any,
    base: Any,
    number: Any,
    use: Any,
    frames: Any,
    rows: Any,
    ends: Any,
    chunk: Any,
    place: Any,
) -> Any:
    """See `live_reference.copy_held`."""
    done, freed = 0, np.int64(0)
    for i in range(len(number)):
        if frames[i] < 0:
            continue
        at = where[number[i] - base]
        first, last, bytes_at, rows_at = _frames_of(words, at, use[i])
        size = words[bytes_at + last] - words[bytes_at + first]
        memcpy(rows.ctypes.data + ends[done], words.ctypes.data + 8 * rows_at + words[bytes_at + first], size)
        places = bytes_at - words[at + 4 + words[at + 3]]
        for j in range(first, last):
            ends[done + 1] = ends[done] + words[bytes_at + j + 1] - words[bytes_at + j]
            chunk[done], place[done] = number[i], words[places + j]
            done += 1
        if use[i] - words[at + 2] == words[at + 3] - 1:
            where[number[i] - base] = -1
            freed += words[at + 1]
    return freed


slide_held: Any = kernel(live_reference.slide_held)
