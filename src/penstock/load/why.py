"""What is behind a batch: episodes, files and rows, found again from a ticket."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns
from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, StateError
from penstock.formats.base.source import Source
from penstock.load.printed import printed
from penstock.load.shares import shares_of
from penstock.load.skips import Skips
from penstock.load.ticket import Ticket
from penstock.plan.base import View

Int = npt.NDArray[np.int64]

LISTED = 1 << 22  # positions of a ticket that are planned at once
SHOWN = 64  # lines of a table that is printed


@dataclass(frozen=True, eq=False)
class Why:
    """What a ticket names: the stretches of rows of one `view`, one line each, in the order of the batch.

    `table` has the columns `position`, `epoch`, `source` and `episode` (numbers), `first_row` and `rows` (in the row
    space of the view, as the source numbers them), `step` (the first row, counted from the begin of its episode),
    `segment` (which sequence of its pack; 1 elsewhere), `share` (the part of all samples that a mix wants from there; 1
    elsewhere), and `skipped` (whether the loader leaves the position out now). `sources` are the names of the sources,
    `parts` those of the parts of a mix that they belong to. Positions without any real row have no line. `print` shows
    all that says something.
    """

    ticket: Ticket
    view: View
    table: Columns
    sources: tuple[str, ...]
    parts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.table.n

    def __str__(self) -> str:
        return printed(self)

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        title = f"{self.ticket}: positions {self.ticket.position}:{self.ticket.stop}, rows of {self.view.align}"
        table = Table(title=title, title_justify="left")
        shown = [name for name in self.table if name not in self._hidden]
        for name in shown:
            table.add_column(name.replace("_", " "), justify="left" if name == "source" else "right")
        for i in range(min(len(self), SHOWN)):
            table.add_row(*(Text(self._cell(name, i)) for name in shown))
        if len(self) > SHOWN:
            table.caption = f"and {len(self) - SHOWN} more lines"
        return table

    @cached_property
    def _hidden(self) -> set[str]:
        """Columns that say nothing here."""
        plain = {"segment": 1, "share": 1, "skipped": False}
        return {name for name, value in plain.items() if np.all(self.table[name] == value)}

    def _cell(self, name: str, i: int) -> str:
        value = self.table[name][i]
        if name == "source":
            return " ".join(filter(None, [str(value), self.parts[value] if self.parts else "", self.sources[value]]))
        if name == "share":
            return f"{value:.4g}"
        return ("yes" if value else "") if name == "skipped" else str(value)


def why(dataset: MapDataset, ticket: Ticket, skips: Skips, column: str | None = None) -> Why:
    """The rows of a dataset that a ticket names, as told by `Loader.why`. Raises `PlanError` for an unknown column."""
    number = _view(dataset, column)
    view = dataset.plan.views[number]
    positions = _positions(ticket, skips)
    lines = _lines(dataset, dataset.resolve(positions)[number], number)
    sample = lines.pop("sample")
    epoch = dataset.plan.locate(positions)[0]
    table: dict[str, npt.NDArray[Any]] = {"position": positions[sample], "epoch": epoch[sample], **lines}
    shares = shares_of(dataset.plan, positions)
    table["share"] = np.ones(len(sample)) if shares is None else shares.share[sample, lines["source"]]
    table["skipped"] = skips.covers(positions)[sample]
    names = tuple(_name(source) for source in dataset.sources)
    return Why(ticket, view, Columns(table, len(sample)), names, shares.names if shares else ())


def _positions(ticket: Ticket, skips: Skips) -> Int:
    """The positions of a ticket; without those skipped, if they are too many to be listed."""
    if ticket.count <= LISTED:
        return np.arange(ticket.position, ticket.stop)
    lo, hi = skips.kept_before(ticket.position), skips.kept_before(ticket.stop)
    if hi - lo > LISTED:
        raise StateError(
            f"expected a ticket of at most {LISTED} samples to list, got {hi - lo} - in {ticket}; ask for a part of "
            f"them by a ticket such as {Ticket(ticket.position, LISTED, ticket.digest)}"
        )
    return skips.positions(np.arange(lo, hi))


def _view(dataset: MapDataset, column: str | None) -> int:
    """The view of an output, or the one that tells most: of steps rather than boundaries, and the widest of those."""
    reads, views = dataset.plan.reads, dataset.plan.views
    if column is not None:
        found = [read.view for read in reads if read.name == column]
        if not found:
            raise PlanError(f"expected an output among {[read.name for read in reads]}, got {column!r}")
        return found[0]
    rank = {"step": 3, "boundary": 2, "values": 1, "episode": 0}
    return max(range(len(views)), key=lambda v: (rank[views[v].align], len(views[v].steps), -v))


def _lines(dataset: MapDataset, selection: Selection, number: int) -> dict[str, npt.NDArray[Any]]:
    """The real spans of a selection; those whose rows go on in the same sequence of the same sample are one line."""
    if selection.real is not None:
        selection = _real(selection)
    segment = np.ones_like(selection.at) if selection.segment is None else selection.segment
    episode, begin = _owners(dataset, selection, number)
    key = np.stack([selection.at // selection.shape[1], selection.source, episode, segment])
    new = np.ones(len(selection.at), np.bool_)
    ends = selection.start + selection.length
    new[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0) | (ends[:-1] != selection.start[1:])
    first = np.flatnonzero(new)
    rows = np.add.reduceat(selection.length, first) if len(first) else first
    return {
        "sample": key[0, first],
        "source": selection.source[first],
        "episode": episode[first],
        "first_row": selection.start[first],
        "rows": rows,
        "step": (selection.start - begin)[first],
        "segment": segment[first],
    }


def _real(selection: Selection) -> Selection:
    """Without the spans that repeat an edge. A range without any real row keeps none."""
    kept = np.flatnonzero(np.asarray(selection.real))
    segment, position = (None if extra is None else extra[kept] for extra in (selection.segment, selection.position))
    source, start, length, at = (a[kept] for a in (selection.source, selection.start, selection.length, selection.at))
    return Selection(source, start, length, at, selection.shape, None, segment, position)


def _owners(dataset: MapDataset, selection: Selection, number: int) -> tuple[Int, Int]:
    """`[m]` the episode of each span in its source, and `[m]` the first row of that episode."""
    episode, begin = np.zeros_like(selection.at), np.zeros_like(selection.at)
    for source in np.unique(selection.source).tolist():
        mine = selection.source == source
        first = _first_rows(dataset, source, number)
        owner = first.searchsorted(selection.start[mine], side="right") - 1
        episode[mine], begin[mine] = owner, first[owner]
    return episode, begin


def _first_rows(dataset: MapDataset, source: int, number: int) -> Int:
    """`[E + 1]` first row of each episode of a source, in the row space of a view."""
    view, held = dataset.plan.views[number], dataset.sources[source]
    columns = (read.of(source) for read in dataset.plan.reads if read.view == number)
    column = next((name for name in columns if name is not None), view.column)
    if not column:  # a view that only a column which was selected away read
        return held.rows(cast(Align, view.align))
    rows = held.rows(held.spec[column].align)
    return rows if view.align != "values" else held.value_offsets(column)[rows]


def _name(source: Source) -> str:
    """Where a source lies, or what it is."""
    places = (getattr(source, name, None) for name in ("path", "folder"))
    return next((str(place) for place in places if isinstance(place, str | Path)), type(source).__name__)
