"""Pictures of a `PlanPicture`: its batches, the layout of their samples, how they mix, and shares of a mix.

Notebooks and the viewer show the same pictures. A sample is a cell of its batch's line, coloured by its part or by its
episode. The layout shows places of samples: a sequence is a bar, and what is empty is padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.html import Markup, caption, page, steps
from penstock.core.svg import WIDE, ChartLine, cells, chart, color, drawing, label, tint
from penstock.data.plan_figures import PlanFigures

By = Literal["part", "episode"]
MOST_COLUMNS = 256  # samples of a batch that are drawn
MOST_CELLS = 4096  # of all batches
MOST_SAMPLES = 24  # of a layout
CELL = (6.0, 14.0)  # least and greatest height of a batch's line, in pixels
BAR = 12.0  # height of a sample in the layout
PADDING = 'fill="currentColor" fill-opacity=".12"'


@dataclass(frozen=True)
class BatchGrid:
    """Samples of batches that are drawn."""

    batches: int
    columns: int

    @classmethod
    def of(cls, picture: PlanFigures) -> BatchGrid:
        columns = min(int(np.diff(picture.edges).max()), MOST_COLUMNS)
        return cls(min(len(picture.edges) - 1, max(MOST_CELLS // columns, 1)), columns)


def batches_drawing(picture: PlanFigures, by: By, width: float = WIDE) -> Markup:
    """Draw batches as lines of cells, one for each sample."""
    grid = BatchGrid.of(picture)
    step = width / grid.columns
    gap = 1.0 if step >= 5 else 0.0
    height = min(max(step, CELL[0]), CELL[1])
    colors = _colors(picture, by)
    line = _first_lines(picture)
    shapes: list[tuple[str, float, float, float, float]] = []
    for batch in range(grid.batches):
        lo, hi = picture.edges[batch : batch + 2].tolist()
        for column, sample in enumerate(range(lo, min(hi, lo + grid.columns))):
            if (i := int(line[sample])) >= 0:  # a sample without rows has no line
                shapes.append((colors[i], column * step, batch * height, step - gap, height - 1))
    return drawing(width, grid.batches * height, f"batches coloured by {by}", cells(shapes))


def layout_drawing(picture: PlanFigures, by: By, width: float = WIDE) -> Markup:
    """Draw places of the first samples: sequences as bars, and padding as what is empty."""
    most = min(MOST_SAMPLES, len(picture.positions))
    places = int(_places(picture)[:most].max())
    step = width / max(places, 1)
    colors = _colors(picture, by)
    rows = picture.rows
    shown = np.flatnonzero(rows["sample"] < most)
    empty = "".join(
        f'<rect x="0" y="{sample * BAR}" width="{n * step:.1f}" height="{BAR - 2}" {PADDING}/>'
        for sample, n in enumerate(_places(picture)[:most].tolist())
    )
    bars: list[tuple[str, float, float, float, float]] = []
    for i in shown.tolist():
        x, size = int(rows["place"][i]) * step, int(rows["rows"][i]) * step
        bars.append((colors[i], x, int(rows["sample"][i]) * BAR, max(size - 1.0, 0.5), BAR - 2))
    return drawing(width, most * BAR, f"layout of {most} samples of {places} places", empty, cells(bars))


def mixing_drawing(picture: PlanFigures, width: float = WIDE) -> Markup | None:
    """Draw how often samples of one episode follow each other at each distance, and chance."""
    mixing = picture.mixing
    if mixing is None or not mixing.chance:
        return None
    curves = [
        ChartLine("pairs from one episode", mixing.same, color(0)),
        ChartLine("by chance", np.full(len(mixing.lags), mixing.chance), color(1), dashed=True),
    ]
    ends = ("neighbours", f"{mixing.lags[-1]:,} samples apart")
    return chart(curves, ends, width, 120, "how the order mixes episodes", low=0.0, unit="%")


def shares_drawing(picture: PlanFigures, width: float = WIDE) -> Markup | None:
    """Draw the shares of the parts of a mix over the epoch, with their targets."""
    shares = picture.shares
    if shares is None:
        return None
    curves = [ChartLine(name, shares.taken[:, i], color(i)) for i, name in enumerate(shares.names)]
    wanted = [
        ChartLine("" if i else "target", target, color(i), dashed=True) for i, target in enumerate(shares.target.T)
    ]
    ends = (f"position {int(shares.positions[0]):,}", f"{int(shares.positions[-1]):,}")
    return chart([*curves, *wanted], ends, width, 140, "shares of the parts over an epoch", low=0.0, unit="%")


def plan_page(picture: PlanFigures) -> str:
    """Return all pictures as a block for notebooks."""
    first, *others = picture.sentences
    parts = [steps(picture.chain)]
    if len(picture.parts) > 1:
        parts += [caption("Batches by part: a line is a batch, a cell is a sample"), batches_drawing(picture, "part")]
        parts += [_names(picture)]
    parts += [caption("Batches by episode"), batches_drawing(picture, "episode")]
    if int(_places(picture).max()) > 1:
        parts += [caption("Layout of the first samples, with padding"), layout_drawing(picture, "episode")]
    for title, chart_of in (("Shares", shares_drawing(picture)), ("Mixing", mixing_drawing(picture))):
        parts += [] if chart_of is None else [caption(title), chart_of]
    return page("Plan", first, *parts, *(caption(sentence) for sentence in others))


def _names(picture: PlanFigures) -> Markup:
    shapes: list[str] = []
    for i, name in enumerate(picture.parts):
        shapes += [cells([(color(i), 0, i * 15 + 2, 10, 10)]), label(name, 15, i * 15 + 11)]
    return drawing(WIDE, 15 * len(picture.parts), "colours of the parts", *shapes)


def _places(picture: PlanFigures) -> IntArray:
    """`[n]` places of each sample."""
    return np.repeat(picture.widths, np.diff(picture.edges))


def _first_lines(picture: PlanFigures) -> IntArray:
    """`[n]` the first line of each sample, -1 for a sample without rows."""
    first = np.full(len(picture.positions), -1)
    samples, lines = np.unique(picture.rows["sample"], return_index=True)
    first[samples] = lines
    return first


def _colors(picture: PlanFigures, by: By) -> Sequence[str]:
    """Colour of each line."""
    if by == "part":
        return [color(int(part)) for part in picture.rows["part"]]
    return list(_tints(picture))


def _tints(picture: PlanFigures) -> Iterator[str]:
    for source, episode in zip(picture.rows["source"].tolist(), picture.rows["episode"].tolist(), strict=True):
        yield tint(episode + 7 * source)
