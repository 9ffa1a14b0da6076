"""`Loader.explain`: what it measures, what it says, and that nothing moves."""

# pyright: basic

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import penstock
from penstock.core.columns import Columns
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError
from penstock.loading import explain as explain_module
from penstock.loading.engine import LoaderStats
from penstock.loading.explain import Explanation, Roofline, Stage, explain, measure_roofline
from penstock.loading.why import printed


def dataset(n: int = 20_000) -> MapDataset:
    return from_arrays({"x": np.arange(n * 8.0).reshape(n, 8)}, lengths=[n]).windows(4).shuffle()


def test_every_stage_is_measured_and_the_state_stays():
    loader = dataset().map(lambda c: Columns({"x": c["x"] * 2})).loader(128)
    next(iter(loader))
    assert loader.stats.jobs == 1
    before, stats, width = json.dumps(loader.state_dict()), replace(loader.stats), loader._limits.width
    told = loader.why(batches=40)
    assert json.dumps(loader.state_dict()) == before
    assert (loader.stats, loader._limits.width) == (stats, width)
    assert [stage.name for stage in told.stages] == ["plan", "fetch", "map"]
    assert len({stage.samples for stage in told.stages}) == 1
    assert told.stages[0].samples >= 40 * 128
    assert told.stages[1].nbytes == told.stages[1].samples * (4 * 8 * 8)
    assert all(stage.seconds > 0 for stage in told.stages)
    assert told.delivered is not None
    assert told.delivered > 0
    assert told.waiting_share is None  # one batch says nothing
    text = str(told)
    for word in ("fetch", "memcpy", "gather", "samples/s", "consumer waits", told.sentence):
        assert word in text
    loader.load_state_dict(json.loads(before))
    assert next(iter(loader)).ticket.position == json.loads(before)["position"]


def test_streams_and_short_epochs_are_measured_too():
    told = penstock.IterDataset.of(dataset(60), 7).loader(threads=0).why(batches=3)
    assert [stage.name for stage in told.stages] == ["blocks"]
    short = dataset(60).loader(100, drop_last=False, threads=0)
    assert short.why().stages[0].samples % 57 == 0  # whole epochs
    with pytest.raises(PlanError, match="at least one"):
        short.why(batches=0)
    with pytest.raises(PlanError, match="got none"):
        dataset(60).loader(100, drop_last=True, allow_empty=True).why()


def explanation(seconds: tuple[float, float, float], nbytes: int, threads: int = 2, **change) -> Explanation:
    names = ("plan", "fetch", "map")
    moved = (0, nbytes, nbytes)
    stages = tuple(Stage(n, s, 100, b) for n, s, b in zip(names, seconds, moved, strict=True))
    told = Explanation(stages, Roofline(1e9, 5e8), 1000.0, threads, 4, threads, None)
    return replace(told, **change)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (
            explanation((0.1, 0.8, 0.1), int(1e8), 1),
            "fetch: 80% of the time, at 12% of memcpy and 25% of a gather; threads would help",
        ),
        (explanation((0.1, 0.8, 0.1), int(1e8)), "more threads would help"),
        (explanation((0.1, 0.8, 0.1), int(1e8), 4), "all cores are at work"),
        (explanation((0.1, 0.8, 0.1), int(7e8)), "at 88% of memcpy and 175% of a gather; this is what memory gives"),
        (
            explanation((0.1, 0.1, 0.8), int(1e8)),
            "map: 80% of the time, at 12% of memcpy and 25% of a gather; the functions given to",
        ),
        (explanation((0.1, 0.8, 0.1), int(1e8), waiting_share=0.01), "the consumer hardly waits"),
        (explanation((0.1, 0.8, 0.1), int(1e8), jobs=1), "more prefetch or memory"),
        (explanation((0.1, 0.8, 0.1), int(3e8)), "at 38% of memcpy and 75% of a gather; this is what memory gives"),
        (explanation((0.8, 0.1, 0.1), int(1e8), 1), "plan: 80% of the time; threads would help"),
    ],
)
def test_the_sentence_names_the_bottleneck_and_what_would_help(told, sentence):
    assert sentence in told.sentence
    assert told.sentence in str(told)


@pytest.fixture
def roofline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory is measured."""
    monkeypatch.setattr(explain_module, "measure_roofline", lambda _: Roofline(1e9, 5e8))


def ticking(step: float) -> Callable[[], float]:
    """A clock that goes on by so much each time that it is looked at."""
    ticks = itertools.count()
    return lambda: next(ticks) * step


@pytest.mark.usefixtures("roofline")
@pytest.mark.parametrize("samples", [90, 4000])
@pytest.mark.parametrize("threads", [0, 2])
def test_small_batches_are_measured_for_long_enough(samples: int, threads: int):
    loader = dataset(samples + 3).loader(4, threads=threads)
    # A tick a batch: whatever was prefetched, the engine delivers 4 samples in 10 ms.
    told = explain(loader._cursor, loader._limits, loader.stats, 2, None, ticking(0.01))
    assert told.delivered == pytest.approx(400, rel=0.05)
    assert sum(stage.seconds for stage in told.stages) >= 0.2
    assert "of the time" in told.sentence
    assert loader.state_dict()["position"] == 0


@pytest.mark.usefixtures("roofline")
def test_too_little_is_not_judged(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(explain_module, "MOST_JOBS", 9)
    loader = dataset(90).loader(4, threads=1)
    told = explain(loader._cursor, loader._limits, loader.stats, 2, None, ticking(1e-6))
    assert told.delivered is None
    assert told.sentence.startswith("not enough measured yet: ")
    assert " ".join(str(told).split()).count("not enough measured yet") == 3
    still = explain(loader._cursor, loader._limits, loader.stats, 2, None, lambda: 0.0)
    assert still.delivered is None
    assert "not enough measured yet" in str(still)


@pytest.mark.usefixtures("roofline")
@pytest.mark.parametrize(
    ("stats", "share"),
    [
        (LoaderStats(64, 256, 1, 9.0, 0.9), None),  # all of one job
        (LoaderStats(64, 256, 20, 0.01, 0.001), None),  # a moment
        (LoaderStats(64, 256, 20, 2.0, 0.5), 0.25),
    ],
)
def test_waiting_is_judged_once_it_was_measured(stats: LoaderStats, share: float | None):
    loader = dataset(90).loader(4, threads=0)
    assert explain(loader._cursor, loader._limits, stats, 1, None, ticking(0.1)).waiting_share == share


def test_the_roofline_is_measured_for_rows_of_any_size():
    for row_bytes in (0, 1, 100, 1 << 30):
        roofline = measure_roofline(row_bytes)
        assert roofline.memcpy > 0
        assert roofline.gather > 0


def test_printed_has_no_colours():
    assert printed("[bold]x[/bold]") == "x"
