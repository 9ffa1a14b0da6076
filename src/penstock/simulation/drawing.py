"""Drawing of a `HostSimulation`: waiting, and how many times the data are fetched, over the number of hosts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.core.html import Markup
from penstock.core.svg import WIDE, ChartLine, chart, color, drawing, label
from penstock.simulation.simulate import HostFigures, HostSimulation, order_name

HEIGHT = 150.0


def simulation_drawing(result: HostSimulation, width: float = WIDE) -> Markup:
    """Return the curves of all orders as SVG.

    Args:
        result: The figures, of at least two numbers of hosts.
        width: Width in pixels.

    Example:
        >>> import penstock
        >>> from penstock.simulation import OBJECT_STORE, simulate
        >>> data = penstock.from_arrays({"x": np.zeros((9000, 8), "float32")}, lengths=[1000] * 9)
        >>> result = simulate(data.windows(16), [1, 2, 4], batch_size=64, storage=OBJECT_STORE, orders=[None])
        >>> simulation_drawing(result).html.count("<svg")
        3
    """
    titles: list[tuple[str, str, float | None, Callable[[HostFigures], float]]] = [
        ("part of the time that steps wait for data", "%", 1.0, lambda each: each.waiting),
        ("times that all hosts together fetch the data in an epoch, powers of 10", "", None, _tens),
    ]
    shapes: list[str] = []
    top = 0.0
    for title, unit, high, value in titles:
        curves = [
            ChartLine(order_name(order), np.array([value(each) for each in result.of(order)]), color(i))
            for i, order in enumerate(result.orders)
        ]
        hosts = [each.hosts for each in result.of(result.orders[0])]
        ends = (f"{hosts[0]:,}", f"{hosts[-1]:,} hosts: {', '.join(f'{each:,}' for each in hosts)}")
        picture = chart(curves, ends, width, HEIGHT, title, low=0.0, high=high, unit=unit)
        size = float(picture.html.split('height="', 1)[1].split('"', 1)[0])
        shapes += [label(title, 0, top + 12), _moved(picture, top + 18)]
        top += size + 34
    return drawing(width, top, "what many hosts ask of a storage", *shapes)


def _tens(each: HostFigures) -> float:
    return float(np.log10(max(each.reads, 1e-3)))


def _moved(picture: Markup, top: float) -> str:
    """A picture within another one."""
    return picture.html.replace("<svg ", f'<svg y="{top:.0f}" ', 1)
