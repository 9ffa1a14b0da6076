"""Storage for torchrl's `ReplayBuffer` whose items are the transitions of a penstock dataset.

Rows are read when they are drawn, so the dataset may be larger than memory. Written against torchrl 0.14.1.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import penstock
from penstock.core.narrowing import is_tuple
from penstock.errors import ArgumentError, PlanError, StateError
from penstock.loading.layout import ArrangedOutput, Layout
from penstock.loading.ticket import Batch
from penstock.loading.torch import TorchOutput

_data: Any = import_module("torchrl.data")
_TensorDict: Any = import_module("tensordict").TensorDict

__all__ = ["DatasetStorage"]


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
        if is_tuple(index) and len(index) == 1:
            index = index[0]
        numbers = np.arange(self._size)[index.cpu().numpy() if isinstance(index, torch.Tensor) else index]
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
