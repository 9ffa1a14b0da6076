"""Fetch missing ranges of cached objects: merged, requested by a pool of threads, written, entered.

`fill` is called with the byte ranges that a batch needs, of all its files at once. Ranges become blocks. Blocks with a
gap between them are merged into one request, the smallest gaps first, while all requests together are at most a quarter
larger than what is needed (`GAPS`): so a fetch is bounded by 1.25 times the blocks, however they are scattered. A gap
with a block that is present or under way is not fetched: an epoch would fetch a tenth of its bytes twice. Where a
third of a region of 8 MiB is needed in short runs, as by the first batches of a shuffled epoch, all of the region is
fetched: long requests are faster, and the rest is needed soon. Long requests are divided, so that several threads share
them. Two threads that need the same block fetch it once.

`begin_fetch` is called with the ranges of many batches before their time. It uses other threads, so that a read
never waits behind the requests of later batches.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.arrays import BoolArray, IntArray
from penstock.core.turns import ForkSafeLock
from penstock.errors import ChangedObjectError
from penstock.files.remote import FileState, RemoteFile
from penstock.files.replace import scratch_file
from penstock.locations.blocks import BLOCK, BlockCache, CachedObject, saying_no_room, stretches
from penstock.locations.objects import NoRangesError, ObjectInfo, joined
from penstock.locations.proven import ProvenStore

SHOWN = 128 << 20
"""Bytes of one fetch from which on a terminal shows a bar."""

_one_bar = threading.Lock()


@contextmanager
def fetch_progress(names: set[str], nbytes: int) -> Generator[Callable[[int], None]]:
    """Show a bar on standard error for the block, if that is a terminal, the fetch is large, and no other
    bar is shown.
    """
    if nbytes < SHOWN or not _one_bar.acquire(blocking=False):
        yield _nothing
        return
    try:
        from rich.console import Console  # not at the import of this module, which small fetches need
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            what = next(iter(names)) if len(names) == 1 else f"{len(names)} files"
            task = progress.add_task(f"fetching {what}", total=nbytes)
            yield lambda count: progress.advance(task, count)
    finally:
        _one_bar.release()


def _nothing(_: int) -> None:
    """No bar is shown."""


THREADS = 32
"""Requests at once, of all remote data of a process."""

REQUEST = 16
"""Blocks of a request at most."""

GAPS = 0.25
"""Bytes that are fetched for nothing, as a part of those that are needed."""

REGION = 128
"""Blocks of a region that is fetched whole where a third of it is needed, in runs of less than a request."""

SOON = 4
"""Blocks that are fetched where one of them is needed, of files that are needed for the most part soon."""

_WIDEST = 16  # blocks between two wanted ones that a request fetches as well

_IN_MEMORY = 16 << 20  # bytes of a whole object that wait in memory and not on the disk

AHEAD = 1 / 8
"""Part of the limit of the cache that is fetched ahead at most, so that nothing is evicted before it is read."""

_pools: dict[bool, ThreadPoolExecutor] = {}


@dataclass(eq=False)
class MirroredFile(RemoteFile):
    """One object of a store, and its cached blocks."""

    store: ProvenStore
    info: ObjectInfo
    cached: CachedObject
    state: FileState

    def __post_init__(self) -> None:
        self.whole = ForkSafeLock()  # of the thread that fetches all bytes, from a server that sends no ranges
        self.failed_ahead: BaseException | None = None  # of a request before its time, which no read has repeated yet

    @property
    @override
    def identity(self) -> tuple[int, int]:
        return self.cached.identity

    @override
    def progress(self) -> AbstractContextManager[Callable[[int], None]]:
        return fetch_progress({joined(self.store.url, self.info.name)}, self.info.size)


def pool(*, ahead: bool = False) -> ThreadPoolExecutor:
    """The threads of this process that request ranges; others request ranges ahead."""
    return _pools.get(ahead) or _pools.setdefault(ahead, ThreadPoolExecutor(THREADS, "penstock remote"))


os.register_at_fork(after_in_child=_pools.clear)  # the threads are of the process that was forked


def fill(cache: BlockCache, wanted: Iterable[tuple[MirroredFile, IntArray, IntArray]]) -> Callable[[], None]:
    """Fetch what is missing of ranges; they stay until the function that is returned is called."""
    pinned: list[tuple[CachedObject, IntArray]] = []

    def release() -> None:
        while pinned:
            cached, blocks = pinned.pop()
            cached.unpin(blocks)
            cache.unpinned(len(blocks))

    try:
        needed: list[tuple[MirroredFile, IntArray]] = []
        for file, begin, end in wanted:
            blocks = blocks_of(begin, end, file.cached.blocks)
            if len(blocks):
                file.cached.pin(blocks)
                pinned.append((file.cached, blocks))
                needed.append((file, blocks))
        while needed:
            needed = _fetch_round(cache, needed)
    except BaseException:
        release()
        raise
    return release


def begin_fetch(cache: BlockCache, wanted: Sequence[tuple[MirroredFile, IntArray, IntArray]], *, most: bool) -> None:
    """Request what is missing of ranges and not requested yet, in their order, and return at once.

    The read that needs the blocks of a failed request repeats it, and warns.
    """
    by_file: dict[MirroredFile, list[tuple[int, IntArray]]] = {}
    for number, (file, begin, end) in enumerate(wanted):
        by_file.setdefault(file, []).append((number, blocks_of(begin, end, file.cached.blocks)))
    if BLOCK * sum(len(blocks) for parts in by_file.values() for _, blocks in parts) > AHEAD * cache.limit:
        return
    ordered: list[tuple[int, MirroredFile, int, int]] = []
    for file, parts in by_file.items():
        blocks, first = np.unique(np.concatenate([each for _, each in parts]), return_index=True)
        need = np.concatenate([np.full(len(each), number) for number, each in parts])[first]
        dense = most and file.info.size <= cache.limit // 2
        with file.cached.condition:
            requests = _own_requests(file.cached, file.cached.absent(blocks), ahead=dense)
        for lo, hi in requests:
            inside = need[slice(*np.searchsorted(blocks, [lo, hi]))]
            ordered.append((int(inside.min(initial=len(wanted))), file, lo, hi))
    ordered.sort(key=lambda request: request[0])
    for number, (_, file, lo, hi) in enumerate(ordered):
        try:
            request = pool(ahead=True).submit(_request, file, lo, hi)
        except RuntimeError:  # the interpreter exits
            for _, other, *range_left in ordered[number:]:
                _unmark(other, [(range_left[0], range_left[1])])
            return
        request.add_done_callback(functools.partial(_ended, cache, file, lo, hi))


def _ended(cache: BlockCache, file: MirroredFile, first: int, end: int, request: Future[int]) -> None:
    """Let the threads go on that wait for the blocks of a request that was made ahead."""
    _unmark(file, [(first, end)])
    if request.cancelled():
        return
    if (error := request.exception()) is not None:
        file.failed_ahead = error
        return
    cache.fetched(request.result())


def _unmark(file: MirroredFile, requests: Sequence[tuple[int, int]]) -> None:
    """Let the threads go on that wait for the blocks of requests."""
    with file.cached.condition:
        for first, end in requests:
            file.cached.fetching[first:end] = False
        file.cached.condition.notify_all()


def blocks_of(begin: IntArray, end: IntArray, count: int) -> IntArray:
    """The numbers of all blocks of `begin : end`, each once, in order."""
    some = end > begin
    first, last = begin[some] // BLOCK, (end[some] - 1) // BLOCK
    if len(first) == 0:
        return np.zeros(0, np.int64)
    counts = last - first + 1
    before = np.cumsum(counts) - counts
    numbers = np.unique(np.repeat(first - before, counts) + np.arange(int(counts.sum())))
    return numbers[numbers < count]


def requests_of(
    blocks: IntArray, budget: float, missing: Callable[[IntArray], BoolArray] | None = None
) -> list[tuple[int, int]]:
    """The `(first, end)` blocks of the requests that fetch sorted blocks, and at most `budget` others.

    Only gaps whose blocks are all `missing` are fetched. The default is that all are.
    """
    gaps = np.diff(blocks) - 1
    small = np.flatnonzero((gaps > 0) & (gaps <= _WIDEST))
    if missing is not None and len(small):
        first = np.cumsum(gaps[small]) - gaps[small]
        inside = np.repeat(blocks[small] + 1 - first, gaps[small]) + np.arange(int(gaps[small].sum()))
        gaps[small[np.add.reduceat(~missing(inside), first, dtype=np.int64) > 0]] = _WIDEST + 1
    order = np.argsort(gaps, kind="stable")
    affordable = (np.cumsum(gaps[order]) <= budget) & (gaps[order] <= _WIDEST)
    apart = np.ones(len(gaps), np.bool_)
    apart[order[affordable]] = False
    return [
        (lo, min(lo + REQUEST, end)) for first, end in stretches(blocks, apart) for lo in range(first, end, REQUEST)
    ]


def _fetch_round(
    cache: BlockCache, needed: Sequence[tuple[MirroredFile, IntArray]]
) -> list[tuple[MirroredFile, IntArray]]:
    """Fetch absent blocks that no other thread fetches, then wait for others; return blocks to look at again."""
    futures: list[Future[int]] = []
    mine: list[tuple[MirroredFile, list[tuple[int, int]]]] = []
    left: list[tuple[MirroredFile, IntArray]] = []
    try:
        for file, blocks in needed:
            cached = file.cached
            with cached.condition:
                absent = cached.absent(blocks)
                if len(absent) == 0:
                    continue
                left.append((file, absent))
                mine.append((file, _own_requests(cached, absent)))
        if not left:
            return left
        names = {joined(file.store.url, file.info.name) for file, requests in mine if requests}
        nbytes = BLOCK * sum(hi - lo for _, requests in mine for lo, hi in requests)
        with fetch_progress(names, nbytes) as advance:
            for file, requests in mine:
                futures += [pool().submit(_request, file, lo, hi, advance) for lo, hi in requests]
            wait(futures)
        got = sum(future.result() for future in futures)
        for file, requests in mine:
            if requests and (error := file.failed_ahead) is not None:
                file.failed_ahead = None
                file.store.warn("requests ahead of reading failed, and reads repeat them", error)
    finally:
        wait(futures)
        futures.clear()  # else an error and this frame refer to each other, and keep the caller's files open
        for file, requests in mine:
            _unmark(file, requests)
    cache.fetched(got)
    for file, blocks in left:
        with file.cached.condition:
            while file.cached.fetching[blocks].any():
                file.cached.condition.wait()
    return left


def _own_requests(cached: CachedObject, absent: IntArray, *, ahead: bool = False) -> list[tuple[int, int]]:
    """The requests for absent blocks that no thread fetches; these blocks are marked. The caller has the condition."""
    own = absent[~cached.fetching[absent]]
    if len(own) == 0:
        return []
    size, part = (SOON, SOON) if ahead else (REGION, 3)
    own = with_regions(own, cached.blocks, size, part, cached.missing)
    requests = requests_of(own, GAPS * len(own), cached.missing)
    for lo, hi in requests:
        cached.fetching[lo:hi] = True
    return requests


def with_regions(
    blocks: IntArray, count: int, size: int, part: int, missing: Callable[[IntArray], BoolArray] | None = None
) -> IntArray:
    """Add the blocks of regions of `size` blocks of which one `part`-th is wanted in runs of less than a request."""
    edges = np.flatnonzero(np.diff(blocks, prepend=-2, append=-2) != 1)
    lengths = np.diff(edges)
    regions, counts = np.unique(blocks[np.repeat(lengths < REQUEST, lengths)] // size, return_counts=True)
    dense = regions[part * counts >= np.minimum(size, count - regions * size)]
    every = (dense[:, None] * size + np.arange(size)).ravel()
    every = every[every < count]
    return np.union1d(blocks, every if missing is None else every[missing(every)])


def _request(file: MirroredFile, first: int, end: int, advance: Callable[[int], None] | None = None) -> int:
    """Fetch some blocks, which are pinned meanwhile; return the number of bytes, and tell it to `advance`."""
    begin, stop = first * BLOCK, min(end * BLOCK, file.info.size)
    try:
        (raw,) = file.store.read(file.info.name, [(begin, stop)], file.info.version)
    except NoRangesError:
        return _fetch_whole(file, np.arange(first, end))
    except FileNotFoundError:
        raise ChangedObjectError(joined(file.store.url, file.info.name)) from None
    if not file.store.verifies:
        _require_unchanged(file)
    _enter(file, begin, raw)
    if advance is not None:
        advance(len(raw))
    return len(raw)


def _enter(file: MirroredFile, begin: int, raw: bytes) -> None:
    """Write bytes to the cache, from the first one of a block on."""
    blocks = np.arange(begin // BLOCK, begin // BLOCK + -(-len(raw) // BLOCK))
    file.cached.pin(blocks)
    try:
        with saying_no_room(file.cached.folder):
            file.cached.write(begin, raw)
    finally:
        file.cached.unpin(blocks)


def _fetch_whole(file: MirroredFile, blocks: IntArray) -> int:
    """Fetch an object whose server sends no ranges, unless another thread just did; return the number of bytes.

    The bytes wait in a scratch file until all came, so that nothing of an answer that was cut enters the cache.
    Memory: a small object, or one request. One thread does so, and all that need a block of the object wait for it.
    """
    with file.whole:
        with file.cached.condition:
            if not len(file.cached.absent(blocks)):
                return 0
            absent = file.cached.absent(np.arange(file.cached.blocks))
        name = joined(file.store.url, file.info.name)
        with (
            scratch_file(file.cached.folder, _IN_MEMORY) as came,
            fetch_progress({name}, file.info.size) as advance,
        ):

            def write(begin: int, raw: bytes) -> None:
                with saying_no_room(file.cached.folder):
                    came.seek(begin)
                    came.write(raw)
                advance(len(raw))

            file.store.read_all(file.info.name, file.info.size, file.info.version, write)
            if not file.store.verifies:
                _require_unchanged(file)
            for first, end in requests_of(absent, 0):
                came.seek(first * BLOCK)
                _enter(file, first * BLOCK, came.read((end - first) * BLOCK))
    return file.info.size


def _require_unchanged(file: MirroredFile) -> None:
    """After a read from a store that does not compare versions itself."""
    try:
        now = file.store.stat(file.info.name)
    except FileNotFoundError:
        now = None
    if now != file.info:
        raise ChangedObjectError(joined(file.store.url, file.info.name))
