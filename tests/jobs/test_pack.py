"""Packs planned in parts: the plan has the bytes of a plan of one process, and a dataset finds it."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.data.chosen import ChosenDataset
from penstock.errors import PlanError
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.runners import ProcessRunner, ThreadRunner
from penstock.jobs.work_plan import WorkPlan
from penstock.plan.pack import PackedPlan


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 300, 5000)
    words = penstock.Ragged(rng.integers(0, 99, int(lengths.sum())).astype("u2"), np.append(0, np.cumsum(lengths)))
    data = penstock.from_arrays({"words": words}, lengths=[1] * len(lengths), align={"words": "episode"})
    return Path(penstock.convert(data, tmp_path_factory.mktemp("texts") / "data", certificate=False).out)


@pytest.mark.parametrize("options", [{}, {"method": "next_fit"}, {"seed": 5, "align": 8}], ids=str)
def test_packs_in_parts_are_the_packs_of_one_process(texts: Path, options: dict[str, object], tmp_path: Path) -> None:
    packing = {"length": 256, "overlong": "split", "window": 256, **options}
    arguments = {**ChosenDataset(str(texts)).arguments(), "pack": packing, "folder": str(tmp_path / "parts")}
    work = WorkPlan.make("pack", arguments, range_bytes=3 * 256 * 8)
    assert len(work) > 5
    run_work(work, tmp_path / "results", ThreadRunner(2))
    summary = finish_work(work, tmp_path / "results")

    sequences = penstock.open(texts).sequences()
    alone = sequences.pack(**packing, keep="recompute", cache=tmp_path / "alone")
    assert summary["packs"] == len(alone)
    (file,) = (tmp_path / "alone").iterdir()
    assert Path(summary["file"]).name == file.name
    assert Path(summary["file"]).read_bytes() == file.read_bytes()

    again = sequences.pack(**packing, keep="recompute", cache=tmp_path / "parts")
    assert isinstance(again.plan, PackedPlan)
    assert again.plan.report() == alone.plan.report()
    positions = np.random.default_rng(0).integers(0, len(alone), 50)
    np.testing.assert_array_equal(again[positions]["words"], alone[positions]["words"])


def test_processes_plan_the_same_packs(texts: Path, tmp_path: Path) -> None:
    summaries = []
    for name, runner in (("caller", ThreadRunner(0)), ("processes", ProcessRunner(2, meanwhile=False))):
        packing = {"length": 256, "overlong": "split", "window": 512}
        arguments = {**ChosenDataset(str(texts)).arguments(), "pack": packing, "folder": str(tmp_path / name)}
        work = WorkPlan.make("pack", arguments, range_bytes=5 * 512 * 8)
        run_work(work, tmp_path / f"{name}.results", runner)
        summaries.append(finish_work(work, tmp_path / f"{name}.results"))
    one, other = (Path(each["file"]).read_bytes() for each in summaries)
    assert one == other


def test_packs_that_need_no_plan_or_have_one_for_each_epoch_are_refused(texts: Path) -> None:
    sequences = penstock.open(texts).sequences()
    with pytest.raises(PlanError, match="same in every epoch"):
        sequences.pack(256, overlong="split", repack=True).plan.unplanned()
    even = penstock.from_arrays({"x": np.zeros(40)}, lengths=[4] * 10).windows(2).pack(16)
    with pytest.raises(PlanError, match="needs no plan"):
        even.plan.unplanned()
    kept = sequences.pack(256, overlong="split", keep="memory").plan.unplanned()
    with pytest.raises(PlanError, match="keep='recompute'"):
        kept.count_windows(0, 1)
    with pytest.raises(PlanError, match="windows"):
        kept.with_windows([])
