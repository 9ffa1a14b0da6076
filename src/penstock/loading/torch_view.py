"""Views of a loader for trainers that look for a sampler, or accept nothing but a `DataLoader` of PyTorch.

A `Loader` has the share of its rank already. Trainers that split a global order themselves get a `DataLoader` of
samples instead, which nothing has split: its sampler yields positions in the order of the dataset, of any epoch,
and its dataset reads the samples at any positions in one call. So the trainer may split, repeat, drop or skip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.boundary import loading_state
from penstock.errors import PlanError, StateError, require
from penstock.flow.limits import PrefetchLimits
from penstock.loading.batch_source import State
from penstock.loading.cursor import Cursor, CursorPlace, saved
from penstock.loading.layout import Layout
from penstock.loading.output import as_it_is
from penstock.loading.position_source import EpochSlice, PositionSource
from penstock.loading.readahead import ReadAhead
from penstock.loading.ticket import Batch, Ticket

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")

BLOCK = 1024  # positions that a sampler computes at once


class PositionSampler(torch.utils.data.Sampler[int]):
    """The positions of one epoch for each `iter()`, without skipped ones, in the order of the dataset."""

    def __init__(self, cursor: Cursor, fingerprint: str) -> None:
        self._cursor = cursor
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        source, state = self._cursor.current()
        return _planned(source).epoch_samples(state)

    def __iter__(self) -> PositionIterator:
        return PositionIterator(self._cursor, self._fingerprint)

    def set_epoch(self, epoch: int) -> None:
        """Begin the next `iter()` at the start of an epoch."""
        self._cursor.set_epoch(epoch)


class PositionDataset(torch.utils.data.Dataset[Any]):
    """Map-style dataset of samples by position, which counts on through all epochs. A batch is read in one call.

    Without worker processes, threads read ahead.
    """

    def __init__(
        self,
        source: PositionSource,
        limits: PrefetchLimits,
        hand_over: Callable[[Batch], Any],
        sampler: PositionSampler,
    ) -> None:
        self._source = source
        self._ahead = ReadAhead(source, limits)
        self._hand_over = hand_over
        self.set_epoch = sampler.set_epoch  # Accelerate sets epochs here where it finds no sampler, after skipping

    def __len__(self) -> int:
        return len(self._source.dataset)

    def __getitem__(self, position: int) -> dict[str, Any]:
        return self._source.dataset.at(np.array([position])).row(0)

    def __getitems__(self, positions: Sequence[int]) -> Any:
        numbers = np.asarray(positions, np.int64)
        in_worker = torch.utils.data.get_worker_info() is not None  # its batches are asked for ahead already
        rows = self._source.dataset.at(numbers) if in_worker else self._ahead.batch(numbers)
        return self._hand_over(Batch.of(rows, self._ticket(numbers)))

    def _ticket(self, positions: IntArray) -> Ticket | None:
        """The ticket of positions that follow one another. A batch that wraps around has none."""
        count = len(positions)
        if not count or np.any(np.diff(positions) != 1):
            return None
        return Ticket(int(positions[0]), count, self._source.digest)


class PositionIterator(Iterator[int]):
    """Iterator over the positions of one epoch, which its first `next` begins. Its state is a `Loader` state."""

    def __init__(self, cursor: Cursor, fingerprint: str) -> None:
        self._cursor = cursor
        self._fingerprint = fingerprint  # of the dataset that reads the positions
        self._ready: deque[int] = deque()
        self._place: CursorPlace | None = None  # where the epoch began; None: not begun
        self._rest = EpochSlice(0, 0, 0, 0)  # not ready yet

    def __next__(self) -> int:
        if not self._ready:
            self._refill()
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def _refill(self) -> None:
        if self._place is None:
            self._place = self._begun()
        rest = self._rest
        hi = min(rest.lo + BLOCK, rest.hi)
        if rest.lo < hi:
            source = _planned(self._place.source)
            self._ready.extend(source.skips.positions(np.arange(rest.lo, hi)).tolist())
            self._rest = replace(rest, lo=hi)
            self._cursor.move(self._place, {"position": self._following(source)})

    def _begun(self) -> CursorPlace:
        """Begin an epoch of the dataset."""
        place = self._cursor.place()
        source, position = _planned(place.source), int(place.state["position"])
        if source.fingerprint != self._fingerprint:
            raise StateError(
                "expected a state of the data that this DataLoader reads, got one of data that have grown, or of a "
                "mix that has changed; load it into the loader before data_loader(), with grown='next_epoch' if the "
                "data have grown"
            )
        self._rest = source.epoch_slice(position) or EpochSlice(0, 0, 0, position)
        return place

    def _following(self, source: PositionSource) -> int:
        return source.skips.position(self._rest.lo) if self._rest.lo < self._rest.hi else self._rest.after

    def state_dict(self) -> State:
        """Return the state of a `Loader` at the next position."""
        if self._place is None:
            return self._cursor.saved()
        source = _planned(self._place.source)
        return saved(source, {"position": self._ready[0] if self._ready else self._following(source)})

    @loading_state
    def load_state_dict(self, state: State) -> None:
        self._cursor.load(state, "refuse")
        self._place = None
        self._ready.clear()


class LoaderOrder(torch.utils.data.SequentialSampler):
    """What trainers find as the sampler of a loader: it passes `set_epoch` on, and has no numbers to give.

    It is a `SequentialSampler` for trainers that ask whether the sampler shuffles: the dataset does.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def __len__(self) -> int:
        source, state = self._cursor.current()
        return _planned(source).epoch_samples(state)

    def __iter__(self) -> NoReturn:
        raise PlanError(
            "expected a loop over the loader, which has read the samples of this rank, got a loop over its sampler, as "
            "of a function that makes another DataLoader, such as accelerate.skip_first_batches; give the trainer "
            "loader.data_loader(), or continue with loader.load_state_dict(state)"
        )

    def set_epoch(self, epoch: int) -> None:
        """Begin the next loop at the start of an epoch."""
        self._cursor.set_epoch(epoch)


def batch_sampler(cursor: Cursor, batch_size: int | None, drop_last: bool) -> torch.utils.data.BatchSampler | None:
    """Return the batch sampler that trainers find at a loader, or None if batches have no fixed size."""
    return None if batch_size is None else torch.utils.data.BatchSampler(LoaderOrder(cursor), batch_size, drop_last)


def data_loader(
    cursor: Cursor,
    limits: PrefetchLimits,
    hand_over: Callable[[Batch], Any],
    kind: type[torch.utils.data.DataLoader[Any]] | None,
    options: Any,
) -> torch.utils.data.DataLoader[Any]:
    """Return a `DataLoader` of PyTorch of the batches of a loader, with the place of its cursor."""
    if hand_over is as_it_is or isinstance(hand_over, Layout):
        raise PlanError('expected a loader with output="torch" for a DataLoader, got one of NumPy arrays; give it that')
    source = cursor.current()[0]
    if not isinstance(source, PositionSource) or source.batch_size is None:
        raise PlanError(
            "expected a loader of a MapDataset with a batch_size, for a DataLoader takes samples by number, got one "
            "whose batches are made in turn; use the loader itself"
        )
    if source.ranks.world > 1:
        raise PlanError(
            f"expected a loader of all samples, for the trainer splits a DataLoader itself, got the share of rank "
            f"{source.ranks.rank} of {source.ranks.world}; give the loader rank=0, world=1, or use it without "
            "data_loader()"
        )
    device: torch.device | None = getattr(hand_over, "device", None)
    if device is not None and device.type != "cpu" and options.get("num_workers"):
        raise PlanError(
            f"expected a loader without a device for worker processes, which cannot use one, got {device}; leave "
            "device out, and let the trainer copy the batches"
        )
    sampler = PositionSampler(cursor, source.fingerprint)
    return (kind or torch.utils.data.DataLoader)(
        PositionDataset(source, limits, hand_over, sampler),
        batch_size=source.batch_size,
        sampler=sampler,
        drop_last=source.drop_last,
        collate_fn=_as_read,
        **options,
    )


def _as_read(batch: Any) -> Any:
    """The output of `__getitems__`: there is nothing to collate."""
    return batch


def _planned(source: object) -> PositionSource:
    if not isinstance(source, PositionSource):
        raise TypeError("an IterDataset or a live pipeline has no length; count its batches as they come")
    return source
