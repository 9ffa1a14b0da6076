"""`difference`: which episodes, columns and rows of two datasets differ.

Episodes are compared in ranges of some MB, by threads, and results are added in the order of the ranges, so the answer
does not depend on threads. Memory: a few ranges, or 16 bytes an episode where episodes are matched by content.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.conversion.digests import DIGEST_BYTES, digest
from penstock.conversion.scan import equal
from penstock.core.arrays import BoolArray, IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.core.text import counted
from penstock.data.dataset import EpisodeDataset, selection_of
from penstock.data.progress import tracked
from penstock.errors import ArgumentError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap

Match = Literal["number", "content"]

RANGE = 64  # episodes that are compared together
SHOWN = 256  # episodes that a difference names


@dataclass(frozen=True)
class Difference:
    """One difference between two datasets."""

    kind: Literal["column", "episodes", "length", "values"]
    what: str
    message: str
    episodes: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    largest: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**vars(self), "episodes": list(self.episodes), "rows": list(self.rows)}


def difference(
    first: EpisodeDataset,
    second: EpisodeDataset,
    *,
    match: Match = "number",
    tolerance: float = 0.0,
    threads: int | None = None,
    progress: bool | None = None,
) -> tuple[Difference, ...]:
    """Compare two datasets."""
    if match not in ("number", "content"):
        raise ArgumentError(f"expected match to be 'number' or 'content', got {match!r}")
    if match == "content" and tolerance:
        raise ArgumentError("expected tolerance=0 with match='content', which compares digests")
    differences = [*_columns(first, second)]
    shared = [path for path, field in first.spec.items() if second.spec.get(path) == field]
    if match == "content":
        return (*differences, *_by_content(first, second, shared, threads, progress))
    return (*differences, *_by_number(first, second, shared, tolerance, threads, progress))


def _columns(first: EpisodeDataset, second: EpisodeDataset) -> Iterable[Difference]:
    for path in {**first.spec, **second.spec}:
        one, other = first.spec.get(path), second.spec.get(path)
        if one is None or other is None:
            yield Difference("column", path, f"only in the {'second' if one is None else 'first'}")
        elif one != other:
            message = f"{_described(one)} in the first, {_described(other)} in the second"
            yield Difference("column", path, message)


def _described(field: Field) -> str:
    return f"{field.kind} of {field.dtype}{list(field.shape)}, {field.align} rows"


@dataclass(frozen=True, eq=False)
class _Changed:
    """Rows of one column that differ in one pair of episodes."""

    column: str
    episode: int
    rows: IntArray
    largest: float | None


def _by_number(
    first: EpisodeDataset,
    second: EpisodeDataset,
    shared: Sequence[str],
    tolerance: float,
    threads: int | None,
    progress: bool | None,
) -> Iterable[Difference]:
    count = min(len(first), len(second))
    for name, data in (("first", first), ("second", second)):
        if len(data) > count:
            extra = tuple(range(count, min(len(data), count + SHOWN)))
            message = f"{counted(len(data) - count, 'episode')} more in the {name}, from number {count} on"
            yield Difference("episodes", name, message, extra)
    same_length = first.episodes.length[:count] == second.episodes.length[:count]
    if not same_length.all():
        other = np.flatnonzero(~same_length)
        e = int(other[0])
        lengths = f"{first.episodes.length[e]} and {second.episodes.length[e]} steps"
        message = f"{counted(len(other), 'episode')} of other lengths, the first is {e} with {lengths}"
        yield Difference("length", "steps", message, tuple(other[:SHOWN].tolist()))
    chosen = np.flatnonzero(same_length)
    ranges = [chosen[a : a + RANGE] for a in range(0, len(chosen), RANGE)]

    def work(numbers: IntArray) -> list[_Changed]:
        pairs = zip(numbers.tolist(), _read(first, numbers), _read(second, numbers), strict=True)
        return [each for e, one, other in pairs for each in _compared(e, one, other, shared, tolerance)]

    changed: dict[str, list[_Changed]] = {}
    with OrderedMap(work, ranges, PrefetchLimits(threads)) as done:
        for _ in tracked(range(len(ranges)), "comparing", progress):
            for each in done.get():
                changed.setdefault(each.column, []).append(each)
    for column, places in changed.items():
        rows = sum(len(each.rows) for each in places)
        largest = [each.largest for each in places if each.largest is not None]
        verb = "differs" if rows == 1 else "differ"
        where = f"the first in episode {places[0].episode} at row {places[0].rows[0]}"
        message = f"{counted(rows, 'row')} of {counted(len(places), 'episode')} {verb}, {where}"
        shown = places[:SHOWN]
        episodes = tuple(each.episode for each in shown)
        yield Difference(
            "values", column, message, episodes, tuple(int(each.rows[0]) for each in shown), max(largest, default=None)
        )


def _read(data: EpisodeDataset, numbers: IntArray) -> Iterable[Episode]:
    return selection_of(data).read(numbers.tolist())


def _compared(e: int, one: Episode, other: Episode, shared: Sequence[str], tolerance: float) -> Iterable[_Changed]:
    for column in shared:
        a, b = one.columns[column], other.columns[column]
        rows = np.flatnonzero(_rows(a, b, tolerance))
        if len(rows):
            yield _Changed(column, e, rows, _largest(a, b))


def _rows(a: Array, b: Array, tolerance: float) -> BoolArray:
    """`[n]` which rows differ."""
    if isinstance(a, Ragged) or isinstance(b, Ragged):
        pairs = [(np.asarray(a[i]), np.asarray(b[i])) for i in range(len(a))]
        return np.array([x.shape != y.shape or not bool(equal(x, y).all()) for x, y in pairs], np.bool_)
    same = equal(a, b)
    if tolerance and a.dtype.kind in "iufc":
        with np.errstate(invalid="ignore"):
            same |= np.abs(a.astype(np.float64) - b.astype(np.float64)) <= tolerance
    every = same.reshape(len(a), math.prod(a.shape[1:])).all(axis=1)
    return np.asarray(~np.asarray(every), np.bool_)


def _largest(a: Array, b: Array) -> float | None:
    if isinstance(a, Ragged) or isinstance(b, Ragged) or a.dtype.kind not in "iuf":
        return None
    with np.errstate(invalid="ignore"):
        change = np.abs(a.astype(np.float64) - b.astype(np.float64))
    known = change[np.isfinite(change)]
    return float(known.max()) if known.size else None


def _by_content(
    first: EpisodeDataset, second: EpisodeDataset, shared: Sequence[str], threads: int | None, progress: bool | None
) -> Iterable[Difference]:
    digests = [_digests(data, shared, threads, progress) for data in (first, second)]
    for name, mine, others in (("first", *digests), ("second", *reversed(digests))):
        known: dict[bytes, int] = {}
        for each in others:
            known[each] = known.get(each, 0) + 1
        only: list[int] = []
        for e, each in enumerate(mine):
            if known.get(each, 0):
                known[each] -= 1
            else:
                only.append(e)
        if only:
            verb = "is" if len(only) == 1 else "are"
            listed = ", ".join(map(str, only[:8])) + (", ..." if len(only) > 8 else "")
            message = f"{counted(len(only), 'episode')} {verb} in the {name} only: {listed}"
            yield Difference("episodes", name, message, tuple(only[:SHOWN]))


def _digests(data: EpisodeDataset, shared: Sequence[str], threads: int | None, progress: bool | None) -> list[bytes]:
    ranges = [np.arange(a, min(a + RANGE, len(data))) for a in range(0, len(data), RANGE)]

    def work(numbers: IntArray) -> list[bytes]:
        digests: list[bytes] = []
        for episode in _read(data, numbers):
            parts = b"".join(digest(episode.columns[path]) for path in shared)
            digests.append(hashlib.blake2b(parts, digest_size=DIGEST_BYTES).digest())
        return digests

    with OrderedMap(work, ranges, PrefetchLimits(threads)) as done:
        return [each for _ in tracked(range(len(ranges)), "reading", progress) for each in done.get()]
