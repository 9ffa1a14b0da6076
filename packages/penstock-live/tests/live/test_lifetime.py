"""Who ends a pipeline: another thread, nobody who holds it, a process that was forked, a kill."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live.files import Opener, frames_of, named, names
from penstock.errors import WorkerError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.flow.queue import QueueClosed
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.journal import Journal
from penstock_live.options import LiveOptions
from penstock_live.pipeline import LivePipeline
from tests.descriptors import opened
from tests.threads import threads_before, wait_for_others

FILES = [[0, 1, 2], [10], [20, 21], [30, 31, 32, 33]]
OPTIONS: dict[str, Any] = {"reservoir": 9, "batch_size": 4}


def make(folder: Path, opener: Opener | None = None, watch: Any = "poll", **options: Any) -> LivePipeline:
    journal = options.pop("journal", None)
    inlet = ChunkSourceLoader(FilePathProvider(folder, watch=watch), opener or Opener())
    return LivePipeline(inlet, LiveOptions(**{**OPTIONS, **options}), journal=journal)


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(
    "extra", [{}, {"overflow": "keep_newest"}, {"hanse_gamma": 1.0}], ids=["block", "drop", "hanse"]
)
def test_a_pipeline_that_nobody_holds_ends_its_threads_and_closes_its_files(
    tmp_path: Path, started: bool, extra: dict[str, Any]
) -> None:
    names(tmp_path, FILES)
    opener, threads = Opener(), threads_before()
    for watch in ("poll", "native"):
        before = set(opened())
        pipeline = make(tmp_path, opener, watch, journal=tmp_path / ".moves", **extra)
        if started:
            next(pipeline)
        held = weakref.ref(pipeline)
        begun = set(threading.enumerate()) - threads
        assert bool(begun) == started
        del pipeline
        assert held() is None
        wait_for_others(threads)  # and for the one that ends the others
        assert all(source.closed for source in opener.sources)
        assert set(opened()) <= before
    Journal(tmp_path / ".moves").close()  # which nobody holds locked


def test_a_pipeline_in_a_cycle_is_ended_by_whatever_thread_collects_it(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    threads = threads_before()
    pipeline = make(tmp_path)
    next(pipeline)
    cycle: list[Any] = [pipeline]
    cycle.append(cycle)
    del pipeline, cycle
    gc.collect()
    wait_for_others(threads)


def test_a_pipeline_that_is_stopped_by_another_thread_tells_whoever_waits(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    waits = threading.Event()
    told: list[BaseException] = []

    def consume() -> None:
        waits.set()
        try:
            next(pipeline)
        except QueueClosed as error:
            told.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert waits.wait(60)
    stoppers = [threading.Thread(target=pipeline.stop) for _ in range(3)]
    for thread in stoppers:
        thread.start()
    for thread in [*stoppers, consumer]:
        thread.join(60)
    assert len(told) == 1
    assert pipeline.state_dict()["got"] == 0


def in_child(work: Callable[[], Any]) -> Any:
    """What a forked process says, `hangs` where it says nothing."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # ends a child that hangs
        try:
            there.send(work())
        except BaseException as error:  # noqa: BLE001  a child ends here whatever happens
            there.send(f"{type(error).__name__}: {error}")
        os._exit(0)
    there.close()
    try:
        return here.recv()
    except EOFError:
        return "hangs"
    finally:
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_that_the_threads_are_not_there(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with make(tmp_path) as pipeline:
        next(pipeline)

        def use(what: str) -> Any:
            found = getattr(pipeline, what)()
            return f"{what} gives {found}"

        for what in ("get_next", "maybe_get_next", "poll", "metrics", "state_dict", "start"):
            message = in_child(lambda what=what: use(what))
            assert message.startswith(f"WorkerError: expected the process {os.getpid()}, which made this pipeline, got")
        assert in_child(lambda: use("stop")) == "stop gives None"
        next(pipeline)
    with OrderedMap(str, iter(range(5)), PrefetchLimits(1)) as numbers:
        next(numbers)
        assert in_child(lambda: next(numbers)).startswith("WorkerError: expected the process")
        assert list(numbers) == ["1", "2", "3", "4"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_its_own(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with make(tmp_path, follow=False, watch="off") as pipeline:
        mine = [named(next(pipeline)["rows"])]

        def read() -> Any:
            with make(tmp_path, follow=False, watch="off") as own:
                return [named(batch["rows"]) for batch in own]

        theirs = in_child(read)
        mine += [named(batch["rows"]) for batch in pipeline]
    assert mine == theirs


def test_a_stage_that_is_used_in_another_process_says_so() -> None:
    numbers = OrderedMap(str, [1], PrefetchLimits(1))
    numbers._home._pid += 1  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(WorkerError, match="threads do not survive a fork"):
        numbers.get()


def listed(array: Any) -> Any:
    return array.tolist()


def live_until_it_is_killed(folder: Path, batches: int) -> list[Any]:
    """Batches and accounts of one life in a process of its own, which works ahead while it is killed."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        state = folder / "state"
        pipeline = make(folder / "games", follow=False, watch="off", journal=folder / "moves")
        if state.exists():
            pipeline.load_state_dict(json.loads(state.read_text()))
        for _ in range(batches):
            batch = next(pipeline)
            (folder / "partial").write_text(json.dumps(pipeline.state_dict(), default=listed))
            (folder / "partial").replace(state)
            there.send((named(batch["rows"]), pipeline.account()))
        signal.pause()
    there.close()
    try:
        return [here.recv() for _ in range(batches)]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_run_that_is_killed_again_and_again_accounts_for_every_chunk_once(tmp_path: Path) -> None:
    names(tmp_path / "games", FILES)
    frames: list[Any] = []
    for _ in range(3):
        for batch, account in live_until_it_is_killed(tmp_path, 3):
            frames += batch
            assert account["expected"] == sum(account.values()) - account["expected"] == 10
    with make(tmp_path / "games", follow=False, watch="off", journal=tmp_path / "moves") as last:
        last.load_state_dict(json.loads((tmp_path / "state").read_text()))
        frames += [frame for batch in last for frame in named(batch["rows"])]
        assert {name: n for name, n in last.account().items() if n} == {"expected": 10, "read": 10}
    assert Counter(frames) == Counter(frames_of(game for file in FILES for game in file))
