"""Run one task from end to end: record, copy, train, stop, resume, evaluate, compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from examples.demo.learner import Clone, Player
from examples.demo.recording import DemoRecording, record
from examples.demo.tasks import Task
from examples.demo.training import Progress, Training, resume, samples
from penstock.cli.show import spread

COMPARED = 512  # samples that are read from both formats


@dataclass(frozen=True)
class Result:
    """Results of one task: its data, two trainings, the learner and its returns, and the checks.

    `straight` is the uninterrupted training, `halves` the stopped and the resumed part of the same one. `curve` has
    a batch number and the mean return of the learner after it, for every evaluation during training.
    """

    task: Task
    recorded: DemoRecording
    episodes: int
    steps: int
    straight: Progress
    halves: list[Progress]
    curve: list[tuple[int, float]]
    agent: Clone
    clone: list[float]
    checks: dict[str, bool]

    @property
    def returns(self) -> dict[str, list[float]]:
        """Return the returns of all players."""
        return {"random": self.recorded.random, "expert": self.recorded.expert, "clone": self.clone}

    def to_json(self) -> dict[str, Any]:
        """Return all results as plain data, including the losses of all batches."""
        return {
            "task": self.task.env_id,
            "datasets": {self.task.format: str(self.recorded.path), self.task.copy: str(self.recorded.copy)},
            "episodes": self.episodes,
            "steps": self.steps,
            "returns": {player: spread(returns) for player, returns in self.returns.items()},
            "losses": self.straight.losses,
            "return_by_batch": self.curve,
            "samples_per_second": self.straight.rate,
            "waiting_share": self.straight.waiting_share,
            "checks": self.checks,
        }


def travel(task: Task, folder: Path) -> Result:
    """Run all steps of a task. Files are written below `folder`, which exists."""
    recorded = record(task, folder)
    with penstock.open(recorded.path) as data, penstock.open(recorded.copy) as copy:
        episodes, steps = len(data), data.total_steps
        same = same_samples(samples(task, data), samples(task, copy))
    training = Training(task, recorded.path)
    total = task.epochs * len(training.loader)
    curve: list[tuple[int, float]] = []
    for batch in np.linspace(0, total, task.evaluations + 1, dtype=int)[:-1] if task.evaluations else ():
        training.run(int(batch) - training.batches)
        curve.append((int(batch), float(np.mean(evaluate(task, training.clone)))))
    straight = training.run(total - training.batches)
    halves = interrupted(task, recorded, folder / f"{task.name}.pt", total)
    clone = evaluate(task, training.clone)
    curve.append((total, float(np.mean(clone))))
    checks = {
        "both formats give the same samples": same,
        "resumed batches are the same": [d for half in halves for d in half.digests] == straight.digests,
        "resumed weights are the same": halves[-1].weights == straight.weights,
    }
    if task.judged:
        checks["the clone is better than chance"] = float(np.mean(clone)) > float(np.mean(recorded.random))
    return Result(task, recorded, episodes, steps, straight, halves, curve, training.clone, clone, checks)


def interrupted(task: Task, recorded: DemoRecording, saved: Path, total: int) -> list[Progress]:
    """Run the same training, stopped in the middle of an epoch and resumed in another process."""
    first = Training(task, recorded.path)
    head = first.run(total // 2 + 1)
    first.save(saved)
    return [head, resume(task, recorded.path, saved, total - len(head.losses))]


def evaluate(task: Task, clone: Clone) -> list[float]:
    """Return the clone's returns in the environment."""
    player = Player(clone, task.history)

    def reset(_number: int, _total: float, _length: int) -> None:
        player.reset()

    played = penstock.rollout(task.make(), player, episodes=task.test_episodes, seed=7, on_episode=reset)
    return played.returns


def same_samples(one: penstock.MapDataset, other: penstock.MapDataset) -> bool:
    """Return whether both have the same number of samples, and equal samples at the first positions."""
    positions = np.arange(min(COMPARED, len(one)))
    a, b = one[positions], other[positions]
    return len(one) == len(other) and list(a) == list(b) and all(np.array_equal(a[c], b[c]) for c in a)
