"""`Coverage`: the rows of the data that no sample of an epoch has, and why.

Rows are looked for at each level: in the batches, in the epoch that they are cut from, in the epoch of each plan below
it, and in the episodes that were chosen. A row that a level has and the next one above has not is lost there, and that
level says why. A level is an epoch, in whole: a plan that takes a part of an epoch loses the rest of it.

Levels that lose nothing, such as shuffles, are passed over, and the search ends where no row is left to explain. Cost:
plans an epoch for each other level, and 6 bytes for each row of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import BoolArray, Int32Array, IntArray
from penstock.core.columns import Columns
from penstock.core.html import Markup, caption, page, table
from penstock.core.svg import WIDE, cells, color, drawing, label
from penstock.core.text import counted
from penstock.data.planned_rows import first_rows, source_name, view_of
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import PlanError
from penstock.plan.anchored import AnchoredPlan
from penstock.plan.base import DerivedPlan, Plan, epoch_of, is_endless
from penstock.plan.mixed import MixedPlan
from penstock.plan.pack import PackedPlan
from penstock.plan.sequences import SequencePlan
from penstock.plan.weighted import WeightedPlan

SAMPLES = 1 << 13  # planned by one call
BINS = 152  # columns of the picture
BAR = 26.0  # height of the line of a source, in pixels
UNITS = {"step": "step", "boundary": "boundary row", "episode": "episode row", "values": "value"}

COVERED = "in a sample"
NOT_CHOSEN = "episode not chosen"
EXCLUDED = "excluded span"
SHORT = "episode shorter than a sample"
BETWEEN = "between or beside the samples of its episode"
NO_WEIGHT = "weight 0"
LACKING = "in a part without this column"


@dataclass(frozen=True, eq=False)
class Coverage:
    """Result of `Loader.coverage`. `print` shows counts as a table, and notebooks a picture too.

    Args:
        epoch: Number of the epoch.
        unit: What a row is: a step, a boundary row, an episode row or a value.
        reasons: Why rows are in no sample.
        counts: `[sources, reasons + 1]` int64 rows of each source: in a sample, then by reason.
        table: Ranges of rows in no sample: `source`, `episode`, `step` (first row, counted from the start of the
            episode), `rows`, and `reason` (number in `reasons`).
        sources: Name of each source.
        bins: `[sources, 152, reasons + 1]` int64, the same counts for equal parts of each source.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(9)}, lengths=[4, 3, 2])
        >>> coverage = data.windows(3, stride=3).loader(batch_size=2).coverage()
        >>> coverage.covered, coverage.table["episode"].tolist(), coverage.table["step"].tolist()
        (6, [0, 2], [3, 0])
        >>> coverage.reasons
        ('episode shorter than a sample', 'between or beside the samples of its episode')
    """

    epoch: int
    unit: str
    reasons: tuple[str, ...]
    counts: IntArray
    table: Columns
    sources: tuple[str, ...]
    bins: IntArray

    @property
    def covered(self) -> int:
        """Rows that are in a sample."""
        return int(self.counts[:, 0].sum())

    @property
    def rows(self) -> int:
        """Rows of all sources."""
        return int(self.counts.sum())

    @property
    def sentence(self) -> str:
        """The result in words."""
        share = self.covered / max(self.rows, 1)
        share_text = f"{self.covered:,} of {counted(self.rows, self.unit)} ({share:.3%})"
        return f"{share_text} are in a sample of epoch {self.epoch}"

    def _lines(self) -> Iterator[tuple[str, ...]]:
        """Reason, rows, share, ranges and episodes of each line."""
        totals = self.counts.sum(axis=0).tolist()
        yield COVERED, f"{totals[0]:,}", f"{totals[0] / max(self.rows, 1):.2%}", "", ""
        for number, (reason, total) in enumerate(zip(self.reasons, totals[1:], strict=True)):
            mine = np.asarray(self.table["reason"]) == number
            keys = np.stack([np.asarray(self.table[name])[mine] for name in ("source", "episode")])
            episodes = len(np.unique(keys, axis=1).T)
            yield reason, f"{total:,}", f"{total / self.rows:.2%}", f"{int(mine.sum()):,}", f"{episodes:,}"

    def __str__(self) -> str:
        lines = [("", f"{self.unit}s", "share", "ranges", "episodes"), *self._lines()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in lines
        ]
        return "\n".join([self.sentence, *(line.rstrip() for line in text)])

    def _repr_html_(self) -> str:
        names = ("", f"{self.unit}s", "share", "ranges", "episodes")
        about = caption("Each source from its first row to its last, by reason")
        return page("Coverage", self.sentence, table(names, self._lines()), about, self.picture())

    def picture(self, width: float = WIDE) -> Markup:
        """Return each source as a line: of each part of it, the share of its rows by reason.

        Args:
            width: Width in pixels. The default is 760.
        """
        shapes: list[str] = []
        step = width / BINS
        for number, bins in enumerate(self.bins):
            total = np.maximum(bins.sum(axis=1), 1)
            below = np.cumsum(bins, axis=1) - bins
            y = number * (BAR + 16)
            shapes.append(label(self.sources[number], 0, y + 11))
            shapes.append(
                cells(
                    (color(reason), x * step, y + 15 + BAR * below[x, reason] / total[x], step, BAR * n / total[x])
                    for x, counts in enumerate(bins.tolist())
                    for reason, n in enumerate(counts)
                    if n
                )
            )
        top = len(self.bins) * (BAR + 16) + 4
        for number, name in enumerate((COVERED, *self.reasons)):
            line = top + number * 15
            shapes += [cells([(color(number), 0, line + 2, 10, 10)]), label(name, 15, line + 11)]
        return drawing(width, top + 15 * (len(self.reasons) + 1), "coverage of each source", *shapes)


def coverage(
    samples: PlannedSamples, epoch: int, column: str | None, levels: Sequence[tuple[str, Sequence[tuple[int, int]]]]
) -> Coverage:
    """Return the coverage of an epoch.

    `levels` has the positions of batches and of levels above the plan, from the top, as ranges: each with the reason
    why rows of it are not in the level above. The first one is what is given.
    """
    plan, view = samples.plan, view_of(samples, column)
    if plan.views[view].drawn:
        raise PlanError(f"expected a column that samples are cut from, got goals, which are drawn: {column!r}")
    search = _Search(samples, view)
    for reason, ranges in levels:
        search.mark(plan, view, _blocks(ranges), reason, 0)
    search.descend(plan, view, plan.start(epoch), plan.start(epoch + 1), 0)
    return search.result(epoch)


class _Search:
    """What is known of each row: the number of its reason, 0 for rows in a sample, and -1 for those not yet found."""

    def __init__(self, samples: PlannedSamples, view: int) -> None:
        self._samples, self._view = samples, view
        self._first = [first_rows(samples, source, view) for source in range(len(samples.sources))]
        self._known = [np.full(int(first[-1] - first[0]), -1, np.int8) for first in self._first]
        self._reasons = [COVERED]

    @property
    def done(self) -> bool:
        """Whether all rows are found."""
        return all(bool((known >= 0).all()) for known in self._known)

    def mark(self, plan: Plan, view: int, blocks: Iterable[IntArray], reason: str, first: int) -> None:
        """Find the rows of a plan at some positions. Its sources are numbered from `first` on."""
        if self.done:
            return
        edges: dict[int, Int32Array] = {}
        for positions in blocks:
            selection = plan.resolve(positions)[view]
            real = selection if selection.real is None else selection.spans(selection.real)
            for source, part in real.by_source():
                number = first + source
                edge = edges.setdefault(number, np.zeros(len(self._known[number]) + 1, np.int32))
                start = part.start - int(self._first[number][0])
                np.add.at(edge, start, 1)
                np.add.at(edge, start + part.length, -1)
        for number, edge in edges.items():
            self._found(number, _inside(edge), reason)

    def descend(self, plan: Plan, view: int, lo: int, hi: int, first: int) -> None:
        """Find the rows of the plans below the positions `lo : hi` of a plan, whole epochs of each."""
        if self.done:
            return
        if isinstance(plan, MixedPlan):
            for number, part in enumerate(plan.parts):
                mine, there = first + plan.first[number], plan.view_below(view, number)
                if there is None:
                    for source in range(mine, mine + part.sources):
                        self._found(source, np.ones(len(self._known[source]), np.bool_), LACKING)
                    continue
                some = plan.below(number, lo, hi) if lo < hi else (0, 0)
                taken = any(shares[number] for _, shares in plan.course.stretches)
                self._next(part.plan, there, some, plan.loses if taken else NO_WEIGHT, mine)
        elif isinstance(plan, PackedPlan):
            self._next(plan.upstream, view, plan.below(lo, hi) if lo < hi else (0, 0), plan.loses, first)
        elif isinstance(plan, WeightedPlan):
            drawn = plan.drawn
            self.mark(plan.upstream, view, np.array_split(drawn, -(-len(drawn) // SAMPLES)), plan.loses, first)
            self._next(plan.upstream, view, plan.span(lo, hi) if lo < hi else (0, 0), NO_WEIGHT, first)
        elif isinstance(plan, DerivedPlan):
            self._next(plan.upstream, view, plan.span(lo, hi) if lo < hi else (0, 0), plan.loses, first)
        elif isinstance(plan, AnchoredPlan | SequencePlan):
            self._leaf(plan, view, first)

    def _next(self, plan: Plan, view: int, some: tuple[int, int], reason: str, first: int) -> None:
        lo, hi = _whole_epochs(plan, *some)
        if reason:
            self.mark(plan, view, _blocks([(lo, hi)]), reason, first)
        self.descend(plan, view, lo, hi, first)

    def _leaf(self, plan: AnchoredPlan | SequencePlan, view: int, first: int) -> None:
        """The rows of the episodes that samples were cut from, and the other rows of their sources."""
        numbers: IntArray = np.arange(len(plan.episodes))
        sources: list[int] = np.unique(plan.episodes.rows_at(numbers)[0]).tolist()
        for source in sources:
            number = first + source
            everything: IntArray = np.arange(len(self._samples.sources[number]))
            rows = plan.episodes.rows_of(source, everything)
            begin, end = plan.rows_of_episodes(view, source, everything)
            short = plan.samples_in(rows) == 0
            chosen: IntArray = np.unique(plan.episodes.rows_at(rows)[1])
            self._ranges(number, begin[short], end[short], SHORT)
            self._ranges(number, begin, end, BETWEEN)
            self._ranges(number, self._first[number][chosen], self._first[number][chosen + 1], EXCLUDED)

    def _ranges(self, number: int, begin: IntArray, end: IntArray, reason: str) -> None:
        edge, base = np.zeros(len(self._known[number]) + 1, np.int32), int(self._first[number][0])
        np.add.at(edge, begin - base, 1)
        np.add.at(edge, end - base, -1)
        self._found(number, _inside(edge), reason)

    def _found(self, number: int, rows: BoolArray, reason: str) -> None:
        """Give a reason to rows of a source that have none yet."""
        new = rows & (self._known[number] < 0)
        if new.any():
            if reason not in self._reasons:
                self._reasons.append(reason)
            self._known[number][new] = self._reasons.index(reason)

    def result(self, epoch: int) -> Coverage:
        """Return all rows with their reasons. Those that no level has are of episodes that were not chosen."""
        for number, known in enumerate(self._known):
            self._found(number, np.ones(len(known), np.bool_), NOT_CHOSEN)
        many = len(self._reasons)
        bins = np.array(
            [[np.bincount(part, minlength=many) for part in np.array_split(known, BINS)] for known in self._known],
            np.int64,
        ).reshape(-1, BINS, many)
        lines = [self._lost(number) for number in range(len(self._known))]
        columns = {name: np.concatenate([line[name] for line in lines]) for name in lines[0]}
        align = self._samples.plan.views[self._view].align
        return Coverage(
            epoch,
            UNITS[align],
            tuple(self._reasons[1:]),
            bins.sum(axis=1),
            Columns(columns, len(columns["rows"])),
            tuple(source_name(source) for source in self._samples.sources),
            bins,
        )

    def _lost(self, number: int) -> dict[str, IntArray]:
        """The ranges of rows of a source that are in no sample, cut at the ends of episodes."""
        known, first = self._known[number], self._first[number] - self._first[number][0]
        new = np.ones(len(known), np.bool_)
        new[1:] = known[1:] != known[:-1]
        new[first[first < len(known)]] = True
        begin = np.flatnonzero(new)
        rows = np.diff(np.append(begin, len(known)))
        lost = known[begin] > 0
        begin, rows = begin[lost], rows[lost]
        episode = first.searchsorted(begin, side="right") - 1
        return {
            "source": np.full(len(begin), number),
            "episode": episode,
            "step": begin - first[episode],
            "rows": rows,
            "reason": known[begin].astype(np.int64) - 1,
        }


def _blocks(ranges: Sequence[tuple[int, int]]) -> Iterator[IntArray]:
    for lo, hi in ranges:
        for begin in range(lo, hi, SAMPLES):
            yield np.arange(begin, min(begin + SAMPLES, hi))


def _whole_epochs(plan: Plan, lo: int, hi: int) -> tuple[int, int]:
    """The epochs of a range of positions in whole; the first one for an empty range."""
    if plan.empty or (is_endless(plan) and lo < hi):
        return (lo, hi) if lo < hi else (0, 0)
    if is_endless(plan):
        return 0, 0
    return plan.start(epoch_of(plan, lo)), plan.start(epoch_of(plan, max(hi - 1, lo)) + 1)


def _inside(edges: Int32Array) -> BoolArray:
    """Whether each row is in a range, from the begins and ends of ranges at each row and the end."""
    return np.cumsum(edges[:-1], dtype=np.int32) > 0
