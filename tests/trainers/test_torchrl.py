"""torchrl's replay buffers over penstock's datasets and replays: equal to its own storages with the same rows."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import (
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
)
from torchrl.data.replay_buffers.writers import ImmutableDatasetWriter

import penstock
import penstock_mirrors.torchrl
from penstock.errors import ArgumentError, StateError
from penstock_mirrors.torchrl import DatasetStorage, StepStorage


def dataset(seed: int = 0) -> penstock.MapDataset:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 12, 20)
    steps, ends = int(lengths.sum()), np.cumsum(lengths) - 1
    terminations, truncations = np.zeros((2, steps), bool)
    terminations[ends[::2]] = truncations[ends[1::2]] = True
    columns = {
        "observations": rng.normal(size=(steps + len(lengths), 3)).astype("f4"),
        "actions": rng.integers(0, 4, steps),
        "rewards": rng.normal(size=steps).astype("f4"),
        "terminations": terminations,
        "truncations": truncations,
    }
    return penstock.from_arrays(columns, lengths).transitions()


def both(sampler: Any, seed: int = 0, **options: Any) -> tuple[ReplayBuffer, ReplayBuffer]:
    """A buffer of torchrl with copies of all transitions, and one over the dataset."""
    data = dataset(seed)
    whole = TensorDict(next(iter(data.loader(len(data), output="torch", layout="torchrl"))), batch_size=[len(data)])
    theirs = ReplayBuffer(storage=LazyTensorStorage(len(data)), sampler=sampler(), **options)
    theirs.extend(whole)
    ours = ReplayBuffer(
        storage=DatasetStorage(data),
        sampler=sampler(),
        writer=ImmutableDatasetWriter(),
        collate_fn=lambda samples: samples,
        **options,
    )
    for buffer in (theirs, ours):
        buffer.set_rng(torch.Generator().manual_seed(seed))
    return theirs, ours


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sampler", [RandomSampler, SamplerWithoutReplacement])
def test_samples_are_those_of_its_own_storage(sampler: Any, seed: int) -> None:
    theirs, ours = both(sampler, seed, batch_size=16)
    assert len(theirs) == len(ours)
    for _ in range(20):
        one, other = theirs.sample(), ours.sample()
        for key in one.keys(include_nested=True, leaves_only=True):
            assert torch.equal(one[key], other[key]), key
    for index in (3, slice(2, 9), torch.tensor([5, 1, 5]), [4, 2], range(3)):
        for key in ("observation", "action", ("next", "reward"), ("next", "done")):
            assert torch.equal(theirs[:][index][key], ours[index][key]), (index, key)
    with pytest.raises(IndexError):
        ours[len(ours)]


def test_slices_of_episodes_are_those_of_its_own_storage() -> None:
    theirs, ours = both(lambda: SliceSampler(slice_len=4, end_key=("next", "done"), strict_length=False), batch_size=32)
    for _ in range(5):
        one, other = theirs.sample(), ours.sample()
        assert len(other) > 16
        for key in one.keys(include_nested=True, leaves_only=True):
            assert torch.equal(one[key], other[key]), key


def test_states_name_the_dataset_and_nothing_can_be_added(tmp_path: Path) -> None:
    _, ours = both(RandomSampler, 1)
    _, same = both(RandomSampler, 1)
    _, other = both(RandomSampler, 2)
    same.load_state_dict(ours.state_dict())
    ours.dumps(tmp_path / "buffer")
    same.loads(tmp_path / "buffer")
    for change in (lambda: other.loads(tmp_path / "buffer"), lambda: other.load_state_dict(ours.state_dict())):
        with pytest.raises(StateError, match="the same dataset"):
            change()
    added = ReplayBuffer(storage=DatasetStorage(dataset()), collate_fn=lambda samples: samples)
    for change in (lambda: added.extend(added[:3]), added.empty):
        with pytest.raises(ArgumentError, match="only read"):
            change()
    with pytest.raises(ArgumentError, match="transitions"):
        DatasetStorage(penstock.from_arrays({"x": np.arange(3)}, [3]))  # pyright: ignore[reportArgumentType]


def steps(seed: int) -> TensorDict:
    """Steps as a collector has them, with outputs of the policy and a nested observation."""
    data = dataset(seed)
    rows = dict(next(iter(data.loader(len(data), output="torch", layout="torchrl"))))
    n = len(data)
    rows["log_prob"] = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    for place, shift in ((rows, 0), (rows["next"], 1)):
        place["pixels"] = {"gray": (torch.arange(n)[:, None, None].repeat(1, 2, 2) + shift).to(torch.uint8)}
    return TensorDict(rows, batch_size=[n])


def equal(one: Any, other: Any) -> bool:
    keys = set(one.keys(include_nested=True, leaves_only=True))
    assert keys == set(other.keys(include_nested=True, leaves_only=True))
    return all(torch.equal(one[key], other[key]) and one[key].dtype == other[key].dtype for key in keys)


def as_they_are(samples: Any) -> Any:
    return samples


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", [40, 500])
@pytest.mark.parametrize("sampler", ["random", "without replacement", "prioritized", "slices"])
def test_steps_that_are_added_are_sampled_as_from_its_own_storage(
    tmp_path: Path, sampler: str, size: int, seed: int
) -> None:
    make: Any = {
        "random": RandomSampler,
        "without replacement": SamplerWithoutReplacement,
        "prioritized": lambda: PrioritizedSampler(size, 0.7, 0.5),
        "slices": lambda: SliceSampler(slice_len=4, end_key=("next", "done"), strict_length=False),
    }[sampler]

    def buffer(storage: Any) -> ReplayBuffer:
        made = ReplayBuffer(storage=storage, sampler=make(), batch_size=16, collate_fn=as_they_are)
        made.set_rng(torch.Generator().manual_seed(seed))
        return made

    theirs, ours = buffer(LazyMemmapStorage(size)), buffer(StepStorage(size, tmp_path / "steps"))
    given, rng, at = steps(seed), np.random.default_rng(seed), 0
    while at < len(given):
        many = int(rng.integers(1, 12))
        for each in (theirs, ours):
            each.add(given[at]) if many == 1 else each.extend(given[at : at + many])
        at += many
        if at > 20:
            (one, about), (other, same) = (each.sample(return_info=True) for each in (theirs, ours))
            assert equal(one, other)
            assert torch.equal(torch.as_tensor(about["index"][0]), torch.as_tensor(same["index"][0]))
            if sampler == "prioritized":
                for each, info in ((theirs, about), (ours, same)):
                    each.update_priority(
                        info["index"], torch.rand(16, generator=torch.Generator().manual_seed(at)) + 0.1
                    )
    assert len(theirs) == len(ours) == min(size, len(given))
    assert equal(theirs[:], ours[:])


def test_added_steps_are_saved_and_loaded(tmp_path: Path) -> None:
    given = steps(3)
    one = ReplayBuffer(storage=StepStorage(60), collate_fn=as_they_are, batch_size=16)
    one.extend(given[:70])
    saved = one.state_dict()
    one.dumps(tmp_path / "saved")
    one.extend(given[70:90])
    for how in ("state", "folder"):
        other = ReplayBuffer(storage=StepStorage(60), collate_fn=as_they_are, batch_size=16)
        other.load_state_dict(saved) if how == "state" else other.loads(tmp_path / "saved")
        assert equal(other[:], given[torch.arange(60, 120).remainder(60) + torch.where(torch.arange(60) < 10, 60, 0)])
        other.extend(given[70:90])
        assert equal(other[:], one[:])
    with pytest.raises(ArgumentError, match=r"expected the places \[30.*after the last step, got \[7\]"):
        one[7] = given[7]
    with pytest.raises(ArgumentError, match="expected steps with"):
        one.extend(given[:3].exclude("log_prob"))
    with pytest.raises(ArgumentError, match="got no"):
        StepStorage(5).set(0, given[0].exclude("action"))
    one.empty()
    assert len(one) == 0
    one.extend(given[:3].exclude("log_prob"))
    assert equal(one[:], given[:3].exclude("log_prob"))


def test_examples_of_the_module() -> None:
    assert doctest.testmod(penstock_mirrors.torchrl).failed == 0
