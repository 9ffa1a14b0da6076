"""Writing Minari's HDF5 files: every episode saved when `write` returns, by several writers at once if need be.

The order is: the episode's group; the switch of the superblock; then the totals in `metadata.json`, replaced
atomically. A crash in between leaves totals that are too small, which every reader of ours and the next writer put
right from what is in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.hdf5 import Appender, File, Storage, VlenBytes
from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.narrowing import is_listed, is_mapping
from penstock.core.ragged import Array, Ragged
from penstock.errors import SpecError
from penstock.formats.minari import legacy, metadata, writing
from penstock.formats.minari.hdf5_index import MAIN
from penstock.formats.minari.hdf5_source import Hdf5Source, Layout
from penstock.formats.minari.metadata import changed, flattened
from penstock.formats.minari.spaces import stored_path

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
    """Make an empty dataset in `path/data`, which appears only when whole, and open it for writing.

    Raises `SpecError` for ragged columns of numbers, which have no place in the file.
    """
    for column, field in plan.spec.fields.items():
        if field.kind == "ragged" and field.dtype != np.uint8:
            raise SpecError(
                f"expected ragged columns of bytes or text, got {column} of {field.dtype}; pad it to an array"
            )

    def fill(data: Path) -> None:
        with Appender.create(data / MAIN) as file:
            if layout == "0.4":
                file.set_attrs("", legacy.attributes_of(entries))
        (data / f".{MAIN}.lock").unlink(missing_ok=True)
        if layout == "0.5":
            metadata.write_json(data / metadata.FILE, entries)

    writing.install(path, fill)
    return Hdf5Writer(path / "data", plan, layout, sync=sync, checksums=checksums)


class Hdf5Writer(writing.DatasetWriter):
    """Appends episodes to `folder/main_data.hdf5`. The file is locked only while an episode is being saved.

    `main` names another file than `main_data.hdf5`; `checksums` adds Fletcher-32 to every chunk of numbers. With
    `sync="close"` a saved episode survives a kill of the process at once, and a loss of power after `close`; with
    "episode" it survives both when `write` returns, at the cost of four fsyncs. Else a `write` costs the bytes, and
    O(log n) for n episodes in the file.
    """

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

    def _commit(self, episodes: Sequence[Episode]) -> list[int]:
        self._check_open()
        groups = [self._group(self._plan.check(episode)) for episode in episodes]
        with Appender.open(self._path, fsync=self._each) as file:
            entries = self._entries()
            first, steps = self._totals(file, entries)
            for number, (episode, datasets) in enumerate(zip(episodes, groups, strict=True), first):
                attrs, beside = self._attributes(episode, number)
                name = f"episode_{number}"
                if name in file:
                    file.free_if_empty(name)  # leftovers of a killed writer
                file.add_group(name, datasets, attrs, beside, storage=self._storage)
            totals = {"total_episodes": first + len(groups), "total_steps": steps + sum(map(len, episodes))}
            if self._layout == "0.4":
                file.set_attrs("", legacy.attributes_of(totals))
            file.commit()
            if self._layout == "0.5":
                self._write_entries({**entries, **totals})
        return list(range(first, first + len(groups)))

    def _entries(self) -> dict[str, Any]:
        """The dataset's entries as they are now; called while the file is locked."""
        if self._layout == "0.4":
            with File(self._path) as file:
                return legacy.read_attributes(file)
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
            names = {name: f"rewards_{name}" for name in legacy.STATISTICS if f"rewards_{name}" in entries}
            beside["rewards"] = {name: np.float64(entries.pop(key)) for name, key in names.items()}
            entries.setdefault("seed", "None")
        return attributes(entries), beside

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the dataset, atomically. Raises `DataError` for entries that describe the data."""
        self._check_open()
        with Appender.open(self._path, fsync=self._each) as file:
            entries = changed(self._entries(), metadata)
            if self._layout == "0.4":
                file.set_attrs("", legacy.attributes_of({key: entries[key] for key in metadata}))
            else:
                self._write_entries(entries)

    def update_episodes(self, entries: Mapping[int, Mapping[str, Any]]) -> None:
        """Add or replace metadata of episodes by number, all with one commit; `id` and `total_steps` stay.

        Raises `DataError` for an unknown episode.
        """
        self._check_open()
        with Appender.open(self._path, fsync=self._each) as file:
            for number, update in entries.items():
                file.set_attrs(f"episode_{number}", attributes(writing.merged({}, update)))

    def _unflushed(self) -> Iterable[Path]:
        """The file, its metadata where that is a separate file, and the names of both."""
        beside = [self._folder / metadata.FILE] if self._layout == "0.5" else []
        return [self._path, *beside, self._folder]


def attributes(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of an episode as HDF5 attributes: nested ones flattened, numbers of 64 bits, None left out."""
    flat: dict[str, Any] = {}
    for name, value in entries.items():
        if is_mapping(value):
            flat.update(flattened(value, name))
        else:
            flat[name] = value
    return {name: _scalar(value) for name, value in flat.items() if value is not None}


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.uint64(value) if 2**63 <= value < 2**64 else np.int64(value)
    return np.asarray(value) if is_listed(value) else value
