"""Batches as JAX arrays, on one device or sharded over devices and processes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.columns import Columns, nest
from penstock.core.ragged import Ragged
from penstock.errors import SpecError, require
from penstock.loading.ticket import Batch, Ticket

if TYPE_CHECKING:
    import jax
else:
    jax = require("jax", "jax")


class JaxArrays(dict[str, Any]):
    """A batch as nested dicts of JAX arrays, with a `ticket` and the `weight` of the share of this rank.

    It is a pytree like a dict. The ticket is not part of the pytree, so a new ticket causes no compilation.

    Args:
        tree: Nested dict of arrays. The default is empty.
        ticket: Batch ticket. The default is None: no ticket.
        weight: Weight of the share of this rank, as in `Batch`. The default is 1.

    Example:
        >>> import jax.numpy as jnp
        >>> JaxArrays({"x": jnp.zeros(2)})["x"].shape
        (2,)
    """

    def __init__(self, tree: Mapping[str, Any] = {}, ticket: Ticket | None = None, weight: float = 1.0) -> None:
        super().__init__(tree)
        self.ticket = ticket
        self.weight = weight


def _flattened(batch: JaxArrays) -> tuple[list[tuple[Any, Any]], Hashable]:
    names = sorted(batch)
    return [(jax.tree_util.DictKey(name), batch[name]) for name in names], tuple(names)


def _restored(names: Any, values: Iterable[Any]) -> JaxArrays:
    return JaxArrays(dict(zip(names, values, strict=True)))


_jax: Any = jax  # for functions that have arguments without types
_jax.tree_util.register_pytree_with_keys(JaxArrays, _flattened, _restored)


def to_jax(columns: Columns, sharding: jax.sharding.Sharding | None = None) -> JaxArrays:
    """Convert a batch to nested dicts of JAX arrays.

    JAX halves 64-bit types unless `jax_enable_x64` is set.

    Args:
        columns: The batch.
        sharding: Sharding of global arrays. The rows of all processes together are one array, and their number must
            divide evenly over processes and shards. The default is None: the default device. A `Ragged` column then
            becomes `{"values": ..., "offsets": ...}`.

    Returns:
        Arrays by name, nested as the columns, with the ticket of the batch.

    Raises:
        SpecError: There is a sharding, and a column is ragged.
        ValueError: JAX cannot divide the rows.

    Example:
        >>> import numpy as np
        >>> to_jax(Columns({"observations": {"x": np.zeros((2, 3), "f4")}}))["observations"]["x"].shape
        (2, 3)
    """
    arrays = {path: _array(path, array, sharding) for path, array in columns.flat.items()}
    if not isinstance(columns, Batch):
        return JaxArrays(nest(arrays))
    return JaxArrays(nest(arrays), columns.ticket if columns.has_ticket else None, columns.weight)


def _array(path: str, array: Any, sharding: jax.sharding.Sharding | None) -> Any:
    if isinstance(array, Ragged):
        if sharding is not None:
            raise SpecError(
                f"expected columns with rows of one shape to shard, got ragged rows - in {path}; select others"
            )
        return {"values": _jax.numpy.asarray(array.values), "offsets": _jax.numpy.asarray(array.offsets)}
    if sharding is None:
        return _jax.numpy.asarray(array)
    return _jax.make_array_from_process_local_data(sharding, np.ascontiguousarray(array))


class JaxOutput:
    """Makes JAX arrays of batches, with a sharding global ones."""

    def __init__(self, sharding: jax.sharding.Sharding | None = None) -> None:
        self._sharding = sharding

    def __call__(self, batch: Batch) -> JaxArrays:
        """Return the batch as JAX arrays."""
        return to_jax(batch, self._sharding)
