"""Datasets that were written in parts become one dataset: files are moved and numbered again.

A part is a dataset whose writer began at the number of its first episode and step (`LeRobotWriter.begin_at`). So its
rows, its videos and nearly all figures of its episodes are final. Three things depend on the other parts:

* Numbers of chunks and files. Only the metadata of episodes have them.
* Numbers of tasks, in the order in which their texts first occur. A part with other numbers gets a new column
  `task_index`: its data files are written again, and pictures in them are copied without decoding.
* Figures of the dataset. They are merged episode by episode, as a single writer does, and are equal to the last bit.

The metadata of the parts say which files are moved where, and the parts keep their metadata. So a second call, after a
kill, does what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import arrow
from penstock.core.arrays import IntArray
from penstock.errors import FormatError, require
from penstock.files import move, sync, write_atomic
from penstock.formats.lerobot.episodes import EPISODES, episode_files, figures_of, read_tasks
from penstock.formats.lerobot.info import INFO, STATS, Info, read_info
from penstock.formats.lerobot.joining import Place, numbers, place_after
from penstock.formats.lerobot.pending import FOLDER
from penstock.formats.lerobot.stats import Figures, add_figures, column_figures, plain_figures
from penstock.formats.lerobot.written_files import json_bytes, tables_with, write_tables, write_tasks

TASKS = "task_index"


def join_datasets(parts: Sequence[Path], out: Path) -> None:
    """Move the files of datasets into one dataset. A second call continues after a kill.

    Args:
        parts: Datasets of version 3.0, each of which continues the numbers of the one before it.
        out: The new dataset. Its folder may exist from an earlier call.

    Raises:
        FormatError: A part is damaged, or does not continue the one before it.
    """
    infos = [read_info(part) for part in parts]
    joined = _JoinedDataset(out, infos)
    for info in infos:
        joined.add(info)
    joined.write()


class _JoinedDataset:
    """The dataset that parts are moved to, one after the other."""

    def __init__(self, root: Path, infos: Sequence[Info]) -> None:
        self._root = root
        filled = [info for info in infos if info.entries.get("total_episodes")]
        self._info = Info(root, "v3.0", infos[0].fps, infos[0].features, {}, (filled or infos)[0].entries)
        self._last: dict[str, Place] = {}  # numbers of the last file of each kind
        self._tasks: dict[str, int] = {}
        self._statistics: dict[str, Figures] = {}
        self._episodes = self._steps = 0
        self._schema: Any = None  # of the metadata of episodes

    def add(self, part: Info) -> None:
        """Move the files of a part, and write its metadata of episodes."""
        texts = read_tasks(part) or {}
        tasks = np.array([self._tasks.setdefault(texts[i], len(self._tasks)) for i in range(len(texts))], np.int64)
        for path in episode_files(part):
            with require("pyarrow.parquet", "arrow").ParquetFile(path) as file:
                table = file.read(use_threads=False)
            if not len(table):
                continue
            self._count(table, path)
            if self._schema is None:
                self._schema = table.schema.remove_metadata()
            table = self._moved(part, table.cast(self._schema.with_metadata(table.schema.metadata)), tasks)
            for figures in figures_of(table):
                add_figures(self._statistics, figures)
            target = self._root / EPISODES.format(**numbers(self._last["meta/episodes"]))
            target.parent.mkdir(parents=True, exist_ok=True)
            write_tables(target, table.schema, [table])

    def _moved(self, part: Info, table: Any, tasks: IntArray) -> Any:
        """Move the files that metadata of episodes name; return the metadata with their new numbers."""
        renumbers = not np.array_equal(tasks, np.arange(len(tasks)))
        columns: dict[str, Any] = {}
        for kind in ("data", *(f"videos/{name}" for name, each in part.features.items() if each.dtype == "video")):
            names = [f"{kind}/chunk_index", f"{kind}/file_index"]
            old: list[Place] = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
            new = {place: self._next(kind) for place in dict.fromkeys(old)}
            if kind == "data" and renumbers:
                columns |= self._renumbered(part, table, tasks, new)
            else:
                self._move(part, kind, new)
            columns |= {name: [new[place][i] for place in old] for i, name in enumerate(names)}
        number = numbers(self._next("meta/episodes"))
        columns |= {f"meta/episodes/{name}": [value] * len(table) for name, value in number.items()}
        for name, values in columns.items():
            field = table.schema.field(name)
            table = table.set_column(table.schema.get_field_index(name), field, arrow().array(values, field.type))
        return table

    def _move(self, part: Info, kind: str, places: Mapping[Place, Place]) -> None:
        """Move files of a part that are not moved yet."""
        for old, new in places.items():
            target = _file(self._info, kind, new)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                move(_file(part, kind, old), target)

    def _renumbered(
        self, part: Info, table: Any, tasks: IntArray, places: Mapping[Place, Place]
    ) -> dict[str, list[Any]]:
        """Write data files of a part with other numbers of tasks; return the figures of these numbers by column."""
        figures: dict[int, Figures] = {}
        for old, new in places.items():
            source, target = _file(part, "data", old), _file(self._info, "data", new)
            target.parent.mkdir(parents=True, exist_ok=True)
            with require("pyarrow.parquet", "arrow").ParquetFile(source) as file:
                rows = file.read(columns=["episode_index", TASKS], use_threads=False)
                renumbered = tasks[rows.column(TASKS).to_numpy()]
                write_tables(target, file.schema_arrow, tables_with(file, {TASKS: renumbered}))
            episodes, first = np.unique(rows.column("episode_index").to_numpy(), return_index=True)
            for episode, own in zip(episodes.tolist(), np.split(renumbered, first[1:]), strict=True):
                figures[episode] = column_figures(own)
        ordered = [figures[index] for index in table.column("episode_index").to_pylist()]
        plain = [plain_figures({TASKS: each})[TASKS] for each in ordered]
        return {f"stats/{TASKS}/{figure}": [each[figure] for each in plain] for figure in plain[0]}

    def _next(self, kind: str) -> Place:
        """Return the numbers of the next file of a kind."""
        last = self._last.get(kind)
        self._last[kind] = (0, 0) if last is None else place_after(last, self._info.chunks_size)
        return self._last[kind]

    def _count(self, table: Any, path: Path) -> None:
        """Count episodes and steps. Raises `FormatError` if they do not continue those before."""
        indices = table.column("episode_index").to_pylist()
        ends = table.column("dataset_to_index").to_pylist()
        first = (indices[0], table.column("dataset_from_index")[0].as_py())
        if first != (self._episodes, self._steps) or indices != [*range(first[0], first[0] + len(indices))]:
            message = f"expected episodes from {self._episodes}, step {self._steps} on, got {first[0]}, step {first[1]}"
            raise FormatError(message, path=path)
        self._episodes, self._steps = indices[-1] + 1, ends[-1]

    def write(self) -> None:
        """Write the metadata of the dataset."""
        for folder in ("meta/episodes/chunk-000", "data/chunk-000", FOLDER):
            (self._root / folder).mkdir(parents=True, exist_ok=True)
        write_tasks(self._root, list(self._tasks))
        if self._episodes:
            write_atomic(self._root / STATS, json_bytes(plain_figures(self._statistics)))
        totals = {"total_episodes": self._episodes, "total_frames": self._steps, "total_tasks": len(self._tasks)}
        splits = {"train": f"0:{self._episodes}"} if self._episodes else {}
        write_atomic(self._root / INFO, json_bytes({**self._info.entries, **totals, "splits": splits}))
        sync(*(folder for folder, _, _ in os.walk(self._root)))


def _file(info: Info, kind: str, place: Place) -> Path:
    """Return the path of a data file, or of a video file of a camera."""
    if kind == "data":
        return info.data_file(**numbers(place))
    return info.video_file(kind.removeprefix("videos/"), **numbers(place))
