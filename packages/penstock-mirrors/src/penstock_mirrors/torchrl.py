"""Storages for torchrl's `ReplayBuffer`: the transitions of a penstock dataset, and steps that are added to a replay.

Rows of a dataset are read when they are drawn, so it may be larger than memory. Written against torchrl 0.14.1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import penstock
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_dict, is_list, is_tuple
from penstock.errors import ArgumentError, PlanError, StateError
from penstock.loading.layout import ArrangedOutput, Layout
from penstock.loading.ticket import Batch
from penstock.loading.torch import TorchOutput
from penstock.replay.replay import run_of

_data: Any = import_module("torchrl.data")
_TensorDict: Any = import_module("tensordict").TensorDict

__all__ = ["DatasetStorage", "StepStorage"]

_ENDS = ("terminated", "truncated")
Key = tuple[str, ...]
"""Name of a leaf of a `TensorDict`, with the names above it."""


class DatasetStorage(_data.Storage):
    """Read-only storage of the transitions of a dataset, for a `ReplayBuffer` with any sampler.

    Root keys are `observation`, `action` and `done`, and `next` has what followed. `done` is true at terminations and
    at truncations, as everywhere in torchrl. The buffer needs a `collate_fn` that returns samples as they are, and
    `writer=ImmutableDatasetWriter()`, for nothing can be added. A `SliceSampler` reads all transitions once, to find
    where episodes end.

    Args:
        dataset: `data.transitions()` in any order, with transforms.
        device: Device to copy samples to. The default is None: no copy.

    Raises:
        ArgumentError: `dataset` is no `MapDataset`.
        PlanError: The dataset has no end.
        SpecError: A sample is no transition, when it is read.

    Example:
        >>> import numpy as np, penstock
        >>> from torchrl.data import ReplayBuffer
        >>> data = penstock.from_arrays(
        ...     {
        ...         "observations": np.arange(4, dtype="f4")[:, None],
        ...         "actions": np.arange(3),
        ...         "rewards": np.ones(3, "f4"),
        ...         "terminations": [False, False, True],
        ...         "truncations": [False, False, False],
        ...     },
        ...     lengths=[3],
        ... )
        >>> storage = DatasetStorage(data.transitions())
        >>> buffer = ReplayBuffer(storage=storage, collate_fn=lambda samples: samples, batch_size=8)
        >>> batch = buffer.sample()
        >>> bool((batch["next", "observation"] == batch["observation"] + 1).all())
        True
    """

    def __init__(self, dataset: penstock.MapDataset, device: str | torch.device | None = None) -> None:
        if not isinstance(dataset, penstock.MapDataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"expected data.transitions(), got {type(dataset).__name__}; call transitions() first")
        try:
            size = len(dataset)
        except TypeError as error:
            raise PlanError("expected a dataset with an end, got one without; call with_epoch_length(n)") from error
        _data.Storage.__init__(self, size)
        self._dataset, self._size = dataset, size
        self._made = ArrangedOutput(Layout("torchrl"), TorchOutput(device))

    def __len__(self) -> int:
        return self._size

    def get(self, index: Any) -> Any:
        """Return transitions as a `TensorDict`.

        Args:
            index: A number, or numbers as a slice, range, list, array or tensor.

        Raises:
            IndexError: A number is out of range.
        """
        numbers = _numbers(index, self._size)
        flat = numbers.ravel()
        rows = Batch.of(self._dataset[flat], None)
        return _TensorDict(self._made(rows), batch_size=[len(flat)]).reshape(numbers.shape)

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Raise `ArgumentError`: a dataset does not change.

        Args:
            cursor: Anything.
            data: Anything.
            set_cursor: Anything.
        """
        raise ArgumentError(
            "expected a buffer that is only read, got data to add; record them with penstock.record or a Replay, or "
            "add them to a second buffer"
        )

    def _empty(self) -> None:
        self.set(None, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the fingerprint of the dataset."""
        return {"fingerprint": self._dataset.fingerprint, "size": self._size}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Check that a state is of this dataset.

        Args:
            state_dict: Output of `state_dict`.

        Raises:
            StateError: It is of another dataset.
        """
        if state_dict != self.state_dict():
            raise StateError(f"expected the state {self.state_dict()}, got {state_dict}; give the same dataset")

    def dumps(self, path: Any) -> None:
        """Save the fingerprint, and no transitions.

        Args:
            path: Folder.
        """
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / "dataset.json").write_text(json.dumps(self.state_dict()))

    def loads(self, path: Any) -> None:
        """Check that what was saved is of this dataset.

        Args:
            path: Folder.

        Raises:
            StateError: It is of another dataset.
        """
        self.load_state_dict(json.loads((Path(path) / "dataset.json").read_text()))


class StepStorage(_data.Storage):
    """Storage of the last steps that a `ReplayBuffer` was given, which keeps each observation once.

    The steps are in a `penstock.Replay`. With a path they are recorded there too: the folder is a dataset with all its
    episodes. Items have the keys, dtypes and shapes of the first step that is added. Other entries of
    `next` than observations, and of the root than observations and the action, are kept as they are.

    Steps of one environment belong one after another, as `data.reshape(-1)` of a collector has them. A step that does
    not go on from the one before is right too, but its observation is stored again. The writer must write round the
    ring, as torchrl's writers do, and the buffer needs a `collate_fn` that returns samples as they are.

    Args:
        max_size: Most steps.
        path: Folder to record to. The default is None: memory only.
        device: Device to copy samples to. The default is None: no copy.

    Attributes:
        replay: The `penstock.Replay` of the steps.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import ReplayBuffer
        >>> storage = StepStorage(100)
        >>> buffer = ReplayBuffer(storage=storage, collate_fn=lambda samples: samples, batch_size=8)
        >>> now, no = torch.arange(5.0)[:, None], torch.zeros(5, 1, dtype=torch.bool)
        >>> after = {"observation": now + 1, "reward": now, "terminated": no, "truncated": no, "done": no}
        >>> _ = buffer.extend(TensorDict({"observation": now, "action": now, "next": after}, batch_size=[5]))
        >>> batch = buffer.sample()
        >>> bool((batch["next", "observation"] == batch["observation"] + 1).all()), len(storage.replay)
        (True, 5)
    """

    def __init__(
        self, max_size: int, path: str | os.PathLike[str] | None = None, device: str | torch.device | None = None
    ) -> None:
        _data.Storage.__init__(self, max_size)
        self._path, self._device = path, device
        self._empty()

    def _empty(self) -> None:
        self.replay = penstock.Replay(self._path, capacity=self.max_size)
        self._added = self._before = 0  # steps of this storage, and in the folder before them
        self._leaves: dict[Key, tuple[str, tuple[int, ...]]] = {}  # column and shape of each leaf

    def __len__(self) -> int:
        return min(self._added, self.max_size)

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Add steps.

        Args:
            cursor: Place of a step, or places, after the last one and round the ring.
            data: Steps as a `TensorDict`.
            set_cursor: Whether to note the last place. The default is True.

        Raises:
            ArgumentError: A place does not follow the last one, or a step has other keys than the first.
        """
        alone = isinstance(cursor, int) or getattr(cursor, "ndim", 1) == 0
        places = np.atleast_1d(np.asarray(cursor.cpu() if isinstance(cursor, torch.Tensor) else cursor))
        steps = data[None] if alone else data
        wanted = (self._added + np.arange(len(places))) % self.max_size
        if not np.array_equal(places, wanted):
            raise ArgumentError(
                f"expected the places {wanted[:8].tolist()} after the last step, got {places[:8].tolist()}; use a "
                "RoundRobinWriter, and leave steps that were added as they are"
            )
        arrays: dict[Key, AnyArray] = {
            _key(name): value.detach().cpu().numpy()
            for name, value in steps.items(include_nested=True, leaves_only=True)
        }
        if not self._added:
            run = run_of(self.replay)
            self._before = 0 if run.is_empty() else run.anchors[1]
            self._leaves = _leaves(arrays)
        if arrays.keys() != self._leaves.keys():
            raise ArgumentError(f"expected steps with {list(self._leaves)}, got {list(arrays)}")
        for row in range(len(places)):
            self._add({key: array[row : row + 1] for key, array in arrays.items()})
        if set_cursor:
            self._set_last_cursor(cursor)
        self._bump_mutation_revision()

    def _add(self, step: Mapping[Key, AnyArray]) -> None:
        """Add one step, whose arrays have a row."""
        columns = {column: step[key] for key, (column, _) in self._leaves.items()}
        ends = {name: columns.pop(f"ends/{name}").reshape(1) for name in _ENDS}
        rewards = columns.pop("rewards").reshape(1)
        self.replay.add(
            _below(columns, "observations"),
            _below(columns, "actions"),
            _below(columns, "next_observations"),
            rewards,
            *ends.values(),
            autoreset="Disabled",
            extras={name: value for name, value in columns.items() if name.startswith("extras/")},
        )
        self._added += 1

    def get(self, index: Any) -> Any:
        """Return steps as a `TensorDict`.

        Args:
            index: A place, or places as a slice, range, list, array or tensor.

        Raises:
            IndexError: There is no step at a place.
        """
        places = _numbers(index, len(self))
        newest = self._added - 1
        flat = (newest - (newest - places.ravel()) % self.max_size) + self._before
        columns = run_of(self.replay).take(flat)
        columns |= {"ends/terminated": columns["terminations"], "ends/truncated": columns["truncations"]}
        tensors = {
            key: torch.as_tensor(columns[column].reshape(-1, *shape), device=self._device)
            for key, (column, shape) in self._leaves.items()
        }
        return _TensorDict(tensors, batch_size=[len(flat)]).reshape(places.shape)

    def state_dict(self) -> dict[str, Any]:
        """Return all steps, and the names of their leaves."""
        leaves = [[list(key), column, list(shape)] for key, (column, shape) in self._leaves.items()]
        state = self.replay.state_dict(rows=True)
        return {"replay": state, "leaves": leaves, "added": self._added, "before": self._before}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state.

        Args:
            state_dict: Output of `state_dict`.

        Raises:
            StateError: It is of a storage with another size.
        """
        self.replay.load_state_dict(state_dict["replay"])
        self._leaves = {tuple(key): (column, tuple(shape)) for key, column, shape in state_dict["leaves"]}
        self._added, self._before = state_dict["added"], state_dict["before"]
        self._bump_mutation_revision()

    def dumps(self, path: Any) -> None:
        """Save the state.

        Args:
            path: Folder.
        """
        Path(path).mkdir(parents=True, exist_ok=True)
        torch.save(_each_array(self.state_dict(), _tensor), Path(path) / "steps.pt")

    def loads(self, path: Any) -> None:
        """Continue from a state that `dumps` saved.

        Args:
            path: Folder.
        """
        self.load_state_dict(_each_array(torch.load(Path(path) / "steps.pt"), _array))


def _numbers(index: Any, size: int) -> AnyArray:
    """The numbers of an index of torchrl, within `0 : size`."""
    if is_tuple(index) and len(index) == 1:
        index = index[0]
    return np.arange(size)[index.cpu().numpy() if isinstance(index, torch.Tensor) else index]


def _key(name: str | Key) -> Key:
    return (name,) if isinstance(name, str) else name


def _leaves(arrays: Mapping[Key, AnyArray]) -> dict[Key, tuple[str, tuple[int, ...]]]:
    """Return the column and the shape of each leaf of steps: observations are what `next` has too."""
    columns: dict[Key, str] = {}
    missing = [key for key in (("action",), *(("next", name) for name in ("reward", *_ENDS))) if key not in arrays]
    if missing:
        raise ArgumentError(
            f"expected steps with an action, and in next a reward, terminated and truncated, got no {missing}"
        )
    taken: dict[Key, str] = {("action",): "actions", ("next", "reward"): "rewards"}
    taken |= {("next", name): f"ends/{name}" for name in _ENDS}
    for key in arrays:
        name = "/".join(key)
        if key in taken:
            columns[key] = taken[key]
        elif key[0] != "next" and ("next", *key) in arrays and key[-1] not in (*_ENDS, "done", "reward"):
            columns[key], columns["next", *key] = f"observations/{name}", f"next_observations/{name}"
        elif key not in columns:
            columns[key] = f"extras/{name}"
    return {key: (columns[key], array.shape[1:]) for key, array in arrays.items()}


def _below(columns: Mapping[str, AnyArray], prefix: str) -> Any:
    """The columns below a prefix as a dict, or the column of this name."""
    return (
        columns[prefix]
        if prefix in columns
        else {
            name.removeprefix(f"{prefix}/"): value for name, value in columns.items() if name.startswith(f"{prefix}/")
        }
    )


def _each_array(value: Any, of: Callable[[Any], Any]) -> Any:
    """Return plain values with a function's result in place of each array or tensor."""
    if is_dict(value):
        return {key: _each_array(inner, of) for key, inner in value.items()}
    if is_list(value):
        return [_each_array(inner, of) for inner in value]
    return of(value) if is_array(value) or isinstance(value, torch.Tensor) else value


def _tensor(array: AnyArray) -> torch.Tensor:
    return torch.as_tensor(array.copy())


def _array(tensor: torch.Tensor) -> AnyArray:
    return tensor.numpy()
