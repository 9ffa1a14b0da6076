"""Conversions: equal values in every target, and a note for everything that is not."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.conversion import scan
from penstock.core.ragged import Ragged
from penstock.core.spaces import Box
from penstock.errors import DataError, LockedError, SpecError, StateError
from penstock.formats.base.account import CONVERSION
from penstock.formats.base.format import named as format_named
from penstock.formats.base.format import recognise
from tests.conversion.conftest import LENGTHS, Make, field, rows_of, same

SEED = {"layout": "seed"}
TARGETS: list[tuple[str, dict[str, Any]]] = [
    ("columns", {}),
    ("columns", {"compression": 1}),
    ("webdataset", {}),
    ("webdataset", {"compression": "zstd", "shard_episodes": 2}),
    ("webdataset", SEED),
    ("minari", {}),
    ("minari", {"layout": "0.4"}),
    ("minari", {"data_format": "arrow"}),
    ("minari", {"data_format": "parquet"}),
]


def notes(report: Any) -> set[tuple[str, str]]:
    return {(note.level, note.what) for note in report.notes}


@pytest.mark.parametrize(("format", "options"), TARGETS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_target_has_what_the_source_has(
    make: Make, tmp_path: Path, format: str, options: dict[str, Any], seed: int
) -> None:
    data = make(metadata={"author": "me"}, seed=seed)
    report = penstock.convert(data, tmp_path / "out", format=format, options=options)
    assert (report.status, report.episodes, report.steps) == ("converted", len(LENGTHS), sum(LENGTHS))
    with penstock.open(tmp_path / "out") as out:
        same(data, out)
        assert out[2].metadata["seed"] == 2
        assert out.metadata["author"] in ("me", ["me"])
    assert all(level == "inferred" for level, _ in notes(report))


@pytest.mark.parametrize("name", ["A.tgz", "A.tar.zst", "magical-random.tar.zst"])
def test_shards_of_the_original_become_columns(golden: Path, tmp_path: Path, name: str) -> None:
    with penstock.open(golden / "ilr" / "shards" / name) as shards:
        report = penstock.convert(shards, tmp_path / "out")
        assert {what for _, what in notes(report)} == {entry.where for entry in shards.source.account.left_out}
        with penstock.open(tmp_path / "out") as out:
            same(shards, out)


def test_chosen_episodes_in_their_order(make: Make, tmp_path: Path) -> None:
    data = make().filter("total_steps > 2")[[2, 0]]
    penstock.convert(data, tmp_path / "out", format="webdataset")
    with penstock.open(tmp_path / "out") as out:
        assert [len(episode) for episode in out] == [4, 3]
        same(data, out)


def test_missing_columns_are_an_error_that_lists_them(make: Make, tmp_path: Path) -> None:
    data = make(without=("rewards", "truncations"))
    with pytest.raises(SpecError, match=r"expected \['rewards', 'truncations'\].*--fill-missing\) puts rewards: zeros"):
        penstock.convert(data, tmp_path / "out", format="minari")
    assert not (tmp_path / "out").exists()
    report = penstock.convert(data, tmp_path / "out", format="minari", fill_missing=True)
    assert {("filled", "rewards"), ("filled", "truncations")} <= notes(report)
    with penstock.open(tmp_path / "out") as out:
        assert not any(episode.rewards.any() or episode.truncations.any() for episode in out)


def test_what_nothing_ends_is_truncated_when_asked(make: Make, tmp_path: Path) -> None:
    open_ends = (field("?"), np.zeros(sum(LENGTHS), np.bool_))
    data = make({"terminations": open_ends}, without=("terminations",))
    with pytest.raises(DataError, match="got 6 that are not, the first of number 0"):
        penstock.convert(data, tmp_path / "out", format="webdataset", options=SEED)
    report = penstock.convert(data, tmp_path / "out", format="webdataset", options=SEED, fill_missing=True)
    assert ("filled", "truncations") in notes(report)
    with penstock.open(tmp_path / "out") as out:
        assert all(episode.truncations[-1] and not episode.truncations[:-1].any() for episode in out)


def test_observations_of_t_rows(make: Make, tmp_path: Path) -> None:
    rows = np.arange(sum(LENGTHS), dtype="f4")[:, None]
    data = make({"observations": (field("f4", (1,)), rows)}, without=("observations",))
    with pytest.raises(SpecError, match="the last one once more"):
        penstock.convert(data, tmp_path / "out", format="minari")
    penstock.convert(data, tmp_path / "filled", format="minari", fill_missing=True)
    both = make({"observations": (field("f4", (1,)), rows), "next_observations": (field("f4", (1,)), rows + 1)})
    report = penstock.convert(both, tmp_path / "out", format="minari")
    assert ("adapted", "observations") in notes(report)
    with penstock.open(tmp_path / "out") as out, penstock.open(tmp_path / "filled") as filled:
        assert out[0].observations.ravel().tolist() == [0, 1, 2, 3]
        assert filled[0].observations.ravel().tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize("at_once", [1, 60, scan.BYTES])
@pytest.mark.parametrize("consistent", [True, False])
def test_next_observations_are_dropped_only_if_they_say_nothing_new(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consistent: bool, at_once: int
) -> None:
    monkeypatch.setattr(scan, "BYTES", at_once)
    data = make()
    after = np.concatenate([episode.observations[1:] for episode in data])
    after[-1, 0] += 0 if consistent else 1
    after[4, 0] = 7  # of an episode that is not chosen
    data = make({"next_observations": (field("f4", (3,)), after)})[[5, 0, 1, 3, 4]]
    report = penstock.convert(data, tmp_path / "out")
    assert (("left out", "next_observations") in notes(report)) == consistent
    with penstock.open(tmp_path / "out") as out:
        assert ("next_observations" in out.spec) != consistent


def ragged(count: int, dtype: str = "f4") -> Ragged:
    return Ragged.from_rows([np.arange(i % 3, dtype=dtype) for i in range(count)], dtype)


def test_ragged_columns_are_padded_where_they_have_no_place(make: Make, tmp_path: Path) -> None:
    hits = ragged(sum(LENGTHS))
    data = make({"infos/hits": (field("f4", kind="ragged"), hits)})
    report = penstock.convert(data, tmp_path / "out", format="minari")
    assert ("adapted", "infos/hits") in notes(report)
    with penstock.open(tmp_path / "out") as out:
        episode = out[2]
        assert episode.columns["infos/hits"].shape == (7, 2)
        assert rows_of(episode.columns["infos/hits_lengths"]) == [len(row) for row in hits[4:11]]
    penstock.convert(data, tmp_path / "arrow", format="minari", options={"data_format": "arrow"})
    with penstock.open(tmp_path / "arrow") as arrow:
        same(data, arrow)
    longer = Ragged.from_rows([np.arange(i // 4, dtype="f4") for i in range(sum(LENGTHS))], "f4")
    data = make({"infos/hits": (field("f4", kind="ragged"), longer)})[[2]]
    penstock.convert(data, tmp_path / "one", format="minari")
    with penstock.open(tmp_path / "one") as one:
        assert one[0].columns["infos/hits"].shape == (7, 2)  # as wide as the chosen need


def test_what_the_seed_layout_has_no_place_for(make: Make, tmp_path: Path) -> None:
    steps, n = sum(LENGTHS), len(LENGTHS)
    data = make(
        {
            "goal": (field("f4", (2,), "episode"), np.zeros((n, 2), "f4")),
            "infos/k": (field("i8", (), "boundary"), np.arange(steps + n)),
            "note": (field("u1", kind="text"), Ragged.from_strings(["a"] * steps)),
            "infos/word": (field("u1", kind="text"), Ragged.from_strings(["b"] * steps)),
        },
        metadata={"color_space": "CMYK"},
    )
    report = penstock.convert(data, tmp_path / "out", format="webdataset", options=SEED)
    expected = {
        ("left out", "goal"),
        ("adapted", "infos/k"),
        ("left out", "note"),
        ("left out", "metadata/color_space"),
    }
    assert notes(report) == expected
    with penstock.open(tmp_path / "out") as out:
        assert out[0].columns["infos/k"].tolist() == [1, 2, 3]
        assert out[0].columns["infos/word"].strings() == ["b"] * 3


def test_spaces_are_inferred_and_named(make: Make, tmp_path: Path) -> None:
    report = penstock.convert(make(), tmp_path / "out", format="minari")
    assert notes(report) == {("inferred", "observations"), ("inferred", "actions")}
    with penstock.open(tmp_path / "out") as out:
        space = out.spec.observation_space
        assert isinstance(space, Box)
        assert (space.shape, space.dtype) == ((3,), np.dtype("f4"))


def test_text_observations_need_a_space(make: Make, tmp_path: Path) -> None:
    words = Ragged.from_strings(["w"] * (sum(LENGTHS) + len(LENGTHS)))
    data = make({"observations": (field("u1", (), "boundary", "text"), words)}, without=("observations",))
    with pytest.raises(SpecError, match="got observations of text uint8"):
        penstock.convert(data, tmp_path / "out", format="minari")


def test_metadata_that_json_has_no_place_for(make: Make, tmp_path: Path) -> None:
    odd = {"raw": b"x", "tags": {"b", "a"}, 3: "three", "at": Path("p")}
    about = [{"seed": "none", "trace": [[1], [2]]}] + [{"trace": [[1], [2]]}] * (len(LENGTHS) - 1)
    report = penstock.convert(make(metadata=odd, about=about), tmp_path / "out", format="minari")
    assert {
        ("left out", "metadata/raw"),
        ("adapted", "metadata/3"),
        ("left out", "episode metadata/seed"),
        ("adapted", "episode metadata/trace"),
    } <= notes(report)
    with penstock.open(tmp_path / "out") as out:
        assert out.metadata["tags"] == ["a", "b"]
        assert out[0].metadata["trace"] == "[[1], [2]]"


def test_names_given_and_columns_left_out(make: Make, tmp_path: Path) -> None:
    data = make({"obs": (field("f4", (), "boundary"), np.zeros(sum(LENGTHS) + 6, "f4"))}, without=("observations",))
    penstock.convert(data, tmp_path / "out", format="minari", rename={"obs": "observations"})
    report = penstock.convert(data, tmp_path / "less", drop=["obs", "rewards"])
    assert notes(report) == {("left out", "obs"), ("left out", "rewards")}
    with penstock.open(tmp_path / "less") as out:
        assert list(out.spec) == ["actions", "terminations", "truncations"]
    for wrong in ({"drop": ["nothing"]}, {"rename": {"nothing": "x"}}, {"rename": {"obs": "actions"}}):
        with pytest.raises(SpecError, match="expected"):
            penstock.convert(data, tmp_path / "never", **wrong)


def test_episodes_without_steps(make: Make, tmp_path: Path) -> None:
    data = make(lengths=(2, 0, 3))
    for format, options in (("webdataset", SEED), ("lerobot", {"fps": 10})):
        with pytest.raises(DataError, match="got 1 without, the first of number 1; leave them out with --where"):
            penstock.convert(data, tmp_path / "out", format=format, options=options)
    penstock.convert(data, tmp_path / "out")
    with penstock.open(tmp_path / "out") as out:
        same(data, out)


@pytest.mark.parametrize(("format", "options"), TARGETS)
@pytest.mark.parametrize("stop", [1, 4])
def test_an_interruption_changes_nothing(
    make: Make, tmp_path: Path, format: str, options: dict[str, Any], stop: int
) -> None:
    data = make()

    def stopping(episodes: int, steps: int, nbytes: int) -> None:
        if episodes == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        penstock.convert(data, tmp_path / "out", format=format, options=options, on_episode=stopping)
    report = penstock.convert(data, tmp_path / "out", format=format, options=options)
    assert report.status in ("resumed", "converted")
    assert report.episodes == len(data)
    with penstock.open(tmp_path / "out") as out:
        same(data, out)
    again = penstock.convert(data, tmp_path / "out", format=format, options=options)
    assert (again.status, again.resumed_at, again.bytes) == ("complete", len(data), report.bytes)


def test_another_conversion_is_refused(make: Make, tmp_path: Path) -> None:
    penstock.convert(make(), tmp_path / "out")
    for data, options, said in (
        (make(seed=1), {}, "another source"),
        (make()[[1, 0]], {}, "other episodes of it"),
        (make(), {"sync": "episode"}, "other options"),
    ):
        with pytest.raises(StateError, match=said):
            penstock.convert(data, tmp_path / "out", options=options)
    with pytest.raises(FileExistsError, match="a minari dataset that a conversion wrote, got one of columns;"):
        penstock.convert(make(), tmp_path / "out", format="minari")


def test_overwriting_deletes_only_what_a_conversion_wrote(make: Make, tmp_path: Path) -> None:
    data, out = make(), tmp_path / "out"
    for format in ("columns", "webdataset", "minari"):
        penstock.convert(data, out, format=format)
        penstock.convert(make(seed=1), out, format=format, overwrite=True)
        with penstock.open(out) as written:
            same(make(seed=1), written)
        (out / "notes.txt").write_text("mine")
        with pytest.raises(FileExistsError, match=r"got \[.notes.txt.\]; nothing was deleted"):
            penstock.convert(data, out, format=format, overwrite=True)
        with penstock.open(out) as written:
            same(make(seed=1), written)
        shutil.rmtree(out)


def test_what_others_wrote_stays(make: Make, tmp_path: Path) -> None:
    data, folder, file = make(), tmp_path / "folder", tmp_path / "file.tar"
    folder.mkdir()
    (folder / "mine").write_text("x")
    file.write_bytes(b"mine")
    with format_named("columns").create(tmp_path / "recorded", data.spec):
        pass
    link = tmp_path / "link"
    penstock.convert(data, tmp_path / "ours")
    link.symlink_to(tmp_path / "ours")
    for out, format in (
        (folder, "columns"),
        (file, "webdataset"),
        (tmp_path / "recorded", "columns"),
        (link, "columns"),
    ):
        for overwrite in (False, True) if out != link else (True,):
            with pytest.raises(FileExistsError, match="expected"):
                penstock.convert(data, out, format=format, overwrite=overwrite)
    assert (folder / "mine").read_text() == "x"
    assert file.read_bytes() == b"mine"
    assert (tmp_path / "recorded" / "spec.json").exists()
    assert (tmp_path / "ours" / "spec.json").exists()


def test_a_folder_that_a_kill_left_empty_is_begun_anew(make: Make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".shard-000000.tar.abc").write_bytes(b"half")
    assert penstock.convert(make(), tmp_path / "out", format="webdataset").status == "converted"


def test_the_source_is_no_target(make: Make, tmp_path: Path) -> None:
    for format in ("columns", "webdataset", "minari"):
        place = tmp_path / format
        penstock.convert(make(), place, format=format)
        for out in (place, place / "inside", tmp_path):
            with pytest.raises(DataError, match="apart from the source"):
                penstock.convert(place, out, overwrite=True)


def test_one_conversion_at_a_time(make: Make, tmp_path: Path) -> None:
    data, out = make(), tmp_path / "out"

    def second(episodes: int, steps: int, nbytes: int) -> None:
        with pytest.raises(LockedError, match="another conversion"):
            penstock.convert(data, out)
        seen.append(episodes)

    seen: list[int] = []
    penstock.convert(data, out, on_episode=second)
    assert seen == list(range(1, len(data) + 1))


def test_unknown_options_and_formats_leave_nothing(make: Make, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"got \['colour'\]"):
        penstock.convert(make(), tmp_path / "out", options={"colour": 1})
    with pytest.raises(penstock.errors.UnknownFormatError):
        penstock.convert(make(), tmp_path / "out", format="tapes")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "format"), [("a.tar", "webdataset"), ("a.tar.zst", "webdataset"), ("a.zarr", "zarr")])
def test_the_ending_of_a_name_chooses_the_format(tmp_path: Path, name: str, format: str) -> None:
    data = penstock.from_arrays({"observations": np.zeros(3), "actions": np.zeros(3)}, lengths=[1, 2])
    assert penstock.convert(data, tmp_path / "converted" / name).format == format
    assert penstock.convert(data, tmp_path / "given" / name, format="columns").format == "columns"
    assert penstock.merge({"one": data, "two": data}, tmp_path / "merged" / name).format == format
    space = Box(np.zeros(1), np.ones(1), np.dtype(np.float64))
    with penstock.Recorder(tmp_path / "recorded" / name, observation_space=space, action_space=space) as recorder:
        recorder.begin(np.zeros(1))
        recorder.step(np.ones(1), np.ones(1), reward=1.0)
        recorder.end()
    assert recognise(tmp_path / "recorded" / name)[0].name == format


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.npz", "a.hdf5", "a.tfrecord", "a.zarr.zip"])
def test_the_ending_of_a_file_that_is_not_written_is_refused(tmp_path: Path, name: str) -> None:
    data = penstock.from_arrays({"observations": np.zeros(3), "actions": np.zeros(3)}, lengths=[1, 2])
    with pytest.raises(penstock.errors.UnknownFormatError, match=r"reads such files and does not write them.*columns"):
        penstock.convert(data, tmp_path / name)
    with pytest.raises(penstock.errors.UnknownFormatError, match="`format`"):
        penstock.merge({"one": data, "two": data}, tmp_path / name)
    assert os.listdir(tmp_path) == []
    assert penstock.convert(data, tmp_path / name, format="columns").format == "columns"


def test_a_converted_dataset_can_be_converted(make: Make, tmp_path: Path) -> None:
    data = make(metadata={"author": "me"})
    penstock.convert(data, tmp_path / "a", format="minari")
    penstock.convert(tmp_path / "a", tmp_path / "b", format="columns")
    penstock.convert(tmp_path / "b", tmp_path / "c", format="minari")
    with penstock.open(tmp_path / "b") as b, penstock.open(tmp_path / "c") as c:
        same(data, b)
        same(data, c)
        assert "total_episodes" not in b.metadata
        assert CONVERSION in b.metadata
    assert list(format_named("minari").check(tmp_path / "c")) == []


def test_memory_does_not_grow_with_the_data(make: Make, tmp_path: Path) -> None:
    lengths = (50,) * 400
    wide = np.zeros((sum(lengths), 500), "f4")  # 40 MB
    data = make({"wide": (field("f4", (500,)), wide)}, lengths=lengths, about=[{}] * 400)
    penstock.convert(make(), tmp_path / "warm")
    tracemalloc.start()
    penstock.convert(data, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
