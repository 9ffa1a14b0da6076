"""Each operation in parts equals the run on one process."""

# pyright: basic

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.columns import Columns
from penstock.doctor.examine import Report
from penstock.errors import DataError
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.dataset import ChosenDataset
from penstock.jobs.runners import ProcessRunner, ThreadRunner
from penstock.jobs.work_plan import WorkPlan

SMALL = 1_000_000


def worked(operation: str, arguments: dict[str, object], folder: Path, processes: int = 0) -> object:
    work = WorkPlan.make(operation, arguments, range_bytes=SMALL)
    assert len(work) > 1
    run_work(work, folder, ProcessRunner(processes) if processes else ThreadRunner(2))
    return finish_work(work, folder)


def same_tables(one: Columns, other: Columns) -> bool:
    return list(one.flat) == list(other.flat) and all(
        np.array_equal(one.flat[name], other.flat[name], equal_nan=True) for name in one.flat
    )


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("deep", [False, True])
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
    data = penstock.open(recording).take(range(3, 80))
    assert result == penstock.statistics(data, ["pixels"], by="task")


def test_a_long_episode_is_several_ranges(recording: Path) -> None:
    longest = WorkPlan.make("stats", {"location": str(recording), "episodes": "50"}, range_bytes=SMALL)
    assert len(longest) > 3


def test_credentials_are_not_written(recording: Path) -> None:
    with pytest.raises(DataError, match=r"without credentials, got \['aws_secret_access_key'\]"):
        ChosenDataset(str(recording), storage_options={"aws_secret_access_key": "x"}).arguments()
