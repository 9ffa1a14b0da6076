"""`TorchStream`: iterable dataset of whole batches for PyTorch, with exact resume."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.core.boundary import loading_state
from penstock.core.narrowing import is_mapping
from penstock.core.turns import Turns
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, StateError, require
from penstock.loading.batch_source import State
from penstock.loading.cursor import Changed, Cursor, CursorPlace, Grown, saved
from penstock.loading.position_source import EpochSlice, PositionSource
from penstock.loading.torch_datasets import torch_source
from penstock.loading.torch_tensors import Tensors, to_torch
from penstock.loading.worker_epochs import NOT_LOADED, WorkerEpochs

if TYPE_CHECKING:
    import torch
    from torch.utils.data import IterableDataset

    _Iterable = IterableDataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Iterable = torch.utils.data.IterableDataset


class TorchStream(_Iterable):
    """Iterable dataset of whole batches with exact resume.

    Use it with `DataLoader(batch_size=None)` or `torchdata`'s `StatefulDataLoader`. Worker `w` of `W` loads the batches
    `w`, `w + W`, and so on. The loader takes them in turn, so the order is the same for any `num_workers`.

    Each `iter()` is one epoch, as in `Loader`: the rest of an epoch after `load_state_dict`, else the next epoch.
    Workers count epochs together, also if they are started anew for every epoch.

    A stream has this rank's share of every batch. `Accelerator.prepare` splits a `DataLoader` again, so with several
    processes such a stream raises a `PlanError`. Use the `DataLoader` as it is, or give `rank=0, world=1`: then
    Accelerate splits the batches.

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
        >>> stream = TorchStream(data.steps(), 4)
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
        self.cursor = Cursor(torch_source(dataset, batch_size, drop_last, rank, world), allow_empty=allow_empty)
        self.epochs = WorkerEpochs(self.cursor)

    @property
    def source(self) -> PositionSource:
        """Source that cuts the order into batches."""
        source = self.cursor.source
        assert isinstance(source, PositionSource)  # `__init__` gave one
        return source

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, as `Loader` does.

        Raises:
            TypeError: The dataset has no end.
        """
        self.epochs.replay()
        source, state = self.cursor.current()
        assert isinstance(source, PositionSource)  # as above
        return source.epoch_batches(state)

    def __iter__(self) -> TorchStreamIterator:
        self._refuse_a_second_split()
        info = torch.utils.data.get_worker_info()
        if info is None:
            return TorchStreamIterator(self)
        return TorchStreamIterator(self, info.id, info.num_workers, info.seed - info.id)

    def _refuse_a_second_split(self) -> None:
        """Raise an error where Accelerate splits what is the share of this rank already."""
        state = sys.modules.get("accelerate.state")
        if state is None or self.source.ranks.world == 1:
            return
        read = getattr(state.GradientState().active_dataloader, "dataset", None)
        if self in (read, getattr(read, "dataset", None)):  # of an IterableDatasetShard, for dispatch_batches=False
            ranks = self.source.ranks
            raise PlanError(
                f"expected a TorchStream that nothing splits again, for it has the share of rank {ranks.rank} of "
                f"{ranks.world}, got one in a DataLoader that Accelerate prepared, which would leave samples out; use "
                "the DataLoader without prepare(), or give the TorchStream rank=0, world=1"
            )

    def set_epoch(self, epoch: int) -> None:
        """Begin the next `iter()` at the start of an epoch, as `Loader.set_epoch` does. Workers that run see it too.

        Args:
            epoch: Number of the epoch, 0 or more.

        Raises:
            PlanError: There is no such epoch, or Accelerate splits the stream again.
            StateError: A state of another epoch was just loaded, which the call would throw away.
        """
        self._refuse_a_second_split()
        self.epochs.set_epoch(epoch)

    def state_dict(self) -> State:
        """Return the position of the consumer, as `Loader.state_dict` does.

        With workers, it is where the next `iter()` begins, because only the `DataLoader` knows which batches the
        consumer has. `StatefulDataLoader` saves that position.
        """
        self.epochs.replay()
        return self.cursor.saved()

    @loading_state
    def load_state_dict(self, state: State, grown: Grown = "refuse", changed: Changed = "refuse") -> None:
        """Begin the next `iter()` at the state of a `Loader`, or of `stream_state`.

        Workers that run already do not see it: they raise a `StateError` at their next `iter()`.

        Args:
            state: The state.
            grown: What to do if episodes were appended since, as in `Loader.load_state_dict`. The default is
                `"refuse"`.
            changed: What to do if the state belongs to another mix: `"refuse"`, or `"continue"` with the next sample of
                each part. The default is `"refuse"`.

        Raises:
            StateError: The state belongs to another dataset, plan or version.
        """
        self.epochs.replay()
        self.cursor.load(state, grown, changed)
        if torch.utils.data.get_worker_info() is None:
            self.epochs.loaded()


class TorchStreamIterator(Iterator[Tensors]):
    """Iterator over one epoch of a `TorchStream` in one worker. Its state is the next batch of that worker.

    The first `next` begins the epoch.

    Args:
        stream: The stream.
        worker: Number of the worker. The default is 0.
        workers: Number of workers. The default is 1.
        seed: Base seed of the workers. The default is None: this process is no worker.

    Example:
        >>> import numpy as np, penstock
        >>> stream = TorchStream(penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps(), 4)
        >>> iterator = iter(stream)
        >>> type(iterator).__name__, next(iterator)["x"].tolist()
        ('TorchStreamIterator', [0, 1, 2, 3])
    """

    def __init__(self, stream: TorchStream, worker: int = 0, workers: int = 1, seed: int | None = None) -> None:
        self._stream = stream
        self._worker = worker
        self._workers = workers
        self._seed = seed
        self._turns = Turns("iterator of a TorchStream")
        self._place: CursorPlace | None = None  # where the rest of the epoch begins; None: not begun
        self._after: tuple[CursorPlace, State] | None = None  # after the last batch that was given
        self._loaded: int | None = None  # epoch of a state that this iterator loaded

    def __next__(self) -> Tensors:
        with self._turns:
            while True:
                place = self._begun()
                if self._next >= self._epoch_slice.hi:
                    raise StopIteration
                batch, state = self._source.batch(self._epoch_slice, self._next)
                if self._seed is not None or self._stream.cursor.move(place, state):
                    break  # else another thread loaded a state meanwhile
            self._next += self._workers * self._source.step
            self._after = place, state
        return to_torch(batch)

    def _begun(self) -> CursorPlace:
        """Begin, or go on where the consumer is if another state of the same epoch was loaded meanwhile."""
        stream, place = self._stream, self._place
        if self._seed is not None and (place is None or self._loaded is not None):
            begun = stream.epochs.begin(self._seed, NOT_LOADED if self._loaded is None else self._loaded)
            self._loaded = None
            if place is None:
                place = self._take_up(begun)
        elif place is None or (self._seed is None and place.turn != stream.cursor.turn):
            stream.epochs.replay()
            epoch = None if self._after is None else self._epoch_slice.epoch
            place = self._take_up(stream.cursor.place(self._after))
            if epoch not in (None, self._epoch_slice.epoch):
                self._next = self._epoch_slice.hi
        return place

    def _take_up(self, place: CursorPlace) -> CursorPlace:
        """Go on at a place with the batches of this worker."""
        source, position = place.source, int(place.state["position"])
        assert isinstance(source, PositionSource)  # a stream has no other
        self._source, self._place = source, place
        self._epoch_slice = source.epoch_slice(position) or EpochSlice(0, 0, 0, position)
        self._next = self._epoch_slice.lo + self._worker * source.step
        return place

    def state_dict(self) -> State:
        """Return a `Loader` state at the next batch of this worker, with the epoch and the number of workers."""
        with self._turns:
            if self._place is None:
                epochs = self._stream.epochs
                epochs.replay()
                self._take_up(self._stream.cursor.place() if self._seed is None else epochs.place(self._seed))
                self._place = None
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
            StateError: The state belongs to other data, another number of workers, or another epoch than was set.
        """
        rest_of_state = dict(state)
        epoch, workers = rest_of_state.pop("epoch", None), rest_of_state.pop("workers", 1)
        if workers not in (1, self._workers):
            raise StateError(
                f"expected a state of {self._workers} workers, got one of {workers}; to change their number, load "
                "penstock.loading.torch.stream_state(state) into a new TorchStream"
            )
        with self._turns:
            stream = self._stream
            epoch_set = stream.cursor.epoch_set
            stream.load_state_dict(rest_of_state)
            place, position = stream.cursor.place(), int(rest_of_state["position"])
            self._take_up(place)
            rest = self._source.rest(position)
            given_all = epoch not in (None, rest.epoch)  # this worker has given all its batches of that epoch
            if given_all and epoch_set == rest.epoch:  # the trainer begins the next one
                given_all, workers = False, 1
            current = epoch if given_all else rest.epoch
            if epoch_set not in (None, current):
                raise StateError(
                    f"expected a state of epoch {epoch_set}, for set_epoch({epoch_set}) was called, got one of epoch "
                    f"{current}; if a trainer counts from 0 again, tell it the epoch first: set_epoch({current}) of "
                    "the DataLoader that Accelerate prepared"
                )
            self._epoch_slice = rest
            if given_all:
                end = self._source.skips.kept_before(position)
                self._epoch_slice = EpochSlice(int(epoch), end, end, position)
                self._next = end
            elif workers == self._workers:
                self._next = rest.lo  # the state is of this worker
            self._loaded = self._epoch_slice.epoch


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
        >>> stream = TorchStream(penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps(), 4)
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
