"""Batches as JAX arrays: on the default device, or laid out over devices and processes by a sharding."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.columns import Columns, nest
from penstock.core.ragged import Ragged
from penstock.errors import PlanError, SpecError, require
from penstock.load.adapter import Adapter
from penstock.load.loader import Loader
from penstock.load.ticket import Batch, Ticket

if TYPE_CHECKING:
    import jax
else:
    jax = require("jax", "jax")


class JaxArrays(dict[str, Any]):
    """A batch as nested dicts of JAX arrays, with the `ticket` of its rows; None where there is none.

    It is a pytree as a dict is one. The ticket is no part of it, so that a new one compiles nothing anew.
    """

    def __init__(self, tree: Mapping[str, Any] = {}, ticket: Ticket | None = None) -> None:
        super().__init__(tree)
        self.ticket = ticket


def _flattened(batch: JaxArrays) -> tuple[list[tuple[Any, Any]], Hashable]:
    names = sorted(batch)
    return [(jax.tree_util.DictKey(name), batch[name]) for name in names], tuple(names)


def _restored(names: Any, values: Iterable[Any]) -> JaxArrays:
    return JaxArrays(dict(zip(names, values, strict=True)))


jax.tree_util.register_pytree_with_keys(JaxArrays, _flattened, _restored)


def to_jax(columns: Columns, sharding: jax.sharding.Sharding | None = None) -> JaxArrays:
    """A batch as nested dicts of JAX arrays, in JAX's own precision (64-bit types are halved unless it is told not to).

    With a `sharding` the rows of all processes together are one global array, each process giving its own; then their
    number must divide evenly over processes and shards. Without one, a `Ragged` column becomes
    `{"values": ..., "offsets": ...}`.

    Raises `SpecError` for ragged columns under a sharding, and what JAX raises for rows that do not divide.

    >>> to_jax(Columns({"observations": {"x": np.zeros((2, 3), "f4")}}))["observations"]["x"].shape
    (2, 3)
    """
    arrays = {path: _array(path, array, sharding) for path, array in columns.flat.items()}
    return JaxArrays(nest(arrays), columns.ticket if isinstance(columns, Batch) and columns.has_ticket else None)


def _array(path: str, array: Any, sharding: jax.sharding.Sharding | None) -> Any:
    if isinstance(array, Ragged):
        if sharding is not None:
            raise SpecError(
                f"expected columns with rows of one shape to shard, got ragged rows - in {path}; select others"
            )
        return {"values": jax.numpy.asarray(array.values), "offsets": jax.numpy.asarray(array.offsets)}
    if sharding is None:
        return jax.numpy.asarray(array)
    return jax.make_array_from_process_local_data(sharding, np.ascontiguousarray(array))


class JaxLoader(Adapter[JaxArrays]):
    """A `Loader` whose batches are nested dicts of JAX arrays, handed over one batch ahead of the consumer.

    With a `sharding` every array is global: it has the rows of the whole batch, and each process loads its own share.
    JAX wants shares of one size there, so with several processes the loader must have `drop_last`, and a `batch_size`
    that they divide. Each batch has the `ticket` of the rows that this process loaded.

    Raises `PlanError` where shares would differ.

    >>> import penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
    >>> [float(batch["rewards"].sum()) for batch in JaxLoader(Loader(data.samples(), batch_size=3))]
    [3.0, 12.0]
    """

    def __init__(self, loader: Loader, sharding: jax.sharding.Sharding | None = None) -> None:
        super().__init__(loader, ahead=1)
        if sharding is not None and not loader.even:
            raise PlanError(
                f"expected shares of one size for a sharding over {loader.ranks.world} processes, got shares that may "
                "differ by a row; give the Loader drop_last=True and a batch_size that the processes divide"
            )
        self.sharding = sharding

    def hand_over(self, batch: Batch) -> JaxArrays:
        """The batch as JAX arrays."""
        return to_jax(batch, self.sharding)
