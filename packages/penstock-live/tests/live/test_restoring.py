"""Reservoirs that go on from a state: each chunk fetched once, nothing before it is wanted, what is lost left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from live.files import Games, catalog_of, loader_of, write
from penstock.errors import FormatError, StateError
from penstock_live.block import Block
from penstock_live.chunk_loader import AGAIN
from penstock_live.journal import Arrival
from penstock_live.reservoir import Reservoir
from penstock_live.restoring import Restoring

PER = 5  # frames of a chunk


def frames(lo: int, hi: int) -> Block:
    number = np.arange(lo, hi)
    rows = (number[:, None] * 3 + np.arange(4)).astype(np.uint8)
    return Block(rows, number // PER, (number % PER).astype(np.int32))


def names(block: Block) -> list[int]:
    number = block.chunk * PER + block.place
    if len(number):  # a reservoir that never had a frame does not know the shape of a row
        np.testing.assert_array_equal(block.rows, (number[:, None] * 3 + np.arange(4)).astype(np.uint8))
    return number.tolist()


class Fetcher:
    """Gives frames in two pieces, but for those of chunks that are gone; counts how often each chunk is asked for."""

    def __init__(self, gone: set[int]) -> None:
        self.gone, self.asked = gone, Counter[int]()

    def __call__(self, chunk: Any, place: Any) -> Iterator[tuple[Any, Block]]:
        self.asked.update(set(chunk.tolist()))
        there = np.flatnonzero(~np.isin(chunk, list(self.gone)))
        for index in np.array_split(there, 2):
            number = chunk[index] * PER + place[index]
            rows = (number[:, None] * 3 + np.arange(4)).astype(np.uint8)
            yield index, Block(rows, chunk[index], place[index])


@example(1, 1, 0, {0}, 0)  # all is lost
@given(
    st.integers(1, 40), st.integers(0, 120), st.integers(0, 120), st.sets(st.integers(0, 25), max_size=9), st.integers()
)
def test_a_run_goes_on_as_if_nothing_had_been_but_without_what_is_lost(
    slots: int, before: int, after: int, gone: set[int], seed: int
) -> None:
    whole, again = Reservoir(slots, seed), Reservoir(slots, seed)
    whole.exchange(frames(0, before))
    fetcher = Fetcher(gone)
    restoring = Restoring(again, whole.state_dict(), fetcher, together=7)
    expected, got = [], []
    for lo in range(before, before + after, 9):
        block = frames(lo, min(lo + 9, before + after))
        restoring.ready_for(len(block))
        expected += names(whole.exchange(block))
        got += names(again.exchange(block))
    while len(whole):
        restoring.ready_for(4, draining=True)
        expected += names(whole.drain(4))
        got += names(again.drain(4))
    assert got == [k for k in expected if k >= before or k // PER not in gone]
    assert all(n == 1 for n in fetcher.asked.values())


def test_no_more_is_read_at_once_than_what_is_about_to_come_out_and_some_more() -> None:
    whole, again = Reservoir(1000, 1), Reservoir(1000, 1)
    whole.exchange(frames(0, 1000))
    fetcher = Fetcher(set())
    restoring = Restoring(again, whole.state_dict(), fetcher, together=8)
    assert 5 <= restoring.ready_for(5) <= (8 + 20) * PER
    assert len(fetcher.asked) <= 8 + 20
    again.exchange(frames(1000, 1005))


def test_frames_that_are_still_away_cannot_come_out() -> None:
    whole, again = Reservoir(4, 1), Reservoir(4, 1)
    whole.exchange(frames(0, 4))
    again.load_state_dict(whole.state_dict())
    with pytest.raises(StateError, match="1 frames of the loaded state to be restored"):
        again.exchange(frames(4, 5))
    with pytest.raises(StateError, match="4 frames of the loaded state to be restored"):
        again.drain(9)


@pytest.mark.parametrize(
    ("error", "times", "loads"), [(OSError("eio"), AGAIN, AGAIN + 1), (OSError("eio"), 9, AGAIN + 1), (None, 9, 1)]
)
def test_what_the_system_cannot_read_is_read_again_and_what_is_damaged_is_not(
    tmp_path: Any, error: OSError | None, times: int, loads: int
) -> None:
    path, loaded = write(tmp_path / "a.chk", [1]), list[int]()

    class Failing(Games):
        def load(self, i: int, wanted: Any = None) -> np.ndarray:
            loaded.append(i)
            if len(loaded) <= times:
                raise error or FormatError("expected the checksum, got another")
            return super().load(i, wanted)

    catalog = catalog_of(lambda _arrival: Failing(path))
    catalog.place(0, Arrival("a.chk", "a.chk", 1))
    if times <= AGAIN:
        assert len(loader_of(catalog).load(0)) == 8
    else:
        with pytest.raises(OSError if error else FormatError):
            loader_of(catalog).load(0)
    assert len(loaded) == loads
