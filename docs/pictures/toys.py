"""Draws toys.png: the experts at work on the three tasks of the benchmark `toy`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from penstock_imitation.envs import expert
from penstock_imitation.envs.toy_env import ToyEnv

SHOWN = (("reach", 11, 3), ("push", 16, 5), ("chase", 1, 3))  # task, seed, steps from picture to picture


def film(task: str, seed: int, every: int) -> np.ndarray:
    """Five pictures of an episode, side by side; the last is the end."""
    env, act = ToyEnv(task, render_mode="rgb_array"), expert(task)
    observation, _ = env.reset(seed=seed)
    pictures, step, over = [], 0, False
    while len(pictures) < 5:
        if step % every == 0 or over:
            pictures.append(np.pad(env.render(), ((4, 4), (4, 4), (0, 0)), constant_values=255))
        observation, _, over, *_ = env.step(act(observation))
        step += 1
    return np.hstack(pictures)


if __name__ == "__main__":
    sheet = Image.fromarray(np.vstack([film(*shown) for shown in SHOWN]))
    small = sheet.resize((sheet.width // 2, sheet.height // 2), Image.Resampling.BOX)
    small.save(Path(__file__).with_name("toys.png"), optimize=True)
