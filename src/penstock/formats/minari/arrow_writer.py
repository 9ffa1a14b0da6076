"""Writing Minari's Arrow and Parquet datasets: an episode is a directory that appears whole, at a flat cost."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import arrow, stored_leaves
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.errors import DataError, FormatError, SpecError, require
from penstock.files import locked, move, scratch_folder, sync
from penstock.formats.minari import arrow_table, ids, metadata, writing
from penstock.formats.minari.arrow_source import ArrowSource, episode_directories, part
from penstock.formats.minari.columns import ROOTS
from penstock.formats.minari.metadata import bytes_of, changed


def create(
    path: Path, plan: writing.WritePlan, entries: Mapping[str, Any], sync: writing.Sync = "close"
) -> ArrowWriter:
    """Make an empty dataset in `path/data`, which appears only when whole, and open it for writing."""
    arrow()
    for column, field in plan.spec.fields.items():
        if entries["data_format"] == "parquet" and 0 in field.shape:
            raise SpecError(
                f"expected rows with values in Parquet, got {column} of {field.shape}; use data_format='arrow'"
            )
    writing.install(path, lambda data: metadata.write_json(data / metadata.FILE, entries))
    return ArrowWriter(path / "data", plan, str(entries["data_format"]), sync)


class ArrowWriter(writing.DatasetWriter):
    """Appends episodes to `folder`: each is written under a hidden name and renamed to its number."""

    def __init__(self, folder: Path, plan: writing.WritePlan, data_format: str, sync: writing.Sync = "close") -> None:
        super().__init__(folder, plan, sync)
        if data_format not in ("arrow", "parquet"):
            raise FormatError(f"expected data_format 'arrow' or 'parquet', got {data_format!r}", path=folder)
        self._format = data_format
        self._waiting: list[Path] = []  # episodes written since the last flush to the disk itself
        self._bytes: tuple[int, int] | None = None

    def _commit(self, episodes: Sequence[Episode]) -> list[int]:
        self._check(episodes)
        batches = [self._batch(episode) for episode in episodes]
        with self._locked(), scratch_folder(self._folder / "new") as staging:
            entries = self._entries()
            first, steps = self._totals(entries)
            size = self._size(first)
            numbers = list(range(first, first + len(episodes)))
            for number, batch, episode in zip(numbers, batches, episodes, strict=True):
                self._stage(staging / str(number), batch, self._plan.entries(episode, number))
            size += self._install(staging, numbers)
            totals = {"total_episodes": numbers[-1] + 1, "total_steps": steps + sum(map(len, episodes))}
            self._write_entries({**entries, **totals}, size)
            self._bytes = (numbers[-1] + 1, size)
        return numbers

    def _stage(self, directory: Path, batch: Any, entries: Mapping[str, Any]) -> None:
        directory.mkdir()
        (directory / metadata.FILE).write_text(metadata.strict_dumps(entries))
        self._write_part(directory / f"part-0.{self._format}", batch)

    def _install(self, staging: Path, numbers: Sequence[int]) -> int:
        """Make the staged episodes last, then move them to their place in order; their bytes."""
        size = 0
        for directory in (staging / str(number) for number in numbers):
            size += sum(path.stat().st_size for path in directory.iterdir())
            for path in _files(directory) if self._each else ():
                sync(path)
        for number in numbers:
            move(staging / str(number), self._folder / str(number))
        if self._each:
            sync(self._folder)
        else:
            self._waiting += [self._folder / str(number) for number in numbers]
        return size

    def _write_part(self, path: Path, batch: Any) -> None:
        pa = arrow()
        with open(path, "xb") as file:
            if self._format == "parquet":
                table = pa.Table.from_batches([batch])
                stored = stored_leaves(batch.schema)
                require("pyarrow.parquet", "arrow").write_table(table, file, row_group_size=len(table) or 1, **stored)
            else:
                with pa.ipc.new_file(file, batch.schema) as writer:
                    writer.write_batch(batch)

    def _batch(self, episode: Episode) -> Any:
        aligns = {
            path: field.align
            for path, field in self._plan.spec.fields.items()
            if field.align != "boundary" and path not in ("rewards", "terminations", "truncations")
            and not any(under(root, path) for root in ROOTS)
        }  # fmt: skip
        columns = {path: self._value(path, array) for path, array in episode.columns.items()}
        return arrow_table.encode(columns, len(episode) + 1, aligns)

    def _value(self, path: str, array: Array) -> Any:
        if (frames := self._plan.frames(path, array)) is not None:
            return frames
        if isinstance(array, Ragged):
            if self._plan.spec[path].kind == "text":
                return writing.text(array)
            return array.blobs() if array.dtype == np.uint8 else array
        return np.asarray(array)

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self._folder, wait=True)

    def _totals(self, entries: Mapping[str, Any]) -> tuple[int, int]:
        """The number of the next episode and the steps so far, counted again where the stored totals are stale."""
        number, steps = entries.get("total_episodes"), entries.get("total_steps")
        if isinstance(number, int) and isinstance(steps, int) and number >= 0:
            number = max(number, self._begin)
            before = number == self._begin or self._whole(number - 1)
            if before and not (self._folder / str(number)).exists():
                return number, steps
        self._set_aside()
        source = ArrowSource(self._folder, infos="skip", cache="off")
        with source:
            return int(source.numbers.max(initial=self._begin - 1)) + 1, source.steps

    def _set_aside(self) -> None:
        """Hide a last episode that is not whole, so that its number is free: leftovers of a killed writer."""
        for number in episode_directories(self._folder)[-1:]:
            if not self._whole(number):
                move(self._folder / str(number), self._folder / f".broken-{number}-{secrets.token_hex(4)}")

    def _whole(self, number: int) -> bool:
        """Whether the file of an episode is complete, to its footer."""
        try:
            arrow_table.read_schema(part(self._folder, number))
        except (FormatError, FileNotFoundError):
            return False
        return True

    def _size(self, number: int) -> int:
        """Bytes of the dataset, walked over once, and again only after somebody else wrote."""
        if self._bytes is None or self._bytes[0] != number:
            return metadata.bytes_of(self._folder)
        return self._bytes[1]

    def _write_entries(self, entries: Mapping[str, Any], size: int) -> None:
        metadata.write_json(
            self._folder / metadata.FILE, {**entries, "dataset_size": metadata.megabytes(size)}, durable=self._each
        )

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        self._check()
        with self._locked():
            entries = changed(self._entries(), metadata)
            self._write_entries(entries, bytes_of(self._folder))

    def update_episodes(self, entries: Mapping[int, Mapping[str, Any]]) -> None:
        """Add or replace metadata of episodes by number; `id` and `total_steps` stay."""
        self._check()
        with self._locked():
            for number, update in entries.items():
                path = self._folder / str(number) / metadata.FILE
                if not path.parent.is_dir():
                    raise DataError(f"expected the number of an episode, got {number} in {self._folder}")
                metadata.write_json(path, writing.merged(metadata.read_json(path) or {}, update))

    def _unflushed(self) -> Iterable[Path]:
        """The files of the episodes, the directories they are named in, and the totals."""
        for directory in self._waiting:
            yield from _files(directory)
        yield from (self._folder / metadata.FILE, self._folder)


def join_datasets(parts: Sequence[Path], out: Path, place: Path) -> None:
    """Move the episodes of datasets, whose numbers follow each other, into one dataset. A second call continues."""
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    described = [metadata.read_json(folder / "data" / metadata.FILE) or {} for folder in parts]
    entries = {name: value for name, value in described[0].items() if name != "dataset_size"}
    entries["dataset_id"] = ids.of_joined(entries["dataset_id"], parts[0], place)
    begun = {**entries, "total_episodes": 0, "total_steps": 0}
    for folder in parts:
        for number in episode_directories(folder / "data"):
            move(folder / "data" / str(number), data / str(number))
    sync(data)
    totals = {
        "total_episodes": int(described[-1]["total_episodes"]),
        "total_steps": sum(int(each["total_steps"]) for each in described),
    }
    moved = sum(bytes_of(data / str(number)) for number in episode_directories(data))
    size = metadata.megabytes(len(metadata.strict_dumps(begun).encode()) + moved)
    metadata.write_json(data / metadata.FILE, {**entries, **totals, "dataset_size": size})


def _files(directory: Path) -> Iterable[Path]:
    """The files of an episode's directory, then the directory itself."""
    return [*directory.iterdir(), directory]
