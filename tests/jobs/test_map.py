"""`write` of mapped episodes: equal for any runner, and what becomes of functions that fail, die or leave episodes out.

Kills at any change, full disks, doubled and lost jobs are tested for "map to columns" of `CASES`.
"""

# pyright: basic

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.conversion.certificate import Certificate
from penstock.conversion.verify import verify
from penstock.errors import ArgumentError, DataError, LockedError, WorkerError
from penstock.jobs.coordinator import WorkJournal, run_work
from penstock.jobs.runners import JobResources, ProcessRunner, ThreadRunner
from penstock.jobs.work_plan import WorkPlan
from tests.jobs import mapping
from tests.jobs.cases import CASES, Inputs, values_of

LEFT_OUT = tuple(range(1, 24, 4))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the small dataset, which would be one by default."""
    monkeypatch.setattr("penstock.jobs.operations.convert.LEAST_PART", 100_000)


def open_recording(inputs: Inputs) -> penstock.EpisodeDataset:
    return penstock.open(inputs.recording)


def test_processes_write_what_one_run_writes(
    inputs: Inputs, tmp_path: Path, cache: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factory is called once in each process: the one that looks at the first episode, and the workers."""
    monkeypatch.setenv("MADE", str(tmp_path / "made"))
    data = open_recording(inputs)
    mapped = data.map_episodes(mapping.made, seed=3)
    alone = mapped.write(tmp_path / "alone")
    (tmp_path / "made").unlink()
    parts = mapped.write(tmp_path / "parts", jobs=2)
    made = (tmp_path / "made").read_text().split()
    assert made.count(str(os.getpid())) == 1
    assert sorted(made) == sorted(set(made))
    assert values_of(tmp_path / "parts") == values_of(tmp_path / "alone")
    assert parts.left_out == alone.left_out == LEFT_OUT
    assert (parts.episodes, parts.steps, parts.notes) == (alone.episodes, alone.steps, alone.notes)
    assert list((cache / "work").iterdir()) == []
    proofs = [Certificate.read(tmp_path / name) for name in ("alone", "parts")]
    for proof in proofs:
        (function,) = proof.functions
        digest = mapped.source.mapping.digest.digest
        assert function == {"name": "tests.jobs.mapping.made", "digest": digest, "seed": 3}
        assert proof.left_out == LEFT_OUT
        assert {each.column: each.status for each in proof.columns if each.status != "equal"} == dict.fromkeys(
            ("embedding", "noise", "rewards", "best", "text"), "computed"
        )
        written = penstock.open(tmp_path / "parts").source
        assert list(verify(proof, written, data)) == []
        assert len(list(verify(proof, written, penstock.open(inputs.copy)))) == 0  # rewards alone differ, and are new
    assert mapped.write(tmp_path / "parts", jobs=1).status == "complete"
    assert mapped.write(tmp_path / "alone").status == "complete"


def test_the_runner_may_have_resources(inputs: Inputs, tmp_path: Path, small_parts: None) -> None:
    mapped = open_recording(inputs)[5:20].map_episodes(mapping.doubled, column="double")
    report = mapped.write(tmp_path / "out", runner=ThreadRunner(2, JobResources(cpus=2)), drop=["front", "wrist"])
    assert report.episodes == 15
    assert "front" not in penstock.open(tmp_path / "out").spec
    with pytest.raises(ArgumentError, match="expected jobs= or a Runner"):
        mapped.write(tmp_path / "out", jobs=2, runner=ProcessRunner(2))
    with pytest.raises(ArgumentError, match="'threads', 'ray' or a Runner, got 3"):
        mapped.write(tmp_path / "out", runner=3)
    with pytest.raises(ArgumentError, match="expected parts without overwrite"):
        mapped.write(tmp_path / "out", jobs=2, overwrite=True)


def test_what_other_processes_cannot_import_or_open_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    data, memory = open_recording(inputs), penstock.from_arrays({"rewards": np.ones(3)}, lengths=[3])
    for fn in (lambda episode: {"x": 1}, mapping.Changed()):
        with pytest.raises(DataError, match=r"function or class of a module.*separate file"):
            data.map_episodes(fn, version=1).write(tmp_path / "out", jobs=2)
    with pytest.raises(DataError, match=r"other processes can open: one of penstock\.open"):
        memory.map_episodes(mapping.doubled, column="x").write(tmp_path / "out", jobs=2)
    curation = penstock.curation.Curation.of(data.source)
    curation[12] = penstock.curation.EpisodeMarks(excluded_spans=[(1, 2)])
    with pytest.raises(DataError, match="expected whole episodes, got some that excluded spans cut"):
        data.apply(curation).map_episodes(mapping.doubled, column="x").write(tmp_path / "out", jobs=2)
    twice = data.map_episodes(mapping.doubled, column="x").map_episodes(mapping.doubled, column="y")
    with pytest.raises(DataError, match="expected one function for parts, got 2"):
        twice.write(tmp_path / "out", jobs=2)
    assert twice.write(tmp_path / "out").episodes == 24
    assert [each["name"] for each in Certificate.read(tmp_path / "out").functions] == ["tests.jobs.mapping.doubled"] * 2


def test_failures_are_listed_with_their_episodes(inputs: Inputs, tmp_path: Path, small_parts: None) -> None:
    """The others are kept: a function that is given no new digest goes on with what is missing."""
    arguments = {
        **CASES["map to columns"].arguments(inputs, tmp_path),
        "map": {**mapping.ENTRIES, "function": "tests.jobs.mapping:failing", "column": "x", "version": 1},
    }
    work = WorkPlan.make("convert", arguments, range_bytes=150_000)
    report = run_work(work, tmp_path / "results", ThreadRunner(2), max_failures=2)
    assert {error.rpartition(" - ")[2] for error in report.failures.values()} == {"at episode 7", "at episode 20"}
    assert all("got ValueError: no good at" in error for error in report.failures.values())
    mapped = open_recording(inputs).map_episodes(mapping.failing, column="x", version=1)
    with pytest.raises(
        WorkerError, match=r"job \d+ \(episodes \d+ to \d+\): DataError: .* no good at 7 - at episode 7"
    ):
        mapped.write(tmp_path / "other", runner="threads", jobs=0)


def test_an_error_names_all_episodes_of_its_job(inputs: Inputs, tmp_path: Path) -> None:
    """The first with its error, five others by number, and how many there are."""
    mapped = open_recording(inputs).map_episodes(mapping.failing, column="x", version=1)
    with pytest.raises(
        WorkerError, match=r"no good at 7 - at episode 7; the function also fails at 1 other episode .*: 20;"
    ):
        mapped.write(tmp_path / "two", runner="threads", jobs=0)
    few = open_recording(inputs)[2:].map_episodes(mapping.often_failing, column="x", version=1)
    with pytest.raises(
        WorkerError, match=r"worse - at episode 6; .* fails at 8 other episodes of the job: 8, 10, 12, 14, 16 and so on"
    ):
        few.write(tmp_path / "many", runner="threads", jobs=0)


def test_a_function_that_ends_its_process_costs_one_job(
    inputs: Inputs, tmp_path: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job runs in the process that coordinates."""
    monkeypatch.setenv("LETHAL", str(tmp_path / "died"))
    mapped = open_recording(inputs)[:20].map_episodes(mapping.lethal, column="x")
    mapped.write(tmp_path / "out", jobs=1)
    assert (tmp_path / "died").exists()
    written = penstock.open(tmp_path / "out")
    np.testing.assert_array_equal(written[11].columns["x"], written[11].rewards * 2)


def test_formats_that_number_episodes_in_advance_need_all_of_them(
    inputs: Inputs, tmp_path: Path, small_parts: None
) -> None:
    data = open_recording(inputs)
    for name, options in (("webdataset", {}), ("minari", {"data_format": "parquet"})):
        mapped = data.map_episodes(mapping.Changed)
        with pytest.raises(WorkerError, match=f"no episode, for parts of {name} have the numbers .* - at episode 1;"):
            mapped.write(tmp_path / "parts", format=name, options=options, runner="threads", jobs=0)
        report = mapped.write(tmp_path / f"{name}-alone", format=name, options=options)
        assert report.left_out == LEFT_OUT
        every = data.map_episodes(mapping.doubled, column="double")
        every.write(tmp_path / f"{name}-parts", format=name, options=options, runner="threads", jobs=0)
        assert len(penstock.open(tmp_path / f"{name}-parts")) == 24


def test_a_conversion_may_be_in_parts_too(inputs: Inputs, tmp_path: Path, cache: Path, small_parts: None) -> None:
    """Chosen episodes, in their order, also through a cache of decoded columns."""
    order = [7, 3, 3, 23]
    data = open_recording(inputs)[order]
    penstock.convert(data, tmp_path / "alone")
    for number, source in enumerate((data, data.cached("front"))):
        penstock.convert(source, tmp_path / f"parts{number}", runner="threads")
        assert values_of(tmp_path / f"parts{number}") == values_of(tmp_path / "alone")
    penstock.convert(inputs.recording, tmp_path / "whole", runner="threads", rename={"rewards": "r"})
    assert "r" in penstock.open(tmp_path / "whole").spec
    some = penstock.open([inputs.recording, inputs.copy])
    with pytest.raises(DataError, match="expected one path, URL or pattern to open, got a list"):
        penstock.convert(some, tmp_path / "both", runner="threads")
    with pytest.raises(ArgumentError, match="expected parts without overwrite"):
        penstock.convert(data, tmp_path / "both", jobs=1, allow_empty=True)


class Stopped(BaseException):
    """As a kill: nothing catches it."""


def stop_after(count: int) -> Any:
    def stop(episodes: int, steps: int, nbytes: int) -> None:
        if episodes == count:
            raise Stopped

    return stop


@pytest.mark.parametrize("after", [1, 12, 14])
def test_one_run_that_was_killed_goes_on(
    inputs: Inputs, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    data = open_recording(inputs)
    expected = data.map_episodes(mapping.long_only).write(tmp_path / "expected")
    for count in (after, after + 1):
        mapped = data.map_episodes(mapping.long_only)
        with pytest.raises(Stopped):
            penstock.convert(mapped, tmp_path / "out", on_episode=stop_after(count))
    report = data.map_episodes(mapping.long_only).write(tmp_path / "out")
    assert (report.status, report.resumed_at) == ("resumed", after + 1)
    assert (report.episodes, report.steps, report.left_out) == (expected.episodes, expected.steps, expected.left_out)
    assert values_of(tmp_path / "out") == values_of(tmp_path / "expected")


def test_what_is_written_is_not_computed_again_where_nothing_was_left_out(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    data = open_recording(inputs)
    kept = data[[e for e, each in enumerate(data) if len(each) % 3]]
    with pytest.raises(Stopped):
        penstock.convert(kept.map_episodes(mapping.long_only), tmp_path / "out", on_episode=stop_after(8))
    mapped = kept.map_episodes(mapping.long_only)
    (tmp_path / "called").unlink()
    assert mapped.write(tmp_path / "out", certificate=False).resumed_at == 8
    called = [int(each) for each in (tmp_path / "called").read_text().split()]
    assert called == kept.episodes.index[8:].tolist()


def test_globals_that_a_function_fills_do_not_change_its_digest(inputs: Inputs, tmp_path: Path) -> None:
    mapping.MODEL.clear()
    entries = {**mapping.ENTRIES, "function": "tests.jobs.mapping:lazy", "column": "x"}
    arguments = {**CASES["map to columns"].arguments(inputs, tmp_path), "map": entries}
    work = WorkPlan.make("convert", arguments, range_bytes=3_000_000)
    assert mapping.MODEL == [2.0]
    assert run_work(work, tmp_path / "results").failures == {}
    assert WorkPlan.make("convert", arguments, range_bytes=3_000_000).digest == work.digest


def test_a_function_that_changed_is_another_plan(inputs: Inputs, tmp_path: Path, monkeypatch: Any) -> None:
    """Tasks refuse the plan; a new plan leaves what the old one wrote alone."""
    folder = tmp_path / "code"
    folder.mkdir()
    module = f"changing_{os.getpid()}"
    (folder / f"{module}.py").write_text("def f(episode):\n    return episode.rewards * 2\n")
    monkeypatch.syspath_prepend(str(folder))
    entries = {**mapping.ENTRIES, "function": f"{module}:f", "folder": str(folder), "column": "x"}
    arguments = {**CASES["map to columns"].arguments(inputs, tmp_path), "map": entries}
    work = WorkPlan.make("convert", arguments)
    work.write(tmp_path / "plan.json")
    (folder / f"{module}.py").write_text("def f(episode):\n    return episode.rewards * 30000\n")
    runner = ProcessRunner(1)
    with pytest.raises(WorkerError, match="StateError: expected the data and the function of the work plan"):
        run_work(WorkPlan.read(tmp_path / "plan.json"), tmp_path / "results", runner)


def test_a_second_coordinator_is_refused(inputs: Inputs, tmp_path: Path, small_parts: None) -> None:
    mapped = open_recording(inputs).map_episodes(mapping.doubled, column="x")
    arguments = {**CASES["map to columns"].arguments(inputs, tmp_path), "map": {**mapping.ENTRIES, "column": "x"}}
    work = WorkPlan.make(
        "convert", {**arguments, "map": {**arguments["map"], "function": "tests.jobs.mapping:doubled"}}
    )
    journal = WorkJournal(tmp_path / "results" / "journal.jsonl", work.digest)
    with pytest.raises(LockedError, match="another run of the same work plan"):
        run_work(work, tmp_path / "results")
    journal.close()
    assert run_work(work, tmp_path / "results").failures == {}
    assert mapped.write(tmp_path / "out2", runner="threads").episodes == 24


def test_figures_of_rewards_that_were_replaced_are_left_out(tmp_path: Path) -> None:
    source = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
    figures = [{"rewards_sum": 1.0, "seed": 4}, {"rewards_sum": 9.0, "seed": 5}]
    memory = type(source.source)(source.spec, {"rewards": np.arange(5.0)}, source.source.offsets, {}, figures)
    data = penstock.EpisodeDataset(memory)
    report = data.map_episodes(lambda episode: {"rewards": -episode.rewards}).write(tmp_path / "new")
    written = penstock.open(tmp_path / "new")
    assert [dict(each.metadata) for each in written] == [{"seed": 4}, {"seed": 5}]
    assert any(note.what == "episode metadata/rewards_sum" for note in report.notes)
    data.map_episodes(lambda episode: {"x": -episode.rewards}).write(tmp_path / "kept")
    assert [each.metadata["rewards_sum"] for each in penstock.open(tmp_path / "kept")] == [1.0, 9.0]
