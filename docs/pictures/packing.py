"""Draws docs/pictures/packing.svg: bins of four methods on one window of lengths, and how full they are.

python docs/pictures/packing.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from penstock.plan.packing import PackIndex, Rule, lower_bound

CAPACITY = 1024
ITEMS = 2000
SHOWN = 60
METHODS: dict[str, dict[str, Any]] = {
    "next fit": {"method": "next_fit"},
    "first fit, 64 open, all emitted at once": {"method": "first_fit", "open_bins": 64, "flush": "block"},
    "best fit, 64 open, the oldest evicted": {"method": "best_fit", "open_bins": 64},
    "best fit decreasing (the default)": {"method": "best_fit_decreasing"},
}


def main() -> None:
    """Draw it next to this file."""
    mpl.rcParams["svg.hashsalt"] = "penstock"
    lengths = np.random.default_rng(0).integers(10, 1001, ITEMS)
    bound = lower_bound(lengths, CAPACITY)
    figure, axes = plt.subplots(len(METHODS), 1, figsize=(9, 8), sharex=True, layout="constrained")
    for axis, (name, options) in zip(axes, METHODS.items(), strict=True):
        index = PackIndex(lengths, Rule(CAPACITY, **options))
        packs = np.linspace(0, len(index) - 1, SHOWN).astype(int)
        pieces = index.pieces(packs)
        look = {"width": 0.9, "color": "#4c72b0", "edgecolor": "white", "lw": 0.6}
        axis.bar(pieces.pack, pieces.length[:, 0], bottom=pieces.destination[:, 0], **look)
        axis.axhline(CAPACITY, color="#999999", lw=0.8)
        report = index.report()
        above = f"{len(index) / bound - 1:.1%} above the bound"
        told = f"{name}: {len(index)} packs, {report.efficiency[0]:.1%} full, {above}"
        axis.set_title(told, loc="left", fontsize=9)
        axis.set_yticks([0, CAPACITY])
        axis.set_ylim(0, CAPACITY * 1.05)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[-1].set_xlabel(f"{SHOWN} of the packs; {ITEMS} sequences of 10 to 1000 steps, at least {bound} packs")
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
