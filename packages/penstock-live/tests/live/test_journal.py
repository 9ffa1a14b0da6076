"""A journal destroys nothing that is not its own, has one writer, and says in our words what is wrong with it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from live.files import Opener
from penstock.errors import DataError, FormatError, LockedError, StateError
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.journal import Arrival, Journal, Move, parse, read_journal
from penstock_live.pipeline import LiveOptions, LivePipeline
from penstock_live.pool import ShufflingChunkPool
from tests.cli.conftest import Call, call
from tests.cli.test_check import check_repair

__all__ = ["call"]

HEADER = '{"journal":1}\n'
MOVE = '{"at":0,"lo":0,"in":["a","a",1,5,6],"out":[]}\n'


def move(i: int) -> Move:
    return Move(i, i, Arrival(f"f{i}", f"{i:03d}", 1))


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 200,  # no line ends near the end of such files: all of it was lost once
        b'{"a": 1}',
        b"a,b\n1,2\n3,4",
        b'{"at": 0}\n',
        b'{"journal":2}\n' + MOVE.encode(),
        HEADER.encode() + b"{}\n" + MOVE.encode() + b"torn",
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    before = path.stat()
    with pytest.raises(FormatError, match=r"model\.pt"):
        Journal(path)
    assert path.read_bytes() == content
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_two_runs_cannot_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "moves"
    pool = ShufflingChunkPool(journal=Journal(path))
    pool.arrive([Arrival("a", "a", 1)])
    with pytest.raises(LockedError, match="moves is in use by another run"):
        Journal(path)
    script = "import sys; from penstock_live.journal import Journal; Journal(sys.argv[1])"
    other = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert "LockedError" in other.stderr
    assert len(read_journal(path)) == 1  # reading goes on meanwhile
    pool.close()
    pool.arrive([Arrival("b", "b", 1)])  # closed: neither placed nor written
    assert len(pool.sources) == 1
    with Journal(path) as journal:
        assert len(journal.moves()) == 1


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[" * 100_000,
        "[]",
        "3",
        '{"at": 1}',
        '{"journal": 1}',
        '{"resume": -1}',
        '{"resume": 1}',
        '{"resume": true}',
        '{"resume": 1e400}',
        '{"resume": 0.0}',
        '{"at": Infinity, "lo": 0, "in": ["a", "a", 1], "out": []}',
        '{"at": -3, "lo": 0, "in": ["a", "a", 1], "out": []}',
        '{"at": 0, "lo": NaN, "in": ["a", "a", 1], "out": []}',
        '{"at": 0, "lo": 0, "in": ["a", "a", -5], "out": []}',
        '{"at": 0, "lo": 0, "in": ["a", "a", 9223372036854775808], "out": []}',
        '{"at": 0, "lo": 0, "in": ["a", "a"], "out": []}',
        '{"at": 0, "lo": 0, "in": ["a", "a", 1, 2, 3, 4], "out": []}',
        '{"at": 0, "lo": 0, "in": [null, [], "x"], "out": []}',
        '{"at": 0, "lo": 0, "in": {"name": "a"}, "out": []}',
        '{"at": 0, "lo": 0, "in": ["a", "a", 1], "out": "abc"}',
        '{"at": 0, "lo": 0, "in": ["a", "a", 1], "out": [1]}',
    ],
)
def test_a_line_of_wrong_types_or_numbers_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "moves"
    path.write_text(HEADER + line + "\n")
    before = path.read_bytes()
    for read in (Journal, read_journal):
        with pytest.raises(FormatError, match="line 2"):
            read(path)
    assert path.read_bytes() == before


def test_what_has_no_header_or_no_text_is_no_journal(tmp_path: Path) -> None:
    for lines in ([], [MOVE], ["\xff"], [b"\xff\xfe"]):
        with pytest.raises(FormatError, match="line 1"):
            parse(lines)
    with pytest.raises(FormatError, match="line 2"):
        parse([HEADER, b"\xff\xfe\n"])


def test_a_journal_with_fewer_moves_than_the_state_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "moves") as journal:
        journal.write([move(0)])
        pool = ShufflingChunkPool(journal=Journal())
        pool.arrive([Arrival("a", "a", 1), Arrival("b", "b", 1)])
        with pytest.raises(StateError, match=r"at least 2 moves, got 1 in .*moves; give that one, or none"):
            ShufflingChunkPool(journal=journal).load_state_dict(pool.state_dict())


def test_a_line_that_a_full_disk_cut_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def full(fd: int, data: Any, position: int) -> int:
        if len(data) > 7:
            return real(fd, data[:7], position)
        raise OSError(errno.ENOSPC, "disk full")

    with Journal(tmp_path / "moves") as journal:
        journal.write([move(0)])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(OSError, match="disk full"):
                journal.write([move(1)])
        journal.write([move(2)])
    assert read_journal(tmp_path / "moves") == [move(0), move(2)]


@pytest.mark.parametrize("overflow", ["block", "keep_newest"])
def test_a_run_that_cannot_start_lets_go_of_its_journal(tmp_path: Path, overflow: Any) -> None:
    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), Opener, threads=1)
    options = LiveOptions(reservoir=8, batch_size=7, follow=False, overflow=overflow)
    run = LivePipeline(inlet, options, journal=tmp_path / ".moves")
    with pytest.raises(LockedError):
        Journal(tmp_path / ".moves")
    for _ in range(2):
        with pytest.raises(DataError, match="expected chunks to read, got none"):
            next(run)
    Journal(tmp_path / ".moves").close()
    assert run.account()["expected"] == 0


def test_the_command_repairs_a_journal(call: Call, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        journal.write([Move(0, 0, Arrival("a.gz", "a.gz", 1))])
    check_repair(call, tmp_path / "journal")
