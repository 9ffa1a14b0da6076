"""`Windows`: ranges of consecutive steps as samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from penstock.plan.transform import SampleTransform, earlier_repr, require_int

Range = tuple[str, str, int, int] | tuple[str, str, int, int, int]
"""Output prefix, column prefix, and the rows `lo : hi` or `lo : hi : every` counted from the anchor."""
RangeEntry = tuple[int, int] | tuple[int, int, int] | tuple[str, int, int] | tuple[str, int, int, int]
"""How users write a range: its rows, after another column if there is one."""


@earlier_repr("pad_before", "pad_after", "frame_skip")
@dataclass(frozen=True)
class Windows(SampleTransform):
    """Windows of consecutive steps around an anchor step `t`, as samples `[n, L, ...]`.

    No window crosses the end of an episode.

    A window has the steps `t - past : t - past + length`, or with `frame_skip=k` every `k`-th step around `t`. Step and
    boundary columns are read at the same steps. Episode columns have one row, `[n, ...]`. Building the plan costs a
    running sum over episodes, and nothing for each window.

    Args:
        length: Steps of a window, at least 1.
        past: How many of these steps come before the anchor, 0 or more. The default is 0.
        stride: Steps from one anchor to the next, at least 1. The default is 1.
        pad: `"drop"` uses only anchors whose ranges are all inside the episode, starting with the first such step.
            `"zero"` and `"repeat"` use the anchors `0, stride, ...`, and fill steps outside the episode with zeros or
            the nearest row. They add a `mask` `[n, L]` that is True for real steps, and an `<output>_mask` for each
            range in `columns`. The default is `"drop"`.
        columns: Ranges of single columns, or of all columns below a prefix. `(lo, hi)` reads the steps `lo : hi`
            counted from the anchor, and `(lo, hi, k)` every `k`-th of them. `(column, lo, hi)` and
            `(column, lo, hi, k)` read `column` under another name. Boundary columns with a range may include the
            observation after the last step. The default is no such range.
        pad_before: Most padded rows before the episode. The first sample begins so many steps before it, also if
            its anchor is there. At most the steps of the widest range, less one. The default is None: anchors begin at
            step 0.
        pad_after: Most padded rows after the episode. The default is None: anchors continue to the last step.
        frame_skip: Steps from one row of a window to the next, at least 1, for columns without a range. The default is
            1: every step.

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

        Every second step, with one row of padding at most:

        >>> data.apply(Windows(3, pad="repeat", pad_before=1, pad_after=0, frame_skip=2))[:2]["actions"].tolist()
        [[0, 1, 3], [4, 5, 7]]
    """

    length: int
    past: int = 0
    stride: int = 1
    pad: Pad = "drop"
    columns: Mapping[str, RangeEntry] | tuple[Range, ...] = ()
    pad_before: int | None = None
    pad_after: int | None = None
    frame_skip: int = 1

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("past", 0), ("stride", 1), ("frame_skip", 1)):
            require_int(self, name, least)
        if self.pad not in ("drop", "zero", "repeat"):
            raise PlanError(f"expected pad to be 'drop', 'zero' or 'repeat', got {self.pad!r}")
        for name in ("pad_before", "pad_after"):
            if getattr(self, name) is not None:
                require_int(self, name, 0)
                if self.pad == "drop":
                    raise PlanError(f"expected {name} with pad='zero' or 'repeat', got pad='drop', which pads no row")
        ranges = self.columns.items() if isinstance(self.columns, Mapping) else ((r[0], r[1:]) for r in self.columns)
        set_fields(self, columns=_ranges(ranges))

    @override
    def plan(self, episodes: Episodes) -> Plan:
        skip = self.frame_skip
        lo, hi = -self.past * skip, (self.length - self.past - 1) * skip + 1
        outputs, masks = _own_outputs(cast("tuple[Range, ...]", self.columns), episodes)
        named = {name for name, _, _ in outputs}
        default: list[Output] = [
            (path, path, EPISODE if align == "episode" else View(align, lo, hi, skip))
            for path, align in episodes.aligns.items()
            if path not in named
        ]
        windows = [view for _, _, view in default if view is not EPISODE]
        if windows:
            masks.insert(0, ("mask", windows[0]))
        outputs = default + outputs
        self._check_pads([view for _, _, view in outputs if view is not EPISODE])
        return AnchoredPlan(
            episodes,
            self,
            outputs,
            masks=masks if self.pad != "drop" else (),
            stride=self.stride,
            pad=self.pad,
            pads=(self.pad_before, self.pad_after),
        )

    def _check_pads(self, views: Sequence[View]) -> None:
        """Raise `PlanError` if a sample could be padding alone."""
        width = max((view.steps[-1] for view in views), default=0) - min((view.steps[0] for view in views), default=0)
        for name in ("pad_before", "pad_after"):
            rows = getattr(self, name)
            if rows is not None and rows > width:
                raise PlanError(f"expected {name} of at most {width}, the steps of a window less one, got {rows}")


def _ranges(columns: Iterable[tuple[str, tuple[Any, ...]]]) -> tuple[Range, ...]:
    """Each entry as `(output, column, lo, hi)`, with `every` unless it is 1, sorted by output."""
    ranges: list[Range] = []
    for output, entry in columns:
        try:
            column, lo, hi, every = _entry(output, *entry)
        except (TypeError, ValueError, LookupError):
            raise PlanError(
                f"expected (lo, hi), (lo, hi, every) or a column before them for {output!r}, got {entry!r}"
            ) from None
        if lo >= hi or every < 1:
            raise PlanError(f"expected lo < hi and a step of 1 or more for {output!r}, got {lo}:{hi}:{every}")
        ranges.append((output, column, lo, hi) if every == 1 else (output, column, lo, hi, every))
    return tuple(sorted(ranges))


def _entry(output: str, *entry: Any) -> tuple[str, int, int, int]:
    """Column and rows of an entry."""
    column, *rows = entry if isinstance(entry[0], str) else (output, *entry)
    lo, hi, every = rows if len(rows) == 3 else (*rows, 1)
    return column, index(lo), index(hi), index(every)


def _own_outputs(ranges: Iterable[Range], episodes: Episodes) -> tuple[list[Output], list[tuple[str, View]]]:
    """Outputs and masks of the ranges. Where prefixes nest, a column belongs to the longest."""
    outputs: dict[str, Output] = {}
    masks: list[tuple[str, View]] = []
    for output, *entry in sorted(ranges, key=lambda r: (-len(r[0]), r)):
        column, lo, hi, every = _entry(output, *entry)
        mine = {output + path[len(column) :]: path for path in episodes.columns(column)}
        mine = {name: path for name, path in mine.items() if not (name in outputs and outputs[name][1] == path)}
        aligns = {episodes.aligns[path] for path in mine.values()}
        if "episode" in aligns:
            raise PlanError(f"expected step or boundary columns for the range of {output!r}, got one row an episode")
        end = int(aligns == {"boundary"})  # one mask serves all columns of a range, so they share their end
        new = [(name, path, View(episodes.aligns[path], lo, hi, every, end=end)) for name, path in mine.items()]
        _check_hidden(new, outputs, episodes)
        outputs.update({name: (name, path, view) for name, path, view in new})
        masks += [(f"{output}_mask", view) for _, _, view in new[:1]]
    return list(outputs.values()), masks


def _check_hidden(new: Iterable[Output], outputs: Mapping[str, Output], episodes: Episodes) -> None:
    for name, path, _ in new:
        taken = outputs[name][1] if name in outputs else name if name in episodes.aligns else path
        if taken != path:
            raise PlanError(f"expected a new name for {path!r}, got {name!r}, which is {taken!r}; choose another")
