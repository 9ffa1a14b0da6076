"""Outputs of a loader: arrays, tensors, JAX arrays, or the results of a function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import PlanError
from penstock.loading.layout import ArrangedOutput, Layout
from penstock.loading.ranks import Ranks, ranks
from penstock.loading.ticket import Batch

if TYPE_CHECKING:
    import torch

Output = Literal["numpy", "torch", "jax"] | Callable[[Any], Any]


def rows_of(output: Output, sharding: Any, rank: int | None, world: int | None) -> tuple[Ranks, int]:
    """Return the share of this process of every batch, and the number that a sharding divides batches by."""
    if sharding is None:
        return ranks(rank, world), 1
    if output != "jax":
        raise PlanError(f'expected a sharding with output="jax" alone, got one with {output!r}')
    return importlib.import_module("penstock.loading.jax").rows_under(sharding, rank, world)


def as_it_is(batch: Batch) -> Batch:
    return batch


def _after_layout(layout: Layout, output: Callable[[Any], Any], batch: Batch) -> Any:
    return output(layout(batch))


def hand_over_of(
    output: Output,
    device: str | torch.device | None,
    pin: bool | None,
    sharding: Any,
    layout: Layout | None,
) -> Callable[[Batch], Any]:
    """Return the function that each batch goes through. The library of an output is imported here."""
    if output != "torch" and (device is not None or pin is not None):
        raise PlanError(f'expected a device or pin with output="torch" alone, got {device} and {pin} with {output!r}')
    if callable(output):
        return output if layout is None else partial(_after_layout, layout, output)
    if output == "numpy":
        return layout or as_it_is
    if output == "torch":
        convert = importlib.import_module("penstock.loading.torch").TorchOutput(device, pin)
    elif output == "jax":
        return importlib.import_module("penstock.loading.jax").JaxOutput(sharding, layout)
    else:
        raise PlanError(f'expected the output "numpy", "torch" or "jax", or a function of a batch, got {output!r}')
    return convert if layout is None else ArrangedOutput(layout, convert)
