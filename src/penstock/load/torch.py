"""Batches as PyTorch tensors: a loader with device copies, and datasets for PyTorch's own loaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.columns import Columns, nest
from penstock.core.ragged import Array, Ragged
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, StateError, require
from penstock.load.feed import PositionFeed, State
from penstock.load.loader import Loader

if TYPE_CHECKING:
    import torch
    from torch.utils.data import IterableDataset

    _Iterable = IterableDataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Iterable = torch.utils.data.IterableDataset


def to_torch(columns: Columns, device: str | torch.device | None = None, *, pin: bool = False) -> dict[str, Any]:
    """A batch as nested dicts of tensors, sharing memory with the arrays where no device is named.

    A `Ragged` column becomes `{"values": ..., "offsets": ...}`. With `pin` the tensors are copied to page-locked memory
    first, so that the copy to `device` overlaps with other work; it then returns before the copy has ended, in the
    order of the current stream, as `torch.Tensor.to(non_blocking=True)` does.

    Raises `RuntimeError` where the device or page-locked memory is not there.

    >>> to_torch(Columns({"observations": {"x": np.zeros((2, 3), "f4")}}))["observations"]["x"].shape
    torch.Size([2, 3])
    """
    return nest({path: _tensors(array, device, pin) for path, array in columns.flat.items()})


def _tensors(array: Array, device: str | torch.device | None, pin: bool) -> Any:
    if isinstance(array, Ragged):
        return {"values": _tensor(array.values, device, pin), "offsets": _tensor(array.offsets, device, pin)}
    return _tensor(array, device, pin)


def _tensor(array: np.ndarray[Any, Any], device: str | torch.device | None, pin: bool) -> torch.Tensor:
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if pin:
        tensor = tensor.pin_memory()
    return tensor if device is None else tensor.to(device, non_blocking=pin)


class TorchLoader:
    """A `Loader` whose batches are nested dicts of tensors on a device, copied one batch ahead of the consumer.

    `pin` defaults to True exactly when `device` is a CUDA device. The state is the loader's: that of the batch that
    the consumer has, not of the one under way.

    >>> import penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
    >>> [batch["rewards"].sum().item() for batch in TorchLoader(Loader(data.samples(), batch_size=3))]
    [3.0, 12.0]
    """

    def __init__(self, loader: Loader, device: str | torch.device | None = None, *, pin: bool | None = None) -> None:
        self.loader = loader
        self.device = None if device is None else torch.device(device)
        self.pin = (self.device is not None and self.device.type == "cuda") if pin is None else pin
        self._state = loader.state_dict()

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.loader.load_state_dict(self._state)
        ahead: tuple[dict[str, Any], State] | None = None
        for batch in self.loader:
            current = (to_torch(batch, self.device, pin=self.pin), self.loader.state_dict())
            if ahead is not None:
                tensors, self._state = ahead
                yield tensors
            ahead = current
        if ahead is not None:
            tensors, self._state = ahead
            yield tensors
        self._state = self.loader.state_dict()

    def state_dict(self) -> State:
        """Where the consumer stands, as `Loader.state_dict`."""
        return dict(self._state)

    def load_state_dict(self, state: State) -> None:
        """Continue there at the next `iter()`. Raises `StateError` as `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)
        self._state = dict(state)


class TorchDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """A map-style dataset whose item is a whole batch: `DataLoader(TorchDataset(ds, 256), batch_size=None)`.

    Item `b` holds samples `b * batch_size` on of one epoch. A `sampler` of PyTorch may reorder batches; the order of
    samples is the dataset's own `shuffle`. `epoch` chooses whose order it is.

    >>> import penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
    >>> batches = torch.utils.data.DataLoader(TorchDataset(data.samples(), 4), batch_size=None)
    >>> [batch["rewards"].tolist() for batch in batches]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, dataset: MapDataset, batch_size: int, *, drop_last: bool = False, epoch: int = 0) -> None:
        if batch_size < 1 or epoch < 0:
            raise PlanError(f"expected batch_size >= 1 and epoch >= 0, got {batch_size} and {epoch}")
        self._feed = PositionFeed(dataset, batch_size, drop_last)
        self.epoch = epoch

    def __len__(self) -> int:
        return self._feed.batches()

    def __getitem__(self, b: int) -> dict[str, Any]:
        """Batch `b`. Raises `IndexError` beyond the last."""
        if not 0 <= b < len(self):
            raise IndexError(f"expected a batch within 0:{len(self)}, got {b}")
        return to_torch(_batch(self._feed, self.epoch, b))


class TorchStream(_Iterable):
    """An iterable dataset of whole batches that can be saved and resumed, for `DataLoader(batch_size=None)` and for
    `torchdata`'s `StatefulDataLoader`.

    Worker `w` of `W` loads batches `w`, `w + W`, ...; the loader takes them in turn, so the order is the same for any
    `num_workers`. Each `iter()` is one epoch, the next one counting on. The iterator has `state_dict` and
    `load_state_dict`, which is the protocol that `StatefulDataLoader` asks of a dataset's iterator.

    >>> import penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
    >>> stream = TorchStream(data.samples(), 4)
    >>> [batch["rewards"].tolist() for batch in torch.utils.data.DataLoader(stream, batch_size=None)]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, dataset: MapDataset, batch_size: int, *, drop_last: bool = False) -> None:
        super().__init__()
        if batch_size < 1:
            raise PlanError(f"expected batch_size >= 1, got {batch_size}")
        self._feed = PositionFeed(dataset, batch_size, drop_last)
        self.epoch = 0

    def __len__(self) -> int:
        return self._feed.batches()

    def __iter__(self) -> TorchStreamIterator:
        info = torch.utils.data.get_worker_info()
        iterator = TorchStreamIterator(
            self._feed, self.epoch, *((0, 1) if info is None else (info.id, info.num_workers))
        )
        self.epoch += 1
        return iterator


class TorchStreamIterator(Iterator[dict[str, Any]]):
    """One epoch of a `TorchStream` in one worker; its state is the epoch and the next batch."""

    def __init__(self, feed: PositionFeed, epoch: int, worker: int, workers: int) -> None:
        self._feed, self._epoch, self._next, self._workers = feed, epoch, worker, workers

    def __next__(self) -> dict[str, Any]:
        if self._next >= self._feed.batches():
            raise StopIteration
        batch = _batch(self._feed, self._epoch, self._next)
        self._next += self._workers
        return to_torch(batch)

    def state_dict(self) -> State:
        """Epoch, next batch of this worker, number of workers, and the fingerprint."""
        where = {"epoch": self._epoch, "batch": self._next, "workers": self._workers}
        return {**where, "fingerprint": self._feed.fingerprint}

    def load_state_dict(self, state: State) -> None:
        """Go there. Raises `StateError` for a state of other data or another number of workers."""
        expected = {"workers": self._workers, "fingerprint": self._feed.fingerprint}
        found = {name: state.get(name) for name in expected}
        if found != expected:
            raise StateError(f"expected a state with {expected}, got {found}")
        self._epoch, self._next = int(state["epoch"]), int(state["batch"])


def _batch(feed: PositionFeed, epoch: int, b: int) -> Columns:
    size = len(feed.dataset)
    lo = b * feed.batch_size
    return feed.dataset.batch(np.arange(lo, min(lo + feed.batch_size, size)) + epoch * size)
