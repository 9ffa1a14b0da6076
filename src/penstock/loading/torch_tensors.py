"""Batches as PyTorch tensors, which share memory with the arrays or are copied to a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.columns import Columns, nest
from penstock.core.narrowing import is_mapping
from penstock.core.ragged import Array, Ragged
from penstock.errors import require
from penstock.loading.arranged import BatchDict

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")


class Tensors(BatchDict):
    """A batch as nested dicts of tensors, with a `ticket` and the `weight` of the share of this rank.

    Args:
        tree: Nested dict of tensors. The default is empty.
        ticket: Batch ticket. The default is None: no ticket.
        weight: Weight of the share of this rank, as in `Batch`. The default is 1.

    Example:
        >>> Tensors({"x": torch.zeros(2)})["x"].shape
        torch.Size([2])
    """

    def to(self, device: str | torch.device, non_blocking: bool = False) -> Tensors:
        """Return a copy on a device, with the same ticket and weight. Lightning and Accelerate call it.

        Args:
            device: The device.
            non_blocking: Whether the copy from page-locked memory may go on after the call. The default is False.

        Example:
            >>> batch = Tensors({"x": {"y": torch.zeros(2)}}, weight=0.5).to("meta")
            >>> batch["x"]["y"].device.type, batch.weight
            ('meta', 0.5)
        """
        return Tensors(_on(self, device, non_blocking), self.ticket, self.weight)


def to_torch(columns: Columns, device: str | torch.device | None = None, *, pin: bool = False) -> Tensors:
    """Convert a batch to nested dicts of tensors.

    A `Ragged` column becomes `{"values": ..., "offsets": ...}`. Without a device, the tensors share memory with the
    arrays.

    Args:
        columns: The batch.
        device: Device to copy to. The default is None: no copy.
        pin: Whether to copy to page-locked memory first, so that the copy to the device overlaps with other work. The
            function then returns before the copy has finished, in the order of the current stream, as
            `torch.Tensor.to(non_blocking=True)` does. The default is False.

    Returns:
        Tensors by name, nested as the columns, with the ticket of the batch.

    Raises:
        RuntimeError: The device or page-locked memory is not available.

    Example:
        >>> import numpy as np
        >>> to_torch(Columns({"observations": {"x": np.zeros((2, 3), "f4")}}))["observations"]["x"].shape
        torch.Size([2, 3])
    """
    tensors = {path: _moved(tensor, device, pin) for path, tensor in shared(columns).items()}
    return Tensors.of(nest(tensors), columns)


def shared(columns: Columns) -> dict[str, torch.Tensor]:
    """Return tensors by path that share memory with the arrays.

    Args:
        columns: The batch. A `Ragged` column becomes `<path>/values` and `<path>/offsets`.

    Returns:
        Tensors by path.

    Example:
        >>> list(shared(Columns({"t": Ragged.from_strings(["ab"])})))
        ['t/values', 't/offsets']
    """
    flat: dict[str, torch.Tensor] = {}
    for path, array in columns.flat.items():
        flat.update({name: _tensor(part) for name, part in _dense(path, array)})
    return flat


def _dense(path: str, array: Array) -> list[tuple[str, np.ndarray[Any, Any]]]:
    if isinstance(array, Ragged):
        return [(f"{path}/values", array.values), (f"{path}/offsets", array.offsets)]
    return [(path, array)]


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    usable = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch.as_tensor(array if usable else array.copy())


def _moved(tensor: torch.Tensor, device: str | torch.device | None, pin: bool) -> torch.Tensor:
    if pin:
        tensor = tensor.pin_memory()
    return tensor if device is None else tensor.to(device, non_blocking=pin)


def _on(tree: Mapping[str, Any], device: str | torch.device, non_blocking: bool) -> dict[str, Any]:
    return {
        name: _on(value, device, non_blocking) if is_mapping(value) else value.to(device, non_blocking=non_blocking)
        for name, value in tree.items()
    }
