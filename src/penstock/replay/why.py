"""Episodes, rows and probabilities of the samples of a draw, for `Replay.why` and `Loader.why`."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.core.ragged import offsets_of
from penstock.errors import PlanError, StateError
from penstock.kernels.replay import MASK
from penstock.loading.skips import Skips
from penstock.loading.ticket import Ticket
from penstock.loading.why import Why, why_at
from penstock.plan.outputs import View
from penstock.replay.contents import ReplayContents
from penstock.replay.draw import Draw
from penstock.replay.folder import ReplayFolder
from penstock.replay.offline import OfflineSamples, split_at
from penstock.replay.samples import SampleLayout, SampleOutput

Lines = dict[str, AnyArray]
MEMORY = "episodes in memory"
OFFLINE = "offline"


def why_drawn(
    contents: ReplayContents, folder: ReplayFolder | None, draw: Draw, ticket: Ticket, column: str | None
) -> Why:
    """Return the rows of a draw, a line for each sample."""
    offline, own = contents.offline, split_at(draw.anchors)
    if offline is None or own == len(draw.anchors):
        return _own_lines(contents, folder, draw, ticket, column)
    other = _offline_lines(offline, contents, draw, ticket, column)
    if own == 0:
        return other
    online = _own_lines(contents, folder, draw.first(own), ticket, column)
    return with_offline(online, other, None if offline.share is None else float(offline.share))


def _own_lines(
    contents: ReplayContents, folder: ReplayFolder | None, draw: Draw, ticket: Ticket, column: str | None
) -> Why:
    """The rows of samples of the replay."""
    if contents.reader is None:
        raise StateError(f"expected the ticket of a batch of this replay, got {ticket} before any episode has arrived")
    layout = contents.reader.layout
    output = _output(layout, column)
    places = contents.places(draw.anchors)
    if folder is not None and (places["episode"] < 0).any():
        places = _places_in(folder, contents, layout, draw.anchors)
    n = len(draw.anchors)
    lines: Lines = {
        "position": draw.number + np.arange(n),
        "epoch": np.zeros(n, np.int64),
        "source": np.zeros(n, np.int64),
        "episode": places["episode"],
        **_rows(output, places, layout.longest is not None, contents.share.count),
        "segment": np.ones(n, np.int64),
        "share": np.ones(n),
        "skipped": np.zeros(n, np.bool_),
        "anchor": draw.anchors,
        **contents.drawing.chances(draw),
    }
    if draw.weights is not None:
        lines["weight"] = draw.weights
    name = MEMORY if folder is None else str(folder.path)
    view = View(output.align, output.lo, output.hi, output.every, output.end)
    return Why(ticket, view, Columns(lines, n), (name,))


def _offline_lines(
    offline: OfflineSamples, contents: ReplayContents, draw: Draw, ticket: Ticket, column: str | None
) -> Why:
    """The rows of the offline samples of a draw, which come last."""
    own = split_at(draw.anchors)
    samples = offline.rows.samples
    positions = draw.anchors[own:] + len(samples)
    lines = why_at(samples, ticket, positions, Skips(), column)
    known: Lines = {"anchor": draw.anchors, **contents.drawing.chances(draw)}
    if draw.weights is not None:
        known["weight"] = draw.weights
    order = np.argsort(positions)  # a sample that was drawn twice has equal values
    place = own + order[np.searchsorted(positions, lines.table["position"], sorter=order)]
    table = Columns({**lines.table, **{name: values[place] for name, values in known.items()}}, lines.table.n)
    return Why(ticket, lines.view, table, lines.sources, lines.parts)


def with_offline(online: Why, other: Why, share: float | None) -> Why:
    """Return the rows of a batch that has samples of a replay and of a dataset after them."""
    tables: list[Columns] = [online.table, other.table]
    names = dict.fromkeys(name for table in tables for name in table)
    lines: Lines = {}
    for name in names:
        parts = [table[name] if name in table else np.full(table.n, _MISSING.get(name, np.nan)) for table in tables]
        lines[name] = np.concatenate(parts)
    own = online.table.n
    lines["source"][own:] += 1
    if share is not None:
        lines["share"][:own] = share
        lines["share"][own:] *= 1 - share
    sources = (*online.sources, *other.sources)
    parts_of = ("replay", *(other.parts or [OFFLINE] * len(other.sources)))
    return Why(online.ticket, online.view, Columns(lines, own + other.table.n), sources, parts_of)


_MISSING: dict[str, Any] = {"anchor": -1, "weight": 1.0}


def _output(layout: SampleLayout, column: str | None) -> SampleOutput:
    """The output of a name, or by default the widest range, of steps rather than boundaries."""
    outputs = [output for output in layout.outputs if output.pad != MASK]
    if column is not None:
        matches = [output for output in outputs if output.name == column]
        if not matches:
            raise PlanError(f"expected an output among {[output.name for output in outputs]}, got {column!r}")
        return matches[0]
    rank = {"step": 2, "boundary": 1, "episode": 0}
    return max(outputs, key=lambda output: (rank[output.align], output.rows))


def _places_in(folder: ReplayFolder, contents: ReplayContents, layout: SampleLayout, anchors: IntArray) -> Lines:
    """`episode`, `step`, `row` and `steps` of samples, from the lengths of all episodes in the table of the folder."""
    share = contents.share
    lengths = folder.lengths()[share.index :: share.count]
    rule = layout.anchors
    first = offsets_of(rule.count(lengths))
    own = np.searchsorted(first, anchors, side="right") - 1
    step = rule.first + (anchors - first[own]) * rule.stride
    places = {"episode": own * share.count + share.index, "step": step, "row": offsets_of(lengths)[own] + step}
    return {**places, "steps": lengths[own]}


def _rows(output: SampleOutput, places: Lines, whole: bool, count: int) -> Lines:
    """First row, number of rows and first step of the real rows of each sample."""
    here = places["episode"] >= 0
    if output.align == "episode":
        one = np.where(here, 1, 0)
        return {"first_row": places["episode"], "rows": one, "step": np.where(here, 0, -1)}
    end = places["steps"] + output.end
    begin = places["step"] + output.lo
    stop = end if whole else places["step"] + output.hi
    if output.shift:
        begin = begin - np.maximum(stop - end, 0)
    first, last = np.maximum(begin, 0), np.minimum(stop, end)
    start = places["row"] - places["step"]  # of the episode, among the steps of this learner
    if output.align == "boundary":
        start = start + places["episode"] // count
    rows = np.maximum(-(-(last - first) // output.every), 0)
    return {
        "first_row": np.where(here, start + first, -1),
        "rows": np.where(here, rows, 0),
        "step": np.where(here, first, -1),
    }
