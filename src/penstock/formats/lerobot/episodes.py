"""Metadata of episodes and tasks: JSON lines in version 2, Parquet since version 3."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.containers.arrow import arrow
from penstock.core.boundary import json_object, parsing
from penstock.core.narrowing import is_dict, is_list
from penstock.core.order import natural
from penstock.errors import FormatError, require
from penstock.files.remote import open_file, path_or_file
from penstock.formats.base.account import LeftOut
from penstock.formats.lerobot.info import Info

_TEXT = ("task", "__index_level_0__")  # columns of `tasks.parquet` that have the text
KEY = b"penstock"  # entry of a schema with what only penstock reads
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"  # as penstock writes it
LARGEST = 1 << 40  # index of an episode or a file, and frames of an episode


@dataclass(frozen=True)
class VideoPlace:
    """Where the frames of one camera of an episode are."""

    file: Path
    start: float
    end: float | None


@dataclass(frozen=True, eq=False)
class EpisodeEntry:
    """What the metadata says about one episode."""

    index: int
    length: int
    file: Path
    tasks: tuple[str, ...]
    videos: Mapping[str, VideoPlace] = field(default_factory=dict[str, VideoPlace])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_entries(info: Info, damage: list[LeftOut]) -> list[EpisodeEntry]:
    """Return the episodes in the order of their index."""
    entries: dict[int, EpisodeEntry] = {}
    for row in stored_rows(info, damage):
        try:
            entry = _entry(info, row)
        except FormatError:  # the names of files, which are the same for all episodes
            raise
        except (KeyError, TypeError, ValueError) as error:
            message = f"expected an episode with index, length and files, got {str(row)[:80]}: {error}"
            damage.append(LeftOut("episode", "meta/episodes", "damaged-part", message))
            continue
        if entry.index in entries:
            raise FormatError(
                f"expected one entry for each episode, got two for {entry.index}", path=info.root / "meta"
            )
        entries[entry.index] = entry
    return [entries[index] for index in sorted(entries)]


def stored_rows(info: Info, damage: list[LeftOut]) -> Iterable[dict[str, Any]]:
    """Return the metadata of each episode as they are stored, without statistics."""
    return _parquet_rows(info, damage) if info.shared_files else _json_rows(info.root / "meta/episodes.jsonl")


def _entry(info: Info, row: Mapping[str, Any]) -> EpisodeEntry:
    index, length = number(row["episode_index"]), number(row["length"])
    if info.shared_files:
        places = {"chunk_index": number(row["data/chunk_index"]), "file_index": number(row["data/file_index"])}
    else:
        places = {"episode_index": index}
    file = info.data_file(**places)
    tasks = row.get("tasks")
    texts = tuple(str(task) for task in tasks) if is_list(tasks) else ()
    videos = {
        name: _video(info, name, index, row) for name, feature in info.features.items() if feature.dtype == "video"
    }
    extra = {
        name: value
        for name, value in row.items()
        if name not in ("episode_index", "length", "tasks")
        and not name.startswith(("data/", "videos/", "stats/", "meta/", "dataset_"))
    }
    return EpisodeEntry(index, length, file, texts, videos, extra)


def _video(info: Info, name: str, index: int, row: Mapping[str, Any]) -> VideoPlace:
    if not info.shared_files:
        return VideoPlace(info.video_file(name, episode_index=index), 0.0, None)
    start, end = (float(row[f"videos/{name}/{side}_timestamp"]) for side in ("from", "to"))
    numbers = {key: number(row[f"videos/{name}/{key}"]) for key in ("chunk_index", "file_index")}
    return VideoPlace(info.video_file(name, **numbers), start, end)


def number(value: Any) -> int:
    if isinstance(value, bool) or int(value) != value or not 0 <= value < LARGEST:
        raise ValueError(f"expected a whole number of at least 0, got {value!r}")
    return int(value)


def _json_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                rows.append(json_object(line, f"{path}:{number}"))
    return rows


def episode_files(info: Info) -> list[Path]:
    """Return the Parquet files with metadata of episodes, in natural order of their names."""
    folder = info.root / "meta" / "episodes"
    return sorted(folder.glob("*/*.parquet"), key=lambda path: natural(path.relative_to(folder).as_posix()))


def _parquet_rows(info: Info, damage: list[LeftOut]) -> Iterator[dict[str, Any]]:
    parquet = require("pyarrow.parquet", "arrow")
    files = episode_files(info)
    if not files and info.entries.get("total_episodes"):
        raise FormatError("expected Parquet files in meta/episodes, got none", path=info.root)
    for path in files:
        try:
            with parsing(path), parquet.ParquetFile(path_or_file(path)) as file:
                names = [name for name in file.schema_arrow.names if not name.startswith("stats/")]
                rows: list[dict[str, Any]] = file.read(columns=names, use_threads=False).to_pylist()
                stored: dict[bytes, bytes] = file.schema_arrow.metadata or {}
                own: Any = json.loads(stored.get(KEY, b"{}"))
        except FormatError as error:
            damage.append(LeftOut("file", path.relative_to(info.root).as_posix(), "bad-file", str(error)))
            continue
        for row in rows:
            extra: Any = own.get(str(row.get("episode_index"))) if is_dict(own) else None
            yield {**(extra if is_dict(extra) else {}), **row}


def read_statistics(info: Info, episodes: Sequence[int]) -> dict[int, dict[str, dict[str, Any]]]:
    """Return the stored statistics of episodes: by index, name of the feature and figure."""
    wanted = set(episodes)
    by_episode: dict[int, dict[str, dict[str, Any]]] = {}
    if not info.shared_files:
        path = info.root / "meta/episodes_stats.jsonl"
        rows = _json_rows(path) if path.is_file() else []
        return {row["episode_index"]: row["stats"] for row in rows if row.get("episode_index") in wanted}
    parquet = require("pyarrow.parquet", "arrow")
    for path in episode_files(info):
        with parsing(path), parquet.ParquetFile(path_or_file(path)) as file:
            names = [name for name in file.schema_arrow.names if name.startswith("stats/")]
            table = file.read(columns=["episode_index", *names], use_threads=False)
        chosen = [i for i, index in enumerate(table.column("episode_index").to_pylist()) if index in wanted]
        table = table.take(arrow().array(chosen, arrow().int64()))
        by_episode |= zip(table.column("episode_index").to_pylist(), figures_of(table), strict=True)
    return by_episode


def figures_of(table: Any) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the statistics of each episode in a table of metadata, by feature and figure."""
    names = [name for name in table.schema.names if name.startswith("stats/")]
    for row in table.select(names).to_pylist():
        figures: dict[str, dict[str, Any]] = {}
        for name in names:
            _, feature, figure = name.split("/", 2)
            figures.setdefault(feature, {})[figure] = row[name]
        yield figures


def read_tasks(info: Info) -> dict[int, str] | None:
    """Return the text of each task by its index, or None if the dataset has no file of tasks."""
    if not info.shared_files:
        path = info.root / "meta/tasks.jsonl"
        if not path.is_file():
            return None
        with parsing(path):
            return {number(row["task_index"]): str(row["task"]) for row in _json_rows(path)}
    return _read_texts(info.root / "meta/tasks.parquet", "task_index", _TEXT)


def read_subtasks(info: Info) -> dict[int, str] | None:
    """Return the text of each subtask by its index, or None if the dataset has no file of subtasks."""
    return _read_texts(info.root / "meta/subtasks.parquet", "subtask_index", ("subtask", "__index_level_0__"))


def _read_texts(path: Path, index: str, texts: Sequence[str]) -> dict[int, str] | None:
    """Texts by number, from a table whose text has one of some names. None if there is no such file."""
    if not path.is_file():
        return None
    with parsing(path), require("pyarrow.parquet", "arrow").ParquetFile(path_or_file(path)) as file:
        names = file.schema_arrow.names
        text = next((name for name in texts if name in names), None)
        if text is None or index not in names:
            raise FormatError(f"expected the columns {index!r} and {texts[0]!r}, got {names}", path=path)
        rows = file.read(columns=[index, text], use_threads=False).to_pylist()
        return {number(row[index]): str(row[text]) for row in rows}
