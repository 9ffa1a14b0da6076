"""`LivePipeline`: the stages put together: what grows comes in, batches in a seeded order come out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from penstock.errors import DataError, StateError
from penstock.live.block import Block, Part
from penstock.live.catalog import ChunkCatalog
from penstock.live.chunk_sources import ChunkSourceLoader, Inlet, Opened
from penstock.live.chunks import ChunkReader, Hooks, Loaded, Unpacked, joined
from penstock.live.hanse import HanseSampling
from penstock.live.journal import Arrival, Journal, Move
from penstock.live.metrics import Metrics
from penstock.live.pool import Draws, ShufflingChunkPool
from penstock.live.position_store import PositionStore
from penstock.live.queue import QueueClosed
from penstock.live.sampler import Batch, Int, Place, ShufflingFrameSampler
from penstock.live.stage import OrderedMap
from penstock.live.tally import Tally
from penstock.live.tensors import Arrays, Decode, Decoded, TensorGenerator
from penstock.live.unpacker import ChunkUnpacker

VERSION = 1
PAUSE = 0.2  # seconds between two looks at what grows, where nothing tells of changes
PATIENCE = 64  # passes without a frame after which there will be none
TOGETHER = 32  # chunks that are read together for a state
SWEEP = 1024  # blocks after which chunks that nobody can ask for are forgotten


@dataclass(frozen=True)
class LiveOptions:
    """What a live run is, apart from where its data come from and what they mean.

    What decides the order: `window`, the newest chunks that are drawn from; `rate` or `count`, the positions taken at
    each use of a chunk (see `ChunkUnpacker`; with neither, all); `hanse_gamma`, None for no hanse sampling;
    `reservoir`, frames that are mixed, 0 for none; `batch_size`; `seed`; `passes` over the window, None for ever where
    it is followed and one where not; `drop_last`.

    `follow`: `True` has a thread take in what comes; `False` takes what is there at the start; `"manual"` has
    `LivePipeline.poll` called.

    What does not change the order: `threads`, for reading and for decoding each; `draws` that are read together;
    `prefetch`, batches ahead; `nbytes`, of frames and of batches that wait, each; `references`, whether batches
    say which frames they are; `ahead`, later uses of a chunk whose positions are kept when it is read, in at most
    `store_bytes` (for a small `count`: a chunk is then read once in `ahead + 1` uses).
    """

    window: int = 100_000
    rate: float | str | None = None
    count: int | None = None
    hanse_gamma: float | None = None
    reservoir: int = 1_000_000
    batch_size: int = 1024
    seed: int = 0
    passes: int | None = None
    drop_last: bool = False
    follow: bool | Literal["manual"] = True
    threads: int = 0
    draws: int = 16
    prefetch: int = 4
    nbytes: int = 256 << 20
    references: bool = False
    ahead: int = 0
    store_bytes: int = 1 << 30

    def decides(self) -> dict[str, Any]:
        """The options that decide the order, as a state keeps them."""
        free = {"threads", "draws", "prefetch", "nbytes", "references", "follow", "ahead", "store_bytes"}
        named = {name: value for name, value in asdict(self).items() if name not in free}
        return {**named, "rate": str(self.share)}

    @property
    def share(self) -> Fraction | None:
        """The rate, exactly; one where neither rate nor count is given."""
        if self.rate is None:
            return Fraction(1) if self.count is None else None
        return Fraction(str(self.rate))


class LivePipeline(Iterator[Arrays]):
    """Batches from what grows: an iterator and a context manager.

    `inlet` gives sources of chunks; `hooks` and `decode` say what frames mean. With a `journal`, the moves of the
    window are written as they take effect, and a run with `replay` of them gives the same batches, bit for bit. The
    order is a function of the options, the files and the journal alone: threads change nothing.

    A chunk that cannot be used is skipped, counted by its reason, and named by `failures`; when no chunk of a whole
    pass can be used, `DataError` says so. `state_dict` is that of the batches that were got; a run that loads it goes
    on with the batch after them.

    Raises `PlanError` for options that do not fit.

    >>> import penstock
    >>> from penstock.live.source_chunks import EpisodeInlet
    >>> source = penstock.from_arrays({"rewards": np.arange(30.0)}, lengths=[3] * 10).source
    >>> inlet = EpisodeInlet(source, ["rewards"])
    >>> options = LiveOptions(reservoir=8, batch_size=20, follow=False, seed=1)
    >>> with LivePipeline(inlet, options, decode=inlet.layout.decode) as batches:
    ...     rewards = [batch["rewards"] for batch in batches]
    >>> [len(r) for r in rewards], sorted(np.concatenate(rewards).tolist()) == list(range(30))
    ([20, 10], True)
    """

    def __init__(
        self,
        inlet: Inlet,
        options: LiveOptions | None = None,
        *,
        hooks: Hooks | None = None,
        decode: Decode | None = None,
        journal: Journal | None = None,
        replay: Sequence[Move] | None = None,
    ) -> None:
        self.options = options = options or LiveOptions()
        self._threads = options.threads or min(4, os.cpu_count() or 1)
        self._inlet, self._replay, self._hooks = inlet, replay, hooks or Hooks()
        self._metrics = Metrics()
        self._metrics.stages["chunk_source_loader"] = inlet.metrics
        self._hanse = None if options.hanse_gamma is None else HanseSampling(options.hanse_gamma, options.seed)
        self._catalog = ChunkCatalog(inlet.open)
        self.pool = self._make_pool(journal)
        self._lock = threading.RLock()
        self._tally = Tally()
        self._sampler = self._make_sampler()
        self._make_reader(decode)
        self._stopping = threading.Event()
        self._feeder: threading.Thread | None = None
        self._state: Mapping[str, Any] | None = None
        self._started = False
        self._blocks = 0

    def _make_pool(self, journal: Journal | None) -> ShufflingChunkPool:
        o = self.options
        passes = 1 if o.passes is None and o.follow is False else o.passes
        callbacks: dict[str, Any] = {"placed": self._catalog.placed, "left": self._catalog.left}
        more: dict[str, Any] = {"passes": passes, "journal": journal, "replay": self._replay, "hanse": self._hanse}
        return ShufflingChunkPool(o.window, o.seed, **more, **callbacks)

    def _make_sampler(self) -> ShufflingFrameSampler:
        o, metrics = self.options, self._metrics.stage("shuffling_frame_sampler")
        return ShufflingFrameSampler(o.reservoir, o.batch_size, o.seed, drop_last=o.drop_last, metrics=metrics)

    def _make_reader(self, decode: Decode | None) -> None:
        """The stages that work on data, in their order; each begins when its first result is asked for."""
        o, n = self.options, self._threads
        self._tally.patience = PATIENCE + (int(1 / o.share) if o.share else 0)
        unpacker = ChunkUnpacker(rate=o.share, count=o.count, seed=o.seed)
        stage = self._metrics.stage("chunk_unpacker", n)
        self._store = PositionStore(o.ahead, o.store_bytes) if o.ahead else None
        self._reader = ChunkReader(self._catalog, unpacker, self._hooks, self._hanse, stage, self._store)
        self._maps: list[OrderedMap[Any, Any]] = []
        if self._hanse is None:
            unpacked = OrderedMap(self._reader.read, self._draws(), n, nbytes=o.nbytes, metrics=stage)
        else:
            loading = self._metrics.stage("chunk_loading", n)
            loaded = OrderedMap(self._reader.load, self._draws(), n, nbytes=o.nbytes, metrics=loading)
            self._maps.append(loaded)
            unpacked = OrderedMap(self._reader.unpack, self._decide(loaded), n, nbytes=o.nbytes, metrics=stage)
        tensors = self._metrics.stage("tensor_generator", n)
        self._tensors = TensorGenerator(decode, references=o.references, buffers=o.prefetch + n + 1, metrics=tensors)
        ahead = max(o.prefetch, n)
        self._decoded: OrderedMap[Batch, Decoded] = OrderedMap(
            self._tensors.decode, self._batches(unpacked), n, ahead=ahead, nbytes=o.nbytes, metrics=tensors
        )
        self._maps += [unpacked, self._decoded]

    def start(self) -> None:
        """Take in what is there, and begin to work ahead. `get_next` does so by itself.

        Raises `DataError` where there are no chunks and none can come.
        """
        if self._started:
            return
        self._started = True
        try:
            self._begin()
        except BaseException as error:
            self._decoded.close(error)
            raise
        self._decoded.start()

    def _begin(self) -> None:
        if self._state is not None:
            self._restore(self._state)
        if self._replay is None:
            if self._state is None or self.options.follow is not False:
                self._arrive(self._inlet.begin(self.options.window))
            if self.options.follow is False:
                self._check_any()
                self.pool.finish()
            elif self.options.follow is True:
                self._feeder = threading.Thread(target=self._feed, daemon=True)
                self._feeder.start()

    def stop(self) -> None:
        """End all threads and close all files. What was prefetched is forgotten; a state can still be taken."""
        self._stopping.set()
        self.pool.close()
        for stage in self._maps:
            stage.close()
        if self._feeder is not None:
            self._feeder.join()
        for stage in self._maps:
            stage.join()
        self._inlet.close()
        self._catalog.close()

    def __enter__(self) -> LivePipeline:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __next__(self) -> Arrays:
        return self.get_next()

    def get_next(self, timeout: float | None = None) -> Arrays:
        """The arrays of the next batch.

        Raises `StopIteration` at the end, `TimeoutError` after `timeout` seconds without a batch, the error of a stage
        that failed, `DataError` where no chunk can be used, and `QueueClosed` after `stop`.
        """
        self.start()
        decoded = self._decoded.get(timeout)
        self._sampler.consumed(decoded.index)
        return decoded.arrays

    def maybe_get_next(self) -> Arrays | None:
        """The arrays of the next batch if they are ready, else None. Raises as `get_next`."""
        try:
            return self.get_next(timeout=0)
        except TimeoutError:
            return None

    def poll(self) -> int:
        """Take in what came since the last call; gives how many sources. For `follow="manual"`."""
        self.start()
        opened = self._inlet.poll()
        for name in self._inlet.lost():
            self._catalog.lose(name, "expected the file that was taken, got one that was written anew")
        self._arrive(opened)
        return len(opened)

    def metrics(self) -> dict[str, Any]:
        """Plain values of all stages: see `penstock.live.metrics.Metrics.snapshot`."""
        lo, hi = self.pool.window
        stage = self._metrics.stage("shuffling_chunk_pool")
        stage.gauges.update(chunk_sources=len(self.pool.sources), chunks_current=hi - lo, chunks_total=hi)
        stage.gauges.update(chunks_since_anchor=self.pool.chunks_since_anchor, chunks_capacity=self.options.window)
        stage.gauges.update(draws=self.pool.drawn, reshuffles=self.pool.epoch, open_sources=self._catalog.open_sources)
        self._metrics.stage("shuffling_frame_sampler").gauges.update(frames=self._sampler.held())
        if self._store is not None:
            held = {"cached_chunks": len(self._store), "cached_bytes": self._store.nbytes}
            stage.gauges.update(**held, cache_hits=self._store.hits, cache_misses=self._store.misses)
        if isinstance(self._inlet, ChunkSourceLoader):
            provider = self._metrics.stage("file_path_provider")
            provider.counts = self._inlet.provider.counts
            provider.gauges.update(watching=self._inlet.provider.mode, why=self._inlet.provider.why)
        return self._metrics.snapshot()

    def failures(self) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
        """What could not be used: counts by reason; and name, reason and message of the last of them."""
        return self._metrics.failures(), self._metrics.examples()

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands after the batches that were got: integers, texts and integer arrays, no frames."""
        if not self._started and self._state is not None:
            return dict(self._state)
        with self._lock:
            sampler = self._sampler.state_dict()
            pool = self.pool.state_dict(taken=sampler["taken"])
            tally = self._tally.state_dict()
        held = [[lo, *_fields(arrival)] for lo, arrival in self._catalog.sources_that_left()]
        parts = {"pool": pool, "sampler": sampler, "tally": tally, "left": held}
        return {"version": VERSION, "begun": self._started, "options": self.options.decides(), **parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken, with its next batch. Frames that are needed are read when they are.

        Raises `StateError` for a state of other options, or once the pipeline has started.
        """
        if self._started:
            raise StateError("expected a pipeline that has not started yet, to load a state into")
        mine, theirs = self.options.decides(), state.get("options")
        if state.get("version") != VERSION or mine != theirs:
            raise StateError(f"expected the state of a run with {mine}, got version {state.get('version')}, {theirs}")
        self._state = state if state["begun"] else None

    def _restore(self, state: Mapping[str, Any]) -> None:
        for lo, *fields in state["left"]:
            self._catalog.placed(int(lo), Arrival(*fields))
            self._catalog.left(int(lo))
        self.pool.load_state_dict(state["pool"])
        self._tally.load_state_dict(state["tally"])
        known = [arrival for _, arrival in [*self.pool.sources, *self._catalog.sources_that_left()]]
        self._inlet.resume(known, self.pool.newest)
        self._sampler.load_state_dict(state["sampler"], self._fetch)

    def _fetch(self, chunk: Int, place: Place) -> Iterator[tuple[Int, Block]]:
        """Frames by reference, each chunk read once; those that cannot be had are counted."""
        order = np.argsort(chunk, kind="stable")
        numbers, first = np.unique(chunk[order], return_index=True)
        groups = np.split(order, first[1:])
        pieces = [range(i, min(i + TOGETHER, len(groups))) for i in range(0, len(groups), TOGETHER)]

        def read(piece: range) -> list[tuple[Int, Block]]:
            held = ((groups[i], self._reader.fetch(int(numbers[i]), place[groups[i]].astype(np.int64))) for i in piece)
            found = [(index, block) for index, block in held if block is not None]
            blocks = joined([Part(block, 0, len(block)) for _, block in found])
            return [(np.concatenate([index for index, _ in found]), blocks[0])] if len(blocks) == 1 else found

        lost = len(chunk)
        with OrderedMap(read, pieces, self._threads) as results:
            for result in results:
                yield from result
                lost -= sum(len(index) for index, _ in result)
        if lost:
            self._metrics.stage("restored").add(lost_frames=lost)

    def _arrive(self, opened: Iterable[Opened]) -> None:
        arrivals: list[Arrival] = []
        for arrival, source in opened:
            self._catalog.offer(arrival, source)
            arrivals.append(arrival)
        if arrivals:
            self.pool.arrive(arrivals)

    def _feed(self) -> None:
        try:
            while not self._stopping.is_set():
                self.poll()
                self._inlet.wait(PAUSE)
        except BaseException as error:  # noqa: BLE001  handed to whoever waits for a batch
            self._decoded.close(error)
            self.pool.close()

    def _draws(self) -> Iterator[Draws]:
        try:
            while (draws := self.pool.draw(self.options.draws)) is not None:
                yield draws
        except QueueClosed:
            return

    def _decide(self, loaded: Iterable[Loaded]) -> Iterator[Loaded]:
        for each in loaded:
            yield self._reader.decided(each, self.pool.decide(each.draws, each.weights))

    def _batches(self, unpacked: Iterator[Unpacked]) -> Iterator[Batch]:
        while True:
            yield from self._sampler.ready()
            if self._sampler.ended:
                return
            each = next(unpacked, None)
            if each is None:
                self._check_pass(self._tally.finish())
                self._sampler.finish()
                continue
            with self._lock:
                barren = self._tally.add(each)
                self._sampler.take(each.blocks, each.end)
            self._check_pass(barren)
            self.pool.taken(each.end)
            self._sweep()

    def _sweep(self) -> None:
        self._blocks += 1
        if self._blocks % SWEEP == 0:
            oldest = self._sampler.oldest()
            below = self.pool.oldest() if oldest is None else min(oldest, self.pool.oldest())
            self._catalog.forget(below)
            self._reader.forget(below)

    def _check_pass(self, barren: bool) -> None:
        if barren:
            raise DataError(f"expected chunks that can be used, got none in a whole pass: {self._report()}")

    def _check_any(self) -> None:
        if self.pool.window[1] == 0:
            raise DataError(f"expected chunks to read, got none: {self._report()}")

    def _report(self) -> str:
        """Counts by reason, and the first words about one of each."""
        last = {reason: f"{name}: {message}" for name, reason, message in self._metrics.examples()}
        counts = self._metrics.failures()
        loader = self._inlet.metrics.counts
        others = [f"{loader[name]} files {name}" for name in ("skipped", "empty") if loader[name]]
        words = [f"{n} {reason} ({last.get(reason, '')[:200]})" for reason, n in counts.items()]
        return "; ".join([*words, *others]) or "nothing was found"


def _fields(arrival: Arrival) -> tuple[Any, ...]:
    return arrival.name, arrival.key, arrival.count, arrival.size, arrival.mtime_ns
