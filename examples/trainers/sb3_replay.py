"""Stable-Baselines3's algorithms with both buffers: their own, and one of penstock. The curves are the same.

python examples/trainers/sb3_replay.py --out curves.png
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from stable_baselines3 import DQN, SAC
from stable_baselines3.common import buffers
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.her import HerReplayBuffer

from penstock_mirrors import sb3

SMALL = {"seed": 0, "device": "cpu", "learning_starts": 200, "batch_size": 64, "policy_kwargs": {"net_arch": [64, 64]}}
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
    "SAC": (SAC, "MlpPolicy", "Pendulum-v1", {"learning_rate": 1e-3}, 4000, buffers.ReplayBuffer),
    "HER": (
        DQN,
        "MultiInputPolicy",
        lambda: BitFlippingEnv(n_bits=8, continuous=False, max_steps=8),
        {"learning_rate": 1e-3, "exploration_fraction": 0.3, "target_update_interval": 100},
        8000,
        HerReplayBuffer,
    ),
}


def train(name: str, ours: bool, steps: int | None = None) -> tuple[list[float], Any]:
    """Train with a buffer of penstock or with Stable-Baselines3's, and return the returns of the episodes."""
    make, policy, env, options, most, theirs = PROGRAMS[name]
    buffer = getattr(sb3, theirs.__name__) if ours else theirs  # penstock
    monitored = Monitor(env()) if callable(env) else env
    model = make(policy, monitored, replay_buffer_class=buffer, buffer_size=5000, **(SMALL | options))
    model.learn(steps or most)
    return model.get_env().envs[0].get_episode_rewards(), model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file to draw the curves to, such as curves.png")
    out = parser.parse_args().out
    curves = {name: [train(name, ours)[0] for ours in (False, True)] for name in PROGRAMS}
    for name, (theirs, ours) in curves.items():
        print(f"{name}: {len(ours)} episodes, the last 20 return {np.mean(ours[-20:]):.1f}, equal: {ours == theirs}")
    if out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, len(curves), figsize=(4 * len(curves), 3), layout="constrained")
        for axis, (name, both) in zip(axes, curves.items(), strict=True):
            styles = (("Stable-Baselines3", "C0", 4, "-"), ("penstock", "C1", 1.2, "--"))
            for returns, (label, color, width, style) in zip(both, styles, strict=True):
                smooth = np.convolve(returns, np.ones(10) / 10, "valid")
                axis.plot(smooth, color=color, lw=width, ls=style, label=label)
            axis.set(title=name, xlabel="episode", ylabel="return, mean of 10")
        axes[0].legend()
        figure.savefig(out, dpi=120)


if __name__ == "__main__":
    main()
