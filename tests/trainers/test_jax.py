"""A loop of Flax, and what Grain, Orbax and MaxText ask of iterators."""

from __future__ import annotations

import doctest
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"  # before any test of this process imports JAX

from functools import partial
from pathlib import Path
from typing import Any

import flax_nnx
import grain
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from grain.checkpoint import CheckpointRestore, CheckpointSave
from grain.experimental import assert_equal_output_after_checkpoint
from toy import BATCH, samples

import penstock
import penstock.loading.grain
from penstock.loading.grain import GrainDataset, GrainIterator


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("stop", [3, 15, 20])
def test_flax_has_each_sample_once_and_resumes_bit_for_bit(tmp_path: Path, stop: int, devices: int) -> None:
    n = len(samples())
    whole = n // BATCH
    model, seen = flax_nnx.train()
    assert len(seen) == 2 * whole
    epochs = [sorted(x for batch in part for x in batch) for part in (seen[:whole], seen[whole:])]
    assert all(len(set(epoch)) == len(epoch) == whole * BATCH for epoch in epochs)
    assert seen[:whole] != seen[whole:]
    _, before = flax_nnx.train(checkpoint=tmp_path, stop=stop)
    resumed, after = flax_nnx.train(checkpoint=tmp_path, devices=devices)
    assert before + after == seen
    close = np.testing.assert_array_equal if devices == 1 else partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    jax.tree.map(close, nnx.state(model), nnx.state(resumed))


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"output": "jax"}, {"layout": ("actions", "id")}])
def test_grain_restores_every_state(options: dict[str, Any]) -> None:
    """Grain's own check: each state has one form, and gives what came after it."""
    for data in (samples(3), samples(3).repeat(2)):
        batches = GrainDataset(data.loader(BATCH, **options))
        assert_equal_output_after_checkpoint(batches.map(partial(jax.tree.map, np.asarray)))


def test_checkpoint_classes_of_grain_save_and_restore_the_iterator(tmp_path: Path) -> None:
    """Also after the last batch, and in another epoch than the new iterator is in."""
    loader = samples(3).loader(BATCH)
    batches = GrainDataset(loader)
    expected: list[list[list[int]]] = []
    with ocp.CheckpointManager(tmp_path, item_names=("data",)) as manager:
        for epoch in range(3):
            iterator = iter(batches)
            expected.append([])
            for number in range(len(loader)):
                expected[-1].append(next(iterator)["id"].tolist())
                save = ocp.args.Composite(data=CheckpointSave(iterator))
                manager.save(epoch * len(loader) + number, args=save, force=True)
            assert next(iterator, None) is None
        manager.wait_until_finished()
        for step in np.random.default_rng(2).permutation(3 * len(loader)).tolist():
            fresh = GrainDataset(samples(3).loader(BATCH))
            restored = manager.restore(step, args=ocp.args.Composite(data=CheckpointRestore(iter(fresh)))).data
            epoch, number = divmod(step, len(loader))
            assert isinstance(restored, GrainIterator)
            assert [batch["id"].tolist() for batch in restored] == expected[epoch][number + 1 :]
            later = expected[epoch + 1] if epoch < 2 else None
            assert later is None or [batch["id"].tolist() for batch in iter(fresh)] == later


def test_grain_restores_every_state_of_a_stream() -> None:
    stream = penstock.IterDataset.of(samples(3), 8).filter(lambda batch: batch["id"] % 3 > 0).rebatch(4)
    assert_equal_output_after_checkpoint(GrainDataset(stream.loader()))


def test_maxtext_makes_global_arrays_of_the_batches() -> None:
    """What its `MultiHostDataLoadIterator` does: nested leaves of numpy, whose rows the local devices divide."""
    batches: Any = GrainDataset(samples().loader(BATCH, drop_last=True))
    assert isinstance(batches, grain.IterDataset)
    assert not hasattr(batches, "as_numpy_iterator")
    local = iter(batches)
    assert iter(local) is local
    mesh = jax.make_mesh((8,), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(mesh.axis_names))
    for batch in local:
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(batch))

        def placed(leaf: np.ndarray) -> jax.Array:
            parts = jax.device_put(np.split(leaf, 8), list(mesh.local_devices))
            return jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)

        for made, leaf in zip(jax.tree.leaves(jax.tree.map(placed, batch)), jax.tree.leaves(batch), strict=True):
            np.testing.assert_array_equal(made, leaf)
    with pytest.raises(StopIteration):
        next(local)
    assert len(list(batches)) == len(samples()) // BATCH  # of the next epoch, as after its reset()
    local.close()
    with pytest.raises(ValueError, match="closed"):
        next(local)


def test_examples_of_the_module() -> None:
    assert doctest.testmod(penstock.loading.grain).failed == 0
