"""Every chunk that there should be is counted, in one place, once: whatever happens to its file, and over lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Games, named, names, write
from live.test_damage import flip
from penstock.errors import DataError, PlanError, StateError
from penstock_live.account import FIGURES, ChunkAccount, Outcome
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.hooks import ChunkFunctions, Rejected
from penstock_live.journal import Arrival, read_journal
from penstock_live.options import LiveOptions, Stream
from penstock_live.pipeline import LivePipeline
from penstock_live.splitter import ChunkSourceSplitter


class Torn(Games):
    """A file that should have had `lost` more games than it has: as many as the number at the end of its name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lost = int(path.stem.rpartition("-")[2]) if "-" in path.stem else 0
        self.torn = f"expected more games in {path.name}" if self._lost else None

    @property
    def expected(self) -> int:
        return len(self) + self._lost


def rejecting(games: Iterable[int]) -> ChunkFunctions:
    def transform(frames: np.ndarray, name: str) -> np.ndarray | Rejected:
        return Rejected("dull") if named(frames)[0][0] in games else frames

    return ChunkFunctions(transform=transform)


def damaged(folder: Path) -> dict[str, int]:
    """Files with everything that can be wrong; what of them should be counted."""
    names(folder, [[0, 1, 2], [10, 11], [20, 21, 22]])
    flip(folder / "g0000.chk", -1)  # the last game
    write(folder / "g0003-4.chk", [30, 31])  # four games are lost
    (folder / "g0004.chk").write_bytes(b"nothing that can be opened")
    write(folder / "g0005.chk", [])
    return {"expected": 8 + 6 + 1, "read": 3 + 2 + 3 + 2 - 1 - 2, "torn": 4, "refused": 2, "failed": 2}


def run_over(folder: Path, **options: Any) -> LivePipeline:
    inlet = ChunkSourceLoader(FilePathProvider(folder, watch="off"), Torn)
    chosen = {"reservoir": 5, "batch_size": 3, "follow": False, "draws": 2, **options}
    return LivePipeline(inlet, LiveOptions(**chosen), hooks=rejecting({11, 30}))


def non_zero(found: dict[str, int]) -> dict[str, int]:
    assert list(found) == list(FIGURES)
    assert found["expected"] == sum(found.values()) - found["expected"]
    return {name: n for name, n in found.items() if n}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("extra", [{}, {"passes": 3, "rate": 0.5}, {"count": 1, "ahead": 3}, {"hanse_gamma": 1.0}])
def test_a_pass_over_damaged_files_accounts_for_every_chunk(
    tmp_path: Path, threads: int, extra: dict[str, Any]
) -> None:
    truth = damaged(tmp_path)
    with run_over(tmp_path, threads=threads, **extra) as run:
        run.start()
        assert run.account()["expected"] == truth["expected"]
        for _ in run:
            non_zero(run.account())
        if "hanse_gamma" in extra:  # which may leave chunks out
            assert run.account()["expected"] == truth["expected"]
            return
        assert non_zero(run.account()) == truth
        gauges = run.metrics()["stages"]["shuffling_chunk_pool"]["gauges"]
        assert {name: gauges[f"chunks_{name}"] for name in FIGURES} == run.account()
        assert run.failures()[0] == {"checksum": 1, "torn": 4, "FormatError": 1, "dull": 2}


def test_a_state_goes_on_counting_and_counts_nothing_twice(tmp_path: Path) -> None:
    truth = damaged(tmp_path)
    with run_over(tmp_path, passes=2) as run:
        states = [run.state_dict()]
        for _ in run:
            states.append(run.state_dict())
    for state in states[1:]:
        with run_over(tmp_path, passes=2) as again:
            again.load_state_dict(state)
            non_zero(again.account())
            list(again)
            found = non_zero(again.account())
        assert found == truth


def test_parts_of_a_split_count_what_is_lost_once(tmp_path: Path) -> None:
    truth = damaged(tmp_path)
    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), Torn)
    options = LiveOptions(reservoir=5, batch_size=3, follow=False)
    parts = ChunkSourceSplitter([2, 1]).split(inlet)
    runs = [LivePipeline(part, options, hooks=rejecting({11, 30})) for part in parts]
    total: Counter[str] = Counter()
    for run in runs:
        run.start()
    for run in runs:
        with run:
            list(run)
            total.update(non_zero(run.account()))
    assert dict(total) == truth


def test_streams_have_figures_of_their_own_and_a_sum(tmp_path: Path) -> None:
    truth = damaged(tmp_path / "a")
    names(tmp_path / "b", [[50, 51]])
    inlets = [ChunkSourceLoader(FilePathProvider(tmp_path / name, watch="off"), Torn) for name in "ab"]
    streams = [Stream(inlet, name=name) for name, inlet in zip("ab", inlets, strict=True)]
    with LivePipeline(streams, LiveOptions(reservoir=0, follow=False), hooks=rejecting({11, 30})) as run:
        list(run)
        assert run.metrics()["stages"]["shuffling_chunk_pool.b"]["gauges"]["chunks_read"] == 2
        assert non_zero(run.account()) == {**truth, "expected": truth["expected"] + 2, "read": truth["read"] + 2}


def test_chunks_that_leave_the_window_before_their_turn_expire(tmp_path: Path) -> None:
    now = [5000.0]
    names(tmp_path, [[0, 1, 2]])
    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="poll", clock=lambda: now[0]), Torn)
    options = LiveOptions(
        window=4, reservoir=0, batch_size=1, follow="manual", threads=1, draws=1, prefetch=1, nbytes=1
    )
    with LivePipeline(inlet, options) as run:
        for i in range(1, 5):
            names(tmp_path, [[10 * i, 10 * i + 1, 10 * i + 2]], start=i)
            for _ in range(2):
                now[0] += 10
                run.poll()
            found = non_zero(run.account())
            assert found["expected"] == 3 + 3 * i
        for _ in range(400):  # many passes over the last window, behind draws of earlier ones
            next(run)
        found = non_zero(run.account())
        assert found["read"] + found["expired"] == 15
        assert found["expired"] > 3  # the window has four, and few were read ahead


def test_a_replay_counts_what_the_run_counted(tmp_path: Path) -> None:
    truth = damaged(tmp_path)
    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), Torn)
    journal = tmp_path / ".moves"
    with LivePipeline(inlet, LiveOptions(reservoir=5, follow=False), journal=journal) as run:
        list(run)
    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="off"), Torn)
    options = LiveOptions(reservoir=5, batch_size=3, passes=1)
    with LivePipeline(inlet, options, hooks=rejecting({11, 30}), replay=read_journal(journal)) as again:
        list(again)
        # The file that cannot be opened is in no journal.
        assert non_zero(again.account()) == {**truth, "expected": truth["expected"] - 1, "failed": 1}


@pytest.mark.parametrize(
    ("max_lost", "stops"), [(None, False), (6, False), (5, True), (0, True), (0.0, True), (0.4, False)]
)
def test_a_run_stops_where_too_much_is_lost(tmp_path: Path, max_lost: float | None, stops: bool) -> None:
    damaged(tmp_path)
    with run_over(tmp_path, max_lost=max_lost) as run:
        if not stops:
            list(run)
            return
        with pytest.raises(DataError, match=r"to be lost, got \d of \d+ \(4 torn, \d failed\): .*raise max_lost"):
            list(run)


def test_a_fraction_is_one_of_a_thousand_chunks_at_least() -> None:
    account = ChunkAccount(max_lost=0.1)
    account.place(0, Arrival("a", "a", 5000))
    account.settle(range(100), Outcome.DAMAGED)
    account.check(str)
    account.settle([100], Outcome.DAMAGED)
    with pytest.raises(DataError, match=r"at most 0\.1 of the chunks to be lost, got 101 of 101"):
        account.check(str)
    account.settle(range(101, 1500), Outcome.READ)
    account.check(str)


@pytest.mark.parametrize("max_lost", [-1, 1.5, -0.1, True, float("nan")])
def test_a_limit_that_is_none_is_refused(max_lost: float) -> None:
    with pytest.raises(PlanError, match="max_lost"):
        LiveOptions(max_lost=max_lost)


def test_files_that_come_and_cannot_be_opened_stop_a_run_that_waits(tmp_path: Path) -> None:
    now = [5000.0]
    inlet = ChunkSourceLoader(FilePathProvider(tmp_path, watch="poll", clock=lambda: now[0]), Torn)
    with LivePipeline(inlet, LiveOptions(follow="manual", max_lost=2)) as run:
        run.start()
        for i in range(3):
            (tmp_path / f"{i}.chk").write_bytes(b"nothing")
        for _ in range(2):
            now[0] += 10
            run.poll()
        with pytest.raises(DataError, match="got 3 of 3"):
            next(run)


def test_outcomes_count_whatever_their_order() -> None:
    outcomes = [Outcome.GONE, Outcome.UNREADABLE, Outcome.READ, Outcome.DAMAGED]
    found: list[dict[str, int]] = []
    for order in (outcomes, outcomes[::-1]):
        account = ChunkAccount()
        account.place(10, Arrival("a", "a", 3))
        for outcome in order:
            account.settle([11], outcome)
            account.settle([12], min(outcome, Outcome.READ))
        account.forget(12)
        found.append(non_zero(account.figures(12)))
    assert found[0] == found[1] == {"expected": 3, "read": 1, "failed": 1, "expired": 1}


def test_a_state_of_something_else_is_refused() -> None:
    account = ChunkAccount()
    account.place(0, Arrival("a", "a", 3))
    state = account.state_dict()
    for name, value in [
        ("outcomes", [9]),
        ("outcomes", [[0]]),
        ("counts", [1]),
        ("base", -1),
        ("torn", 3),
        ("files", []),
    ]:
        with pytest.raises(StateError):
            ChunkAccount().load_state_dict({**state, name: value})
    ChunkAccount().load_state_dict(state)
