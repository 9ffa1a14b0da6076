"""Draws docs/pictures/windows.svg: which steps of two short episodes are in the windows of some calls.

python docs/pictures/windows.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import penstock
from penstock.data.map_dataset import MapDataset

LENGTHS = [7, 4]
GAP = 5  # columns of the picture between the episodes: padding is drawn there
STORED, PADDED, ANCHOR = "#4c72b0", "#c9d5ea", "#dd8452"

data = penstock.from_arrays({"x": np.arange(sum(LENGTHS))}, lengths=LENGTHS)
CALLS = {
    "windows(4)": (data.windows(4), 0, 1),
    "windows(4, stride=2)": (data.windows(4, stride=2), 0, 1),
    "windows(3, frame_skip=2)": (data.windows(3, frame_skip=2), 0, 2),
    'windows(4, pad="zero")': (data.windows(4, pad="zero"), 0, 1),
    'windows(4, past=3, pad="zero")': (data.windows(4, past=3, pad="zero"), 3, 1),
    'windows(4, past=1, pad="zero",\n        pad_before=1, pad_after=1)': (
        data.windows(4, past=1, pad="zero", pad_before=1, pad_after=1),
        1,
        1,
    ),
}


def draw(axis: Axes, samples: MapDataset, past: int, skip: int, lines: int) -> None:
    """A line for each sample, a square for each of its rows at its step. Both pictures of a line have `lines`."""
    numbered = samples.with_row_numbers()[:]
    steps, episodes = numbered["timesteps"], numbered["episodes"]
    for line, (row, episode) in enumerate(zip(steps, episodes, strict=True)):
        stored = int(np.flatnonzero(row >= 0)[0])
        first = int(row[stored]) - stored * skip
        begin = int(episode[stored]) * (LENGTHS[0] + GAP)
        for place, step in enumerate(row):
            look = {"color": STORED if step >= 0 else PADDED, "ec": "white"}
            axis.add_patch(Rectangle((begin + first + place * skip, line), 0.92, 0.8, **look))
        axis.plot(begin + first + past * skip + 0.46, line + 0.4, "o", ms=3.5, color=ANCHOR)
    axis.set_ylim(lines, -0.3)
    axis.set_yticks([])


def main() -> None:
    """Draw it next to this file."""
    mpl.rcParams["svg.hashsalt"] = "penstock"
    rows = [len(samples) for samples, _, _ in CALLS.values()]
    lines = [max(rows[i : i + 2]) for i in range(0, len(rows), 2)]
    figure, axes = plt.subplots(
        3, 2, figsize=(9, 7), sharex=True, layout="constrained", height_ratios=[count + 2 for count in lines]
    )
    for number, (axis, (call, (samples, past, skip))) in enumerate(zip(axes.flat, CALLS.items(), strict=True)):
        draw(axis, samples, past, skip, lines[number // 2])
        axis.set_title(f"{call}: {len(samples)} samples", loc="left", fontsize=8.5, family="monospace")
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        for begin, length in ((0, LENGTHS[0]), (LENGTHS[0] + GAP, LENGTHS[1])):
            axis.axvspan(begin - 0.04, begin + length - 0.04, color="#f2f2f2", zorder=0)
        axis.set_xlim(-3.2, sum(LENGTHS) + GAP + 3.2)
        places = [*range(LENGTHS[0]), *range(LENGTHS[0] + GAP, sum(LENGTHS) + GAP)]
        axis.set_xticks(
            [place + 0.46 for place in places], [str(n) for size in LENGTHS for n in range(size)], fontsize=8
        )
        axis.tick_params(labelbottom=True, length=0)
    axes[-1, 0].set_xlabel("step of episode 0, and of episode 1", fontsize=8)
    axes[-1, 1].set_xlabel("orange: the anchor   light: padding", fontsize=8)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
