"""`Uses`: the batches that had an episode, and later ones that will. The inverse of a ticket.

Nothing is logged. The plan finds the positions of an episode by arithmetic (`Plan.uses`), and the edges of batches
follow from the batch size, the skipped ranges and the position of the loader. So positions are exact for any run of
this plan. Tickets of batches before a state was loaded assume the batch size and ranks of this loader.

Batches of an epoch are cut from its start, and around the position of the loader, where a resumed loader began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.core.text import counted
from penstock.data.planned_rows import asked_episodes, source_name
from penstock.errors import PlanError, StateError
from penstock.loading.position_source import PositionSource
from penstock.loading.skips import Skips
from penstock.loading.ticket import Ticket
from penstock.loading.why import printed
from penstock.plan.batched import BatchedPlan

SHOWN = 64  # lines of a table that is printed


@dataclass(frozen=True, eq=False)
class Uses:
    """Result of `Loader.uses`: one line for each sample, in the order of the run. `print` shows it as a table.

    Args:
        source: Number of the source of the episodes.
        episodes: Numbers of the episodes in their source.
        position: Position of the loader: samples before it were given.
        until: Position after the last one that was looked at.
        table: Columns `mix` (0, or the number of the mix in a run whose mix was changed), `position`, `original`
            (position that the sample had before `without`), `epoch`, `batch` (number in its epoch, -1 if no batch has
            the sample), `row` (in the batch of all ranks), `rank` (that has the row), `given` (whether the batch was
            given), and `skipped` (whether the loader skips the position now; whether it was given before is not known).
        tickets: Ticket of each line: of the rows of that rank, or with a sharding of all ranks. None if no batch has
            the sample.
        name: Name of the source.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
        >>> loader = data.steps().shuffle(seed=0).loader(batch_size=2)
        >>> first = next(iter(loader))
        >>> uses = loader.uses(1)
        >>> len(uses), uses.table["given"].tolist().count(True) == int((first["rewards"] > 1).sum())
        (3, True)
    """

    source: int
    episodes: tuple[int, ...]
    position: int
    until: int
    table: Columns
    tickets: tuple[Ticket | None, ...]
    name: str

    def __len__(self) -> int:
        return self.table.n

    @property
    def sentence(self) -> str:
        """The numbers of samples and batches in words."""
        given = np.asarray(self.table["given"])
        coming = ~given & (np.asarray(self.table["batch"]) >= 0)
        past, future = (f"{counted(int(w.sum()), 'sample')} in {self._batches(w)}" for w in (given, coming))
        which = f"episode{'s' * (len(self.episodes) != 1)} {', '.join(map(str, self.episodes[:8]))}"
        more = "" if len(self.episodes) <= 8 else f" and {len(self.episodes) - 8} more"
        return f"{which}{more} of {self.name}: {past} given, {future} to come before position {self.until:,}"

    def _batches(self, wanted: Any) -> str:
        keys = np.stack([np.asarray(self.table[name])[wanted] for name in ("mix", "epoch", "batch")])
        many = len(np.unique(keys, axis=1).T)
        return "1 batch" if many == 1 else f"{many:,} batches"

    @cached_property
    def _shown(self) -> list[str]:
        """Columns with information for this table."""
        plain = {"mix": 0, "rank": 0, "skipped": False, "original": self.table["position"]}
        return [name for name in self.table if name not in plain or np.any(self.table[name] != plain[name])]

    def __str__(self) -> str:
        return printed(self)

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title=self.sentence, title_justify="left")
        for name in self._shown:
            table.add_column(name, justify="right")
        table.add_column("ticket", overflow="fold")
        for i in range(min(len(self), SHOWN)):
            values = (self.table[name][i] for name in self._shown)
            cells = [("yes" if v else "") if isinstance(v, np.bool_) else str(v) for v in values]
            table.add_row(*cells, str(self.tickets[i] or ""))
        if len(self) > SHOWN:
            table.caption = f"and {len(self) - SHOWN} more lines"
        return table


def uses(
    feed: PositionSource,
    position: int,
    episodes: int | Sequence[int],
    source: int | None,
    since: int | None,
    until: int | None,
) -> Uses:
    """Return the uses of episodes in the run of a source, which is at a position."""
    number, wanted = asked_episodes(feed.dataset, episodes, source)
    plan = feed.dataset.plan
    end = _end(feed, position) if until is None else until
    if end < 0 or (since is not None and not 0 <= since <= end):
        raise PlanError(f"expected positions 0 <= since <= until, got {since} and {end}")
    parts = [_found_before(feed, mix, number, wanted) for mix in range(len(feed.seams) if since is None else 0)]
    mine = plan.uses(number, wanted, since or 0, end) if end else wanted[:0]
    parts.append(_lines(feed, position, mine, len(feed.seams)))
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    tickets = tuple(ticket for part in parts for ticket in part.tickets)
    names = source_name(feed.dataset.sources[number])
    return Uses(number, tuple(wanted.tolist()), position, end, Columns(columns, len(tickets)), tickets, names)


class _Lines(NamedTuple):
    """Columns of the table, and the ticket of each line."""

    columns: dict[str, Any]
    tickets: list[Ticket | None]


class _BatchEdges(NamedTuple):
    """Of samples `[n]`: number of the batch in its epoch, and its first sample and the end, as kept numbers."""

    number: IntArray
    first: IntArray
    last: IntArray


def _end(feed: PositionSource, position: int) -> int:
    """The end of the epoch of a position; the position itself in an epoch without end."""
    plan = feed.dataset.plan
    if plan.empty or feed.endless:
        return position
    return plan.start(int(plan.locate(np.array([position]))[0][0]) + 1)


def _found_before(feed: PositionSource, mix: int, number: int, episodes: IntArray) -> _Lines:
    """The uses in an earlier mix of the run."""
    seam = feed.seams[mix]
    earlier = seam.dataset(feed.dataset)
    if earlier is None:
        raise StateError(
            f"expected the parts of the mix that the run had before, got others for mix {mix}; give since=0 for the "
            "present mix alone"
        )
    now = feed.dataset.sources[number]
    there = next((i for i, each in enumerate(earlier.sources) if each is now), None)
    mine = episodes[:0] if there is None else earlier.plan.uses(there, episodes, 0, seam.position)
    return _lines(replace(feed, dataset=earlier, skips=Skips()), seam.position, mine, mix)


def _lines(feed: PositionSource, position: int, mine: IntArray, mix: int) -> _Lines:
    """Batch, row, rank and ticket of samples."""
    skips, plan = feed.skips, feed.dataset.plan
    ranks = feed.ranks
    epoch = plan.locate(mine)[0] if len(mine) else mine
    skipped = skips.covers(mine)
    kept = np.array([skips.kept_before(k) for k in mine.tolist()], np.int64) if len(skips) else mine
    batch = np.full(len(mine), -1)
    first, last = np.zeros_like(mine), np.ones_like(mine)
    for e in np.unique(epoch).tolist():
        of = np.flatnonzero((epoch == e) & ~skipped)
        batch[of], first[of], last[of] = _batches(feed, position, e, kept[of])
    samples, row = last - first, kept - first
    part = ((row + 1) * ranks.parts - 1) // samples
    begin, end = first + part * samples // ranks.parts, first + (part + 1) * samples // ranks.parts
    if ranks.mesh is not None:
        begin, end = first, last
        part = np.take(ranks.mesh.holders, part, mode="clip")  # of samples without a batch: left out below
    tickets: list[Ticket | None] = [
        Ticket(lo := skips.position(a), skips.position(b - 1) + 1 - lo, feed.digest) if number >= 0 else None
        for number, a, b in zip(batch.tolist(), begin.tolist(), end.tolist(), strict=True)
    ]
    columns = {
        "mix": np.full(len(mine), mix),
        "position": mine,
        "original": plan.originals(mine),
        "epoch": epoch,
        "batch": batch,
        "row": np.where(batch >= 0, row, -1),
        "rank": np.where(batch >= 0, part, -1),
        "given": (mine < position) & (batch >= 0),
        "skipped": skipped,
    }
    return _Lines(columns, tickets)


def _batches(feed: PositionSource, position: int, epoch: int, kept: IntArray) -> _BatchEdges:
    """The batches of samples of one epoch; the number is -1 for samples that `drop_last` leaves out."""
    plan, skips = feed.dataset.plan, feed.skips
    size = feed.batch_size
    start, stop = plan.start(epoch), plan.start(epoch + 1) if not feed.endless else position
    lo, hi = skips.kept_before(start), skips.kept_before(stop)
    now = skips.kept_before(position) if start < position < stop or feed.endless else lo
    if size is None:
        assert isinstance(plan, BatchedPlan)  # else the source has a batch size
        edges = np.unique([*(skips.kept_before(edge) for edge in plan.edges(start, stop).tolist()), now])
        number = edges.searchsorted(kept, side="right") - 1
        return _BatchEdges(number, edges[number], edges[number + 1])
    before = -(-(now - lo) // size)  # batches of the epoch that were given
    step = (kept - now) // size
    first = np.maximum(now + step * size, lo)
    number, last = before + step, now + (step + 1) * size
    if feed.endless:
        return _BatchEdges(number, first, last)
    if feed.drop_last:
        number[kept >= hi - (hi - now) % size] = -1
    return _BatchEdges(number, first, np.minimum(last, hi))
