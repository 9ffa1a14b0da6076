"""Batches as JAX arrays, on one device or sharded over devices and processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns, nest
from penstock.core.narrowing import is_array, is_list, is_mapping, is_tuple
from penstock.core.ragged import Ragged
from penstock.errors import PlanError, SpecError, require
from penstock.loading.arranged import BatchDict, mark_of, through
from penstock.loading.ranks import MeshRows, Ranks, ranks
from penstock.loading.ticket import Batch

# A sharding also decides which rows a process loads: the rows of its devices, in the order of the batch. So a global
# array is the batch of a single process, in the same order, for any order of devices in a mesh. Processes whose devices
# have the same rows load the same rows.

if TYPE_CHECKING:
    import jax
else:
    jax = require("jax", "jax")


class JaxArrays(BatchDict):
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


def _flattened(batch: JaxArrays) -> tuple[list[tuple[Any, Any]], Hashable]:
    names = sorted(batch)
    return [(jax.tree_util.DictKey(name), batch[name]) for name in names], tuple(names)


def _restored(names: Any, values: Iterable[Any]) -> JaxArrays:
    return JaxArrays(dict(zip(names, values, strict=True)))


_jax: Any = jax  # for functions that have arguments without types
_jax.tree_util.register_pytree_with_keys(JaxArrays, _flattened, _restored)


def to_jax(columns: Columns, sharding: Any = None) -> JaxArrays:
    """Convert a batch to nested dicts of JAX arrays.

    JAX has no 64-bit types unless `jax_enable_x64` is set. Integers then become 32-bit ones, if their values fit.

    Args:
        columns: The batch.
        sharding: A `jax.sharding.Sharding` for all arrays, or a nested dict of one for each, as the columns are nested;
            one for a prefix is for all columns below. Over devices of several processes, the arrays are global, and
            `columns` are the rows of the devices of this process, in the order of the global array. The default is
            None: the default device. A `Ragged` column then becomes `{"values": ..., "offsets": ...}`.

    Returns:
        Arrays by name, nested as the columns, with the ticket of the batch.

    Raises:
        SpecError: JAX cannot hold the values of a column, or there is a sharding, and a column is ragged or has no
            sharding.
        ValueError: JAX cannot divide the rows.

    Example:
        >>> import numpy as np
        >>> to_jax(Columns({"observations": {"x": np.zeros((2, 3), "f4")}}))["observations"]["x"].shape
        (2, 3)
    """
    return JaxOutput(sharding)(columns)


class JaxOutput:
    """Makes JAX arrays of batches, with a sharding global ones."""

    def __init__(self, sharding: Any = None, layout: Callable[[Batch], Any] | None = None) -> None:
        self._sharding, self._layout = sharding, layout
        self._rows = None if sharding is None else mesh_rows(sharding)

    def __call__(self, batch: Columns) -> Any:
        """Return the batch as JAX arrays."""
        arranged: Any = batch if self._layout is None else self._layout(batch)  # pyright: ignore[reportArgumentType]
        if isinstance(arranged, Columns):
            leaves = _leaves(nest(arranged.flat), self._sharding)
            return JaxArrays(nest({leaf.name: self._array(leaf) for leaf in leaves}), *mark_of(arranged))
        leaves = iter(list(_leaves(arranged, self._sharding)))  # in the order in which `through` meets them
        return through(
            arranged, batch.n, lambda columns: JaxArrays({key: self._array(next(leaves)) for key in columns.flat})
        )

    def _array(self, leaf: _Leaf) -> Any:
        name, array, sharding = leaf
        if isinstance(array, Ragged):
            parts = {"values": array.values, "offsets": array.offsets}
            return {part: _jax.numpy.asarray(_held(f"{name}/{part}", values)) for part, values in parts.items()}
        array = _held(name, array)
        if sharding is None:
            return _jax.numpy.asarray(array)
        if self._rows is None:
            return _jax.device_put(array, sharding)
        return _global(array, sharding, self._rows)


class _Leaf(NamedTuple):
    name: str
    array: AnyArray | Ragged
    sharding: Any


def _leaves(value: Any, sharding: Any, name: str = "") -> Iterator[_Leaf]:
    """The arrays of nested dicts and tuples, with the sharding of each."""
    whole = sharding is None or isinstance(sharding, jax.sharding.Sharding)
    if is_mapping(value) or is_tuple(value):
        items: Mapping[str, Any] = value if is_mapping(value) else {str(i): each for i, each in enumerate(value)}
        for key, below in (dict.fromkeys(items, sharding) if whole else _beside(items, sharding, name)).items():
            yield from _leaves(items[key], below, f"{name}/{key}" if name else key)
    elif sharding is None:
        if is_array(value) or isinstance(value, Ragged):
            yield _Leaf(name, value, None)
    elif not is_array(value) or not whole:
        got = "ragged rows" if isinstance(value, Ragged) else f"{type(value).__name__}, and {type(sharding).__name__}"
        raise SpecError(
            f"expected an array with rows of one shape, and a Sharding for it, got {got} - in {name}; leave it out "
            "with select_columns or a layout"
        )
    else:
        yield _Leaf(name, value, sharding)


def _beside(items: Mapping[str, Any], sharding: Any, name: str) -> dict[str, Any]:
    """The shardings of the items, by their names or numbers."""
    listed = is_tuple(sharding) or is_list(sharding)
    below: Any = {str(i): each for i, each in enumerate(sharding)} if listed else sharding
    if not is_mapping(below) or set(below) != set(items):
        got = list(below) if is_mapping(below) else type(sharding).__name__
        where = f" - in {name}" if name else ""
        raise SpecError(
            f"expected one sharding for all arrays, or one for each of {list(items)}, got {got}{where}; a tree of "
            "shardings is nested as the batch is, after its layout"
        )
    return {key: below[key] for key in items}


def _held(name: str, array: AnyArray) -> AnyArray:
    """Return an array with a dtype of JAX, and equal values."""
    if not (_jax.numpy.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise SpecError(
            f"expected numbers for JAX, got {array.dtype} - in {name}; leave it out with select_columns or a layout"
        )
    kept: np.dtype[Any] = np.dtype(_jax.dtypes.canonicalize_dtype(array.dtype))
    if kept == array.dtype:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "iu":
        raise SpecError(
            f"expected at most {kept} for JAX, which would round {array.dtype} to it, got {array.dtype} - in {name}; "
            "give the loader float32=True to round it, or set jax_enable_x64"
        )
    least, most = np.iinfo(kept).min, np.iinfo(kept).max
    if array.size and not (least <= array.min() and array.max() <= most):
        raise SpecError(
            f"expected values of {kept} for JAX, got {array.min()} to {array.max()} - in {name}; set jax_enable_x64, "
            "or leave it out with select_columns"
        )
    return array.astype(kept)


def _global(array: AnyArray, sharding: jax.sharding.Sharding, rows: MeshRows) -> Any:
    """Return the global array of which this process has some rows."""
    part = len(array) // len(rows.mine)
    n = part * len(rows.holders)
    if part * len(rows.mine) != len(array):
        raise PlanError(f"expected a number of rows that {len(rows.mine)} parts divide, got {len(array)}")

    def shard(index: tuple[slice, ...]) -> AnyArray:
        start, stop, _ = index[0].indices(n)
        first = rows.mine.index(start // part) * part  # the parts of a shard are next to each other here too
        return array[(slice(first, first + stop - start), *index[1:])]

    return _jax.make_array_from_callback((n, *array.shape[1:]), sharding, shard)


def _all_shardings(sharding: Any) -> list[jax.sharding.Sharding]:
    shardings: list[Any] = _jax.tree_util.tree_leaves(sharding)
    if not shardings or not all(isinstance(each, jax.sharding.Sharding) for each in shardings):
        raise SpecError(
            f"expected a Sharding, or a tree of them, got {sharding!r}; make one of a PartitionSpec with "
            "jax.sharding.NamedSharding(mesh, spec)"
        )
    return shardings


def _shards(sharding: Any) -> list[tuple[int, int, int]]:
    """Process of each device, the part of the rows that it has, and the number of parts."""
    devices = len(sharding.device_set)
    dimensions = max(len(getattr(sharding, "spec", ())), 1)
    slices = sharding.devices_indices_map((devices,) * dimensions)  # a size that every mesh divides
    spans = [(device.process_index, *index[0].indices(devices)[:2]) for device, index in slices.items()]
    return [(process, start // (stop - start), devices // (stop - start)) for process, start, stop in spans]


def mesh_rows(sharding: Any) -> MeshRows | None:
    """Return the rows of the devices of this process, or None if all devices are here."""
    shardings = _all_shardings(sharding)
    local = [each.is_fully_addressable for each in shardings]
    if all(local):
        return None
    if any(local):
        raise PlanError(
            "expected shardings over the devices of all processes, or of this one alone, got both; give all "
            "arrays one mesh, and PartitionSpec() where every device has the whole array"
        )
    shards = [shard for each in shardings for shard in _shards(each)]
    parts = math.lcm(*(count for _, _, count in shards))
    holders, mine = [_jax.process_count()] * parts, set[int]()
    for process, number, count in shards:
        times = parts // count
        for part in range(number * times, (number + 1) * times):
            holders[part] = min(holders[part], process)
            if process == _jax.process_index():
                mine.add(part)
    if not mine:
        raise PlanError(f"expected a mesh with devices of process {_jax.process_index()}, got one without")
    return MeshRows(tuple(sorted(mine)), tuple(holders))


def rows_under(sharding: Any, rank: int | None, world: int | None) -> tuple[Ranks, int]:
    """Return the rows of this process under a sharding, and the number that must divide every batch."""
    rows = mesh_rows(sharding)
    if rows is None:
        shares = ranks(rank, world)
        return shares, shares.world * max(count for each in _all_shardings(sharding) for _, _, count in _shards(each))
    process, processes = _jax.process_index(), _jax.process_count()
    if (rank, world) not in ((None, None), (process, processes)):
        raise PlanError(
            f"expected no rank and world with a sharding over the devices of {processes} processes, which says the "
            f"rows of each, got rank={rank} and world={world}"
        )
    return Ranks(process, processes, "jax.distributed", rows), len(rows.holders)
