"""Whole runs: every position once, one order for any number of threads, states at every batch, replays of journals."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Opener, frames_of, named, names
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import DataError, PlanError, StateError
from penstock.flow.limits import cores
from penstock.flow.queue import QueueClosed
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.hooks import ChunkFunctions, Rejected
from penstock_live.journal import Journal
from penstock_live.pipeline import LiveOptions, LivePipeline
from penstock_live.splitter import ChunkSourceSplitter

FILES = [list(range(10 * f, 10 * f + 1 + f % 4)) for f in range(12)]
GAMES = [game for file in FILES for game in file]


def loader(directory: Path, watch: Any = "off", clock: Any = None) -> ChunkSourceLoader:
    options = {} if clock is None else {"clock": clock}
    return ChunkSourceLoader(FilePathProvider(directory, watch=watch, **options), Opener(), threads=2)


def finite(directory: Path, **options: Any) -> LivePipeline:
    hooks = options.pop("hooks", None)
    chosen: dict[str, Any] = {"reservoir": 20, "batch_size": 7, "follow": False, "draws": 3, **options}
    return LivePipeline(loader(directory), LiveOptions(**chosen), hooks=hooks)


def rest(pipeline: LivePipeline) -> list[list[tuple[int, int]]]:
    """Game and place of the frames of each batch that is left."""
    with pipeline:
        return [named(batch["rows"]) for batch in pipeline]


@pytest.mark.parametrize("reservoir", [0, 1, 20, 10_000])
@pytest.mark.parametrize("seed", [0, 1, 1 << 70])
def test_a_pass_has_every_position_once_and_one_order_whatever_the_threads(
    tmp_path: Path, reservoir: int, seed: int
) -> None:
    names(tmp_path, FILES)
    runs = [
        rest(finite(tmp_path, threads=n, seed=seed, reservoir=reservoir, draws=d))
        for n, d in [(1, 3), (2, 1), (5, 8), (0, 4)]
    ]
    assert runs[0] == runs[1] == runs[2] == runs[3]
    assert Counter(f for batch in runs[0] for f in batch) == Counter(frames_of(GAMES))
    assert all(len(batch) == 7 for batch in runs[0][:-1])


def test_without_threads_the_caller_does_all_the_work(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    gc.collect()  # pipelines in cycles end in threads of their own
    before, used = set(threading.enumerate()), set[str]()

    def transform(frames: np.ndarray, _: str) -> np.ndarray:
        used.add(threading.current_thread().name)
        return frames

    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), Opener(), threads=0)
    options = LiveOptions(reservoir=20, batch_size=7, follow=False, threads=0, hanse_gamma=1.0)
    with LivePipeline(inlet, options, hooks=ChunkFunctions(transform=transform)) as run:
        assert next(run)
        assert set(threading.enumerate()) <= before
        stages = run.metrics()["stages"]
        assert list(run)
    assert used == {threading.current_thread().name}
    assert stages["tensor_generator"]["threads"] == 1


def test_threads_are_chosen_by_none_and_refused_where_the_caller_cannot_do_the_work(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with finite(tmp_path) as run:
        next(run)
        assert run.metrics()["stages"]["tensor_generator"]["threads"] == min(4, cores())
    refused: list[dict[str, Any]] = [{"threads": -1}, {"threads": 0, "overflow": "drop_new"}]
    for bad in refused:
        with pytest.raises(PlanError, match="threads"):
            LiveOptions(**bad)
    for follow in (True, "manual"):
        with pytest.raises(PlanError, match="give threads=None"):
            LivePipeline(loader(tmp_path), LiveOptions(threads=0, follow=follow), journal=tmp_path / "moves")
    Journal(tmp_path / "moves").close()  # the refused pipelines did not lock it


def test_seeds_give_different_orders(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    assert len({str(rest(finite(tmp_path, seed=seed))) for seed in range(6)}) == 6


def test_a_partial_last_batch_can_be_dropped(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    assert rest(finite(tmp_path, drop_last=True)) == rest(finite(tmp_path))[:-1]


def compact(frames: np.ndarray, places: np.ndarray) -> Ragged:
    """Rows of unequal length: a record and as many more bytes as its place, which its fifth byte says."""
    parts = [np.concatenate([frames[p], np.zeros(frames[p, 4], np.uint8)]) for p in places.tolist()]
    return Ragged(np.concatenate([np.zeros(0, np.uint8), *parts]), offsets_of([len(p) for p in parts]))


KINDS: dict[str, dict[str, Any]] = {
    "all": {},
    "rate": {"rate": 0.3, "passes": 4},
    "count": {"count": 2, "passes": 3},
    "weights": {"count": 2, "passes": 3, "hooks": ChunkFunctions(weights=lambda f: f[:, 4].astype(float))},
    "hanse": {"hanse_gamma": 0.7, "passes": 5, "count": 1},
    "no reservoir": {"reservoir": 0},
    "window": {"window": 9, "passes": 3},
    "ragged": {"hooks": ChunkFunctions(encode=compact), "passes": 2},
    "rejecting": {"hooks": ChunkFunctions(transform=lambda f, _: Rejected("short") if len(f) < 4 else f[::-1].copy())},
}


def listed(batch: dict[str, Any]) -> Any:
    rows = batch["rows"]
    return [row.tobytes() for row in (rows[i] for i in range(len(rows)))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_run_that_loads_a_state_goes_on_with_the_next_batch(tmp_path: Path, kind: str, seed: int) -> None:
    """Killed after every batch of a run, by different numbers of threads: what follows is what would have followed."""
    names(tmp_path, FILES)
    options = {**KINDS[kind], "seed": seed}
    with finite(tmp_path, threads=2, **options) as whole:
        states, batches = [whole.state_dict()], []
        for batch in whole:
            batches.append(listed(batch))
            states.append(whole.state_dict())
    assert len(batches) > 3
    for i, state in enumerate(states):
        again = finite(tmp_path, threads=i % 6, **options)
        again.load_state_dict(state)
        with again:
            assert [listed(batch) for batch in again] == batches[i:], f"after {i} batches"


def test_a_state_of_a_run_that_has_not_begun_is_that_which_it_loaded(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with finite(tmp_path) as first:
        next(first)
        state = first.state_dict()
    again = finite(tmp_path)
    again.load_state_dict(state)
    assert again.state_dict() == state
    with again:
        again.start()
        with pytest.raises(StateError, match="has not started"):
            again.load_state_dict(state)
    with pytest.raises(StateError, match="expected the state of a run with"):
        finite(tmp_path, seed=3).load_state_dict(state)


class Grown:
    """A live run that is driven by hand: files arrive after given batches."""

    def __init__(self, directory: Path, journal: Journal | None = None, **options: Any) -> None:
        self.now = 5000.0
        chosen: dict[str, Any] = {"reservoir": 15, "batch_size": 6, "follow": "manual", "draws": 2, "window": 14}
        self.pipeline = LivePipeline(
            loader(directory, "poll", lambda: self.now), LiveOptions(**{**chosen, **options}), journal=journal
        )

    def poll(self) -> int:
        found = 0
        for _ in range(2):  # a file is taken at the second look at it
            self.now += 10
            found += self.pipeline.poll()
        return found


def live_run(directory: Path, journal: Journal | None, batches: int, **options: Any) -> list[Any]:
    """Batches of a run in which a file arrives after every third."""
    names(directory, FILES[:4])
    grown, got = Grown(directory, journal, **options), []
    with grown.pipeline as pipeline:
        for i in range(batches):
            if i % 3 == 2 and 4 + i // 3 < len(FILES):
                names(directory, [FILES[4 + i // 3]], start=4 + i // 3)
                assert grown.poll() == 1
            got.append(listed(pipeline.get_next()))
    return got


@pytest.mark.parametrize("extra", [{}, {"hanse_gamma": 1.0, "count": 2}, {"rate": 0.5}])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_journal_replays_a_live_run_bit_for_bit(tmp_path: Path, threads: int, extra: dict[str, Any]) -> None:
    journal = Journal(tmp_path / "moves")
    lived = live_run(tmp_path / "games", journal, 40, threads=2, **extra)
    moves = Journal(tmp_path / "moves").moves()
    assert len(moves) == len(FILES)
    options = LiveOptions(reservoir=15, batch_size=6, window=14, threads=threads, draws=5, **extra)
    with LivePipeline(loader(tmp_path / "games"), options, replay=moves) as replay:
        assert [listed(replay.get_next()) for _ in range(40)] == lived


@pytest.mark.parametrize("extra", [{}, {"hanse_gamma": 1.0, "count": 2}])
def test_a_replay_goes_on_from_any_state(tmp_path: Path, extra: dict[str, Any]) -> None:
    journal = Journal()
    live_run(tmp_path, journal, 30, **extra)
    options = LiveOptions(reservoir=15, batch_size=6, window=14, draws=2, **extra)
    batches, states = [], []
    with LivePipeline(loader(tmp_path), options, replay=journal.moves()) as replay:
        for _ in range(30):
            states.append(replay.state_dict())
            batches.append(listed(replay.get_next()))
    for i, state in enumerate(states):
        again = LivePipeline(loader(tmp_path), options, replay=journal.moves())
        again.load_state_dict(state)
        with again:
            assert [listed(again.get_next()) for _ in range(30 - i)] == batches[i:]


def test_a_live_run_killed_again_and_again_repeats_nothing_within_a_pass_and_misses_nothing(tmp_path: Path) -> None:
    """Files arrive while it runs and while it is dead; without a reservoir a pass can be told from the batches."""
    names(tmp_path / "games", FILES[:4])
    state, got, arrived = None, [], 4
    options: dict[str, Any] = {"reservoir": 0, "batch_size": 5, "window": 1000, "passes": 1}
    for life in range(40):
        grown = Grown(tmp_path / "games", Journal(tmp_path / "moves"), **options)
        if state is not None:
            grown.pipeline.load_state_dict(state)
        if life in (1, 3, 4) or (life > 4 and arrived < len(FILES)):
            names(tmp_path / "games", [FILES[arrived]], start=arrived)
            arrived += 1
        with grown.pipeline as pipeline:
            for _ in range(1 + life % 2):
                batch = next(pipeline, None)
                if batch is None:
                    break
                got += named(batch["rows"])
                state = pipeline.state_dict()
            next(pipeline, None)  # prefetched, or even got, but never saved
    assert Counter(got) == Counter(frames_of(GAMES))
    replayed = LivePipeline(
        loader(tmp_path / "games"),
        LiveOptions(reservoir=0, batch_size=5, window=1000, passes=1, follow=False),
        replay=Journal(tmp_path / "moves").moves(),
    )
    assert [frame for batch in rest(replayed) for frame in batch] == got


def test_frames_whose_file_is_gone_at_a_restart_are_lost_by_name_and_the_run_goes_on(tmp_path: Path) -> None:
    paths = names(tmp_path, FILES)
    with finite(tmp_path) as first:
        early = [f for _ in range(4) for f in named(next(first)["rows"])]
        state = first.state_dict()
    (tmp_path / paths[3]).unlink()
    again = finite(tmp_path)
    again.load_state_dict(state)
    late = [f for batch in rest(again) for f in batch]
    gone = set(frames_of(FILES[3]))
    assert Counter(early + late) + Counter(gone - set(early)) == Counter(frames_of(GAMES))
    counts, examples = again.failures()
    assert counts["gone"] >= 1
    assert any(name.startswith("g0003.chk#") for name, _, _ in examples)


def test_what_was_there_before_the_window_is_not_taken_in_by_a_restart(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with finite(tmp_path, window=9, follow="manual") as first:
        next(first)
        state = first.state_dict()
    grown = Grown(tmp_path, window=9, reservoir=20, batch_size=7, draws=3)
    grown.pipeline.load_state_dict(state)
    with grown.pipeline as again:
        next(again)
        assert grown.poll() == 0
        assert [a.name for _, a in again.pool.sources] == [row[1] for row in state["streams"][0]["pool"]["sources"]]


def test_the_rate_has_each_position_exactly_once_in_so_many_passes(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    batches = rest(finite(tmp_path, rate="1/5", passes=5))
    assert Counter(f for batch in batches for f in batch) == Counter(frames_of(GAMES))


def test_hanse_sampling_takes_long_games_more_often(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    taken = Counter(game for batch in rest(finite(tmp_path, hanse_gamma=1.0, count=1, passes=200)) for game, _ in batch)
    by_length = {
        n: np.mean([taken[g] for g in GAMES if len(frames_of([g])) == n]) for n in {len(frames_of([g])) for g in GAMES}
    }
    longest = max(by_length)
    for n, mean in by_length.items():
        assert abs(mean - 200 * n / longest) < 25


def test_one_pass_of_a_window_is_its_newest_chunks(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    got = Counter(f for batch in rest(finite(tmp_path, window=9)) for f in batch)
    assert got == Counter(frames_of(GAMES[-9:]))


@pytest.mark.parametrize("kind", ["count", "weights", "hanse", "rate", "ragged", "rejecting"])
@pytest.mark.parametrize("limit", [0, 2000, 1 << 20])
@pytest.mark.parametrize("threads", [1, 4])
def test_positions_that_are_kept_for_later_uses_change_nothing(
    tmp_path: Path, kind: str, limit: int, threads: int
) -> None:
    names(tmp_path, FILES)
    options = {**KINDS[kind], "passes": 9}
    with finite(tmp_path, **options) as plain:
        expected = [listed(batch) for batch in plain]
    with finite(tmp_path, ahead=3, store_bytes=limit, threads=threads, **options) as kept:
        assert [listed(batch) for batch in kept] == expected
        gauges = kept.metrics()["stages"]["shuffling_chunk_pool"]["gauges"]
    assert gauges["cached_bytes"] <= limit
    assert gauges["cache_hits"] > 0 or limit < 1 << 20
    assert gauges["cache_hits"] == 0 or limit > 0


def test_references_name_each_frame_and_metrics_count_it(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with finite(tmp_path, references=True) as pipeline:
        seen = [(c, p) for b in pipeline for c, p in zip(b["chunk"].tolist(), b["place"].tolist(), strict=True)]
        stages = pipeline.metrics()["stages"]
    assert len(set(seen)) == len(seen) == len(frames_of(GAMES))
    assert stages["chunk_unpacker"]["counts"]["frames"] == stages["tensor_generator"]["counts"]["frames"] == len(seen)
    assert stages["shuffling_chunk_pool"]["gauges"]["chunks_total"] == len(GAMES)
    assert stages["file_path_provider"]["counts"]["files"] == len(FILES)


def test_a_stage_that_fails_ends_the_run_with_its_error_and_all_threads(tmp_path: Path) -> None:
    names(tmp_path, FILES)

    def broken(rows: Any, out: Any) -> Any:
        raise ZeroDivisionError("in decode")

    options = LiveOptions(reservoir=5, batch_size=7, follow=False)
    with LivePipeline(loader(tmp_path), options, decode=broken) as pipeline:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="in decode"):
                pipeline.get_next()


def test_a_batch_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    grown = Grown(tmp_path)
    with grown.pipeline as pipeline:
        with pytest.raises(TimeoutError):
            pipeline.get_next(timeout=0.01)
        assert pipeline.maybe_get_next() is None
        names(tmp_path, FILES)
        assert grown.poll() == len(FILES)
        assert len(pipeline.get_next()["rows"]) == 6


def test_a_directory_without_chunks_is_an_error_that_says_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("?")
    (tmp_path / "bad.chk").write_bytes(b"nothing of the kind")
    with finite(tmp_path) as pipeline, pytest.raises(DataError, match=r"1 FormatError \(bad.chk: .*; 1 files skipped"):
        pipeline.get_next()


@pytest.mark.parametrize("watch", ["native", "poll"])
def test_a_directory_is_followed_by_a_thread_until_the_run_is_stopped(tmp_path: Path, watch: Any) -> None:
    provider = FilePathProvider(tmp_path, watch=watch, settle=0, interval=0.01)
    pipeline = LivePipeline(ChunkSourceLoader(provider, Opener()), LiveOptions(reservoir=5, batch_size=4, window=50))
    with pipeline:
        with pytest.raises(TimeoutError):
            pipeline.get_next(timeout=0.01)
        names(tmp_path, FILES[:4])
        assert set(named(pipeline.get_next(timeout=60)["rows"])) <= set(frames_of(GAMES))
        names(tmp_path, FILES[4:], start=4)
        seen: set[tuple[int, int]] = set()
        while seen != set(frames_of(GAMES)):
            seen |= set(named(pipeline.get_next(timeout=60)["rows"]))
    with pytest.raises(QueueClosed):
        pipeline.get_next()
    assert pipeline.failures() == ({}, [])


def test_parts_of_a_split_have_every_chunk_once_between_them(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    splitter, seen = ChunkSourceSplitter([3, 1]), Counter[tuple[int, int]]()
    for part in range(2):
        provider = FilePathProvider(tmp_path, watch="off")
        source = ChunkSourceLoader(provider, splitter.opener(Opener(), part))
        batches = rest(LivePipeline(source, LiveOptions(reservoir=5, batch_size=4, follow=False)))
        seen.update(frame for batch in batches for frame in batch)
    assert seen == Counter(frames_of(GAMES))


def test_a_watcher_that_fails_ends_the_run_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = loader(tmp_path, watch="poll")

    def broken() -> Any:
        raise ZeroDivisionError("in poll")

    monkeypatch.setattr(source, "poll", broken)
    with LivePipeline(source, LiveOptions()) as pipeline, pytest.raises(ZeroDivisionError, match="in poll"):
        pipeline.get_next(timeout=60)
