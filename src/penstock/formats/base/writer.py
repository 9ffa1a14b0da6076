"""`Writer`: a dataset opened for appending episodes; and `Target`: what it can store, and a source may have."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.spec import Align, Field, Spec
from penstock.errors import DataError, SpecError

NUMBERED = ("frame_index", "episode_index", "index", "task_index")  # columns that LeRobot's layout computes


class RowStream(ABC):
    """Takes rows of an episode while it is recorded, so that slow encoders need not wait for its end."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Paths of the columns whose rows it takes."""

    @abstractmethod
    def append(self, rows: Mapping[str, AnyArray]) -> None:
        """Take the next row."""

    @abstractmethod
    def discard(self) -> None:
        """Forget the rows, unless the episode was saved. A second call does nothing."""


class StepRecording(ABC):
    """Takes the steps of `n` environments while their episodes are recorded, for a target that can use open episodes.

    `lanes` are numbers of environments, `[m]` int64, and arrays of rows have a row for each of them.
    """

    @abstractmethod
    def begin(self, lanes: IntArray, rows: Mapping[str, AnyArray]) -> None:
        """Begin episodes with their first boundary rows. An episode that is open there ends, without a flag."""

    @abstractmethod
    def step(self, lanes: IntArray, rows: Mapping[str, AnyArray], ended: BoolArray) -> None:
        """Take a step: its values, and the boundary rows after it. Episodes that ended with it are closed."""

    @abstractmethod
    def end(self, lane: int, terminated: bool, truncated: bool) -> None:
        """End an open episode with its last step, which gets these flags."""

    @abstractmethod
    def save(self, lane: int, episode: Episode) -> int:
        """Save the oldest ended episode of a lane that is not saved. Return its number."""

    @abstractmethod
    def drop(self, lane: int) -> None:
        """Forget to save the oldest ended episode of a lane."""

    @abstractmethod
    def close(self) -> None:
        """No more steps will come."""


@runtime_checkable
class StepTarget(Protocol):
    """A writer that takes the steps of open episodes."""

    def __record_steps__(self, spec: Spec, lanes: int) -> StepRecording | None:
        """Return what takes steps, or None if this target takes whole episodes only."""
        ...


class PartStart(NamedTuple):
    """Where a part begins in the whole dataset, of which several processes write parts."""

    episode: int
    step: int
    values: Mapping[str, int]


class Writer(ABC):
    """A dataset opened for appending.

    `write` returns after the episode is saved. Killing the process later does not lose it, and killing it earlier
    leaves the dataset unchanged. A writer is a context manager. Use one writer from one thread.

    Example:
        >>> import numpy as np, penstock, tempfile
        >>> from pathlib import Path
        >>> from penstock.formats.base.format import named
        >>> episode = penstock.from_arrays({"rewards": np.arange(2.0)}, lengths=[2])[0]
        >>> with named("columns").create(Path(tempfile.mkdtemp()) / "demo", episode.spec) as writer:
        ...     writer.write(episode)
        0
    """

    @abstractmethod
    def write(self, episode: Episode) -> int:
        """Save one episode.

        Args:
            episode: Episode with the columns of the dataset.

        Returns:
            The number of the episode in the dataset.

        Raises:
            SpecError: The columns differ from the dataset's.
            DataError: The format cannot store a value.
            OSError: The disk is full. After any of these errors, the dataset is unchanged.
        """

    def write_all(self, episodes: Iterable[Episode]) -> list[int]:
        """Save several episodes, with one commit if the format can. Memory: one episode at a time.

        Args:
            episodes: Episodes with the columns of the dataset.

        Returns:
            The numbers of the episodes in the dataset.
        """
        return [self.write(episode) for episode in episodes]

    @abstractmethod
    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the dataset's metadata, atomically.

        Args:
            metadata: New entries.
        """

    @abstractmethod
    def close(self) -> None:
        """Flush everything to the disk and close the files. A second call does nothing."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class PartWriter(Writer):
    """A writer whose dataset can be a part of another one, in which episodes and steps have numbers."""

    @abstractmethod
    def begin_at(self, start: PartStart) -> None:
        """Make an empty dataset a part of another one, see `Format.begin_part`: the next episode has these numbers."""


class LockedWriter(PartWriter):
    """A writer with a lock that keeps out others. `_resume` takes in what there is, `_finish` flushes to the disk."""

    def __init__(self, lock: int) -> None:
        self._lock = lock
        try:
            self._resume()
        except BaseException:
            os.close(lock)
            raise

    @abstractmethod
    def _resume(self) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    def close(self) -> None:
        """Flush to the disk itself, and let others write. A second call does nothing."""
        if self._lock < 0:
            return
        try:
            self._finish()
        finally:
            os.close(self._lock)
            self._lock = -1

    def _check_open(self) -> None:
        check_open(self._lock >= 0)


def check_open(is_open: bool) -> None:
    """Raise `DataError` for a writer that was closed."""
    if not is_open:
        raise DataError("expected an open writer, got one that was closed; open the dataset for appending again")


def check_columns(episode: Episode, spec: Spec) -> None:
    """Raise `SpecError` for an episode with other columns than the dataset, and name the first that differs."""
    if episode.spec is spec:
        return
    ours, theirs = spec.fields, episode.spec.fields
    missing, extra = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    if missing or extra:
        raise SpecError(f"expected the columns {list(ours)}, got {missing} missing and {extra} too many")
    for path, field in ours.items():
        if field != theirs[path]:
            raise SpecError(f"expected {path} as {field}, got {theirs[path]}")


@dataclass(frozen=True)
class Target:
    """The rules of one way to write.

    `needs` are the required columns. `aligns` are the alignments that optional columns may have. `ragged` names the
    ragged columns that it stores. `spaces` says whether it needs both spaces. `options` are the options of `create`,
    and `kept` the ones that `append` knows as well; None where that is unknown.
    """

    name: str
    needs: tuple[str, ...] = ()
    aligns: tuple[Align, ...] = ("step", "boundary", "episode")
    ragged: Literal["any", "bytes", "infos", "text"] = "any"
    flat: bool = False  # whether rows of unequal length are lists of numbers, and not of vectors
    spaces: bool = False
    options: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # the files of a dataset that we wrote, as patterns of names
    entries: frozenset[str] | None = None  # the only metadata of episodes that it stores; None: any
    restored: frozenset[str] | None = None  # the only metadata of episodes, which reading gives again; None: any

    @property
    def seed(self) -> bool:
        """Whether episodes are cut at their dones."""
        return self.name == "webdataset, layout seed"

    @property
    def lerobot(self) -> bool:
        """Whether all columns have T rows, the first observation next to the first action."""
        return self.name == "lerobot"

    @property
    def minari(self) -> bool:
        """Whether it is one of Minari's."""
        return self.name.startswith("minari")

    def fits(self, path: str, field: Field) -> bool:
        """Whether an optional column has a place as it is."""
        if field.align not in self.aligns or not self._has_dtype(field):
            return False
        if field.ragged and field.shape:
            return self.name == "rlds"  # no other format has rows of unequal length whose values are vectors
        if not field.ragged or self.ragged == "any":
            return True
        if self.ragged == "text":
            return field.kind == "text"
        if self.ragged == "infos":
            return field.kind == "text" and under("infos", path)
        return field.kind == "text" or field.dtype.itemsize == 1

    def _has_dtype(self, field: Field) -> bool:
        """Whether values and shapes have a place."""
        if self.lerobot and not field.ragged:
            numbers = field.dtype.kind in "biuf" and field.dtype.itemsize <= 8
            return numbers and len(field.shape) <= 5 and 0 not in field.shape
        if self.name == "rlds" or self.minari:
            return field.dtype.kind in "biuf"
        return not self.seed or field.ragged or field.dtype.kind in "biufc"
