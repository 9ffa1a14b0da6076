"""Outputs derived from the spans of a selection: masks, segment ids, positions.

No value is read. A span says which sample and row it begins at, and which segment and position its first row has.
`kernels.paint` writes `value + slope * row` over each span and zero elsewhere: slope 0 gives segment ids, slope 1 gives
positions. Numbers of episodes and steps come from a search of a span's first row in the first rows of all episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, Int32Array, IntArray
from penstock.core.selection import Selection
from penstock.errors import PlanError
from penstock.kernels.spans import paint
from penstock.plan.outputs import DerivedOutput

Empty = Callable[[tuple[int, ...], np.dtype[Any]], AnyArray]
Begins = Callable[[int], IntArray]
"""Of a source by number: the first row of each of its episodes in the row space of the view, `[E + 1]` with the end."""


def _no_begins(source: int) -> IntArray:
    raise ValueError(f"expected the first rows of the episodes of source {source}, got none")


def marked(mark: DerivedOutput, selection: Selection, empty: Empty = np.empty, begins: Begins = _no_begins) -> AnyArray:
    """Compute a derived output, as `DerivedOutput` describes it."""
    if mark.kind == "segment_ids":
        return _painted(selection, _segment(selection), 0, empty)
    if mark.kind == "positions":
        return _painted(selection, _position(selection), 1, empty)
    if mark.kind == "place":
        return _place(selection, empty, begins)
    if mark.kind in ("step_numbers", "episode_numbers", "source_numbers"):
        numbers = _numbers(mark, selection, empty, begins)
        return numbers[:, 0] if mark.squeeze else numbers
    return _DRAW[mark.kind](mark, selection)


def _mask(_: DerivedOutput, selection: Selection) -> AnyArray:
    return selection.mask()


def _lengths(mark: DerivedOutput, selection: Selection) -> AnyArray:
    lengths = np.zeros((selection.shape[0], mark.width), np.int32)
    rows = selection.length if selection.headed is None else selection.length + selection.headed
    np.add.at(lengths, (_sample(selection), _segment(selection) - 1), rows.astype(np.int32))
    return lengths


def _cu_seqlens(mark: DerivedOutput, selection: Selection) -> AnyArray:
    sums = np.zeros((selection.shape[0], mark.width + 1), np.int32)
    np.cumsum(_lengths(mark, selection), axis=1, out=sums[:, 1:])
    return sums


def _sources(mark: DerivedOutput, selection: Selection) -> AnyArray:
    sources = np.full((selection.shape[0], mark.width), -1, np.int32)
    sources[_sample(selection), _segment(selection) - 1] = selection.source
    return sources


def _source(mark: DerivedOutput, selection: Selection) -> AnyArray:
    return part_of(mark, _origin(mark, selection))


def part_of(mark: DerivedOutput, origin: IntArray) -> Int32Array:
    """Return the number of each sample's part of a mix, `[n]`."""
    return (np.searchsorted(mark.having, origin, side="right") - 1).astype(np.int32)


def _origin(_: DerivedOutput, selection: Selection) -> IntArray:
    """Origin of each sample. It needs the field `origin`, because samples without rows have no spans."""
    if selection.origin is None:
        raise PlanError("expected the selection of a mix, which picked each of its samples, got another one")
    return selection.origin


def _present(mark: DerivedOutput, selection: Selection) -> AnyArray:
    present = np.isin(_origin(mark, selection), mark.having)
    present[_sample(selection)] = False  # where there are spans they decide: a pack may be from several sources
    present[_sample(selection)[np.isin(selection.source, mark.having)]] = True
    return present


def _drawn(_: DerivedOutput, selection: Selection) -> AnyArray:
    drawn = np.zeros(selection.shape[0], np.bool_)
    drawn[_sample(selection)] = True
    return drawn


def _place(selection: Selection, empty: Empty, begins: Begins) -> IntArray:
    out = empty((selection.shape[0], 2), np.dtype(np.int64))
    out[:] = -1
    for number, part in selection.by_source():
        first, (sample, span) = begins(number), np.unique(_sample(part), return_index=True)
        row = part.start[span]
        episode = first.searchsorted(row, side="right") - 1
        out[sample, 0], out[sample, 1] = episode, row - first[episode]
    return out


def _numbers(mark: DerivedOutput, selection: Selection, empty: Empty, begins: Begins) -> Int32Array:
    """Number of each row: `padding` where no span is, and in the row before a part that continues a sequence."""
    kind, value = mark.kind, selection.source.copy()
    if kind != "source_numbers":
        for number in np.unique(selection.source).tolist():
            mine = selection.source == number
            first, row = begins(number), selection.start[mine]
            episode = first.searchsorted(row, side="right") - 1
            value[mine] = episode if kind == "episode_numbers" else row - first[episode]
    out = empty((selection.shape[0] * selection.shape[1],), np.dtype(np.int32))
    paint(selection.destination, selection.length, value + 1, int(kind == "step_numbers"), out)  # 0 where no span is
    out -= 1
    if mark.padding != -1:
        out[out == -1] = mark.padding
    return out.reshape(selection.shape)


def _sample(selection: Selection) -> IntArray:
    return selection.destination // selection.shape[1]


def _segment(selection: Selection) -> IntArray:
    return np.ones_like(selection.destination) if selection.segment is None else selection.segment


def _position(selection: Selection) -> IntArray:
    if selection.position is not None:
        return selection.position
    return selection.destination - _sample(selection) * selection.shape[1]


def _painted(selection: Selection, value: IntArray, slope: int, empty: Empty) -> Int32Array:
    out = empty((selection.shape[0] * selection.shape[1],), np.dtype(np.int32))
    destination, length = selection.destination, selection.length
    if selection.headed is not None:
        destination = destination - selection.headed
        length = length + selection.headed
        value = value - slope * selection.headed
    paint(destination, length, value, slope, out)
    return out.reshape(selection.shape)


_DRAW = {
    "mask": _mask,
    "lengths": _lengths,
    "cu_seqlens": _cu_seqlens,
    "sources": _sources,
    "source": _source,
    "origin": _origin,
    "present": _present,
    "drawn": _drawn,
}
