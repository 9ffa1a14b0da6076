"""Record a task with its expert and with random actions; write the same episodes in a second format."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import penstock
from examples.demo.tasks import Task
from penstock.formats.base.format import named


@dataclass(frozen=True)
class DemoRecording:
    """The two recorded datasets, and the returns of both players."""

    path: Path
    copy: Path
    expert: list[float]
    random: list[float]


def record(task: Task, folder: Path, seed: int = 0) -> DemoRecording:
    """Play the task and save every episode; then write the episodes again in the other format."""
    path, copy = (folder / f"{task.name}-{name}" for name in (task.format, task.copy))
    with closing(penstock.record(task.make(), path, format=task.format)) as env:
        expert = penstock.rollout(env, task.expert(env), episodes=task.expert_episodes, seed=seed)
        random = penstock.rollout(env, episodes=task.random_episodes, seed=seed + 1)
    with penstock.open(path) as data, named(task.copy).create(copy, data.spec, data.metadata) as writer:
        writer.write_all(data)
    return DemoRecording(path, copy, expert.returns, random.returns)
