"""A disk that is away for a while, files that are deleted, and what is no file: runs that follow wait, others end."""

# pyright: basic

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Games, Opener, frames_of, named, names, write
from penstock.errors import DataError
from penstock.flow.queue import QueueClosed
from penstock_live import stream as stream_module
from penstock_live.chunk_source import Wanted
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.journal import Journal
from penstock_live.options import LiveOptions
from penstock_live.pipeline import LivePipeline

FILES = [[0, 1, 2], [10], [20, 21], [30, 31, 32, 33]]
GAMES = [game for file in FILES for game in file]


class Waits(FilePathProvider):
    """Tells when a reader waits for the end of an outage."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reader_waits = threading.Event()

    def wait_for_files(self, timeout: float) -> None:
        self.reader_waits.set()
        super().wait_for_files(timeout)


class Followed:
    """A run that is polled by hand, and reads one chunk for each batch."""

    def __init__(self, folder: Path, opener: Any = None, **options: Any) -> None:
        self.now, self.folder = 5000.0, folder
        self.provider = Waits(folder, watch="poll", clock=lambda: self.now)
        chosen = {"reservoir": 0, "batch_size": 1, "draws": 1, "threads": 1, "prefetch": 1, "nbytes": 1, **options}
        inlet = ChunkSourceLoader(self.provider, opener or Opener())
        journal, replay = chosen.pop("journal", None), chosen.pop("replay", None)
        self.pipeline = LivePipeline(inlet, LiveOptions(follow="manual", **chosen), journal=journal, replay=replay)

    def poll(self, times: int = 2) -> int:
        found = 0
        for _ in range(times):
            self.now += 10
            found += self.pipeline.poll()
        return found

    def take(self, n: int) -> list[tuple[int, int]]:
        return [frame for _ in range(n) for frame in named(self.pipeline.get_next()["rows"])]

    def games(self, n: int) -> set[int]:
        return {game for game, _ in self.take(n)}

    def figures(self) -> dict[str, int]:
        return {name: n for name, n in self.pipeline.account().items() if n}

    def read_until(self, waits: Callable[[], bool]) -> list[tuple[int, int]]:
        """All frames up to where the run waits: that it gives nothing for a while may be chance."""
        frames: list[tuple[int, int]] = []
        end = time.monotonic() + 60
        while not waits():
            assert time.monotonic() < end
            with suppress(TimeoutError):
                frames += named(self.pipeline.get_next(timeout=0.02)["rows"])
        return frames

    def __enter__(self) -> Followed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pipeline.stop()


class Gate:
    """Opens files whose chunks are read once `open` is set: until then nothing is read ahead."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, path: Path) -> Games:
        gate = self.open

        class Gated(Games):
            def load(self, i: int, wanted: Wanted | None = None) -> np.ndarray:
                assert gate.wait(60)
                return super().load(i, wanted)

        return Gated(path)


def missing(folder: Path) -> Callable[[], None]:
    away = folder.with_name("away")
    folder.rename(away)

    def back() -> None:
        away.rename(folder)

    return back


def empty(folder: Path) -> Callable[[], None]:
    """As the place of a disk that is not mounted."""
    back = missing(folder)
    folder.mkdir()

    def mounted() -> None:
        folder.rmdir()
        back()

    return mounted


def forbidden(folder: Path) -> Callable[[], None]:
    """A folder that may not be listed: injected, as the tests may run as root."""
    back = missing(folder)
    folder.write_bytes(b"no folder, which scandir refuses too")

    def allowed() -> None:
        folder.unlink()
        back()

    return allowed


@pytest.mark.parametrize("outage", [missing, empty, forbidden])
def test_a_run_that_follows_waits_through_an_outage_and_loses_nothing(
    tmp_path: Path, outage: Callable[[Path], Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "games"
    names(folder, FILES)
    with Followed(folder, passes=3) as run:
        frames = run.take(1)
        back = outage(folder)
        frames += run.read_until(run.provider.reader_waits.is_set)
        assert run.poll(5) == 0
        assert run.pipeline.status.startswith("waiting for files: ")
        pool = run.pipeline.metrics()["stages"]["shuffling_chunk_pool"]["gauges"]
        assert (pool["status"], pool["chunks_current"]) == (run.pipeline.status, len(GAMES))
        back()
        names(folder, [[40, 41]], start=4)
        assert run.poll(3) == 1
        assert run.pipeline.status == "reading"
        frames += [frame for batch in run.pipeline for frame in named(batch["rows"])]
    assert Counter(frames_of(GAMES)) - Counter(frames) == Counter()
    assert {40, 41} <= {game for game, _ in frames}
    assert max(Counter(frames).values()) == 3
    assert run.pipeline.failures()[0] == {}
    assert run.figures() == {"expected": len(GAMES) + 2, "read": len(GAMES) + 2}
    assert [record.levelname for record in caplog.records][:2] == ["WARNING", "INFO"] or len(caplog.records) == 1


def test_a_run_that_does_not_follow_ends_in_an_outage_as_it_did(tmp_path: Path) -> None:
    folder = tmp_path / "games"
    names(folder, FILES)
    options = LiveOptions(follow=False, passes=9, reservoir=0, batch_size=1, draws=1, threads=1, prefetch=1)
    with LivePipeline(ChunkSourceLoader(FilePathProvider(folder, watch="off"), Opener()), options) as run:
        next(run)
        folder.rename(tmp_path / "away")
        with pytest.raises(DataError, match="none in a whole pass"):
            for _ in run:
                pass


def test_a_run_that_waits_for_a_disk_is_stopped_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "games"
    names(folder, FILES)
    run = Followed(folder)
    run.take(1)
    missing(folder)
    failed: list[BaseException] = []

    def consume() -> None:
        try:
            while True:
                run.pipeline.get_next()
        except QueueClosed as error:
            failed.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert run.provider.reader_waits.wait(60)
    run.pipeline.stop()
    consumer.join(60)
    assert len(failed) == 1


def test_a_file_that_the_system_cannot_open_for_now_is_taken_later(tmp_path: Path) -> None:
    names(tmp_path, FILES[:3])
    broken = {"g0003.chk"}

    def opener(path: Path) -> Games:
        if path.name in broken:
            raise OSError(5, "Input/output error")
        return Games(path)

    with Followed(tmp_path, opener, passes=2) as run:
        run.take(1)
        names(tmp_path, FILES[3:], start=3)
        assert run.poll(5) == 0
        assert run.pipeline.failures()[0] == {"unreadable": 1}
        assert run.figures()["failed"] == 1
        broken.clear()
        assert run.poll(3) == 1
        assert set(FILES[3]) <= {game for batch in run.pipeline for game, _ in named(batch["rows"])}
        assert run.figures() == {"expected": 10, "read": 10}


def test_chunks_that_cannot_be_read_for_now_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "PAUSE", 0.0)
    names(tmp_path, FILES)
    broken = [True]

    class Broken(Games):
        def load(self, i: int, wanted: Wanted | None = None) -> np.ndarray:
            if broken:
                raise PermissionError(13, "Permission denied")
            return super().load(i, wanted)

    with Followed(tmp_path, Broken) as run:
        assert run.read_until(lambda: run.pipeline.status == "waiting: no chunk of the window can be read") == []
        assert run.figures() == {"expected": 10, "failed": 10}
        broken.clear()
        assert run.games(300) == set(GAMES)
        assert run.figures() == {"expected": 10, "read": 10}
        assert run.pipeline.status == "reading"


def test_deleted_files_leave_the_window_when_that_is_noticed(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    journal, gate = Journal(), Gate()
    with Followed(tmp_path, gate, journal=journal) as run:
        assert run.poll() == 0
        for i in (0, 2):
            (tmp_path / f"g{i:04d}.chk").unlink()
        assert run.poll() == 0
        assert run.provider.counts["deleted"] == 2
        assert run.figures() == {"expected": 10, "gone": 5, "waiting": 5}
        gauges = run.pipeline.metrics()["stages"]["shuffling_chunk_pool"]["gauges"]
        assert (gauges["chunks_current"], gauges["chunks_gone"]) == (5, 5)
        gate.open.set()
        assert run.games(300) == {10, 30, 31, 32, 33}
        assert sum(run.pipeline.failures()[0].values()) <= 1  # what was in work
        assert [(move.arrival, move.left) for move in journal.moves()[4:]] == [
            (None, ("g0000.chk",)),
            (None, ("g0002.chk",)),
        ]


def test_a_deleted_file_leaves_when_it_is_drawn_whatever_was_noticed(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    gate = Gate()
    with Followed(tmp_path, gate) as run:
        run.pipeline.start()
        (tmp_path / "g0003.chk").unlink()
        gate.open.set()
        assert run.games(300) & set(FILES[3]) == set()
        assert sum(run.pipeline.failures()[0].values()) == 1
        assert run.figures() == {"expected": 10, "read": 6, "gone": 4}


def test_when_all_files_are_deleted_new_ones_are_waited_for(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    (tmp_path / "readme.txt").write_text("stays")
    with Followed(tmp_path) as run:
        first = {game for game, _ in run.take(3)}
        for path in tmp_path.glob("*.chk"):
            path.unlink()
        run.read_until(lambda: run.pipeline.status == "waiting for new files")
        assert run.poll() == 0
        assert run.pipeline.status == "waiting for new files"
        write(tmp_path / "g0009.chk", [50])
        assert run.poll() == 1
        assert 50 in run.games(300)
        assert first <= set(GAMES)
        found = run.pipeline.account()
        assert (found["expected"], found["read"] + found["gone"], found["waiting"]) == (11, 11, 0)


def test_files_that_come_back_are_taken_again(tmp_path: Path) -> None:
    names(tmp_path / "games", FILES)
    gate = Gate()
    with Followed(tmp_path / "games", gate) as run:
        run.pipeline.start()
        (tmp_path / "games" / "g0003.chk").rename(tmp_path / "elsewhere")
        assert run.poll() == 0
        gate.open.set()
        assert run.games(300) & set(FILES[3]) == set()
        (tmp_path / "elsewhere").rename(tmp_path / "games" / "g0003.chk")
        assert run.poll() == 1
        assert run.games(300) == set(GAMES)
        assert run.figures() == {"expected": 14, "read": 10, "gone": 4}


def test_a_copy_takes_the_place_of_a_file_that_is_deleted(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with Followed(tmp_path) as run:
        run.pipeline.start()
        run.poll()
        write(tmp_path / "moved" / "g0003.chk", FILES[3], age=2000.0)
        assert run.poll() == 0
        (tmp_path / "g0003.chk").unlink()
        assert run.poll(3) == 1
        assert run.games(300) == set(GAMES)


def test_a_replay_of_a_run_whose_files_were_deleted_draws_the_same(tmp_path: Path) -> None:
    """Files come and go, by name and by being drawn; the replay draws each number where the run did."""
    folder, journal = tmp_path / "games", Journal(tmp_path / "moves")
    names(folder, FILES)
    states: list[tuple[int, dict[str, Any]]] = []
    with Followed(folder, journal=journal, references=True, window=8) as run:
        drawn: list[int] = []

        def draw(n: int) -> None:
            for _ in range(n):
                states.append((len(drawn), run.pipeline.state_dict()))
                drawn.append(int(run.pipeline.get_next()["chunk"][0]))

        draw(9)
        (folder / "g0002.chk").rename(tmp_path / "g0002.chk")
        draw(9)
        names(folder, [[40, 41], [42]], start=4)
        run.poll()
        draw(5)
        (folder / "g0004.chk").rename(tmp_path / "g0004.chk")
        run.poll()
        draw(30)
    assert sum(move.arrival is None for move in journal.moves()) == 2
    for path in tmp_path.glob("g*.chk"):
        path.rename(folder / path.name)  # so that what was read before can be read again
    replay = Followed(folder, replay=journal.moves(), references=True, window=8)
    with replay:
        again = [int(replay.pipeline.get_next()["chunk"][0]) for _ in range(len(drawn) + 40)]
    # In the replay, draws of files that were gone in the run can be read: but for those, it is the same sequence.
    rest = iter(again)
    assert all(chunk in rest for chunk in drawn)
    for at, state in states[::7]:
        resumed = Followed(folder, replay=journal.moves(), references=True, window=8)
        resumed.pipeline.load_state_dict(state)
        with resumed:
            rest = iter([int(resumed.pipeline.get_next()["chunk"][0]) for _ in range(len(drawn) - at + 40)])
            assert all(chunk in rest for chunk in drawn[at:])


@contextmanager
def pipe(path: Path) -> Iterator[None]:
    os.mkfifo(path)
    yield


@contextmanager
def unix_socket(path: Path) -> Iterator[None]:
    held, before = socket.socket(socket.AF_UNIX), Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        held.bind(path.name)
        yield
    finally:
        os.chdir(before)
        held.close()


@contextmanager
def device(path: Path) -> Iterator[None]:
    path.symlink_to("/dev/zero")
    yield


@pytest.mark.parametrize("make", [pipe, unix_socket, device])
def test_what_is_no_regular_file_is_passed_over_and_never_opened(tmp_path: Path, make: Any) -> None:
    names(tmp_path, FILES)
    opener = Opener()
    with make(tmp_path / "a.chk"), Followed(tmp_path, opener, passes=1) as run:
        run.pipeline.start()
        with make(tmp_path / "z.chk"):
            run.provider._events.append(("created", str(tmp_path / "z.chk"), False))  # pyright: ignore[reportPrivateUsage]
            run.provider._events.append(("closed", str(tmp_path / "z.chk"), False))  # pyright: ignore[reportPrivateUsage]
            assert run.poll(4) == 0
        games = {game for batch in run.pipeline for game, _ in named(batch["rows"])}
    assert games == set(GAMES)
    assert set(opener.opened) == {f"g{i:04d}.chk" for i in range(4)}


def test_a_file_that_becomes_a_pipe_is_gone_and_not_waited_for(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with Followed(tmp_path) as run:
        run.take(9)
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "pipe").replace(tmp_path / "g0003.chk")
        run.take(60)  # what was read ahead
        assert run.games(200) == set(GAMES) - set(FILES[3])
        assert run.poll(3) == 0
        found = run.pipeline.account()
        assert (found["expected"], found["read"] + found["gone"]) == (10, 10)


def test_what_is_lost_is_in_the_log_once_and_whenever_it_doubles(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(6):
        path = write(tmp_path / f"g{i}.chk", [i])
        if i:
            path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.INFO, "penstock_live"):
        options = LiveOptions(follow=False, reservoir=0)
        with LivePipeline(ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), Opener()), options) as run:
            list(run)
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" failed")[0] for text in said[:-1]] == [f"chunk_unpacker: {n}" for n in (1, 2, 4)]
    assert said[-1] == "a live run stops; chunks: 6 expected, 1 read, 5 failed"
    assert caplog.records[-1].levelname == "WARNING"
