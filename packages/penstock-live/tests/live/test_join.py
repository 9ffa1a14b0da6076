"""Streams joined in exact proportions, however they are cut; arrays in memory that nobody holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.ragged import Ragged
from penstock.errors import PlanError
from penstock_live.block import Block
from penstock_live.join import JoinPositions
from penstock_live.sampler import SampledBatch
from penstock_live.tensors import TensorGenerator


def stream(k: int, n: int, cut: int, ragged: bool = False) -> Iterator[Block]:
    for lo in range(0, n, cut):
        numbers = np.arange(lo, min(lo + cut, n))
        ends = np.concatenate([[0], np.cumsum(1 + numbers % 3)])
        rows = Ragged(np.full(ends[-1], k, np.uint8), ends) if ragged else None
        plain = np.full((len(numbers), 2), k, np.uint8)
        yield Block(plain if rows is None else rows, numbers, numbers.astype(np.int32))


SIZES = st.lists(st.integers(0, 2500), min_size=1, max_size=4)


@settings(max_examples=30)
@given(SIZES, st.lists(st.integers(1, 9), min_size=4, max_size=4), st.integers(1, 700), st.booleans())
def test_shares_are_exact_at_every_frame_and_cuts_change_nothing(
    sizes: list[int], weights: list[int], cut: int, ragged: bool
) -> None:
    weights = weights[: len(sizes)]
    runs = []
    for size in (cut, 10_000):
        joined = JoinPositions([stream(k, n, size, ragged) for k, n in enumerate(sizes)], weights)
        pieces = list(joined)
        runs.append([(s, c) for b, source in pieces for s, c in zip(source.tolist(), b.chunk.tolist(), strict=True)])
        for block, source in pieces:
            rows = block.rows
            first = rows.values[rows.offsets[:-1]] if isinstance(rows, Ragged) else rows[:, 0]
            assert first.tolist() == source.tolist()
    assert runs[0] == runs[1]
    sources, numbers = np.array(runs[0], np.int64).reshape(-1, 2).T
    counts = np.cumsum(sources[:, None] == np.arange(len(sizes)), axis=0)
    assert (numbers == counts[np.arange(len(sources)), sources] - 1).all()
    due = np.arange(1, len(sources) + 1)[:, None] * np.array(weights)  # times the sum of the weights: exactly
    assert (np.abs(counts * sum(weights) - due) < sum(weights)).all()
    assert (np.bincount(sources, minlength=len(sizes)) == sizes).any()


def test_bad_inputs_are_refused() -> None:
    with pytest.raises(PlanError, match="a weight for each input"):
        JoinPositions([stream(0, 3, 3)], [1, 2])
    with pytest.raises(PlanError, match="rows of one kind"):
        list(JoinPositions([stream(0, 3, 3), stream(1, 3, 3, ragged=True)], [1, 1]))


def test_arrays_are_used_again_once_nobody_holds_them() -> None:
    def decode(rows: np.ndarray, out: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        arrays = out or {"x": np.empty((len(rows), 1000))}
        arrays["x"][:] = rows[:, :1]
        return arrays

    generator = TensorGenerator(decode)

    def batch(value: int, n: int = 4) -> np.ndarray:
        block = Block(np.full((n, 2), value, np.uint8), np.arange(n), np.zeros(n, np.int32))
        return generator.decode(SampledBatch(0, block)).arrays["x"]

    first = batch(1)
    address, part = first.ctypes.data, first[1:]
    del first
    second = batch(2)
    assert second.ctypes.data != address
    assert (part == 1).all()
    del part
    assert batch(3, n=3).ctypes.data != address
    third = batch(4)
    assert third.ctypes.data == address
    assert (third == 4).all()
    assert (second == 2).all()
