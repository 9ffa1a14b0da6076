"""Stable-Baselines3's algorithms with both buffers: their own, and one of penstock. The curves are the same.

python examples/trainers/sb3_replay.py --seeds 0 1 2 --out docs/pictures/learning_curves.svg
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import DQN, SAC
from stable_baselines3.common import buffers
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.her import HerReplayBuffer

from penstock_mirrors import sb3

SMOOTH = 10  # episodes
SMALL = {"device": "cpu", "learning_starts": 200, "batch_size": 64, "policy_kwargs": {"net_arch": [64, 64]}}
# Class, policy, environment, options, steps, and Stable-Baselines3's buffer.
PROGRAMS: dict[str, tuple[Any, str, Any, dict[str, Any], int, Any]] = {
    "DQN": (
        DQN,
        "MlpPolicy",
        "CartPole-v1",
        {"learning_rate": 2e-3, "exploration_fraction": 0.3, "target_update_interval": 100, "gradient_steps": 2},
        12000,
        buffers.ReplayBuffer,
    ),
    "SAC": (SAC, "MlpPolicy", "Pendulum-v1", {"learning_rate": 1e-3}, 8000, buffers.ReplayBuffer),
    "HER": (
        DQN,
        "MultiInputPolicy",
        lambda: BitFlippingEnv(n_bits=8, continuous=False, max_steps=8),
        {"learning_rate": 1e-3, "exploration_fraction": 0.3, "target_update_interval": 100},
        8000,
        HerReplayBuffer,
    ),
}


def train(name: str, ours: bool, steps: int | None = None, seed: int = 0) -> tuple[list[float], Any]:
    """Train with a buffer of penstock or with Stable-Baselines3's, and return the returns of the episodes."""
    make, policy, env, options, most, theirs = PROGRAMS[name]
    buffer = getattr(sb3, theirs.__name__) if ours else theirs  # penstock
    monitored = Monitor(env() if callable(env) else gymnasium.make(env))
    options = deepcopy(SMALL | options)  # SAC changes them
    model = make(policy, monitored, replay_buffer_class=buffer, buffer_size=5000, seed=seed, **options)
    model.learn(steps or most)
    return monitored.get_episode_rewards(), model


def draw(curves: dict[str, dict[int, list[list[float]]]], out: str) -> None:
    """Draw the returns with both buffers over each other, a pair of lines for each seed."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "curves"  # the same file for the same curves
    figure, axes = plt.subplots(1, len(curves), figsize=(4 * len(curves), 3), layout="constrained", squeeze=False)
    styles = (("Stable-Baselines3", "C0", 3.5, "-"), ("penstock", "C1", 1.2, "--"))
    for axis, (name, seeds) in zip(axes[0], curves.items(), strict=True):
        for number, both in enumerate(seeds.values()):
            for returns, (label, color, width, style) in zip(both, styles, strict=True):
                few = len(returns) < SMOOTH
                smooth = returns if few else np.convolve(returns, np.full(SMOOTH, 1 / SMOOTH), "valid")
                axis.plot(smooth, color=color, lw=width, ls=style, label=None if number else label)
        axis.set(title=f"{name}, {len(seeds)} seeds", xlabel="episode", ylabel=f"return, mean of {SMOOTH}")
    axes[0][0].legend()
    figure.savefig(out, dpi=120, metadata={"Date": None} if out.endswith("svg") else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file to draw the curves to, such as curves.png")
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    curves: dict[str, dict[int, list[list[float]]]] = {name: {} for name in options.only}
    for name, seeds in curves.items():
        for seed in options.seeds:
            theirs, ours = seeds[seed] = [train(name, ours, seed=seed)[0] for ours in (False, True)]
            last = f"{len(ours)} episodes, the last 20 return {np.mean(ours[-20:]):.1f}"
            print(f"{name}, seed {seed}: {last}, equal: {ours == theirs}", flush=True)
    if options.out:
        draw(curves, options.out)


if __name__ == "__main__":
    main()
