"""D4RL's HDF5 files: the steps of all trajectories in a row, cut by `terminals` and `timeouts`.

A trajectory ends after a step that is terminal or timed out, and at the end of the file. Files without `timeouts` are
cut where the next observation of a step is not the observation of the step after it, or every `max_episode_steps`.

Next observations are stored a second time. Where they follow (`next_observations[t] == observations[t + 1]` within
every trajectory), observations become one column of T + 1 rows: the rows of `observations`, and the last row of
`next_observations` for each trajectory. No value is copied: a column is a list of segments of the two datasets.
The comparison reads both once, in blocks; it stops at the first difference.

`transitions=True` cuts as D4RL's `qlearning_dataset` does: without next observations, a trajectory that was cut off
by time has one step less, whose observation is the final one.

Source: D4RL 1.1, `d4rl/offline_env.py` and `d4rl/__init__.py`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.cache import Cache
from penstock.containers.hdf5 import Dataset, File, Group
from penstock.core.arrays import BoolArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError
from penstock.formats.base.account import Account
from penstock.formats.demos.hdf5 import (
    DECODED,
    HDF5Kind,
    Segments,
    alike,
    attribute,
    column,
    datasets_below,
    leads_to,
    numbers,
    row_shape,
)
from penstock.formats.demos.source import DemoColumn, DemoSource, Next, check_next, follows, held, left_out_of

NEEDED = ("observations", "actions", "rewards", "terminals")
FIRST = ("actions", "rewards")
FEW = 64  # values of an array that is small enough for metadata
LONG = 1 << 16  # bytes of a text that is short enough for metadata


class D4rlKind(HDF5Kind):
    """HDF5 with `observations`, `actions`, `rewards` and `terminals` of all trajectories. See docs/formats/demos.md.

    >>> D4rlKind().recognises(Path("/"))
    False
    """

    name: ClassVar[str] = "d4rl"
    description: ClassVar[str] = "D4RL HDF5 (observations, actions, rewards, terminals, timeouts)"
    options: ClassVar[tuple[str, ...]] = ("max_episode_steps", "next_observations", "transitions", "cache_bytes")

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
    cache_bytes: int = DECODED,
) -> DemoSource:
    """The trajectories of one file.

    `max_episode_steps` cuts trajectories of a file without `timeouts`. `next_observations` says what becomes of stored
    next observations: with "check" they are compared with `observations` (one pass over both), and where they follow,
    observations are one boundary column, else two step columns; "trust" takes them to follow, "separate" keeps them as
    a separate column. `transitions` reads a file without them as D4RL's `qlearning_dataset` does: a trajectory cut off
    by time loses its last step, whose observation is then the final one. `cache_bytes` bounds decoded chunks.

    Raises `FormatError` for damaged data and options that the file does not fit, `TypeError` for impossible ones.
    """
    check_next(next_observations)
    if max_episode_steps is not None and max_episode_steps < 1:
        raise TypeError(f"expected max_episode_steps of at least 1, got {max_episode_steps}")
    reopen = partial(
        read_d4rl,
        max_episode_steps=max_episode_steps,
        next_observations=next_observations,
        transitions=transitions,
        cache_bytes=cache_bytes,
    )
    reading = _D4rlFile(File(path), max_episode_steps, Cache(cache_bytes))
    columns = reading.cut_short() if transitions else reading.whole(next_observations)
    reasons = {name: entry.message for name, entry in reading.unreadable.items()}
    metadata = {**reading.metadata(), **left_out_of(reading.left_out, reasons)}
    return DemoSource(
        path,
        columns,
        reading.offsets,
        reopen=(reopen, (path,)),
        metadata=metadata,
        account=Account(tuple(reading.unreadable.values())),
        state=repr(reading.file.image.superblock),
    )


class _D4rlFile:
    """One file: its datasets, where its trajectories end, and the columns they make."""

    def __init__(self, file: File, max_episode_steps: int | None, cache: Cache) -> None:
        self.file, self._cache = file, cache
        self.datasets, self.unreadable = datasets_below(file.root, {*NEEDED, "next_observations", "timeouts"})
        missing = [name for name in NEEDED if name not in self.datasets]
        if missing:
            raise FormatError(f"expected the datasets {list(NEEDED)}, got none for {missing}", path=file.path)
        self.n = self.datasets["actions"].shape[0] if self.datasets["actions"].shape else 0
        if not self.n:
            raise FormatError("expected at least one step, got none", path=file.path, where="actions")
        self.left_out: set[str] = set()
        self.terminals = self._marks("terminals")
        self.timeouts = self._marks("timeouts") if "timeouts" in self.datasets else None
        self._linked: BoolArray | None = None
        self.offsets = self._cut(max_episode_steps)

    def _cut(self, max_episode_steps: int | None) -> IntArray:
        """`[E + 1]` where trajectories begin: after what is terminal or timed out; the file's end ends the last."""
        if self.timeouts is not None and max_episode_steps is not None:
            message = f"expected no max_episode_steps for a file with timeouts, got {max_episode_steps}"
            raise FormatError(message, path=self.file.path, where="timeouts")
        if max_episode_steps is not None:
            self.timeouts = self._limited(max_episode_steps)
        ends = self.terminals.copy() if self.timeouts is None else self.terminals | self.timeouts
        ends[-1] = True
        if self.timeouts is None and "next_observations" in self.datasets:
            ends[:-1] |= ~self._links()
        return np.concatenate([[0], np.flatnonzero(ends) + 1]).astype(np.int64)

    def _limited(self, limit: int) -> BoolArray:
        """`[N]` the steps that are the last of so many since the last end."""
        ends = self.terminals.copy()
        ends[-1] = True
        lengths = np.diff(np.flatnonzero(ends), prepend=-1)
        begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return (np.arange(self.n) - begin) % limit == limit - 1

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
        last = self.offsets[1:] - 1
        ended = np.zeros(self.n, np.bool_)
        ended[last] = ~self.terminals[last]
        out["terminations"] = held(self.terminals)
        out["truncations"] = held(ended if self.timeouts is None else ended | self.timeouts)
        out.update((name, self._step(name)) for name in self._others())
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
        timed = ~self.terminals[last] if self.timeouts is None else ~self.terminals[last] | self.timeouts[last]
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
        out.update((name, self._step(name, begin, steps)) for name in self._others())
        return out

    def _others(self) -> list[str]:
        """Further datasets with a row a step, by their paths; the others are left out."""
        known = {*NEEDED, "next_observations", "timeouts"}
        names = [n for n in self.datasets if n not in known and not n.startswith("metadata/")]
        fitting = [n for n in names if numbers(self.datasets[n]) and self.datasets[n].shape[0] == self.n]
        self.left_out |= set(names) - set(fitting)
        return fitting

    def _marks(self, name: str) -> BoolArray:
        return np.asarray(self._checked(name).read()).reshape(self.n) != 0

    def _step(self, name: str, start: IntArray | None = None, length: IntArray | None = None) -> DemoColumn:
        dataset = self._checked(name)
        shape = () if name in FIRST[1:] and row_shape(dataset) == (1,) else None
        segments = Segments.whole([dataset])
        if start is not None and length is not None:
            segments = Segments([dataset], start * 0, start, length)
        return column(self.file, segments, "step", self._cache, shape)

    def _checked(self, name: str) -> Dataset:
        dataset = self.datasets[name]
        scalars = name in ("terminals", "timeouts", "rewards") and row_shape(dataset) not in ((), (1,))
        if not numbers(dataset) or dataset.shape[0] != self.n or scalars:
            got = f"{dataset.kind} {dataset.dtype}{list(dataset.shape)}"
            message = f"expected {self.n} rows of numbers, as many as actions, got {got}"
            raise FormatError(message, path=self.file.path, where=name)
        return dataset

    def metadata(self) -> dict[str, Any]:
        """Attributes of the file, and the small datasets below `metadata/`."""
        out = {key: attribute(self.file.root.attrs[key]) for key in self.file.root.attrs}
        for name, dataset in self.datasets.items():
            if name.startswith("metadata/"):
                value = _small(dataset)
                if value is None:
                    self.left_out.add(name)
                else:
                    out[name.removeprefix("metadata/")] = value
        return out


def _small(dataset: Dataset) -> Any:
    """A scalar, a text or a few numbers; None for more."""
    if dataset.kind == "vlen_string":
        texts = dataset.read_list() if dataset.shape in ((), (1,)) else []
        return texts[0].decode("utf-8", "replace") if texts and len(texts[0]) <= LONG else None
    count = int(np.prod(dataset.shape, dtype=object))
    if dataset.kind == "vlen" or count > FEW or dataset.dtype.itemsize > LONG:
        return None
    return attribute(np.asarray(dataset.read()))
