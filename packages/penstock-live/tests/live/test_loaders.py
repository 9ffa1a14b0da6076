"""Loaders of live pipelines: the same batches, tensors, ranks, states of what was received, figures."""

# pyright: basic

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import PlanError, StateError
from penstock.loading import Loader
from penstock.loading.pipeline_source import LiveExplanation
from penstock_live import EpisodeInlet, LiveOptions, LivePipeline
from tests.loading.handing_over import handing_over

STEPS, SIZE = 60, 8


def pipeline(seed: int = 1, **options: Any) -> LivePipeline:
    chosen: dict[str, Any] = {"reservoir": 12, "batch_size": SIZE, "follow": False, "seed": seed, **options}
    source = penstock.from_arrays({"rewards": np.arange(float(STEPS))}, lengths=[3] * (STEPS // 3)).source
    inlet = EpisodeInlet(source, ["rewards"])
    return LivePipeline(inlet, LiveOptions(**chosen), decode=inlet.layout.decode)


def listed(batches: Any) -> list[list[float]]:
    return [batch["rewards"].tolist() for batch in batches]


def expected(seed: int = 1, **options: Any) -> list[list[float]]:
    with pipeline(seed, **options) as batches:
        return listed(batches)


@pytest.mark.parametrize("seed", [1, 8])
def test_the_batches_are_those_of_the_pipeline(seed: int) -> None:
    with pipeline(seed) as live:
        loader = live.loader()
        assert listed(loader) == expected(seed)
        assert (loader.stats.samples, loader.stats.batches) == (STEPS, -(-STEPS // SIZE))
        with pytest.raises(PlanError, match="a live pipeline that has ended"):
            list(loader)
    with pipeline(seed) as live:
        assert listed(live.loader(output="torch", device="cpu")) == expected(seed)
    with pipeline(seed) as live:
        assert listed(live.loader(output="jax", float32=True)) == expected(seed)


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_a_state_counts_the_batches_that_the_consumer_received(ahead: int) -> None:
    whole = expected()
    with pipeline() as live:
        loader, states = live.loader(), list[Any]()
        for got in handing_over(loader, lambda batch: batch["rewards"].tolist(), ahead=ahead):
            states.append((got, loader.state_dict()))
            if len(states) == 3:
                break
        assert [got for got, _ in states] == whole[:3]
        assert listed(loader) == whole[3:]  # also those that had been handed over ahead
    for number, (_, state) in enumerate(states, start=1):
        with pipeline() as again:
            resumed = again.loader()
            resumed.load_state_dict(state)
            assert listed(resumed) == whole[number:]


def test_states_of_others_are_refused() -> None:
    with pipeline() as live, pipeline(seed=2) as other:
        loader = live.loader()
        next(iter(loader))
        state = loader.state_dict()
        with pytest.raises(StateError, match="fingerprint"):
            other.loader().load_state_dict(state)
        with pytest.raises(StateError, match="has not started yet"):
            loader.load_state_dict(state)
        with pytest.raises(StateError, match="state of a Loader of a live pipeline"):
            loader.load_state_dict({name: value for name, value in state.items() if name != "pipeline"})


def test_ranks_share_the_batches_of_equal_pipelines() -> None:
    parts = list[list[list[float]]]()
    for rank in range(3):
        with pipeline() as live:
            parts.append(listed(live.loader(rank=rank, world=3)))
    assert [[x for part in rows for x in part] for rows in zip(*parts, strict=True)] == expected()


def test_ranks_that_would_see_other_files_are_refused() -> None:
    with pipeline(follow="manual") as live, pytest.raises(PlanError, match=r"ChunkSourceSplitter\(\[1\] \* 2\)"):
        live.loader(rank=1, world=2)


def test_after_an_interrupt_no_batch_is_lost() -> None:
    failing = [KeyboardInterrupt(), ValueError("device")]

    def hand_over(batch: Any) -> list[float]:
        if loader.stats.batches == 2 and failing:
            raise failing.pop()
        return batch["rewards"].tolist()

    with pipeline() as live:
        loader = live.loader()
        iterator = handing_over(loader, hand_over, ahead=1)
        found = [next(iterator), next(iterator)]
        for error in (ValueError, KeyboardInterrupt):
            with pytest.raises(error):
                next(iterator)
        assert found + list(iterator) == expected()


def test_errors_of_functions_surface_as_they_are() -> None:
    def broken(rows: Any, out: Any) -> Any:
        raise ZeroDivisionError("decode")

    source = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[9]).source
    with (
        LivePipeline(EpisodeInlet(source, ["rewards"]), LiveOptions(follow=False), decode=broken) as live,
        pytest.raises(ZeroDivisionError, match="decode"),
    ):
        next(iter(live.loader()))


def test_explain_names_the_bottleneck_and_keeps_the_batches() -> None:
    with pipeline() as live:
        loader = live.loader()
        first = next(iter(loader))["rewards"].tolist()
        before = loader.state_dict()["pipeline"]["got"]
        sizes: list[int] = []
        loader._hand_over = lambda batch: (sizes.append(batch.n), batch)[1]
        report = loader.why(batches=3)
        assert isinstance(report, LiveExplanation)
        assert (report.samples, sizes) == (3 * SIZE, [SIZE] * 3)
        assert {"chunk_unpacker", "tensor_generator", "hand_over"} <= {stage.name for stage in report.stages}
        assert "tensor_generator" in str(report)
        assert loader.state_dict()["pipeline"]["got"] == before
        assert [first, *listed(loader)] == expected()
        with pytest.raises(PlanError, match="it has ended"):
            loader.why()


def test_a_loader_is_copied_where_it_stands_and_counts_from_zero() -> None:
    loader = penstock.from_arrays({"x": np.arange(9)}, lengths=[9]).steps().loader(3, threads=1)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    again = pickle.loads(pickle.dumps(loader))
    assert again.stats.snapshot["stages"] == {}
    assert [batch["x"].tolist() for batch in again] == [[3, 4, 5], [6, 7, 8]]


def test_explain_keeps_no_more_bytes_than_the_loader_may() -> None:
    with pipeline() as live:
        report = live.loader(memory=1).why(batches=5)
        assert report.stages
        assert isinstance(report, LiveExplanation)
        assert report.samples == SIZE  # one batch always


@pytest.mark.parametrize(
    "bad",
    [
        {"batch_size": 4},
        {"batch_size": 0},
        {"drop_last": True},
        {"threads": 0},
        {"threads": 2},
        {"prefetch": 1},
        {"memory": 0},
    ],
    ids=str,
)
def test_what_the_pipeline_decides_is_refused(bad: dict[str, Any]) -> None:
    (name,) = bad
    with pipeline() as live:
        expected_words = "memory of at least one byte" if name == "memory" else f"give {name} to its LiveOptions"
        with pytest.raises(PlanError, match=expected_words):
            live.loader(**bad)


def test_every_argument_of_a_loader_has_an_effect_on_a_live_pipeline_or_is_refused() -> None:
    """A new argument of `Loader` has to be looked at here."""
    refused = {"batch_size", "drop_last", "threads", "prefetch"}
    tested_elsewhere = {"rank", "world", "memory"}  # ranks share the batches, why() keeps no more bytes
    of_every_dataset = {"output", "layout", "float32", "rename", "device", "pin", "sharding"}
    arguments = set(inspect.signature(Loader).parameters)
    assert arguments == {"dataset", "allow_empty"} | refused | tested_elsewhere | of_every_dataset
    for allowed in (True, False):
        with pipeline() as live:
            loader = live.loader(allow_empty=allowed)
            list(loader)
            if allowed:
                assert list(loader) == []
            else:
                with pytest.raises(PlanError, match="allow_empty=True"):
                    list(loader)


@pytest.mark.parametrize(("size", "world", "samples"), [(1, 2, 7), (4, 2, 1), (8, 3, 2), (2, 3, 7)])
def test_no_rank_fails_alone_because_its_shares_are_empty(size: int, world: int, samples: int) -> None:
    """The others would wait for it in their next all-reduce for ever."""
    source = penstock.from_arrays({"x": np.arange(samples)}, [samples]).source
    shares = []
    for rank in range(world):
        inlet = EpisodeInlet(source, ["x"])
        options = LiveOptions(reservoir=0, batch_size=size, follow=False, threads=0)
        with LivePipeline(inlet, options, decode=inlet.layout.decode) as live:
            loader = live.loader(rank=rank, world=world)
            shares.append([batch["x"].tolist() for batch in loader])
            with pytest.raises(PlanError, match="a live pipeline that has ended"):
                list(loader)  # on every rank
    assert {len(batches) for batches in shares} == {-(-samples // size)}
    assert [x for batches in zip(*shares, strict=True) for share in batches for x in share] == list(range(samples))


def test_a_live_pipeline_has_neither_a_length_nor_tickets() -> None:
    with pipeline() as live:
        loader = live.loader()
        with pytest.raises(TypeError, match="no length"):
            len(loader)
        with pytest.raises(PlanError, match="a live pipeline"):
            loader.skip((0, 1))
        with pytest.raises(StateError, match="no tickets"):
            loader.why("00" * 16)


def test_metrics_are_those_of_the_pipeline_or_of_the_loader() -> None:
    with pipeline() as live:
        loader = live.loader()
        list(loader)
        assert loader.stats.snapshot["stages"]["tensor_generator"]["counts"]["frames"] == STEPS
    data = penstock.from_arrays({"x": np.arange(100)}, lengths=[100]).steps()
    for threads in (0, 2):
        loader = data.loader(10, threads=threads)
        list(loader)
        stages = loader.stats.snapshot["stages"]
        assert stages["loader"]["counts"] == {"jobs": loader.stats.jobs, "batches": 10, "samples": 100}
        assert stages["loader"]["queue"]["gets"] >= loader.stats.jobs
        assert stages["plan"]["busy"] > 0
        assert stages["fetch"]["gauges"] == {"part_of": "loader"}


def test_a_batch_that_was_taken_and_not_received_stays_in_the_state_of_a_pipeline_that_drops() -> None:
    whole = expected()
    with pipeline(overflow="drop_new", prefetch=100) as live:
        loader = live.loader()
        assert next(handing_over(loader, lambda batch: batch["rewards"].tolist(), ahead=2)) == whole[0]
        state = loader.state_dict()
    with pipeline() as again:
        resumed = again.loader()
        resumed.load_state_dict(state)
        assert listed(resumed) == whole[1:]


def test_a_pipeline_has_its_own_prefetch() -> None:
    with pipeline() as live, pytest.raises(PlanError, match="LiveOptions"):
        live.loader(prefetch=2)
