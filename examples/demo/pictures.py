"""Steps of the image task: environment -> shards -> pairs -> encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import penstock
from examples.demo.encoder import Learned, Lessons, Probe, interrupted, probe
from examples.demo.shards import ImageTask, looked_at, record
from penstock.cli.info import bytes_at
from penstock.cli.show import Fitted, size, sparkline
from penstock.core.spaces import Discrete


@dataclass(frozen=True)
class Pictures:
    """Results of the image task. `probes` predict the agent's place from the untrained and the trained code, and the
    target's place, which no action of the agent changes."""

    task: ImageTask
    paths: dict[str, Path]
    steps: dict[str, int]
    learned: Learned
    probes: dict[str, Probe]
    checks: dict[str, bool]

    def to_json(self) -> dict[str, Any]:
        """Return all results as plain data."""
        return {
            "task": f"toy/{self.task.name}",
            "datasets": {player: str(path) for player, path in self.paths.items()},
            "steps": self.steps,
            "losses": self.learned.losses,
            "actions_told_right": self.learned.right,
            "samples_per_second": self.learned.rate,
            "r2": {name: probe.r2 for name, probe in self.probes.items()},
            "checks": self.checks,
        }


def learn(task: ImageTask, folder: Path) -> Pictures:
    """Run all steps. Files are written below `folder`, which exists."""
    paths = record(task, folder)
    steps: dict[str, int] = {}
    actions = 0
    for player, path in paths.items():
        with penstock.open(path) as data:
            steps[player] = data.total_steps
            actions = space.n if isinstance(space := data.spec.action_space, Discrete) else actions
    lessons = Lessons(paths, actions)
    seen, agent, target = looked_at(paths)
    probes = {"untrained": probe(lessons.encoder, seen, agent)}
    total = task.epochs * len(lessons.loader)
    learned = lessons.learn(total)
    probes |= {"trained": probe(lessons.encoder, seen, agent), "target": probe(lessons.encoder, seen, target)}
    again = interrupted(paths, actions, folder / f"{task.name}.pt", total)
    checks = {"resumed batches are the same, with another thread": again == learned.digests}
    if task.judged:
        checks["the encoder knows where the agent is"] = probes["trained"].r2 > max(0.8, probes["untrained"].r2)
    return Pictures(task, paths, steps, learned, probes, checks)


def table(pictures: Pictures) -> RenderableType:
    """Return a table with one row: the results and the checks."""
    title = "Learned from pictures: which action lies between two of them"
    shown = Table(title=title, title_justify="left", title_style="bold cyan", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("task", "steps", "shards", "loss", "action accuracy", "agent's place, R2 before > after"):
        shown.add_column(name)
    r2 = {name: f"{p.r2:.2f}" for name, p in pictures.probes.items()}
    steps = " + ".join(f"{n:,} {player}" for player, n in pictures.steps.items())
    file_sizes = size(sum(bytes_at(path) for path in pictures.paths.values()))
    right = f"{np.mean(pictures.learned.right[-20:]):.1%}"
    losses = sparkline(pictures.learned.losses, 16)
    shown.add_row(f"toy/{pictures.task.name}", steps, file_sizes, losses, right, f"{r2['untrained']} > {r2['trained']}")
    marks = (Text("yes ", "green") if holds else Text("NO  ", "bold red") for holds in pictures.checks.values())
    return Group(
        Fitted(shown), *(mark + Text(check) for mark, check in zip(marks, pictures.checks, strict=True)), Text()
    )
