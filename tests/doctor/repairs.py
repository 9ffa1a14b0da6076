"""Datasets of each format, and damage that `repair` mends."""

# pyright: basic

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from penstock.containers.tfrecord import record_of
from penstock.formats.base.format import named
from penstock.formats.zarr import pack_zip
from tests.doctor.test_planted import SPEC, clean
from tests.formats.lerobot.files import write_new
from tests.formats.lerobot.test_lerobot_damage import EPISODES

STEPS = [4, 6, 5, 3]
Plant = Callable[[Path], None]


def episodes(spec: penstock.Spec = SPEC) -> list[penstock.Episode]:
    parts = [{path: rows[: n + (SPEC[path].align == "boundary")] for path, rows in e.items()}
             for e, n in zip(clean(), STEPS, strict=False)]  # fmt: skip
    for part in parts:
        part["truncations"][-1] = True
        part["timestamps"] = np.arange(len(part["rewards"])) * 0.1
    return [penstock.Episode(spec, {path: part[path] for path in spec}, e) for e, part in enumerate(parts)]


def write(path: Path, format: str, **options: Any) -> Path:
    spec = SPEC
    if format == "lerobot":
        fields = {path: field for path, field in SPEC.items() if field.align == "step" and "next" not in path}
        spec = penstock.Spec({**fields, "observations/state": penstock.Field(np.dtype("f4"), (2,))})
        spec = penstock.Spec({name: field for name, field in spec.items() if name != "timestamps"})
    with named(format).create(path, spec, **options) as writer:
        for episode in episodes():
            columns = {name: episode.columns[name] for name in spec}
            if format == "lerobot":
                columns["observations/state"] = np.array(columns["observations/state"])[:-1, :2].copy()
            writer.write(penstock.Episode(spec, columns, episode.id))
    return path


def tables(path: Path) -> Path:
    path.mkdir()
    for number in range(2):
        index = np.repeat(np.arange(2) + 2 * number, 4)
        columns = {"episode_index": index, "x": np.arange(8.0) + number, "v": pa.array(list(np.ones((8, 2)) * number))}
        pq.write_table(pa.table(columns), path / f"{number}.parquet", row_group_size=4)
    return path


def append(name: str, data: bytes) -> Plant:
    def planted(path: Path) -> None:
        with (path / name if name else path).open("ab") as file:
            file.write(data)

    return planted


def unfinished_append(path: Path) -> None:
    """An archive behind whose first block of zeros a killed writer wrote."""
    path.write_bytes(path.read_bytes()[:-512] + b"left by a killed writer")


def shorten(name: str, cut: int) -> Plant:
    def planted(path: Path) -> None:
        file = path / name if name else path
        os.truncate(file, file.stat().st_size - cut)

    return planted


def entries(name: str, **changes: Any) -> Plant:
    def planted(path: Path) -> None:
        told = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps({**told, **changes}))

    return planted


def without_entry(name: str, entry: str) -> Plant:
    def planted(path: Path) -> None:
        told = json.loads((path / name).read_text())
        del told[entry]
        (path / name).write_text(json.dumps(told))

    return planted


def wrong_statistics(path: Path) -> None:
    told = json.loads((path / "meta/stats.json").read_text())
    told["action"]["max"][1] += 3
    (path / "meta/stats.json").write_text(json.dumps(told))


def renumbered(name: str) -> Plant:
    def planted(path: Path) -> None:
        file = path / "data/chunk-000/file-000.parquet"
        table = pq.read_table(file)
        column = np.asarray(table.column(name)).copy()
        column[5:9] += 1
        place = table.schema.get_field_index(name)
        pq.write_table(table.set_column(place, table.schema.field(place), pa.array(column)), file)

    return planted


def grown(array: str, rows: int) -> Plant:
    """More rows than episodes have, as a killed writer leaves them."""

    def planted(path: Path) -> None:
        file = path / array / ".zarray"
        told = json.loads(file.read_text())
        told["shape"][0] += rows
        file.write_text(json.dumps(told))

    return planted


def grown_zip(array: str, rows: int) -> Plant:
    """As `grown`, in a ZIP archive: it is unpacked and packed again."""

    def planted(path: Path) -> None:
        folder = path.with_name(f"{path.name} unpacked")
        shutil.unpack_archive(path, folder, "zip")
        grown(array, rows)(folder)
        path.unlink()
        pack_zip(folder, path)
        shutil.rmtree(folder)

    return planted


def zipped(path: Path, folder: Path) -> Path:
    """A dataset in a folder as one ZIP archive."""
    pack_zip(folder, path)
    shutil.rmtree(folder)
    return path


def without_total(path: Path) -> None:
    """A TFDS dataset while a writer is open, or after it was killed: no totals, and half a record."""
    entries("dataset_info.json", splits=[])(path)
    append("data-train.tfrecord-00000-of-00001", record_of(bytes(900))[:-7])(path)


MAKE: dict[str, Callable[[Path], Path]] = {
    "columns": lambda path: write(path, "columns"),
    "packed columns": lambda path: write(path, "columns", compression=1),
    "shards.tar": lambda path: write(path, "webdataset"),
    "folder": lambda path: write(path, "webdataset", shard_episodes=2),
    "packed.tgz": lambda path: write(path, "webdataset"),
    "rlds": lambda path: write(path, "rlds", name="data", images="raw"),
    "minari-v0": lambda path: write(path, "minari"),
    "arrow-v0": lambda path: write(path, "minari", data_format="arrow"),
    "lerobot": lambda path: write(path, "lerobot", fps=10),
    "lerobot files": lambda path: write_new(path, EPISODES),
    "zarr": lambda path: write(path, "zarr"),
    "buffer.zip": lambda path: zipped(path, write(path.with_name("buffer"), "zarr")),
    "tables": tables,
}
CAMERA = "segments/0/observations%2Fcamera.values"
Damage = tuple[str, str, Plant, int]
"""Dataset, finding, damage, and complete episodes that the damage destroyed."""
DAMAGE: list[Damage] = [
    ("columns", "torn-tail", append("episodes", b"x" * 31), 0),
    ("columns", "torn-tail", append(CAMERA, b"x" * 77), 0),
    ("packed columns", "torn-tail", append("segments/0/blocks", b"x" * 77), 0),
    ("shards.tar", "truncated", shorten("", 1024 + 600), 1),
    ("shards.tar", "truncated", shorten("", 1000), 0),
    ("shards.tar", "torn-tail", unfinished_append, 0),
    ("folder", "truncated", shorten("shard-000001.tar", 1024 + 600), 1),
    ("packed.tgz", "truncated", shorten("", 300), 1),
    ("packed.tgz", "truncated", shorten("", 2), 0),
    ("rlds", "torn-tail", without_total, 0),
    ("rlds", "totals", entries("dataset_info.json", splits=[{"name": "train", "shardLengths": ["3"]}]), 0),
    ("minari-v0", "totals", entries("data/metadata.json", total_steps=3), 0),
    ("minari-v0", "missing-part", without_entry("data/metadata.json", "observation_space"), 0),
    ("arrow-v0", "totals", entries("data/metadata.json", total_episodes=9), 0),
    ("lerobot", "totals", entries("meta/info.json", total_frames=7, total_episodes=1), 0),
    ("lerobot", "wrong-statistics", wrong_statistics, 0),
    ("lerobot", "numbering", renumbered("frame_index"), 0),
    ("lerobot", "numbering", renumbered("index"), 0),
    ("lerobot files", "missing-footer", shorten("data/chunk-000/file-001.parquet", 9), 0),
    ("zarr", "unused-rows", grown("data/reward", 4), 0),
    ("buffer.zip", "unused-rows", grown_zip("data/reward", 4), 0),
    ("tables", "missing-footer", shorten("1.parquet", 9), 0),
]
