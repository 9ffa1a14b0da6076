"""Picture of a `HostSimulation`: waiting of each order and number of hosts, and how often the data are fetched."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import require
from penstock.files import write_atomic
from penstock_cluster.simulation.orders import order_name
from penstock_cluster.simulation.simulate import HostSimulation

LEAST_READS = 1e-3  # of the data, on a logarithmic axis


def draw_simulation(result: HostSimulation, file: Path) -> None:
    """Draw the waiting of all orders as coloured cells, and below how many times all hosts fetch the data.

    A frame marks the recommended order of each number of hosts. The suffix of the file chooses the format, such as
    `.svg` or `.png`.
    """
    figures: Any = require("matplotlib.figure", "plot")
    figure = figures.Figure(figsize=(8, 3.4 + 0.35 * len(result.orders)), layout="constrained")
    heights = [0.35 * len(result.orders), 2.4]
    cells, reads = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    hosts = list(dict.fromkeys(each.hosts for each in result.figures))
    _draw_cells(cells, result, hosts)
    for number, order in enumerate(result.orders):
        every = [max(each.reads, LEAST_READS) for each in result.of(order)]
        reads.plot(range(len(hosts)), every, label=order_name(order), marker="osD^vPX"[number % 7], ms=4, alpha=0.8)
    reads.set(yscale="log", xlabel="hosts", ylabel="times that all hosts\nfetch the data")
    reads.set_xticks(range(len(hosts)), [f"{each:,}" for each in hosts])
    reads.grid(alpha=0.3)
    reads.spines[["top", "right"]].set_visible(False)
    reads.legend(frameon=False, fontsize=8)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix.lstrip(".") or "svg", dpi=150)
    write_atomic(file, drawn.getvalue(), overwrite=True)


def _draw_cells(axes: Any, result: HostSimulation, hosts: list[int]) -> None:
    """Draw a row for each order: green where steps wait little, red where they wait most of the time."""
    waiting = np.array([[100 * each.waiting for each in result.of(order)] for order in result.orders])
    axes.imshow(waiting, cmap="RdYlGn_r", vmin=0, vmax=60, aspect="auto", alpha=0.55)
    axes.set_yticks(range(len(result.orders)), [order_name(order) for order in result.orders])
    axes.set_title("part of the time that steps wait for data; framed: the recommended order", fontsize=10)
    axes.tick_params(length=0, labelbottom=False)
    axes.spines[:].set_visible(False)
    for (row, column), percent in np.ndenumerate(waiting):
        axes.text(column, row, f"{percent:.0f} %", ha="center", va="center", fontsize=9)
    for column, many in enumerate(hosts):
        row = result.orders.index(result.recommended(many).order)
        bounds = column - 0.48, row - 0.46, 0.96, 0.92
        axes.add_patch(_rectangle(bounds))
    axes.set_xlim(-0.5, len(hosts) - 0.5)


def _rectangle(bounds: tuple[float, float, float, float]) -> Any:
    patches: Any = require("matplotlib.patches", "plot")
    return patches.Rectangle(bounds[:2], *bounds[2:], fill=False, edgecolor="black", linewidth=2)
