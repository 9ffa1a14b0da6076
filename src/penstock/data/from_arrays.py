"""`from_arrays` and `from_records`: a dataset from arrays or records in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.columns import flatten
from penstock.core.narrowing import is_mapping
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.spec import Align, Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.errors import ArgumentError, SpecError
from penstock.formats.memory import MemorySource
from penstock.formats.records import RandomAccess, RecordSource


def from_records(
    source: RandomAccess,
    *,
    columns: Sequence[str] | Mapping[str, Field] | None = None,
    fingerprint: str | None = None,
) -> EpisodeDataset:
    """Read records of another library in place, as a dataset with one episode of one step for each record.

    A record is a dict. It may be nested, and a tuple counts as a dict with the keys "0", "1", and so on. Numbers and
    arrays of one shape become step columns. Text, bytes and arrays of varying length become ragged episode columns.

    Only the first 16 records are read when the dataset is opened. `source` is called from several threads.

    Args:
        source: Any object with `__len__` and `__getitem__`: a list, a map-style PyTorch dataset, or a Grain
            `RandomAccessDataSource`.
        columns: Names of the columns to read, or a mapping from names to `Field`. Give a `Field` where the first 16
            records do not show the dtype or shape. Default: every column of these records.
        fingerprint: Text that identifies the data. Change it whenever the data changes. Default: made from the `repr`
            and the length of `source`.

    Returns:
        A dataset with `len(source)` episodes.

    Raises:
        SpecError: A record does not fit the columns, when opened or when read. The message has its number.

    Example:
        >>> data = from_records([{"x": 1.5, "text": "go"}, {"x": 2.5, "text": "left"}])
        >>> len(data), data.steps()[:]["x"].tolist(), data[1].columns["text"].strings()
        (2, [1.5, 2.5], ['left'])
    """
    return EpisodeDataset(RecordSource(source, columns, fingerprint))


OF_STEPS = frozenset({"actions", "rewards", "terminations", "truncations"})  # columns with one row for each step


def from_arrays(
    columns: Mapping[str, Any],
    lengths: Sequence[int],
    *,
    align: Mapping[str, Align] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> EpisodeDataset:
    """Make a dataset from arrays in memory.

    The number of rows tells how a column is aligned: `sum(lengths)` rows are steps, and `sum(lengths) + len(lengths)`
    rows are boundaries, one row more for each episode: observations before the first step and after every step.
    `len(lengths)` rows are episodes, one row for each. Actions, rewards, terminations and truncations are steps, unless
    `align` says otherwise.

    Args:
        columns: Arrays `[rows, ...]` or `Ragged`, in a nested dict or by path. Each has the rows of all episodes in
            order. Arrays are not copied if they are C-contiguous.
        lengths: Number of steps of each episode.
        align: `"step"`, `"boundary"` or `"episode"` by path, where the number of rows fits several. The default is
            None: steps before boundaries before episodes.
        metadata: Metadata of the dataset. The default is none.

    Returns:
        The dataset.

    Raises:
        SpecError: The rows of a column fit no alignment.
        ArgumentError: The columns have no names, or the lengths are no list.

    Example:
        >>> import numpy as np
        >>> data = from_arrays({"observations": np.zeros((7, 2)), "actions": np.zeros(5)}, lengths=[2, 3])
        >>> data.spec["observations"].align, data[0].observations.shape
        ('boundary', (3, 2))
    """
    if not is_mapping(columns):
        message = f"expected arrays by name, such as {{'observations': array}}, got {type(columns).__name__}"
        raise ArgumentError(f"{message}; penstock.from_records takes a list of dicts")
    if isinstance(lengths, str) or not hasattr(lengths, "__len__"):
        raise ArgumentError(f"expected the number of steps of each episode, such as lengths=[2, 3], got {lengths!r}")
    flat = flatten(columns)
    offsets = offsets_of(lengths)
    given: dict[str, Align] = dict(align or {})
    if unknown := given.keys() - flat.keys():
        raise SpecError(f"expected align= of columns among {list(flat)}, got {sorted(unknown)}")
    steps, episodes = int(offsets[-1]), len(lengths)
    fields: dict[str, Field] = {}
    for path, array in flat.items():
        inferred = "step" if path.partition("/")[0] in OF_STEPS else _align(len(array), steps, episodes)
        fields[path] = _field(array, given.get(path) or inferred)
    spec = Spec(fields)
    return EpisodeDataset(MemorySource(spec, flat, offsets, metadata))


def _align(rows: int, steps: int, episodes: int) -> Align:
    if rows == steps:
        return "step"
    if rows == steps + episodes:
        return "boundary"
    return "episode" if rows == episodes else "step"  # which the source refuses


def _field(array: Array, align: Align) -> Field:
    if isinstance(array, Ragged):
        return Field(array.dtype, array.values.shape[1:], align, "ragged")
    return Field(array.dtype, array.shape[1:], align)
