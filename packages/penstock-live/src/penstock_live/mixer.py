"""`StreamMixer`: makes batches from the positions of one or several streams."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from penstock.errors import PlanError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import Metrics
from penstock.flow.ordered_map import OrderedMap
from penstock_live.account import FIGURES
from penstock_live.block import Block, Part
from penstock_live.chunks import Unpacked, joined
from penstock_live.events import PipelineFailure
from penstock_live.intake import Intake
from penstock_live.join import Joiner
from penstock_live.options import LiveOptions, Stream
from penstock_live.restoring import Int, Place, check_seal
from penstock_live.sampler import SampledBatch, ShufflingFrameSampler
from penstock_live.stream import LiveStream

TOGETHER = 32  # chunks that are read together for a state
STREAM = 48  # bits of a chunk's number in its own pool; above them is the number of the stream
LOG = logging.getLogger("penstock_live")


class LiveStage(Protocol):
    """Stage of a pipeline with threads."""

    def close(self) -> None:
        """Start no further work."""
        ...

    def join(self) -> None:
        """Wait for the threads of the closed stage, and close its files."""
        ...


class StreamMixer:
    """Joins the positions of streams, mixes them in one reservoir and cuts them into batches.

    All threads of a pipeline refer to this, and none to the `LivePipeline` itself: so one that is dropped without being
    stopped is noticed, and ends them. `stages` are its stages with threads, from files to batches: the streams, and
    behind them the stage of the pipeline that works on the batches.

    Frames of stream `i` have chunk numbers from `i << 48` on. `lock` guards everything that a state has in it.
    """

    def __init__(self, streams: Sequence[Stream], options: LiveOptions, metrics: Metrics, threads: int) -> None:
        self.lock = threading.RLock()
        self._pending: Mapping[str, Any] | None = None  # a state whose frames are not yet asked for
        self._metrics, self._threads = metrics, threads
        self._is_running = False
        self._join = Joiner([stream.weight for stream in streams], options.stop)
        names = [stream.name or str(i) for i, stream in enumerate(streams)]
        if len(set(names)) < len(names):
            raise PlanError(f"expected streams of different names, got {names}")
        suffixes = [f".{name}" for name in names] if len(streams) > 1 else [""]
        failure = PipelineFailure()
        self.streams = [
            LiveStream(stream, stream.options(options, i), metrics, suffix, threads, failure)
            for i, (stream, suffix) in enumerate(zip(streams, suffixes, strict=True))
        ]
        self.stages: list[LiveStage] = [*self.streams]
        self._sampler = ShufflingFrameSampler(
            options.reservoir,
            options.batch_size,
            options.seed,
            drop_last=options.drop_last,
            metrics=metrics.stage("shuffling_frame_sampler"),
        )

    @property
    def intakes(self) -> list[Intake]:
        """Intakes of all streams, each once."""
        return list(dict.fromkeys(stream.intake for stream in self.streams))

    def begin(self, options: LiveOptions) -> None:
        """Take the existing sources, and start to follow the inlets of streams that follow."""
        self._is_running = True
        if self._pending is not None:
            with self.lock:
                self._join.load_state_dict(self._pending["join"], self._fetch)
                self._sampler.load_state_dict(self._pending["sampler"], self._fetch)
                self._pending = None
        for intake in self.intakes:
            intake.begin()
        if options.follow is False:
            for stream in self.streams:
                stream.finish()
        elif options.follow is True:
            for intake in dict.fromkeys(stream.intake for stream in self.streams if stream.follows):
                intake.follow()

    def stop(self) -> None:
        """End all threads, close all files, and unlock the journals. Stopping twice is fine."""
        for stage in self.stages:
            stage.close()
        for stage in self.stages:
            stage.join()
        if self._is_running:
            self._is_running = False
            counts = self.account()
            level = logging.WARNING if counts["torn"] or counts["gone"] or counts["failed"] else logging.INFO
            summary = ", ".join(f"{counts[name]:,} {name}" for name in FIGURES if counts[name] or name == "expected")
            LOG.log(level, "a live run stops; chunks: %s", summary)

    def received(self, index: int) -> None:
        """Count batch `index` as received: a later state does not name its frames."""
        with self.lock:
            self._sampler.consumed(index)

    def dropped(self, batch: SampledBatch) -> None:
        """Forget a batch that no consumer gets."""
        self._sampler.dropped(batch)

    def buffered_frames(self) -> int:
        """Return the number of frames in the reservoir."""
        return self._sampler.held()

    def account(self) -> dict[str, int]:
        """Return the counts of the chunks of all streams: see `penstock_live.account.ChunkAccount`."""
        every = [stream.figures() for stream in self.streams]
        return {name: sum(counts[name] for counts in every) for name in FIGURES}

    def batches(self) -> Iterator[SampledBatch]:
        """Yield the batches in order. Waits for data."""
        while True:
            yield from self._sampler.ready()
            if self._sampler.ended:
                return
            self._mix()
            i = self._join.wanted
            if i is None:
                self._sampler.finish()
                continue
            each = self.streams[i].next()
            if each is None:
                self._join.end(i)
            else:
                self._take(i, each)

    def _take(self, i: int, each: Unpacked) -> None:
        """Join and mix the next blocks of a stream."""
        stream = self.streams[i]
        with self.lock:
            blocks, barren = stream.take(each, one_width=len(self.streams) > 1)
            for block in blocks:
                self._join.put(i, _of_stream(block, i))
                self._mix()
        if stream.settle(each, barren):
            self._update_references()
            for each_stream in self.streams:
                each_stream.forget()

    def _mix(self) -> None:
        """Pass joined frames to the sampler."""
        with self.lock:
            while (taken := self._join.take()) is not None:
                self._sampler.take([taken[0]], sum(stream.end for stream in self.streams))

    def _fetch(self, chunk: Int, place: Place) -> Iterator[tuple[Int, Block]]:
        """Yield frames by reference; each chunk is read once. Frames that cannot be read are counted."""
        order = np.argsort(chunk, kind="stable")
        numbers, first = np.unique(chunk[order], return_index=True)
        groups = np.split(order, first[1:])
        pieces = [range(i, min(i + TOGETHER, len(groups))) for i in range(0, len(groups), TOGETHER)]

        def read(piece: range) -> list[tuple[Int, Block]]:
            frames = ((groups[i], self._frames(int(numbers[i]), place[groups[i]].astype(np.int64))) for i in piece)
            loaded = [(index, block) for index, block in frames if block is not None]
            blocks = joined([Part(block, 0, len(block)) for _, block in loaded])
            return [(np.concatenate([index for index, _ in loaded]), blocks[0])] if len(blocks) == 1 else loaded

        lost = len(chunk)
        with OrderedMap(read, pieces, PrefetchLimits(self._threads, 2 * self._threads + 2)) as results:
            for result in results:
                yield from result
                lost -= sum(len(index) for index, _ in result)
        if lost:
            self._metrics.stage("restored").add(lost_frames=lost)

    def _frames(self, chunk: int, places: Int) -> Block | None:
        i = chunk >> STREAM
        block = self.streams[i].fetch(chunk - (i << STREAM), places)
        return None if block is None else _of_stream(block, i)

    def _update_references(self) -> None:
        """Set the smallest number of the chunks of each stream that a buffered frame is from."""
        with self.lock:
            if len(self.streams) == 1 and self._pending is None:
                self.streams[0].referenced = self._sampler.oldest()
                return
            references = self._references()
        for i, stream in enumerate(self.streams):
            mine = [chunk[chunk >> STREAM == i] for chunk in references]
            least = [int(chunk.min()) - (i << STREAM) for chunk in mine if len(chunk)]
            stream.referenced = min(least, default=None)

    def _references(self) -> list[Int]:
        """Return the chunks of all buffered frames, and of all frames of a state that is not loaded yet."""
        join, sampler = self._frames_state()
        references = [
            sampler["left"][0],
            *(chunk for _, chunk, _ in sampler["given"]),
            *(chunk for chunk, _ in join["held"]),
        ]
        references += [] if sampler["reservoir"] is None else [sampler["reservoir"]["chunk"]]
        return [np.asarray(chunk, np.int64) for chunk in references]

    def _frames_state(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the states of join and sampler: as loaded, as long as their frames are not asked for."""
        if self._pending is not None:
            return self._pending["join"], self._pending["sampler"]
        return self._join.state_dict(), self._sampler.state_dict()

    def untouched_state(self) -> Mapping[str, Any] | None:
        """Return the loaded state as long as nothing has begun since; None otherwise."""
        return None if any(intake.begun for intake in self.intakes) else self._pending

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the streams, of the join and of the sampler. Call it with `lock`."""
        streams = [stream.state_dict() for stream in self.streams]
        join, sampler = self._frames_state()
        return {"streams": streams, "join": join, "sampler": sampler}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of a pipeline. Frames are asked for at the start."""
        for stream, stream_state in zip(self.streams, state["streams"], strict=True):
            stream.check_state(stream_state)
        check_seal(state)
        for stream, stream_state in zip(self.streams, state["streams"], strict=True):
            stream.load_state_dict(stream_state)
        self._pending = state
        self._update_references()


def _of_stream(block: Block, i: int) -> Block:
    """Return a block with the chunk numbers of stream `i`."""
    return block if i == 0 else Block(block.rows, block.chunk + (i << STREAM), block.place)
