"""Picture of a `HostSimulation`: waiting, and how many times the data are fetched, over the number of hosts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from penstock.errors import require
from penstock.files import write_atomic
from penstock.simulation.orders import order_name
from penstock.simulation.simulate import HostSimulation

LEAST_READS = 1e-3  # of the data, on a logarithmic axis


def draw_simulation(result: HostSimulation, file: Path) -> None:
    """Draw the curves of all orders. The suffix of the file chooses the format, such as `.svg` or `.png`.

    Args:
        result: The figures.
        file: The picture, which is replaced if it exists.

    Raises:
        MissingExtraError: Matplotlib is not installed (extra `plot`).

    Example:
        >>> import numpy as np, penstock, tempfile
        >>> from penstock.simulation import OBJECT_STORE, simulate
        >>> data = penstock.from_arrays({"x": np.zeros((9000, 8), "float32")}, lengths=[1000] * 9)
        >>> result = simulate(data.windows(16), [1, 2, 4], batch_size=64, storage=OBJECT_STORE, orders=[None])
        >>> file = Path(tempfile.mkdtemp()) / "hosts.svg"
        >>> draw_simulation(result, file)
        >>> "svg" in file.read_text()
        True
    """
    figures: Any = require("matplotlib.figure", "plot")
    figure = figures.Figure(figsize=(8, 6), layout="constrained")
    waiting, reads = figure.subplots(2, 1, sharex=True)
    for number, order in enumerate(result.orders):
        every = result.of(order)
        hosts = [each.hosts for each in every]
        style = {"label": order_name(order), "marker": "osD^vPX"[number % 7], "markersize": 4, "alpha": 0.8}
        waiting.plot(hosts, [100 * each.waiting for each in every], **style)
        reads.plot(hosts, [max(each.reads, LEAST_READS) for each in every], **style)
    waiting.set(ylim=(-4, 104), ylabel="% of the time that steps wait")
    reads.set(yscale="log", xscale="log", xlabel="hosts", ylabel="times that all data are fetched")
    hosts = list(dict.fromkeys(each.hosts for each in result.figures))
    reads.set_xticks(hosts, [f"{each:,}" for each in hosts])
    reads.minorticks_off()
    for axes in (waiting, reads):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*waiting.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix.lstrip(".") or "svg", dpi=150)
    write_atomic(file, drawn.getvalue(), overwrite=True)
