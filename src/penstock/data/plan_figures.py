"""`PlanFigures`: batches of a plan and measures of its epoch, as figures, in words, and as pictures.

Notebooks and the viewer show the same pictures. A sample is a cell of its batch's line, coloured by its part or by its
episode. The layout shows places of samples: a sequence is a bar, and what is empty is padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.core.columns import Columns
from penstock.core.html import Markup, caption, page, steps
from penstock.core.svg import WIDE, ChartLine, cells, chart, color, drawing, label, tint
from penstock.core.text import counted

SIGMA = 4.0  # standard errors from which a difference from chance is not by chance
CLEARLY = 1.25  # times chance from which a shuffle is said to mix less than it could


@dataclass(frozen=True, eq=False)
class Mixing:
    """How often two sequences that follow each other are from one episode, compared with chance.

    Args:
        lags: Distances of the two in the order, ascending from 1.
        same: `[lags]` float64, fraction of such pairs that are from one episode.
        pairs: `[lags]` int64, number of pairs that were compared.
        chance: The same fraction for two sequences drawn at random from the epoch.
        batch: Mean number of sequences of a batch.
        episodes: Mean number of episodes among `batch` consecutive sequences.
        expected: The same number if they were drawn at random.
        whole: Whether all samples of the epoch were looked at, else some of them.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(1000)}, lengths=[100] * 10).steps()
        >>> [round(each.show(50).mixing.same[0], 2) for each in (data, data.shuffle(seed=1))]
        [np.float64(0.99), np.float64(0.1)]
    """

    lags: tuple[int, ...]
    same: FloatArray
    pairs: IntArray
    chance: float
    batch: float
    episodes: float
    expected: float
    whole: bool

    @property
    def times_chance(self) -> FloatArray:
        """`[lags]` float64, how many times as often as by chance."""
        return self.same / max(self.chance, 1e-12)

    @property
    def sentence(self) -> str:
        """The figures in words, and a call that would mix more."""
        near = f"neighbours are from one episode {_percent(self.same[0])} of the time"
        if not self.chance:
            return "no two sequences of the epoch are from one episode"
        if self.chance >= 1:
            return "all samples are from one episode, so there is nothing to mix"
        if self._clearly_above(0):
            times = f"{self.times_chance[0]:,.3g} times as often as by chance ({_percent(self.chance)})"
            return f"{near}, {times}; shuffle() mixes all samples, and with block and pool a larger pool mixes more"
        above = [lag for i, lag in enumerate(self.lags) if self._clearly_above(i) and lag <= self.batch]
        if above:
            far = f"samples {above[0]:,} apart are from one episode more often than by chance ({_percent(self.chance)})"
            return f"{near}, but {far}"
        return f"{near}; by chance it is {_percent(self.chance)}: well mixed"

    def _clearly_above(self, i: int) -> bool:
        spread = math.sqrt(self.chance * (1 - self.chance) / max(int(self.pairs[i]), 1))
        excess = float(self.same[i]) - self.chance
        return bool(self.same[i] > CLEARLY * self.chance and excess > SIGMA * spread)


@dataclass(frozen=True, eq=False)
class PartShares:
    """Parts of a mix over an epoch, next to their targets.

    Args:
        names: Names of the parts.
        positions: `[b]` int64, first position of each block of samples.
        taken: `[b, parts]` float64, fraction of the samples of a block that are from each part.
        target: `[b, parts]` float64, fraction that the mix aims at there.
        samples: `[parts]` float64, fraction of the samples of all blocks.
        rows: `[parts]` float64, fraction of their rows. It differs if samples of some parts are longer.

    Example:
        >>> import numpy as np, penstock
        >>> parts = {name: penstock.from_arrays({"x": np.arange(100)}, lengths=[100]).steps() for name in "ab"}
        >>> penstock.mix(parts, [3, 1], stop=80, label=None).show().shares.samples.tolist()
        [0.75, 0.25]
    """

    names: tuple[str, ...]
    positions: IntArray
    taken: FloatArray
    target: FloatArray
    samples: FloatArray
    rows: FloatArray


@dataclass(frozen=True, eq=False)
class PlanFigures:
    """Batches of a plan and measures of its epoch, as `PlanPicture` describes them."""

    chain: tuple[str, ...]
    fingerprint: str
    epoch: int
    length: int | None
    start: int
    positions: IntArray
    edges: IntArray
    rows: Columns
    widths: IntArray
    sources: tuple[str, ...]
    parts: tuple[str, ...]
    mixing: Mixing | None
    shares: PartShares | None

    @property
    def end(self) -> int | None:
        """Position after the epoch, or None if it has no end."""
        return None if self.length is None else self.start + self.length

    @property
    def padding(self) -> float:
        """Fraction of the places of the batches that are padding."""
        places = int(np.sum(np.diff(self.edges) * self.widths))
        return 1 - int(self.rows["rows"].sum()) / places if places else 0.0

    @property
    def sentences(self) -> tuple[str, ...]:
        """The picture in words."""
        epoch = "an endless epoch" if self.length is None else f"epoch {self.epoch} of {counted(self.length, 'sample')}"
        first, last = int(self.positions[0]), int(self.positions[-1]) + 1
        shown = f"{_batches(len(self.edges) - 1)} at positions {first:,} to {last - 1:,} of {epoch}"
        padded = [f"{_percent(self.padding)} of the places are padding"] if self.padding else []
        mixed = [] if self.mixing is None else [self.mixing.sentence]
        return (shown, *padded, *mixed)

    def __repr__(self) -> str:
        return "\n".join(self.sentences)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _batches(n: int) -> str:
    return "1 batch" if n == 1 else f"{n:,} batches"


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
