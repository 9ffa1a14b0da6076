"""Looking for damage in a Minari dataset: every finding has the place, the expected value, and the actual one."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray, IntArray
from penstock.core.columns import under
from penstock.core.ragged import Array
from penstock.core.selection import Selection
from penstock.core.spaces import Space, Text
from penstock.errors import DamageWarning, FormatError, PenstockError
from penstock.formats.base.format import Finding
from penstock.formats.base.source import Source
from penstock.formats.minari import ids, metadata, root
from penstock.formats.minari.arrow_source import ArrowSource
from penstock.formats.minari.hdf5_source import Hdf5Source
from penstock.formats.minari.spaces import of_spec

ROWS = 4096  # read and checked at once
SHOWN = 3  # findings of one kind in one column of one episode


def findings(path: Path, open_source: Callable[..., Source]) -> Iterator[Finding]:
    """Every finding of a dataset. Memory: 4096 rows of one column at a time."""
    source, found = _opened(path, open_source)
    yield from found
    if source is None:
        return
    with source:
        yield from _metadata(source)
        spaces = of_spec(source.spec)
        for e in range(len(source)):
            yield from _episode(source, e, spaces)


def _opened(path: Path, open_source: Callable[..., Source]) -> tuple[Source | None, list[Finding]]:
    """The source, with all columns that can be read; and what is wrong with the others, and left out."""
    source: Source | None = None
    found: list[Finding] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for infos in ("strict", "skip"):
            try:
                source = open_source(path, infos=infos, cache="off")
                break
            except FormatError as error:
                found += [Finding("error", str(path), str(error))] if infos == "strict" else []
    told = dict.fromkeys(str(each.message) for each in caught if each.category is DamageWarning)
    return source, found + [Finding("warning", str(path), message) for message in told]


def _metadata(source: Source) -> Iterator[Finding]:
    if not isinstance(source, (Hdf5Source, ArrowSource)):
        return
    where = str(source.folder / metadata.FILE)
    stored = metadata.read_json(source.folder / metadata.FILE) or {}
    for name in ("total_episodes", "total_steps"):
        if name in stored and stored[name] != source.metadata[name]:
            yield Finding(
                "error", where, f"expected {name} {source.metadata[name]} as in the files, got {stored[name]}"
            )
    for name in ("observation_space", "action_space"):
        if name not in source.metadata:
            yield Finding("error", where, f"expected {name}, got none")
    told = source.metadata.get("dataset_id")
    place = source.folder.parent if source.folder.name == root.DATA else source.folder
    if isinstance(told, str) and told != ids.id_of(place) and not ids.id_of(place).endswith(told.rsplit("/", 1)[-1]):
        yield Finding("error", where, f"expected the dataset_id {ids.id_of(place)} of its place, got {told}")
    numbers = source.numbers
    if not np.array_equal(numbers, np.arange(len(numbers))):
        yield Finding("error", str(source.folder), f"expected episodes numbered from 0 on, got {numbers[:8].tolist()}")


def _episode(source: Source, e: int, spaces: dict[str, Space]) -> Iterator[Finding]:
    try:
        entries = source.episode_metadata([e])[0]
        if entries.get("id", e) != e:
            yield Finding("error", f"episode {e}", f"expected the id {e}, got {entries['id']}")
    except PenstockError as error:
        yield Finding("error", f"episode {e}", str(error))
    for path in source.spec:
        try:
            yield from _column(source, e, path, spaces.get(path))
        except FormatError as error:
            yield Finding("error", f"episode {e}/{path}", str(error))
    yield from _flags(source, e)


def _column(source: Source, e: int, path: str, space: Space | None) -> Iterator[Finding]:
    where, shown = f"episode {e}/{path}", Counter[str]()
    for start, rows in _chunks(source, path, e):
        for kind, bad in _judge(path, rows, space):
            for i in bad[: SHOWN - shown[kind]].tolist():
                yield Finding(
                    "error" if kind == "NaN" else "warning", where, f"expected no {kind}, got one in row {start + i}"
                )
                shown[kind] += 1


def _judge(path: str, rows: Array, space: Space | None) -> Iterator[tuple[str, IntArray]]:
    watched = path == "rewards" or under("observations", path)
    bad = np.zeros(len(rows), np.bool_)
    if watched and isinstance(rows, np.ndarray) and rows.dtype.kind in "fc":
        bad = np.isnan(rows).reshape(len(rows), -1).any(axis=1)
        yield "NaN", np.flatnonzero(bad)
    if space is not None:
        inside = _contains(space, rows)
        yield "value outside its space", np.flatnonzero(~inside & ~bad)


def _contains(space: Space, rows: Array) -> BoolArray:
    try:
        return space.contains(rows)
    except UnicodeDecodeError as error:
        raise FormatError(f"expected text in UTF-8 for {Text.type}, got {error}") from error


def _chunks(source: Source, path: str, e: int) -> Iterator[tuple[int, Array]]:
    field = source.spec[path]
    rows = source.rows(field.align)
    first, last = int(rows[e]), int(rows[e + 1])
    one = np.ones(1, np.int64)
    for start in range(first, last, ROWS):
        count = min(ROWS, last - start)
        chunk: Any = source.read([path], Selection(one * 0, one * start, one * count, one * 0, (1, count)))[path]
        yield start - first, chunk.reshape(count) if field.ragged else chunk[0]


def _flags(source: Source, e: int) -> Iterator[Finding]:
    first, last = (int(row) for row in source.offsets[e : e + 2])
    if first == last:
        yield Finding("warning", f"episode {e}", "expected at least one step, got none")
        return
    one = np.ones(1, np.int64)
    selection = Selection(one * 0, one * (last - 1), one, one * 0, (1, 1))
    try:
        ended = source.read(["terminations", "truncations"], selection)
    except FormatError:
        return  # reported with the columns
    if not any(np.asarray(flag).any() for flag in ended.values()):
        yield Finding("warning", f"episode {e}", "expected the last step to be terminated or truncated, got neither")
