"""Writing Minari's HDF5 files: every episode saved when `write` returns, by several writers at once if need be.

The order is the episode's group, the switch of the superblock, then the totals in `metadata.json`. A crash in between
leaves totals that are too small, which every reader of ours and the next writer put right from the file.

`join_files` copies groups of episodes, which have their final numbers in their part, without decoding. Each commit
makes some groups visible together, so a second call after a kill goes on behind the last commit.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.hdf5 import Appender, Dataset, File, Group, Storage, VlenBytes
from penstock.containers.hdf5.filters import FLETCHER32
from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.narrowing import is_listed, is_mapping
from penstock.core.ragged import Array, Ragged
from penstock.errors import FormatError, SpecError
from penstock.formats.minari import ids, metadata, writing
from penstock.formats.minari.columns import stored_path
from penstock.formats.minari.hdf5_index import EPISODE, MAIN
from penstock.formats.minari.hdf5_source import Hdf5Source, Layout, attributes_of, read_attributes
from penstock.formats.minari.metadata import TotalsFile, changed, flattened

_COMMIT_BYTES = 256 << 20  # of values between two commits, when parts are joined
Value = AnyArray | Sequence[str] | VlenBytes | None


def create(
    path: Path,
    plan: writing.WritePlan,
    entries: Mapping[str, Any],
    layout: Layout,
    sync: writing.Sync = "close",
    *,
    checksums: bool = False,
) -> Hdf5Writer:
    """Make an empty dataset in `path/data`, which appears only when whole, and open it for writing."""
    for column, field in plan.spec.fields.items():
        if field.kind == "ragged" and field.dtype != np.uint8:
            raise SpecError(
                f"expected ragged columns of bytes or text, got {column} of {field.dtype}; pad it to an array"
            )

    def fill(data: Path) -> None:
        with Appender.create(data / MAIN) as file:
            if layout == "0.4":
                file.set_attrs("", attributes_of(entries))
        (data / f".{MAIN}.lock").unlink(missing_ok=True)
        if layout == "0.5":
            metadata.write_json(data / metadata.FILE, entries)

    writing.install(path, fill)
    return Hdf5Writer(path / "data", plan, layout, sync=sync, checksums=checksums)


@dataclass(slots=True)
class _Session:
    """The open file and its totals, for as long as no other writer changes it."""

    file: Appender
    number: int = -1  # of the next episode
    steps: int = 0
    totals: TotalsFile | None = None

    def close_totals(self) -> None:
        if self.totals is not None:
            self.totals.close()
            self.totals = None

    def close(self) -> None:
        self.close_totals()
        self.file.close(commit=False)


def _close_all(sessions: list[_Session]) -> None:
    while sessions:
        sessions.pop().close()


class Hdf5Writer(writing.DatasetWriter):
    """Appends episodes to `folder/main_data.hdf5`. The file is locked only while an episode is being saved."""

    def __init__(
        self,
        folder: Path,
        plan: writing.WritePlan,
        layout: Layout,
        main: str = MAIN,
        *,
        sync: writing.Sync = "close",
        checksums: bool = False,
    ) -> None:
        super().__init__(folder, plan, sync)
        self._storage = Storage(checksum=checksums)
        self._path, self._layout = folder / main, layout
        self._stored = {path: stored_path(path, plan.spec) for path in plan.spec}
        self._idle: list[_Session] = []  # one at most; a thread that writes takes it
        weakref.finalize(self, _close_all, self._idle)

    def _commit(self, episodes: Sequence[Episode]) -> list[int]:
        self._check(episodes)
        groups = [self._group(episode) for episode in episodes]
        with self._session() as session:
            file, first = session.file, max(session.number, self._begin)
            entries = self._changed_entries(session)
            for number, (episode, datasets) in enumerate(zip(episodes, groups, strict=True), first):
                attrs, beside = self._attributes(episode, number)
                # An empty group of this name is left of a killed writer.
                file.add_group(f"episode_{number}", datasets, attrs, beside, storage=self._storage, replace_empty=True)
            session.number, session.steps = first + len(groups), session.steps + sum(map(len, episodes))
            if self._layout == "0.4":
                totals = {"total_episodes": session.number, "total_steps": session.steps}
                file.set_attrs("", attributes_of(totals))
            file.commit()
            if self._layout == "0.5":
                self._write_totals(session, entries)
        return list(range(first, session.number))

    @contextmanager
    def _session(self) -> Generator[_Session]:
        """The file, locked for the block, which commits: still open if no other writer came since the last block."""
        session: _Session | None = None
        with suppress(IndexError):
            session = self._idle.pop()
        try:
            if session is not None and not session.file.resume():
                session.close()
                session = None
            if session is None:
                session = _Session(Appender.open(self._path, fsync=self._each))
            if session.number < 0:
                session.number, session.steps = self._totals(session.file, self._entries())
            yield session
            session.file.commit()
            session.file.pause()
        except BaseException:
            if session is not None:
                session.close()
            raise
        if self._idle:  # another thread was quicker
            session.close()
        else:
            self._idle.append(session)

    def _changed_entries(self, session: _Session) -> dict[str, Any]:
        """The dataset's entries; empty where only the totals change, in the open file."""
        if self._layout == "0.4" or (session.totals is not None and session.totals.holds()):
            return {}
        session.close_totals()
        return self._entries()

    def _write_totals(self, session: _Session, entries: Mapping[str, Any]) -> None:
        totals = session.number, session.steps
        if session.totals is None:
            session.totals = TotalsFile.write(self._path, entries, *totals, durable=self._each)
        else:
            session.totals.update(*totals, session.file.nbytes)

    def _entries(self) -> dict[str, Any]:
        """The dataset's entries as they are now; called while the file is locked."""
        if self._layout == "0.4":
            with File(self._path) as file:
                return read_attributes(file)
        return super()._entries()

    def _totals(self, file: Appender, entries: Mapping[str, Any]) -> tuple[int, int]:
        """The number of the next episode and the steps so far, counted again where the stored totals are stale."""
        number, steps = entries.get("total_episodes"), entries.get("total_steps")
        if isinstance(number, int) and isinstance(steps, int) and number >= 0:
            number = max(number, self._begin)
            before = number == self._begin or f"episode_{number - 1}" in file
            if before and f"episode_{number}" not in file:
                return number, steps
        with Hdf5Source(self._folder, self._path.name, infos="skip", cache="off") as source:
            return int(source.numbers.max(initial=self._begin - 1)) + 1, source.steps

    def _write_entries(self, entries: Mapping[str, Any]) -> None:
        size = metadata.size_of(self._folder)
        metadata.write_json(self._folder / metadata.FILE, {**entries, "dataset_size": size}, durable=self._each)

    def _group(self, episode: Episode) -> dict[str, Value]:
        """The datasets of an episode's group by path; an empty `infos` group where none were recorded."""
        datasets: dict[str, Value] = {"infos": None}
        for path, array in episode.columns.items():
            datasets[self._stored[path]] = self._value(path, array)
        return datasets

    def _value(self, path: str, array: Array) -> Value:
        if (frames := self._plan.frames(path, array)) is not None:
            return VlenBytes(frames)
        if not isinstance(array, Ragged):
            return array
        return writing.text(array) if self._plan.spec[path].kind == "text" else VlenBytes(array.blobs())

    def _attributes(self, episode: Episode, number: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Attributes of the group, and of the datasets in it."""
        entries = self._plan.entries(episode, number)
        beside: dict[str, dict[str, Any]] = {}
        if self._layout == "0.4":
            names = {name: f"rewards_{name}" for name in metadata.STATISTICS if f"rewards_{name}" in entries}
            beside["rewards"] = {name: np.float64(entries.pop(key)) for name, key in names.items()}
            entries.setdefault("seed", "None")
        return attributes(entries), beside

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        self._check()
        with self._session() as session:
            entries = changed(self._entries(), metadata)
            if self._layout == "0.4":
                session.file.set_attrs("", attributes_of({key: entries[key] for key in metadata}))
            else:
                self._write_entries(entries)

    def update_episodes(self, entries: Mapping[int, Mapping[str, Any]]) -> None:
        """Add or replace metadata of episodes by number, all with one commit; `id` and `total_steps` stay."""
        self._check()
        with self._session() as session:
            for number, update in entries.items():
                session.file.set_attrs(f"episode_{number}", attributes(writing.merged({}, update)))

    def close(self) -> None:
        _close_all(self._idle)
        super().close()

    def _unflushed(self) -> Iterable[Path]:
        """The file, its metadata where that is a separate file, and the names of both."""
        beside = [self._folder / metadata.FILE] if self._layout == "0.5" else []
        return [self._path, *beside, self._folder]


_PLAIN = frozenset((float, int))


def attributes(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of an episode as HDF5 attributes: nested ones flattened, numbers of 64 bits, None left out."""
    flat: dict[str, Any] = {}
    for name, value in entries.items():
        if type(value) in _PLAIN:
            flat[name] = value
        elif is_mapping(value):
            flat |= attributes(dict(flattened(value, name)))
        elif value is not None:
            flat[name] = _scalar(value)
    return flat


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.uint64(value) if 2**63 <= value < 2**64 else np.int64(value)
    return np.asarray(value) if is_listed(value) else value


def join_files(parts: Sequence[Path], out: Path, place: Path) -> None:
    """Copy the episodes of datasets, whose numbers follow each other, to one dataset. A second call continues."""
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    described = [_entries(part / "data") for part in parts]
    entries = dict(described[0])
    entries["dataset_id"] = ids.of_joined(entries["dataset_id"], parts[0], place)
    entries["total_episodes"] = described[-1]["total_episodes"]
    entries["total_steps"] = sum(int(each["total_steps"]) for each in described)
    main = data / MAIN
    with Appender.open(main) if main.exists() else Appender.create(main) as file:
        for part in parts:
            _copy_episodes(part / "data" / MAIN, file)
        if not (parts[0] / "data" / metadata.FILE).exists():  # of Minari 0.4
            file.set_attrs("", attributes_of(entries))
    (data / f".{MAIN}.lock").unlink(missing_ok=True)
    if (parts[0] / "data" / metadata.FILE).exists():
        metadata.write_json(data / metadata.FILE, entries | {"dataset_size": metadata.size_of(data)})


def _entries(data: Path) -> dict[str, Any]:
    entries = metadata.read_json(data / metadata.FILE)
    if entries is not None:
        return entries
    with File(data / MAIN) as file:
        return read_attributes(file)


def _copy_episodes(part: Path, file: Appender) -> None:
    """Copy the groups of a part that are not in the file, with a commit whenever many bytes wait for it."""
    waiting = 0
    with File(part) as source:
        for name in sorted(source.root, key=lambda name: int(name.removeprefix("episode_"))):
            group = source[name]
            if EPISODE.fullmatch(name) is None or not isinstance(group, Group):
                raise FormatError("expected groups of episodes", path=part, where=name)
            if name not in file:
                waiting += _copy_group(group, name, file)
            if waiting >= _COMMIT_BYTES:
                file.commit()
                waiting = 0
    file.commit()


def _copy_group(group: Group, name: str, file: Appender) -> int:
    """Copy a group with all datasets and attributes; return the size of its values."""
    datasets: dict[str, Value] = {}
    attrs: dict[str, dict[str, Any]] = {}
    checksums = False
    size = 0
    waiting: list[tuple[str, Group]] = [("", group)]
    while waiting:
        prefix, folder = waiting.pop()
        for key, child in folder.items():
            path = prefix + key
            if child.attrs:
                attrs[path] = dict(child.attrs)
            if isinstance(child, Dataset):
                datasets[path], nbytes = _values(child)
                size += nbytes
                checksums |= any(each.number == FLETCHER32 for each in child.filters)
            else:
                datasets.setdefault(path)
                waiting.append((f"{path}/", child))
    file.add_group(name, datasets, dict(group.attrs), attrs, storage=Storage(checksum=checksums))
    return size


def _values(dataset: Dataset) -> tuple[Value, int]:
    """The values of a dataset, as `Appender` takes them, and their size."""
    if dataset.kind in ("vlen", "vlen_string"):
        items = dataset.read_list()
        texts = [item.decode("utf-8", "surrogateescape") for item in items] if dataset.kind == "vlen_string" else None
        return VlenBytes(items) if texts is None else texts, sum(map(len, items))
    array = dataset.read()
    return array, array.nbytes
