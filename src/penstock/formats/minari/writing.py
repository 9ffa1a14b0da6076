"""What all writers of Minari datasets share: preparing a new dataset, checking episodes, and their metadata."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.images import encode
from penstock.core.episode import Episode
from penstock.core.narrowing import is_integer
from penstock.core.ragged import Array, Ragged
from penstock.core.space_columns import spec_leaves
from penstock.core.spaces import Box
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError, SpecError
from penstock.files import atomic_path, sync
from penstock.formats.base.writer import PartStart, PartWriter, check_columns, check_open
from penstock.formats.minari import metadata
from penstock.formats.minari.columns import is_image

Images = Literal["raw", "jpeg"]
Sync = Literal["close", "episode"]

BATCH = 8 << 20  # bytes of episodes that one commit saves at most,
EPISODES = 1024  # how many of them,
SECONDS = 2.0  # and how long the first of them waits, as measured when the next one comes


_STATISTICS = frozenset(f"rewards_{name}" for name in metadata.STATISTICS)


def each(sync: Sync) -> bool:
    """Whether every episode is flushed to the disk itself."""
    if sync not in ("close", "episode"):
        raise TypeError(f"expected sync to be 'close' or 'episode', got {sync!r}")
    return sync == "episode"


class DatasetWriter(PartWriter):
    """Base of the writers of all back-ends. Abstract: a back-end saves episodes in `_commit`.

    With `sync="close"` a saved episode survives a kill of the process at once, and a loss of power after `close`; with
    "episode" both when `write` returns.
    """

    def __init__(self, folder: Path, plan: WritePlan, sync: Sync) -> None:
        self._folder = folder
        self._plan = plan
        self._accepted = plan.spec
        self._each = each(sync)
        self._closed = False
        self._begin = 0  # number of the first episode
        self._clock: Callable[[], float] = time.monotonic

    @property
    def spec(self) -> Spec:
        return self._plan.spec

    @override
    def write(self, episode: Episode) -> int:
        return self._commit([episode])[0]

    @override
    def begin_at(self, start: PartStart) -> None:
        self._begin = start.episode

    def write_all(self, episodes: Iterable[Episode]) -> list[int]:
        """Save several, with one commit for 8 MB, 1024 episodes or two seconds, the least of these."""
        return [number for batch in batches(episodes, self._clock) for number in self._commit(batch)]

    @abstractmethod
    def _commit(self, episodes: Sequence[Episode]) -> list[int]:
        """Save the episodes, all or none, and the new totals; their numbers."""

    @abstractmethod
    def _unflushed(self) -> Iterable[Path]:
        """The files and directories that `close` has to flush to the disk itself."""

    def _entries(self) -> dict[str, Any]:
        """The dataset's entries as they are now."""
        entries = metadata.read_json(self._folder / metadata.FILE)
        if entries is None:
            raise FormatError(
                "expected metadata, got an empty file or none; write it again with "
                "penstock.formats.minari.recover.rebuild_metadata, then append",
                path=self._folder / metadata.FILE,
            )
        return entries

    def close(self) -> None:
        """Flush what was written to the disk itself, where that was not done for every episode."""
        if not self._closed and not self._each:
            for path in self._unflushed():
                sync(path)
        self._closed = True

    def _check(self, episodes: Sequence[Episode] = ()) -> None:
        """Raise `DataError` for a closed writer, `SpecError` for episodes with other columns."""
        check_open(not self._closed)
        for episode in episodes:
            check_columns(episode, self._accepted)
            self._accepted = episode.spec


@dataclass(frozen=True, eq=False)
class WritePlan:
    """How the episodes of one dataset are written: their spec, and which columns are JPEG frames."""

    spec: Spec
    jpeg: frozenset[str]
    statistics: bool = True

    @classmethod
    def of(cls, spec: Spec, encoding: Images, *, statistics: bool = True) -> WritePlan:
        """Raises `SpecError` for images that JPEG cannot hold."""
        spaces = spec_leaves(spec) if encoding == "jpeg" else {}
        for path, space in spaces.items():
            if is_image(space) and isinstance(space, Box) and len(space.shape) == 3 and space.shape[2] != 3:
                raise SpecError(f"expected 3 channels to encode {path} as JPEG, got {space.shape}; use images='raw'")
        return cls(spec, frozenset(path for path, space in spaces.items() if is_image(space)), statistics)

    def entries(self, episode: Episode, number: int) -> dict[str, Any]:
        """The metadata of an episode as it is stored: `id`, `total_steps`, statistics, and what came with it."""
        steps = len(episode)
        given = {k: v for k, v in episode.metadata.items() if v is not None and k not in ("id", "total_steps")}
        known = not self.statistics or given.keys() >= _STATISTICS
        entries = {} if known else metadata.statistics(episode.rewards)
        if "seed" in given:
            given["seed"] = seed_of(given["seed"])
        return {"id": number, "total_steps": steps, **entries, **given}

    def frames(self, path: str, array: Array) -> list[bytes] | None:
        """A column's rows as JPEG frames, or None where it is stored as it is."""
        if path not in self.jpeg:
            return None
        return [encode(frame, "jpeg") for frame in np.asarray(array)]


def seed_of(seed: Any) -> int:
    if not is_integer(seed) or not -(2**63) <= int(seed) < 2**64:
        raise DataError(f"expected a seed that 64 bits hold, got {seed!r}")
    return int(seed)


def bytes_of(episode: Episode) -> int:
    return sum(array.nbytes for array in episode.columns.values())


def batches(episodes: Iterable[Episode], clock: Callable[[], float] = time.monotonic) -> Iterator[list[Episode]]:
    """Episodes in lists that one commit saves: `BATCH` bytes, `EPISODES`, or `SECONDS` old as an episode comes."""
    waiting: list[Episode] = []
    size, begin = 0, 0.0
    for episode in episodes:
        begin = begin if waiting else clock()
        waiting.append(episode)
        size += bytes_of(episode)
        if size >= BATCH or len(waiting) >= EPISODES or clock() - begin >= SECONDS:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def install(path: Path, fill: Callable[[Path], None]) -> None:
    """Make the directory `path` with a `data` directory that `fill` fills, in one step."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists already; delete it, or open it with append")
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        path.rmdir()  # an empty one
    with atomic_path(path, durable="folder") as new_folder:
        (new_folder / "data").mkdir(parents=True)
        fill(new_folder / "data")


def text(column: Ragged) -> list[str]:
    try:
        return column.strings()
    except UnicodeDecodeError as error:
        raise DataError(f"expected text in UTF-8, got {error}") from error


def merged(entries: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of an episode with new entries over the stored ones; `id` and `total_steps` stay."""
    return {**entries, **{k: v for k, v in update.items() if k not in ("id", "total_steps")}}
