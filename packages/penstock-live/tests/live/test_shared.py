"""Several outputs of one inlet: one scan, one watch, one index; each with its own pool, journal, state and queue."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from live.files import Opener, frames_of, named, names
from live.test_pipeline import FILES, GAMES, listed
from penstock.errors import PlanError, StateError
from penstock_live import stream as stream_module
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.journal import Journal
from penstock_live.options import LiveOptions, Stream
from penstock_live.pipeline import LivePipeline
from penstock_live.splitter import ChunkSourceSplitter

SPLIT = ChunkSourceSplitter([2, 1])


class Shared:
    """A split of one folder for two outputs, driven by hand."""

    def __init__(self, directory: Path, journals: tuple[Any, Any] = (None, None), **options: Any) -> None:
        self.now, self.opener = 5000.0, Opener()
        common: dict[str, Any] = {"reservoir": 12, "batch_size": 5, "draws": 2, "window": 14, "follow": "manual"}
        test = options.pop("test", {})
        watch = "off" if options.get("follow") is False else "poll"
        self.provider = FilePathProvider(directory, watch=watch, clock=lambda: self.now)
        loader = ChunkSourceLoader(self.provider, self.opener, threads=2)
        chosen = [{**common, **options}, {**common, **options, **test}]
        self.train, self.test = (
            LivePipeline(part, LiveOptions(**each), journal=journal)
            for part, each, journal in zip(SPLIT.split(loader), chosen, journals, strict=True)
        )

    def poll(self) -> int:
        found = 0
        for _ in range(2):
            self.now += 10
            found += self.train.poll()
        return found

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *exc: object) -> None:
        self.train.stop()
        self.test.stop()


def part_of(index: int, files: list[list[int]] = FILES) -> Counter[tuple[int, int]]:
    """The frames of one part of all files."""
    chosen = [
        game
        for i, file in enumerate(files)
        for game, part in zip(file, SPLIT.parts(f"g{i:04d}.chk", len(file)).tolist(), strict=True)
        if part == index
    ]
    return Counter(frames_of(chosen))


def test_every_file_is_found_and_opened_once_for_both(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with Shared(tmp_path, follow=False, window=1000) as both:
        train = Counter(f for batch in both.train for f in named(batch["rows"]))
        test = Counter(f for batch in both.test for f in named(batch["rows"]))
        stages = both.train.metrics()["stages"], both.test.metrics()["stages"]
    assert (train, test) == (part_of(0), part_of(1))
    assert train + test == Counter(frames_of(GAMES))
    assert sorted(both.opener.opened) == sorted(f"g{i:04d}.chk" for i in range(len(FILES)))
    assert stages[0]["file_path_provider"]["counts"]["files"] == len(FILES)
    assert stages[0]["chunk_source_loader"]["counts"] == stages[1]["chunk_source_loader"]["counts"]
    assert all(source.closed for source in both.opener.sources)


def test_each_output_is_as_it_would_be_alone(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with Shared(tmp_path, follow=False) as both:
        shared = [listed(batch) for batch in both.test]
    source = ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), SPLIT.opener(Opener(), 1))
    options = LiveOptions(reservoir=12, batch_size=5, draws=2, window=14, follow=False)
    with LivePipeline(source, options) as alone:
        assert [listed(batch) for batch in alone] == shared


@pytest.mark.parametrize("seed", [0, 2])
def test_outputs_are_replayed_and_resumed_each_from_its_own_batch(tmp_path: Path, seed: int) -> None:
    """Files arrive; the outputs are read at different paces; states of both after every step."""
    journals = Journal(), Journal()
    games, states, got = tmp_path / "games", [], ([], [])
    names(games, FILES[:4])
    with Shared(games, journals, seed=seed) as both:
        for i in range(24):
            states.append((both.train.state_dict(), both.test.state_dict(), len(got[0]), len(got[1])))
            if i % 3 == 2:
                names(games, [FILES[4 + i // 3]], start=4 + i // 3)
                assert both.poll() == 1
            got[0].append(listed(both.train.get_next()))
            if i % 4 == 0:
                got[1].append(listed(both.test.get_next()))

    def replay() -> tuple[LivePipeline, LivePipeline]:
        loader = ChunkSourceLoader(FilePathProvider(games, watch="off"), Opener())
        options = LiveOptions(reservoir=12, batch_size=5, window=14, seed=seed, threads=3)
        one, two = (
            LivePipeline(part, options, replay=journal.moves())
            for part, journal in zip(SPLIT.split(loader), journals, strict=True)
        )
        return one, two

    for train, test, a, b in [(None, None, 0, 0), *states[::5]]:
        one, two = replay()
        if train is not None and test is not None:
            one.load_state_dict(train)
            two.load_state_dict(test)
        with one, two:
            assert [listed(one.get_next()) for _ in range(len(got[0]) - a)] == got[0][a:]
            assert [listed(two.get_next()) for _ in range(len(got[1]) - b)] == got[1][b:]


@pytest.mark.parametrize("journaled", [True, False])
def test_lives_of_both_outputs_take_every_file_once(tmp_path: Path, journaled: bool) -> None:
    """Files arrive while it runs and while it is dead; the states that are loaded are of different moments."""
    names(tmp_path / "games", FILES[:3])
    states: list[Any] = [None, None]
    arrived = 3
    for life in range(30):
        journals = (Journal(tmp_path / "train"), Journal(tmp_path / "test")) if journaled else (None, None)
        with Shared(tmp_path / "games", journals, window=1000) as both:
            pipelines = (both.train, both.test)
            for pipeline, state in zip(pipelines, states, strict=True):
                if state is not None:
                    pipeline.load_state_dict(state)
            for turn in range(2):
                if (life + turn) % 3 and arrived < len(FILES):
                    names(tmp_path / "games", [FILES[arrived]], start=arrived)
                    arrived += 1
                    both.poll()
                next(pipelines[(life + turn) % 2])
                if (life + turn) % 5:
                    states[(life + turn) % 2] = pipelines[(life + turn) % 2].state_dict()
        if life % 4 == 3 and arrived < len(FILES):
            names(tmp_path / "games", [FILES[arrived]], start=arrived)
            arrived += 1
    assert arrived == len(FILES)
    with Shared(tmp_path / "games", (None, None), window=1000) as both:
        for i, pipeline in enumerate((both.train, both.test)):
            pipeline.load_state_dict(states[i])
        both.poll()
        for i, pipeline in enumerate((both.train, both.test)):
            taken = [arrival.name for _, arrival in pipeline.pool.sources]
            chunks = len({game for game, _ in part_of(i)})
            assert len(set(taken)) == len(taken)
            assert pipeline.pool.window == (0, chunks)


@pytest.mark.parametrize("seed", [0, 5])
def test_an_output_that_is_loaded_and_not_read_keeps_its_place(tmp_path: Path, seed: int) -> None:
    """In the second life only one output is read; the other takes in what comes all the same."""
    games, got = tmp_path / "games", []
    names(games, FILES[:5])
    states: list[Any] = [None, None]
    for life in range(3):
        with Shared(games, (Journal(tmp_path / "train"), Journal(tmp_path / "test")), seed=seed) as both:
            for i, pipeline in enumerate((both.train, both.test)):
                if states[i] is not None:
                    pipeline.load_state_dict(states[i])
            for i in range(3):
                next(both.train)
                if life != 1:
                    got.append(listed(next(both.test)))
                names(games, [FILES[5 + life * 2 + i % 2]], start=5 + life * 2 + i % 2)
                both.poll()
            states = [both.train.state_dict(), both.test.state_dict()]
    loader = ChunkSourceLoader(FilePathProvider(games, watch="off"), Opener())
    options = LiveOptions(reservoir=12, batch_size=5, window=14, seed=seed)
    moves = Journal(tmp_path / "test").moves()
    with LivePipeline(SPLIT.split(loader)[1], options, replay=moves) as replay:
        assert [listed(next(replay)) for _ in got] == got


def test_an_output_that_is_not_read_holds_up_nothing_and_holds_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many files come and go; the other output, started or not, knows no more than its window."""
    monkeypatch.setattr(stream_module, "SWEEP", 64)
    names(tmp_path, [[f] for f in range(12)])
    with Shared(tmp_path, window=4) as both:
        next(both.train)
        feed = both.test._streams[0]  # pyright: ignore[reportPrivateUsage]
        sizes = []
        for wave in range(6):
            names(tmp_path, [[12 + 60 * wave + f] for f in range(60)], start=12 + 60 * wave)
            assert both.poll() == 60
            next(both.train)
            sizes.append(len(feed._catalog))  # pyright: ignore[reportPrivateUsage]
        assert both.test.pool.window[1] > 120
        assert max(sizes) < 140
        assert len(both.test.pool.sources) <= 4
        assert len(named(next(both.test)["rows"])) == 5


def test_the_same_inlet_may_have_two_windows(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    opener = Opener()
    loader = ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), opener)
    options = {"reservoir": 0, "batch_size": 4, "follow": False}
    narrow = LivePipeline(loader, LiveOptions(window=6, **options))
    streams = [Stream(loader, window=3), Stream(loader, window=1000)]
    wide = LivePipeline(streams, LiveOptions(**options))
    with narrow, wide:
        few = Counter(f for batch in narrow for f in named(batch["rows"]))
        many = Counter(f for batch in wide for f in named(batch["rows"]))
    assert few == Counter(frames_of(GAMES[-6:]))
    assert many == Counter(frames_of(GAMES)) + Counter(frames_of(GAMES[-3:]))
    assert len(opener.opened) == len(FILES)


def test_a_pipeline_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with Shared(tmp_path) as both:
        state = both.test.state_dict()
        next(both.train)
        with pytest.raises(PlanError, match="to be made before one is started"):
            LivePipeline(both.train._streams[0].intake.inlet)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(StateError, match="before anything has started"):
            both.test.load_state_dict(state)


def test_one_thread_takes_in_for_all_and_its_error_reaches_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names(tmp_path, FILES)
    with Shared(tmp_path, follow=True) as both:
        inlet = both.train._streams[0].intake.inlet  # pyright: ignore[reportPrivateUsage]

        def broken() -> Any:
            raise ZeroDivisionError("in poll")

        monkeypatch.setattr(inlet, "poll", broken)
        both.test.start()
        for pipeline in (both.train, both.test):
            with pytest.raises(ZeroDivisionError, match="in poll"):
                list(pipeline)


def test_a_pipeline_that_is_stopped_unused_takes_nothing_from_others(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with Shared(tmp_path, follow=False, window=1000) as both:
        both.train.stop()
        assert Counter(f for batch in both.test for f in named(batch["rows"])) == part_of(1)


def test_what_one_stops_the_others_keep(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with Shared(tmp_path, follow=False, window=1000) as both:
        next(both.train)
        both.train.stop()
        assert Counter(f for batch in both.test for f in named(batch["rows"])) == part_of(1)
