"""`LivePipeline`: the stages put together: what grows comes in, batches in a seeded order come out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.boundary import loading_state
from penstock.errors import PlanError, StateError
from penstock.live.block import Block, Part
from penstock.live.chunk_sources import Inlet
from penstock.live.chunk_stages import ChunkStages
from penstock.live.chunks import Hooks, Unpacked, joined
from penstock.live.feed import Feed
from penstock.live.intake import Intake
from penstock.live.join import Joiner
from penstock.live.journal import Journal, Move
from penstock.live.metrics import Metrics
from penstock.live.options import LiveOptions, Stream
from penstock.live.outlet import Outlet
from penstock.live.pool import ShufflingChunkPool
from penstock.live.sampler import Batch, Int, Place, ShufflingFrameSampler
from penstock.live.splitter import SplitPart
from penstock.live.stage import OrderedMap
from penstock.live.tensors import Arrays, Decode, Decoded, TensorGenerator
from penstock.plan.weights import shares

__all__ = ["LiveOptions", "LivePipeline", "Stream"]

VERSION = 2
TOGETHER = 32  # chunks that are read together for a state
STREAM = 48  # bits of a chunk's number in its own pool; above them is the number of the stream


class LivePipeline(Iterator[Arrays]):
    """Batches from what grows: an iterator and a context manager.

    `inlet` gives sources of chunks; `hooks` and `decode` say what frames mean. With a `journal`, the moves of the
    window are written as they take effect, and a run with `replay` of them gives the same batches, bit for bit. The
    order is a function of the options, the files and the journal alone: threads change nothing.

    In place of an inlet, a list of `Stream`: their positions are joined, each having its share of them exactly, and
    mixed in one reservoir. Each has its own window, journal and, if it likes, options and hooks. Frames of stream `i`
    have chunk numbers from `i << 48` on.

    Pipelines that are made with the same inlet, or with parts of it (`ChunkSourceSplitter.split`), share it: it is
    looked at, opened and indexed once. Make, and load states into, all of them before one is started.

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
        inlet: Inlet | SplitPart | Sequence[Stream],
        options: LiveOptions | None = None,
        *,
        hooks: Hooks | None = None,
        decode: Decode | None = None,
        journal: Journal | None = None,
        replay: Sequence[Move] | None = None,
    ) -> None:
        self.options = options = options or LiveOptions()
        self._threads = options.threads or min(4, os.cpu_count() or 1)
        if isinstance(inlet, Inlet | SplitPart):
            streams = [Stream(inlet, journal=journal, replay=replay)]
        elif journal is not None or replay is not None or not inlet:
            raise PlanError("expected at least one stream, and journal and replay to be told of each, not of all")
        else:
            streams = list(inlet)
        self._metrics = Metrics()
        self._lock = threading.RLock()
        self._join = Joiner([stream.weight for stream in streams], options.stop)
        self._weights = [str(share) for share in shares([stream.weight for stream in streams])]
        if hooks is not None and isinstance(hooks.transform, ChunkStages):  # those of all streams
            self._metrics.stages.update({each.name: each for each in hooks.transform.metrics(self._threads)})
        self._feeds = self._make_feeds([replace(s, hooks=s.hooks or hooks) for s in streams])
        self._sampler = self._make_sampler()
        self._make_tensors(decode)
        self._pending: Mapping[str, Any] | None = None  # a state whose frames are not yet asked for
        self._got = self._drops = 0  # batches, of earlier lives too
        self._started = False

    def _make_feeds(self, streams: Sequence[Stream]) -> list[Feed]:
        names = [stream.name or str(i) for i, stream in enumerate(streams)]
        if len(set(names)) < len(names):
            raise PlanError(f"expected streams of different names, got {names}")
        suffixes = [f".{name}" for name in names] if len(streams) > 1 else [""]
        return [
            Feed(stream, stream.options(self.options, i), self._metrics, suffix, self._threads, self._fail, self._sweep)
            for i, (stream, suffix) in enumerate(zip(streams, suffixes, strict=True))
        ]

    def _make_sampler(self) -> ShufflingFrameSampler:
        o, metrics = self.options, self._metrics.stage("shuffling_frame_sampler")
        return ShufflingFrameSampler(o.reservoir, o.batch_size, o.seed, drop_last=o.drop_last, metrics=metrics)

    def _make_tensors(self, decode: Decode | None) -> None:
        """The last stage, which has batches ready, or drops those that nobody gets."""
        o, n = self.options, self._threads
        metrics = self._metrics.stage("tensor_generator", n)
        tensors = TensorGenerator(decode, references=o.references, buffers=o.prefetch + n + 1, metrics=metrics)
        self._decoded: OrderedMap[Batch, Decoded] | Outlet
        if o.overflow == "block":
            ahead = max(o.prefetch, n)
            self._decoded = OrderedMap(
                tensors.decode, self._batches(), n, ahead=ahead, nbytes=o.nbytes, metrics=metrics
            )
        else:
            metrics.threads = 1
            self._decoded = Outlet(
                self._batches(), tensors.decode, o.overflow, o.prefetch, o.nbytes, self._sampler.dropped, metrics
            )

    @property
    def pool(self) -> ShufflingChunkPool:
        """The pool; of several streams, that of the first."""
        return self._feeds[0].pool

    @property
    def pools(self) -> list[ShufflingChunkPool]:
        """The pool of each stream."""
        return [feed.pool for feed in self._feeds]

    @property
    def _intakes(self) -> list[Intake]:
        return list(dict.fromkeys(feed.intake for feed in self._feeds))

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
        if self._pending is not None:
            with self._lock:
                self._join.load_state_dict(self._pending["join"], self._fetched)
                self._sampler.load_state_dict(self._pending["sampler"], self._fetch)
                self._pending = None
        for intake in self._intakes:
            intake.begin()
        if self.options.follow is False:
            for feed in self._feeds:
                feed.finish()
        elif self.options.follow is True:
            for intake in dict.fromkeys(feed.intake for feed in self._feeds if feed.follows):
                intake.follow()

    def stop(self) -> None:
        """End all threads and close all files. What was prefetched is forgotten; a state can still be taken."""
        for feed in self._feeds:
            feed.close()
        self._decoded.close()
        for feed in self._feeds:
            feed.join()
        self._decoded.join()

    def _fail(self, error: BaseException) -> None:
        """What takes in ended with an error: so does this."""
        self._decoded.close(error)
        for feed in self._feeds:
            feed.pool.close()

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
        with self._lock:
            self._sampler.consumed(decoded.index)
            self._got += 1
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
        return sum(intake.poll() for intake in self._intakes)

    def metrics(self) -> dict[str, Any]:
        """Plain values of all stages: see `penstock.live.metrics.Metrics.snapshot`."""
        for feed in self._feeds:
            feed.gauges()
        self._metrics.stage("shuffling_frame_sampler").gauges.update(frames=self._sampler.held())
        return self._metrics.snapshot()

    def failures(self) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
        """What could not be used: counts by reason; and name, reason and message of the last of them."""
        return self._metrics.failures(), self._metrics.examples()

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands after the batches that were got: integers, texts and integer arrays, no frames.

        `got` and `dropped` count batches that the consumer got, and that went to nobody.
        """
        with self._lock:
            held = self._pending
            if held is not None and not any(intake.begun for intake in self._intakes):
                return dict(held)
            streams = [feed.state_dict() for feed in self._feeds]
            join = self._join.state_dict() if held is None else held["join"]
            sampler = self._sampler.state_dict() if held is None else held["sampler"]
            counts = {"got": self._got, "dropped": self._drops + self._decoded.stats()["drops"]}
        own = {"version": VERSION, "stop": self.options.stop, "weights": list(self._weights)}
        return {**own, **counts, "streams": streams, "join": join, "sampler": sampler}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken, with its next batch. Frames that are needed are read when they are.

        Raises `StateError` for a state of other options, or once the pipeline, or another of its inlet, has started.
        """
        if self._started:
            raise StateError("expected a pipeline that has not started yet, to load a state into")
        mine: dict[str, Any] = {"version": VERSION, "stop": self.options.stop, "weights": self._weights}
        theirs = {name: state.get(name) for name in mine}
        if mine != theirs:
            raise StateError(f"expected the state of a run with {mine}, got one with {theirs}")
        for feed, held in zip(self._feeds, state["streams"], strict=True):
            feed.check_state(held)
        for feed, held in zip(self._feeds, state["streams"], strict=True):
            feed.load_state_dict(held)
        self._got, self._drops, self._pending = int(state["got"]), int(state["dropped"]), state

    def _fetch(self, chunk: Int, place: Place) -> Iterator[tuple[Int, Block]]:
        """Frames by reference, each chunk read once; those that cannot be had are counted."""
        order = np.argsort(chunk, kind="stable")
        numbers, first = np.unique(chunk[order], return_index=True)
        groups = np.split(order, first[1:])
        pieces = [range(i, min(i + TOGETHER, len(groups))) for i in range(0, len(groups), TOGETHER)]

        def read(piece: range) -> list[tuple[Int, Block]]:
            held = ((groups[i], self._frames(int(numbers[i]), place[groups[i]].astype(np.int64))) for i in piece)
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

    def _frames(self, chunk: int, places: Int) -> Block | None:
        """Frames by reference to one chunk."""
        i = chunk >> STREAM
        block = self._feeds[i].fetch(chunk - (i << STREAM), places)
        return None if block is None else _of_stream(block, i)

    def _fetched(self, chunk: Int, place: Place) -> Block:
        """Frames in the order of their references, without those that cannot be had."""
        pieces = list(self._fetch(chunk, place)) if len(chunk) else []
        if not pieces:
            return Block(np.zeros((0, 1), np.uint8), chunk[:0], place[:0])
        order = np.argsort(np.concatenate([index for index, _ in pieces]))
        return Block.join([block for _, block in pieces]).take(order)

    def _batches(self) -> Iterator[Batch]:
        while True:
            yield from self._sampler.ready()
            if self._sampler.ended:
                return
            self._mix()
            i = self._join.wanted
            if i is None:
                self._sampler.finish()
                continue
            each = self._feeds[i].next()
            if each is None:
                self._feeds[i].check(self._feeds[i].tally.finish())
                self._join.end(i)
            else:
                self._take(i, each)

    def _take(self, i: int, each: Unpacked) -> None:
        """The next blocks of a stream."""
        feed = self._feeds[i]
        with self._lock:
            barren = feed.tally.add(each)
            feed.end = each.end
            for block in each.blocks if len(self._feeds) == 1 else feed.of_one_width(each.blocks):
                self._join.put(i, _of_stream(block, i))
                self._mix()
        feed.check(barren)
        feed.taken(each)

    def _mix(self) -> None:
        """Hand on what can be joined."""
        with self._lock:
            while (taken := self._join.take()) is not None:
                self._sampler.take([taken[0]], sum(feed.end for feed in self._feeds))

    def _sweep(self) -> None:
        """Forget chunks that neither a pool nor a frame that is held refers to."""
        with self._lock:
            if len(self._feeds) == 1 and self._pending is None:
                self._feeds[0].forget(self._sampler.oldest())
                return
            held = self._references()
        for i, feed in enumerate(self._feeds):
            mine = [chunk[chunk >> STREAM == i] for chunk in held]
            least = [int(chunk.min()) - (i << STREAM) for chunk in mine if len(chunk)]
            feed.forget(min(least, default=None))

    def _references(self) -> list[Int]:
        """The chunks of all frames that are held, or that a state that is yet to be loaded refers to."""
        sampler = self._sampler.state_dict() if self._pending is None else self._pending["sampler"]
        join = self._join.state_dict() if self._pending is None else self._pending["join"]
        held = [sampler["left"][0], *(chunk for _, chunk, _ in sampler["given"]), *(chunk for chunk, _ in join["held"])]
        held += [] if sampler["reservoir"] is None else [sampler["reservoir"]["chunk"]]
        return [np.asarray(chunk, np.int64) for chunk in held]


def _of_stream(block: Block, i: int) -> Block:
    """A block whose chunks have the numbers of stream `i`."""
    return block if i == 0 else Block(block.rows, block.chunk + (i << STREAM), block.place)
