"""`PlanFigures`: batches of a plan and measures of its epoch, as figures and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.core.columns import Columns
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
