"""The image task: record pictures of a game to tar shards, and load them as pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import penstock
from penstock_imitation.envs import EnvConfig, VecEnvOptions, expert, load_vec_env
from penstock_imitation.target_pairs import TargetPairs

ENVS = 4
PLAYERS = ("demos", "random")


@dataclass(frozen=True)
class ImageTask:
    """A task of the toy benchmark: the steps that each player records, and the length of the encoder's training."""

    name: str = "chase"
    steps: int = 4000
    epochs: int = 5
    judged: bool = True

    def quick(self) -> ImageTask:
        """Return a smaller task, to test that all parts work."""
        return replace(self, steps=600, epochs=2, judged=False)


def record(task: ImageTask, folder: Path, seed: int = 0) -> dict[str, Path]:
    """Play the task in vectorised environments, and write tar shards to one folder for each player."""
    paths = {player: folder / f"{task.name}-{player}" for player in PLAYERS}
    config = EnvConfig(benchmark_name="toy", task_name=task.name)
    for k, (player, path) in enumerate(paths.items()):
        envs = load_vec_env(config, VecEnvOptions(venv_parallel=False, n_envs=ENVS), seed=seed + k)
        play = expert(task.name) if player == "demos" else None
        with penstock.record(envs, path, format="webdataset", record_infos=True) as recording:
            penstock.recording.rollout_vector(recording, play, steps=task.steps, seed=seed + k)
    return paths


def pairs(paths: dict[str, Path]) -> penstock.MapDataset:
    """Return pairs of consecutive pictures and the action between them, in equal numbers from both players."""
    sets = [penstock.open(path).apply(TargetPairs("inverse_dynamics", last=True)) for path in paths.values()]
    return penstock.mix(sets, [1, 1]).shuffle(seed=0)


def looked_at(paths: dict[str, Path], every: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pictures `[n, 3, 32, 32]`, and the places `[n, 2]` of the agent and of its target in them."""
    columns = ("observations", "infos/agent", "infos/target")
    seen = [penstock.open(path).steps().select_columns(*columns) for path in paths.values()]
    blocks = [data[np.arange(0, len(data), every)] for data in seen]
    pictures, agent, target = (np.concatenate([block[name] for block in blocks]) for name in columns)
    return pictures, agent, target
