"""Iteration over single samples in the original's form: read by position in blocks, shared among workers, resumable."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.boundary import loading_state
from penstock.core.narrowing import is_array, is_dict
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import StateError
from penstock_imitation.il_representations.data.metadata import TRAJECTORY

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    _Iterable = IterableDataset[Any]
else:
    try:
        from torch.utils.data import IterableDataset as _Iterable
    except ImportError:  # no DataLoader can be there either, and datasets are iterated without
        _Iterable = Iterable  # which PyTorch's is too

Sample = dict[str, Any]
State = dict[str, Any]

BLOCK = 1024  # samples that are read at a time, at most,
BLOCK_BYTES = 8 << 20  # and how many bytes of them


@runtime_checkable
class Planned(Protocol):
    """A stage that plans its samples from episodes, so that frames need not pass through it."""

    def planned(self, episodes: EpisodeDataset) -> MapDataset:
        """Return the samples, in order of time."""
        ...

    def pairs_of(self, lengths: IntArray) -> int:
        """Return the number of samples in episodes of these lengths."""
        ...

    def records(self, dataset: MapDataset, positions: IntArray) -> list[Sample]:
        """Return the samples at `[n]` positions, in the original's form."""
        ...


@dataclass(frozen=True)
class Frames:
    """Frames as they are stored, planned in order."""

    def planned(self, episodes: EpisodeDataset) -> MapDataset:
        """Return every step, by a column that has one row for each step."""
        names = ("terminations", "dones")  # at least one exists; the first match is the same in all datasets
        return episodes.steps().select_columns(next(name for name in names if name in episodes.spec))

    def pairs_of(self, lengths: IntArray) -> int:
        """Return the number of steps."""
        return int(lengths.sum())

    def records(self, dataset: MapDataset, positions: IntArray) -> list[Sample]:
        """Return single frames, each with its own arrays and the number of its trajectory."""
        where = planned_samples(dataset).resolve(positions)[dataset.plan.reads[0].view]
        sources: list[Any] = list(dataset.sources)
        frames: list[Sample] = []
        for source, row in zip((sources[s] for s in where.source.tolist()), where.start.tolist(), strict=True):
            frame = {name.split(".", 1)[0]: _owned(value) for name, value in source.sample(row).items()}
            frames.append({**frame, TRAJECTORY: int(np.searchsorted(source.offsets, int(row), "right")) - 1})
        return frames


class Resumable(_Iterable):
    """Samples by epoch. Each `iter()` is one epoch from its beginning, or its rest after `load_state_dict`; the next
    one follows once it was iterated to its end.

    Worker `w` of a `DataLoader`'s `W` yields samples `w`, `w + W`, ..., so that each sample occurs exactly once. Call
    `set_epoch` before each epoch if workers are restarted for every epoch.
    """

    def __init__(self) -> None:
        self._begin = self._at = (0, 0)

    @abstractmethod
    def _samples(self, epoch: int, first: int, step: int) -> Iterator[Any]:
        """Yield samples `first`, `first + step`, ... of an epoch."""

    @abstractmethod
    def _identity(self) -> str:
        """Return the identity of the data, which a state must match."""

    def __iter__(self) -> Iterator[Any]:
        return self.part(*_worker())

    def part(self, worker: int, workers: int) -> Iterator[Any]:
        """Yield worker `worker`'s share of an epoch, out of `workers`."""
        epoch, given = self._begin
        for i, sample in enumerate(self._samples(epoch, given + worker, workers)):
            self._at = (epoch, given + worker + i * workers + 1)
            yield sample
        self._begin = self._at = (epoch + 1, 0)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next `iter()`, which starts at its first sample."""
        self._begin = self._at = (epoch, 0)

    def state_dict(self) -> State:
        """Return the position of the last `iter()`, in the process that iterates."""
        return {"epoch": self._at[0], "given": self._at[1], "of": self._identity()}

    @loading_state
    def load_state_dict(self, state: State) -> None:
        """Start the next `iter()` at the position of a state."""
        if set(state) != {"epoch", "given", "of"} or state["of"] != self._identity():
            raise StateError(f"expected a state of {self._identity()[:16]}..., got {state}; build the dataset alike")
        self._begin = self._at = (int(state["epoch"]), int(state["given"]))


def begins(frame: Sample, before: Sample) -> bool:
    """Return whether a frame starts a trajectory, given the previous frame: after a done, or if the trajectory number
    changes, as at the end of an archive that cut its trajectory off.
    """
    return bool(before.get("dones", False)) or frame.get(TRAJECTORY) != before.get(TRAJECTORY)


def walk(dataset: MapDataset, stage: Planned, epoch: int, first: int, step: int) -> Iterator[Sample]:
    """Yield samples `first`, `first + step`, ... of an epoch of a dataset, read in blocks."""
    begin, end = dataset.plan.start(epoch), dataset.plan.start(epoch + 1)
    size = max(1, min(BLOCK, BLOCK_BYTES // max(planned_samples(dataset).row_bytes(), 1)))
    positions = range(begin + first, end, step)
    for lo in range(0, len(positions), size):
        yield from stage.records(dataset, np.array(positions[lo : lo + size], np.int64))


def _worker() -> tuple[int, int]:
    """Return the index of this `DataLoader` worker and the worker count. In a worker, PyTorch is already loaded."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _owned(value: Any) -> Any:
    """Return the value with writable arrays; arrays in the files are shared."""
    if is_dict(value):
        return {key: _owned(inner) for key, inner in value.items()}
    return value.copy() if is_array(value) else value
