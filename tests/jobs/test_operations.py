"""Each operation in parts equals the run on one process."""

# pyright: basic

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.conversion.certificate import Certificate
from penstock.conversion.difference import difference
from penstock.conversion.verify import verify
from penstock.core.columns import Columns
from penstock.data.chosen import ChosenDataset
from penstock.doctor.examine import Report
from penstock.errors import DataError
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.runners import ProcessRunner, ThreadRunner
from penstock.jobs.staging import StagingFolder
from penstock.jobs.work_plan import WorkPlan
from tests.locations.server import serving

SMALL = 500_000


def worked(operation: str, arguments: dict[str, object], folder: Path, processes: int = 0) -> object:
    work = WorkPlan.make(operation, arguments, range_bytes=SMALL)
    assert len(work) > 1
    run_work(work, folder, ProcessRunner(processes, meanwhile=False) if processes else ThreadRunner(2))
    return finish_work(work, folder)


def same_tables(one: Columns, other: Columns) -> bool:
    return list(one.flat) == list(other.flat) and all(
        np.array_equal(one.flat[name], other.flat[name], equal_nan=True) for name in one.flat
    )


@pytest.mark.parametrize(("deep", "processes"), [(False, 0), (True, 2)])
def test_check(recording: Path, tmp_path: Path, deep: bool, processes: int) -> None:
    arguments = {"location": str(recording), "deep": deep, "thresholds": {"frozen_steps": 3}}
    report = worked("check", arguments, tmp_path, processes)
    expected = penstock.check(recording, deep=deep, thresholds={"frozen_steps": 3})
    assert isinstance(report, Report)
    assert report.findings == expected.findings
    assert any(finding.name == "nan" for finding in report.findings)
    assert same_tables(report.measures, expected.measures)
    assert np.array_equal(report.digests, expected.digests)


def test_check_of_damaged_data(recording: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(recording, damaged)
    values = damaged / "segments/0/rewards.values"
    raw = bytearray(values.read_bytes())
    raw[1000] ^= 1
    values.write_bytes(raw)
    report = worked("check", {"location": str(damaged), "deep": True}, tmp_path / "results")
    assert report.findings == penstock.check(damaged, deep=True).findings
    (damaged / "spec.json").write_text("{")
    work = WorkPlan.make("check", {"location": str(damaged), "deep": True, "format": "columns"})
    run_work(work, tmp_path / "others")
    report = finish_work(work, tmp_path / "others")
    assert report.findings == penstock.check(damaged, deep=True, format="columns").findings
    assert not report.sound


def test_statistics_of_chosen_episodes(recording: Path, tmp_path: Path) -> None:
    arguments = {"location": str(recording), "episodes": "3:80", "columns": ["pixels"], "by": "task"}
    result = worked("stats", arguments, tmp_path)
    data = penstock.open(recording)[3:80]
    assert result == penstock.statistics(data, ["pixels"], by="task")


def test_a_long_episode_is_several_ranges(recording: Path) -> None:
    longest = WorkPlan.make("stats", {"location": str(recording), "episodes": "50"}, range_bytes=SMALL)
    assert len(longest) > 2


def test_credentials_are_not_written(recording: Path) -> None:
    with pytest.raises(DataError, match=r"without credentials, got \['aws_secret_access_key'\]"):
        ChosenDataset(str(recording), storage_options={"aws_secret_access_key": "x"}).arguments()
    with pytest.raises(DataError, match="'location' of a dataset"):
        WorkPlan.make("stats", {"where": None})


def convert_arguments(recording: Path, out: Path, **more: object) -> dict[str, object]:
    return {**ChosenDataset(str(recording)).arguments(), "out": str(out), **more}


def assert_equal_datasets(one: Path, other: Path) -> None:
    a, b = penstock.open(one), penstock.open(other)
    assert a.spec == b.spec
    assert dict(a.metadata) == dict(b.metadata)
    assert list(difference(a, b)) == []
    assert a.source.episode_metadata(range(len(a))) == b.source.episode_metadata(range(len(b)))


TARGETS = {
    "columns": {},
    "packed": {"to": "columns", "writer": {"compression": 1}},
    "npy": {"to": "webdataset", "writer": {"shard_episodes": 7}},
    "gzip": {"to": "webdataset", "writer": {"compression": "gzip"}},
}


@pytest.mark.parametrize("target", TARGETS)
def test_convert(recording: Path, tmp_path: Path, target: str) -> None:
    more = TARGETS[target]
    out, alone = tmp_path / "out", tmp_path / "alone"
    report = worked("convert", convert_arguments(recording, out, **more), tmp_path / "results")
    expected = penstock.convert(recording, alone, format=more.get("to", "columns"), options=more.get("writer"))
    assert {**report.to_json(), "out": ""} == {**expected.to_json(), "out": ""}
    assert_equal_datasets(out, alone)
    stored = [json.loads((tmp_path / f"{name}.certificate.json").read_text()) for name in ("out", "alone")]
    assert stored[0]["columns"] == stored[1]["columns"]
    assert stored[0]["notes"] == stored[1]["notes"]
    if "to" not in more:
        assert penstock.open(out).source.fingerprint == penstock.open(alone).source.fingerprint
    assert penstock.check(out, deep=True).findings == penstock.check(alone, deep=True).findings
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "alone", "alone.certificate.json", "out", "out.certificate.json", "results"
    ]  # fmt: skip


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes that il-representations' layout can store."""
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    rng, ends = np.random.default_rng(0), np.zeros(31, bool)
    ends[np.cumsum(lengths) - 1] = True
    columns = {"observations": rng.integers(0, 256, (39, 3, 8, 8)).astype("u1"), "actions": rng.integers(0, 4, 31)}
    data = penstock.from_arrays({**columns, "terminations": ends, "truncations": np.zeros(31, bool)}, lengths=lengths)
    path = tmp_path_factory.mktemp("demos") / "demos"
    penstock.convert(data, path)
    return path


@pytest.mark.parametrize("layout", ["npy", "seed"])
def test_shards_of_parts_are_equal_byte_for_byte_where_they_are_cut_alike(
    demos: Path, tmp_path: Path, layout: str
) -> None:
    options = {"layout": layout, "shard_episodes": 1}
    arguments = convert_arguments(demos, tmp_path / "out", to="webdataset", writer=options)
    work = WorkPlan.make("convert", arguments, range_bytes=1000)
    assert len(work) > 2
    run_work(work, tmp_path / "results", ThreadRunner(2))
    finish_work(work, tmp_path / "results")
    penstock.convert(demos, tmp_path / "alone", format="webdataset", options=options)
    shards = [{p.name: p.read_bytes() for p in (tmp_path / name).glob("shard-*")} for name in ("out", "alone")]
    assert shards[0] == shards[1]
    assert len(shards[0]) == 8


JOINING = {
    "columns": ("penstock.formats.columns.table", "move"),
    "webdataset": ("penstock.formats.webdataset.writer", "move"),
    "zarr": ("penstock.containers.zarr.writing", "move"),
    "minari": ("penstock.formats.minari.hdf5_writer", "_copy_group"),
}


@pytest.mark.parametrize("to", JOINING)
def test_a_merge_of_parts_that_is_interrupted_goes_on(
    demos: Path, tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = importlib.import_module(JOINING[to][0]), JOINING[to][1]
    real = getattr(module, name)
    options = {"chunk_rows": 2} if to == "zarr" else {}
    arguments = convert_arguments(demos, tmp_path / "out", to=to, writer=options, fill_missing=True)
    work = WorkPlan.make("convert", arguments, range_bytes=1000)
    run_work(work, tmp_path / "results")
    for calls in (0, 1, 3, 1000):
        left = [calls]

        def step(*given: Any, left: list[int] = left, **named: Any) -> Any:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(*given, **named)

        monkeypatch.setattr(module, name, step)
        try:
            finish_work(work, tmp_path / "results")
        except KeyboardInterrupt:
            assert not (tmp_path / "out").exists()
        assert (tmp_path / "out").exists() == (calls == 1000)
    penstock.convert(demos, tmp_path / "alone" / "out", format=to, options=options, fill_missing=True)
    assert_equal_datasets(tmp_path / "out", tmp_path / "alone" / "out")


def test_targets_that_have_no_parts(demos: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a path for a target"):
        StagingFolder("memory://out", {}, "")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        WorkPlan.make("convert", convert_arguments(demos, tmp_path))


def test_verify(recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    penstock.convert(recording, copy)
    arguments = {"location": str(copy), "source": ChosenDataset(str(recording)).arguments()}
    assert worked("verify", arguments, tmp_path / "first") == []
    values = copy / "segments/0/pixels.values"
    raw = bytearray(values.read_bytes())
    raw[-1] ^= 1
    values.write_bytes(raw)
    wrong = worked("verify", arguments, tmp_path / "second")
    assert wrong == ["target: pixels has other values in 1 episode, the first is 90"]
    assert wrong == list(verify(Certificate.read(copy), penstock.open(copy).source, penstock.open(recording).source))


ARCHIVES = [("out.tar", "npy"), ("out.tar", "seed"), ("out.tgz", "npy"), ("out.tar.gz", "seed"), ("out.tar.zst", "npy")]


@pytest.mark.parametrize(("name", "layout"), ARCHIVES)
def test_an_archive_of_parts_has_the_bytes_of_one_run(
    demos: Path, tmp_path: Path, name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = convert_arguments(demos, tmp_path / name, writer={"layout": layout})
    work = WorkPlan.make("convert", arguments, range_bytes=1000)
    assert len(work) > 2
    run_work(work, tmp_path / "results", ThreadRunner(2))
    joining = importlib.import_module("penstock.formats.webdataset.writer")
    for step in ["replace_archive"] if name.endswith(".tar") else ["replace_archive", "pack"]:
        with monkeypatch.context() as patch:
            patch.setattr(joining, step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                finish_work(work, tmp_path / "results")
        assert not (tmp_path / name).exists()
    finish_work(work, tmp_path / "results")
    alone = tmp_path / "alone" / name
    penstock.convert(demos, alone, options={"layout": layout})
    assert (tmp_path / name).read_bytes() == alone.read_bytes()
    with serving({name: alone.read_bytes()}) as site, penstock.open(f"{site.url}/{name}") as remote:
        assert [len(each) for each in remote] == [len(each) for each in penstock.open(demos)]
    assert not list(tmp_path.glob("*.parts"))
