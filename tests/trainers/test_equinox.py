"""A loop of Equinox and Optax, and `fit` of Keras with the JAX backend."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"  # before Keras is imported

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
from toy import BATCH, samples

N = len(samples())


@eqx.filter_jit
def update(model: Any, state: Any, batch: Any) -> tuple[Any, Any]:
    def loss_of(model: Any) -> Any:
        return jnp.mean((jax.vmap(model)(batch["observations"]) - batch["actions"]) ** 2)

    updates, state = optax.adam(0.01).update(eqx.filter_grad(loss_of)(model), state)
    return eqx.apply_updates(model, updates), state


def test_equinox_resumes_bit_for_bit() -> None:
    def run(stop: int, saved: Any = None) -> tuple[Any, Any, Any, list[list[int]]]:
        model = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
        state = optax.adam(0.01).init(eqx.filter(model, eqx.is_array))
        loader = samples().repeat().loader(BATCH, output="jax")
        if saved:
            model, state, position = saved
            loader.load_state_dict(position)
        seen: list[list[int]] = []
        for batch in loader:
            model, state = update(model, state, batch)
            seen.append(batch["id"].tolist())
            if len(seen) == stop:
                break
        return model, state, loader.state_dict(), seen

    *whole, seen = run(40)
    *saved, first = run(19)
    *resumed, rest = run(21, saved)
    assert first + rest == seen
    order = [sample for batch in seen for sample in batch]
    assert sorted(order[:N]) == sorted(order[N : 2 * N]) == list(range(N))
    assert eqx.tree_equal(resumed, whole)


def made() -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def steps() -> Any:
    """Samples whose epochs are whole batches."""
    return samples().with_epoch_length(N // BATCH * BATCH)


class Batches(keras.utils.PyDataset):
    """Batches of two epochs by number, which Keras may read in threads of its own."""

    def __len__(self) -> int:
        return 2 * (N // BATCH)

    def __getitem__(self, number: int) -> Any:
        batch = steps().repeat(2)[number * BATCH : (number + 1) * BATCH]
        return batch["observations"], batch["actions"]


@pytest.mark.parametrize("given", ["generator", "batches by number", "DataLoader"])
def test_keras_trains_as_a_plain_loop_does(given: str) -> None:
    plain = made()
    loader = steps().loader(BATCH)
    for _ in range(2):
        for batch in loader:
            plain.train_on_batch(batch["observations"], batch["actions"])
    model = made()
    if given == "generator":
        endless = steps().repeat().loader(BATCH, layout=("observations", "actions"))
        model.fit((batch for batch in endless), steps_per_epoch=len(loader), epochs=2, verbose=0)
    elif given == "DataLoader":
        view = steps().loader(BATCH, layout=("observations", "actions"), output="torch").data_loader()
        begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: view.sampler.set_epoch(epoch))
        model.fit(view, epochs=2, callbacks=[begin], verbose=0)  # Keras draws a batch before, and throws it away
    else:
        model.fit(Batches(), shuffle=False, verbose=0)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
