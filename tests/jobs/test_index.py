"""An index of many files that processes read in parts has the bytes of one that is made by one process."""

# pyright: basic

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.formats.base.file_facts import MANY_FILES
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.runners import ProcessRunner, Runner, ThreadRunner
from penstock.jobs.work_plan import WorkPlan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "table"
    folder.mkdir()
    for i in range(MANY_FILES + 3):
        pq.write_table(pa.table({"episode": [i] * (1 + i % 3), "x": [float(i)] * (1 + i % 3)}), folder / f"{i}.parquet")
        os.utime(folder / f"{i}.parquet", ns=(10**18, 10**18))
    return folder


def index(folder: Path, runner: Runner, results: Path, **arguments: Any) -> dict[str, Any]:
    work = WorkPlan.make("index", {"location": str(folder), **arguments}, range_bytes=100_000)
    assert run_work(work, results, runner).failures == {}
    (summary,) = finish_work(work, results)
    return summary


def test_each_runner_writes_the_same_index(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[bytes] = []
    for name, runner in (("caller", ThreadRunner(0)), ("processes", ProcessRunner(2, meanwhile=False))):
        monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / name))
        summary = index(folder, runner, tmp_path / f"{name} results")
        assert (summary["made"], summary["read"], summary["episodes"]) == (True, MANY_FILES + 3, MANY_FILES + 3)
        files.append(Path(summary["index"]).read_bytes())
    assert files[0] == files[1]
    again = index(folder, ThreadRunner(0), tmp_path / "again")
    assert (again["made"], again["read"], again["steps"]) == (False, 0, penstock.open(folder).total_steps)
    os.utime(folder / "7.parquet", ns=(10**18, 10**18 + 1))
    part = index(folder, ThreadRunner(0), tmp_path / "part")
    assert (part["made"], part["read"]) == (True, 1)


@pytest.mark.parametrize("kind", ["minari", "columns", "zarr"])
def test_formats_without_facts_of_files_are_indexed_as_one_part(tmp_path: Path, kind: str) -> None:
    columns = {"rewards": [0.0, 1.0], "actions": [0, 1], "observations": [0.0, 1.0, 2.0]}
    data = penstock.from_arrays(columns, lengths=[2])
    out = penstock.convert(data, tmp_path / "data", format=kind, fill_missing=True).out
    summary = index(out, ThreadRunner(0), tmp_path / "results", force=True)
    assert (summary["episodes"], summary["steps"], summary["made"]) == (1, 2, False)
