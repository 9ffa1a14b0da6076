"""Draws `mixing.svg`: how far a source is from its share of a mix, by three ways to interleave.

Grain's schedule is its published rule, written again: sources are split off one by one, and of the first `k` picks at
each split, the sources that are left get their share of `k`, rounded down.

    python docs/pictures/mixing.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

from penstock.plan.schedule import Schedule
from penstock.plan.weights import shares

Int = npt.NDArray[np.int64]

PICKS = 1000
SOURCES = 20


def deviation(source: Int, share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """`[n]` greatest distance of a count from its share of the picks, after each pick."""
    counts = np.cumsum(source[:, None] == np.arange(len(share)), axis=0)
    return np.abs(counts - np.arange(1, len(source) + 1)[:, None] * share).max(axis=1)


def nested_floors(weights: list[float], n: int) -> Int:
    """Grain's order of `n` picks: weights are cut to hundredths of the least, then split off in turn."""
    parts = [int(w * 100 / min(weights)) for w in weights]
    k, source, total = np.arange(n), np.full(n, -1), sum(parts)
    for s, part in enumerate(parts):
        rest, next_rest = (picks * (total - part) // total for picks in (k, k + 1))
        source[(source < 0) & (rest == next_rest)] = s
        k, total = rest, total - part
    return source


def main() -> None:
    """Draw it next to this file."""
    weights = [1 / i for i in range(1, SOURCES + 1)]
    exact = shares(weights)
    share = np.array([float(s) for s in exact])
    ours = Schedule.of(exact).picks(np.arange(PICKS))[0]
    random = np.random.default_rng(0).choice(SOURCES, PICKS, p=share)
    mpl.rcParams["svg.hashsalt"] = "mixing"
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for name, source in (("at random", random), ("Grain's rule", nested_floors(weights, PICKS)), ("penstock", ours)):
        off = deviation(source, share)
        axes.plot(np.arange(1, PICKS + 1), off, lw=1, label=f"{name} (at most {off.max():.2f})")
    axes.axhline(1, color="black", lw=0.5, ls=":")
    axes.set(yscale="log", xlabel="picks k", ylabel="samples off: max |count - k * share|", xlim=(0, PICKS))
    axes.set_title(f"{SOURCES} sources with weights 1, 1/2, 1/3, ... 1/{SOURCES}", loc="left", fontsize=10)
    axes.legend(frameon=False, ncols=3, loc="upper left", fontsize=9)
    axes.set_ylim(0.2, 100)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
