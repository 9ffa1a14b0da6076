"""Definitions of `penstock_live.kernels.pages`, written to be read."""

from __future__ import annotations

from typing import Any

from penstock.core.arrays import IntArray


def exchange(
    pages: Any,
    link: Any,
    free: IntArray,
    head: IntArray,
    length: IntArray,
    slots: IntArray,
    given: Any,
    given_ends: IntArray,
    taken: Any,
    taken_ends: IntArray,
    begin: int,
) -> int:
    size = pages.shape[1]
    for i in range(begin, len(slots)):
        slot, row = slots[i], given[given_ends[i] : given_ends[i + 1]]
        old, out = int(length[slot]), int(taken_ends[i])
        spare, needed = -(-old // size) + len(pages) - int(free[1]), -(-len(row) // size)
        page = int(free[0])
        while page >= 0 and spare < needed:
            spare, page = spare + 1, int(link[page])
        if out + old > len(taken) or spare < needed:
            return i
        _take(pages, link, free, int(head[slot]), taken[out : out + old])
        head[slot] = _put(pages, link, free, row)
        taken_ends[i + 1], length[slot] = out + old, len(row)
    return len(slots)


def _take(pages: Any, link: Any, free: IntArray, page: int, out: Any) -> None:
    size = pages.shape[1]
    for lo in range(0, len(out), size):
        out[lo : lo + size] = pages[page, : len(out) - lo]
        following = int(link[page])
        link[page], free[0] = free[0], page
        page = following


def _put(pages: Any, link: Any, free: IntArray, row: Any) -> int:
    size, first, last = pages.shape[1], 0, -1
    for lo in range(0, len(row), size):
        page = int(free[0])
        if page >= 0:
            free[0] = link[page]
        else:
            page = int(free[1])
            free[1] += 1
        part = row[lo : lo + size]
        pages[page, : len(part)] = part
        if last < 0:
            first = page
        else:
            link[last] = page
        last = page
    return first


def exchange_references(
    chunk: IntArray, place: Any, slots: IntArray, new_chunk: IntArray, new_place: Any, out: IntArray, at: Any
) -> None:
    for i in range(len(slots)):
        slot = slots[i]
        out[i], at[i] = chunk[slot], place[slot]
        chunk[slot], place[slot] = new_chunk[i], new_place[i]
