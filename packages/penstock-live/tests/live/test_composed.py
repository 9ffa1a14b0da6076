"""Several inlets in one pipeline: exact shares, states at every batch, replays of every pool's moves, both ends."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Opener, frames_of, named, names
from live.test_pipeline import compact, listed
from penstock.errors import DataError, PlanError, StateError
from penstock_live.block import Block
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.hooks import ChunkFunctions
from penstock_live.join import Joiner
from penstock_live.journal import Journal
from penstock_live.mixer import STREAM
from penstock_live.options import LiveOptions, Stream
from penstock_live.pipeline import LivePipeline

OLD = [list(range(10 * f, 10 * f + 1 + f % 4)) for f in range(9)]
NEW = [list(range(1000 + 10 * f, 1000 + 10 * f + 2)) for f in range(5)]


def games(files: list[list[int]]) -> list[int]:
    return [game for file in files for game in file]


def loader(directory: Path, watch: Any = "off", clock: Any = None) -> ChunkSourceLoader:
    options = {} if clock is None else {"clock": clock}
    return ChunkSourceLoader(FilePathProvider(directory, watch=watch, **options), Opener(), threads=2)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name, files in (("old", OLD), ("new", NEW)):
        (tmp_path / name).mkdir()
        names(tmp_path / name, files)
    return tmp_path


def two(folder: Path, own: tuple[dict[str, Any], dict[str, Any]] = ({}, {}), **options: Any) -> LivePipeline:
    """Three of the old to one of the new."""
    hooks = options.pop("hooks", None)
    chosen: dict[str, Any] = {"reservoir": 20, "batch_size": 7, "follow": False, "draws": 3, **options}
    streams = [
        Stream(loader(folder / name), weight, name, **{**given})
        for name, weight, given in zip(("old", "new"), (3, 1), own, strict=True)
    ]
    return LivePipeline(streams, LiveOptions(**chosen), hooks=hooks)


def test_a_stream_has_its_share_exactly_wherever_one_stops(folders: Path) -> None:
    with two(folders, reservoir=0, references=True) as run:
        source = np.concatenate([batch["chunk"] >> STREAM for batch in run])
    sizes = [len(frames_of(games(OLD))), len(frames_of(games(NEW)))]
    assert np.bincount(source).tolist() == sizes
    given = np.cumsum(source[:, None] == np.arange(2), axis=0)
    until = int((given < sizes).all(axis=1).sum())  # one is used up; the other goes on alone
    assert until > 40
    assert np.abs(given[:until] - np.arange(1, until + 1)[:, None] * [0.75, 0.25]).max() < 1


@pytest.mark.parametrize("reservoir", [0, 20, 5000])
@pytest.mark.parametrize("seed", [0, 1, 1 << 70])
def test_every_position_of_every_stream_once_whatever_the_threads(folders: Path, reservoir: int, seed: int) -> None:
    runs = []
    for threads, draws in [(1, 3), (2, 1), (5, 8)]:
        with two(folders, threads=threads, draws=draws, seed=seed, reservoir=reservoir) as run:
            runs.append([named(batch["rows"]) for batch in run])
    assert runs[0] == runs[1] == runs[2]
    assert Counter(f for batch in runs[0] for f in batch) == Counter(frames_of(games(OLD) + games(NEW)))


def test_the_first_stream_that_is_used_up_may_end_all(folders: Path) -> None:
    with two(folders, reservoir=0, stop="first_exhausted") as run:
        found = Counter(game >= 1000 for batch in run for game, _ in named(batch["rows"]))
    old, new = len(frames_of(games(OLD))), len(frames_of(games(NEW)))
    assert found[True] == new or found[False] == old
    assert abs(found[True] - Fraction(found.total(), 4)) < 1


def test_streams_have_windows_rates_and_passes_of_their_own(folders: Path) -> None:
    own = ({"window": 5, "count": 2, "passes": 3}, {"rate": "1/2", "passes": 2})
    with two(folders, own) as run:
        found = Counter(frame for batch in run for frame in named(batch["rows"]))
    assert {game for game, _ in found if game < 1000} == set(games(OLD)[-5:])
    assert sum(n for (game, _), n in found.items() if game < 1000) == 2 * 3 * 5
    assert {frame: n for frame, n in found.items() if frame[0] >= 1000} == dict.fromkeys(frames_of(games(NEW)), 1)


def test_streams_of_one_folder_draw_in_orders_of_their_own(folders: Path) -> None:
    def order(streams: list[Stream]) -> list[int]:
        with LivePipeline(streams, LiveOptions(reservoir=0, batch_size=10_000, follow=False, references=True)) as run:
            batch = next(run)
        return batch["chunk"].tolist()

    one = loader(folders / "old")
    both = order([Stream(one), Stream(one)])
    first, second = ([c & ((1 << STREAM) - 1) for c in both if c >> STREAM == i] for i in range(2))
    assert first != second
    assert sorted(first) == sorted(second)
    assert first == order([Stream(loader(folders / "old"))])


KINDS: dict[str, dict[str, Any]] = {
    "all": {},
    "no reservoir": {"reservoir": 0},
    "ragged": {"hooks": ChunkFunctions(encode=compact), "passes": 2},
    "first": {"stop": "first_exhausted", "passes": 3, "rate": 0.4},
    "hanse": {"own": ({"hanse_gamma": 0.7, "count": 1, "passes": 9}, {})},
    "in turn": {"own": ({}, {"in_turn": True})},
    "windows": {"own": ({"window": 6, "passes": 2}, {"passes": 3, "count": 2, "ahead": 2})},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_joined_run_that_loads_a_state_goes_on_with_the_next_batch(folders: Path, kind: str, seed: int) -> None:
    options: dict[str, Any] = {**KINDS[kind], "seed": seed}
    with two(folders, threads=2, **options) as whole:
        states, batches = [whole.state_dict()], []
        for batch in whole:
            batches.append(listed(batch))
            states.append(whole.state_dict())
    assert len(batches) > 3
    for i, state in enumerate(states):
        again = two(folders, threads=1 + i % 5, **options)
        again.load_state_dict(state)
        with again:
            assert [listed(batch) for batch in again] == batches[i:], f"after {i} batches"
            assert again.state_dict()["got"] == len(batches)


def test_a_state_of_other_streams_is_refused(folders: Path) -> None:
    with two(folders) as first:
        next(first)
        state = first.state_dict()
    others = (
        two(folders, stop="first_exhausted"),
        two(folders, ({"window": 3}, {})),
        two(folders, ({}, {"in_turn": True})),
        LivePipeline([Stream(loader(folders / "old")), Stream(loader(folders / "new"))]),
        LivePipeline(loader(folders / "old")),
    )
    for other in others:
        with pytest.raises(StateError, match="expected the state of a run with"):
            other.load_state_dict(state)


def grown(folder: Path, journals: tuple[Journal, Journal], batches: int, extra: dict[str, Any]) -> list[Any]:
    """Batches of a run in which files arrive in turn in both folders."""
    now = [5000.0]
    arrived = {"old": 3, "new": 1}
    for name, files in (("old", OLD), ("new", NEW)):
        names(folder / name, files[: arrived[name]])
    streams = [
        Stream(loader(folder / name, "poll", lambda: now[0]), weight, name, journal=journal, **own)
        for name, weight, journal, own in zip(("old", "new"), (3, 1), journals, extra["own"], strict=True)
    ]
    got: list[Any] = []
    options = LiveOptions(reservoir=15, batch_size=6, window=9, draws=2, follow="manual", threads=2, seed=extra["seed"])
    with LivePipeline(streams, options) as run:
        for i in range(batches):
            name, files = (("old", OLD), ("new", NEW))[i // 3 % 2]
            if i % 3 == 2 and arrived[name] < len(files):
                names(folder / name, [files[arrived[name]]], start=arrived[name])
                arrived[name] += 1
                found = 0
                for _ in range(2):
                    now[0] += 10
                    found += run.poll()
                assert found == 1
            got.append(listed(run.get_next()))
    return got


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("own", [({}, {}), ({"hanse_gamma": 1.0, "count": 2}, {"rate": 0.5})])
def test_the_journals_of_all_pools_replay_a_run_and_go_on_from_any_state(
    tmp_path: Path, seed: int, own: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    journals = Journal(tmp_path / "old.moves"), Journal(tmp_path / "new.moves")
    lived = grown(tmp_path, journals, 30, {"own": own, "seed": seed})
    assert len(journals[0].moves()) > 5
    assert len(journals[1].moves()) > 3

    def replay(threads: int) -> LivePipeline:
        streams = [
            Stream(loader(tmp_path / name), weight, name, replay=journal.moves(), **given)
            for name, weight, journal, given in zip(("old", "new"), (3, 1), journals, own, strict=True)
        ]
        return LivePipeline(streams, LiveOptions(reservoir=15, batch_size=6, window=9, threads=threads, seed=seed))

    states = []
    with replay(4) as again:
        for batch in lived:
            states.append(again.state_dict())
            assert listed(again.get_next()) == batch
    for i in range(0, 30, 7):
        third = replay(1 + i % 3)
        third.load_state_dict(states[i])
        with third:
            assert [listed(third.get_next()) for _ in range(30 - i)] == lived[i:]


def test_a_stream_without_chunks_is_an_error_that_is_said(folders: Path) -> None:
    (folders / "none").mkdir()
    streams = [Stream(loader(folders / "old")), Stream(loader(folders / "none"))]
    with LivePipeline(streams, LiveOptions(follow=False)) as run, pytest.raises(DataError, match="expected chunks to"):
        next(run)


def test_figures_are_told_apart_by_the_streams_names(folders: Path) -> None:
    with two(folders) as run:
        list(run)
        stages = run.metrics()["stages"]
    assert stages["chunk_unpacker.old"]["counts"]["frames"] == len(frames_of(games(OLD)))
    assert stages["chunk_unpacker.new"]["counts"]["frames"] == len(frames_of(games(NEW)))
    assert stages["shuffling_chunk_pool.new"]["gauges"]["chunks_total"] == len(games(NEW))
    assert stages["file_path_provider.old"]["counts"]["files"] == len(OLD)
    assert stages["tensor_generator"]["counts"]["frames"] == len(frames_of(games(OLD) + games(NEW)))


def test_what_does_not_go_together_is_refused(folders: Path) -> None:
    one = loader(folders / "old")
    for wrong, message in (
        (lambda: LivePipeline([]), "at least one stream"),
        (lambda: LivePipeline([Stream(one)], journal=Journal()), "journal and replay as arguments of each Stream"),
        (lambda: LivePipeline([Stream(one, name="a"), Stream(one, name="a")]), "different names"),
        (lambda: LivePipeline([Stream(one, 0)]), "above 0|share|weight"),
        (lambda: LivePipeline([Stream(one, in_turn=True, passes=2)]), "for sources in turn"),
        (lambda: LivePipeline([Stream(one)], LiveOptions(stop="never")), "expected stop to be"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(PlanError, match=message):
            wrong()


def blocks(n: int, cut: int) -> list[Block]:
    numbers = np.arange(n)
    return [
        Block(p.astype(np.uint8)[:, None], p, p.astype(np.int32))
        for p in np.split(numbers, range(cut, n, cut))
        if len(p)
    ]


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_join_that_drains_restarts_its_shares_where_an_input_leaves(cut: int) -> None:
    joiner, order = Joiner([1, 2, 1], "drain"), []
    waiting = [blocks(n, cut) for n in (10, 50, 30)]
    while True:
        while (taken := joiner.take()) is not None:
            order += taken[1].tolist()
        i = joiner.wanted
        if i is None:
            break
        if waiting[i]:
            joiner.put(i, waiting[i].pop(0))
        else:
            joiner.end(i)
    assert Counter(order) == {0: 10, 1: 50, 2: 30}
    seam = max(k for k, source in enumerate(order) if source == 0) + 1
    for k in range(1, seam):
        assert abs(order[:k].count(1) - k / 2) < 1
    tail = order[seam + 2 :]
    for k in range(1, len(tail) // 2):
        assert abs(tail[:k].count(1) - k * 2 / 3) < 2
