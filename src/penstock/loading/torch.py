"""PyTorch: a loader with device copies, and the names of `torch_tensors`, `torch_datasets` and `torch_stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.columns import nest
from penstock.errors import require
from penstock.loading.adapter import Adapter
from penstock.loading.loader import Loader
from penstock.loading.staging import Staging
from penstock.loading.ticket import Batch
from penstock.loading.torch_datasets import TorchDataset, TorchSamples
from penstock.loading.torch_stream import TorchStream, TorchStreamIterator, stream_state
from penstock.loading.torch_tensors import Tensors, shared, to_torch

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")

__all__ = [
    "Tensors",
    "TorchDataset",
    "TorchLoader",
    "TorchSamples",
    "TorchStream",
    "TorchStreamIterator",
    "shared",
    "stream_state",
    "to_torch",
]


class TorchLoader(Adapter[Tensors]):
    """A `Loader` whose batches are nested dicts of tensors, copied to a device one batch ahead of the consumer.

    Each batch has a `ticket`. The state counts the batches that the consumer has received.

    Args:
        loader: Loads the batches.
        device: Device to copy to. The default is None: no copy.
        pin: Whether to copy through reused page-locked memory, in the order of the current stream. The default is True
            for CUDA devices and False otherwise.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> [batch["rewards"].sum().item() for batch in TorchLoader(Loader(data.steps(), batch_size=3))]
        [3.0, 12.0]
    """

    def __init__(self, loader: Loader, device: str | torch.device | None = None, *, pin: bool | None = None) -> None:
        super().__init__(loader, ahead=1)
        self.device = None if device is None else torch.device(device)
        self.pin = (self.device is not None and self.device.type == "cuda") if pin is None else pin
        self._staging = Staging(self.device, pin=True) if self.pin and self.device is not None else None

    def hand_over(self, batch: Batch) -> Tensors:
        """Return the batch as tensors, after starting the copy."""
        if self._staging is None:
            return to_torch(batch, self.device, pin=self.pin)
        return Tensors.of(nest(self._staging.copied(shared(batch))), batch)
