"""The answers that pages get."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.curation import Curation
from penstock.data.episode_marks import EpisodeMarks
from penstock.doctor.examine import CheckedBlock
from penstock.errors import ArgumentError, DamageWarning, PlanError, StateError
from penstock.formats.memory import MemorySource
from penstock_studio.viewer import episode_table
from penstock_studio.viewer import viewed as module
from penstock_studio.viewer.episode_table import EVERY, Asked
from penstock_studio.viewer.viewed import ViewedDataset
from tests.doctor.test_planted import PLANTS, clean, source_of


def episodes(
    viewed: ViewedDataset, *, columns: Sequence[str] = (), offset: int = 0, limit: int = 100, **asked: Any
) -> Any:
    return viewed.table().page(Asked(**asked), columns=columns, offset=offset, limit=limit)


@pytest.fixture
def viewed() -> ViewedDataset:
    planted = PLANTS["nan"][0](clean())
    return ViewedDataset("kitchen", "./kitchen", "columns", penstock.EpisodeDataset(source_of(planted)))


def test_the_table_is_filtered_sorted_and_cut(viewed: ViewedDataset) -> None:
    whole = episodes(viewed)
    assert whole["columns"][:2] == ["id", "total_steps"]
    assert not whole["measured"]
    assert [row[:2] for row in whole["rows"]] == [[0, 60], [1, 90], [2, 75], [3, 60], [4, 80]]
    part = episodes(viewed, where="total_steps >= 75", sort="total_steps", descending=True, offset=1, limit=1)
    assert (part["total"], [row[0] for row in part["rows"]]) == (3, [4])
    assert [row[0] for row in episodes(viewed, sort="id", descending=True)["rows"]] == [4, 3, 2, 1, 0]
    with pytest.raises(PlanError, match="steps"):
        episodes(viewed, where="steps > 1")
    with pytest.raises(PlanError, match="compare"):
        episodes(viewed, where="total_steps")
    with pytest.raises(ArgumentError, match="total_steps"):
        episodes(viewed, sort="total_step")


def test_measures_join_the_table_after_the_check(viewed: ViewedDataset) -> None:
    assert viewed.check()["state"] in ("running", "done")
    viewed.wait_for_check()
    report = viewed.check()
    assert report["state"] == "done"
    assert "nan" in {finding["name"] for finding in report["findings"]}
    table = episodes(viewed, sort="return")
    assert table["measured"]
    returns = [row[table["columns"].index("return")] for row in table["rows"]]
    assert returns == sorted(returns)
    assert viewed.episode(1)["findings"][0]["name"] == "nan"
    counts = viewed.table().histograms(["return"], EVERY, bins=7)["return"]
    assert 1 < len(counts["counts"]) <= 8
    assert sum(counts["counts"]) == 5
    assert counts["ends"] == [min(returns), max(returns)]
    assert viewed.table().histograms(["return"], Asked("total_steps > 1000"))["return"]["counts"] == []
    assert [row[0] for row in episodes(viewed, finding="nan")["rows"]] == [1]
    with pytest.raises(ArgumentError, match="no finding 'nam'"):
        episodes(viewed, finding="nam")


@pytest.mark.parametrize("fps", [float("inf"), float("nan"), 10**400, -1, True, "30"])
def test_a_rate_that_is_no_rate_is_not_used(fps: object) -> None:
    """The page of an episode is JSON, which has no infinity, and the check divides by the rate."""
    source = source_of(clean())
    data = penstock.EpisodeDataset(MemorySource.from_episodes(list(source.episodes()), {"fps": fps}))
    viewed = ViewedDataset("odd", "./odd", "columns", data)
    assert viewed.episode(0)["rate"] == 10.0
    viewed.check()
    viewed.wait_for_check()
    assert viewed.check()["state"] == "done"


@pytest.mark.parametrize("error", [OverflowError("int too large"), MemoryError()])
def test_a_check_that_dies_says_so(
    viewed: ViewedDataset, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(module.Examination, "report", fails)
    viewed.check()
    viewed.wait_for_check()
    assert viewed.check()["state"] == "failed"
    assert viewed.check()["message"] == (str(error) or "MemoryError")
    assert "the check of ./kitchen failed" in caplog.text


def test_the_table_has_columns_of_the_tags_of_most_episodes(tmp_path: Path) -> None:
    data, file = penstock.EpisodeDataset(source_of(clean())), tmp_path / "marks.json"
    with Curation.edit(file, data.source) as curation:
        curation[0] = EpisodeMarks(tags={f"a{i}" for i in range(100)})
        curation[1] = EpisodeMarks(tags={"slow", *(f"b{i}" for i in range(99))})
        curation[2] = EpisodeMarks(tags={"slow"})
    viewed = ViewedDataset("tagged", "./tagged", "columns", data, curation=file)
    columns = [name for name in viewed.table().names() if name.startswith("tags/")]
    assert len(columns) == module.MOST_WORDS
    assert "tags/slow" in columns
    assert viewed.info()["curation"]["message"] == "the table has the 100 tags of most episodes, of 200 tags"
    with pytest.raises(ArgumentError, match=r"at most 100 tags and 1,000 spans of an episode, got 50,000 and 0"):
        viewed.mark(3, {"tags": [f"t{i}" for i in range(50_000)]})


def test_figures_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "observations": {"state": rng.normal(size=(60, 3)), "camera": np.zeros((60, 8, 8, 3), "u1")},
        "rewards": np.where(np.arange(60) == 3, np.nan, np.arange(60.0)),
        "wide": np.zeros((60, 300)),
    }
    data = penstock.from_arrays(columns, lengths=[10] * 6)
    found = ViewedDataset("a", "a", "memory", data).figures()
    assert (found["episodes"], [entry["name"] for entry in found["columns"]]) == (
        6,
        ["observations/state[0]", "observations/state[1]", "observations/state[2]", "rewards"],
    )
    state, rewards = columns["observations"]["state"], found["columns"][3]
    np.testing.assert_allclose([entry["mean"] for entry in found["columns"][:3]], state.mean(0))
    np.testing.assert_allclose([entry["std"] for entry in found["columns"][:3]], state.std(0))
    assert (rewards["min"], rewards["max"], sum(rewards["counts"]), len(rewards["edges"])) == (0, 59, 59, 33)
    monkeypatch.setattr("penstock.data.dataset_facts.STEPS", 25)
    sample = ViewedDataset("a", "a", "memory", data).figures()
    assert sample["episodes"] == 2  # episodes 0 and 3
    assert sample["columns"][3]["max"] == 39


def test_values_that_are_too_close_for_a_histogram() -> None:
    """Equal to rounding, as sums of rewards often are: words in place of a figure of a column, and bins of a table."""
    data = penstock.from_arrays({"rewards": np.array([0.1 + 0.2, 0.3, 0.3]), "still": np.full(3, 7)}, lengths=[1, 1, 1])
    viewed = ViewedDataset("a", "a", "memory", data)
    assert [entry["words"] for entry in viewed.figures()["columns"]] == ["nearly constant", "constant"]
    viewed.check()
    viewed.wait_for_check()
    shown = viewed.table().histograms(["return"], EVERY, bins=40)["return"]
    assert sum(shown["counts"]) == 3
    assert (shown["edges"][0], shown["edges"][-1]) == (0.3, 0.1 + 0.2)


def test_a_check_tells_its_progress_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 30
    data = penstock.from_arrays({"rewards": np.zeros((n, 1 << 20), "u1")}, lengths=[1] * n)  # some blocks
    viewed = ViewedDataset("a", "a", "memory", data)
    free, begun = threading.Event(), threading.Event()
    examined = module.Examination.check

    def slow(self: module.Examination, block: int) -> CheckedBlock:
        if block >= 2:
            begun.set()
            assert free.wait(60)
        return examined(self, block)

    monkeypatch.setattr(module.Examination, "check", slow)
    assert viewed.check()["state"] == "running"
    assert begun.wait(60)
    stopping = threading.Thread(target=viewed.stop_check)
    stopping.start()
    assert viewed._stopping.wait(60)
    free.set()
    stopping.join()
    stopped = viewed.check()
    assert (stopped["state"], stopped["message"]) == ("failed", "the check was stopped")
    assert episodes(viewed, sort="total_steps")["total"] == n
    monkeypatch.setattr(module.Examination, "check", examined)
    whole = ViewedDataset("b", "b", "memory", data)
    whole.check()
    whole.wait_for_check()
    assert whole.check()["state"] == "done"
    assert whole._progress == 1


def test_missing_values_come_last() -> None:
    data = penstock.from_arrays({"rewards": np.arange(3.0)}, lengths=[1, 1, 1])
    viewed = ViewedDataset("a", "a", "memory", data)
    viewed._table = viewed._table.with_measures({"score": np.array([np.nan, 1.0, 2.0])}, {})
    assert [row[0] for row in episodes(viewed, sort="score")["rows"]] == [1, 2, 0]
    assert [row[0] for row in episodes(viewed, sort="score", descending=True)["rows"]] == [2, 1, 0]
    assert episodes(viewed, sort="score", columns=["score"])["rows"][2] == [0, None]


def test_an_episode_says_its_rate(viewed: ViewedDataset) -> None:
    episode = viewed.episode(3)
    assert episode["rate"] == pytest.approx(10)
    assert episode["steps"] == 60
    (camera,) = episode["cameras"]
    assert (camera["path"], camera["rows"], camera["chunk"]) == ("observations/camera", 61, 32)
    assert "actions" in episode["curves"]


def test_a_million_episodes_are_listed() -> None:
    n = 1_000_000
    data = penstock.from_arrays({"rewards": np.arange(n, dtype="f4")}, lengths=np.ones(n, int).tolist())
    viewed = ViewedDataset("big", "big", "memory", data)
    found = episodes(viewed, where="total_steps == 1", sort="total_steps", descending=True, offset=500_000, limit=2)
    assert (found["total"], [row[0] for row in found["rows"]]) == (n, [499_999, 499_998])


def test_an_order_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[1, 2, 3])
    viewed = ViewedDataset("a", "a", "memory", data, curation=tmp_path / "a.curation.json")
    sorts: list[int] = []
    ranked = episode_table._ranked
    monkeypatch.setattr(episode_table, "_ranked", lambda values: (sorts.append(len(values)), ranked(values))[1])
    for descending in (False, True, False):
        rows = episodes(viewed, sort="total_steps", descending=descending)["rows"]
        assert [row[0] for row in rows] == ([2, 1, 0] if descending else [0, 1, 2])
    assert sorts == [3]
    viewed.mark(0, {"rating": 2})
    assert episodes(viewed, sort="rating")["rows"][0][0] == 0
    viewed.mark(1, {"rating": 1})
    assert episodes(viewed, sort="rating")["rows"][0][0] == 1
    episodes(viewed, sort="total_steps")
    assert sorts == [3, 3, 3]


def test_marks_are_saved_and_listed(tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[1, 2, 3])
    file = tmp_path / "a.curation.json"
    viewed = ViewedDataset("a", "a", "memory", data, curation=file)
    assert viewed.info()["curation"] == {"path": str(file), "message": ""}
    assert not file.exists()  # until something is marked
    marks = {"tags": ["good"], "rating": 4, "spans": [[0, 1, "slip"]], "note": "kept"}
    assert viewed.mark(1, marks) == marks
    assert viewed.mark(2, {"excluded": True}) == {"excluded": True}
    assert viewed.episode(1)["marks"] == marks
    assert [row[0] for row in episodes(viewed, where="'good' in tags and rating >= 4")["rows"]] == [1]
    assert [row[0] for row in episodes(viewed, where="not excluded", sort="rating")["rows"]] == [1, 0]
    assert sum(viewed.table().histograms(["tags/good"], EVERY)["tags/good"]["counts"]) == 3
    assert Curation.read(file)[1].note == "kept"
    for e, wrong in ((3, {}), (0, {"rating": 6}), (0, {"spans": [[0, 1, "slip"]]}), (0, [])):
        with pytest.raises(ArgumentError):
            viewed.mark(e, wrong)
    again = ViewedDataset("a", "a", "memory", data, curation=file)
    assert episodes(again, where="excluded")["total"] == 1
    with Curation.edit(file, data.source) as curation:  # by another person
        curation[0] = penstock.curation.EpisodeMarks(rating=1)
    assert again.episode(0)["marks"] == {"rating": 1}  # seen at once
    assert episodes(again, where="rating <= 1")["total"] == 1
    again.mark(1, {})
    assert [row[0] for row in episodes(again, where="rating <= 1 or excluded")["rows"]] == [0, 2]
    with pytest.raises(StateError, match="made for"):
        ViewedDataset(
            "b", "b", "memory", penstock.from_arrays({"rewards": np.zeros(3)}, lengths=[1, 1, 1]), curation=file
        )


def test_changes_of_two_people_at_the_same_time_are_both_kept(tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": np.arange(30.0)}, lengths=[30])
    viewed = ViewedDataset("a", "a", "memory", data, curation=tmp_path / "a.curation.json")
    seen = viewed.mark(0, {"tags": ["old", "good"], "rating": 3, "excluded_spans": [[0, 9]], "spans": [[1, 2, "slip"]]})
    first = {**seen, "tags": ["good", "slow"], "excluded_spans": [[0, 3], [8, 9]]}
    second = {
        "tags": ["old", "good", "near"],
        "rating": 5,
        "excluded_spans": [[0, 9], [20, 25]],
        "spans": [[4, 5, "grip"]],
    }
    assert viewed.mark(0, first, seen) == first
    assert viewed.mark(0, second, seen) == {
        "tags": ["good", "near", "slow"],
        "rating": 5,
        "spans": [[4, 5, "grip"]],
        "excluded_spans": [[0, 3], [8, 9], [20, 25]],
    }


@pytest.mark.parametrize("seed", range(5))
def test_changes_of_excluded_steps_are_those_of_sets(seed: int) -> None:
    random = np.random.default_rng(seed)

    def drawn() -> EpisodeMarks:
        firsts = random.integers(0, 40, random.integers(0, 5)).tolist()
        return EpisodeMarks(excluded_spans=[(first, first + int(random.integers(0, 9))) for first in firsts])

    def steps(marks: EpisodeMarks) -> set[int]:
        return {step for first, last in marks.excluded_spans for step in range(first, last + 1)}

    for _ in range(50):
        now, before, after = drawn(), drawn(), drawn()
        changed = steps(now) - (steps(before) - steps(after)) | (steps(after) - steps(before))
        assert steps(now.changed(before, after)) == changed


def test_marks_without_a_file(viewed: ViewedDataset) -> None:
    with pytest.raises(ArgumentError, match="file for marks"):
        viewed.mark(0, {"rating": 1})
    with pytest.raises(PlanError, match="curation="):
        episodes(viewed, where="'good' in tags")


def test_conditions_and_names_are_those_of_python(tmp_path: Path) -> None:
    """Each condition chooses what `filter` chooses, also by stored columns, text and returns."""
    columns = {
        "rewards": np.arange(10.0),
        "success": np.array([True, False, True]),
        "task": penstock.columns.Ragged.from_strings(["pick", "place", "pick"]),
    }
    data = penstock.from_arrays(columns, [2, 3, 5], align={"success": "episode", "task": "episode"})
    viewed = ViewedDataset("a", "./a", "memory", data)
    for condition in ("return > 5", "success and total_steps > 2", "task == 'pick' and return < 5", "id % 2 == 1"):
        chosen = data.filter(condition).table()["id"].tolist()
        assert [row[0] for row in episodes(viewed, where=condition)["rows"]] == chosen
        assert viewed.selection(Asked(condition))["python"].endswith(f"chosen = data.filter({condition!r})\n")
    viewed.check()
    viewed.wait_for_check()
    assert [row[0] for row in episodes(viewed, where="return > 5")["rows"]] == data.filter("return > 5").table()[
        "id"
    ].tolist()
    rows = episodes(viewed, columns=["task", "success"], sort="task", descending=True)["rows"]
    assert rows == [[1, "place", False], [2, "pick", True], [0, "pick", True]]
    assert viewed.table().histograms(["task"], EVERY) == {"task": {"texts": [["pick", 2], ["place", 1]]}}
    about = {each["name"]: each for each in viewed.table().described()}
    assert (about["return"]["python"], about["novelty"]["python"], about["task"]["text"]) == (True, False, True)
    chosen = viewed.selection(Asked("novelty >= 0", sort="return"))
    scope: dict[str, Any] = {"data": data, "np": np}
    exec(chosen["python"].partition("data = ")[2].partition("\n")[2], scope)  # noqa: S102  all but the line that opens
    assert scope["chosen"].table()["id"].tolist() == chosen["episodes"] == [0, 1, 2]
    assert chosen["command"] == ""


@pytest.mark.parametrize("seed", [0, 7])
def test_episodes_at_random_are_the_same_for_a_seed(viewed: ViewedDataset, seed: int) -> None:
    first, again = (episodes(viewed, seed=seed, where="total_steps > 60")["rows"] for _ in range(2))
    assert first == again
    assert sorted(row[0] for row in first) == [1, 2, 4]


def test_an_overview_has_what_is_left_out_and_what_episodes_are_about(tmp_path: Path) -> None:
    golden = Path(__file__).parents[4] / "tests" / "golden"
    used = {"observations": np.zeros((10, 2)), "actions": np.zeros(10), "terminals": np.arange(10) == 9}
    np.savez(tmp_path / "a.npz", **used, other=np.zeros(3), more=np.zeros((4, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        plain = penstock.open(tmp_path / "a.npz")
    found = ViewedDataset("plain", "plain", "demos", plain).overview()
    assert [entry["reason"] for entry in found["left_out"]] == [e.reason for e in plain.source.account.left_out]
    assert found["left_out_entries"] == 2
    robot = penstock.open(golden / "lerobot" / "v3_video")
    found = ViewedDataset("robot", str(golden), "lerobot", robot).overview()
    assert found["texts"] == {"task": [("pick the cube", 2), ("place it in the box", 2)]}
    assert found["frames"][1] == {"episode": 1, "steps": 40, "camera": "observations/images/top", "rows": [0, 39]}
    assert found["bytes"] > 100_000
    assert ViewedDataset("robot", "", "lerobot", robot).info()["metadata"]["splits"] == '{"train": "0:4"}'
