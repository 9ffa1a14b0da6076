"""D4RL's HDF5 files, and others of the same layout: the steps of all trajectories in a row.

Files in which nothing marks the ends of trajectories that did not terminate are cut where the next observation of a
step is not the observation of the step after it, or every `max_episode_steps`. Where next observations follow within
every trajectory, observations become one column of T + 1 rows, and no value is copied.

Source: D4RL 1.1, `d4rl/offline_env.py` and `d4rl/__init__.py`; d3rlpy 1.1, `d3rlpy/dataset.pyx`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.hdf5 import Dataset, File, Group
from penstock.core.arrays import BoolArray, IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.ends import MarkArray, Meaning, check_meanings, find_ends, meaning_of
from penstock.formats.demos.hdf5 import (
    DECODED,
    HDF5Kind,
    Segments,
    alike,
    attribute,
    behind_the_end,
    column,
    datasets_below,
    leads_to,
    misfit,
    native,
    numbers,
    row_shape,
)
from penstock.formats.demos.source import DemoColumn, DemoSource, Next, check_next, follows, held

NEEDED = ("observations", "actions", "rewards", "terminals")
FIRST = ("actions", "rewards")
METADATA = "metadata/"
CUTTING = ("termination", "truncation", "done", "not done", "end", "start", "lengths", "offsets", "cuts")
FEW = 64  # values of an array that is small enough for metadata
LONG = 1 << 16  # bytes of a text that is short enough for metadata


class D4rlKind(HDF5Kind):
    """HDF5 with `observations`, `actions`, `rewards` and `terminals` of all trajectories. See docs/formats/demos.md."""

    name: ClassVar[str] = "d4rl"
    description: ClassVar[str] = "D4RL HDF5 (observations, actions, rewards, terminals, timeouts)"
    options: ClassVar[tuple[str, ...]] = (
        *("max_episode_steps", "next_observations", "transitions", "ends", "cache_bytes"),
    )

    @override
    def has_layout(self, root: Group) -> bool:
        """Whether the root has the four datasets that every such file has."""
        return all(leads_to(root, name, Dataset) for name in NEEDED)

    def open(self, path: Path, **options: Any) -> DemoSource:
        """As `read_d4rl` does, with its options."""
        return read_d4rl(path, **options)


def read_d4rl(
    path: Path,
    *,
    max_episode_steps: int | None = None,
    next_observations: Next = "check",
    transitions: bool = False,
    ends: Mapping[str, Meaning] | None = None,
    cache_bytes: int = DECODED,
) -> DemoSource:
    """The trajectories of one file; docs/formats/demos.md describes the options."""
    check_next(next_observations)
    if max_episode_steps is not None and max_episode_steps < 1:
        raise TypeError(f"expected max_episode_steps of at least 1, got {max_episode_steps}")
    meanings: dict[str, Meaning] = dict(ends or {})
    reopen = partial(
        read_d4rl,
        max_episode_steps=max_episode_steps,
        next_observations=next_observations,
        transitions=transitions,
        ends=meanings,
        cache_bytes=cache_bytes,
    )
    reading = _D4rlFile(File(path), max_episode_steps, meanings, Cache(cache_bytes))
    columns = reading.cut_short() if transitions else reading.whole(next_observations)
    return DemoSource(
        path,
        columns,
        reading.offsets,
        reopen=(reopen, (path,)),
        metadata=reading.metadata,
        state=repr(reading.file.image.superblock),
        account=reading.account(),
    )


class _D4rlFile:
    """One file: its datasets, where its trajectories end, and the columns they make."""

    def __init__(self, file: File, limit: int | None, meanings: Mapping[str, Meaning], cache: Cache) -> None:
        self.file, self._cache = file, cache
        marks = (name for name in file.root.links if meaning_of(name, meanings) in CUTTING)
        self.datasets, self._left_out = datasets_below(file.root, {*NEEDED, "next_observations", *marks})
        missing = [name for name in NEEDED if name not in self.datasets]
        if missing:
            raise FormatError(f"expected the datasets {list(NEEDED)}, got none for {missing}", path=file.path)
        self.n = self.datasets["actions"].shape[0] if self.datasets["actions"].shape else 0
        if not self.n:
            raise FormatError("expected at least one step, got none", path=file.path, where="actions")
        self.metadata = {key: attribute(file.root.attrs[key]) for key in file.root.attrs}
        self._others = self._without_metadata()
        self._linked: BoolArray | None = None
        self._checked("terminals")
        candidates = {name: dataset for name, dataset in self._others.items() if numbers(dataset)}
        check_meanings(meanings, candidates)
        arrays = {name: _mark(dataset) for name, dataset in candidates.items()}
        breaks = self._breaks if "next_observations" in self.datasets else None
        self._ends = find_ends(arrays, self.n, path=file.path, meanings=meanings, limit=limit, breaks=breaks)
        self.terminals, self.truncations = self._ends.terminations, self._ends.truncations
        self.offsets = self._ends.offsets

    def _without_metadata(self) -> dict[str, Dataset]:
        """Datasets besides observations, actions and rewards. Small single values and `metadata/` become metadata."""
        others: dict[str, Dataset] = {}
        for name, dataset in self.datasets.items():
            if name in ("observations", "actions", "rewards", "next_observations"):
                continue
            value = _small(dataset) if name.startswith(METADATA) or not dataset.shape else None
            if value is not None:
                self.metadata[name.removeprefix(METADATA)] = value
            elif name.startswith(METADATA):
                message = f"expected at most {FEW} values as metadata, got {dataset.dtype}{list(dataset.shape)}"
                self._left_out[name] = LeftOut("array", name, "document", message)
            else:
                others[name] = dataset
        return others

    def _breaks(self) -> BoolArray | None:
        """`[N - 1]` whether the next observation of a step is not the observation of the step after it."""
        return ~self._links() if alike(self.datasets["observations"], self.datasets["next_observations"]) else None

    def _links(self) -> BoolArray:
        """`[N - 1]` whether the next observation of a step is the observation of the step after it."""
        if self._linked is None:
            one, other = (self.datasets[name] for name in ("observations", "next_observations"))
            before, after = self._step("observations"), self._step("next_observations")
            self._linked = follows(after, before, self.n) if alike(one, other) else np.zeros(self.n - 1, np.bool_)
        return self._linked

    def whole(self, next_observations: Next) -> dict[str, DemoColumn]:
        """Every row a step."""
        out = {"observations": self._step("observations")}
        if "next_observations" in self.datasets:
            out = self._with_next(next_observations, out["observations"])
        out.update((name, self._step(name)) for name in FIRST)
        out["terminations"], out["truncations"] = held(self.terminals), held(self.truncations)
        out.update((name, self._step(name)) for name in self._fitting())
        return out

    def _with_next(self, how: Next, observations: DemoColumn) -> dict[str, DemoColumn]:
        one, other = (self.datasets[name] for name in ("observations", "next_observations"))
        after = self._step("next_observations")
        if how == "separate" or not alike(one, other):
            return {"observations": observations, "next_observations": after}
        if how == "check":
            same = self._links().copy()
            same[self.offsets[1:-1] - 1] = True  # from one trajectory to the next nothing follows
            if not same.all():
                return {"observations": observations, "next_observations": after}
        lengths = np.diff(self.offsets)
        start = np.stack([self.offsets[:-1], self.offsets[1:] - 1], axis=1)
        length = np.stack([lengths, np.ones_like(lengths)], axis=1)
        owner = np.tile(np.arange(2), len(lengths))
        segments = Segments([one, other], owner, start.reshape(-1), length.reshape(-1))
        return {"observations": column(self.file, segments, "boundary", self._cache)}

    def cut_short(self) -> dict[str, DemoColumn]:
        """As `qlearning_dataset`: without the last step of what timed out, which has no next observation."""
        if "next_observations" in self.datasets:
            message = "expected transitions=True for a file without next_observations alone, got one that has them"
            raise FormatError(message, path=self.file.path, where="next_observations")
        begin, last = self.offsets[:-1], self.offsets[1:] - 1
        timed = self.truncations[last]
        steps = last + 1 - begin - timed
        self.offsets = offsets_of(steps)
        kept = np.flatnonzero(np.repeat(np.ones(len(steps), np.bool_), steps))
        kept = kept + np.repeat(begin - self.offsets[:-1], steps)
        # The row after the last step is the dropped one; the row after a terminal step is not stored, and has no
        # value: its own observation stands there.
        start, length = np.stack([begin, last], axis=1), np.stack([last + 1 - begin, 1 - timed], axis=1)
        segments = (np.zeros(2 * len(begin), np.int64), start.reshape(-1), length.reshape(-1))
        observations = Segments([self._checked("observations")], *segments)
        out = {"observations": column(self.file, observations, "boundary", self._cache)}
        out.update((name, self._step(name, begin, steps)) for name in FIRST)
        ended = np.zeros(len(kept), np.bool_)
        ended[(self.offsets[1:] - 1)[timed & (steps > 0)]] = True
        out["terminations"], out["truncations"] = held(self.terminals[kept]), held(ended)
        out.update((name, self._step(name, begin, steps)) for name in self._fitting())
        return out

    def _fitting(self) -> list[str]:
        """Further datasets with a row a step, by their paths; the others are left out."""
        others = {name: each for name, each in self._others.items() if name not in self._ends.consumed}
        misfits = {name: misfit(name, dataset, self.n) for name, dataset in others.items()}
        self._left_out |= {name: entry for name, entry in misfits.items() if entry is not None}
        return [name for name, entry in misfits.items() if entry is None]

    def account(self) -> Account:
        entries = {entry.where: entry for entry in (*self._ends.left_out, *self._left_out.values())}
        entries |= {entry.where: entry for entry in behind_the_end(self.file)}
        return Account(tuple(entries.values()), ends=self._ends.sentence)

    def _step(self, name: str, start: IntArray | None = None, length: IntArray | None = None) -> DemoColumn:
        dataset = self._checked(name)
        shape = () if name in FIRST[1:] and row_shape(dataset) == (1,) else None
        segments = Segments.whole([dataset])
        if start is not None and length is not None:
            segments = Segments([dataset], start * 0, start, length)
        return column(self.file, segments, "step", self._cache, shape)

    def _checked(self, name: str) -> Dataset:
        dataset = self.datasets[name]
        scalars = name in ("terminals", "rewards") and row_shape(dataset) not in ((), (1,))
        if not numbers(dataset) or dataset.shape[0] != self.n or scalars:
            got = f"{dataset.kind} {dataset.dtype}{list(dataset.shape)}"
            message = f"expected {self.n} rows of numbers, as many as actions, got {got}"
            raise FormatError(message, path=self.file.path, where=name)
        return dataset


def _mark(dataset: Dataset) -> MarkArray:
    """A dataset of numbers that is read when it is needed."""
    return MarkArray(dataset.shape, native(dataset), dataset.read)


def _small(dataset: Dataset) -> Any:
    """A scalar, a text or a few numbers; None for more."""
    if dataset.kind == "vlen_string":
        texts = dataset.read_list() if dataset.shape in ((), (1,)) else []
        return texts[0].decode("utf-8", "replace") if texts and len(texts[0]) <= LONG else None
    count = int(np.prod(dataset.shape, dtype=object))
    if dataset.kind == "vlen" or count > FEW or dataset.dtype.itemsize > LONG:
        return None
    return attribute(np.asarray(dataset.read()))
