"""Rows of planned samples: source, episode and steps of each range of rows, without reading a value.

Batch tickets (`Loader.why`) and pictures of plans (`PlanPicture`) are made of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_integer
from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import ArgumentError, PlanError
from penstock.formats.base.source import Source


def view_of(samples: PlannedSamples, column: str | None = None) -> int:
    """Return the number of the view whose rows say where samples come from."""
    reads, views = samples.plan.reads, samples.plan.views
    if column is not None:
        numbers = [read.view for read in reads if read.name == column]
        if not numbers:
            raise PlanError(f"expected an output among {[read.name for read in reads]}, got {column!r}")
        return numbers[0]
    rank = {"step": 3, "boundary": 2, "values": 1, "episode": 0}
    return max(range(len(views)), key=lambda v: (rank[views[v].align], len(views[v].steps), -v))


def planned_rows(samples: PlannedSamples, selection: Selection, number: int) -> dict[str, IntArray]:
    """Return the real rows of a selection, one line for each range of consecutive rows of one sequence of
    one sample.
    """
    if selection.real is not None:
        selection = _real(selection)
    segment = np.ones_like(selection.destination) if selection.segment is None else selection.segment
    episode, begin = _owners(samples, selection, number)
    key = np.stack([selection.destination // selection.shape[1], selection.source, episode, segment])
    new = np.ones(len(selection.destination), np.bool_)
    ends = selection.start + selection.length
    new[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0) | (ends[:-1] != selection.start[1:])
    first = np.flatnonzero(new)
    rows = np.add.reduceat(selection.length, first) if len(first) else first
    return {
        "sample": key[0, first],
        "place": (selection.destination % selection.shape[1])[first],
        "source": selection.source[first],
        "episode": episode[first],
        "first_row": selection.start[first],
        "rows": rows,
        "step": (selection.start - begin)[first],
        "segment": segment[first],
    }


def _real(selection: Selection) -> Selection:
    """The selection without spans that repeat an edge. A range without any real row keeps none."""
    kept = np.flatnonzero(np.asarray(selection.real))
    segment, position = (None if extra is None else extra[kept] for extra in (selection.segment, selection.position))
    source, start, length, destination = (
        a[kept] for a in (selection.source, selection.start, selection.length, selection.destination)
    )
    return Selection(source, start, length, destination, selection.shape, None, segment, position)


def _owners(samples: PlannedSamples, selection: Selection, number: int) -> tuple[IntArray, IntArray]:
    """`[m]` the episode of each span in its source, and `[m]` the first row of that episode."""
    episode, begin = np.zeros_like(selection.destination), np.zeros_like(selection.destination)
    for source in np.unique(selection.source).tolist():
        mine = selection.source == source
        first = first_rows(samples, source, number)
        owner = first.searchsorted(selection.start[mine], side="right") - 1
        episode[mine], begin[mine] = owner, first[owner]
    return episode, begin


def first_rows(samples: PlannedSamples, source: int, number: int) -> IntArray:
    """Return the first row of each episode of a source in the row space of a view, and the end, `[E + 1]`."""
    view, data_source = samples.plan.views[number], samples.sources[source]
    columns = (read.of(source) for read in samples.plan.reads if read.view == number)
    column = next((name for name in columns if name is not None), view.column)
    if not column:  # a view that only a column which was selected away read
        return data_source.rows(cast(Align, view.align))
    rows = data_source.rows(data_source.spec[column].align)
    return rows if view.align != "values" else data_source.value_offsets(column)[rows]


def asked_episodes(samples: PlannedSamples, episodes: int | Sequence[int], source: int | None) -> tuple[int, IntArray]:
    """Return the number of a source and the numbers of episodes in it, ascending, each once."""
    sources = len(samples.sources)
    if source is None and sources > 1:
        names = [source_name(each) for each in samples.sources]
        raise PlanError(f"expected the number of the source of the episodes, got None for {names}; give source=")
    number = source or 0
    if not 0 <= number < sources:
        raise PlanError(f"expected a source within 0:{sources}, got {number}")
    given = [episodes] if is_integer(episodes) else list(episodes)
    if not all(is_integer(each) and not isinstance(each, bool) for each in given):
        raise ArgumentError(f"expected episodes as a number or a list of numbers, got {episodes!r}")
    wanted = np.unique(np.array(given, np.int64))
    many = len(samples.sources[number])
    if len(wanted) and not (wanted[0] >= 0 and wanted[-1] < many):
        wrong = int(wanted[-1] if wanted[-1] >= many else wanted[0])
        raise PlanError(f"expected episodes from 0 to {many - 1} of source {number}, got {wrong}")
    return number, wanted


def source_name(source: Source) -> str:
    """Return the path of a source, or its type."""
    places = (getattr(source, name, None) for name in ("location", "path", "folder"))
    return next((str(place) for place in places if isinstance(place, str | Path)), type(source).__name__)
