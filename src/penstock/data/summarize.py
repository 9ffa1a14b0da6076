"""`statistics`: one pass over episodes or samples, by several threads, each with its own counters.

Rows are cut into *leaves*: at most 1,024 steps of one episode, or one sample. The counters of a leaf depend on its rows
alone, and adding counters is exact, so the result depends neither on the threads nor on how the data are partitioned
into datasets of whole episodes (or samples) whose statistics are merged. A block of leaves, some MB, is read at once,
all columns together, because many formats decode the columns of a row together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray, IntArray
from penstock.core.columns import under
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.data.column_counters import Counters, ReadBuffers
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.progress import tracked
from penstock.data.statistics import Statistics
from penstock.errors import ArgumentError, PlanError, SpecError, suggestion
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.plan.base import is_endless

LEAF = 1024
"""Most steps of a leaf. Another number would round the sums of squares in other places."""
BLOCK_BYTES = 1 << 22
"""Bytes that a thread reads and counts at a time: some calls of Python a block, which cost little then."""


def statistics(
    data: EpisodeDataset | MapDataset,
    columns: Sequence[str] | None = None,
    *,
    by: str | Sequence[Hashable] | None = None,
    samples: int | None = None,
    final_observations: bool = True,
    threads: int | None = None,
    progress: bool | None = None,
) -> Statistics:
    """Compute counts, means, standard deviations, extremes, quantiles and histograms of columns.

    The result does not depend on threads, order or partition: statistics of parts of the episodes, merged with `|`,
    equal the statistics of all of them, to the last bit.

    Args:
        data: Episodes: every row of each chosen episode counts once. Or samples, also of a mix: each sample counts as
            often as it is drawn, without padding.
        columns: Paths of columns, or prefixes such as `"observations"`. The default is None: all numeric columns.
        by: Group the rows as well: the name of a column with one value an episode (or sample), of an entry of the
            episodes' metadata, or `[E]` labels of the episodes. The default is None.
        samples: With samples, how many to draw, from position 0 on. The default is None: one epoch.
        final_observations: With episodes, whether the row after the last step counts too, of columns with T + 1 rows
            such as observations. False counts rows at which an action was taken, as samples of single steps do. The
            default is True.
        threads: Threads that read and count. 0 works in the caller. The default is None: the number of cores.
        progress: Whether to show a progress bar. The default is None: on a terminal.

    Returns:
        Statistics by column path. Text is left out; `skipped` says why a column has no statistics. Cost: one pass, 1 to
        2 ns of CPU time a number and 0.3 ns a byte of a picture, where data are in memory or mapped. Memory: 256 kB a
        number of a row and thread, at least 1 MB, at most 64 MB a column.

    Raises:
        ArgumentError: `data` is neither, `samples` is given for episodes or `final_observations` for samples, or
            another argument has a wrong type.
        PlanError: `by` or `samples` is unknown or out of range, or the samples never end and `samples` is None.
        SpecError: A column is unknown or has no numbers.

    Example:
        >>> import numpy as np, penstock
        >>> columns = {"actions": np.arange(8).reshape(4, 2), "task": np.array([7, 8])}
        >>> data = penstock.from_arrays(columns, lengths=[3, 1])
        >>> stats = penstock.statistics(data, by="task")
        >>> stats["actions"].mean.tolist(), stats.groups[8]["actions"].max.tolist()
        ([3.0, 4.0], [6.0, 7.0])
    """
    if isinstance(data, EpisodeDataset):
        if samples is not None:
            raise ArgumentError("expected samples= with samples, got it with episodes; data[:100] chooses episodes")
        walk = episode_blocks(data, columns, by, final_observations)
    elif isinstance(data, MapDataset):  # pyright: ignore[reportUnnecessaryIsInstance]
        if not final_observations:
            raise ArgumentError("expected final_observations= with episodes, got it with samples")
        walk = _sample_walk(data, columns, by, samples)
    else:
        raise ArgumentError(f"expected an EpisodeDataset or a MapDataset, got {type(data).__name__}")
    return count_blocks(walk, range(len(walk.weights)), threads, progress)


@dataclass(frozen=True, eq=False)
class StatisticsBlocks:
    """The blocks of a dataset, and the rows of a block by label and column."""

    weights: IntArray
    read: Callable[[int, ReadBuffers], Iterable[tuple[Hashable, str, Array, IntArray]]]
    labelled: bool
    skipped: dict[str, str]


def count_blocks(
    walk: StatisticsBlocks, blocks: range, threads: int | None = None, progress: bool | None = False
) -> Statistics:
    """Return the statistics of some blocks. Merged over all blocks, they are the statistics of the dataset.

    A thread borrows counters that no other thread uses, or makes new ones.
    """
    idle: list[Counters] = []
    counters_of_parts: list[Counters] = []
    lock = threading.Lock()

    def work(block: int) -> None:
        with lock:
            counters = idle.pop() if idle else Counters()
            if counters not in counters_of_parts:
                counters_of_parts.append(counters)
        for order, (label, path, rows, leaves) in enumerate(walk.read(block, counters.buffers)):
            counters.add(label, path, rows, leaves)
            place = counters.first.get(label, (block, order))
            counters.first[label] = min(place, (block, order))
        with lock:
            idle.append(counters)

    with OrderedMap(work, blocks, PrefetchLimits(threads)) as done:
        for _ in tracked(blocks, "statistics", progress):
            done.get()
    first: dict[Hashable, tuple[int, int]] = {}
    counters = Counters()
    for part in counters_of_parts:
        counters.merge(part)
        first |= {label: min(place, first.get(label, place)) for label, place in part.first.items()}
    groups = counters.statistics()
    merged = Statistics({}, skipped=walk.skipped)
    for by_column in groups.values():
        merged |= by_column
    if walk.labelled:
        merged.groups.update({label: groups[label] for label in sorted(groups, key=first.__getitem__)})
    return merged


def _numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _chosen(wanted: Sequence[str] | None, known: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Columns to count, and columns that are skipped with the reason. `known` has the reason not to count a column."""
    if isinstance(wanted, str):
        raise ArgumentError(f"expected a list of columns, got {wanted!r}; write [{wanted!r}]")
    if wanted is None:
        return [path for path, why in known.items() if not why], {path: why for path, why in known.items() if why}
    paths: list[str] = []
    for name in wanted:
        below = [path for path in known if under(name, path)]
        if not below:
            raise SpecError(f"expected columns among {list(known)}, got {name!r}{suggestion(name, known)}")
        if bad := next((path for path in below if known[path]), None):
            raise SpecError(f"expected columns of numbers, got {bad}: {known[bad]}")
        paths += below
    return list(dict.fromkeys(paths)), {}


def episode_blocks(
    data: EpisodeDataset,
    columns: Sequence[str] | None,
    by: str | Sequence[Hashable] | None,
    final_observations: bool = True,
) -> StatisticsBlocks:
    """Cut the chosen episodes into leaves of at most `LEAF` steps, and these into blocks of `BLOCK_BYTES`."""
    source, spec = data.source, data.spec
    why = {path: _reason(f.kind, f.dtype) for path, f in spec.items()}
    paths, skipped = _chosen(columns, why)
    labels = None if by is None else _episode_labels(data, by)
    order = np.arange(len(data)) if labels is None else np.argsort(_numbers(labels), kind="stable")
    index = data.episodes.index[order]
    length = data.episodes.length[order]
    pieces = np.maximum(-(-length // LEAF), 1)
    episode = np.repeat(np.arange(len(index)), pieces)
    first = (np.arange(len(episode)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * LEAF
    last = np.minimum(first + LEAF, length[episode])
    row_bytes = sum(spec[path].row_bytes for path in paths)
    size = np.cumsum((last - first + 1) * max(row_bytes, 1))
    end = int(size[-1]) if len(size) else 0
    cuts = np.unique(np.searchsorted(size, np.arange(BLOCK_BYTES, end, BLOCK_BYTES)))
    changes: IntArray = np.zeros(0, np.int64)
    if labels is not None:  # a block has one label
        number = _numbers(labels)[order][episode]
        changes = np.flatnonzero(np.diff(number)) + 1
    bounds = np.unique(np.concatenate([[0], cuts, changes, [len(episode)]])).astype(np.int64)
    start = data.episodes.start[order]
    begins: dict[Align, IntArray] = {"step": start, "boundary": start + index, "episode": index}

    def read(block: int, buffers: ReadBuffers) -> Iterator[tuple[Hashable, str, Array, IntArray]]:
        part = slice(int(bounds[block]), int(bounds[block + 1]))
        label = None if labels is None else labels[order[episode[part.start]]]
        chosen = (episode[part], first[part], last[part], length[episode[part]])
        spans = {align: _leaf_rows(align, begins[align], *chosen, final_observations) for align in begins}
        for path in paths:
            field = spec[path]
            start, lengths = spans[field.align]
            selection = _joined(start, lengths)
            leaves = offsets_of(lengths)
            if field.ragged:
                yield label, path, source.read_ragged(path, selection), leaves
                continue
            source.check(field.align, selection)
            one = len(selection.start) == 1
            out = source.view_array(path, int(selection.start[0]), int(leaves[-1])) if one else None
            if out is None:
                out = buffers.rows(path, field, int(leaves[-1]))
                source.read_array(path, selection, out)
            yield label, path, out, leaves

    weights = np.diff(np.concatenate([[0], size])[bounds])
    return StatisticsBlocks(weights, read, labels is not None, skipped)


def _leaf_rows(
    align: Align, begin: IntArray, episode: IntArray, first: IntArray, last: IntArray, length: IntArray, final: bool
) -> tuple[IntArray, IntArray]:
    """First row and number of rows of each leaf. The last leaf has the final row, the first the episode's row."""
    if align == "episode":
        return begin[episode], (first == 0).astype(np.int64)
    extra = (last == length) if align == "boundary" and final else 0
    return begin[episode] + first, last - first + extra


def _joined(start: IntArray, length: IntArray) -> Selection:
    """A selection of rows in one long sample, with consecutive rows in one span."""
    some = length > 0
    start, length = start[some], length[some]
    begins = np.flatnonzero(np.concatenate([[True], start[1:] != start[:-1] + length[:-1]])) if len(start) else start
    rows = np.add.reduceat(length, begins) if len(start) else length
    starts = np.cumsum(rows) - rows
    return Selection(begins * 0, start[begins], rows, starts, (1, int(length.sum())))


def _reason(kind: str, dtype: np.dtype[Any]) -> str:
    if kind == "text":
        return "it is text"
    return "" if _numeric(dtype) else f"its dtype is {dtype}"


def _numbers(labels: Sequence[Hashable]) -> IntArray:
    """Number of each label, in the order of their first use."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(label, len(known)) for label in labels], np.int64)


def _episode_labels(data: EpisodeDataset, by: str | Sequence[Hashable]) -> list[Hashable]:
    index = data.episodes.index
    if not isinstance(by, str):
        if not isinstance(by, Sequence | np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"expected by= as a name, or a label for each episode, got {by!r}")
        if len(by) != len(data):
            raise PlanError(f"expected a label for each of {len(data)} episodes, got {len(by)}")
        return list(by)
    if by in data.spec and data.spec[by].align == "episode":
        rows = data.source.read([by], Selection.of_rows(index))[by]
        return _values(rows if isinstance(rows, Ragged) else rows[0], by)
    metadata = data.source.episode_metadata(index.tolist())
    missing = [i for i, entry in enumerate(metadata) if by not in entry]
    if missing:
        known = dict.fromkeys(
            [p for p, f in data.spec.items() if f.align == "episode"] + [k for m in metadata for k in m]
        )
        raise PlanError(
            f"expected by= as a column with one value an episode or an entry of the metadata among {list(known)}, got "
            f"{by!r}, which episode {index[missing[0]]} lacks{suggestion(by, known)}"
        )
    return [entry[by] if isinstance(entry[by], Hashable) else str(entry[by]) for entry in metadata]


def _values(rows: Array, by: str) -> list[Hashable]:
    """Labels out of a column: text, or one number a row."""
    if isinstance(rows, Ragged):
        return [*rows.strings()]
    if rows.ndim != 1:
        raise PlanError(f"expected by= as a column of one value, got {by!r} of shape {rows.shape[1:]}")
    return rows.tolist()


def _sample_walk(
    data: MapDataset, columns: Sequence[str] | None, by: str | Sequence[Hashable] | None, samples: int | None
) -> StatisticsBlocks:
    """Cut the positions into blocks of about `BLOCK_BYTES`."""
    if by is not None and not isinstance(by, str):
        raise PlanError("expected by= as the name of an output of the samples, got labels; they are for episodes")
    if samples is not None and samples < 0:
        raise PlanError(f"expected samples >= 0, got {samples}")
    n = len(data) if samples is None else samples
    if samples is None and is_endless(data.plan):
        raise PlanError("expected samples= for samples that never end, got None; give the number to draw")
    if n == 0:
        return StatisticsBlocks(np.zeros(0, np.int64), _no_rows, by is not None, {})
    planned = planned_samples(data)
    derived = {mark.name for mark in data.plan.marks}
    one = planned.at(np.zeros(1, np.int64)).flat
    why = {path: _reason("array", array.dtype) for path, array in one.items() if path not in derived}
    paths, skipped = _chosen(columns, why)
    if by is not None and by not in one:
        raise PlanError(f"expected by= as one of {list(one)}, got {by!r}{suggestion(by, one)}")
    each = sum(one[path].nbytes for path in paths)
    block_samples = max(BLOCK_BYTES // max(each, 64), 1)
    views = {read.name: read for read in data.plan.reads}

    def read(block: int, _: ReadBuffers) -> Iterator[tuple[Hashable, str, Array, IntArray]]:
        positions = np.arange(block * block_samples, min((block + 1) * block_samples, n))
        grids = planned.resolve(positions)
        batch = planned.mapped(planned.read(grids), positions).flat
        labels = None if by is None else _values(batch[by], by)
        for label, chosen in _groups(labels):
            for path in paths:
                view = views.get(path)
                mask = None if view is None or view.squeeze else grids[view.view].mask()
                yield label, path, *_sample_rows(batch[path], mask, chosen)

    weights = np.full(-(-n // block_samples), block_samples * each)
    return StatisticsBlocks(weights, read, by is not None, skipped)


def _no_rows(block: int, buffers: ReadBuffers) -> tuple[tuple[Hashable, str, Array, IntArray], ...]:  # noqa: ARG001
    return ()


def _groups(labels: list[Hashable] | None) -> list[tuple[Hashable, IntArray | None]]:
    """Each label with its samples; None for all."""
    if labels is None:
        return [(None, None)]
    numbers = _numbers(labels)
    return [(labels[int(np.argmax(numbers == i))], np.flatnonzero(numbers == i)) for i in range(int(numbers.max()) + 1)]


def _sample_rows(array: Array, mask: BoolArray | None, chosen: IntArray | None) -> tuple[Array, IntArray]:
    """The rows of the chosen samples without padding, and the leaves: one a sample."""
    stepped = mask is not None and array.shape[:2] == mask.shape
    if chosen is not None:
        array = array.take(chosen) if isinstance(array, Ragged) else array[chosen]
        mask = None if mask is None else mask[chosen]
    if not stepped or mask is None:
        return array, np.arange(len(array) + 1)
    real = mask.ravel()
    if isinstance(array, Ragged):
        return array.reshape(real.size).take(np.flatnonzero(real)), offsets_of(mask.sum(axis=1))
    rows = array.reshape(real.size, *array.shape[2:])
    return rows if real.all() else rows[real], offsets_of(mask.sum(axis=1))
