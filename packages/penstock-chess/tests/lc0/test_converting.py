"""Games as the target of a conversion: in one run, in parts, interrupted, and refused."""

# pyright: basic

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from lc0.test_writing import game
from penstock.cli.main import app
from penstock.core.episode import Episode
from penstock.errors import DataError, FormatError, StateError, UnknownFormatError, WorkerError
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.runners import ThreadRunner
from penstock.jobs.work_plan import WorkPlan
from penstock.testing.compare import assert_same_episode
from penstock_chess.formats.lc0 import FORMAT, FRAME, SPEC, Lc0Source, packed_chunk
from penstock_chess.formats.lc0 import format as lc0_format


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    with FORMAT.create(tmp_path / "games.tar", SPEC) as writer:
        writer.write_all([game(e) for e in range(9)])
    return tmp_path / "games.tar"


def assert_same_columns(one: Episode, other: Episode) -> None:
    """Their metadata name the files, which differ."""
    assert_same_episode(one, Episode(other.spec, other.columns, other.id))


def files_in(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != ".lock"}


def plan_of(source: Path, out: str | Path, **more: Any) -> WorkPlan:
    work = WorkPlan.make("convert", {"location": str(source), "out": str(out), "to": "lc0", **more}, range_bytes=20_000)
    assert len(work) > 3
    return work


def test_games_of_others_keep_every_value(golden: Path, tmp_path: Path) -> None:
    source = next((golden / "tar").glob("*.tar"))
    report = penstock.convert(source, tmp_path / "out", format="lc0", require="lossless")
    assert report.notes == ()
    with Lc0Source(source) as theirs, Lc0Source(tmp_path / "out") as ours:
        assert len(ours) == len(theirs) > 0
        for e, (one, other) in enumerate(zip(ours.episodes(), theirs.episodes(), strict=True)):
            assert_same_columns(one, other)
            packed = (tmp_path / "out" / f"training.{e:09d}.gz").read_bytes()
            assert gzip.decompress(packed) == ours.frames(e).tobytes()
    assert penstock.convert(source, tmp_path / "out", format="lc0").status == "complete"


@pytest.mark.parametrize("way", [("lc0-archive",), ("columns",), ("lc0",), ("lc0-archive", "columns")], ids="-".join)
def test_fields_that_have_no_meaning_are_kept(tmp_path: Path, way: tuple[str, ...]) -> None:
    frames = np.random.default_rng(3).integers(0, 256, (6, FRAME.itemsize), np.uint8)
    frames.view(FRAME)["version"], frames.view(FRAME)["input_format"] = 7, 1
    frames.view(FRAME)["reserved"][::2] = 0
    (tmp_path / "games").mkdir()
    (tmp_path / "games/training.0.gz").write_bytes(packed_chunk(frames))
    path = tmp_path / "games"
    for i, name in enumerate((*way, "lc0")):
        report = penstock.convert(path, tmp_path / str(i), format=name, require="lossless")
        assert [note for note in report.notes if note.what in ("dummy", "reserved")] == []
        path = tmp_path / str(i)
    with Lc0Source(path) as games:
        assert games.frames(0).tobytes() == frames.tobytes()


@pytest.mark.parametrize("form", ["lc0", "lc0-archive"])
def test_games_without_fields_that_have_no_meaning_are_converted(tmp_path: Path, form: str) -> None:
    columns = {name: column for name, column in game(3).columns.items() if name not in ("dummy", "reserved")}
    data = penstock.from_arrays(columns, lengths=[4])
    penstock.convert(data, tmp_path / "out", format=form)
    with penstock.open(tmp_path / "out") as games:
        assert not any(np.any(games[0].columns[name]) for name in ("dummy", "reserved"))
        for name, column in columns.items():
            assert np.asarray(games[0].columns[name]).tobytes() == np.asarray(column).tobytes(), name


def test_metadata_of_a_folder_is_kept(tmp_path: Path) -> None:
    data = penstock.from_arrays(game(3).columns, lengths=[4], metadata={"author": "me"})
    report = penstock.convert(data, tmp_path / "out", format="lc0")
    with FORMAT.append(tmp_path / "out") as writer:
        writer.update_metadata({"net": 42})
        with pytest.raises(DataError, match="expected metadata that JSON can hold"):
            writer.update_metadata({"net": b"42"})
        assert writer.write(game(1)) == 1
    with penstock.open(tmp_path / "out") as games:
        assert (games.metadata["author"], games.metadata["net"], len(games)) == ("me", 42, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.certificate.json"]
    assert report.status == "converted"
    (tmp_path / "out/.penstock-lc0.json").write_bytes(b"[]")
    with pytest.raises(FormatError, match=r"\.penstock-lc0\.json"):
        penstock.open(tmp_path / "out")


@pytest.mark.parametrize("written", range(4))
def test_an_interrupted_conversion_goes_on(tar: Path, tmp_path: Path, written: int) -> None:
    def stop(episodes: int, *_: int) -> None:
        if episodes > written:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        penstock.convert(tar, tmp_path / "out", format="lc0", options={"level": 1}, on_episode=stop)
    with pytest.raises(StateError, match="other options"):
        penstock.convert(tar, tmp_path / "out", format="lc0")
    report = penstock.convert(tar, tmp_path / "out", format="lc0", options={"level": 1})
    assert report.status == "resumed"
    penstock.convert(tar, tmp_path / "alone", format="lc0", options={"level": 1})
    assert files_in(tmp_path / "out") == files_in(tmp_path / "alone")
    penstock.convert(tar, tmp_path / "out", format="lc0", overwrite=True)
    assert files_in(tmp_path / "out") != files_in(tmp_path / "alone")


def test_a_folder_without_games_yet_is_recognised(tar: Path, tmp_path: Path) -> None:
    FORMAT.create(tmp_path / "out", SPEC, {"author": "me"}).close()
    assert FORMAT.recognises(tmp_path / "out")
    with pytest.raises(FileExistsError, match="that none wrote"):
        penstock.convert(tar, tmp_path / "out", format="lc0")
    penstock.convert(tar, tmp_path / "alone", format="lc0")
    metadata = (tmp_path / "alone/.penstock-lc0.json").read_bytes()
    (tmp_path / "out/.penstock-lc0.json").write_bytes(metadata)  # as after a kill before the first game
    assert penstock.convert(tar, tmp_path / "out", format="lc0").status == "converted"
    assert files_in(tmp_path / "out") == files_in(tmp_path / "alone")


def test_parts_have_the_bytes_of_one_run(tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = plan_of(tar, tmp_path / "out")
    run_work(work, tmp_path / "results", ThreadRunner(2))
    real = lc0_format.move
    for allowed in (0, 2, 3):
        left = [allowed]

        def move(*given: Any, left: list[int] = left) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(*given)

        with monkeypatch.context() as patch:
            patch.setattr(lc0_format, "move", move)
            with pytest.raises(KeyboardInterrupt):
                finish_work(work, tmp_path / "results")
        assert not (tmp_path / "out").exists()
    assert finish_work(work, tmp_path / "results").certificate.lossless
    penstock.convert(tar, tmp_path / "alone", format="lc0")
    assert files_in(tmp_path / "out") == files_in(tmp_path / "alone")
    assert finish_work(work, tmp_path / "results").status == "complete"
    assert not list(tmp_path.glob("*.parts"))


def test_games_in_parts_at_a_url(tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    url = f"memory://{tmp_path.name}/out"
    work = plan_of(tar, url)
    run_work(work, tmp_path / "results", ThreadRunner(2))
    assert [finish_work(work, tmp_path / "results").status for _ in range(2)] == ["converted", "complete"]
    with penstock.open(url) as remote, penstock.open(tar) as local:
        for found, expected in zip(remote, local, strict=True):
            assert_same_columns(found, expected)


def test_what_games_have_no_place_for(tar: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected no metadata in a tar \(write a folder"):
        penstock.convert(tar, tmp_path / "out.tar", format="lc0")
    with pytest.raises(DataError, match=r"expected options of lc0 among \['level'\], got \['record'\]"):
        penstock.convert(tar, tmp_path / "out", format="lc0", options={"record": "v6"})
    with pytest.raises(DataError, match=r"written in parts, got 'lc0': .*in a tar \(write a folder.* got out\.tar"):
        plan_of(tar, tmp_path / "out.tar")
    data = penstock.from_arrays({"observations": [1.0, 2.0]}, lengths=[2])
    penstock.convert(data, tmp_path / "numbers")
    with pytest.raises(penstock.errors.SpecError, match="expected the columns of a record"):
        penstock.convert(data, tmp_path / "out", format="lc0")
    work = WorkPlan.make("convert", {"location": str(tmp_path / "numbers"), "out": str(tmp_path / "out"), "to": "lc0"})
    with pytest.raises(WorkerError, match="expected the columns of a record"):
        run_work(work, tmp_path / "results")
    assert not (tmp_path / "out").exists()


def test_data_of_another_format_and_names_of_games_are_told(tmp_path: Path) -> None:
    data = penstock.from_arrays({"observations": np.zeros(3), "actions": np.zeros(3)}, lengths=[1, 2])
    penstock.convert(data, tmp_path / "store")
    result = CliRunner().invoke(app, ["info", str(tmp_path / "store"), "--from", "lc0"])
    assert result.exit_code == 1
    assert "has no episodes as 'lc0'; it looks like 'columns': leave out --from" in " ".join(result.stderr.split())
    with pytest.raises(UnknownFormatError, match=r"reads such files and does not write them.*columns"):
        penstock.convert(data, tmp_path / "a.gz")
