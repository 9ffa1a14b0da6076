"""A plain model of datasets and transforms: lists of records, epoch by epoch, next to the dataset that they describe.

What follows from the documentation is computed here with lists. Orders that only a seed decides (shuffles, which
sequences share a pack, which dataset a mix picks) are taken from the dataset, after a check that they are what was
promised.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.data.map_dataset import MapDataset, planned_samples

Record = dict[str, Any]
Epochs = Callable[[int], list[Record]]


@dataclass
class Node:
    """A dataset, what its epochs hold, and the text of the program that makes it."""

    data: MapDataset
    epoch: Epochs
    text: str
    known: dict[int, list[Record]] = field(default_factory=dict)

    def records(self, epoch: int) -> list[Record]:
        """The records of an epoch, by the model."""
        if epoch not in self.known:
            self.known[epoch] = self.epoch(epoch)
        return self.known[epoch]

    def sequence(self, lo: int, hi: int) -> list[Record]:
        """The records at positions `lo : hi`, which count through the epochs."""
        found: list[Record] = []
        epoch = 0
        while len(found) < hi:
            found += self.records(epoch)
            epoch += 1
        return found[lo:hi]

    def observed(self, epoch: int) -> list[Record]:
        """The records of an epoch, as the dataset gives them."""
        plan = self.data.plan
        return records_of(planned_samples(self.data).at(np.arange(plan.start(epoch), plan.start(epoch + 1))))


def records_of(columns: Columns) -> list[Record]:
    """Each row as plain values. What a mask leaves out at the end is dropped: how wide padding is depends on others."""
    arrays = {name: _listed(columns[name]) for name in columns}
    rows = [{name: values[i] for name, values in arrays.items()} for i in range(columns.n)]
    return [trimmed(row) for row in rows]


def _listed(array: Any) -> list[Any]:
    if not isinstance(array, Ragged):
        return array.tolist()
    rows = [array.values[a:b].tolist() for a, b in pairwise(array.offsets.tolist())]
    width = array.shape[1] if len(array.shape) > 1 else None
    return rows if width is None else [rows[i * width : (i + 1) * width] for i in range(len(array))]


def trimmed(record: Record) -> Record:
    """The record without masked zeros and numbers of no row at the end of its columns. Repeated edges stay."""
    out = dict(record)
    packs = [number > 0 for number in record["segment_ids"]] if "segment_ids" in record else None
    for name, value in record.items():
        mask = value if name.endswith("mask") else record.get(f"{name}_mask", record.get("mask"))
        mask = mask if packs is None or name == "e" else packs
        if isinstance(value, list) and isinstance(mask, list) and len(mask) <= len(value):
            there = [*mask, *[False] * (len(value) - len(mask))]  # of a mask that is trimmed already
            places = zip(reversed(value), reversed(there), strict=True)
            padding = next((i for i, (v, real) in enumerate(places) if real or v not in (0, [], -1)), len(value))
            out[name] = value[: len(value) - padding]
    return out


def key(record: Record) -> str:
    """The record as text, to compare collections of records."""
    return repr(sorted(record.items()))


def same_records(one: Sequence[Record], other: Sequence[Record]) -> bool:
    """Whether two collections have the same records, in any order."""
    return Counter(map(key, one)) == Counter(map(key, other))


@dataclass(frozen=True)
class EpisodeModel:
    """One episode: `x` and some `words` of each step, `observations` at each boundary, `e` once.

    `derived` has the columns that are computed from it, with a value for each step.
    """

    x: list[int]
    words: list[list[int]]
    observations: list[int]
    e: int
    derived: dict[str, list[int]] = field(default_factory=dict)


def samples(episodes: Sequence[EpisodeModel], following: bool) -> list[Record]:
    """Every step."""
    found: list[Record] = []
    for one in episodes:
        for t, x in enumerate(one.x):
            record: Record = {"x": x, "words": one.words[t], "observations": one.observations[t], "e": one.e}
            record |= {name: values[t] for name, values in one.derived.items()}
            found.append(record | ({"next_observations": one.observations[t + 1]} if following else {}))
    return found


def windows(episodes: Sequence[EpisodeModel], length: int, past: int, stride: int, pad: str) -> list[Record]:
    """Windows around anchor steps."""
    found: list[Record] = []
    for one in episodes:
        steps = len(one.x)
        anchors = range(steps) if pad != "drop" else range(past, steps)
        for t in anchors[::stride]:
            rows = range(t - past, t - past + length)
            inside = [0 <= row < steps for row in rows]
            if pad == "drop" and not all(inside):
                continue
            near = [min(max(row, 0), steps - 1) for row in rows]
            record: Record = {"e": one.e}
            columns = {"x": one.x, "words": one.words, "observations": one.observations, **one.derived}
            for name, values in columns.items():
                nothing: Any = [] if name == "words" else 0
                record[name] = [
                    values[row] if real or pad == "repeat" else nothing for row, real in zip(near, inside, strict=True)
                ]
            found.append(trimmed(record | {"mask": inside}) if pad != "drop" else record)
    return found


def times(episodes: Sequence[EpisodeModel], steps: Sequence[int]) -> list[Record]:
    """Every step, with rows of `x` around it."""
    found: list[Record] = []
    for one in episodes:
        for t in range(len(one.x)):
            rows = [t + step for step in steps]
            near = [min(max(row, 0), len(one.x) - 1) for row in rows]
            record: Record = {"words": one.words[t], "observations": one.observations[t], "e": one.e}
            record |= {name: values[t] for name, values in one.derived.items()}
            record |= {"x": [one.x[row] for row in near], "x_mask": [a == b for a, b in zip(rows, near, strict=True)]}
            found.append(trimmed(record))
    return found


def pairs(episodes: Sequence[EpisodeModel], offset: int) -> list[Record]:
    """Steps `t` and `t + offset`."""
    return [
        {
            "x": [one.x[t], one.x[t + offset]],
            "words": [one.words[t], one.words[t + offset]],
            "observations": [one.observations[t], one.observations[t + offset]],
            "e": one.e,
            **{name: [values[t], values[t + offset]] for name, values in one.derived.items()},
        }
        for one in episodes
        for t in range(len(one.x) - offset)
    ]


def sequences(episodes: Sequence[EpisodeModel], final: bool) -> list[Record]:
    """Whole episodes, padding left out."""
    found: list[Record] = []
    for one in episodes:
        many = len(one.x)
        record: Record = {
            "x": one.x,
            "words": one.words,
            "observations": one.observations[: many + final],
            "e": one.e,
            "mask": [True] * many,
            **one.derived,
        }
        found.append(record | ({"observations_mask": [True] * (many + 1)} if final else {}))
    return found


def shuffled(below: Node, node: Node) -> Epochs:
    """Another order of the epoch below."""

    def epoch(e: int) -> list[Record]:
        found = node.observed(e)
        assert same_records(found, below.records(e)), "a shuffle has other samples than the epoch below"
        return found

    return epoch


def weighted(below: Node, node: Node, weights: Sequence[float]) -> Epochs:
    """Draws from the first epoch below; systematic ones have their shares at the end of each epoch."""
    plan: Any = node.data.plan
    known = [key(record) for record in below.records(0)]
    total, many = sum(weights), Counter(known)

    def epoch(e: int) -> list[Record]:
        found = node.observed(e)
        drawn = Counter(key(record) for i in range(e + 1) for record in (found if i == e else node.records(i)))
        share: dict[str, float] = defaultdict(float)
        for name, weight in zip(known, weights, strict=True):
            share[name] += weight / total
        assert all(share[name] > 0 for name in drawn), "a sample without a weight was drawn"
        for name, part in share.items():
            wanted = part * len(node.data) * (e + 1)
            assert abs(drawn[name] - wanted) <= plan.bound * many[name] + 1e-6, "a share is off"
        return found

    return epoch


def numbered(
    record: Record, numbers: Callable[[int], tuple[int, int, int]], names: tuple[str | None, str | None, str | None]
) -> Record:
    """The record with the step, episode and source of each value of `x`, -1 in padding that repeats no row."""
    x = record["x"]
    many = [numbers(x)] if isinstance(x, int) else [numbers(v) if v else (-1,) * 3 for v, _ in _places(record)]
    columns = zip(names, zip(*many, strict=True) if many else [[]] * 3, strict=True)
    made = {name: list(each) if isinstance(x, list) else next(iter(each)) for name, each in columns if name is not None}
    return trimmed(record | made)


def _places(record: Record) -> list[tuple[int, bool]]:
    """Each place of `x`, with its padding: the value and whether it is real."""
    x = record["x"]
    there = record.get("x_mask", record.get("mask", [True] * len(x)))
    there = [number > 0 for number in record["segment_ids"]] if "segment_ids" in record else there
    return [(value, bool(real)) for value, real in zip_longest(x, there, fillvalue=0)]


def anchor_of(
    record: Record, cut: tuple[Any, ...], rows: dict[int, tuple[int, int, int]]
) -> tuple[int, int, int] | None:
    """Source, episode and step of the anchor of a sample at a step; None where it has no real row of `x`."""
    if isinstance(record["x"], int):
        return rows[record["x"]]
    offsets = {"windows": lambda: range(-cut[2], cut[1]), "times": lambda: cut[1], "pairs": lambda: [0, cut[1]]}[
        cut[0]
    ]()
    real = next((i for i, (_, there) in enumerate(_places(record)) if there), None)
    if real is None:
        return None
    source, episode, step = rows[record["x"][real]]
    return source, episode, step - offsets[real]


def goals(below: Node, node: Node, allowed: Callable[[Record], tuple[Sequence[int], int | None]]) -> Epochs:
    """The samples below, each with a goal among those that it may have, or with its recorded one."""

    def epoch(e: int) -> list[Record]:
        found = node.observed(e)
        bare = [{name: value for name, value in r.items() if name not in ("goal", "goal_drawn")} for r in found]
        assert list(map(key, bare)) == list(map(key, below.records(e))), "goals change the samples"
        for record in found:
            drawn, recorded = allowed(record)
            if record.get("goal_drawn", True):
                assert record["goal"] in drawn, f"goal {record['goal']} is none of {drawn}"
            else:
                assert recorded is None or record["goal"] == recorded, "a recorded goal is another one"
        return found

    return epoch


def batched(below: Node, node: Node, size: Any, tokens: int | None, sort: bool) -> Epochs:
    """The samples below, in any order if they are sorted, in batches within the limits."""
    plan: Any = node.data.plan

    def epoch(e: int) -> list[Record]:
        found = node.observed(e)
        if sort:
            assert same_records(found, below.records(e)), "batches have other samples than the epoch below"
        else:
            assert list(map(key, found)) == list(map(key, below.records(e))), "batches change the order"
        lo, hi = plan.start(e), plan.start(e + 1)
        if hi > lo:
            edges = plan.edges(lo, hi)
            assert edges[0] == lo
            assert edges[-1] == hi
            widths = plan.widths(np.arange(lo, hi), edges - lo)
            for (a, b), width in zip(pairwise(edges.tolist()), widths.max(axis=1).tolist(), strict=True):
                limit = next(n for begin, n in reversed(size) if begin <= a) if isinstance(size, list) else size
                assert 0 < b - a <= (limit or b), "a batch has too many samples"
                assert tokens is None or (b - a) * width <= tokens, "a batch has too many tokens"
        return found

    return epoch


Ramp = Sequence[tuple[int, int]]
"""Positions of the plan below, and the length of packs from there on."""


def packed(below: Node, node: Node, ramp: Ramp, overlong: str, most: int | None, whole: bool) -> Epochs:
    """The sequences of the epoch below in packs; in any parts, if they are not `whole`."""
    longest = max(limit for _, limit in ramp)

    def epoch(e: int) -> list[Record]:
        found = node.observed(e)
        first = sum(len(below.records(i)) for i in range(e)) if len(ramp) > 1 else 0
        limits = [
            next(limit for begin, limit in reversed(ramp) if begin <= first + i) for i in range(len(below.records(e)))
        ]
        records = zip(below.records(e), limits, strict=True)
        wanted = [piece for record, limit in records for piece in _pieces(record, limit, overlong)]
        got = [piece for record in found for piece in _sequences_in(record, longest, most)]
        if not whole:
            wanted, got = ([(e, x) for e, *rows in pieces for x in rows] for pieces in (wanted, got))
        assert Counter(wanted) == Counter(got), "packs have other sequences than the epoch below"
        return found

    return epoch


Owners = Callable[[str, int], tuple[int, int] | None]
"""Source and episode of a value of a column; None for padding."""


def without(records: Sequence[Record], owners: Owners, left_out: set[tuple[int, int]]) -> list[Record]:
    """The records that have no row of some episodes; packs without these rows."""
    found: list[Record] = []
    for record in records:
        if "segment_ids" in record:
            found.append(_blanked(record, owners, left_out))
            continue
        columns = ("x", "observations", "next_observations", "e", "goal")
        rows = {
            name: record[name] if isinstance(record[name], list) else [record[name]]
            for name in columns
            if name in record
        }
        if not any(owners(name, value) in left_out for name, values in rows.items() for value in values):
            found.append(record)
    return found


def _blanked(record: Record, owners: Owners, left_out: set[tuple[int, int]]) -> Record:
    """A pack with zeros where its rows are of some episodes."""
    gone = [owners("x", value) in left_out for value in record["x"]]
    slots = {number for number, is_gone in zip(record["segment_ids"], gone, strict=True) if is_gone}
    out = dict(record)
    for name, value in record.items():
        if name == "e":
            out[name] = [0 if slot + 1 in slots else one for slot, one in enumerate(value)]
        elif isinstance(value, list):
            nothing: Any = [] if name == "words" else -1 if name in NUMBERS else 0
            out[name] = [nothing if is_gone else one for one, is_gone in zip(value, gone, strict=True)]
    return trimmed(out)


NUMBERS = ("timesteps", "episodes", "rows_step", "rows_episode", "rows_source")


def real(record: Record) -> list[int]:
    """The real values of `x` in a record."""
    x = record["x"]
    if "segment_ids" in record:
        return [v for v, number in zip(x, record["segment_ids"], strict=True) if number]
    mask = record.get("x_mask", record.get("mask"))
    if mask is not None:
        return [v for v, there in zip(x, mask, strict=False) if there]
    return x if isinstance(x, list) else [x]


def _pieces(record: Record, limit: int, overlong: str) -> list[tuple[Any, ...]]:
    x, e = real(record), record.get("e")
    if not x or (len(x) > limit and overlong == "drop"):
        return []
    if len(x) > limit and overlong == "split":
        return [(e, *x[i : i + limit]) for i in range(0, len(x), limit)]
    if len(x) > limit:
        return [(e, *(x[-limit:] if overlong == "truncate_left" else x[:limit]))]
    return [(e, *x)]


def _sequences_in(record: Record, limit: int, most: int | None) -> list[tuple[Any, ...]]:
    ids, places, x = record["segment_ids"], record["positions"], record["x"]
    used = [number for number in ids if number]
    assert len(ids) == len(x) <= limit
    assert used == sorted(used) == ids[: len(used)], "segments are not one after the other"
    count = max(used, default=0)
    assert set(used) == set(range(1, count + 1)), "a segment has no rows"
    assert count >= 1, "a pack is empty"
    assert most is None or count <= most
    found: list[tuple[Any, ...]] = []
    for number in range(1, count + 1):
        mine = [i for i, one in enumerate(ids) if one == number]
        assert [places[i] for i in mine] == list(range(len(mine)))
        slot = record["e"][number - 1] if "e" in record else None
        found.append((slot, *(x[i] for i in mine)))
    return found


def mixed(parts: Sequence[Node], node: Node, shares: Sequence[Fraction], label: str | None) -> Epochs:
    """Each part in its own order, each pass before the next, at exact rates."""
    plan: Any = node.data.plan
    given = [0] * len(parts)  # what each part has given before the epoch, which are asked for in order
    inner = {name for part in parts for name in labels_of(part.data)}

    def epoch(e: int) -> list[Record]:
        if e:
            node.records(e - 1)
        k = np.arange(plan.start(e), plan.start(e + 1))
        found: list[Record] = []
        counts = [0] * len(parts)
        for number, j in zip(*(a.tolist() for a in plan.picks(k)), strict=True):
            assert j == given[number], "a part is not read in its order"
            given[number] += 1
            counts[number] += 1
            record = parts[number].sequence(j, j + 1)[0]
            record = {name: value for name, value in record.items() if name not in inner}
            found.append(record if label is None else record | {label: number})
            limits = plan.course.limits or [None] * len(parts)
            assert all(most is None or n <= most for n, most in zip(counts, limits, strict=True)), "too many repeats"
            if plan.course.stop != "drain" and not plan.course.limits:
                bound = plan.course.bound
                assert all(abs(n - s * len(found)) <= bound for n, s in zip(counts, shares, strict=True)), (
                    "a rate is off"
                )
        return found

    return epoch


def runs_out(data: MapDataset) -> bool:
    """Whether later epochs have no samples, as of a ramp to packs that are shorter than all samples.

    A mix needs samples of each part in every epoch: reading such a part is an error, and in the model a loop.
    """
    return data.plan.uneven and not data.plan.sizes(np.arange(80, 120)).any()


def labels_of(data: MapDataset) -> list[str]:
    """The columns that tell from which part of a mix samples are."""
    return [mark.name for mark in data.plan.marks if mark.kind == "source"]
