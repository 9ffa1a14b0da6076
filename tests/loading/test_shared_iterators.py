"""Iterators used by several threads, after a fork, after an interrupt, and at the exit of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.core.turns import ForkSafeLock
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.errors import WorkerError
from penstock.formats.webdataset.streaming import ShardStream
from tests.loading.handing_over import handing_over
from tests.threads import threads_before, wait_for_others

N = 3000


def samples(n: int = N) -> MapDataset:
    return from_arrays({"x": np.arange(n)}, lengths=[n]).steps()


ITERATORS: dict[str, Callable[[], Iterator[Any]]] = {
    "in the caller": lambda: iter(samples().loader(7, threads=0)),
    "threads": lambda: iter(samples().loader(7, threads=3, prefetch=5)),
    "handed over": lambda: handing_over(samples().loader(7, threads=2), lambda batch: batch, ahead=2),
    "blocks": lambda: iter(penstock.IterDataset.of(samples(), 7).loader(threads=1)),
    "iterate": lambda: iter(penstock.IterDataset.of(samples(), 7).filter(lambda c: c["x"] >= 0).rebatch(11)),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_eight_threads_get_every_sample_once(name: str) -> None:
    iterator, switch = ITERATORS[name](), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            taken = threads.map(lambda _: [np.asarray(batch["x"]) for batch in iterator], range(8))
            found = np.concatenate([part for parts in taken for part in parts])
    finally:
        sys.setswitchinterval(switch)
    assert np.sort(found).tolist() == list(range(N))


def in_a_fork(work: Callable[[], object]) -> int:
    """The exit code of a forked process that does the work: 0 for True, 1 for anything else."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(work() is not True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except WorkerError as error:
        return "forked process" in str(error)
    return False


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", ITERATORS)
def test_a_forked_process_is_told_to_make_an_iterator_of_its_own(name: str) -> None:
    iterator = ITERATORS[name]()
    first = next(iterator)["x"].tolist()
    assert in_a_fork(lambda: refused(lambda: next(iterator))) == 0
    assert in_a_fork(lambda: next(ITERATORS[name]())["x"].tolist() == first) == 0
    assert next(iterator)["x"][0] == first[-1] + 1
    getattr(iterator, "close", int)()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_not_waiting_for_a_thread_that_unpacks_ahead() -> None:
    raw = b"".join(member(f"{i}.cls", b"%d" % i) for i in range(6)) + END
    iterator = ShardStream({"pipe": lambda: BytesIO(raw)}, rows=2)()
    assert next(iterator)["cls"].tolist() == [0, 1]
    assert in_a_fork(lambda: refused(lambda: next(iterator))) == 0
    assert next(iterator)["cls"].tolist() == [2, 3]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_what_a_thread_of_the_parent_held_is_free_in_the_child() -> None:
    lock, entered, leave = ForkSafeLock(), threading.Event(), threading.Event()
    loader = samples().loader(7, threads=2)
    iterator = iter(loader)
    next(iterator)

    def hold() -> None:
        with lock, loader._cursor._changing, loader._cursor.source.recycler._lock, iterator._turns:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()

    def child() -> bool:
        with lock:
            iterator.close()
            loader.load_state_dict(loader.state_dict())
            return next(iter(loader))["x"][0] == 7 and refused(lambda: next(iterator))

    assert in_a_fork(lambda: bool(child())) == 0
    leave.set()
    thread.join()
    iterator.close()


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_after_an_interrupt_the_iterator_goes_on_with_the_batch_that_was_not_given(
    threads: int, error: type[BaseException]
) -> None:
    failing = [error(), error()]

    def hand_over(batch: Any) -> int:
        if batch.ticket.position == 300 and failing:
            raise failing.pop()
        return batch.ticket.position

    loader = samples(1000).loader(100, threads=threads)
    iterator = handing_over(loader, hand_over, ahead=1)
    found = [next(iterator), next(iterator)]
    for _ in range(2):
        with pytest.raises(error):
            next(iterator)
        assert loader.state_dict()["position"] == 200
    assert found + list(iterator) == list(range(0, 1000, 100))
    assert loader.state_dict()["position"] == 1000


@pytest.mark.parametrize("threads", [0, 2])
def test_a_batch_that_cannot_be_loaded_is_no_end_of_the_epoch(threads: int) -> None:
    bad = {600}

    def checked(columns: Any) -> Any:
        if bad & set(columns["x"].tolist()):
            raise ValueError("a bad row")
        return columns

    loader = samples(1000).map(checked).loader(100, threads=threads)
    iterator, found = iter(loader), list[int]()
    for _ in range(2):
        with pytest.raises(WorkerError, match="a bad row"):
            found.extend(batch.ticket.position for batch in iterator)
    bad.clear()
    found.extend(batch.ticket.position for batch in iterator)
    assert found == list(range(0, 1000, 100))


def test_a_state_that_another_thread_loads_meanwhile_is_not_overwritten() -> None:
    loader, loads = samples(1000).loader(100, threads=1), [700]

    def hand_over(batch: Any) -> int:  # as if another thread did it between two steps of `next`
        if batch.ticket.position == 200 and loads:
            loader.load_state_dict({**loader.state_dict(), "position": loads.pop()})
        return batch.ticket.position

    assert list(handing_over(loader, hand_over, ahead=0)) == [0, 100, 700, 800, 900]


def test_closing_waits_for_the_batch_that_another_thread_is_waiting_for() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(columns: Any) -> Any:
        begun.set()
        go_on.wait()
        return columns

    iterator = iter(samples(100).map(slow).loader(10, threads=1))
    with ThreadPoolExecutor(2) as threads:
        batch = threads.submit(next, iterator)
        begun.wait()
        closed = threads.submit(iterator.close)
        go_on.set()
        assert batch.result()["x"].tolist() == list(range(10))
        closed.result()
    assert next(iterator, None) is None


def test_an_iterator_that_is_collected_does_not_wait_for_its_threads() -> None:
    begun, go_on, before = threading.Event(), threading.Event(), threads_before()

    def slow(columns: Any) -> Any:
        if columns["x"][0] >= 10:
            begun.set()
            go_on.wait()
        return columns

    iterator = iter(samples(100).map(slow).loader(10, threads=1))
    next(iterator)
    begun.wait()
    threads = set(threading.enumerate()) - before
    assert any(thread.name.startswith("penstock-loader") for thread in threads)
    del iterator
    go_on.set()
    wait_for_others(before)


def test_threads_of_a_closed_iterator_stop_between_two_batches_of_a_slow_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.loading.position_source.LOOK_SECONDS", -1)
    begun, go_on, calls = threading.Event(), threading.Event(), list[int]()

    def slow(columns: Any) -> Any:
        calls.append(columns.n)
        if len(calls) == 3:
            begun.set()
            go_on.wait()
        return columns

    before = threads_before()
    iterator = iter(samples().map(slow).loader(10, threads=1))
    next(iterator)
    begun.wait()  # in the second of the many batches that are read together
    del iterator
    go_on.set()
    wait_for_others(before)
    assert calls == [10] * 3


AT_EXIT = """
import threading, numpy as np
from penstock.data.iter_dataset import IterDataset
from penstock.data.from_arrays import from_arrays
from penstock.loading import Loader
data = from_arrays({"x": np.arange(ROWS)}, lengths=[ROWS]).steps()
loader = data.loader(50, threads=2, prefetch=4)
shared = iter(loader)
ahead = data.loader(50, threads=2, prefetch=4, output=lambda batch: batch)
keep = [shared, iter(ahead), iter(IterDataset.of(data, 50).loader(threads=1))]
keep.append(keep)
for iterator in keep[:3]:
    next(iterator)
data = from_arrays({"x": np.arange(900)}, lengths=[3] * 300).sequences()
packs = iter(data.shuffle().pack(8, repack=True).loader(9))
next(packs)
def use(): [batch for batch in shared]
threading.Thread(target=use, daemon=DAEMON).start()
"""


@pytest.mark.parametrize("daemon", [True, False])
def test_unfinished_iterators_are_silent_at_exit(daemon: bool) -> None:
    rows = 500_000 if daemon else 25_000  # more than that thread reads until the end, or all of them, at the end
    code = AT_EXIT.replace("DAEMON", str(daemon)).replace("ROWS", str(rows))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
