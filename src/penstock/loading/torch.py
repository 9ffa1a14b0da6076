"""PyTorch: batches as tensors on a device, copied through page-locked buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core.columns import nest
from penstock.errors import require
from penstock.loading.ticket import Batch
from penstock.loading.torch_tensors import Tensors, shared, to_torch

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")

__all__ = ["Tensors", "TorchOutput", "shared", "to_torch"]

SLOTS = 3  # batches whose copies may be under way: one being filled, one on its way, one that the consumer waits for


class Staging:
    """Copy tensors to a device through a ring of reused buffers.

    A buffer is filled again after the copy from it has finished. Locking pages takes longer than the copy, so it is
    done once.
    """

    def __init__(self, device: torch.device, *, pin: bool, slots: int = SLOTS) -> None:
        self._device = device
        self._slots = [_Slot(pin) for _ in range(slots)]
        self._turn = 0

    def copied(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors on the device, in the order of the current stream. Waits for a free buffer."""
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % len(self._slots)
        slot.wait()
        moved = {path: slot.move(path, tensor, self._device) for path, tensor in tensors.items()}
        slot.mark(self._device)
        return moved


class _Slot:
    """Buffers of one batch by path, and the event after which they are free."""

    def __init__(self, pin: bool) -> None:
        self._pin = pin
        self._held: dict[str, torch.Tensor] = {}
        self._done: torch.cuda.Event | None = None

    def wait(self) -> None:
        if self._done is not None:
            self._done.synchronize()

    def move(self, path: str, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        room = self._room(path, tensor.nbytes)
        staged = room.view(tensor.dtype).view(tensor.shape)
        staged.copy_(tensor)
        return torch.empty_like(staged, device=device, pin_memory=False).copy_(staged, non_blocking=True)

    def mark(self, device: torch.device) -> None:
        if device.type == "cuda":  # copies to other devices have ended when they return
            self._done = torch.cuda.Event()
            self._done.record(torch.cuda.current_stream(device))

    def _room(self, path: str, nbytes: int) -> torch.Tensor:
        """`[nbytes]` uint8 of a column's buffer, which grows when needed."""
        buffer = self._held.get(path)
        if buffer is None or len(buffer) < nbytes:
            buffer = self._held[path] = torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._pin)
        return buffer[:nbytes]


if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")


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
