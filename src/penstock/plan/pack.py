"""`Pack`: several samples of varying length in one row, planned from their lengths."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from typing_extensions import override

from penstock.core.columns import under
from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_integer, is_mapping, is_tuple
from penstock.errors import PlanError, suggestion
from penstock.plan.base import Plan
from penstock.plan.delta_timestamps import PickedView
from penstock.plan.outputs import MarkKind
from penstock.plan.packed import PackedPlan
from penstock.plan.packing.index import Keep
from penstock.plan.packing.rule import Flush, Method, Overlong, Rule
from penstock.plan.ramp import Ramp, as_ramp
from penstock.plan.transform import PlanTransform, require_int

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
        elif is_integer(self.length) or not _is_by_name(self.length):
            set_fields(self, length=as_ramp("length", self.length))
        for name in ("fill", "head"):
            if is_mapping(given := getattr(self, name)):
                set_fields(self, **{name: tuple(sorted(given.items()))})
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
        return () if is_integer(self.length) or _is_by_name(self.length) else cast(Any, self.length)

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
        if _is_by_name(self.length):
            return _by_name("length", cast(Any, self.length), names, required=True)
        most = max(length for _, length in self.ramp) if self.ramp else cast(int, self.length)
        return dict.fromkeys(names, most)

    def _values(self, plan: Plan, which: Literal["fill", "head"]) -> dict[str, Any]:
        names, given = [read.name for read in plan.reads], getattr(self, which)
        if not is_tuple(given):
            return dict.fromkeys(names, given or 0)
        return _by_name(which, given, names, required=False)


def _is_by_name(length: object) -> bool:
    """Whether lengths are pairs of a column and a number, as a mapping becomes them."""
    return is_tuple(length) and all(is_tuple(pair) and isinstance(pair[0], str) for pair in length)


def _by_name(what: str, pairs: Sequence[tuple[str, Any]], names: Sequence[str], *, required: bool) -> dict[str, Any]:
    """Value of every name, from the given value for the name or for a prefix of it."""
    for prefix, _ in pairs:
        if not any(under(prefix, name) for name in names):
            raise PlanError(
                f"expected {what} for columns among {list(names)}, got {prefix!r}{suggestion(prefix, names)}"
            )
    values_of = {name: [value for prefix, value in pairs if under(prefix, name)] for name in names}
    missing = [name for name, values in values_of.items() if not values]
    if missing and required:
        raise PlanError(
            f"expected a {what} for every column, got none for {missing}; select_columns() the ones to pack"
        )
    return {name: values[-1] for name, values in values_of.items() if values}
