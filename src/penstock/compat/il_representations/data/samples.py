"""Samples one by one, as the original gives them: read by position in blocks, shared among workers, resumable."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from penstock.compat.il_representations.data.metadata import TRAJECTORY
from penstock.core.arrays import IntArray
from penstock.core.boundary import loading_state
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import StateError

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
    """A stage that says what it makes of episodes as a plan, so that no frame has to pass through it."""

    def planned(self, episodes: EpisodeDataset) -> MapDataset:
        """Its samples, in the order of time."""
        ...

    def pairs_of(self, lengths: IntArray) -> int:
        """How many samples episodes of so many steps have."""
        ...

    def records(self, dataset: MapDataset, positions: IntArray) -> list[Sample]:
        """The samples at `[n]` positions, in the form that the original gives them."""
        ...


@dataclass(frozen=True)
class Frames:
    """Frames as they are stored, which need no plan but that of their order."""

    def planned(self, episodes: EpisodeDataset) -> MapDataset:
        """Every step, by a column that has a row a step."""
        names = ("terminations", "dones")  # of which one is there, and the first alike in all datasets
        return episodes.samples().select(next(name for name in names if name in episodes.spec))

    def pairs_of(self, lengths: IntArray) -> int:
        """As many as there are steps."""
        return int(lengths.sum())

    def records(self, dataset: MapDataset, positions: IntArray) -> list[Sample]:
        """Each by itself, with arrays of its own and the number of its trajectory."""
        where = dataset.resolve(positions)[dataset.plan.reads[0].view]
        sources: list[Any] = list(dataset.sources)
        frames: list[Sample] = []
        for source, row in zip((sources[s] for s in where.source.tolist()), where.start.tolist(), strict=True):
            frame = {name.split(".", 1)[0]: _owned(value) for name, value in source.sample(row).items()}
            frames.append({**frame, TRAJECTORY: int(np.searchsorted(source.offsets, row, "right")) - 1})
        return frames


class Resumable(_Iterable):
    """Samples by epoch. Each `iter()` is one epoch from its beginning, or its rest after `load_state_dict`; the next
    one follows once it was iterated to its end.

    Worker `w` of a `DataLoader`'s `W` gives samples `w`, `w + W`, ..., so that each comes exactly once. Workers that
    are started anew for every epoch need `set_epoch` before it.
    """

    def __init__(self) -> None:
        self._begin = self._at = (0, 0)

    @abstractmethod
    def _samples(self, epoch: int, first: int, step: int) -> Iterator[Any]:
        """Samples `first`, `first + step`, ... of an epoch."""

    @abstractmethod
    def _identity(self) -> str:
        """What a state has to have been taken of."""

    def __iter__(self) -> Iterator[Any]:
        return self.part(*_worker())

    def part(self, worker: int, workers: int) -> Iterator[Any]:
        """What one of so many workers gives of an epoch."""
        epoch, given = self._begin
        for i, sample in enumerate(self._samples(epoch, given + worker, workers)):
            self._at = (epoch, given + worker + i * workers + 1)
            yield sample
        self._begin = self._at = (epoch + 1, 0)

    def set_epoch(self, epoch: int) -> None:
        """Begin the next `iter()` with an epoch."""
        self._begin = self._at = (epoch, 0)

    def state_dict(self) -> State:
        """Where the last `iter()` stands, in the process that iterates."""
        return {"epoch": self._at[0], "given": self._at[1], "of": self._identity()}

    @loading_state
    def load_state_dict(self, state: State) -> None:
        """Begin the next `iter()` where a state was taken. Raises `StateError` for one of other data."""
        if set(state) != {"epoch", "given", "of"} or state["of"] != self._identity():
            raise StateError(f"expected a state of {self._identity()[:16]}..., got {state}; build the dataset alike")
        self._begin = self._at = (int(state["epoch"]), int(state["given"]))


def begins(frame: Sample, before: Sample) -> bool:
    """Whether a frame begins a trajectory, after the one before it: behind a done, and where the number of the
    trajectory is another, as at the end of an archive that cut its trajectory off.

    >>> begins({"dones": False, TRAJECTORY: 1}, {"dones": False, TRAJECTORY: 0})
    True
    """
    return bool(before.get("dones", False)) or frame.get(TRAJECTORY) != before.get(TRAJECTORY)


def walk(dataset: MapDataset, stage: Planned, epoch: int, first: int, step: int) -> Iterator[Sample]:
    """Samples `first`, `first + step`, ... of an epoch of a dataset, read in blocks."""
    begin, end = dataset.plan.start(epoch), dataset.plan.start(epoch + 1)
    size = max(1, min(BLOCK, BLOCK_BYTES // max(dataset.row_bytes(), 1)))
    positions = range(begin + first, end, step)
    for lo in range(0, len(positions), size):
        yield from stage.records(dataset, np.array(positions[lo : lo + size], np.int64))


def _worker() -> tuple[int, int]:
    """Number and count of the `DataLoader`'s worker that this process is; PyTorch is loaded wherever there is one."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _owned(value: Any) -> Any:
    """The value with arrays that can be written to; those in the files are shared."""
    if isinstance(value, dict):
        return {key: _owned(inner) for key, inner in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value
