"""The road of the image task, environment -> shards -> pairs -> encoder, and the picture of it."""

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
from penstock.cli.demo.encoder import Learned, Lessons, Probe, interrupted, probe
from penstock.cli.demo.shards import ImageTask, looked_at, pairs, record
from penstock.cli.fitted import Fitted
from penstock.cli.info import bytes_at
from penstock.cli.show import size, sparkline
from penstock.core.spaces import Discrete
from penstock.errors import require

SHOWN = 12  # pictures of the film strip
COLORS = {"untrained": "#9aa0a6", "trained": "#00897b", "target": "#f9a825"}


@dataclass(frozen=True)
class Pictures:
    """What the image task gave. `probes`: where the agent is, told from the untrained code and from the trained one,
    and where its target is, which no action of the agent's moves."""

    task: ImageTask
    paths: dict[str, Path]
    steps: dict[str, int]
    learned: Learned
    probes: dict[str, Probe]
    checks: dict[str, bool]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "task": f"toy/{self.task.name}",
            "datasets": {player: str(path) for player, path in self.paths.items()},
            "steps": self.steps,
            "losses": self.learned.losses,
            "actions_told_right": self.learned.right,
            "samples_per_second": self.learned.rate,
            "r2": {name: found.r2 for name, found in self.probes.items()},
            "checks": self.checks,
        }


def learn(task: ImageTask, folder: Path) -> Pictures:
    """Go the whole road. Files are written below `folder`, which exists."""
    paths = record(task, folder)
    steps, actions = {}, 0
    for player, path in paths.items():
        with penstock.open(path) as data:
            steps[player] = data.steps
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


def table(found: Pictures) -> RenderableType:
    """One row of what was learned, and the checks."""
    title = "Learned from pictures: which action lies between two of them"
    shown = Table(title=title, title_justify="left", title_style="bold cyan", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("task", "steps", "shards", "loss", "actions told right", "agent's place, R2 before > after"):
        shown.add_column(name)
    r2 = {name: f"{p.r2:.2f}" for name, p in found.probes.items()}
    steps = " + ".join(f"{n:,} {player}" for player, n in found.steps.items())
    held = size(sum(bytes_at(path) for path in found.paths.values()))
    right = f"{np.mean(found.learned.right[-20:]):.1%}"
    losses = sparkline(found.learned.losses, 16)
    shown.add_row(f"toy/{found.task.name}", steps, held, losses, right, f"{r2['untrained']} > {r2['trained']}")
    marks = (Text("yes ", "green") if holds else Text("NO  ", "bold red") for holds in found.checks.values())
    return Group(Fitted(shown), *(mark + Text(check) for mark, check in zip(marks, found.checks, strict=True)), Text())


def draw(found: Pictures, file: Path) -> None:
    """As PNG: a film strip of an episode, pairs as the encoder gets them, its losses, and what it knows of places."""
    figure: Any = require("matplotlib.figure", "demo").Figure(figsize=(12, 6.8), layout="constrained")
    strip, middle, bottom = figure.subfigures(3, 1, height_ratios=(1.2, 0.75, 2.2))
    with penstock.open(found.paths["demos"]) as data:
        longest = int(np.argmax([len(data[e]) for e in range(min(len(data), 50))]))
        episode = data[longest]
    frames = episode.observations[:: max(1, -(-len(episode.observations) // SHOWN))][:SHOWN]
    strip.suptitle(f"An episode of toy/{found.task.name}: white hunts green", x=0.01, ha="left", fontsize=11)
    for axes, frame in zip(strip.subplots(1, len(frames)), frames, strict=True):
        _show(axes, frame)
    _draw_pairs(middle, found)
    losses, before, after, other = bottom.subplots(1, 4, width_ratios=(1.3, 1, 1, 1))
    losses.plot(found.learned.losses, color=COLORS["trained"])
    losses.set(title="Loss: which action was it?", xlabel="batch", yscale="log")
    losses.spines[["top", "right"]].set_visible(False)
    titles = {"untrained": "Agent, before", "trained": "Agent, after", "target": "Its prey, after"}
    for axes, (name, title) in zip((before, after, other), titles.items(), strict=True):
        _draw_probe(axes, found.probes[name], title, COLORS[name])
    figure.savefig(file, dpi=110)


def _draw_pairs(figure: Any, found: Pictures) -> None:
    """Pairs of the first batch: what lies between them is what the encoder has to tell."""
    figure.suptitle("Pairs of the first batch, half of them demonstrations: context, action, later", x=0.01, ha="left")
    batch = pairs(found.paths)[np.arange(6)]
    arrows = "·→←↓↑↘↗↙↖"  # in the order of the benchmark's moves
    grid = figure.subplots(1, 24, width_ratios=(4, 1.4, 4, 0.8) * 6)
    for i in range(6):
        before, between, after, gap = grid[4 * i : 4 * i + 4]
        _show(before, batch["context"][i])
        _show(after, batch["extra_context"][i])
        between.text(0.5, 0.5, arrows[int(batch["target"][i, 0])], ha="center", va="center", fontsize=18)
        between.axis("off")
        gap.axis("off")


def _draw_probe(axes: Any, found: Probe, title: str, color: str) -> None:
    """True places against those that a linear map reads off the code, both coordinates."""
    axes.plot([0, 1], [0, 1], color="#dadce0", zorder=0)
    axes.scatter(found.truth.ravel(), found.guess.ravel(), s=3, alpha=0.25, color=color, linewidths=0)
    axes.set(title=f"{title}: R² {found.r2:.2f}", xlabel="true place", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.spines[["top", "right"]].set_visible(False)


def _show(axes: Any, frame: Any) -> None:
    axes.imshow(frame.transpose(1, 2, 0), interpolation="nearest")
    axes.axis("off")
