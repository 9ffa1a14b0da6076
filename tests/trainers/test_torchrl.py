"""torchrl's replay buffers over penstock's datasets: equal to its own storage with the same transitions."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler, SamplerWithoutReplacement, SliceSampler
from torchrl.data.replay_buffers.writers import ImmutableDatasetWriter

import penstock
import penstock_mirrors.torchrl
from penstock.errors import ArgumentError, StateError
from penstock_mirrors.torchrl import DatasetStorage


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


def test_examples_of_the_module() -> None:
    assert doctest.testmod(penstock_mirrors.torchrl).failed == 0
