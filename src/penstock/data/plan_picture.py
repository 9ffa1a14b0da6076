"""`PlanPicture`: the next samples of a plan, as figures, before a value is read.

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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.columns import Columns
from penstock.data.plan_figures import Mixing, PartShares, PlanFigures, plan_page
from penstock.data.planned_rows import planned_rows, source_name, view_of
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import PlanError
from penstock.plan.base import ENDLESS, DerivedPlan, Plan, checked
from penstock.plan.batched import BatchedPlan, check_unplanned
from penstock.plan.mixed import MixedPlan


@dataclass(frozen=True, eq=False)
class Shares:
    """Part and share of every source of a mix."""

    names: tuple[str, ...]
    share: FloatArray


def shares_of(plan: Plan, positions: IntArray) -> Shares | None:
    """Return the parts of the mix in a plan, or None if there is no mix.

    Shares that change are the shares at each position. Packs and mixes of mixes hide the position; then they are the
    shares at the start.
    """
    numbers = _found(plan, positions)
    if numbers is None:
        return None
    share = np.broadcast_to(numbers.share, (len(positions), numbers.share.shape[1]))
    return Shares(numbers.names, share)


def _found(plan: Plan, k: IntArray | None) -> Shares | None:
    """Shares at positions `k`, or one row with the shares at the start if the position is unknown."""
    if isinstance(plan, MixedPlan):
        return _of_mix(plan, k)
    upstream: Plan | None = getattr(plan, "upstream", None)
    if upstream is None:
        return None
    return _found(upstream, plan.positions(k) if isinstance(plan, DerivedPlan) and k is not None else None)


def _of_mix(mix: MixedPlan, k: IntArray | None) -> Shares:
    begin = np.array([position for position, _ in mix.course.stretches])
    table = np.array([[float(share) for share in shares] for _, shares in mix.course.stretches])
    place = np.zeros(1, np.int64) if k is None else mix.locate(k)[1]
    share = table[begin.searchsorted(place, side="right") - 1]
    names: list[str] = []
    blocks: list[FloatArray] = []
    for number, part in enumerate(mix.parts):
        inner = _found(part.plan, None) or Shares(("",) * part.sources, np.ones((1, part.sources)))
        names += [f"{part.name}/{name}" if name else part.name for name in inner.names]
        blocks.append(share[:, number : number + 1] * inner.share)
    return Shares(tuple(names), np.concatenate(blocks, axis=1))


def plans_below(plan: Plan) -> Sequence[Plan]:
    if isinstance(plan, MixedPlan):
        return [part.plan for part in plan.parts]
    upstream: Plan | None = getattr(plan, "upstream", None)
    return [] if upstream is None else [upstream]


MOST_PLANNED = 1 << 15  # samples of a measure: some ten milliseconds
ENDLESS_EPOCH = 1 << 20
STRETCHES = 4  # of neighbours, in an epoch that is not looked at whole
SHOWN = 64  # samples of a batch where no size is given
BLOCKS = 64  # of shares
LEAST_BLOCK = 16  # samples, unless an epoch has fewer


@dataclass(frozen=True, eq=False, repr=False)
class PlanPicture(PlanFigures):
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

    @classmethod
    def of(cls, samples: PlannedSamples, positions: IntArray, edges: IntArray) -> PlanPicture:
        """Plan the batches and measure their epoch. No data are read.

        Args:
            samples: The planned samples.
            positions: `[n]` int64 positions of the samples of the batches, `n >= 1`.
            edges: `[b + 1]` int64, first sample of each batch in `positions`, and the end.

        Raises:
            PlanError: The dataset is empty.
        """
        view = view_of(samples)
        rows, width = _rows(samples, positions, view)
        widths = np.full(len(edges) - 1, width)
        if isinstance(samples.plan, BatchedPlan):
            widths = samples.plan.widths(positions, edges)[:, view]
        parts, part_of = _parts(samples)
        rows["part"] = part_of[rows["source"]]
        epoch = int(samples.plan.locate(positions[:1])[0][0])
        begin = samples.plan.start(epoch)
        length = int(samples.plan.sizes(np.array([epoch]))[0])
        lines = Columns(rows, len(rows["sample"]))
        span = range(begin, begin + (length if length <= ENDLESS // 2 else ENDLESS_EPOCH))
        return cls(
            chain=samples.chain,
            fingerprint=samples.plan.fingerprint,
            epoch=epoch,
            length=length if length <= ENDLESS // 2 else None,
            start=begin,
            positions=positions,
            edges=edges,
            rows=lines,
            widths=widths,
            sources=tuple(source_name(source) for source in samples.sources),
            parts=parts,
            mixing=_mixing(samples, view, span, lines, len(edges) - 1),
            shares=_shares(samples, view, span, parts, part_of),
        )

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


def _rows(samples: PlannedSamples, positions: IntArray, view: int) -> tuple[dict[str, AnyArray], int]:
    """Lines of the rows of samples, and the places of each sample."""
    selection = samples.resolve(positions)[view]
    return {**planned_rows(samples, selection, view)}, selection.shape[1]


def _parts(samples: PlannedSamples) -> tuple[tuple[str, ...], IntArray]:
    """Names of the parts of the mix, or of the sources, and `[sources]` the number of the part of each."""
    shares = shares_of(samples.plan, np.zeros(1, np.int64))
    names = shares.names if shares is not None else tuple(source_name(source) for source in samples.sources)
    parts = tuple(dict.fromkeys(names)) if shares is not None else names
    return parts, np.array([parts.index(name) for name in names] if shares is not None else range(len(names)), np.int64)


def _units(samples: PlannedSamples, positions: IntArray, view: int) -> IntArray:
    """`[u]` a number of the episode of each sequence of samples, in their order."""
    lines, _ = _rows(samples, positions, view)
    return _numbered(lines)


def _numbered(lines: dict[str, AnyArray] | Columns) -> IntArray:
    """Lines of one sequence of one episode count once. A source has fewer than 2^40 episodes."""
    episode = lines["source"] * (1 << 40) + lines["episode"]
    key = np.stack([lines["sample"], lines["segment"], episode])
    new = np.ones(len(episode), np.bool_)
    new[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
    return episode[new]


def _mixing(samples: PlannedSamples, view: int, span: range, lines: Columns, batches: int) -> Mixing | None:
    """Measure neighbours and chance over an epoch."""
    whole = len(span) <= MOST_PLANNED
    if whole:
        stretches = [_units(samples, np.arange(span.start, span.stop), view)]
        everything = stretches[0]
    else:
        many = MOST_PLANNED // STRETCHES
        begins: IntArray = np.linspace(span.start, span.stop - many, STRETCHES).astype(np.int64)
        stretches = [_units(samples, int(begin) + np.arange(many), view) for begin in begins]
        drawn: IntArray = np.random.default_rng(0).integers(span.start, span.stop, MOST_PLANNED)
        everything = _units(samples, np.sort(drawn), view)
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
    samples: PlannedSamples, view: int, span: range, parts: tuple[str, ...], part_of: IntArray
) -> PartShares | None:
    """Measure the shares of parts in blocks of consecutive samples of an epoch."""
    if shares_of(samples.plan, np.zeros(1, np.int64)) is None or not span:
        return None
    cuts = np.linspace(span.start, span.stop, min(max(len(span) // LEAST_BLOCK, 1), BLOCKS) + 1).astype(np.int64)
    begins, sizes = cuts[:-1], np.minimum(np.diff(cuts), MOST_PLANNED // BLOCKS)
    block_of = np.repeat(np.arange(len(begins)), sizes)
    positions = np.arange(len(block_of)) + np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    selection = samples.resolve(positions)[view]
    lines = planned_rows(samples, selection, view)
    first = np.ones(len(lines["sample"]), np.bool_)  # of a pack of several parts, each sequence counts
    first[1:] = np.diff(lines["sample"] * (1 << 32) + lines["segment"]) != 0
    block, part = block_of[lines["sample"]], part_of[lines["source"]]
    taken = np.zeros((len(begins), len(parts)))
    np.add.at(taken, (block[first], part[first]), 1)
    rows = np.bincount(part, lines["rows"], len(parts))
    target = _targets(samples, begins, part_of, len(parts))
    total = np.maximum(taken.sum(1, keepdims=True), 1)
    return PartShares(
        parts, begins, taken / total, target, taken.sum(0) / max(taken.sum(), 1), rows / max(rows.sum(), 1)
    )


def _targets(samples: PlannedSamples, positions: IntArray, part_of: IntArray, parts: int) -> FloatArray:
    """`[b, parts]` the shares that the mix aims at."""
    shares = shares_of(samples.plan, positions)
    target = np.zeros((len(positions), parts))
    if shares is not None:
        target[:, part_of] = shares.share  # sources of one part have its share each
    return target
