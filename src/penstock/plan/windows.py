"""`Windows`: ranges of consecutive steps as samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, cast

from typing_extensions import override

from penstock.core.frozen import set_fields
from penstock.errors import PlanError
from penstock.plan.anchored import EPISODE, AnchoredPlan, Output, Pad
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import View
from penstock.plan.transform import SampleTransform, require_int

Range = tuple[str, str, int, int]
"""Output prefix, column prefix, and the rows `lo : hi` counted from the anchor."""


@dataclass(frozen=True)
class Windows(SampleTransform):
    """Windows of consecutive steps around an anchor step `t`, as samples `[n, L, ...]`.

    No window crosses the end of an episode.

    A window has the steps `t - past : t - past + length`. Step and boundary columns are read at the same steps. Episode
    columns have one row, `[n, ...]`. Building the plan costs a running sum over episodes, and nothing for each window.

    Args:
        length: Steps of a window, at least 1.
        past: How many of these steps come before the anchor, 0 or more. The default is 0.
        stride: Steps from one anchor to the next, at least 1. The default is 1.
        pad: `"drop"` uses only anchors whose ranges are all inside the episode, starting with the first such step.
            `"zero"` and `"repeat"` use the anchors `0, stride, ...`, and fill steps outside the episode with zeros or
            the nearest row. They add a `mask` `[n, L]` that is True for real steps, and an `<output>_mask` for each
            range in `columns`. The default is `"drop"`.
        columns: Ranges of single columns, or of all columns below a prefix. `(lo, hi)` reads the steps `lo : hi`
            counted from the anchor. `(column, lo, hi)` reads `column` under another name. Boundary columns with a range
            may include the observation after the last step. The default is no such range.

    Raises:
        PlanError: A range is empty, a number is out of range, a column is unknown, or two outputs have one name.

    Example:
        >>> import numpy as np, penstock
        >>> columns = {"observations": np.arange(11), "actions": np.arange(9)}
        >>> data = penstock.from_arrays(columns, lengths=[4, 5])
        >>> data.apply(Windows(3))[:]["actions"].tolist()
        [[0, 1, 2], [1, 2, 3], [4, 5, 6], [5, 6, 7], [6, 7, 8]]

        Two observations back and three actions ahead:

        >>> windows = data.apply(Windows(1, columns={"observations": (-1, 1), "actions": (0, 3)}))
        >>> windows[0]["observations"].tolist(), windows[0]["actions"].tolist()
        ([0, 1], [1, 2, 3])

        Next observations:

        >>> windows = data.apply(Windows(2, columns={"next_observations": ("observations", 1, 3)}))
        >>> windows[0]["next_observations"].tolist()
        [1, 2]
    """

    length: int
    past: int = 0
    stride: int = 1
    pad: Pad = "drop"
    columns: Mapping[str, tuple[int, int] | tuple[str, int, int]] | tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("past", 0), ("stride", 1)):
            require_int(self, name, least)
        if self.pad not in ("drop", "zero", "repeat"):
            raise PlanError(f"expected pad to be 'drop', 'zero' or 'repeat', got {self.pad!r}")
        ranges = self.columns.items() if isinstance(self.columns, Mapping) else ((r[0], r[1:]) for r in self.columns)
        set_fields(self, columns=_ranges(ranges))

    @override
    def plan(self, episodes: Episodes) -> Plan:
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
        return AnchoredPlan(
            episodes, self, default + outputs, masks=masks if padded else (), stride=self.stride, pad=self.pad
        )


def _ranges(columns: Iterable[tuple[str, tuple[Any, ...]]]) -> tuple[Range, ...]:
    """Each entry as `(output, column, lo, hi)`, sorted by output."""
    ranges: list[Range] = []
    for output, entry in columns:
        try:
            column, lo, hi = entry if len(entry) == 3 else (output, *entry)
            ranges.append((output, column, index(lo), index(hi)))
        except (TypeError, ValueError):
            raise PlanError(f"expected (lo, hi) or (column, lo, hi) for {output!r}, got {entry!r}") from None
        if ranges[-1][2] >= ranges[-1][3]:
            raise PlanError(f"expected lo < hi for {output!r}, got {lo}:{hi}, which is empty")
    return tuple(sorted(ranges))


def _own_outputs(ranges: Iterable[Range], episodes: Episodes) -> tuple[list[Output], list[tuple[str, View]]]:
    """Outputs and masks of the ranges. Where prefixes nest, a column belongs to the longest."""
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
