"""PyTorch: batches as tensors on a device, and the names of `torch_tensors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.columns import nest
from penstock.errors import require
from penstock.loading.staging import Staging
from penstock.loading.ticket import Batch
from penstock.loading.torch_tensors import Tensors, shared, to_torch

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")

__all__ = ["Tensors", "TorchOutput", "shared", "to_torch"]


class TorchOutput:
    """Makes tensors of batches, and copies them to a device, with `pin` through reused page-locked memory."""

    def __init__(self, device: str | torch.device | None = None, pin: bool | None = None) -> None:
        self.device = None if device is None else torch.device(device)
        self.pin = (self.device is not None and self.device.type == "cuda") if pin is None else pin
        self._staging = Staging(self.device, pin=True) if self.pin and self.device is not None else None

    def __call__(self, batch: Batch) -> Tensors:
        """Return the batch as tensors, after starting the copy."""
        if self._staging is None:
            return to_torch(batch, self.device, pin=self.pin)
        return Tensors.of(nest(self._staging.copied(shared(batch))), batch)
