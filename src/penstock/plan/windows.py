"""`Windows`: stretches of consecutive steps, each column with the range it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, cast

from penstock.errors import PlanError
from penstock.plan.anchored import EPISODE, Anchored, Output, Pad
from penstock.plan.base import Plan, SampleTransform, View, settle
from penstock.plan.episodes import Episodes

Range = tuple[str, str, int, int]
"""Output prefix, column prefix, and the rows `lo : hi` counted from the anchor."""


@dataclass(frozen=True)
class Windows(SampleTransform):
    """Windows around an anchor step `t`: columns `[n, L, ...]`, never across an episode's end.

    A window is the `length` steps `t - past : t - past + length`, so `past` of them lie before the anchor. Step
    columns and boundary columns are read at the same steps; episode columns have one row, `[n, ...]`.

    `columns` gives a column (or all columns below a prefix) a range `(lo, hi)` of its own, counted from the anchor;
    `(column, lo, hi)` reads that column under another name. Two observations back and sixteen actions ahead:
    `columns={"observations": (-1, 1), "actions": (0, 16)}`; next observations:
    `columns={"next_observations": ("observations", 1, 17)}`. Boundary columns with a range of their own may reach
    the observation after the last step.

    `pad="drop"` takes as anchors, every `stride` steps from the first that fits, those steps for which every range
    lies inside the episode. With `"zero"` and `"repeat"` the anchors are the steps `0, stride, ...`, and what lies
    outside is zero, or the nearest row again; the batch then has a `mask` `[n, L]` of what is real, and an
    `<output>_mask` for each range in `columns`.

    Raises `PlanError` for an empty range, a length or stride below 1, unknown columns, and names that collide.
    Cost: a running sum over episodes when built, nothing per window.

    >>> import numpy as np
    >>> from penstock.core.spec import Field, Spec
    >>> from penstock.formats.memory import MemorySource
    >>> spec = Spec({"rewards": Field(np.dtype("f4"))})
    >>> source = MemorySource(spec, {"rewards": np.zeros(9, "f4")}, np.array([0, 4, 9]))
    >>> (selection,) = Windows(3).plan(Episodes.of(source)).resolve(np.arange(5))
    >>> selection.start.tolist(), selection.shape
    ([0, 1, 4, 5, 6], (5, 3))
    """

    length: int
    past: int = 0
    stride: int = 1
    pad: Pad = "drop"
    columns: Mapping[str, tuple[int, int] | tuple[str, int, int]] | tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("past", 0), ("stride", 1)):
            settle(self, name, least)
        if self.pad not in ("drop", "zero", "repeat"):
            raise PlanError(f"expected pad to be 'drop', 'zero' or 'repeat', got {self.pad!r}")
        given = self.columns.items() if isinstance(self.columns, Mapping) else ((r[0], r[1:]) for r in self.columns)
        object.__setattr__(self, "columns", _ranges(given))

    def plan(self, episodes: Episodes) -> Plan:
        """The plan of all windows."""
        lo, hi = -self.past, self.length - self.past
        outputs, masks = _own_outputs(cast("tuple[Range, ...]", self.columns), episodes)
        named = {name for name, _, _ in outputs}
        default: list[Output] = [
            (path, path, EPISODE if align == "episode" else View(align, lo, hi))
            for path, align in episodes.aligns.items()
            if path not in named
        ]
        windows = [view for _, _, view in default if view is not EPISODE]
        if windows:
            masks.insert(0, ("mask", windows[0]))
        padded = self.pad != "drop"
        return Anchored(
            episodes, self, default + outputs, masks=masks if padded else (), stride=self.stride, pad=self.pad
        )


def _ranges(given: Iterable[tuple[str, tuple[Any, ...]]]) -> tuple[Range, ...]:
    """Each entry as `(output, column, lo, hi)`, sorted by output."""
    ranges: list[Range] = []
    for output, entry in given:
        try:
            column, lo, hi = entry if len(entry) == 3 else (output, *entry)
            ranges.append((output, column, index(lo), index(hi)))
        except (TypeError, ValueError):
            raise PlanError(f"expected (lo, hi) or (column, lo, hi) for {output!r}, got {entry!r}") from None
        if ranges[-1][2] >= ranges[-1][3]:
            raise PlanError(f"expected lo < hi for {output!r}, got {lo}:{hi}, which is empty")
    return tuple(sorted(ranges))


def _own_outputs(ranges: Iterable[Range], episodes: Episodes) -> tuple[list[Output], list[tuple[str, View]]]:
    """Outputs and masks of the ranges; where prefixes nest, a column belongs to the longest."""
    outputs: dict[str, Output] = {}
    masks: list[tuple[str, View]] = []
    for output, column, lo, hi in sorted(ranges, key=lambda r: (-len(r[0]), r)):
        mine = {output + path[len(column) :]: path for path in episodes.columns(column)}
        mine = {name: path for name, path in mine.items() if not (name in outputs and outputs[name][1] == path)}
        aligns = {episodes.aligns[path] for path in mine.values()}
        if "episode" in aligns:
            raise PlanError(f"expected step or boundary columns for the range of {output!r}, got one row an episode")
        end = int(aligns == {"boundary"})  # one mask serves all columns of a range, so they share their end
        new = [(name, path, View(episodes.aligns[path], lo, hi, end=end)) for name, path in mine.items()]
        _check_hidden(new, outputs, episodes)
        outputs.update({name: (name, path, view) for name, path, view in new})
        masks += [(f"{output}_mask", view) for _, _, view in new[:1]]
    return list(outputs.values()), masks


def _check_hidden(new: Iterable[Output], outputs: Mapping[str, Output], episodes: Episodes) -> None:
    for name, path, _ in new:
        taken = outputs[name][1] if name in outputs else name if name in episodes.aligns else path
        if taken != path:
            raise PlanError(f"expected a new name for {path!r}, got {name!r}, which is {taken!r}; choose another")
