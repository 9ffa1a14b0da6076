"""Datasets for the loaders of PyTorch: of whole batches, of samples, and a stream with exact resume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.boundary import loading_state
from penstock.core.narrowing import is_mapping
from penstock.core.turns import Turns
from penstock.data.map_dataset import MapDataset
from penstock.data.sample_blocks import check_batches
from penstock.errors import PlanError, StateError, require
from penstock.load.batch_source import State
from penstock.load.cursor import Changed, Cursor, Grown, saved
from penstock.load.position_source import EpochSlice, PositionSource
from penstock.load.ranks import check_ranks, ranks
from penstock.load.torch_tensors import Tensors, to_torch
from penstock.plan.batched import BatchedPlan

if TYPE_CHECKING:
    import torch
    from torch.utils.data import IterableDataset

    _Iterable = IterableDataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Iterable = torch.utils.data.IterableDataset


class TorchDataset(torch.utils.data.Dataset[Tensors]):
    """Map-style dataset of whole batches, for `DataLoader(TorchDataset(ds, 256), batch_size=None)`.

    Item `b` is this rank's part of batch `b` of one epoch. A `sampler` of PyTorch may reorder batches. To shuffle
    samples, shuffle the dataset.

    Args:
        dataset: The dataset.
        batch_size: Samples of a batch over all ranks, at least 1.
        drop_last: Whether to drop a short last batch. The default is False.
        epoch: Epoch whose order to use. The default is 0.
        rank: Number of this process, detected by default as in `Loader`.
        world: Number of processes, detected by default as in `Loader`.
        allow_empty: Whether to allow a dataset without a batch. The default is False.

    Raises:
        PlanError: An argument is impossible, or the dataset has no batch.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> batches = torch.utils.data.DataLoader(TorchDataset(data.samples(), 4), batch_size=None)
        >>> [batch["rewards"].tolist() for batch in batches]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(
        self,
        dataset: MapDataset,
        batch_size: int,
        *,
        drop_last: bool = False,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        allow_empty: bool = False,
    ) -> None:
        if epoch < 0:
            raise PlanError(f"expected epoch >= 0, got {epoch}")
        self._source = _source(dataset, batch_size, drop_last, rank, world)
        if not allow_empty:
            check_batches(dataset.plan, batch_size, drop_last=drop_last)
        self.epoch = epoch

    def __len__(self) -> int:
        return self._source.batches(self.epoch)

    def __getitem__(self, b: int) -> Tensors:
        """Load one batch.

        Args:
            b: Number of the batch.

        Raises:
            IndexError: There is no such batch.
        """
        if not 0 <= b < len(self):
            raise IndexError(f"expected a batch within 0:{len(self)}, got {b}")
        rest = self._source.rest(self._source.dataset.plan.start(self.epoch))
        return to_torch(self._source.batch(rest, rest.lo + b * self._source.step)[0])


class TorchSamples(torch.utils.data.Dataset[dict[str, Any]]):
    """Map-style dataset of samples, for trainers that use their own sampler.

    Batches are read in one call and are already `Tensors`, so there is nothing to collate:
    `DataLoader(samples, batch_size=64, sampler=..., collate_fn=samples.collate)`. With the order of the dataset,
    `TorchStream` and `TorchLoader` have exact resume and ranks instead.

    Args:
        dataset: The dataset.
        allow_empty: Whether to allow a dataset without samples. The default is False.

    Raises:
        PlanError: The dataset has no samples.

    Example:
        >>> import numpy as np, penstock
        >>> samples = TorchSamples(penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6]).samples())
        >>> batches = torch.utils.data.DataLoader(samples, batch_size=4, collate_fn=samples.collate)
        >>> [batch["rewards"].tolist() for batch in batches]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, dataset: MapDataset, *, allow_empty: bool = False) -> None:
        if not allow_empty:
            check_batches(dataset.plan, 1, drop_last=False)
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Read one sample as nested dicts.

        Args:
            i: Number of the sample.

        Raises:
            IndexError: There is no such sample.
        """
        return self.dataset[i]

    def __getitems__(self, numbers: Sequence[int]) -> Tensors:
        """Read the samples of a batch in one call.

        Args:
            numbers: Numbers of the samples.
        """
        return to_torch(self.dataset[list(numbers)])

    @staticmethod
    def collate(batch: Tensors) -> Tensors:
        """Return the output of `__getitems__` unchanged.

        Args:
            batch: Tensors of a batch.
        """
        return batch


class TorchStream(_Iterable):
    """Iterable dataset of whole batches with exact resume.

    Use it with `DataLoader(batch_size=None)` or `torchdata`'s `StatefulDataLoader`. Worker `w` of `W` loads the batches
    `w`, `w + W`, and so on. The loader takes them in turn, so the order is the same for any `num_workers`.

    Each `iter()` is one epoch, and the next `iter()` is the next epoch. Workers that are restarted for every epoch
    cannot count epochs: call `set_epoch` before each, or keep the workers (`persistent_workers=True`).

    The iterator has `state_dict` and `load_state_dict`, as `StatefulDataLoader` requires. Its state needs the same
    number of workers. To change the number, pass the loader's state through `stream_state`. The result is a `Loader`
    state, which `load_state_dict` of a `Loader` or of a new stream accepts for any number of workers and ranks.

    Args:
        dataset: The dataset.
        batch_size: Samples of a batch over all ranks, at least 1.
        drop_last: Whether to drop a short last batch. The default is False.
        rank: Number of this process, detected by default as in `Loader`.
        world: Number of processes, detected by default as in `Loader`.
        allow_empty: Whether to allow a dataset without a batch. The default is False.

    Raises:
        PlanError: An argument is impossible, or the dataset has no batch.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> stream = TorchStream(data.samples(), 4)
        >>> [batch["rewards"].tolist() for batch in torch.utils.data.DataLoader(stream, batch_size=None)]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(
        self,
        dataset: MapDataset,
        batch_size: int,
        *,
        drop_last: bool = False,
        rank: int | None = None,
        world: int | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__()
        self.cursor = Cursor(_source(dataset, batch_size, drop_last, rank, world), allow_empty=allow_empty)

    @property
    def source(self) -> PositionSource:
        """Source that cuts the order into batches."""
        source = self.cursor.source
        assert isinstance(source, PositionSource)  # `__init__` gave one
        return source

    def __len__(self) -> int:
        epoch = self.source.epoch(self.cursor.state)
        return 0 if epoch is None else self.source.batches(epoch)

    def __iter__(self) -> TorchStreamIterator:
        info = torch.utils.data.get_worker_info()
        return TorchStreamIterator(self, *((0, 1) if info is None else (info.id, info.num_workers)))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next `iter()`.

        Args:
            epoch: Number of the epoch.
        """
        self.cursor.state = {"position": self.source.dataset.plan.start(epoch)}

    def state_dict(self) -> State:
        """Return the position of the next `iter()`, as `Loader.state_dict` does."""
        return self.cursor.saved()

    @loading_state
    def load_state_dict(self, state: State, grown: Grown = "refuse", changed: Changed = "refuse") -> None:
        """Start the next `iter()` at the state of a `Loader`, or of `stream_state`.

        Args:
            state: The state.
            grown: What to do if episodes were appended since, as in `Loader.load_state_dict`. The default is
                `"refuse"`.
            changed: What to do if the state belongs to another mix: `"refuse"`, or `"continue"` with the next sample of
                each part. The default is `"refuse"`.

        Raises:
            StateError: The state belongs to another dataset, plan or version.
        """
        self.cursor.load(state, grown, changed)


class TorchStreamIterator(Iterator[Tensors]):
    """Iterator over one epoch of a `TorchStream` in one worker. Its state is the next batch of that worker.

    Args:
        stream: The stream.
        worker: Number of the worker.
        workers: Number of workers.

    Example:
        >>> import numpy as np, penstock
        >>> stream = TorchStream(penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).samples(), 4)
        >>> iterator = iter(stream)
        >>> type(iterator).__name__, next(iterator)["x"].tolist()
        ('TorchStreamIterator', [0, 1, 2, 3])
    """

    def __init__(self, stream: TorchStream, worker: int, workers: int) -> None:
        self._stream = stream
        self._worker = worker
        self._workers = workers
        self._turns = Turns("iterator of a TorchStream")
        position = stream.cursor.state["position"]
        epoch_slice = stream.source.epoch_slice(position)
        self._begin(epoch_slice or EpochSlice(0, 0, 0, position), worker * stream.source.step)

    def _begin(self, epoch_slice: EpochSlice, ahead: int) -> None:
        self._source = self._stream.source
        self._epoch_slice = epoch_slice
        self._next = epoch_slice.lo + ahead
        self._stream.cursor.move({"position": epoch_slice.after})  # where the next epoch begins

    def __next__(self) -> Tensors:
        with self._turns:
            if self._next >= self._epoch_slice.hi:
                raise StopIteration
            batch, _ = self._source.batch(self._epoch_slice, self._next)
            self._next += self._workers * self._source.step
        return to_torch(batch)

    def state_dict(self) -> State:
        """Return a `Loader` state at the next batch of this worker, with the epoch and the number of workers."""
        over = self._next >= self._epoch_slice.hi
        position = self._epoch_slice.after if over else self._source.skips.position(self._next)
        where = {"position": position, "epoch": self._epoch_slice.epoch, "workers": self._workers}
        return saved(self._source, where)

    @loading_state
    def load_state_dict(self, state: State) -> None:
        """Continue from a saved state.

        Args:
            state: Output of `state_dict`.

        Raises:
            StateError: The state belongs to other data, or to another number of workers.
        """
        rest_of_state = dict(state)
        epoch, workers = rest_of_state.pop("epoch", None), rest_of_state.pop("workers", 1)
        if workers not in (1, self._workers):
            raise StateError(
                f"expected a state of {self._workers} workers, got one of {workers}; to change their number, load "
                "penstock.load.torch.stream_state(state) into a new TorchStream"
            )
        self._stream.load_state_dict(rest_of_state)
        source, position = self._stream.source, int(rest_of_state["position"])
        rest = source.rest(position)
        if epoch not in (None, rest.epoch):  # this worker has given all its batches of that epoch
            end = source.skips.kept_before(position)
            self._begin(EpochSlice(int(epoch), end, end, position), 0)
        else:
            self._begin(rest, 0 if workers == self._workers else self._worker * source.step)


def stream_state(loader_state: Mapping[str, Any]) -> State:
    """Return a `Loader` state from the state of a `StatefulDataLoader` over a `TorchStream`.

    Args:
        loader_state: Output of `StatefulDataLoader.state_dict`.

    Returns:
        State for `Loader.load_state_dict`.

    Raises:
        StateError: There is no such stream, or batches were yielded since the last snapshot.

    Example:
        >>> import numpy as np, penstock
        >>> stream = TorchStream(penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).samples(), 4)
        >>> iterator = iter(stream)
        >>> stream_state(iterator.state_dict())["position"], next(iterator)["x"].tolist()
        (0, [0, 1, 2, 3])
    """
    if behind := loader_state.get("_steps_since_snapshot"):
        raise StateError(
            f"expected a state of this very step, got one of {behind} steps ago; build the StatefulDataLoader with "
            "snapshot_every_n_steps=1"
        )
    states = list(_worker_states(loader_state))
    if not states:
        raise StateError("expected the state of a StatefulDataLoader over a TorchStream, got none of its workers in it")
    # Workers take batches in turn, so the first batch that a worker has not returned is the first one missing.
    first = min(states, key=lambda state: state["position"])
    return {name: value for name, value in first.items() if name not in ("epoch", "workers")}


def _worker_states(part: Mapping[str, Any]) -> Iterator[State]:
    if {"fingerprint", "position", "workers"} <= set(part):
        yield dict(part)
        return
    for value in part.values():
        if is_mapping(value):
            yield from _worker_states(value)


def _source(
    dataset: MapDataset, batch_size: int, drop_last: bool, rank: int | None, world: int | None
) -> PositionSource:
    if batch_size < 1:
        raise PlanError(f"expected batch_size >= 1, got {batch_size}")
    if isinstance(dataset.plan, BatchedPlan):
        raise PlanError("expected a dataset without batches() for a TorchStream; TorchLoader takes planned batches")
    shares = ranks(rank, world)
    check_ranks(dataset.plan, batch_size, shares)
    return PositionSource(dataset, batch_size, drop_last, shares)
