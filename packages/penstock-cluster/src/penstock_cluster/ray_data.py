"""Samples as a `ray.data.Dataset`, in the order of their plan.

A read task reads a range of positions. The samples are a function of their positions, so a task that Ray runs again, on
any node, gives the same rows. The order of the plan costs no shuffle through Ray's object store.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged
from penstock.data.map_dataset import LONGEST_SLICE, MapDataset, planned_samples
from penstock.errors import PlanError, SpecError, require

if TYPE_CHECKING:
    import ray.data
else:
    ray = require("ray", "ray", "penstock-cluster")
    ray.data = require("ray.data", "ray", "penstock-cluster")

# These have no types, or incomplete ones.
_ray: Any = ray
_arrow: Any = require("pyarrow", "ray", "penstock-cluster")
_extensions: Any = require("ray.data.extensions", "ray", "penstock-cluster")
BLOCK_BYTES = 16 << 20
"""Bytes of a block of rows at most, unless one sample is larger. Ray recommends 1 to 128 MiB."""

ArrowTable = Any
"""A `pyarrow.Table`, which has no types."""


def to_ray(dataset: MapDataset, *, blocks: int | None = None) -> ray.data.Dataset:
    """Return the samples of one epoch as a dataset of Ray Data, in the order of the plan.

    Ray starts, unless this process is connected to a cluster. Every node needs the same version of penstock, and access
    to the data under the same location. Nothing is read before Ray asks for rows.

    Args:
        dataset: The samples. Functions of `map` run on the nodes.
        blocks: Number of read tasks. The default is None: Ray chooses it. The rows and their order do not depend on it.

    Returns:
        A dataset with a column for each path, such as `"observations/image"`. Arrays are tensors, and `Ragged` rows are
        lists, or tensors of different shapes. Rows come in order, also after `map_batches` and other functions
        that keep rows in place, because `preserve_order` of the context is set.

    Raises:
        ArgumentError: `dataset` is not a `MapDataset`.
        PlanError: There are no samples, or more than 2^40, as in an endless mix.
        MissingExtraError: Ray, pandas or PyArrow is not installed.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"x": [1.0, 2.0, 3.0]}, lengths=[3])
        >>> rows = to_ray(data.steps().shuffle(seed=0))  # doctest: +SKIP
        >>> rows.take(2)  # doctest: +SKIP
        [{'x': 3.0}, {'x': 1.0}]
        >>> table_of(data.steps()[:]).column_names
        ['x']
    """
    samples = planned_samples(dataset)
    if not 0 < len(dataset) <= LONGEST_SLICE:
        why = dataset.plan.why_empty() if dataset.plan.empty else "with_epoch_length(n) makes epochs of n samples"
        raise PlanError(f"expected between 1 and {LONGEST_SLICE} samples, got {len(dataset)}; {why}")
    pickled: bytes = _ray.cloudpickle.dumps(dataset)  # not the object: Ray would give its arrays out as read-only
    source = _PlanSource(_ray.put(pickled), len(dataset), max(samples.row_bytes(), 1))
    rows: Any = _ray.data.read_datasource(source, override_num_blocks=blocks)
    rows.context.execution_options.preserve_order = True  # of this dataset alone: it has a copy of the settings
    return rows


class _PlanSource(ray.data.Datasource):
    """Read tasks of ranges of positions. The dataset is in Ray's object store once, and not within each task."""

    def __init__(self, reference: ray.ObjectRef[bytes], count: int, row_bytes: int) -> None:
        super().__init__()
        self._reference = reference
        self._count = count
        self._row_bytes = row_bytes

    @override
    def estimate_inmemory_data_size(self) -> int:
        return self._count * self._row_bytes

    @override
    def get_name(self) -> str:
        return "Penstock"

    @override
    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ray.data.ReadTask]:
        tasks = max(min(parallelism, self._count), 1)
        edges = [self._count * number // tasks for number in range(tasks + 1)]
        step = max(BLOCK_BYTES // self._row_bytes, 1)
        metadata = _ray.data.block.BlockMetadata
        return [
            ray.data.ReadTask(
                functools.partial(_read_blocks, self._reference, first, last, step),
                metadata(
                    num_rows=last - first,
                    size_bytes=(last - first) * self._row_bytes,
                    input_files=None,
                    exec_stats=None,
                ),
                per_task_row_limit=per_task_row_limit,
            )
            for first, last in pairwise(edges)
        ]


def _read_blocks(reference: ray.ObjectRef[bytes], first: int, last: int, step: int) -> Generator[ArrowTable]:
    """Yield the samples of positions `first` to `last - 1`, in blocks of `step` rows."""
    dataset = _dataset_of(reference)
    for begin in range(first, last, step):
        yield table_of(planned_samples(dataset).at(np.arange(begin, min(begin + step, last))))


@functools.lru_cache(maxsize=1)
def _dataset_of(reference: ray.ObjectRef[bytes]) -> MapDataset:
    """The dataset, opened once for all tasks of this process."""
    return _ray.cloudpickle.loads(ray.get(reference))


def table_of(columns: Columns) -> ArrowTable:
    """Return columns as a block of Ray Data.

    Args:
        columns: Rows of samples.

    Returns:
        An Arrow table with a column for each path. An array `[n]` is a plain column, and `[n, ...]` a column of
        tensors. `Ragged` rows are lists if their values are numbers, and else tensors of different shapes.

    Raises:
        SpecError: A column has windows of ragged rows whose values are arrays.

    Example:
        >>> table_of(Columns({"a": {"b": np.zeros(2)}, "text": Ragged.from_strings(["go", ""])})).column_names
        ['a/b', 'text']
    """
    return _arrow.table({path: _arrow_array(path, array) for path, array in columns.flat.items()})


def _arrow_array(path: str, array: Array) -> Any:
    if isinstance(array, Ragged):
        return _arrow_lists(path, array)
    return (
        _arrow.array(array) if array.ndim == 1 else _extensions.ArrowTensorArray.from_numpy(np.ascontiguousarray(array))
    )


def _arrow_lists(path: str, array: Ragged) -> Any:
    if array.values.ndim > 1:
        if len(array.grid) > 1:
            raise SpecError(
                f"expected ragged rows of numbers in windows, got rows of arrays - in {path}; select others"
            )
        rows = np.empty(len(array), object)
        rows[:] = [array[i] for i in range(len(array))]
        return _extensions.ArrowVariableShapedTensorArray.from_numpy(rows)
    lists = _arrow.LargeListArray.from_arrays(_arrow.array(array.offsets), _arrow.array(array.values))
    if len(array.grid) == 1:
        return lists
    steps = np.arange(array.grid[0] + 1) * array.grid[1]
    return _arrow.LargeListArray.from_arrays(_arrow.array(steps), lists)
