"""Events of streams: files come and go while threads draw, errors of an intake reach every stream, shared sources."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Games, Opener, catalog_of, frames_of, loader_of, named, names, write
from penstock_live import stream as stream_module
from penstock_live.chunk_source import Wanted
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.intake import Intake
from penstock_live.journal import Arrival, Journal
from penstock_live.options import LiveOptions, Stream
from penstock_live.pipeline import LivePipeline
from penstock_live.splitter import ChunkSourceSplitter

OPTIONS: dict[str, Any] = {"reservoir": 0, "batch_size": 1, "follow": "manual", "references": True, "window": 25}


class Run:
    """Two streams, the parts of one folder, or two windows over all of it; journals of both."""

    def __init__(self, folder: Path, split: bool, replay: Any = None, **options: Any) -> None:
        self.now, self.opener, self.journals = 5000.0, Opener(), (Journal(), Journal())
        self.inlet = ChunkSourceLoader(FilePathProvider(folder, watch="poll", clock=lambda: self.now), self.opener, 2)
        inlets: Any = ChunkSourceSplitter([1, 1]).split(self.inlet) if split else (self.inlet, self.inlet)
        own: list[dict[str, Any]] = [{"journal": journal} for journal in self.journals]
        own = own if replay is None else [{"replay": moves} for moves in replay]
        streams = [Stream(inlet, name=str(i), **each) for i, (inlet, each) in enumerate(zip(inlets, own, strict=True))]
        self.pipeline = LivePipeline(streams, LiveOptions(**{**OPTIONS, **options}))

    def poll(self) -> None:
        for _ in range(2):
            self.now += 10
            self.pipeline.poll()

    def draw(self, n: int) -> list[int]:
        return [int(self.pipeline.get_next()["chunk"][0]) for _ in range(n)]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pipeline.stop()
        assert all(source.closed for source in self.opener.sources)
        assert vars(Intake.of(self.inlet))["_latest"] == {}


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("extra", [{}, {"hanse_gamma": 1.0, "count": 2}], ids=["all", "hanse"])
def test_files_that_come_and_go_while_threads_draw_are_replayed_and_resumed(
    tmp_path: Path, split: bool, threads: int, extra: dict[str, Any]
) -> None:
    """No draw reads a number that the catalog does not know yet; each chunk is in one figure; states go on."""
    folder, gone, rng = tmp_path / "games", tmp_path / "gone", random.Random(3 * threads + split)
    gone.mkdir()
    names(folder, [[10 * i, 10 * i + 1, 10 * i + 2] for i in range(6)])
    drawn, states = list[int](), list[tuple[int, Any]]()
    with Run(folder, split, threads=threads, **extra) as run:
        for step in range(6, 40):
            if step % 9 == 0:
                states.append((len(drawn), run.pipeline.state_dict()))
            drawn += run.draw(rng.randrange(8))
            present = sorted(folder.glob("*.chk"))
            if len(present) > 5 and rng.random() < 0.6:
                path = rng.choice(present)
                path.rename(gone / path.name)
            if rng.random() < 0.7:
                write(folder / f"g{step:04d}.chk", [10 * step + k for k in range(1 + step % 4)])
            if rng.random() < 0.7:
                run.poll()
            account = run.pipeline.account()
            assert account["expected"] == sum(account.values()) - account["expected"]
            assert account["torn"] == account["failed"] == account["refused"] == 0
        moves = [journal.moves() for journal in run.journals]
    assert any(move.arrival is None for each in moves for move in each)
    assert len(drawn) > 60
    if extra:
        return  # the weights of chunks that are gone are not known, and decide what is accepted
    for path in gone.iterdir():
        path.rename(folder / path.name)
    # In the replay, draws of files that were gone in the run can be read: but for those, it is the same sequence.
    for at, state in [(0, None), *states]:
        with Run(folder, split, moves, threads=1 + (threads + at) % 4) as replay:
            if state is not None:
                replay.pipeline.load_state_dict(state)
            again = replay.draw(3 * (len(drawn) - at))
        for stream in (0, 1):
            rest = iter([chunk for chunk in again if chunk >> 48 == stream])
            assert all(chunk in rest for chunk in drawn[at:] if chunk >> 48 == stream)


def test_frames_that_are_buffered_keep_their_files_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files arrive and leave the window after few blocks: their sources are swept, those of the reservoir stay."""
    monkeypatch.setattr(stream_module, "SWEEP", 8)
    names(tmp_path, [[i] for i in range(4)])
    provider, now = FilePathProvider(tmp_path, watch="poll", clock=lambda: now[0]), [5000.0]
    options = LiveOptions(
        reservoir=9, batch_size=1, follow="manual", window=4, threads=1, prefetch=1, draws=1, nbytes=1
    )
    with LivePipeline(ChunkSourceLoader(provider, Opener()), options) as run:
        next(run)
        names(tmp_path, [[10 + i] for i in range(40)], start=4)
        for _ in range(2):
            now[0] += 10
            run.poll()
        state = run.state_dict()
        stream = state["streams"][0]
        known = {lo for lo, *_ in [*stream["left"], *stream["pool"]["sources"]]}
        buffered = set(state["sampler"]["reservoir"]["chunk"].tolist())
        assert buffered
        assert buffered <= known
    with LivePipeline(ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), Opener()), options) as again:
        again.load_state_dict(state)
        for _ in range(20):
            next(again)
        assert "restored" not in again.metrics()["stages"]  # nothing was lost


def broken() -> Any:
    raise ZeroDivisionError("in poll")


def test_an_error_of_an_intake_ends_a_wait_for_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer waits for a stream whose folder is empty while the intake of the other stream fails."""
    names(tmp_path / "games", [[0, 1], [2]])
    (tmp_path / "empty").mkdir()
    inlets = [
        ChunkSourceLoader(FilePathProvider(tmp_path / name, watch="poll"), Opener()) for name in ("games", "empty")
    ]
    monkeypatch.setattr(inlets[0], "poll", broken)
    options = LiveOptions(reservoir=0, batch_size=1, threads=1, prefetch=1)
    with LivePipeline([Stream(inlet, weight=1) for inlet in inlets], options) as run:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="in poll"):
                list(islice(run, 99))


def test_batches_that_were_read_before_an_error_of_the_intake_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(tmp_path, [[0, 1], [2]])
    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="poll"), Opener())
    with LivePipeline(inlet, LiveOptions(reservoir=0, batch_size=1, follow="manual", threads=1, prefetch=9)) as run:
        first = named(next(run)["rows"])
        while run.metrics()["stages"]["tensor_generator"]["queue"]["fill"] < 9:
            pass
        monkeypatch.setattr(inlet, "poll", broken)
        intake = Intake.of(inlet)
        intake.follow()
        found = [first]
        with pytest.raises(ZeroDivisionError, match="in poll"):
            found.extend(named(batch["rows"]) for batch in run)
    assert len(found) >= 10
    assert {frame for frames in found for frame in frames} <= set(frames_of([0, 1, 2]))


def test_a_source_that_cannot_be_read_is_closed_once_nobody_reads_it(tmp_path: Path) -> None:
    opener, failing = Opener(), [True]
    write(tmp_path / "a.chk", [1, 2])

    def opened(arrival: Arrival) -> Games:
        source = opener(tmp_path / arrival.name)
        assert source is not None
        if failing:
            failing.clear()
            source.load = fails  # pyright: ignore[reportAttributeAccessIssue]
        return source

    def fails(i: int, wanted: Wanted | None = None) -> np.ndarray:
        raise OSError(5, "Input/output error")

    catalog = catalog_of(opened)
    catalog.place(0, Arrival("a.chk", "a.chk", 2))
    assert named(loader_of(catalog).load(1)) == frames_of([2])
    assert [source.closed for source in opener.sources] == [True, False]
    catalog.close()
    assert [source.closed for source in opener.sources] == [True, True]


def test_streams_share_an_open_source_until_the_last_is_done(tmp_path: Path) -> None:
    opener = Opener()
    arrival = Arrival("a.chk", "a.chk", 2)
    write(tmp_path / "a.chk", [1, 2])
    first = catalog_of(lambda each: opener(tmp_path / each.name) or pytest.fail("expected a file of games"))
    second = type(first)(first.intake)
    for catalog in (first, second):
        catalog.place(0, arrival)
        assert len(loader_of(catalog).load(0)) == len(frames_of([1]))
    assert len(opener.sources) == 1
    first.close()
    assert not opener.sources[0].closed
    assert named(loader_of(second).load(1)) == frames_of([2])
    second.close()
    assert opener.sources[0].closed
