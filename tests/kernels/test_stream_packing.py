from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import stream_packing
from penstock.kernels.stream_packing import FAR, OPENED, OUT
from tests.kernels.reference import stream_packing as reference


def packed(kernel: Any, capacity: Any, sizes: Any, bounds: tuple[int, int, int], want: int) -> list[Any]:
    """Everything that a kernel says, with `want` closed packs a call."""
    state = kernel.open_packs(capacity, *bounds)
    pack, flags = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.uint8)
    found: list[Any] = []
    at = 0
    while True:
        closed = np.zeros(want, np.int64)
        at_end = at == len(sizes)
        taken, done = kernel.pack_stream(state, sizes[at:], at_end, pack[at:], flags[at:], closed)
        at += taken
        found.append((taken, done, closed[:done].tolist()))
        if at_end and done < want:
            return [found, pack.tolist(), flags.tolist()]


@settings(deadline=None, max_examples=120)
@given(
    st.sampled_from([(1,), (2,), (63,), (64,), (4097,), (70_000,), (1 << 31,), (5, 90), (64, 5000), (9, 9, 9)]),
    st.integers(0, 120), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.integers(1, 40), st.data(),
)  # fmt: skip
def test_packs_equal_their_definition(capacity, n, limit, age, most, want, data) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    largest = np.array(capacity) if rng.random() < 0.5 else np.maximum(np.array(capacity) // 3, 1)
    sizes = rng.integers(0, largest, (n, len(capacity)), endpoint=True)
    sizes[:, 0] = np.maximum(sizes[:, 0], 1)
    runs = [packed(k, np.array(capacity), sizes, (most, limit, age), want) for k in (stream_packing, reference)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("kernel", [stream_packing, reference])
@pytest.mark.parametrize("capacity", [(500,), (300, 300), (70_000,)])
def test_open_packs_come_back_from_flags(kernel: Any, capacity: tuple[int, ...]) -> None:
    """Few enough fit at once that all ways to find a pack happen, the guess by key included."""
    rng = np.random.default_rng(1)
    caps = np.array(capacity)
    sizes = rng.integers(1, caps // 2, (900, len(capacity)))
    state = kernel.open_packs(caps, 99, 200, 150)
    pack, flags, closed = np.zeros(900, np.int64), np.zeros(900, np.uint8), np.zeros(900, np.int64)
    taken, done = kernel.pack_stream(state, sizes[:700], False, pack[:700], flags[:700], closed)
    assert taken == 700
    flags[:700][np.isin(pack[:700], closed[:done])] |= OUT
    begin = int(np.argmax(flags[:700] & OUT == 0))
    again = kernel.open_packs(caps, 99, 200, 150)
    serial = np.zeros(700 - begin, np.int64)
    assert kernel.repack_stream(again, sizes[begin:700], flags[begin:700], serial) == -1
    shift = pack[begin] - serial[0]
    open_ = serial >= 0
    np.testing.assert_array_equal(serial[open_] + shift, pack[begin:700][open_])
    rest = []
    for one in (state, again):
        pack, flags_2, closed = np.zeros(200, np.int64), np.zeros(200, np.uint8), np.zeros(900, np.int64)
        _, done = kernel.pack_stream(one, sizes[700:], True, pack, flags_2, closed)
        rest.append((pack - pack[0], flags_2, closed[:done] - pack[0]))
    for a, b in zip(*rest, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (len(capacity) > 1) == bool(np.any(flags & FAR))


@pytest.mark.parametrize("kernel", [stream_packing, reference])
def test_flags_that_cannot_be_are_refused(kernel: Any) -> None:
    serial, sizes = np.zeros(4, np.int64), np.full((4, 1), 3)
    for flags, at in (([0, 0, 0, 0], 0), ([OPENED, 0, 0, 0], 1), ([OPENED] * 4, 2), ([FAR] * 4, 0)):
        state = kernel.open_packs(np.array([5]), 9, 1, 9)
        assert kernel.repack_stream(state, sizes, np.array(flags, np.uint8), serial) == at
