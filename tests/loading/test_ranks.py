"""Ranks: shares by arithmetic, and where rank and world are found."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.data.mix import mix
from penstock.errors import PlanError
from penstock.loading.ranks import Ranks, find


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("torch", "jax", "ray.train"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def dataset() -> MapDataset:
    return from_arrays({"x": np.arange(20)}, lengths=[20]).steps()


def process(rank: int, world: int, initialised: bool = True) -> SimpleNamespace:
    """What torch and jax show of their processes."""
    return SimpleNamespace(
        distributed=SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: initialised,
            get_rank=lambda: rank,
            get_world_size=lambda: world,
        ),
        process_index=lambda: rank,
        process_count=lambda: world,
    )


def started_too_early() -> int:
    raise AssertionError("asking for the rank must not start a backend")


@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_shares_are_contiguous_and_differ_by_one_row_at_most(samples, world):
    edges = [(lo[0], hi[0]) for lo, hi in (Ranks(rank, world).share(np.array(samples)) for rank in range(world))]
    assert edges[0][0] == 0
    assert edges[-1][1] == samples
    assert all(a[1] == b[0] for a, b in pairwise(edges))
    assert max(hi - lo for lo, hi in edges) - min(hi - lo for lo, hi in edges) <= 1


def test_what_is_given_comes_first(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert dataset().loader(8, rank=1, world=2).world == 2
    assert dataset().loader(8).rank == 3


def test_torch_then_jax_then_the_environment_then_nobody(monkeypatch):
    assert find() == Ranks(0, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert find() == Ranks(3, 4, "the environment variables RANK and WORLD_SIZE")
    monkeypatch.setitem(sys.modules, "jax", process(1, 3))
    assert find() == Ranks(1, 3, "jax.distributed")
    monkeypatch.setitem(sys.modules, "torch", process(1, 2))
    assert find() == Ranks(1, 2, "torch.distributed")


def test_libraries_that_have_not_joined_their_processes_are_left_alone(monkeypatch):
    jax = process(1, 3, initialised=False)
    jax.process_index = jax.process_count = started_too_early
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "torch", process(1, 2, initialised=False))
    assert find() == Ranks(0, 1)


@pytest.mark.parametrize(("rank", "world"), [("x", "2"), ("2", "2"), ("-1", "2"), ("0", "0")])
def test_an_odd_environment_is_an_error_that_names_it(monkeypatch, rank, world):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(PlanError, match="RANK and WORLD_SIZE"):
        find()


def test_a_plan_that_holds_a_share_is_refused_where_ranks_were_found(monkeypatch):
    shard = dataset().shard(1, 2)
    nested = mix([shard.shuffle(), dataset()], [1, 1]).shuffle()
    assert len(shard.loader(4)) == 3
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for data in (shard, shard.repeat(2).shuffle(), nested):
        with pytest.raises(PlanError, match=r"leave shard\(\) out, or keep it and give rank=0, world=1"):
            data.loader(4)
    assert len(shard.loader(4, rank=0, world=1)) == 3


def test_impossible_ranks():
    for given_, text in (
        ({"rank": 1}, "both rank and world"),
        ({"rank": 2, "world": 2}, "within 0:2"),
        ({"rank": 0, "world": 9}, "at least 1 for each of 9 ranks"),
    ):
        with pytest.raises(PlanError, match=text):
            dataset().loader(8, **given_)
    with pytest.raises(PlanError, match=r"call shard\(1, 2\) first"):
        penstock.IterDataset.of(dataset(), 4).loader(rank=1, world=2)


def test_ray_train_tells_the_rank(monkeypatch):
    def outside() -> None:
        raise RuntimeError("`get_context` cannot be used outside of a Ray Train training function")

    context = SimpleNamespace(get_world_rank=lambda: 2, get_world_size=lambda: 5)
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=lambda: context))
    assert find() == Ranks(2, 5, "ray.train")
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=outside))
    assert find() == Ranks()


@pytest.mark.parametrize("output", ["numpy", "torch", "jax"])
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_weighted_means_of_ranks_average_to_the_mean_of_the_batch(output, samples, more, world):
    data = from_arrays({"x": np.arange(samples, dtype="f8") ** 2}, lengths=[samples]).steps()

    def batches(rank: int) -> list[Any]:
        return list(
            data.loader(world + more, rank=rank, world=world, threads=0, output=output, float32=output == "jax")
        )

    whole = [batch["x"].mean() for batch in data.loader(world + more, rank=0, world=1, threads=0)]
    for mean, shares in zip(whole, zip(*map(batches, range(world)), strict=True), strict=True):
        parts = [share.weight * (np.asarray(share["x"]).mean() if len(share["x"]) else 0) for share in shares]
        assert np.isclose(sum(parts) / world, mean)
        assert [share.weight == 0 for share in shares] == [len(share["x"]) == 0 for share in shares]
