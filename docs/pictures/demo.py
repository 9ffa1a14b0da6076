"""Draws demo.png and agent.svg: `python docs/pictures/demo.py` trains the agent of the last task of the demo."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from examples.demo import story
from examples.demo.road import Result, travel
from examples.demo.tasks import TASKS
from penstock.core.arrays import Float32Array, FloatArray
from penstock_imitation.envs.toy import AGENT, PREY

SIZE = 480  # of the scene, in units of the drawing
STEP = 0.12  # seconds a step
REST = 1.2  # seconds at the end of an episode
EPISODES = 3
FLOORS = ("#20415c", "#2a3d2c", "#3d2b4a")


def animate(result: Result, file: Path) -> None:
    """Write some episodes of the trained agent as an animated SVG that repeats them."""
    played = sorted((story.play(result, seed) for seed in range(30)), key=lambda episode: -len(episode.agent))
    shown = [episode for episode in played if episode.solved][:EPISODES]
    seconds = [STEP * (len(episode.agent) - 1) + REST for episode in shown]
    total, start, scenes = sum(seconds), 0.0, list[str]()
    for episode, length, floor in zip(shown, seconds, FLOORS, strict=True):
        scenes.append(scene(episode, floor, start / total, (start + length) / total, total))
        start += length
    holes = "".join(
        f'<rect x="{x}" y="{y}" width="22" height="14" rx="4"/>' for x in range(14, SIZE, 48) for y in (8, SIZE + 42)
    )
    tiles = "".join(
        f'<rect x="{60 * i}" y="{60 * j}" width="60" height="60"/>' for i in range(8) for j in range(8) if (i + j) % 2
    )
    page = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE + 64}">'
        f'<rect width="100%" height="100%" fill="#05070f"/><g fill="#232b52">{holes}</g>'
        f'<defs><clipPath id="c"><rect width="{SIZE}" height="{SIZE}"/></clipPath><g id="t">{tiles}</g></defs>'
        f'<g transform="translate(0 32)" clip-path="url(#c)">{"".join(scenes)}</g></svg>\n'
    )
    file.write_text(page, "utf-8")


def scene(episode: story.Play, floor: str, start: float, end: float, total: float) -> str:
    """One episode, visible from `start` to `end`, which are shares of the `total` seconds of the whole film."""
    moves = np.linspace(start, end - REST / total, len(episode.agent))
    first = ' opacity="0"' if start else ""
    shown = (
        f'<animate attributeName="opacity" calcMode="discrete" dur="{total:.2f}s" repeatCount="indefinite" '
        f'keyTimes="0;{start:.4f};{min(end, 0.9999):.4f}" values="0;1;0"/>'
    )
    dots = [
        dot(episode.target, PREY, "#46d6be", moves, total),
        dot(episode.agent, AGENT, "#f6f6f0", moves, total),
    ]
    return (
        f'<g{first}>{shown}<rect width="{SIZE}" height="{SIZE}" fill="{floor}"/>'
        f'<use href="#t" fill="#fff" fill-opacity="0.05"/>{"".join(dots)}</g>'
    )


def dot(places: Float32Array, radius: float, color: str, moves: FloatArray, total: float) -> str:
    """A disc that moves through some places, and the line behind it."""
    x, y = np.round(places * SIZE, 1).T
    inner = (moves[0] > 0) + 0  # a first moment at 0, where the episode starts later
    times = [*[0.0] * inner, *moves, 1.0]
    around = ([*[x[0]] * inner, *x, x[-1]], [*[y[0]] * inner, *y, y[-1]])
    keys = ";".join(f"{time:.4f}" for time in times)
    frames = "".join(
        f'<animate attributeName="{name}" dur="{total:.2f}s" repeatCount="indefinite" keyTimes="{keys}" '
        f'values="{";".join(f"{value:.1f}" for value in values)}"/>'
        for name, values in zip(("cx", "cy"), around, strict=True)
    )
    length = np.hypot(np.diff(x), np.diff(y)).cumsum()
    behind = 1 - np.concatenate([[0.0], length]) / max(float(length[-1]), 1e-9)
    offsets = ";".join(f"{value:.3f}" for value in [*[1.0] * inner, *behind, 0.0])
    line = (
        f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))}" fill="none" '
        f'stroke="{color}" stroke-opacity="0.45" stroke-width="4" stroke-linejoin="round" pathLength="1" '
        f'stroke-dasharray="1" stroke-dashoffset="1"><animate attributeName="stroke-dashoffset" dur="{total:.2f}s" '
        f'repeatCount="indefinite" keyTimes="{keys}" values="{offsets}"/></polyline>'
    )
    return f'{line}<circle cx="{x[0]}" cy="{y[0]}" r="{radius * SIZE:.1f}" fill="{color}">{frames}</circle>'


if __name__ == "__main__":
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        learned = travel(TASKS[-1], Path(folder))
        story.draw(learned, here / "demo.png")
        animate(learned, here / "agent.svg")
