from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock_live.block import Block
from penstock_live.sampler import SampledBatch
from penstock_live.tensors import TensorGenerator


def filled(rows: Any, out: dict[str, Any] | None) -> dict[str, Any]:
    """`x` as times and `y` as numbers; `out`, where there is one, is filled."""
    made = out or {"x": np.empty((len(rows), 2), "M8[s]"), "y": np.empty(len(rows), "f4")}
    made["x"][:] = rows[:, :1]
    made["y"][:] = rows[:, 1]
    return made


def batch(value: int, rows: int = 3) -> SampledBatch:
    return SampledBatch(0, Block(np.full((rows, 2), value, np.uint8), np.arange(rows), np.zeros(rows, np.int32)))


@pytest.mark.parametrize("name", ["x", "y"])
def test_arrays_are_filled_again_once_no_view_of_one_is_left(name: str) -> None:
    generator = TensorGenerator(filled)
    first = generator.decode(batch(1)).arrays
    address, kept = first[name].ctypes.data, first[name].T[..., 1:]
    del first
    other = generator.decode(batch(2)).arrays
    assert set(kept.astype(int).ravel().tolist()) == {1}
    assert other[name].ctypes.data != address
    del kept
    again = generator.decode(batch(3)).arrays
    assert again[name].ctypes.data == address
    assert set(other[name].astype(int).ravel().tolist()) == {2}


def test_arrays_of_other_lengths_and_those_that_are_views_are_not_filled_again() -> None:
    generator = TensorGenerator(filled)
    address = generator.decode(batch(1)).arrays["y"].ctypes.data
    assert generator.decode(batch(1, rows=4)).arrays["y"].ctypes.data != address
    given: list[object] = []
    generator = TensorGenerator(lambda rows, out: given.append(out) or {"x": rows[:, 1:]})
    for value in range(3):
        assert generator.decode(batch(value)).arrays["x"].tolist() == [[value]] * 3
    assert given == [None] * 3
