"""`Pack`: several samples of unequal length in one row, planned from the lengths alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from penstock.core.columns import under
from penstock.errors import PlanError
from penstock.plan.base import MarkKind, Plan, PlanTransform, settle
from penstock.plan.packed import Packed
from penstock.plan.packing.index import Keep
from penstock.plan.packing.rule import Flush, Method, Overlong, Rule

Int = npt.NDArray[np.int64]
SEGMENTS: tuple[MarkKind, ...] = ("segment_ids", "positions", "lengths", "cu_seqlens", "sources")


@dataclass(frozen=True)
class Pack(PlanTransform):
    """Packs: each sample is several samples of the plan below, one after the other, in a row of `length` places.

    Columns are `[n, length, ...]`; `marks` tells what comes with them (see `penstock.plan.Mark`): by default
    `segment_ids` and `positions`, int32 `[n, length]`. Padding within the samples below (of padded windows) is left
    out first, and samples without any rows are in no pack; the `report` counts them. An episode column has one row a
    sequence, `[n, S, ...]`, `S` being `max_sequences` or the most of a pack.

    Packed data is an ordinary plan: it has an exact length, random access, can be shuffled, mixed, and resumed.

    Arguments:
        length: the limit of every column, or of each by name (`{"inputs": 1024, "targets": 256}`).
        method: `"best_fit_decreasing"` plans windows of `window` samples drawn by a keyed permutation; which samples of
            equal length go together changes every epoch, the number of packs does not. `"best_fit"`, `"first_fit"` and
            `"next_fit"` take the samples in order and keep `open_bins` packs open, evicting the oldest, or all
            (`flush="block"`), when a sample fits nowhere. `"random_fit"` takes them in a keyed order.
            `"concat_split"` lays all end to end and cuts: no padding, but sequences are split.
        overlong: what becomes of a sample longer than the limit: `"error"`, `"truncate_left"` (keeps the end),
            `"truncate_right"` (keeps the beginning), `"split"`, `"drop"`, or `"own_pack"` (it is alone in a pack, and
            rows are as wide as the longest such). Each is counted in the `report`. Default: `"error"`, and for
            `"concat_split"` no sample is too long.
        head: with `"concat_split"`, a value (or one by name, such as a BOS token) for a row in front of every part that
            continues a sample; nothing is overwritten. None for no such row.
        positions: whether positions of a part `"restart"` at 0 or `"continue"` where the part before ended.
        align: sequences begin at multiples of this many places.
        max_sequences: the most sequences in a pack.
        pad: the value of padding, for all columns or by name; ids are 0 there whatever it is.
        repack: plan every epoch anew from the order that the plan below has in it, as a mix always is. Epochs then have
            unequal numbers of packs.
        keep: `"memory"` holds about 4 bytes a sample and finds a pack in microseconds, `"recompute"` holds 8 bytes a
            window and plans the window again, `"auto"` decides by size.
        cache: a folder where plans are kept by fingerprint, so that the next start need not plan. Any number of
            threads and processes may share it; a damaged plan is made again.

    Raises `PlanError` for limits below 1, unknown columns or words, and, with `overlong="error"`, for the first sample
    that is too long. Cost: one pass over the lengths when the number of packs is first asked for.
    Source: `docs/packing.md`.

    >>> Pack(2048, overlong="split").length
    2048
    """

    length: int | Mapping[str, int] | tuple[tuple[str, int], ...]
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
    pad: float | Mapping[str, float] | tuple[tuple[str, float], ...] = 0
    repack: bool = False
    keep: Keep = field(default="auto", repr=False)
    cache: str | os.PathLike[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        settle(self, "window", 1)
        if isinstance(self.length, Mapping):
            object.__setattr__(self, "length", tuple(sorted((str(c), int(v)) for c, v in self.length.items())))
        elif not isinstance(self.length, tuple):
            settle(self, "length", 1)
        for name in ("pad", "head"):
            if isinstance(given := getattr(self, name), Mapping):
                object.__setattr__(self, name, tuple(sorted(given.items())))
        object.__setattr__(self, "marks", tuple(self.marks))
        unknown = [kind for kind in self.marks if kind not in SEGMENTS]
        if unknown:
            raise PlanError(f"expected marks among {SEGMENTS}, got {unknown}")
        if self.positions not in ("restart", "continue"):
            raise PlanError(f"expected positions to be 'restart' or 'continue', got {self.positions!r}")
        self.rule((2,))  # the words are checked here, before there is a plan

    def rule(self, capacity: tuple[int, ...]) -> Rule:
        """How lengths become packs, for limits of each axis."""
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

    def reorder(self, plan: Plan) -> Plan:
        """The plan of packs."""
        if any(mark.kind == "segment_ids" for mark in plan.marks):
            raise PlanError(f"expected samples that are not packed yet for {self!r}, got packs; pack once")
        pad, head = (self._values(plan, name) for name in ("pad", "head"))
        return Packed(plan, self, self._limits(plan), pad, head)

    def _limits(self, plan: Plan) -> dict[str, int]:
        """The limit of every output that has rows."""
        names = [read.name for read in plan.reads if plan.views[read.view].align != "episode"]
        if not isinstance(self.length, tuple):
            return dict.fromkeys(names, cast(int, self.length))
        return _by_name("length", self.length, names, required=True)

    def _values(self, plan: Plan, which: Literal["pad", "head"]) -> dict[str, Any]:
        names, given = [read.name for read in plan.reads], getattr(self, which)
        if not isinstance(given, tuple):
            return dict.fromkeys(names, given or 0)
        return _by_name(which, given, names, required=False)


def _by_name(what: str, given: Sequence[tuple[str, Any]], names: Sequence[str], *, required: bool) -> dict[str, Any]:
    """The value of every name, from that given for it or for what it lies below."""
    for prefix, _ in given:
        if not any(under(prefix, name) for name in names):
            raise PlanError(f"expected {what} for columns among {list(names)}, got {prefix!r}")
    found = {name: [value for prefix, value in given if under(prefix, name)] for name in names}
    missing = [name for name, values in found.items() if not values]
    if missing and required:
        raise PlanError(f"expected a {what} for every column, got none for {missing}; select() the columns to pack")
    return {name: values[-1] for name, values in found.items() if values}
