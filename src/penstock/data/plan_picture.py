"""`PlanPicture`: what a plan will serve, as figures, before a value is read.

Everything is computed from rows that the plan resolves (`planned_rows`). The batches of the picture are resolved in
full. Three measures describe the epoch around them, from at most `MOST_PLANNED` samples each, so that their cost does
not grow with the dataset:

* Chance: how often two samples drawn at random are from one episode. Of all samples of an epoch if it is small enough,
  else of random positions of a fixed seed. With `c` samples of each episode of `n`, it is `sum c(c-1) / n(n-1)`.
* Neighbours: how often two samples that are `lag` apart are from one episode, over stretches of consecutive samples
  that begin at equal distances in the epoch. A full shuffle is at chance for every lag.
* Shares: the parts of a mix among blocks of consecutive samples at equal distances, next to their targets. The blocks
  of a short epoch cover it.

A unit is a sequence: of a pack, each of its sequences counts for itself. The epoch of a mix without end is taken to be
its next `ENDLESS_EPOCH` samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.columns import Columns
from penstock.core.text import counted
from penstock.data.plan_drawing import plan_page
from penstock.data.planned_rows import planned_rows, source_name, view_of
from penstock.data.shares import shares_of
from penstock.errors import PlanError
from penstock.plan.base import ENDLESS, Plan, checked
from penstock.plan.batched import BatchedPlan, check_unplanned

if TYPE_CHECKING:
    from penstock.data.map_dataset import MapDataset

MOST_PLANNED = 1 << 15  # samples of a measure: some ten milliseconds
ENDLESS_EPOCH = 1 << 20
STRETCHES = 4  # of neighbours, in an epoch that is not looked at whole
SHOWN = 64  # samples of a batch where no size is given
BLOCKS = 64  # of shares
LEAST_BLOCK = 16  # samples, unless an epoch has fewer
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
        episodes: Mean number of episodes among as many consecutive sequences.
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
        """What the figures say, and what would mix more."""
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
class PlanPicture:
    """Batches of a plan and measures of its epoch. Notebooks show it as pictures, and `print` as sentences.

    Args:
        chain: Source, transforms and functions of the dataset.
        fingerprint: Fingerprint of the plan, whose first digits are in batch tickets.
        epoch: Number of the epoch.
        length: Samples of that epoch, or None if it has no end.
        start: First position of that epoch.
        positions: `[n]` int64, positions of the samples of the batches.
        edges: `[b + 1]` int64, first sample of each batch in `positions`, and the end.
        rows: One line for each range of rows, as `planned_rows` has them, and `part`, the number of its part.
        widths: `[b]` int64, places of each sample of a batch, with padding.
        sources: Name of each source.
        parts: Names of what samples are coloured by: the parts of a mix, else the sources.
        mixing: How well the order mixes episodes. None if the epoch has fewer than two samples.
        shares: Shares of the parts. None if there is no mix.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(9)}, lengths=[4, 3, 2])
        >>> picture = data.sequences().pack(6).show(batch_size=2)
        >>> picture.padding, picture.rows["episode"].tolist(), picture.rows["place"].tolist()
        (0.25, [0, 2, 1], [0, 4, 0])
    """

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

    @classmethod
    def of(cls, dataset: MapDataset, positions: IntArray, edges: IntArray) -> PlanPicture:
        """Plan the batches and measure their epoch. No data are read.

        Args:
            dataset: The samples.
            positions: `[n]` int64 positions of the samples of the batches, `n >= 1`.
            edges: `[b + 1]` int64, first sample of each batch in `positions`, and the end.

        Raises:
            PlanError: The dataset is empty.
        """
        view = view_of(dataset)
        rows, width = _rows(dataset, positions, view)
        widths = np.full(len(edges) - 1, width)
        if isinstance(dataset.plan, BatchedPlan):
            widths = dataset.plan.widths(positions, edges)[:, view]
        parts, part_of = _parts(dataset)
        rows["part"] = part_of[rows["source"]]
        epoch = int(dataset.plan.locate(positions[:1])[0][0])
        begin = dataset.plan.start(epoch)
        length = int(dataset.plan.sizes(np.array([epoch]))[0])
        lines = Columns(rows, len(rows["sample"]))
        span = range(begin, begin + (length if length <= ENDLESS // 2 else ENDLESS_EPOCH))
        return cls(
            chain=dataset.chain,
            fingerprint=dataset.plan.fingerprint,
            epoch=epoch,
            length=length if length <= ENDLESS // 2 else None,
            start=begin,
            positions=positions,
            edges=edges,
            rows=lines,
            widths=widths,
            sources=tuple(source_name(source) for source in dataset.sources),
            parts=parts,
            mixing=_mixing(dataset, view, span, lines, len(edges) - 1),
            shares=_shares(dataset, view, span, parts, part_of),
        )

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
        """What the picture shows, in words."""
        epoch = "an endless epoch" if self.length is None else f"epoch {self.epoch} of {counted(self.length, 'sample')}"
        first, last = int(self.positions[0]), int(self.positions[-1]) + 1
        shown = f"{_batches(len(self.edges) - 1)} at positions {first:,} to {last - 1:,} of {epoch}"
        padded = [f"{_percent(self.padding)} of the places are padding"] if self.padding else []
        mixed = [] if self.mixing is None else [self.mixing.sentence]
        return (shown, *padded, *mixed)

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        return plan_page(self)


def upcoming(plan: Plan, batch_size: int | None, batches: int, position: int) -> tuple[IntArray, IntArray]:
    """Return the samples of the next batches of one epoch."""
    check_unplanned(plan, batch_size, drop_last=False)
    if batches < 1 or (batch_size is not None and batch_size < 1):
        raise PlanError(f"expected at least one batch of at least one sample, got {batches} of {batch_size}")
    epoch = plan.locate(checked(plan, np.array([position])))[0]
    end = plan.start(int(epoch[0])) + int(plan.sizes(epoch)[0])
    if isinstance(plan, BatchedPlan):
        edges = plan.edges(position, position + 1)
        while len(edges) <= batches and edges[-1] < end:
            edges = np.concatenate([edges, plan.edges(int(edges[-1]), int(edges[-1]) + 1)[1:]])
    else:
        size = batch_size or SHOWN
        last = min(position + batches * size, end)
        edges = np.append(np.arange(position, last, size), last)
    return np.arange(position, int(edges[-1])), edges - position


def _rows(dataset: MapDataset, positions: IntArray, view: int) -> tuple[dict[str, AnyArray], int]:
    """Lines of the rows of samples, and the places of each sample."""
    selection = dataset.resolve(positions)[view]
    return {**planned_rows(dataset, selection, view)}, selection.shape[1]


def _parts(dataset: MapDataset) -> tuple[tuple[str, ...], IntArray]:
    """Names of the parts of the mix, or of the sources, and `[sources]` the number of the part of each."""
    shares = shares_of(dataset.plan, np.zeros(1, np.int64))
    names = shares.names if shares is not None else tuple(source_name(source) for source in dataset.sources)
    parts = tuple(dict.fromkeys(names)) if shares is not None else names
    return parts, np.array([parts.index(name) for name in names] if shares is not None else range(len(names)), np.int64)


def _units(dataset: MapDataset, positions: IntArray, view: int) -> IntArray:
    """`[u]` a number of the episode of each sequence of samples, in their order."""
    lines, _ = _rows(dataset, positions, view)
    return _numbered(lines)


def _numbered(lines: dict[str, AnyArray] | Columns) -> IntArray:
    """Lines of one sequence of one episode count once. A source has fewer than 2^40 episodes."""
    episode = lines["source"] * (1 << 40) + lines["episode"]
    key = np.stack([lines["sample"], lines["segment"], episode])
    new = np.ones(len(episode), np.bool_)
    new[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
    return episode[new]


def _mixing(dataset: MapDataset, view: int, span: range, lines: Columns, batches: int) -> Mixing | None:
    """Measure neighbours and chance over an epoch."""
    whole = len(span) <= MOST_PLANNED
    if whole:
        stretches = [_units(dataset, np.arange(span.start, span.stop), view)]
        everything = stretches[0]
    else:
        many = MOST_PLANNED // STRETCHES
        begins: IntArray = np.linspace(span.start, span.stop - many, STRETCHES).astype(np.int64)
        stretches = [_units(dataset, int(begin) + np.arange(many), view) for begin in begins]
        drawn: IntArray = np.random.default_rng(0).integers(span.start, span.stop, MOST_PLANNED)
        everything = _units(dataset, np.sort(drawn), view)
    longest = max(len(units) for units in stretches)
    if longest < 2 or len(everything) < 2:
        return None
    lags = tuple(1 << power for power in range(max(longest // 2, 1).bit_length()))
    equal = [[units[lag:] == units[:-lag] for units in stretches if len(units) > lag] for lag in lags]
    pairs = np.array([sum(len(each) for each in one) for one in equal])
    same = np.array([sum(int(each.sum()) for each in one) for one in equal]) / pairs
    counts = np.unique(everything, return_counts=True)[1].astype(np.float64)
    chance = float(np.sum(counts * (counts - 1)) / (counts.sum() * (counts.sum() - 1)))
    batch = max(round(len(_numbered(lines)) / batches), 1)
    expected = float(np.sum(1 - (1 - counts / counts.sum()) ** batch))
    return Mixing(lags, same, pairs, chance, float(batch), _distinct(stretches, batch), expected, whole)


def _distinct(stretches: Sequence[IntArray], batch: int) -> float:
    """Mean number of episodes among `batch` consecutive sequences, or among all if there are fewer."""
    groups = [units[lo : lo + batch] for units in stretches for lo in range(0, max(len(units) - batch, 0) + 1, batch)]
    return float(np.mean([len(np.unique(group)) for group in groups]))


def _shares(
    dataset: MapDataset, view: int, span: range, parts: tuple[str, ...], part_of: IntArray
) -> PartShares | None:
    """Measure the shares of parts in blocks of consecutive samples of an epoch."""
    if shares_of(dataset.plan, np.zeros(1, np.int64)) is None or not span:
        return None
    cuts = np.linspace(span.start, span.stop, min(max(len(span) // LEAST_BLOCK, 1), BLOCKS) + 1).astype(np.int64)
    begins, sizes = cuts[:-1], np.minimum(np.diff(cuts), MOST_PLANNED // BLOCKS)
    block_of = np.repeat(np.arange(len(begins)), sizes)
    positions = np.arange(len(block_of)) + np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    selection = dataset.resolve(positions)[view]
    lines = planned_rows(dataset, selection, view)
    first = np.ones(len(lines["sample"]), np.bool_)  # of a pack of several parts, each sequence counts
    first[1:] = np.diff(lines["sample"] * (1 << 32) + lines["segment"]) != 0
    block, part = block_of[lines["sample"]], part_of[lines["source"]]
    taken = np.zeros((len(begins), len(parts)))
    np.add.at(taken, (block[first], part[first]), 1)
    rows = np.bincount(part, lines["rows"], len(parts))
    target = _targets(dataset, begins, part_of, len(parts))
    total = np.maximum(taken.sum(1, keepdims=True), 1)
    return PartShares(
        parts, begins, taken / total, target, taken.sum(0) / max(taken.sum(), 1), rows / max(rows.sum(), 1)
    )


def _targets(dataset: MapDataset, positions: IntArray, part_of: IntArray, parts: int) -> FloatArray:
    """`[b, parts]` the shares that the mix aims at."""
    shares = shares_of(dataset.plan, positions)
    target = np.zeros((len(positions), parts))
    if shares is not None:
        target[:, part_of] = shares.share  # sources of one part have its share each
    return target


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _batches(n: int) -> str:
    return "1 batch" if n == 1 else f"{n:,} batches"
