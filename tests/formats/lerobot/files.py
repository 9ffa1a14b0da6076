"""Writes the layouts of versions 2.1 and 3.0 with PyArrow alone, independent of the writer of penstock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field
from penstock.formats.lerobot.info import name_of

FPS = 10


def feature(field: Field) -> dict[str, Any]:
    """A feature as `meta/info.json` has it."""
    if field.kind == "text":
        return {"dtype": "string", "shape": [1], "names": None}
    return {"dtype": field.dtype.name, "shape": list(field.shape or (1,)), "names": None}


def encoded(column: Any, field: Field) -> Any:
    """A column as the original stores it: fixed sizes for vectors, lists for more dimensions."""
    if isinstance(column, Ragged):
        return pa.array(column.strings(), pa.string())
    if len(field.shape) == 1:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(column).reshape(-1)), field.shape[0])
    kind = pa.from_numpy_dtype(field.dtype)
    for _ in field.shape:
        kind = pa.list_(kind)
    return pa.array(list(column) if not field.shape else column.tolist(), kind)


def table_of(episodes: Sequence[Episode]) -> Any:
    """Rows of episodes, without the text of tasks."""
    tables = [
        pa.table({name_of(path): encoded(e.columns[path], f) for path, f in e.spec.items() if path != "task"})
        for e in episodes
    ]
    return pa.concat_tables(tables)


def info_of(episodes: Sequence[Episode], version: str) -> dict[str, Any]:
    data_path = {
        "v2.1": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "v3.0": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    }[version]
    return {
        "codebase_version": version,
        "fps": FPS,
        "total_episodes": len(episodes),
        "total_frames": sum(map(len, episodes)),
        "chunks_size": 1000,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": data_path,
        "video_path": None,
        "features": {name_of(path): feature(f) for path, f in episodes[0].spec.items() if path != "task"},
    }


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def tasks_of(episodes: Sequence[Episode]) -> list[str]:
    """Texts by number."""
    return list(dict.fromkeys(text for e in episodes if "task" in e.spec for text in strings(e, "task")))


def strings(episode: Episode, path: str) -> list[str]:
    column = episode.columns[path]
    assert isinstance(column, Ragged)
    return column.strings()


def write_old(root: Path, episodes: Sequence[Episode]) -> Path:
    """Version 2.1: a file for each episode."""
    write_json(root / "meta/info.json", info_of(episodes, "v2.1"))
    rows: list[dict[str, Any]] = []
    for e, episode in enumerate(episodes):
        file = root / f"data/chunk-000/episode_{e:06d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of([episode]), file)
        rows.append({"episode_index": e, "tasks": tasks_of([episode]), "length": len(episode), **episode.metadata})
    (root / "meta/episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = [{"task_index": i, "task": task} for i, task in enumerate(tasks_of(episodes))]
    (root / "meta/tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return root


def write_new(root: Path, episodes: Sequence[Episode], *, group: int = 3, each: int = 2) -> Path:
    """Version 3.0: `each` episodes a file, in row groups of `group` rows."""
    write_json(root / "meta/info.json", info_of(episodes, "v3.0"))
    rows: list[dict[str, Any]] = []
    row = 0
    for number, first in enumerate(range(0, len(episodes), each)):
        mine = episodes[first : first + each]
        file = root / f"data/chunk-000/file-{number:03d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(mine), file, row_group_size=group)
        for e, episode in enumerate(mine, first):
            entry = {"episode_index": e, "tasks": tasks_of([episode]), "length": len(episode)}
            place = {"data/chunk_index": 0, "data/file_index": number}
            bounds = {"dataset_from_index": row, "dataset_to_index": row + len(episode)}
            rows.append({**entry, **place, **bounds, **episode.metadata})
            row += len(episode)
    folder = root / "meta/episodes/chunk-000"
    folder.mkdir(parents=True)
    names = dict.fromkeys(name for entry in rows for name in entry)
    table = pa.table({name: [entry.get(name) for entry in rows] for name in names})
    pq.write_table(table, folder / "file-000.parquet")
    tasks = tasks_of(episodes)
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "__index_level_0__": tasks})
    pq.write_table(table, root / "meta/tasks.parquet")
    return root
