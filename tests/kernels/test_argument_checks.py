"""Functions of kernels refuse arrays that do not fit together, before a loop reads outside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.kernels import (
    concat,
    fit,
    gather,
    mixing,
    open_fit,
    pack_reading,
    runs,
    stream_packing,
)


def ints(*shape: int) -> Any:
    return np.zeros(shape, np.int64)


ONE, TWO = ints(1), ints(2)
BYTES = np.zeros(4, np.uint8)
WORDS, NARROW = np.zeros((1, 8), np.uint64), np.zeros(1, np.uint16)
NARROWS = (NARROW,) * 4
PACKS = stream_packing.open_packs(np.array([4]), 9, 9, 9)
ROOM = np.zeros((4, 1), np.int32)

WRONG: list[tuple[str, type[Exception], Callable[[], Any]]] = [
    ("releases", ValueError, lambda: mixing.earliest_deadline(ONE, TWO, ONE)),
    ("a table", ValueError, lambda: mixing.mix_table(ONE, WORDS.astype(np.uint32), ints(1, 3), WORDS, WORDS, ONE, ONE)),
    ("a place among 1", IndexError, lambda: mixing.mix_table(ONE + 7, *table(), ONE.copy(), ONE.copy())),
    ("a place among 1", IndexError, lambda: mixing.mix_table(ONE - 1, *table(), ONE.copy(), ONE.copy())),
    (r"pieces \[rows, 8\]", ValueError, lambda: mixing.mix_tree(ONE, WORDS[:, :3].copy(), ONE, ONE)),
    ("at least 0", IndexError, lambda: mixing.mix_tree(ONE - 1, WORDS, ONE, ONE)),
    (r"nodes \[N, 3\]", ValueError, lambda: mixing.deal(ONE, WORDS, ONE, ONE)),
    ("at least 0", IndexError, lambda: mixing.deal(ONE - 1, WORDS[:, :3].copy(), ONE, ONE)),
    ("equal number", ValueError, lambda: gather.gather_rows(TWO, TWO, 0, ONE, 1, ONE, TWO, ONE, BYTES)),
    ("addresses", ValueError, lambda: gather.gather_rows(TWO, TWO, 0, TWO, 1, ONE, ONE, ONE, BYTES)),
    ("a shape, a layout", ValueError, lambda: tiles(axes=ints(1, 3, 2))),
    ("a shape, a layout", ValueError, lambda: tiles(layout=TWO)),
    ("one size", ValueError, lambda: runs.gather_runs(ONE, ONE, TWO, ONE)),
    ("runs within 0:1", IndexError, lambda: runs.gather_runs(ONE, ONE, TWO[:1] + 2, TWO)),
    ("runs within 0:1", IndexError, lambda: runs.gather_runs(ONE, ONE - 1, ONE + 1, TWO)),
    ("runs within 0:1", IndexError, lambda: runs.gather_runs(ONE, ONE, ONE + 1, ints(0))),
    ("runs within 0:1", IndexError, lambda: runs.histogram(ONE, ONE + 1, ONE + 1, ROOM[0])),
    ("counts", ValueError, lambda: fit.count_decreasing(ROOM[0], 1, 1)),
    ("counts", ValueError, lambda: fit.count_decreasing(ROOM[0] - 1, 0, 1)),
    ("at least one item", ValueError, lambda: fit.count_decreasing(ROOM[0], 0, 0)),
    ("room for 2", ValueError, lambda: fit.sort_decreasing(TWO, 1, ONE, TWO)),
    ("within 0:2, got 2", ValueError, lambda: fit.sort_decreasing(ONE + 2, 1, ONE, ONE.copy())),
    ("within 0:2, got -1", ValueError, lambda: fit.best_fit(ONE - 1, 1, 1, ONE)),
    ("within 0:2, got 2", ValueError, lambda: fit.first_fit(ONE + 2, 1, 1, ONE)),
    (
        "within 0:2, got 2",
        ValueError,
        lambda: fit.plan_decreasing(ONE + 2, 1, 1, ROOM, *NARROWS),
    ),
    ("four rows", ValueError, lambda: fit.plan_decreasing(ONE, 1, 1, ROOM[:2], *NARROWS)),
    (
        "room for 70000",
        ValueError,
        lambda: fit.plan_decreasing(ints(70_000), 1, 1, ROOM, *NARROWS),
    ),
    ("room for 2", ValueError, lambda: fit.bin_slots(ONE, 2, ONE, ONE)),
    ("within 0:1, got 1", IndexError, lambda: fit.bin_slots(ONE + 1, 1, ONE, ONE)),
    ("numbers of at least 1", ValueError, lambda: opened(capacity=TWO)),
    ("numbers of at least 1", ValueError, lambda: opened(keep=0)),
    ("for 1 axes", ValueError, lambda: concatenated(size=ints(1, 2))),
    ("room behind 1 rows", ValueError, lambda: concatenated(head=1)),
    ("a cut a pack", ValueError, lambda: pack_reading.pack_slots(ONE, ONE, TWO, TWO, NARROW, ints(3, 1))),
    ("room for 0 items", ValueError, lambda: items(out=ints(3, 1))),
    ("for 1 pieces", ValueError, lambda: pack_reading.place_pieces(TWO, ints(1, 1), ONE, ONE, 0, 1, 0, ints(3, 1, 1))),
    ("at least 1, got", ValueError, lambda: stream_packing.open_packs(ONE, 1, 1, 1)),
    ("a pack and flags", ValueError, lambda: stream_packing.pack_stream(PACKS, ints(1, 2), True, ONE, BYTES[:1], ONE)),
    (
        "one closed pack",
        ValueError,
        lambda: stream_packing.pack_stream(PACKS, ints(1, 1), True, ONE, BYTES[:1], ints(0)),
    ),
    (r"within \[4\], got \[5\]", ValueError, lambda: stream(ints(1, 1) + 5)),
    (r"within \[4\], got \[-1\]", ValueError, lambda: stream(ints(1, 1) - 1)),
]


def table() -> Any:
    return np.zeros((1, 2), np.uint32), np.array([[0, 0, 9]]), ints(1, 1), ints(1, 1)


def tiles(axes: Any = ints(1, 4, 2), layout: Any = ONE) -> int:  # noqa: B008 - nothing writes to it
    spans = ONE, ONE, ONE
    return gather.gather_tiles(TWO, TWO, 0, ints(1, 1), TWO, ONE, layout, axes, BYTES, *spans, 1, BYTES)


def opened(capacity: Any = ONE, keep: int = 1) -> int:
    return open_fit.open_fit(ints(1, 1), capacity, np.ones(1), ONE, 1, 1, keep, True, False, ONE.copy())


def concatenated(head: int = 0, size: Any = ints(1, 1)) -> tuple[int, int]:  # noqa: B008 - nothing writes to it
    return concat.concat(ints(1, 1), ONE + 1, 1, 1, head, False, ints(1, 2), ints(1, 1), size)


def items(out: Any) -> None:
    plan = NARROW, TWO, NARROW, NARROW, TWO, ONE, 0
    pack_reading.pack_items(ints(3, 1), ONE, 0, *plan, 1, np.zeros(2, np.uint64), out)


def stream(sizes: Any, closed: Any = ONE) -> Any:
    return stream_packing.pack_stream(PACKS, sizes, True, ONE.copy(), BYTES[:1].copy(), closed.copy())


@pytest.mark.parametrize(("message", "error", "call"), WRONG, ids=[f"{i}-{name}" for i, (name, *_) in enumerate(WRONG)])
def test_arrays_that_do_not_fit_are_refused(message: str, error: type[Exception], call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        call()
