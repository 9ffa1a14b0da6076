"""`Pack`: several samples of varying length in one row, planned from their lengths with a `PackIndex`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_integer, is_mapping, is_tuple
from penstock.core.selection import Selection
from penstock.errors import PlanError
from penstock.flow.limits import cores
from penstock.plan.base import NONE, Plan, chained, check_ends, checked, epoch_of, within
from penstock.plan.delta_timestamps import PickedView
from penstock.plan.outputs import DerivedOutput, MarkKind, View
from penstock.plan.packing.columns import PieceLayout, by_name, is_by_name, packed_axes
from penstock.plan.packing.even import EvenIndex
from penstock.plan.packing.index import Keep, PackIndex, PackPieces
from penstock.plan.packing.layout import Lengths
from penstock.plan.packing.recent import Index, RecentIndexes
from penstock.plan.packing.report import PackReport
from penstock.plan.packing.rule import Flush, Method, Overlong, Rule
from penstock.plan.packing.staged import StagedIndex, joined_pieces
from penstock.plan.ramp import Ramp, as_ramp, ramp_at
from penstock.plan.transform import PlanTransform, require_int
from penstock.plan.varying import VaryingEpochs

SEGMENTS: tuple[MarkKind, ...] = ("segment_ids", "positions", "lengths", "cu_seqlens", "sources")


@dataclass(frozen=True)
class Pack(PlanTransform):
    """Pack several samples into rows of `length` places.

    Columns become `[n, length, ...]`, with `segment_ids` and `positions` `[n, length]` int32 by default. Padding inside
    the samples, as in padded windows, is removed first. Samples without rows are in no pack, and the `report` counts
    them. An episode column has one row for each sequence, `[n, S, ...]`, with `S = max_sequences` or the most of any
    pack.

    Packs have an exact length and random access, and can be shuffled, mixed and resumed. Cost: one pass over the
    lengths when the number of packs is first needed.

    Args:
        length: Places of a row, at least 1: one number for every column, or one by name, such as
            `{"inputs": 1024, "targets": 256}`. A ramp such as `[(0, 512), (10_000, 2048)]` packs the samples before
            position 10,000 into rows of 512 places, and samples after it into rows of 2048. Positions count samples of
            the plan below, from the start of the run. Columns are as wide as the longest row; `batches` makes each
            batch as wide as its own rows. Every epoch is then planned separately.
        method: `"best_fit_decreasing"` packs windows of `window` samples, drawn by a keyed permutation. Which samples
            of equal length share a pack changes every epoch; the number of packs does not. `"best_fit"`, `"first_fit"`
            and `"next_fit"` use samples in order and keep `open_bins` packs open. `"random_fit"` uses a keyed order.
            `"concat_split"` concatenates all samples and cuts: no padding, but sequences are split.
        overlong: For a sample longer than the limit: `"error"`, `"truncate_left"` (keep the end), `"truncate_right"`
            (keep the start), `"split"`, `"drop"`, or `"own_pack"` (a pack with this sample only; rows are as wide as
            the longest). The `report` counts them. The default is `"error"`; with `"concat_split"` no sample is too
            long.
        head: With `"concat_split"`, the value of an extra row before every part that continues a sample, such as a BOS
            token. One value, or one by column. The default is None: no such row.
        positions: Whether positions of a part `"restart"` at 0 or `"continue"` after the part before. The default is
            `"restart"`.
        open_bins: Most open packs for `"best_fit"` and `"first_fit"`. Default: all of a window, or 1024 with
            several limits.
        flush: What to close when a sample fits in no open pack: the `"oldest"`, or all of them (`"block"`). The default
            is `"oldest"`.
        align: Start sequences at multiples of this many places. The default is 1.
        max_sequences: Most sequences of a pack. The default is None: no limit.
        window: Samples that are planned together, at least 1. The default is 65536.
        seed: Seed of the keyed orders. The default is 0.
        marks: Outputs to add, of `"segment_ids"`, `"positions"`, `"lengths"`, `"cu_seqlens"` and `"sources"`. See
            `penstock.plan.DerivedOutput`.
        fill: Value of padding, for all columns or by name. Derived outputs have 0 there. The default is 0.
        repack: Whether to plan every epoch again from the order of the plan below, as packs of a mix always are. The
            number of packs then varies between epochs. The default is False.
        keep: `"memory"` stores the plan, about 4 bytes a sample, and finds a pack in microseconds. `"recompute"` stores
            8 bytes a window and plans the window again. `"auto"` decides by size. The default is `"auto"`.
        cache: Folder to store plans in, so that the next start does not plan again. Threads and processes may share it.
            A damaged plan is made again. The default is None.

    Raises:
        PlanError: A limit is below 1, a column or word is unknown, or a sample is too long and `overlong` is `"error"`.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"tokens": np.arange(9)}, lengths=[4, 3, 2])
        >>> packs = data.sequences().apply(Pack(6))
        >>> len(packs), packs[:]["tokens"].shape
        (2, (2, 6))

    Source: `docs/concepts/mixing_and_packing.md`.
    """

    length: Ramp | Mapping[str, int] | tuple[tuple[str, int], ...]
    method: Method = "best_fit_decreasing"
    overlong: Overlong | None = None
    head: float | Mapping[str, float] | tuple[tuple[str, float], ...] | None = None
    positions: Literal["restart", "continue"] = "restart"
    open_bins: int | None = None
    flush: Flush = "oldest"
    align: int = 1
    max_sequences: int | None = None
    window: int = 65536
    seed: int = 0
    marks: tuple[MarkKind, ...] = ("segment_ids", "positions")
    fill: float | Mapping[str, float] | tuple[tuple[str, float], ...] = 0
    repack: bool = False
    keep: Keep = field(default="auto", repr=False)
    cache: str | os.PathLike[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_int(self, "window", 1)
        if isinstance(self.length, Mapping):
            set_fields(self, length=tuple(sorted((str(c), int(v)) for c, v in self.length.items())))
        elif is_integer(self.length) or not is_by_name(self.length):
            set_fields(self, length=as_ramp("length", self.length))
        for name in ("fill", "head"):
            if is_mapping(values := getattr(self, name)):
                set_fields(self, **{name: tuple(sorted(values.items()))})
        set_fields(self, marks=tuple(self.marks))
        unknown = [kind for kind in self.marks if kind not in SEGMENTS]
        if unknown:
            raise PlanError(f"expected marks among {SEGMENTS}, got {unknown}")
        if self.positions not in ("restart", "continue"):
            raise PlanError(f"expected positions to be 'restart' or 'continue', got {self.positions!r}")
        self.rule((2,))  # the words are checked here, before there is a plan

    @property
    def ramp(self) -> tuple[tuple[int, int], ...]:
        """Positions and the length of rows from there on, ascending; empty if the length never changes."""
        return () if is_integer(self.length) or is_by_name(self.length) else cast(Any, self.length)

    def rule(self, capacity: tuple[int, ...]) -> Rule:
        """Return the packing rule.

        Args:
            capacity: Places of a row on each axis.
        """
        return Rule(
            capacity,
            method=self.method,
            open_bins=self.open_bins,
            flush=self.flush,
            overlong=self.overlong,
            align=self.align,
            max_sequences=self.max_sequences,
            seed=self.seed,
            head=int(self.head is not None),
        )

    @override
    def reorder(self, plan: Plan) -> Plan:
        if any(mark.kind == "segment_ids" for mark in plan.marks):
            raise PlanError(f"expected samples that are not packed yet for {self!r}, got packs; pack once")
        if any(view.drawn for view in plan.views):
            raise PlanError(f"expected samples without goals for {self!r}, whose rows join several samples, got goals")
        if any(isinstance(view, PickedView) for view in plan.views):
            raise PlanError(f"expected samples of evenly spaced rows for {self!r}, got times in another order")
        fill, head = (self._values(plan, name) for name in ("fill", "head"))
        return PackedPlan(plan, self, self._limits(plan), fill, head)

    def _limits(self, plan: Plan) -> dict[str, int]:
        """Limit of every output that has rows."""
        names = [read.name for read in plan.reads if plan.views[read.view].align != "episode"]
        if is_by_name(self.length):
            return by_name("length", cast(Any, self.length), names, required=True)
        most = max(length for _, length in self.ramp) if self.ramp else cast(int, self.length)
        return dict.fromkeys(names, most)

    def _values(self, plan: Plan, which: Literal["fill", "head"]) -> dict[str, Any]:
        names, values = [read.name for read in plan.reads], getattr(self, which)
        if not is_tuple(values):
            return dict.fromkeys(names, values or 0)
        return by_name(which, values, names, required=False)


class PackedPlan(Plan):
    """Pack `k` of an epoch: the pieces that the index of that epoch names, as rows of the plan below.

    The plan below resolves the samples, and each span is moved to the offset of its piece in the row of the pack, and
    cut to the rows of the piece.

    If the plan below has the same samples in every epoch (`steady`), one index serves all epochs. Otherwise, and where
    the length of rows changes (`Pack.ramp`), each epoch has its own index, and epochs differ in length. Their starts
    are then sums over the epochs before. `RecentIndexes` plans the next epoch while the current one is read.
    `set_epoch_start` sets a known start, so that a resumed run does not plan the epochs before it.

    Indexes can be cached in a folder, in a file with a checksum under the fingerprint of the plan. A damaged file, or
    one of another version, is planned again.
    """

    loses = "dropped or cut by pack because of its length"

    def __init__(
        self,
        upstream: Plan,
        transform: Pack,
        limits: Mapping[str, int],
        fill: Mapping[str, float],
        head: Mapping[str, float],
    ) -> None:
        self.upstream, self._pack = upstream, transform
        self.fingerprint = chained(upstream.fingerprint, transform)
        self._axes = packed_axes(upstream, limits)
        self._rule = transform.rule(tuple(axis.limit for axis in self._axes))
        self._single = upstream.steady and not transform.repack and not transform.ramp
        self._plans = RecentIndexes(self._planned, ahead=not self._single)
        self._only: Index | None = None  # the index of all epochs, once it is planned
        self._epochs = VaryingEpochs(
            lambda epoch: 0 if upstream.empty else len(self._index(epoch)),
            f"{transform!r} drops every sample; a ramp may have become shorter than all of them",
        )
        self._width = self._widths()
        self._slots = self._most_sequences()
        self.reads = tuple(
            replace(r, squeeze=False, fill=fill.get(r.name, 0), head=head.get(r.name, 0)) for r in upstream.reads
        )
        self.views = tuple(self._view(number, view) for number, view in enumerate(upstream.views))
        self.marks = self._made_marks()
        self._used = {read.view for read in self.reads}

    def _widths(self) -> Sequence[int]:
        if self._pack.overlong != "own_pack":
            return self._rule.capacity
        if not self._single:
            raise PlanError(
                "expected overlong other than 'own_pack' where every epoch is planned again: rows have one width"
            )
        return [int(width) for width in self._index(0).width]

    def _most_sequences(self) -> int:
        if self._pack.max_sequences is not None:
            return self._pack.max_sequences
        rows = [r.name for r in self.upstream.reads if self.upstream.views[r.view].align == "episode"]
        tables = [kind for kind in self._pack.marks if kind in ("lengths", "cu_seqlens", "sources")]
        if not rows and not tables:
            return 1
        if not self._single:
            raise PlanError(
                f"expected max_sequences as the width of {rows + tables} where each epoch is packed separately, "
                "got None; add max_sequences=N to pack(), with N the most sequences of a row"
            )
        return max(1, self._index(0).most_sequences)

    def _view(self, number: int, view: View) -> View:
        if view.align == "episode":
            return replace(view, lo=0, hi=self._slots)
        axis = self._axis_of(number)
        ramped = axis >= 0 and bool(self._pack.ramp)
        return replace(view, hi=view.lo + (self._width[axis] if axis >= 0 else 1), every=1, whole=ramped)

    def _axis_of(self, number: int) -> int:
        return next((a for a, axis in enumerate(self._axes) if number in axis.views), -1)

    def _made_marks(self) -> tuple[DerivedOutput, ...]:
        one = len(self._axes) == 1
        outputs = [
            DerivedOutput(kind if one else f"{name}_{kind}", axis.views[0], kind, self._slots)
            for axis in self._axes
            for name in (axis.names[:1] if one else axis.names)
            for kind in self._pack.marks
        ]
        numbers = [mark for mark in self.upstream.marks if mark.kind.endswith("_numbers")]
        return (*outputs, *(replace(mark, view=self._packed_view(mark), squeeze=False) for mark in numbers))

    def _packed_view(self, mark: DerivedOutput) -> int:
        """A view that is packed, with the rows that a mark numbers."""
        wanted = self.upstream.views[mark.view].axis
        views = [axis.views[0] for axis in self._axes if self.upstream.views[axis.views[0]].axis == wanted]
        if not views:
            raise PlanError(f"expected a column with the rows of {mark.name!r}, got {[r.name for r in self.reads]}")
        return views[0]

    @property
    def steady(self) -> bool:
        """Whether every epoch has the same rows and the same number of packs, in any grouping."""
        return self._single

    @property
    def periodic(self) -> bool:
        """Only where one index serves all epochs and samples keep their places in it."""
        return self._single and not self._rule.exchanges

    def __len__(self) -> int:
        if self._only is None and self.upstream.empty:
            return 0
        return len(self._index(0))

    def why_empty(self) -> str:
        """No samples below, or none that is packed."""
        if self.upstream.empty:
            return self.upstream.why_empty()
        below = len(self.upstream)
        return f"{self._pack!r} packs none of {below:,} samples: each is empty, or dropped because it is too long"

    @property
    @override
    def uneven(self) -> bool:
        return not self._single

    @property
    def empty(self) -> bool:
        """Whether there is nothing to pack, in the one plan or in many epochs from the first on."""
        if self._single or self.upstream.empty:
            return len(self) == 0
        return self._epochs.barren

    def set_epoch_start(self, epoch: int, start: int) -> None:
        """Store the start, where every epoch is planned again. Raises `StateError` if its neighbours exclude it."""
        if not self._single:
            self._epochs.set_start(epoch, start)

    def start(self, epoch: int) -> int:
        """By product; or where every epoch is planned again, by planning on from the last epoch with a known start."""
        return epoch * len(self) if self._single else self._epochs.start(epoch)

    @override
    def count_below(self, position: int) -> int | None:
        """Samples of whole epochs: within one, a pack takes samples from all over a window."""
        epoch = epoch_of(self, position)
        return self.upstream.start(epoch) if self.start(epoch) == position else None

    @override
    def sizes(self, epoch: IntArray) -> IntArray:
        return super().sizes(epoch) if self._single else self._epochs.sizes(epoch)

    def locate(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """By division, or by search over the epochs planned so far. Raises `PlanError` if no later epoch has packs."""
        return super().locate(k) if self._single else self._epochs.locate(k)

    def report(self, epoch: int = 0) -> PackReport:
        """Contents of an epoch's packs, and the least number that could hold them. May plan the epoch."""
        return self._index(0 if self._single else epoch).report()

    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        """The pieces of each pack, and the rows of every piece."""
        epoch, place = self.locate(checked(self, positions))
        pieces, items = self._pieces(epoch, place)
        layout = PieceLayout.of(pieces, self._rule.head, len(place))
        below = self.upstream.resolve(items)
        return tuple(
            self._laid(layout, number, view, selection)
            for number, (view, selection) in enumerate(zip(self.views, below, strict=True))
        )

    @override
    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        """Looks at the packs of each window that has a sample of the episodes, in each epoch."""
        if lo >= hi or self.empty:
            return NONE
        parts = [NONE]
        for e in range(epoch_of(self, lo), epoch_of(self, hi - 1) + 1):
            first, number = (0, e) if self._single else (self.upstream.start(e), 0)
            end = first + int(self.upstream.sizes(np.array([e]))[0])
            items = self.upstream.uses(source, episodes, first, end) - first
            parts.append(self.start(e) + self._index(e).packs_of(items, number, e))
        return within(np.concatenate(parts), lo, hi)

    def below(self, lo: int, hi: int) -> tuple[int, int]:
        """Return the range of positions below that the epochs of the positions `lo : hi` pack."""
        first, last = (0, 0) if self._single else (epoch_of(self, lo), epoch_of(self, hi - 1))
        return self.upstream.start(first), self.upstream.start(last + 1)

    @override
    def rows_of_episodes(self, view: int, source: int, episodes: IntArray) -> tuple[IntArray, IntArray]:
        return self.upstream.rows_of_episodes(view, source, episodes)

    def _laid(self, layout: PieceLayout, number: int, view: View, below: Selection) -> Selection:
        width = len(view.steps)
        if number not in self._used:  # of a column that was selected away
            none = np.zeros(0, np.int64)
            return Selection(none, none, none, none, (layout.n, width))
        if view.align == "episode":
            return layout.slots(below, width)
        return layout.rows(below, self._axis_of(number), width, self._pack.positions == "continue")

    def _pieces(self, epoch: IntArray, place: IntArray) -> tuple[PackPieces, IntArray]:
        """The pieces of packs `[n]`, and the position of each in the plan below."""
        if self._single:
            index = self._index(0)
            pieces = index.pieces(index.spread(place, epoch), epoch)
            return pieces, pieces.item
        parts: list[PackPieces] = []
        for e in dict.fromkeys(epoch.tolist() or [0]):
            mine = np.flatnonzero(epoch == e)
            index = self._index(e)
            contents = index.pieces(index.spread(place[mine], epoch[mine]), 0)
            parts.append(contents._replace(pack=mine[contents.pack], item=contents.item + self.upstream.start(e)))
        merged = joined_pieces(parts)
        return merged, merged.item

    @override
    def extents(self, positions: IntArray) -> tuple[IntArray, ...]:
        """Places of a row, which a ramp changes from stage to stage."""
        if not self._pack.ramp:
            return super().extents(positions)
        epoch, place = self.locate(checked(self, positions))
        places = np.zeros((len(place), len(self._axes)), np.int64)
        for e in np.unique(epoch).tolist():
            index, mine = self._index(e), epoch == e
            if isinstance(index, StagedIndex):
                places[mine] = index.places(place[mine])
        return tuple(
            places[:, axis] if (axis := self._axis_of(number)) >= 0 else np.full(len(place), len(view.steps))
            for number, view in enumerate(self.views)
        )

    def _index(self, epoch: int) -> Index:
        if self._only is not None:
            return self._only
        index = self._plans.of(epoch)
        if self._single:
            self._only = index
        return index

    def _planned(self, epoch: int) -> Index:
        first = self.upstream.start(epoch)
        check_ends(self.upstream, "packing it")
        end, name = self.upstream.start(epoch + 1), f"{self.fingerprint}-{epoch}"
        if not self._pack.ramp:
            return self._part(first, end, self._rule, name)
        bounds = [first, *(position for position, _ in self._pack.ramp if first < position < end), end]
        rules = [self._pack.rule((ramp_at(self._pack.ramp, lo),) * len(self._axes)) for lo in bounds[:-1]]
        return StagedIndex(
            [self._part(lo, hi, rule, f"{name}-{lo}") for (lo, hi), rule in zip(pairwise(bounds), rules, strict=True)]
        )

    def unplanned(self) -> PackIndex:
        """Return the index of all epochs, of which no window is planned yet, so that it may be planned in parts."""
        if not self._single:
            raise PlanError(f"expected packs that are the same in every epoch to plan in parts, got {self._pack!r}")
        check_ends(self.upstream, "packing it")
        index = self._part(0, len(self.upstream), self._rule, None)
        if isinstance(index, EvenIndex):
            raise PlanError("expected samples of several lengths to plan packs of, got one length, which needs no plan")
        return index

    def store(self, index: PackIndex, folder: Path) -> Path:
        """Write the index of all epochs where `pack(cache=folder)` finds it, and return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        return index.write(folder, f"{self.fingerprint}-0")

    def _part(self, first: int, end: int, rule: Rule, name: str | None) -> PackIndex | EvenIndex:
        """The index of a range of samples of the plan below; without a name, nothing is planned or looked up."""
        n = end - first
        views = [axis.views[0] for axis in self._axes]

        def lengths(item: IntArray) -> IntArray:
            rows = self.upstream.lengths(item + first)
            return rows[views[0]] if len(views) == 1 else np.stack([rows[view] for view in views], axis=1)

        even = self.upstream.even
        if even is not None and (index := EvenIndex.of(n, [even[view] for view in views], rule)):
            return index
        table = self.upstream.length_table(views[0]) if first == 0 and len(views) == 1 else None
        return self._pack_index(lengths if table is None else table[:n], n, rule, name)

    def _pack_index(self, lengths: Lengths, n: int, rule: Rule, name: str | None) -> PackIndex:
        """An index: from the folder of plans if it has a sound one, else planned and written to it."""
        folder = None if self._pack.cache is None or name is None else Path(self._pack.cache)
        if folder is not None and name is not None and (index := PackIndex.read(folder, name, lengths, rule, n=n)):
            return index
        window, keep = self._pack.window, self._pack.keep
        index = PackIndex(lengths, rule, n=n, window=window, block=math.gcd(64, window), keep=keep, threads=cores())
        if name is None:
            return index
        if folder is not None:
            index.write(folder, name)
        len(index)  # plans it
        return index

    def __reduce__(self) -> tuple[type[PackedPlan], tuple[object, ...]]:
        # Indexes hold functions and a lock; another process plans again, or reads the folder of plans.
        limits = {name: axis.limit for axis in self._axes for name in axis.names}
        fill, head = ({r.name: getattr(r, which) for r in self.reads} for which in ("fill", "head"))
        return PackedPlan, (self.upstream, self._pack, limits, fill, head)
