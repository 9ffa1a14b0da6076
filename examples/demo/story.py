"""Draw the picture of the demo: one task from left to right, from recorded frames to the trained agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from examples.demo.learner import Player
from examples.demo.road import Result
from penstock.core.arrays import Float32Array, ImageArray
from penstock.errors import require

GROUND = "#10142a"
CARD = "#191f3d"
LINE = "#3a4270"
TEXT = "#f4f4ee"
FAINT = "#a5aed3"
TEAL = "#46d6be"
GOLD = "#ffc83c"
CORAL = "#f06054"
FRAMES = 4  # of each film
TRIES = 20  # episodes from which the longest solved one is drawn


@dataclass(frozen=True)
class Play:
    """An episode of the trained agent: its pictures, and the places `[n, 2]` of the agent and of its target in them."""

    frames: list[ImageArray]
    agent: Float32Array
    target: Float32Array
    solved: bool


def play(result: Result, seed: int, *, render: bool = False) -> Play:
    """Let the trained agent play one episode. Without `render`, `frames` is empty."""
    env, player = result.task.make(), Player(result.agent, result.task.history)
    observation, info = env.reset(seed=seed)
    frames = [env.render()] if render else []
    places = [info]
    over = False
    terminated = False
    while not over:
        observation, _, terminated, truncated, info = env.step(player(observation))
        frames += [env.render()] if render else []
        places.append(info)
        over = terminated or truncated
    agent, target = (np.stack([place[name] for place in places]) for name in ("agent", "target"))
    return Play([np.asarray(frame) for frame in frames], agent, target, terminated)


def draw(result: Result, file: Path) -> None:
    """Write the picture of a task whose infos have `agent` and `target`: recorded, learned, resumed, played."""
    style: Any = require("matplotlib", "demo")
    figure_module: Any = require("matplotlib.figure", "demo")
    patches: Any = require("matplotlib.patches", "demo")
    colors = {"text.color": TEXT, "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT}
    with style.rc_context({**colors, "axes.edgecolor": LINE, "axes.facecolor": CARD, "font.size": 10.5}):
        figure = figure_module.Figure(figsize=(12, 4.1), facecolor=GROUND)
        cards = (0.01, 0.205), (0.225, 0.265), (0.5, 0.265), (0.775, 0.215)
        titles = ("1  Record", "2  Train", "3  Stop and resume", "4  Play")
        shown = _longest(result)
        captions = _captions(result, shown)
        for (left, width), title, caption in zip(cards, titles, captions, strict=True):
            box = patches.FancyBboxPatch(
                (left + 0.004, 0.03), width - 0.008, 0.94, "round,pad=0,rounding_size=0.012", fc=CARD, ec=LINE
            )
            box.set(zorder=-1, transform=figure.transFigure, mutation_aspect=12 / 4.1)
            figure.patches.append(box)
            figure.text(left + 0.014, 0.885, title, fontsize=14, weight="bold")
            figure.text(left + 0.014, 0.065, caption, fontsize=10.5, color=FAINT, linespacing=1.35)
        _draw_films(figure.add_axes((0.022, 0.205, 0.182, 0.66)), result, patches)
        _draw_returns(figure.add_axes((0.27, 0.31, 0.208, 0.49)), result)
        _draw_losses(figure.add_axes((0.545, 0.31, 0.208, 0.49)), result)
        _draw_play(figure.add_axes((0.787, 0.21, 0.191, 0.64)), shown)
        figure.savefig(file, dpi=150)


def _captions(result: Result, shown: Play) -> tuple[str, str, str, str]:
    """One line or two under each panel."""
    batches, same = (
        len(result.straight.losses),
        sum(a == b for a, b in zip(result.straight.digests, _resumed(result, "digests"), strict=True)),
    )
    weights = "equal" if result.straight.weights == result.halves[-1].weights else "DIFFERENT"
    return (
        f"{result.episodes:,} episodes of pixels,\n{result.steps:,} steps, two formats",
        f"imitates episodes that end well;\nmean return of {result.task.test_episodes} new ones",
        f"{same:,} of {batches:,} batches equal,\nweights {weights}, in a new process",
        f"the trained agent (white)\ncatches the other in {len(shown.agent) - 1} steps",
    )


def _resumed(result: Result, name: str) -> list[Any]:
    """The values of all batches of the training that was stopped and resumed."""
    return [value for half in result.halves for value in getattr(half, name)]


def _draw_films(axes: Any, result: Result, patches: Any) -> None:
    """Two strips of film with recorded frames, as the learner sees them: the expert's first, then a random player's."""
    with penstock.open(result.recorded.path) as data:
        episodes = data[0].observations, data[len(data) - 1].observations
    for k, (name, color, seen) in enumerate(zip(("expert", "random"), (GOLD, CORAL), episodes, strict=True)):
        left = 1.75 * k
        axes.add_patch(patches.Rectangle((left, -0.12), 1.5, FRAMES * 1.06 + 0.2, fc="#05070f", ec="none"))
        for i, step in enumerate(np.linspace(0, len(seen) - 1, FRAMES).round().astype(int)):
            top = i * 1.06
            axes.imshow(
                seen[step].transpose(1, 2, 0), extent=(left + 0.25, left + 1.25, top + 1, top), interpolation="nearest",
                zorder=2,
            )  # fmt: skip
        for hole in np.arange(0, FRAMES * 1.06, 0.265):
            for side in (0.06, 1.34):
                axes.add_patch(patches.Rectangle((left + side, hole), 0.1, 0.13, fc=CARD, ec="none"))
        axes.text(left + 0.75, FRAMES * 1.06 + 0.45, name, ha="center", va="center", color=color, fontsize=10.5)
    axes.set(xlim=(0, 3.25), ylim=(FRAMES * 1.06 + 0.7, -0.15), aspect="equal")
    axes.axis("off")


def _draw_returns(axes: Any, result: Result) -> None:
    """Mean return by batch, between a random player's and the expert's."""
    batches, returns = np.array(result.curve).T
    for name, color in (("expert", GOLD), ("random", CORAL)):
        level = float(np.mean(result.returns[name]))
        axes.axhline(level, color=color, lw=1.4, ls=(0, (4, 3)))
        axes.text(batches[-1], level, f"{name} {level:.2f}", color=color, ha="right", va="bottom")
    axes.fill_between(batches, np.mean(result.returns["random"]), returns, color=TEAL, alpha=0.12, lw=0)
    axes.plot(batches, returns, color=TEAL, lw=2.4, marker="o", ms=4)
    axes.annotate(
        f"agent {returns[-1]:.2f}", (batches[-1], returns[-1]), (0, -9), textcoords="offset points",
        color=TEAL, ha="right", va="top", weight="bold",
    )  # fmt: skip
    axes.set(xlabel="batch", ylim=(-1.05, 1.2))
    axes.set_title("return", loc="left", fontsize=10.5, color=FAINT)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_losses(axes: Any, result: Result) -> None:
    """Draw losses of the uninterrupted training, and over them the losses of the stopped and the resumed part."""
    stop = len(result.halves[0].losses)
    total = np.arange(1, len(result.straight.losses) + 1)
    resumed = _resumed(result, "losses")
    axes.plot(total, result.straight.losses, color=LINE, lw=6, solid_capstyle="round", label="never stopped")
    axes.plot(total[:stop], resumed[:stop], color=TEXT, lw=1.1, label="until the stop")
    axes.plot(total[stop - 1 :], resumed[stop - 1 :], color=TEAL, lw=1.1, label="resumed")
    axes.axvline(stop, color=CORAL, lw=1.4, ls=(0, (4, 3)))
    axes.text(stop, 1.01, "stop", color=CORAL, ha="center", va="bottom", transform=axes.get_xaxis_transform())
    axes.set(xlabel="batch", yscale="log")
    axes.set_title("loss", loc="left", fontsize=10.5, color=FAINT)
    axes.legend(frameon=False, loc="upper right", labelcolor=TEXT, fontsize=9, handlelength=1.4)
    axes.spines[["top", "right"]].set_visible(False)


def _longest(result: Result) -> Play:
    """The longest of some episodes that the trained agent solved."""
    episodes = [play(result, seed) for seed in range(TRIES)]
    order = sorted(range(TRIES), key=lambda seed: (episodes[seed].solved, len(episodes[seed].agent)))
    return play(result, order[-1], render=True)


def _draw_play(axes: Any, shown: Play) -> None:
    """Draw the last picture of an episode of the trained agent, with the paths of the agent and of its target."""
    size = len(shown.frames[-1])
    early: list[int] = np.linspace(0, len(shown.frames) - 1, 6).astype(int)[:-1].tolist()
    # The maximum over some pictures: the agent and its target leave faint copies along their paths.
    ghosts = np.maximum.reduce([shown.frames[i] for i in early]) * 0.45
    axes.imshow(np.maximum(ghosts, shown.frames[-1]).astype(np.uint8))
    for places, color in ((shown.target, TEAL), (shown.agent, TEXT)):
        x, y = (places * size).T
        axes.plot(x, y, color=color, lw=1.8, marker="o", ms=3, alpha=0.95)
    axes.axis("off")
