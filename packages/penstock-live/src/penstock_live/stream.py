"""`LiveStream`: one pool and the stages that read the chunks that it draws.

The stream owns an event log (`penstock_live.events`). Its stages append to it from any thread, and `catch_up` alone
applies it, one event after the other, to pool, catalog and account. It runs before each draw, so that a source that is
gone is not drawn again, and after it, so that the catalog knows every number that a reading thread gets. Nothing below
refers to the stream, and the stream refers to nothing above it: `PipelineFailure` carries an error of the intake to the
next draw of all streams of a pipeline, from where it travels in the order of the results.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import loading_state
from penstock.errors import DataError, StateError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import Metrics
from penstock.flow.ordered_map import OrderedMap
from penstock.flow.queue import SLICE
from penstock_live.account import ChunkAccount, Outcome, outcome_of
from penstock_live.block import Block
from penstock_live.catalog import ChunkCatalog
from penstock_live.chunk_loader import ChunkLoader
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.chunks import ChunkReader, Loaded, Unpacked
from penstock_live.events import (
    ChunkGone,
    Event,
    EventLog,
    FileFailed,
    FilesDeleted,
    IntakeFailed,
    PipelineFailure,
    SourceLeft,
    SourceOpened,
    SourcePlaced,
    SourceRemoved,
    SourcesArrived,
)
from penstock_live.extractor import SimpleChunkExtractor
from penstock_live.hanse import HanseSampling
from penstock_live.hooks import ChunkFunctions, ChunkStages
from penstock_live.intake import Intake
from penstock_live.journal import Arrival, Journal
from penstock_live.options import LiveOptions, Stream
from penstock_live.pool import Draws, ShufflingChunkPool
from penstock_live.position_store import PositionStore
from penstock_live.splitter import SplitPart
from penstock_live.unpacker import ChunkUnpacker

NAMES = ("epoch", "good", "bad", "unread", "frames", "idle")
Barren = Literal["bad", "unread", "idle"]


class PassStats:
    """Counts of the present pass. `add` says whether the pass before it was barren, and why: chunks failed and none was
    good (`"bad"`), none could be read for now (`"unread"`), or `patience` passes gave no frame (`"idle"`).
    """

    def __init__(self, patience: int = 64) -> None:
        self.patience = patience
        self.epoch: int = 0
        self.good = self.bad = self.unread = self.frames = self.idle = 0

    def add(self, unpacked: Unpacked) -> Barren | None:
        """Count draws."""
        barren = None
        if unpacked.epoch != self.epoch:
            barren = self.finish()
            self.epoch = unpacked.epoch
            self.good = 0
            self.bad = 0
            self.unread = 0
            self.frames = 0
        self.good += unpacked.good
        self.bad += unpacked.bad
        self.unread += unpacked.unread
        self.frames += sum(map(len, unpacked.blocks))
        return barren

    def finish(self) -> Barren | None:
        """Return why the ending pass is barren, if it is."""
        if self.good == 0 and self.unread > 0 and self.bad == 0:
            return "unread"  # which says nothing about passes in which chunks can be read
        self.idle = 0 if self.frames else self.idle + 1
        if self.good == 0 and self.bad > 0:
            return "bad"
        return "idle" if self.idle >= self.patience else None

    def state_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in NAMES}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from counts."""
        for name in NAMES:
            setattr(self, name, int(state[name]))


PAUSE = 0.2  # seconds to wait after a pass in which nothing could be read
PATIENCE = 64  # passes without a frame after which there will be none
CHEAP = 4  # factor for draws read together if most cost little: positions are cached, or chunks rejected
ALONE = 16  # the same for draws of one frame each, which is read alone
SWEEP = 1024  # blocks, or sources, after which unreachable chunks are forgotten


class LiveStream:
    """Iterator over blocks of positions of one stream, in the order of its draws. Gets its sources from an `Intake`.

    `options` are the options of the stream; `suffix` is appended to the names of its stages; `failure` is shared by the
    streams of a pipeline. `referenced` is set by the owner, which buffers frames: at most the smallest number of the
    chunks that they are from; None for no frames.

    A stream that follows its files waits where others end: while no file can be read, and when all sources are gone.
    `status` says what it waits for.
    """

    def __init__(
        self,
        stream: Stream,
        options: LiveOptions,
        metrics: Metrics,
        suffix: str,
        threads: int,
        failure: PipelineFailure,
    ) -> None:
        self.options, self._failure = options, failure
        self._metrics = metrics
        self._suffix = suffix
        self._replays = stream.replay is not None
        self.part = stream.inlet if isinstance(stream.inlet, SplitPart) else None
        self.known: dict[str, Arrival] | None = None
        self.events = EventLog()
        self._applying = threading.RLock()
        self._owns_journal = isinstance(stream.journal, str | os.PathLike)
        self._journal = Journal(stream.journal) if isinstance(stream.journal, str | os.PathLike) else stream.journal
        self.intake = Intake.of(stream.inlet)
        if self.intake.inlet.metrics not in metrics.stages.values():
            metrics.stages[f"chunk_source_loader{suffix}"] = self.intake.inlet.metrics
        self.account = ChunkAccount(options.max_lost, retries=self.follows)
        self._stopping = threading.Event()
        self._unreadable = False
        self.intake.join(self)
        self._catalog = ChunkCatalog(self.intake, part=self.part, events=self.events)
        self._hanse = None if options.hanse_gamma is None else HanseSampling(options.hanse_gamma, options.seed)
        self.pool = self._make_pool(stream)
        self.end = self._blocks = self._sources = 0
        self.referenced: int | None = None
        self._width: int | None = None
        self._tally = PassStats(PATIENCE + (int(1 / options.share) if options.share else 0))
        self._make_reader(stream.hooks or ChunkFunctions(), threads)

    def _make_pool(self, stream: Stream) -> ShufflingChunkPool:
        o = self.options
        common: dict[str, Any] = {"events": self.events, "journal": self._journal, "replay": stream.replay}
        if stream.in_turn:
            return SimpleChunkExtractor(o.seed, **common)
        passes = 1 if o.passes is None and o.follow is False else o.passes
        return ShufflingChunkPool(o.window, o.seed, passes=passes, hanse=self._hanse, **common)

    def _make_reader(self, hooks: ChunkFunctions, n: int) -> None:
        """Build the stages for chunks, in order; each starts at the first request for a result."""
        o = self.options
        unpacker = ChunkUnpacker(rate=o.share, count=o.count, seed=o.seed)
        stage = self._metrics.stage(f"chunk_unpacker{self._suffix}", max(n, 1))
        self._store = PositionStore(o.ahead, o.store_bytes) if o.ahead else None
        if isinstance(hooks.transform, ChunkStages):
            runs_it = "chunk_unpacker" if self._hanse is None else "chunk_loading"
            for each in hooks.transform.metrics(max(n, 1)):
                each.gauges["part_of"] = f"{runs_it}{self._suffix}"  # whose threads do its work
                if each not in self._metrics.stages.values():  # several streams may have it
                    self._metrics.stages[f"{each.name}{self._suffix}"] = each
        # What does not follow has no reason to wait for a disk: what cannot be read now is lost to it.
        known = {"weighs": self._hanse is not None, "waits": self.follows}
        self._loader = ChunkLoader(self._catalog, hooks, stage, self.account, self.events, **known)
        self._reader = ChunkReader(self._loader, unpacker, self._hanse, self._store)
        self.maps: list[OrderedMap[Any, Any]] = []
        limits = PrefetchLimits(n, 2 * n + 2, o.nbytes)
        if self._hanse is None:
            unpacked = OrderedMap(self._reader.read, self._draws(), limits, metrics=stage)
        else:
            loading = self._metrics.stage(f"chunk_loading{self._suffix}", max(n, 1))
            loaded = OrderedMap(self._reader.load, self._draws(), limits, metrics=loading)
            self.maps.append(loaded)
            unpacked = OrderedMap(self._reader.unpack, self._decide(loaded), limits, metrics=stage)
        self._unpacked: OrderedMap[Any, Unpacked] = unpacked
        self.maps.append(unpacked)

    def _draws(self) -> Iterator[Draws]:
        together = self.options.draws * self._factor()
        while True:
            self._failure.check()
            self.catch_up()
            try:
                draws = self.pool.draw(together, SLICE)
            except TimeoutError:
                continue  # the window is empty
            if draws is None:
                return
            self.catch_up()
            yield draws

    def _factor(self) -> int:
        """Return the factor for draws read together: more if they cost little, but few frames of each."""
        if self.intake.inlet.reads_frames_alone and not self._loader.hooks.needs_whole:
            share = self.options.share or 1
            return max(1, ALONE // self.options.count if self.options.count else int(1 / share))
        return CHEAP if self._store is not None or self._hanse is not None else 1

    def _decide(self, loaded: Iterable[Loaded]) -> Iterator[Loaded]:
        for each in loaded:
            yield self._reader.decided(each, self.pool.decide(each.draws, each.weights))

    def next(self) -> Unpacked | None:
        """Return the blocks of the next draws; None at the end. Waits. Raises as `check`."""
        each = next(self._unpacked, None)
        if each is None:
            self.check(self._tally.finish())
        return each

    def take(self, each: Unpacked, *, one_width: bool) -> tuple[list[Block], Barren | None]:
        """Count some draws as taken; return their blocks, and whether the pass before was barren, for `settle`.

        The owner buffers the frames from now on, so `referenced` includes them. With `one_width`, blocks whose rows
        are of another width than the first block ever are dropped and counted.
        """
        barren = self._tally.add(each)
        self.end = each.end
        blocks = self._of_one_width(each.blocks) if one_width else each.blocks
        least = [int(block.chunk.min()) for block in blocks if len(block)]
        self.referenced = min(least if self.referenced is None else [*least, self.referenced], default=None)
        return blocks, barren

    def settle(self, each: Unpacked, barren: Barren | None) -> bool:
        """Mark draws whose blocks were taken as done: a state does not repeat them. Return whether to sweep.

        Raises as `check`.
        """
        self.check(barren)
        self.pool.taken(each.end)
        self._blocks += 1
        return self._blocks % SWEEP == 0

    def _of_one_width(self, blocks: list[Block]) -> list[Block]:
        blocks_kept: list[Block] = []
        for block in blocks:
            self._width = block.width if self._width is None else self._width
            if block.width == self._width:
                blocks_kept.append(block)
            else:
                self._reader.metrics.add(**{"failed.width": len(block)})
        return blocks_kept

    # What the intake looks at.

    @property
    def newest(self) -> str:
        """Greatest key of all sources that arrived."""
        return self.pool.newest

    @property
    def wanted(self) -> int:
        """Number of existing chunks to take at the start."""
        is_whole = self.options.follow is False and self.pool.window[1] > 0
        return 0 if self._replays or is_whole else self.pool.size

    @property
    def follows(self) -> bool:
        """Whether the stream takes new files."""
        return self.options.follow is not False and not self._replays

    # Events.

    def receive(self, event: Event) -> None:
        """Apply an event now, after all earlier ones. Any thread."""
        with self._applying:
            self.events.append(event)
            self.catch_up()

    def catch_up(self) -> None:
        """Apply all events so far, in their order. Any thread; when it returns, none is half applied."""
        with self._applying:
            while self.events:
                self._apply(self.events.popleft())

    def _apply(self, event: Event) -> None:
        """Apply one event. Events that follow from it are appended to the log."""
        match event:
            case SourcesArrived(opened):
                for arrival, source in opened:
                    self._catalog.offer(arrival, source)
                self.pool.arrive([arrival for arrival, _ in opened])
            case SourcePlaced(lo, arrival):
                self.account.place(lo, arrival)
                self._catalog.place(lo, arrival)
                self._sources += 1
                if self._sources % SWEEP == 0:
                    self.forget()
            case SourceOpened(lo, torn):
                self.account.tear(lo, torn)
            case SourceLeft(lo):
                self._catalog.leave(lo)
            case SourceRemoved(lo, arrival):
                self.account.settle(range(lo, lo + arrival.count), Outcome.GONE)
                self._catalog.leave(lo)
            case FilesDeleted(names, why):
                self._remove(self._catalog.lose(names, why))
            case ChunkGone(number):
                self._remove([number])
            case FileFailed(name, error):
                self.account.file(name, outcome_of(error))
                try:
                    self.account.check(self._report)
                except DataError as lost:
                    self._failure.set(lost)
            case IntakeFailed(error):
                self._failure.set(error)

    def _remove(self, numbers: list[int]) -> None:
        """Remove the sources of chunks from the window. A stream that does not follow its files draws them on."""
        if self.follows:
            self.pool.remove(numbers)

    # Called by the pipeline.

    def finish(self) -> None:
        """End the arrival of sources."""
        self.catch_up()
        if self.pool.window[1] == 0 and not self._replays:
            raise DataError(f"expected chunks to read, got none: {self._report()}")
        self.pool.finish()

    def check(self, barren: Barren | None) -> None:
        """Raise `DataError` if too many chunks are lost, or if a whole pass had no usable chunk.

        If no chunk could be read for now and more may come, wait a moment instead.
        """
        self.catch_up()
        self.account.check(self._report)
        is_unread = barren == "unread" and self.follows
        self._unreadable = is_unread or (self._unreadable and self._tally.good == 0)
        if is_unread:
            self._stopping.wait(PAUSE)
        elif barren is not None:
            raise DataError(f"expected chunks that can be used, got none in a whole pass: {self._report()}")

    @property
    def status(self) -> str:
        """Present activity: `reading`, or what the stream waits for."""
        self.catch_up()
        if self.follows and (away := self.intake.inlet.away):
            return f"waiting for files: {away}"
        if self._unreadable:
            return "waiting: no chunk of the window can be read"
        if self.follows and self.pool.chunks == 0:
            return "waiting for the first files" if self.pool.window[1] == 0 else "waiting for new files"
        return "reading"

    def figures(self) -> dict[str, int]:
        """Return the counts of the chunks of this stream by name."""
        self.catch_up()
        return self.account.figures(self.pool.window[0])

    def fetch(self, number: int, places: npt.NDArray[np.int64]) -> Block | None:
        """Return frames by reference; None if they cannot be read."""
        return self._loader.fetch(number, places)

    def forget(self) -> None:
        """Forget chunks that can neither be drawn nor be referenced any more. Any thread.

        The pool is asked first: frames of a draw that leaves its log in between are in `referenced` by then, and frames
        of later draws are of its window.
        """
        below = self.pool.oldest()
        if self.referenced is not None:
            below = min(below, self.referenced)
        self._catalog.forget(below)
        self._reader.forget(below)
        self.account.forget(below)

    def gauges(self) -> None:
        """Update the gauges of the stages."""
        self.catch_up()
        (lo, hi), current = self.pool.window, self.pool.chunks
        stage = self._metrics.stage(f"shuffling_chunk_pool{self._suffix}")
        stage.gauges.update(chunk_sources=len(self.pool.sources), chunks_current=current, chunks_total=hi)
        stage.gauges.update({f"chunks_{name}": n for name, n in self.account.figures(lo).items()}, status=self.status)
        stage.gauges.update(chunks_since_anchor=self.pool.chunks_since_anchor, chunks_capacity=self.pool.size)
        stage.gauges.update(draws=self.pool.drawn, reshuffles=self.pool.epoch, open_sources=self._catalog.open_sources)
        if self._store is not None:
            cache_sizes = {"cached_chunks": len(self._store), "cached_bytes": self._store.nbytes}
            stage.gauges.update(**cache_sizes, cache_hits=self._store.hits, cache_misses=self._store.misses)
            stage.gauges.update(cached=self._store.added, cache_dropped=self._store.turned_away)
            stage.gauges.update(cached_positions=self._store.positions)
        if isinstance(self.pool, SimpleChunkExtractor):
            stage.gauges.update(sources_processed=self.pool.sources_processed)
        inlet = self.intake.inlet
        if isinstance(inlet, ChunkSourceLoader):
            provider = self._metrics.stage(f"file_path_provider{self._suffix}")
            provider.counts = inlet.provider.counts
            provider.gauges.update(watching=inlet.provider.mode, why=inlet.provider.why)

    def close(self) -> None:
        """Start no further work."""
        self._stopping.set()
        self._loader.stop_waiting()
        self.pool.close()
        for stage in self.maps:
            stage.close()

    def join(self) -> None:
        """Wait for the threads of the closed stages, and close all files."""
        for stage in self.maps:
            stage.join()
        self.intake.leave(self)
        self._catalog.close()
        if self._owns_journal and self._journal is not None:
            self._journal.close()

    def state_dict(self) -> dict[str, Any]:
        """Of the draws that were taken: the pool, and what left its window and may be asked for again."""
        with self._applying:
            self.catch_up()
            pool = self.pool.state_dict(taken=self.end)
            self.catch_up()  # a replay moves the window at any time: what left it by now has to be in `left`
            departed = [[lo, *astuple(arrival)] for lo, arrival in self._catalog.sources_that_left()]
            mine = {"tally": self._tally.state_dict(), "account": self.account.state_dict()}
        return {**self.decides(), "end": self.end, "pool": pool, "left": departed, **mine}

    def decides(self) -> dict[str, Any]:
        """Return the options that decide the order of the stream, for states."""
        return {"options": self.options.decides(), "in_turn": isinstance(self.pool, SimpleChunkExtractor)}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise `StateError` for a state of other options."""
        mine = self.decides()
        theirs = {name: state.get(name) for name in mine}
        if mine != theirs:
            raise StateError(f"expected the state of a run with {mine}, got one with {theirs}")

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.intake.begun or self.pool.window[1]:
            raise StateError("expected states to be loaded before anything has started that reads the same data")
        self.account.load_state_dict(state["account"])
        for lo, *fields in state["left"]:
            self._catalog.place(int(lo), Arrival(*fields))
            self._catalog.leave(int(lo))
        self.pool.load_state_dict(state["pool"])
        self.catch_up()
        self._tally.load_state_dict(state["tally"])
        self.end = int(state["end"])
        known = [arrival for _, arrival in [*self.pool.sources, *self._catalog.sources_that_left()]]
        self.known = {arrival.name: arrival for arrival in known}

    def _report(self) -> str:
        """Counts by reason, and the first words about one of each."""
        last = {reason: f"{name}: {message}" for name, reason, message in self._metrics.examples()}
        counts = self._metrics.failures()
        loader = self.intake.inlet.metrics.counts
        others = [f"{loader[name]} files {name}" for name in ("skipped", "empty") if loader[name]]
        words = [f"{n} {reason} ({last.get(reason, '')[:200]})" for reason, n in counts.items()]
        return "; ".join([*words, *others]) or "nothing was found"
