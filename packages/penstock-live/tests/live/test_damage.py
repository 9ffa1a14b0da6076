"""What may happen to files, a test each: nothing ends, hangs or crashes a run; every drop is counted and named."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Games, Opener, catalog_of, frames_of, loader_of, named, names, records, write
from penstock.errors import DataError, FormatError, PlanError, WorkerError
from penstock.flow.queue import QueueClosed
from penstock_live.account import SourceGone
from penstock_live.chunk_source import Wanted
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.hooks import ChunkFunctions, Rejected
from penstock_live.journal import Arrival
from penstock_live.pipeline import LiveOptions, LivePipeline

FILES = [[0, 1, 2], [10], [20, 21], [30, 31, 32, 33]]
GAMES = [game for file in FILES for game in file]


class Run:
    """A finite run over a directory, or one that is polled by hand."""

    def __init__(
        self,
        directory: Path,
        hooks: ChunkFunctions | None = None,
        opener: Any = None,
        decode: Any = None,
        **options: Any,
    ) -> None:
        self.now, self.opener = 5000.0, opener or Opener()
        follow = options.get("follow", False)
        provider = FilePathProvider(directory, watch="poll" if follow else "off", clock=lambda: self.now)
        chosen: dict[str, Any] = {"reservoir": 9, "batch_size": 4, "follow": False, "threads": 2, **options}
        inlet = ChunkSourceLoader(provider, self.opener)
        self.pipeline = LivePipeline(inlet, LiveOptions(**chosen), hooks=hooks, decode=decode)

    def poll(self) -> int:
        found = 0
        for _ in range(2):
            self.now += 10
            found += self.pipeline.poll()
        return found

    def frames(self) -> Counter[tuple[int, int]]:
        with self.pipeline:
            return Counter(frame for batch in self.pipeline for frame in named(batch["rows"]))

    @property
    def failures(self) -> dict[str, int]:
        return self.pipeline.failures()[0]

    @property
    def named(self) -> list[str]:
        return [name for name, _, _ in self.pipeline.failures()[1]]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_a_flipped_bit_drops_its_chunk_by_name_and_no_other(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    flip(tmp_path / "g0000.chk", -1)
    run = Run(tmp_path)
    assert run.frames() == Counter(frames_of(game for game in GAMES if game != 2))
    assert (run.failures, run.named) == ({"checksum": 1}, ["g0000.chk#2"])


def test_a_truncated_file_gives_the_chunks_before_the_cut(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    path = tmp_path / "g0003.chk"
    path.write_bytes(path.read_bytes()[:-1])
    run = Run(tmp_path)
    assert run.frames() == Counter(frames_of(GAMES[:-1]))
    assert (run.failures, run.named) == ({"FormatError": 1}, ["g0003.chk#3"])


@pytest.mark.parametrize("data", [b"", b"CHN", b"CHNK", b"CHNK\xff\xff\xff\xff", b"\x1f\x8b garbage"])
def test_an_empty_or_foreign_file_is_dropped_by_name(tmp_path: Path, data: bytes) -> None:
    names(tmp_path, FILES)
    (tmp_path / "z.chk").write_bytes(data)
    run = Run(tmp_path)
    assert run.frames() == Counter(frames_of(GAMES))
    assert sum(run.failures.values()) == 1
    assert run.named == ["z.chk"]


def test_a_file_of_no_chunks_and_one_of_another_kind_are_counted(tmp_path: Path) -> None:
    names(tmp_path, [*FILES, []])
    (tmp_path / "LICENSE.txt").write_text("free")
    run = Run(tmp_path)
    assert run.frames() == Counter(frames_of(GAMES))
    counts = run.pipeline.metrics()["stages"]["chunk_source_loader"]["counts"]
    assert counts == {"files": 4, "chunks": 10, "empty": 1, "skipped": 1}


def test_a_file_deleted_after_the_scan_drops_its_chunks_and_the_run_goes_on(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, follow="manual", passes=1, threads=1, draws=1)
    run.pipeline.poll()
    (tmp_path / "g0001.chk").unlink()
    read = run.frames(), run.failures
    whole, without = Counter(frames_of(GAMES)), Counter(frames_of(g for g in GAMES if g != 10))
    # Chance says whether it was read, only indexed, or neither, before it was deleted.
    assert read in ((whole, {}), (without, {"gone": 1}), (without, {"missing": 1}))


def test_all_chunks_bad_is_an_error_with_counts_by_reason(tmp_path: Path) -> None:
    for i in range(3):
        flip(write(tmp_path / f"{i}.chk", [i]), -1)
    (tmp_path / "x.chk").write_bytes(b"?")
    for follow in (False, "manual"):
        run = Run(tmp_path, follow=follow)
        if follow:
            assert run.poll() == 3
        with (
            run.pipeline,
            pytest.raises(DataError, match=r"none in a whole pass: 1 FormatError \(x.chk.*3 checksum \("),
        ):
            run.pipeline.get_next(timeout=60)


def test_chunks_of_which_nothing_is_ever_wanted_are_an_error_too(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, ChunkFunctions(weights=lambda frames: np.zeros(len(frames))), count=1, follow="manual")
    with run.pipeline, pytest.raises(DataError, match="none in a whole pass"):
        run.pipeline.get_next(timeout=60)


def test_an_empty_directory_is_an_error_and_a_growing_one_is_waited_for(tmp_path: Path) -> None:
    with Run(tmp_path).pipeline as empty:
        for _ in range(2):
            with pytest.raises(DataError, match="expected chunks to read, got none"):
                next(empty)
    run = Run(tmp_path, follow="manual", passes=1)
    with pytest.raises(TimeoutError):
        run.pipeline.get_next(timeout=0.01)
    names(tmp_path, FILES)
    assert run.poll() == 4
    assert run.frames() == Counter(frames_of(GAMES))


def test_a_file_written_again_with_the_same_bytes_is_served_once(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, follow="manual", passes=1)
    run.pipeline.poll()
    for i, games in enumerate(FILES):
        write(tmp_path / f"g{i:04d}.chk", games, age=2000.0)
        write(tmp_path / "copies" / f"g{i:04d}.chk", games, age=2000.0)
    assert run.poll() == 0
    assert run.frames() == Counter(frames_of(GAMES))


def test_a_rewritten_file_replaces_what_it_was(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, follow="manual", window=100, draws=1, threads=1, reservoir=0, batch_size=1)
    run.pipeline.get_next()
    write(tmp_path / "g0003.chk", [50, 51], age=2000.0)
    assert run.poll() == 1
    frames = [f for _ in range(400) for f in named(run.pipeline.get_next()["rows"])]
    run.pipeline.stop()
    late = Counter(game for game, _ in frames[100:])
    assert {50, 51} <= set(late)
    assert not {30, 31, 32, 33} & set(late)
    assert sum(run.failures.values()) <= 2  # of draws in work: what is gone leaves the window
    found = run.pipeline.account()
    assert (found["expected"], found["read"] + found["gone"], found["waiting"]) == (12, 12, 0)


def test_a_renamed_file_is_read_under_its_new_name_by_a_run_that_reopens_it(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    provider = FilePathProvider(tmp_path, watch="poll", clock=iter(range(5000, 9000, 10)).__next__)
    loader = ChunkSourceLoader(provider, Opener())
    arrivals = [opened.arrival for opened in loader.begin(wanted=100)]
    for new in ("h.chk", "i.chk"):
        old = "g0000.chk" if new == "h.chk" else "h.chk"
        (tmp_path / old).rename(tmp_path / new)
        assert [*loader.poll(), *loader.poll()] == []
    assert named(loader.open(arrivals[0]).load(1)) == frames_of([1])


@pytest.mark.parametrize("seed", range(3))
def test_files_are_found_by_readers_while_they_are_renamed_and_polled(tmp_path: Path, seed: int) -> None:
    names(tmp_path, FILES)
    provider = FilePathProvider(tmp_path, watch="poll", clock=iter(range(5000, 90000, 10)).__next__)
    loader = ChunkSourceLoader(provider, Opener())
    arrivals = [opened.arrival for opened in loader.begin(wanted=100)]
    paths = {arrival.name: tmp_path / arrival.name for arrival in arrivals}
    random, errors = np.random.default_rng(seed), list[BaseException]()
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            for arrival in arrivals:
                try:
                    loader.open(arrival).load(0)
                except FileNotFoundError:
                    pass  # renamed since it was found: a run opens it again
                except BaseException as error:
                    errors.append(error)
                    raise

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for i in range(60):
                for name, path in paths.items():
                    if random.random() < 0.4:
                        paths[name] = path.rename(tmp_path / f"{random.integers(100)}-{i}-{name}")
                if random.random() < 0.5:
                    assert loader.poll() == []
                assert [loader.open(arrival).load(0).shape for arrival in arrivals]
        finally:
            ended.set()
        for reader in readers:
            reader.result()
    assert errors == []
    assert loader.lost() == []


def test_chunks_of_files_that_are_renamed_in_mid_run_are_all_read(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, follow="manual", passes=3, threads=2, draws=1, reservoir=0, batch_size=1)
    frames = named(run.pipeline.get_next()["rows"])
    for i in range(4):
        (tmp_path / f"g{i:04d}.chk").rename(tmp_path / f"h{i}.chk")
    frames += named(run.pipeline.get_next()["rows"])
    assert run.poll() == 0
    for i in range(4):
        (tmp_path / f"h{i}.chk").rename(tmp_path / f"a{i}.chk")
    once = Counter(frames_of(GAMES))
    assert run.frames() + Counter(frames) == once + once + once
    assert run.failures == {}


def test_a_file_that_is_touched_or_written_again_as_it_was_is_read_on(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, follow="manual", passes=3, threads=2, draws=1, reservoir=0, batch_size=1)
    run.pipeline.start()
    assert run.poll() == 0  # contents are looked at between polls
    frames = named(run.pipeline.get_next()["rows"])
    os.utime(tmp_path / "g0000.chk", (3000, 3000))
    write(tmp_path / "g0003.chk", FILES[3], age=2000.0)
    once = Counter(frames_of(GAMES))
    assert run.frames() + Counter(frames) == once + once + once
    assert run.failures == {}


def test_startup_opens_the_newest_files_and_none_that_the_window_does_not_need(tmp_path: Path) -> None:
    names(tmp_path, [[i] for i in range(60)])
    run = Run(tmp_path, window=10)
    assert run.frames() == Counter(frames_of(range(50, 60)))
    assert run.opener.opened[:10] == [f"g{i:04d}.chk" for i in range(59, 49, -1)]
    assert len(run.opener.opened) <= 12


def test_no_more_sources_are_open_than_allowed(tmp_path: Path) -> None:
    opener, count = Opener(), 12
    for i in range(count):
        write(tmp_path / f"{i}.chk", [i, i + 100])

    def opened(arrival: Arrival) -> Games:
        source = opener(tmp_path / arrival.name)
        assert source is not None
        return source

    catalog = catalog_of(opened, limit=3)
    loader = loader_of(catalog)
    for i in range(count):
        catalog.place(2 * i, Arrival(f"{i}.chk", f"{i}", 2))
    for number in [*range(2 * count), *range(0, 2 * count, 5)]:
        assert named(loader.load(number)) == frames_of([number // 2 + 100 * (number % 2)])
        assert sum(not source.closed for source in opener.sources) <= 3
    for i in range(4):
        catalog.leave(2 * i)
    loader.load(1)
    assert catalog.open_sources <= 3
    catalog.forget(8)
    assert len(catalog) == count - 4
    with pytest.raises(SourceGone, match="of a known source"):
        loader.load(7)
    catalog.close()
    assert all(source.closed for source in opener.sources)


def test_files_that_cannot_be_opened_for_lack_of_descriptors_are_named_and_the_newest_come_first(
    tmp_path: Path,
) -> None:
    names(tmp_path, [[i] for i in range(20)])

    def opener(path: Path) -> Games:
        if path.name < "g0015":
            raise OSError(24, "Too many open files")
        return Games(path)

    run = Run(tmp_path, opener=opener)
    assert run.frames() == Counter(frames_of(range(15, 20)))
    assert run.failures == {"unreadable": 15}


@pytest.mark.parametrize("error", [ValueError("?"), MemoryError(), RecursionError(), OSError(5, "I/O"), KeyError(1)])
def test_whatever_a_reader_raises_ends_one_chunk_only(tmp_path: Path, error: Exception) -> None:
    names(tmp_path, FILES)

    class Broken(Games):
        def load(self, i: int, wanted: Wanted | None = None) -> np.ndarray:
            if self.key == "g0002.chk":
                raise error
            return super().load(i, wanted)

    run = Run(tmp_path, opener=Broken)
    assert run.frames() == Counter(frames_of([*FILES[0], *FILES[1], *FILES[3]]))
    assert sum(run.failures.values()) == 2


def test_a_transform_that_rejects_drops_the_chunk_with_its_reason(tmp_path: Path) -> None:
    names(tmp_path, FILES)

    def transform(frames: np.ndarray, name: str) -> np.ndarray | Rejected:
        game = named(frames)[0][0]
        if game == 10:
            return Rejected("illegal", "expected a legal move")
        return frames[:0] if game == 20 else frames

    run = Run(tmp_path, ChunkFunctions(transform=transform), passes=2)
    expected = Counter(frames_of([*FILES[0], 21, *FILES[3]]))
    assert run.frames() == expected + expected
    assert run.failures == {"illegal": 1, "empty": 1}
    assert run.pipeline.metrics()["stages"]["chunk_unpacker"]["counts"]["failed_again"] == 2


ERRORS = [ZeroDivisionError("?"), FormatError("?"), OSError(5, "?"), KeyError(3), QueueClosed("?"), SystemExit(3)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["transform", "weights", "hanse weights", "encode", "encode and keep", "decode"])
def test_what_a_function_of_the_user_raises_comes_out_as_it_is_and_names_the_chunk(
    tmp_path: Path, error: BaseException, where: str
) -> None:
    names(tmp_path, FILES)

    def fails_at_21(frames: Any, *others: Any) -> Any:
        if 21 in {game for game, _ in named(np.asarray(frames))}:
            raise error
        return np.ones(len(frames)) if "weights" in where else frames[others[0]] if "encode" in where else frames

    hooks: dict[str, Any] = {
        where.rsplit(maxsplit=1)[-1] if "weights" in where else where.split(maxsplit=1)[0]: fails_at_21
    }
    options: dict[str, Any] = {"count": 3} if where == "weights" else {"hanse_gamma": 1.0} if "hanse" in where else {}
    options |= {"ahead": 2, "count": 2} if "keep" in where else {}
    decode = hooks.pop("decode", None)
    if decode is not None:
        decode = lambda rows, out: {"rows": fails_at_21(rows)}  # noqa: E731
    run = Run(tmp_path, ChunkFunctions(**hooks), decode=decode, passes=9, **options)
    with pytest.raises(type(error)) as caught:
        run.frames()
    assert caught.value is error
    assert run.failures == {}
    if decode is None and isinstance(error, Exception):
        assert "g0002.chk#1" in "".join(error.__notes__)
        del error.__notes__


def test_a_stop_iteration_of_a_users_function_is_no_end_of_the_data(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, ChunkFunctions(transform=lambda frames, name: next(iter(()))))
    with run.pipeline, pytest.raises((WorkerError, RuntimeError), match="StopIteration"):
        list(run.pipeline)


def test_weights_that_are_none_are_an_error_of_the_function(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    for weights in (lambda frames: np.full(len(frames), np.nan), lambda frames: np.ones(1 + len(frames))):
        run = Run(tmp_path, ChunkFunctions(weights=weights), count=2)
        with run.pipeline, pytest.raises(PlanError, match="weights that are finite and not negative"):
            next(run.pipeline)


def test_frames_of_another_width_than_the_first_are_dropped_and_counted(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    run = Run(tmp_path, ChunkFunctions(transform=lambda f, name: f[:, :12].copy() if name == "g0003.chk#1" else f))
    games = {game for game, _ in run.frames()}
    assert games in (set(GAMES) - {31}, {31})
    dropped = run.pipeline.metrics()["stages"]["shuffling_frame_sampler"]["counts"]["failed.width"]
    assert dropped in (len(frames_of([31])), len(frames_of(GAMES)) - len(frames_of([31])))


def test_what_is_written_beside_under_a_dot_is_never_read(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    (tmp_path / ".g0009.chk.Xy12").write_bytes(records(9, 3).tobytes()[:-3])
    os.mkdir(tmp_path / ".tmp")
    write(tmp_path / ".tmp" / "g.chk", [77])
    run = Run(tmp_path)
    assert run.frames() == Counter(frames_of(GAMES))
    assert run.failures == {}
