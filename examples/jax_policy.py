"""A policy in JAX that infers what it cannot see: balance a pole without sight of any speed.

    python examples/jax_policy.py [--out curve.png]

The player that is recorded sees positions and speeds. The policy sees the last positions only, as windows of a fixed
shape, so that `jax.jit` compiles the update once. Without a memory of earlier positions it fails.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import penstock

STEPS, WIDTH = 200, 64  # most steps of an episode; hidden units
Parameters = list[dict[str, jax.Array]]


def environment() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", max_episode_steps=STEPS)


def record(path: Path, episodes: int) -> penstock.EpisodeDataset:
    """Record a good player that acts at random in a fifth of its steps."""
    rng, gains = np.random.default_rng(0), np.array([0.1, 0.3, 4.0, 1.5])

    def player(seen: np.ndarray) -> int:
        return int(rng.integers(2)) if rng.random() < 0.2 else int(seen @ gains > 0)

    with penstock.Collector(environment(), path, seed=0) as env:
        penstock.rollout(env, player, episodes=episodes)
    return penstock.open(path)


def windows(data: penstock.EpisodeDataset, memory: int) -> penstock.MapDataset:
    """The last `memory` observations and the action at each step. Starts of episodes repeat the first observation."""
    ranges = {"observations": (1 - memory, 1)}
    return data.windows(1, pad="repeat", columns=ranges).select_columns("observations", "actions")


def create(memory: int, seed: int = 0) -> Parameters:
    """A network with one hidden layer."""
    keys, sizes = jax.random.split(jax.random.key(seed), 2), [(2 * memory, WIDTH), (WIDTH, 2)]
    return [
        {"w": jax.random.normal(key, size) / size[0] ** 0.5, "b": jnp.zeros(size[1])}
        for key, size in zip(keys, sizes, strict=True)
    ]


def scores(parameters: Parameters, observations: jax.Array) -> jax.Array:
    """`[n, 2]` scores of the actions, of `[n, memory, 4]` observations, whose even numbers are positions."""
    positions = observations[..., ::2].reshape(len(observations), -1)
    first, second = parameters
    return jnp.tanh(positions @ first["w"] + first["b"]) @ second["w"] + second["b"]


def loss_of(parameters: Parameters, batch: dict[str, jax.Array]) -> jax.Array:
    """Cross entropy of the actions that were taken."""
    logs = jax.nn.log_softmax(scores(parameters, batch["observations"]))
    return -jnp.take_along_axis(logs, batch["actions"], 1).mean()


@jax.jit
def update(parameters: Parameters, momentum: Parameters, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
    """One step of gradient descent with momentum."""
    loss, gradient = jax.value_and_grad(loss_of)(parameters, batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda p, m: p - 0.3 * m, parameters, momentum), momentum, loss


def train(samples: penstock.MapDataset, memory: int, updates: int) -> tuple[Parameters, list[float]]:
    parameters = create(memory)
    momentum, losses = jax.tree.map(jnp.zeros_like, parameters), list[jax.Array]()
    for batch in samples.shuffle(seed=0).with_epoch_length(256 * updates).loader(batch_size=256, output="jax"):
        parameters, momentum, loss = update(parameters, momentum, batch)
        losses.append(loss)  # a float would wait for the device
    return parameters, [float(loss) for loss in losses]


def play(parameters: Parameters, scale: Callable[[Any], Any], memory: int, episodes: int) -> float:
    """Mean number of steps until the pole falls."""
    total, env, act = 0.0, environment(), jax.jit(scores)
    for seed in range(episodes):
        seen: list[np.ndarray] = []

        def player(observation: np.ndarray, seen: list[np.ndarray] = seen) -> int:
            seen.append(observation)
            last = [seen[max(i, 0)] for i in range(len(seen) - memory, len(seen))]
            return int(act(parameters, scale({"observations": np.stack(last)[None]})["observations"]).argmax())

        total += penstock.rollout(env, player, episodes=1, seed=seed).returns[0]
    return total / episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file to draw the curves to, such as curve.png")
    out = parser.parse_args().out
    curves, steps = dict[int, list[float]](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        data = record(Path(folder) / "cartpole", 100)
        scale = penstock.normalize(penstock.statistics(data, ["observations"]), ["observations"])
        for memory in (1, 2, 4, 8):
            parameters, curves[memory] = train(windows(data, memory).map(scale), memory, updates=4000)
            steps.append(play(parameters, scale, memory, 10))
            print(f"sees {memory} positions: loss {np.mean(curves[memory][-100:]):.3f}, balances {steps[-1]:.0f} steps")
    if out:
        import matplotlib.pyplot as plt

        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
        for memory, losses in curves.items():
            left.plot(
                np.convolve(losses, np.ones(50) / 50, "valid"),
                lw=0.8,
                label=f"{memory} position{'s' if memory > 1 else ''}",
            )
        left.set(xlabel="update", ylabel="loss")
        left.legend()
        right.bar([str(memory) for memory in curves], steps)
        right.set(xlabel="positions that the policy sees", ylabel="steps until the pole falls")
        figure.savefig(out)


if __name__ == "__main__":
    main()
