"""Flax NNX with Optax and Orbax: the model, its optimizer and the position in the data are one checkpoint.

python examples/trainers/flax_nnx.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from toy import BATCH, samples


class Policy(nnx.Module):
    """The network of `toy.Policy`."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(4, 8, rngs=rngs)
        self.out = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, observations: jax.Array) -> jax.Array:
        """Return the actions."""
        return self.out(nnx.tanh(self.hidden(observations)))


def loss_of(model: Policy, batch: dict[str, jax.Array]) -> jax.Array:
    """Mean squared error of the actions."""
    return jnp.mean((model(batch["observations"]) - batch["actions"]) ** 2)


@nnx.jit
def update(model: Policy, optimizer: nnx.Optimizer[Any], batch: dict[str, jax.Array]) -> jax.Array:
    """One step of gradient descent."""
    loss, gradients = nnx.value_and_grad(loss_of)(model, batch)
    optimizer.update(model, gradients)
    return loss


def train(
    epochs: int = 2, checkpoint: Path | None = None, stop: int | None = None, devices: int = 1
) -> tuple[Policy, list[list[int]]]:
    """Train for some epochs, from a checkpoint if there is one, and stop after update `stop` to resume later.

    Returns:
        The model, and the numbers of the samples of each batch.
    """
    mesh = Mesh(jax.devices()[:devices], "data")
    model = Policy(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)
    state = jax.device_put(nnx.state((model, optimizer)), NamedSharding(mesh, PartitionSpec()))  # on all devices
    nnx.update((model, optimizer), state)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    loader = samples().loader(BATCH, drop_last=True, output="jax", sharding=rows)  # penstock
    manager = None if checkpoint is None else ocp.CheckpointManager(checkpoint)
    seen: list[list[int]] = []
    begin = 0
    if manager and manager.latest_step() is not None:
        wanted = ocp.args.Composite(state=ocp.args.StandardRestore(state), loader=ocp.args.JsonRestore())
        saved = manager.restore(manager.latest_step(), args=wanted)
        nnx.update((model, optimizer), saved.state)
        loader.load_state_dict(saved.loader)  # penstock
        begin = loader.state_dict()["position"] // len(samples())  # penstock
    for _ in range(begin, epochs):
        for batch in loader:
            update(model, optimizer, batch)
            seen.append(batch["id"].tolist())
            if manager and len(seen) == stop:
                position = ocp.args.JsonSave(loader.state_dict())  # penstock: one for any number of processes
                weights = ocp.args.StandardSave(nnx.state((model, optimizer)))
                manager.save(stop, args=ocp.args.Composite(state=weights, loader=position))
                manager.close()
                return model, seen
    return model, seen


if __name__ == "__main__":
    _, batches = train()
    print(f"{len(batches)} batches, the last one of samples {batches[-1]}")
