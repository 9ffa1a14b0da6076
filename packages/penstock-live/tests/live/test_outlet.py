"""Outputs that drop: every batch is got, waiting, or counted as dropped; a state says which; nobody else waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import frames_of, named, names
from live.test_composed import loader
from live.test_pipeline import FILES, GAMES, listed
from penstock.errors import PlanError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.lossy import LossyQueue
from penstock.flow.metrics import StageMetrics
from penstock.flow.queue import Overflow, QueueClosed
from penstock_live.block import Block
from penstock_live.options import LiveOptions
from penstock_live.pipeline import LivePipeline
from penstock_live.sampler import SampledBatch
from penstock_live.tensors import Decoded


def batch(index: int, n: int = 4) -> SampledBatch:
    return SampledBatch(index, Block(np.zeros((n, 2), np.uint8), np.arange(n), np.zeros(n, np.int32)))


def outlet(
    overflow: Overflow, items: int = 3, nbytes: int = 1000
) -> tuple[LossyQueue[SampledBatch, Decoded], list[int]]:
    """A queue that the test fills with batches, and the numbers of those that it dropped."""
    gone: list[int] = []
    made = LossyQueue(
        lambda b: Decoded(b.index, {}),
        iter(list[SampledBatch]()),
        PrefetchLimits(1, items, nbytes),
        overflow,
        on_drop=lambda b: gone.append(b.index),
        metrics=StageMetrics("tensor_generator"),
    )
    made.start = lambda: None  # no thread
    return made, gone


def test_new_ones_are_dropped_where_there_is_no_room() -> None:
    out, gone = outlet("drop_new")
    for i in range(5):
        out.offer(batch(i))
    assert gone == [3, 4]
    assert out.get().index == 0
    out.offer(batch(5))
    out.offer(batch(6))
    assert [out.get().index for _ in range(3)] == [1, 2, 5]
    assert out.stats()["drops"] == 3
    with pytest.raises(TimeoutError):
        out.get(timeout=0)


def test_the_oldest_are_dropped_for_new_ones() -> None:
    out, gone = outlet("keep_newest")
    for i in range(5):
        out.offer(batch(i))
    assert gone == [0, 1]
    assert out.get().index == 2
    out.offer(batch(5))
    out.offer(batch(6))
    assert [out.get().index for _ in range(3)] == [4, 5, 6]
    stats = {"puts": 7, "gets": 4, "drops": 3, "fill": 0, "capacity": 3, "nbytes": 0}
    assert {**out.stats(), "waited_seconds": 0} == {**stats, "waited_seconds": 0}


@pytest.mark.parametrize("overflow", ["drop_new", "keep_newest"])
def test_bytes_are_bounded_too(overflow: Overflow) -> None:
    out, _ = outlet(overflow, items=100, nbytes=20)
    for i in range(9):
        out.offer(batch(i))  # of 8 bytes
    kept = [0, 1] if overflow == "drop_new" else [7, 8]
    assert [out.get().index for _ in range(2)] == kept
    assert out.stats()["drops"] == 7


def test_what_waited_is_not_given_after_a_close() -> None:
    out, _ = outlet("drop_new")
    out.offer(batch(0))
    out.close()
    with pytest.raises(QueueClosed):
        out.get()


def test_an_error_comes_out() -> None:
    def broken() -> Iterator[SampledBatch]:
        yield batch(0)
        raise ZeroDivisionError("in a stage")

    out = LossyQueue(lambda b: Decoded(b.index, {}), broken(), PrefetchLimits(1, 3, 99), "drop_new")
    out.start()
    out.join()
    with pytest.raises(ZeroDivisionError, match="in a stage"):
        out.get()


def dropping(directory: Path, overflow: Overflow, **options: Any) -> LivePipeline:
    chosen: dict[str, Any] = {"reservoir": 20, "batch_size": 5, "follow": False, "prefetch": 3, **options}
    return LivePipeline(loader(directory), LiveOptions(overflow=overflow, **chosen))


def until_the_end(pipeline: LivePipeline) -> None:
    """Start, and get nothing until all was made."""
    pipeline.start()
    pipeline._decoded.join()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("overflow", ["drop_new", "keep_newest"])
@pytest.mark.parametrize("seed", [0, 4])
def test_a_consumer_that_gets_nothing_is_not_waited_for_and_every_drop_is_counted(
    tmp_path: Path, overflow: Overflow, seed: int
) -> None:
    names(tmp_path, FILES)
    with LivePipeline(loader(tmp_path), LiveOptions(reservoir=20, batch_size=5, follow=False, seed=seed)) as whole:
        every = [listed(batch) for batch in whole]
    with dropping(tmp_path, overflow, seed=seed) as run:
        until_the_end(run)
        figures = run.metrics()["stages"]["tensor_generator"]["queue"]
        assert figures == {**figures, "puts": len(every), "gets": 0, "drops": len(every) - 3, "fill": 3}
        state = run.state_dict()
        assert (state["got"], state["dropped"]) == (0, len(every) - 3)
        assert len(state["sampler"]["given"]) == 3
        kept = every[:3] if overflow == "drop_new" else every[-3:]
        first = listed(next(run))
        assert [first, *(listed(batch) for batch in run)] == kept
        end = run.state_dict()
        assert (end["got"], end["dropped"]) == (3, len(every) - 3)
        assert end["sampler"]["given"] == []
    again = dropping(tmp_path, "block", seed=seed)
    again.load_state_dict(state)
    with again:
        assert [listed(batch) for batch in again] == kept


@pytest.mark.parametrize("overflow", ["drop_new", "keep_newest"])
def test_with_a_consumer_that_keeps_pace_nothing_is_dropped(tmp_path: Path, overflow: Overflow) -> None:
    names(tmp_path, FILES)
    with dropping(tmp_path, overflow, prefetch=10_000) as run:
        found = Counter(frame for batch in run for frame in named(batch["rows"]))
        assert run.state_dict()["dropped"] == 0
    assert found == Counter(frames_of(GAMES))


def test_what_is_dropped_for_ever_takes_no_memory(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with dropping(tmp_path, "drop_new", passes=40) as run:
        until_the_end(run)
        state = run.state_dict()
        assert state["dropped"] > 100
        assert len(state["sampler"]["given"]) == 3
        assert len(state["streams"][0]["pool"]["log"]) == 0


@pytest.mark.parametrize("overflow", ["drop_new", "keep_newest"])
def test_lives_go_on_behind_what_was_given_or_dropped(tmp_path: Path, overflow: Overflow) -> None:
    """Whatever the pace: numbers of batches grow, and got, dropped and waiting are all there are."""
    names(tmp_path, FILES)
    state, seen = None, 0
    for life in range(6):
        run = dropping(tmp_path, overflow, passes=1_000_000, threads=1 + life % 3)  # none ends
        if state is not None:
            run.load_state_dict(state)
        with run:
            for _ in range(4):
                seen += len(next(run)["rows"]) > 0
        state = run.state_dict()
        made = state["got"] + state["dropped"] + len(state["sampler"]["given"])
        assert (state["got"], made) == (seen, state["sampler"]["batches"])


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="drop_new"):
        dropping(tmp_path, "drop")  # pyright: ignore[reportArgumentType]
