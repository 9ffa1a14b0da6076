"""Read Minari's HDF5 files in place, in the layouts 0.5 and 0.4, without libhdf5 and without locks.

The state of a file is its size, time of change and superblock. It decides whether a kept index is used, and is part of
the fingerprint; device and inode are compared for the index alone. A reader has the superblock of the moment of
opening, and an appender overwrites no byte that this superblock leads to. In the older layout (Minari 0.4), entries of
the dataset are attributes of the root, and statistics are on the rewards dataset.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from typing_extensions import override

from penstock.containers.hdf5 import Dataset, File, Group
from penstock.containers.hdf5.filters import FLETCHER32
from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_array, is_dict, is_scalar
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.spaces import Space
from penstock.errors import FormatError, StateError
from penstock.files.remote import file_state
from penstock.formats.base.account import Account, LeftOut, unused_files
from penstock.formats.base.pieces import spread
from penstock.formats.base.state import GatheredColumn, SourceState, StateSource
from penstock.formats.minari import index_cache, metadata
from penstock.formats.minari.columns import Infos
from penstock.formats.minari.hdf5_columns import HDF5Columns, readable
from penstock.formats.minari.hdf5_index import MAIN, HDF5Index, build

Layout = Literal["0.5", "0.4"]

HELD = 1 << 16  # episodes whose metadata stays decoded
_JOINED = ("author", "author_email")
ROOT_MARKS = ("observation_space", "action_space", "total_episodes", "env_spec")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Hdf5State(SourceState):
    """One state of the files."""

    layout: Layout
    states: list[list[Any]]
    files: tuple[File, ...]
    index: HDF5Index
    data: HDF5Columns
    stated: Mapping[str, Any]
    entries: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])


class Hdf5Source(StateSource[_Hdf5State]):
    """A Minari dataset in HDF5: `folder/main`, with `metadata.json` next to it or attributes on its root."""

    def __init__(
        self,
        folder: Path,
        main: str = MAIN,
        infos: Infos = "strict",
        cache: index_cache.Where = "user",
        last: int | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.main = main
        self._last = last
        self._infos: Infos = infos
        self._cache: index_cache.Where = cache
        self._state = self._load()

    def __reduce__(self) -> tuple[type[Hdf5Source], tuple[Path, str, Infos, index_cache.Where, int | None]]:
        return Hdf5Source, (self.folder, self.main, self._infos, self._cache, self._last)

    @property
    def layout(self) -> Layout:
        """Whether metadata is in `metadata.json` ("0.5") or on the root of the file ("0.4")."""
        return self.state.layout

    @property
    def frames(self) -> frozenset[str]:
        """The columns that are stored as JPEG."""
        return self.state.data.frames

    @property
    def checksums(self) -> bool:
        """Whether chunks carry Fletcher-32, which is verified when they are read."""
        return any(each.number == FLETCHER32 for part in self.state.index.parts for each in part.filters)

    @property
    def stated(self) -> Mapping[str, Any]:
        return self.state.stated

    @property
    def numbers(self) -> IntArray:
        """`[E]` int64 the numbers in the groups' names; `0 .. E - 1` in a sound file."""
        return self.state.index.number

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        return spread(self.state.data.ragged[column].read(selection.start, selection.length), selection)

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Attributes of the episodes' groups: seed an int, options nested, `rewards_*`, anything a user added."""
        view = self.state
        return [_copied(self._entries(view, int(e))) for e in episodes]

    def _entries(self, view: _Hdf5State, e: int) -> dict[str, Any]:
        """The entries of an episode, decoded once; the last 65536 are cached."""
        entries = view.entries.get(e)
        if entries is None:
            if len(view.entries) >= HELD:
                view.entries.clear()
            entries = view.entries[e] = self._decoded(view, e)
        return entries

    def stored_entries(self, e: int) -> dict[str, Any]:
        """Metadata of an episode as stored, where its number and length may be wrong."""
        return self._stored(self.state, e)

    def _decoded(self, view: _Hdf5State, e: int) -> dict[str, Any]:
        steps = int(view.data.offsets[e + 1] - view.data.offsets[e])
        return metadata.episode_entries(self._stored(view, e), e, steps)

    def _stored(self, view: _Hdf5State, e: int) -> dict[str, Any]:
        name = f"episode_{view.index.number[e]}"
        file = view.files[int(view.index.group_file[e])]
        group = file.open_object(int(view.index.group[e]), name)
        if not isinstance(group, Group):
            raise FormatError("expected a group, got a dataset", path=file.path, where=name)
        stored = dict(group.attrs)
        if view.layout == "0.4" and isinstance(rewards := group["rewards"], Dataset):
            stored = {**statistics_of(rewards), **stored}
        return stored

    def refresh(self) -> bool:
        """Index again if the file changed."""
        old = self.state
        path = self.folder / self.main
        if old.states[0] == _state(path, _open(path)):
            return False
        new = self._load()
        kept = len(old.data.offsets)
        if not np.array_equal(new.data.offsets[:kept], old.data.offsets) or (
            kept > 1 and new.data.spec != old.data.spec
        ):
            raise StateError(f"expected {self.folder / self.main} to have grown, got other episodes; open it again")
        self._state = new
        return len(new.data.offsets) > kept

    def _load(self) -> _Hdf5State:
        path = self.folder / self.main
        entries = metadata.read_json(self.folder / metadata.FILE)
        main = _open(path)
        layout: Layout = "0.5"
        if entries is None:
            layout, entries = self._without_json(main)
        spaces = {
            "observations": metadata.space(entries, "observation_space", path),
            "actions": metadata.space(entries, "action_space", path),
        }
        files, index = self._index(path, main, spaces)
        data = readable(index, files, spaces, self._infos, str(path))
        totals = {"total_episodes": len(data.offsets) - 1, "total_steps": int(data.offsets[-1])}
        states = [_state(self.folder / name, file) for name, file in zip(index.files, files, strict=True)]
        # Neither device nor inode: a copy that keeps its times is the same dataset.
        digest = hashlib.sha256(json.dumps([[s[2:] for s in states], data.spec.fingerprint]).encode()).hexdigest()
        return _Hdf5State(
            spec=data.spec,
            offsets=data.offsets,
            digest=digest,
            metadata={**entries, **totals},
            account=Account((*index.left_out, *data.left_out, *self._other_files(index, layout, entries))),
            stated={name: entries[name] for name in totals if name in entries},
            arrays={column: GatheredColumn(rows, repair_bools=True) for column, rows in data.rows.items()},
            layout=layout,
            states=states,
            files=files,
            index=index,
            data=data,
        )

    def _without_json(self, main: File) -> tuple[Layout, dict[str, Any]]:
        attributes = read_attributes(main)
        if any(name in attributes for name in ROOT_MARKS):
            return "0.4", attributes
        return "0.5", {}

    def _other_files(self, index: HDF5Index, layout: Layout, entries: Mapping[str, Any]) -> list[LeftOut]:
        """Files of a dataset's folder that hold no episodes, and metadata that were lost."""
        if self.main != MAIN:
            return []  # one file among others
        names = {entry.name for entry in self.folder.iterdir() if entry.is_file()}
        lost = metadata.FILE in names and not entries
        known = {*index.files, f".{self.main}.lock", *((metadata.FILE,) if layout == "0.5" else ())}
        others = unused_files(names - known, f"{self.main} and the files that its links lead to")
        return [*([metadata.lost()] if lost else []), *others]

    def _index(self, path: Path, main: File, spaces: dict[str, Space | None]) -> tuple[tuple[File, ...], HDF5Index]:
        kept = index_cache.index_file(path, self._cache) if self._last is None else None
        key = json.dumps([str(path), _state(path, main), _spaces_digest(spaces)])
        cached = None if kept is None or self._cache == "refresh" else kept.read(key)
        if cached is not None:
            index = index_cache.unpack(*cached)
            files = (main, *(_open(self.folder / name) for name in index.files[1:]))
            states = [_state(self.folder / name, file) for name, file in zip(index.files, files, strict=True)]
            if states == cached[0]["states"]:
                return files, index
        opened = {self.main: main}
        index = build(opened, self.folder, self.main, spaces, self._last)
        if kept is not None and index.runs >= index_cache.WORTH:
            header, arrays = index_cache.pack(index)
            states = [_state(self.folder / name, file) for name, file in opened.items()]
            settled = all(file_state(self.folder / name).is_settled for name in opened)
            kept.write(key, {**header, "states": states}, arrays, settled=settled)
        return tuple(opened.values()), index


def _open(path: Path) -> File:
    if path.is_file() and path.stat().st_size == 0:
        raise FormatError("expected an HDF5 file, got an empty one", path=path)
    return File(path)


def _state(path: Path, file: File) -> list[Any]:
    """What tells one state of a file from another: place on disk, size, time of change, and the superblock seen."""
    state = file_state(path)
    return [state.device, state.inode, state.size, state.mtime_ns, repr(file.image.superblock)]


def _spaces_digest(spaces: Mapping[str, Space | None]) -> str:
    text = metadata.dumps([None if space is None else space.to_json() for space in spaces.values()])
    return hashlib.sha256(text.encode()).hexdigest()


def _copied(entries: dict[str, Any]) -> dict[str, Any]:
    """A copy whose nested dicts are the caller's own."""
    return {key: _copied(value) if is_dict(value) else value for key, value in entries.items()}


def read_attributes(file: File) -> dict[str, Any]:
    """The attributes of the root as plain values."""
    return {name: _plain(value) for name, value in file.root.attrs.items()}


def _plain(value: Any) -> Any:
    """An attribute as Python has it: text, numbers, lists."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if is_array(value):
        return [_plain(item) for item in value.tolist()]
    return value.item() if is_scalar(value) else value


def statistics_of(rewards: Dataset) -> dict[str, Any]:
    """The statistics on a rewards dataset, under the names of today: `rewards_max` and so on."""
    return {f"rewards_{name}": rewards.attrs[name] for name in metadata.STATISTICS if name in rewards.attrs}


def attributes_of(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Dataset entries as 0.4 keeps them: text, numbers, lists of them; authors joined by "; "."""
    attributes: dict[str, Any] = {}
    for name, value in entries.items():
        if isinstance(value, (list, tuple, set, frozenset)):
            items = [str(item) for item in cast("Iterable[Any]", value)]
            attributes[name] = "; ".join(items) if name in _JOINED else items
        elif value is not None:
            attributes[name] = np.int64(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return attributes
