"""Archives behind live runs, and live runs over archives."""

# pyright: basic

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from games.test_live import joined, sorted_rows
from penstock.errors import LockedError, PlanError, StateError
from penstock_chess.archiving import GameArchive
from penstock_chess.compact import encode
from penstock_chess.formats.archive import ArchiveSource, ArchiveWriter
from penstock_chess.formats.lc0 import SPEC, open_chunks
from penstock_chess.live import DiffFocus, chess_hooks, chess_inlet, chess_pipeline
from penstock_chess.rescore import Rescorer
from penstock_chess.tensors import ChessTensors
from penstock_live import LiveOptions, LivePipeline
from penstock_live.hooks import ChunkFunctions

ONE: dict[str, Any] = {"count": 1, "reservoir": 0, "batch_size": 8, "follow": False}


def games_in(folder: Path) -> list[bytes]:
    """The frames of each game, of all files."""
    sources = [open_chunks(path) for path in sorted(folder.iterdir())]
    return [source.load(i).tobytes() for source in sources if source is not None for i in range(len(source))]


def archived(path: Path) -> list[bytes]:
    with ArchiveSource(path) as source:
        return [source.frames(e).tobytes() for e in range(len(source))]


@pytest.mark.parametrize("checks", [{}, {"rescorer": Rescorer(deblunder_threshold=0.1, deblunder_width=0.06)}])
@pytest.mark.parametrize("folder", ["gz", "tar", "v7", "old"])
def test_every_game_is_archived_once_and_changes_no_batch(
    golden: Path, tmp_path: Path, folder: str, checks: dict[str, Any]
) -> None:
    def batches(**more: Any) -> dict[str, Any]:
        with chess_pipeline(golden / folder, **ONE, passes=3, references=True, seed=3, **checks, **more) as run:
            return joined(list(run))

    wanted = batches()
    for _ in range(2):
        found = batches(archive=tmp_path / "archive")
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, name)
        assert sorted(archived(tmp_path / "archive")) == sorted(games_in(golden / folder))


@pytest.mark.parametrize(
    "options",
    [{}, {"rescorer": Rescorer()}, {"validate": True}, {"weights": DiffFocus(q_weight=1), "count": 2, "ahead": 2}],
)
def test_a_run_over_an_archive_gives_the_positions_of_the_files(
    golden: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    penstock.convert(golden / "gz", tmp_path / "archive", format="lc0-archive")
    found: list[dict[str, Any]] = []
    for place in (golden / "gz", tmp_path / "archive"):
        with chess_pipeline(place, follow=False, reservoir=30, references=True, **options) as run:
            found.append(sorted_rows(joined(list(run))))
    for name in ("planes", "probabilities", "values", "place"):
        assert len(found[0][name]) == len(found[1][name]) > 0
        if "count" not in options:  # which positions are drawn depends on the numbers of games
            np.testing.assert_array_equal(found[0][name], found[1][name], name)


@pytest.mark.parametrize("options", [{"count": 1}, {"rate": "1/4"}, {}])
def test_a_run_over_an_archive_takes_compact_rows_as_they_are_stored(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    penstock.convert(golden / "formats", tmp_path / "archive", format="lc0-archive")
    calls: list[int] = []

    def counted(self: ArchiveSource, steps: Any) -> Any:
        calls.append(len(steps))
        return compact_rows(self, steps)

    def batches(hooks: ChunkFunctions) -> dict[str, Any]:
        live = LiveOptions(reservoir=30, batch_size=16, follow=False, passes=2, threads=0, references=True, **options)
        inlet = chess_inlet(tmp_path / "archive")
        with LivePipeline(inlet, live, hooks=hooks, decode=ChessTensors().decode) as run:
            return joined(list(run))

    compact_rows = ArchiveSource.compact_rows
    monkeypatch.setattr(ArchiveSource, "compact_rows", counted)
    expected = batches(ChunkFunctions(encode=lambda frames, places: encode(frames[places])))
    assert not calls
    monkeypatch.setattr(ArchiveSource, "frame_rows", None)
    found = batches(chess_hooks())
    assert sum(calls) == len(found["planes"]) > len(calls)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)


def test_a_damaged_game_of_an_archive_is_lost_alone(golden: Path, tmp_path: Path) -> None:
    penstock.convert(golden / "formats", tmp_path / "archive", format="lc0-archive")
    (values,) = (tmp_path / "archive").rglob("*.values")
    raw = bytearray(values.read_bytes())
    raw[117] ^= 2  # the layout of the first row
    values.write_bytes(raw)
    with ArchiveSource(tmp_path / "archive") as source:
        positions = source.steps - int(source.offsets[1])
    with chess_pipeline(tmp_path / "archive", follow=False, reservoir=0) as run:
        assert sum(len(batch["planes"]) for batch in run) == positions
        assert run.account()["failed"] == 1


def test_a_state_of_a_run_over_an_archive_continues(golden: Path, tmp_path: Path) -> None:
    penstock.convert(golden / "formats", tmp_path / "archive", format="lc0-archive")
    options: dict[str, Any] = {**ONE, "passes": 6, "seed": 5}
    with chess_pipeline(tmp_path / "archive", **options) as run:
        loader = run.loader()
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        rest = list(batches)
    with chess_pipeline(tmp_path / "archive", **options) as run:
        loader = run.loader()
        loader.load_state_dict(state)
        again = list(loader)
    assert len(again) == len(rest) > 2
    for one, other in zip(again, rest, strict=True):
        np.testing.assert_array_equal(one["planes"], other["planes"])


KILLED = """
import os, signal, sys
from penstock_chess.formats.archive import ArchiveWriter
from penstock_chess.live import chess_pipeline
written = 0
write = ArchiveWriter.write_frames
def killing(self, *args, **named):
    global written
    if written == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    written += 1
    return write(self, *args, **named)
ArchiveWriter.write_frames = killing
with chess_pipeline(sys.argv[1], archive=sys.argv[2], count=1, reservoir=0, follow=False, batch_size=2) as run:
    list(run)
"""


def test_a_killed_run_loses_no_archived_game_and_the_next_one_adds_the_others(golden: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(golden / "formats"), str(tmp_path / "archive")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    expected = games_in(golden / "formats")
    first = archived(tmp_path / "archive")
    assert len(first) == 5
    assert set(first) <= set(expected)
    with chess_pipeline(golden / "formats", archive=tmp_path / "archive", **ONE) as run:
        list(run)
    assert archived(tmp_path / "archive")[:5] == first
    assert sorted(archived(tmp_path / "archive")) == sorted(expected)
    assert not penstock.check(tmp_path / "archive", deep=True).findings


HOLDS = """
import sys
from penstock_chess.live import chess_pipeline
options = {"count": 1, "reservoir": 0, "batch_size": 1, "watch": "poll", "settle": 0}
with chess_pipeline(sys.argv[1], archive=sys.argv[2], **options) as run:
    next(run)
    print("begun", flush=True)
    sys.stdin.read()
"""


def test_one_run_at_a_time_archives_to_a_folder(golden: Path, tmp_path: Path) -> None:
    games, archive = golden / "formats", tmp_path / "archive"
    command = [sys.executable, "-c", HOLDS, str(games), str(archive)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        with pytest.raises(LockedError, match=rf"archive is in use by another live run( .process {first.pid}.)?; try"):
            chess_pipeline(games, archive=archive, **ONE)
        first.stdin.close()
    assert first.returncode == 0
    for _ in range(2):
        with chess_pipeline(games, archive=archive, **ONE) as run:
            list(run)
    assert sorted(archived(archive)) == sorted(games_in(games))


def test_games_that_come_while_both_run_are_archived_and_read(golden: Path, tmp_path: Path) -> None:
    """The first run takes files in, the second one what the first has archived."""
    games = sorted((golden / "formats").iterdir())
    (tmp_path / "games").mkdir()
    shutil.copy(games[0], tmp_path / "games")
    options: dict[str, Any] = {"count": 1, "reservoir": 0, "batch_size": 1, "settle": 0, "watch": "poll"}
    with chess_pipeline(tmp_path / "games", archive=tmp_path / "archive", **options) as writing:
        next(writing)
        with chess_pipeline(tmp_path / "archive", count=1, reservoir=0, batch_size=1) as reading:
            next(reading)
            os.link(games[1], tmp_path / "games" / games[1].name)
            while len(archived(tmp_path / "archive")) < 2:
                next(writing)
            while reading.account()["expected"] < 2:
                next(reading)
    assert sorted(archived(tmp_path / "archive")) == sorted(games_in(tmp_path / "games"))


def test_bad_games_are_counted_and_not_archived(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "games").mkdir()
    whole = (golden / "gz/training.700027.gz").read_bytes()
    (tmp_path / "games/training.1.gz").write_bytes(whole)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (tmp_path / "games/training.2.gz").write_bytes(damaged)
    with chess_pipeline(tmp_path / "games", archive=tmp_path / "archive", **ONE) as run:
        assert sum(len(batch["planes"]) for batch in run) == 1
        assert run.account()["failed"] == 1
    assert len(archived(tmp_path / "archive")) == 1


def test_an_archive_that_cannot_be_written_ends_the_run(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ArchiveWriter, "write_frames", full)
    options: dict[str, Any] = {"count": 1, "reservoir": 0, "batch_size": 1, "watch": "poll"}
    with (
        chess_pipeline(golden / "gz", archive=tmp_path / "archive", **options) as run,
        pytest.raises(StateError, match=r"archive games in .*No space left"),
    ):
        list(zip(range(100_000), run, strict=False))


def test_options_without_meaning_are_refused(golden: Path, tmp_path: Path) -> None:
    ArchiveWriter.create(tmp_path / "archive", SPEC).close()
    refused: list[dict[str, Any]] = [{"verify": True}, {"missing_st": "nan"}, {"archive": tmp_path / "other"}]
    for option in refused:
        with pytest.raises(PlanError, match="leave them out"):
            chess_pipeline(tmp_path / "archive", **option)
    closed = GameArchive(tmp_path / "archive", "zero")
    closed.close()
    closed.add(np.zeros((1, 8396), np.uint8), "late", "late", None)
    assert archived(tmp_path / "archive") == []
