"""A dataset's data directory: episodes, their metadata, and the dataset's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.errors import DataError, StateError
from penstock.formats.base.source import Source
from penstock.formats.minari import metadata as entries_of
from penstock.formats.minari import writing
from penstock.formats.minari.arrow_writer import ArrowWriter
from penstock.formats.minari.columns import check_columns, is_image
from penstock.formats.minari.format import MinariFormat
from penstock.formats.minari.hdf5_writer import Hdf5Writer
from penstock.recording.spaces import from_gymnasium
from penstock_mirrors.minari.creation import stored_spec
from penstock_mirrors.minari.data_collector.episode_buffer import EpisodeBuffer
from penstock_mirrors.minari.dataset.columns import as_dict, conformed, episode_of, stored_space
from penstock_mirrors.minari.dataset.staging import begin_data, empty_spec, has_data, legacy_metadata, widest_spaces
from penstock_mirrors.minari.serialization import deserialize_space, serialize_space

METADATA_FILE_NAME = entries_of.FILE
FORMAT = MinariFormat()
GymSpace = gymnasium.Space[Any]
PathLike = str | os.PathLike[str]

_SPACES = ("observation_space", "action_space")
_KINDS: dict[str, type] = {
    **dict.fromkeys(("dataset_id", "code_permalink", "algorithm_name", "minari_version"), str),
    **dict.fromkeys(("total_episodes", "total_steps"), int),
    **dict.fromkeys(("author", "author_email"), set),
}


class MinariStorage:
    """The data directory of a dataset; made by `read` or `new`. Each call sees the episodes that other writers added.

    `FORMAT` is "hdf5", "arrow" or "parquet".
    """

    FORMAT: ClassVar[str] = ""

    def __init__(
        self, data_path: PathLike, observation_space: GymSpace, action_space: GymSpace, jpeg_encoding: bool = False
    ) -> None:
        self._data_path = Path(data_path)
        self._spaces = (observation_space, action_space)
        self._jpeg_encoding = jpeg_encoding
        self._reading: Source | None = None
        self._writing: Hdf5Writer | ArrowWriter | None = None

    @classmethod
    def read_raw_metadata(cls, data_path: PathLike) -> dict[str, Any]:
        """Return a dataset's metadata entries, spaces as JSON text. Opens no other file, except for datasets of 0.4."""
        path = Path(data_path)
        if not path.is_dir():
            raise DataError(f"The data path {data_path} doesn't exist")
        entries = entries_of.read_json(path / METADATA_FILE_NAME)
        return legacy_metadata(path) if entries is None else entries

    @classmethod
    def read(cls, data_path: PathLike) -> MinariStorage:
        """Open a data directory. Nothing found in it is executed; a space that it lacks is the widest of its columns.

        Raises as `read_raw_metadata` does.
        """
        entries = cls.read_raw_metadata(data_path)
        spaces = [deserialize_space(entries[name]) for name in _SPACES if entries.get(name) is not None]
        if len(spaces) < len(_SPACES):
            spaces = widest_spaces(Path(data_path))
        kind = get_minari_storage(str(entries.get("data_format", "hdf5")))
        # Files of releases before the flag say by their bytes what is encoded; the flag then tells what is written.
        return kind(Path(data_path), spaces[0], spaces[1], jpeg_encoding=bool(entries.get("jpeg_encoding", False)))

    @classmethod
    def new(
        cls,
        data_path: PathLike,
        observation_space: GymSpace | None = None,
        action_space: GymSpace | None = None,
        env_spec: EnvSpec | None = None,
        data_format: str = "hdf5",
        *,
        jpeg_encoding: bool = False,
    ) -> MinariStorage:
        """Create an empty dataset in a new directory. Missing spaces are taken from the environment.

        `jpeg_encoding` stores images as JPEG, which loses detail; without it they are stored exactly.
        """
        kind = get_minari_storage(data_format)
        if env_spec is None and (observation_space is None or action_space is None):
            raise DataError("expected an env_spec or both spaces, got neither")
        path = Path(data_path)
        if (path / METADATA_FILE_NAME).exists():
            raise DataError(f"A dataset is already available at {path}. Delete it or choose another path.")
        if env_spec is not None and (observation_space is None or action_space is None):
            env = gymnasium.make(env_spec)
            observation_space, action_space = (
                observation_space or env.observation_space,
                action_space or env.action_space,
            )
            env.close()
        pair = [space for space in (observation_space, action_space) if space is not None]
        entries: dict[str, Any] = {"total_episodes": 0, "total_steps": 0, "data_format": kind.FORMAT}
        entries |= {"jpeg_encoding": jpeg_encoding}
        entries |= {name: serialize_space(space) for name, space in zip(_SPACES, pair, strict=True)}
        path.mkdir(parents=True, exist_ok=True)
        entries_of.write_json(path / METADATA_FILE_NAME, entries | stored_spec("env_spec", env_spec))
        return kind(path, *pair, jpeg_encoding=jpeg_encoding)

    @property
    def metadata(self) -> dict[str, Any]:
        """The dataset's metadata, read again at each access; `author` and `author_email` are sets."""
        entries = self.read_raw_metadata(self._data_path)
        entries |= dict(zip(_SPACES, self._spaces, strict=True))
        for name in ("author", "author_email"):
            if name in entries:
                value = entries[name]
                entries[name] = set(value.split("; ") if isinstance(value, str) else value)
        return entries

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries, atomically."""
        entries = self.read_raw_metadata(self._data_path)
        forbidden = sorted(entries_of.FIXED & metadata.keys() & entries.keys())
        if forbidden:
            raise DataError(f"You are not allowed to update values for {', '.join(forbidden)}")
        for name, kind in _KINDS.items():
            if name in metadata and not isinstance(metadata[name], kind):
                raise DataError(f"expected {name} as a {kind.__name__}, got {metadata[name]!r}")
        if has_data(self._data_path):
            self._writer().update_metadata(metadata)
        else:
            entries_of.write_json(self._data_path / METADATA_FILE_NAME, {**entries, **metadata})

    def update_episode_metadata(
        self, metadatas: Iterable[Mapping[str, Any]], episode_indices: Iterable[int] | None = None
    ) -> None:
        """Add or replace entries of episodes (default: all), one mapping each."""
        numbers = list(range(self.total_episodes) if episode_indices is None else map(int, episode_indices))
        updates = list(metadatas)
        if len(numbers) != len(updates):
            raise DataError(
                f"Metadatas and episode_indices have different lengths: {len(updates)} for {len(numbers)} episodes"
            )
        if numbers:
            self._writer().update_episodes(dict(zip(numbers, updates, strict=True)))
            self._reading = None
            self.update_metadata({})  # updates the stored size

    def get_episode_metadata(self, episode_indices: Iterable[int]) -> list[dict[str, Any]]:
        """Return the metadata of episodes: `id`, `total_steps`, `seed`, `options`, statistics, and added entries."""
        numbers = [int(e) for e in episode_indices]
        return self._source().episode_metadata(numbers) if numbers else []

    def apply(
        self, function: Callable[[dict[str, Any]], Any], episode_indices: Iterable[int] | None = None
    ) -> Iterator[Any]:
        """Call `function` with the dict of each episode (default: all), lazily."""
        return map(
            function, self.get_episodes(range(self.total_episodes) if episode_indices is None else episode_indices)
        )

    def get_episodes(self, episode_indices: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yield episodes as dicts with the names of `EpisodeData`. Memory: one at a time."""
        return (as_dict(episode, number, *self._columns) for number, episode in self._numbered(episode_indices))

    def episodes(self, episode_indices: Iterable[int] | None = None) -> Iterator[Episode]:
        """Yield episodes (default: all) as columns, with their metadata."""
        wanted = range(self.total_episodes) if episode_indices is None else episode_indices
        return (episode for _, episode in self._numbered(wanted))

    def _numbered(self, episode_indices: Iterable[int]) -> Iterator[tuple[int, Episode]]:
        source = self._reading
        for number in map(int, episode_indices):
            if source is None or number >= len(source):
                source = self._source()
            yield number, source.episode(number)

    def update_episodes(self, episodes: Iterable[EpisodeBuffer]) -> None:
        """Append the episodes of buffers, numbered in order; several are committed together."""
        spec = Spec({}, *self._columns)
        first = self.total_episodes
        stored = self._source().spec if first else None
        self.append(
            episode_of(_checked_id(buffer, number), spec, stored) for number, buffer in enumerate(episodes, first)
        )

    def append(self, episodes: Iterable[Episode]) -> None:
        """Append episodes given as columns, with their metadata. Values are cast to the dataset's dtypes if exact.

        The first episode sets the columns of a dataset.
        """
        arriving = iter(episodes)
        if self.total_episodes == 0:
            first = next(arriving, None)
            if first is None:
                return
            self._begin(first.spec)
            arriving = chain((first,), arriving)
        writer = self._writer()
        writer.write_all(conformed(episode, writer.spec) for episode in arriving)

    def update_from_storage(self, storage: MinariStorage, episode_indices: Iterable[int] | None = None) -> None:
        """Append episodes (default: all) of another storage with their metadata; authors are merged."""
        self.append(storage.episodes(episode_indices))
        mine, theirs = self.metadata, storage.metadata
        authors = {name: mine.get(name, set()) | theirs.get(name, set()) for name in ("author", "author_email")}
        self.update_metadata({name: names for name, names in authors.items() if names})

    def count_steps(self, episode_indices: Sequence[int] | AnyArray) -> int:
        """Return the total number of steps of some episodes. Cost: no values are read."""
        if self.total_episodes == 0:
            return 0
        return int(np.diff(self._source().offsets)[np.asarray(episode_indices, np.int64)].sum())

    def get_size(self) -> float:
        """Size of the data in MB, rounded to 0.1."""
        return entries_of.size_of(self._data_path)

    def close(self) -> None:
        """Close the files. A dataset without episodes gets its empty data file, so that others can read it."""
        if self.total_episodes == 0 and not has_data(self._data_path):
            self._begin(empty_spec(*self._columns))
        for opened in (self._reading, self._writing):
            if opened is not None:
                opened.close()
        self._reading = self._writing = None

    def _begin(self, spec: Spec) -> None:
        """Create the empty data file, or replace it while it is empty, for episodes of these columns."""
        begin_data(self._data_path, spec, self.FORMAT, self._images)
        self._writing = self._writer_of(spec)

    def _writer_of(self, spec: Spec) -> Hdf5Writer | ArrowWriter:
        plan = writing.WritePlan.of(check_columns(Spec(spec.fields, *self._columns)), self._images)
        if self.FORMAT == "hdf5":
            return Hdf5Writer(self._data_path, plan, "0.5")
        return ArrowWriter(self._data_path, plan, self.FORMAT)

    def _writer(self) -> Hdf5Writer | ArrowWriter:
        if self._writing is None:
            spec = self._source().spec
            # Spaces that a program registered are unknown to the format, which asks for its own.
            own = None in (spec.observation_space, spec.action_space)
            self._writing = self._writer_of(spec) if own else FORMAT.append(self._data_path)
        return self._writing

    @property
    def _images(self) -> writing.Images:
        return "jpeg" if self._jpeg_encoding else "raw"

    @cached_property
    def _columns(self) -> tuple[Space, Space]:
        return stored_space(self._spaces[0]), stored_space(self._spaces[1])

    def _source(self) -> Source:
        """Return the current episodes, including episodes of other writers."""
        if self._reading is not None:
            try:
                self._reading.refresh()
            except StateError:
                self._reading = None
        if self._reading is None:
            self._reading = FORMAT.open(self._data_path, infos="union")
        return self._reading

    @property
    def data_path(self) -> Path:
        return self._data_path

    @property
    def jpeg_encoding(self) -> bool:
        """Whether images are stored as JPEG."""
        return self._jpeg_encoding

    @property
    def total_episodes(self) -> int:
        """Number of stored episodes."""
        return int(self.read_raw_metadata(self._data_path)["total_episodes"])

    @property
    def total_steps(self) -> int:
        """Number of steps of all episodes."""
        return int(self.read_raw_metadata(self._data_path)["total_steps"])

    @property
    def observation_space(self) -> GymSpace:
        return self._spaces[0]

    @property
    def action_space(self) -> GymSpace:
        return self._spaces[1]


class HDF5Storage(MinariStorage):
    """Episodes in `main_data.hdf5`."""

    FORMAT = "hdf5"


class ArrowStorage(MinariStorage):
    """Episodes as Arrow files, a directory each."""

    FORMAT = "arrow"


class ParquetStorage(MinariStorage):
    """Episodes as Parquet files, a directory each."""

    FORMAT = "parquet"


STORAGES: dict[str, type[MinariStorage]] = {kind.FORMAT: kind for kind in (ArrowStorage, HDF5Storage, ParquetStorage)}


def get_minari_storage(storage_type: str) -> type[MinariStorage]:
    """Return the storage class of a format."""
    if storage_type not in STORAGES:
        raise DataError(f"No storage implemented for {storage_type}. Available formats: {list(STORAGES)}")
    return STORAGES[storage_type]


def get_storage_keys() -> list[str]:
    """Return the names of the formats."""
    return list(STORAGES)


def is_image_space(space: GymSpace) -> bool:
    """Return whether the standard stores a space as images: uint8, 2 or 3 dimensions, sides of 32 or more, 0 to 255."""
    return isinstance(space, gymnasium.spaces.Box) and is_image(from_gymnasium(cast("GymSpace", space)))


def _checked_id(buffer: EpisodeBuffer, number: int) -> EpisodeBuffer:
    if buffer.id not in (None, number):
        raise DataError(
            f"expected episode {number} next, got a buffer with the id {buffer.id}; leave the id out, stored episodes "
            "do not change"
        )
    return buffer
