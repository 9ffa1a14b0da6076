"""Each command that works in parts: its arguments, its run without jobs, and the bytes of its result to compare."""

# pyright: basic

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from penstock.conversion.certificate import Certificate
from penstock.conversion.verify import verify
from penstock.core.ragged import Ragged
from penstock.data.cached import CachedSource
from penstock.data.chosen import ChosenDataset
from penstock.data.located import locate
from penstock.formats.base.file_facts import MANY_FILES
from penstock.formats.webdataset.copying import copy
from penstock.formats.webdataset.source import ShardSource
from penstock.jobs.operations.record import record_arguments
from penstock.jobs.work_plan import WorkPlan
from penstock.recording.rollout_spec import RolloutSpec
from penstock.recording.rollout_worker import RolloutWorker
from tests.jobs import mapping
from tests.packages import modules_of_packages

RANGE_BYTES = 150_000
CAMERAS = ["front", "wrist", "hand"]
ROLLOUT = RolloutSpec("CartPole-v1", seed=5, n_envs=2)


@dataclass(frozen=True)
class Inputs:
    """Datasets that the commands read.

    Args:
        recording: A column store of 24 episodes of very different lengths, with NaN.
        shards: The same episodes as 12 tar shards.
        copy: A copy of the recording with a certificate, and one damaged value.
        robot: A column store of 9 episodes with two cameras, whose steps have three tasks.
        table: A table of so many Parquet files that it has an index.
    """

    recording: Path
    shards: Path
    copy: Path
    robot: Path
    table: Path


def make_inputs(folder: Path) -> Inputs:
    """Write the datasets."""
    rng = np.random.default_rng(17)
    lengths = np.concatenate([rng.integers(1, 12, 12), [90], rng.integers(1, 12, 11)])
    n, episodes = int(lengths.sum()), len(lengths)
    columns: dict[str, Any] = {name: rng.integers(0, 256, (n, 20, 20, 3)).astype("u1") for name in CAMERAS}
    columns["observations"] = rng.standard_normal((n + episodes, 8)).astype("f4")
    columns["rewards"] = rng.standard_normal(n)
    columns["rewards"][[3, 200]] = np.nan
    columns["actions"] = rng.standard_normal((n, 2)).astype("f4")
    columns["terminations"] = np.zeros(n, bool)
    columns["truncations"] = np.zeros(n, bool)
    columns["truncations"][np.cumsum(lengths) - 1] = True
    columns["task"] = rng.integers(0, 3, episodes)
    data = penstock.from_arrays(columns, lengths=lengths)
    inputs = Inputs(*(folder / name for name in ("recording", "shards", "copy", "robot", "table")))
    penstock.convert(data, inputs.recording, certificate=False)
    penstock.convert(data, inputs.shards, format="webdataset", options={"shard_episodes": 2}, certificate=False)
    penstock.convert(inputs.recording, inputs.copy)
    values = inputs.copy / "segments/0/rewards.values"
    raw = bytearray(values.read_bytes())
    raw[-1] ^= 1
    values.write_bytes(raw)
    _record_robot(inputs.robot, rng)
    for module in PACKAGES:
        module.write_inputs(folder, rng)
    _write_table(inputs.table)
    return inputs


def _write_table(folder: Path) -> None:
    folder.mkdir()
    for number in range(MANY_FILES):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"episode": [number] * (1 + number % 3), "x": [0.5] * (1 + number % 3)}), path)
        os.utime(path, ns=(10**18, 10**18))


def _record_robot(path: Path, rng: np.random.Generator) -> None:
    lengths = [1, *rng.integers(1, 9, 4), 30, *rng.integers(1, 9, 2), 1]
    n = int(np.sum(lengths))
    columns: dict[str, Any] = {
        f"observations/{name}": rng.integers(0, 256, (n, 16, 24, 3)).astype("u1") for name in CAMERAS[:2]
    }
    columns["observations/state"] = rng.standard_normal((n, 3)).astype("f4")
    columns["actions"] = rng.standard_normal((n, 2)).astype("f2")
    tasks = ["pick", "place", "stack"]
    columns["task"] = Ragged.from_strings([tasks[k] for k in np.maximum(rng.integers(0, 3, n), n // 2 < np.arange(n))])
    penstock.convert(penstock.from_arrays(columns, lengths=lengths), path, certificate=False)


@dataclass(frozen=True)
class Case:
    """A command in parts, and the same without jobs.

    Args:
        operation: Name of the operation.
        arguments: Returns its arguments, for a folder that may be written to.
        plain: Does the same without jobs, and returns the bytes to compare by name.
        outcome: Returns these bytes of a result in parts.
        range_bytes: Bytes of a range.
    """

    operation: str
    arguments: Callable[[Inputs, Path], dict[str, Any]]
    plain: Callable[[Inputs, Path], Mapping[str, bytes]]
    outcome: Callable[[Any, Path], Mapping[str, bytes]]
    range_bytes: int = RANGE_BYTES

    def plan(self, inputs: Inputs, folder: Path) -> WorkPlan:
        """Return a work plan of several jobs."""
        work = WorkPlan.make(self.operation, self.arguments(inputs, folder), range_bytes=self.range_bytes)
        assert len(work) > 1
        return work


def files_in(path: Path) -> dict[str, bytes]:
    """Return all files of a folder, or of a file, but for locks."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path)): each.read_bytes() for each in files if each.name != ".lock"}


def values_of(path: Path, key: str | None = None) -> dict[str, bytes]:
    """Return all values of a dataset, its metadata, and its certificate but for the places in it.

    With `key`, episodes are first sorted by that entry of their metadata.
    """
    with penstock.open(path) as data:
        metadata = data.source.episode_metadata(range(len(data)))
        order = range(len(data)) if key is None else np.argsort([each[key] for each in metadata]).tolist()
        values = {"spec": repr(dict(data.spec)).encode()}
        if key is None:
            values["fingerprint"] = data.source.fingerprint.encode()
        ordered = [dict(data.metadata), [metadata[e] for e in order]]
        values["metadata"] = json.dumps(ordered, sort_keys=True, default=str).encode()
        for number, e in enumerate(order):
            for name, column in data[e].columns.items():
                parts = (column.values, column.offsets) if isinstance(column, Ragged) else (column,)
                values[f"{number}/{name}"] = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    certificate = path.with_name(f"{path.name}.certificate.json")
    if certificate.exists():
        proof = json.loads(certificate.read_text())
        values["certificate"] = json.dumps([proof["columns"], proof["notes"]]).encode()
    return values


def _minari_values(path: Path) -> dict[str, bytes]:
    """Return all values of a file of HDF5, whose size depends on when its groups became visible."""
    values = values_of(path)
    del values["fingerprint"]  # has the time of the file
    dataset, episodes = json.loads(values["metadata"])
    del dataset["dataset_size"]
    return {**values, "metadata": json.dumps([dataset, episodes]).encode()}


def _records(path: Path) -> dict[str, bytes]:
    """Return the records of all shards of RLDS together, and the other files but for the numbers of records."""
    shards = sorted(path.glob("*.tfrecord-*"))
    others = {name: (path / name).read_bytes() for name in ("features.json", "penstock.json")}
    info = json.loads((path / "dataset_info.json").read_text())
    (split,) = info.pop("splits")
    assert len(split["shardLengths"]) == len(shards)
    totals = [sum(map(int, split["shardLengths"])), split["numBytes"], split["filepathTemplate"], info]
    return {**others, "records": b"".join(each.read_bytes() for each in shards), "info": json.dumps(totals).encode()}


def _lerobot(path: Path) -> dict[str, bytes]:
    """Return values and metadata of a LeRobot dataset, and its files that do not depend on how data are divided."""
    values = values_of(path)
    del values["fingerprint"]  # of the files
    with penstock.open(path) as data:
        values["episodes"] = json.dumps(data.source.episode_statistics(range(len(data)))).encode()
    return values | {name: (path / "meta" / name).read_bytes() for name in ("info.json", "stats.json", "tasks.parquet")}


def report_bytes(report: Any) -> dict[str, bytes]:
    """Return the report of a check."""
    findings = [dataclasses.asdict(each) for each in report.findings]
    measures = {name: np.asarray(values).tobytes() for name, values in report.measures.flat.items()}
    return {"findings": json.dumps(findings).encode(), "digests": report.digests.tobytes(), **measures}


def _recording(inputs: Inputs, folder: Path) -> dict[str, Any]:
    return ChosenDataset(str(inputs.recording)).arguments()


def _convert(**more: Any) -> Callable[[Inputs, Path], dict[str, Any]]:
    return lambda inputs, folder: {**_recording(inputs, folder), "out": str(folder / "out"), **more}


def _converted(read: Callable[[Path], Mapping[str, bytes]], **more: Any) -> Callable[[Inputs, Path], Any]:
    def plain(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
        penstock.convert(inputs.recording, folder / "out", **more)
        return read(folder / "out")

    return plain


def _reshard(out: str, kind: Any) -> Case:
    limits = (100_000, 2)

    def plain(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
        with ShardSource(inputs.shards) as source:
            copy(source, folder / out, limits, kind)
        return files_in(folder / out)

    def arguments(inputs: Inputs, folder: Path) -> dict[str, Any]:
        given = {"out": str(folder / out), "shard_bytes": limits[0], "shard_episodes": limits[1], "compression": kind}
        return {"location": str(inputs.shards), **given}

    return Case("reshard", arguments, plain, lambda result, folder: files_in(folder / out))


def _indexed(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
    (dataset,) = locate(str(inputs.table)).datasets
    summary = {"path": str(dataset), "format": "tables", **dataset.format.build_index(dataset.paths, force=True)}
    return _index_bytes([summary], folder)


def _index_bytes(result: Any, folder: Path) -> Mapping[str, bytes]:
    (summary,) = result
    return {"index": Path(summary["index"]).read_bytes(), "summary": json.dumps(summary, sort_keys=True).encode()}


def _cached_bytes(parent: Path) -> dict[str, bytes]:
    """Return the values of cached columns, as any reader of the cache gets them."""
    read: dict[str, bytes] = {}
    for store in sorted(parent.glob("*/store")):
        with penstock.open(store) as data:
            read[store.parent.name] = b"".join(each.columns["values"].tobytes() for each in data)
    assert len(read) == len(CAMERAS)
    return read


def _cache(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
    with penstock.open(inputs.recording) as data:
        for name in CAMERAS:
            source = CachedSource(data.source, name)
            store = source.stored_values(folder / "derived")
            store.fill()
            store.close()
    return _cached_bytes(folder / "derived")


def _record(inputs: Inputs, folder: Path, key: str | None = None) -> Mapping[str, bytes]:
    RolloutWorker(ROLLOUT).record(range(24), folder / "out")
    return values_of(folder / "out", key)


def _verified(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
    with penstock.open(inputs.copy) as copied, penstock.open(inputs.recording) as original:
        wrong = list(verify(Certificate.read(inputs.copy), copied.source, original.source))
    assert len(wrong) == 1
    return {"wrong": json.dumps(wrong).encode()}


ENCODING = {"fps": 10, "cameras": "video", "codec": "libx264rgb", "crf": 0}


def _encoded(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
    penstock.convert(inputs.robot, folder / "out", format="lerobot", options=ENCODING)
    return _lerobot(folder / "out")


def _mapped(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
    with penstock.open(inputs.recording) as data:
        data.map_episodes(mapping.Changed, seed=3).write(folder / "out")
    return values_of(folder / "out")


PACKING: dict[str, Any] = {"length": 128, "overlong": "split", "window": 4}


def _packed(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
    with penstock.open(inputs.recording) as data:
        data.sequences().pack(**PACKING, keep="recompute", cache=folder / "packs")
    return files_in(folder / "packs")


CASES = {
    "plan --pack": Case(
        "pack",
        lambda inputs, folder: {**_recording(inputs, folder), "pack": PACKING, "folder": str(folder / "packs")},
        _packed,
        lambda result, folder: files_in(folder / "packs"),
        range_bytes=2 * PACKING["window"] * 8,
    ),
    "stats": Case(
        "stats",
        lambda inputs, folder: {**_recording(inputs, folder), "by": "task"},
        lambda inputs, folder: {
            "json": json.dumps(penstock.statistics(penstock.open(inputs.recording), by="task").to_json()).encode()
        },
        lambda result, folder: {"json": json.dumps(result.to_json()).encode()},
        range_bytes=1,
    ),
    "check --deep": Case(
        "check",
        lambda inputs, folder: {**_recording(inputs, folder), "deep": True, "thresholds": {"frozen_steps": 3}},
        lambda inputs, folder: report_bytes(
            penstock.check(inputs.recording, deep=True, thresholds={"frozen_steps": 3})
        ),
        lambda result, folder: report_bytes(result),
    ),
    "certificate --verify": Case(
        "verify",
        lambda inputs, folder: {"location": str(inputs.copy), "source": _recording(inputs, folder)},
        _verified,
        lambda result, folder: {"wrong": json.dumps(result).encode()},
    ),
    "convert to columns": Case(
        "convert", _convert(), _converted(values_of), lambda result, folder: values_of(folder / "out")
    ),
    "convert to webdataset": Case(
        "convert",
        _convert(to="webdataset", writer={"shard_episodes": 1}),
        _converted(files_in, format="webdataset", options={"shard_episodes": 1}),
        lambda result, folder: files_in(folder / "out"),
    ),
    "convert to minari": Case(
        "convert",
        _convert(to="minari", writer={"data_format": "parquet"}),
        _converted(files_in, format="minari", options={"data_format": "parquet"}),
        lambda result, folder: files_in(folder / "out"),
    ),
    "convert to minari, hdf5": Case(
        "convert",
        _convert(to="minari"),
        _converted(_minari_values, format="minari"),
        lambda result, folder: _minari_values(folder / "out"),
    ),
    "convert to zarr": Case(
        "convert",
        _convert(to="zarr", writer={"chunk_rows": 300}),
        _converted(files_in, format="zarr", options={"chunk_rows": 300}),
        lambda result, folder: files_in(folder / "out"),
    ),
    "convert to rlds": Case(
        "convert",
        _convert(to="rlds"),
        _converted(_records, format="rlds"),
        lambda result, folder: _records(folder / "out"),
    ),
    "convert to lerobot": Case(
        "convert",
        lambda inputs, folder: {
            "location": str(inputs.robot),
            "out": str(folder / "out"),
            "to": "lerobot",
            "writer": ENCODING,
        },
        _encoded,
        lambda result, folder: _lerobot(folder / "out"),
        range_bytes=20_000,
    ),
    "map to columns": Case(
        "convert",
        lambda inputs, folder: {**_recording(inputs, folder), "out": str(folder / "out"), "map": mapping.ENTRIES},
        _mapped,
        lambda result, folder: values_of(folder / "out"),
    ),
    "reshard": _reshard("out", None),
    "reshard --compression gzip": _reshard("out", "gzip"),
    "index": Case(
        "index",
        lambda inputs, folder: {"location": str(inputs.table), "force": True},
        _indexed,
        _index_bytes,
        range_bytes=20_000_000,
    ),
    "cache": Case(
        "cache",
        lambda inputs, folder: {**_recording(inputs, folder), "folder": str(folder / "derived")},
        _cache,
        lambda result, folder: _cached_bytes(folder / "derived"),
        range_bytes=1000,
    ),
    "record": Case(
        "record",
        lambda inputs, folder: record_arguments(ROLLOUT, folder / "out", 24, job_episodes=3),
        _record,
        lambda result, folder: values_of(folder / "out"),
    ),
    "record --grow": Case(
        "record",
        lambda inputs, folder: record_arguments(ROLLOUT, folder / "out", 24, job_episodes=3, grow=True),
        lambda inputs, folder: _record(inputs, folder, "number"),
        lambda result, folder: values_of(folder / "out", "number"),
    ),
}
PACKAGES = modules_of_packages("job_cases")  # which import this module
for module in PACKAGES:
    CASES |= module.CASES
