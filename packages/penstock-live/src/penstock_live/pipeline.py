"""`LivePipeline`: returns batches of growing data in a seeded order."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.boundary import loading_state
from penstock.core.turns import HomeProcess
from penstock.data.loadable import Loadable
from penstock.errors import PlanError, StateError
from penstock.flow.limits import PrefetchLimits, cores
from penstock.flow.lossy import LossyQueue
from penstock.flow.metrics import Metrics
from penstock.flow.ordered_map import OrderedMap
from penstock.plan.weights import shares
from penstock_live.chunk_sources import Inlet
from penstock_live.hooks import ChunkFunctions, ChunkStages
from penstock_live.journal import Journal, Move
from penstock_live.mixer import StreamMixer
from penstock_live.options import LiveOptions, Stream
from penstock_live.pool import ShufflingChunkPool
from penstock_live.restoring import sealed
from penstock_live.sampler import SampledBatch
from penstock_live.splitter import SplitPart
from penstock_live.tensors import Arrays, Decode, Decoded, TensorGenerator

__all__ = ["LiveOptions", "LivePipeline", "Stream"]

VERSION = 3


class LivePipeline(Loadable, Iterator[Arrays]):
    """Batches from growing data: an iterator and a context manager.

    `inlet` gives sources of chunks; `hooks` and `decode` convert frames. With a `journal`, the moves of the window are
    written as they take effect, to a `Journal` or to a path, and a run that gets them as `replay` returns the same
    batches, bit for bit. The order depends only on the options, the files and the journal, not on threads.

    `inlet` may also be a list of `Stream`: their positions are joined, each with its exact share, and shuffled in one
    reservoir. Each stream has its own window and journal, and optionally its own options and hooks. Frames of stream
    `i` have chunk numbers from `i << 48` on.

    Pipelines of the same inlet, or of parts of it (`ChunkSourceSplitter.split`), share it: each file is listed, opened
    and indexed once. Create all of them, and load their states, before starting one. A pipeline that is dropped without
    being stopped is stopped by a thread. A pipeline works only in the process that created it.

    A chunk that cannot be used is skipped, counted by its reason, and listed by `failures`; `account` counts the
    outcome of all expected chunks. When a whole pass has no usable chunk, or more than `max_lost` chunks are damaged,
    `DataError` is raised. A stream that follows its files waits while they are unavailable; `status` says so.
    `state_dict` counts the batches that the consumer has received; a run that loads it continues after them.

    Args:
        inlet: Origin of the sources of chunks, a part of a split inlet, or a list of `Stream`.
        options: Options of the run. The default None: all defaults.
        hooks: Functions of the domain for chunks. The default None: frames are used as they are.
        decode: Called as `decode(rows, out)`; returns the arrays of a batch. The default None returns the rows.
        journal: Journal or the path of one, to which moves of the window are written. The default None writes none.
        replay: Moves of an earlier run, to repeat it. The default None repeats nothing.

    Raises:
        PlanError: Options do not fit together, or there is no stream.

    Example:
        >>> import numpy as np, penstock
        >>> from penstock_live.source_chunks import EpisodeInlet
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
        hooks: ChunkFunctions | None = None,
        decode: Decode | None = None,
        journal: Journal | str | os.PathLike[str] | None = None,
        replay: Sequence[Move] | None = None,
    ) -> None:
        self.options = options = options or LiveOptions()
        self._threads = min(4, cores()) if options.threads is None else options.threads
        if isinstance(inlet, Inlet | SplitPart):
            streams = [Stream(inlet, journal=journal, replay=replay)]
        elif journal is not None or replay is not None or not inlet:
            raise PlanError("expected at least one stream, with journal and replay as arguments of each Stream")
        else:
            streams = list(inlet)
        if self._threads == 0 and options.follow is not False and any(stream.replay is None for stream in streams):
            raise PlanError(
                "expected follow=False, or a replay, with threads=0, got a stream that follows its files: nobody would "
                "wait for new files while the caller reads; give threads=None"
            )
        self._metrics, self._home = Metrics(), HomeProcess("pipeline")
        self._weights = [str(share) for share in shares([stream.weight for stream in streams])]
        if hooks is not None and isinstance(hooks.transform, ChunkStages):  # stages that all streams share
            self._metrics.stages.update({each.name: each for each in hooks.transform.metrics(max(self._threads, 1))})
        streams = [replace(stream, hooks=stream.hooks or hooks) for stream in streams]
        self._mixer = StreamMixer(streams, options, self._metrics, self._threads)
        self._streams = self._mixer.streams
        self._decoded = self._make_tensors(decode)
        self._mixer.stages.append(self._decoded)
        self._got = self._drops = 0  # batches, of earlier lives too
        self._started = False
        self._finalizer = weakref.finalize(self, _stop_later, self._mixer, self._home)
        self._finalizer.atexit = False  # threads that are daemons end with the process

    def _make_tensors(
        self, decode: Decode | None
    ) -> OrderedMap[SampledBatch, Decoded] | LossyQueue[SampledBatch, Decoded]:
        """Return the last stage, which keeps batches ready, or drops batches when the consumer is slow."""
        o = self.options
        n = self._threads
        mixer = self._mixer
        metrics = self._metrics.stage("tensor_generator", max(n, 1))
        tensors = TensorGenerator(decode, references=o.references, buffers=o.prefetch + n + 1, metrics=metrics)
        if o.overflow == "block":
            limits = PrefetchLimits(n, max(o.prefetch, n), o.nbytes)
            return OrderedMap(tensors.decode, mixer.batches(), limits, metrics=metrics)
        metrics.threads = 1
        limits = PrefetchLimits(1, o.prefetch, o.nbytes)
        return LossyQueue(tensors.decode, mixer.batches(), limits, o.overflow, on_drop=mixer.dropped, metrics=metrics)

    @property
    def pool(self) -> ShufflingChunkPool:
        """The pool; with several streams, the pool of the first."""
        return self._streams[0].pool

    @property
    def pools(self) -> list[ShufflingChunkPool]:
        """The pool of each stream."""
        return [stream.pool for stream in self._streams]

    @property
    def status(self) -> str:
        """Present activity: `reading`, or what the pipeline waits for, such as an unmounted disk."""
        every = [stream.status for stream in self._streams]
        return next((status for status in every if status != "reading"), "reading")

    def account(self) -> dict[str, int]:
        """Return the counts of the outcomes of all expected chunks, by name.

        `expected` is the sum of `read`, `torn`, `gone`, `refused`, `failed`, `expired` and `waiting`: see
        `penstock_live.account.ChunkAccount`.
        """
        return self._mixer.account()

    def start(self) -> None:
        """Take the existing files and start prefetching. `get_next` calls it automatically.

        If it fails, all files are closed, and another run may use the journal. Raises `DataError` if there are no
        chunks and none can come, and `WorkerError` in a forked process.
        """
        self._home.check()
        if self._started:
            return
        self._started = True
        try:
            self._mixer.begin(self.options)
        except BaseException as error:
            self._decoded.close(error)
            self._mixer.stop()
            raise
        self._decoded.start()

    def stop(self) -> None:
        """End all threads and close all files. Prefetched batches are dropped; `state_dict` still works.

        Does nothing in a forked process.
        """
        if self._home.is_here:
            self._finalizer.detach()
            self._mixer.stop()

    def __enter__(self) -> LivePipeline:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __next__(self) -> Arrays:
        return self.get_next()

    def get_next(self, timeout: float | None = None) -> Arrays:
        """Return the arrays of the next batch.

        With `threads=0`, this call reads and decodes the batch, and no `timeout` cuts that short.

        Raises `StopIteration` at the end, `TimeoutError` after `timeout` seconds without a batch, the error of a stage
        that failed or of a function of the user's, `DataError` where no chunk can be used or more than `max_lost` are
        lost, `QueueClosed` after `stop`, and `WorkerError` in a forked process.

        Args:
            timeout: Seconds to wait. The default None waits for ever.
        """
        decoded = self.take(timeout)
        self.received(decoded.index)
        return decoded.arrays

    def take(self, timeout: float | None = None) -> Decoded:
        """Return the next batch with its number. A state counts it after `received`. Raises as `get_next`.

        Args:
            timeout: Seconds to wait. The default None waits for ever.
        """
        self.start()
        return self._decoded.get(timeout)

    def received(self, index: int) -> None:
        """Count batch `index` as received. A later state continues after it.

        Args:
            index: Number of the batch.
        """
        with self._mixer.lock:
            self._mixer.received(index)
            self._got += 1

    @property
    def fingerprint(self) -> str:
        """Digest of all options that decide the order, without the data, which grow."""
        own = {"version": VERSION, "stop": self.options.stop, "weights": self._weights}
        decisions = {**own, "streams": [stream.decides() for stream in self._streams]}
        return hashlib.sha256(json.dumps(decisions, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def repeatable(self) -> bool:
        """Whether every run gives the same batches, because no stream follows its files."""
        return not any(stream.follows for stream in self._streams)

    def maybe_get_next(self) -> Arrays | None:
        """Return the arrays of the next batch if they are ready, else None. Raises as `get_next`."""
        try:
            return self.get_next(timeout=0)
        except TimeoutError:
            return None

    def poll(self) -> int:
        """Take the new files since the last call; return how many sources. For `follow="manual"`."""
        self.start()
        return sum(intake.poll() for intake in self._mixer.intakes)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of all stages: see `penstock.flow.metrics.Metrics.snapshot`."""
        self._home.check()
        for stream in self._streams:
            stream.gauges()
        self._metrics.stage("shuffling_frame_sampler").gauges.update(frames=self._mixer.buffered_frames())
        return self._metrics.snapshot()

    def failures(self) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
        """Return the counts of unusable chunks by reason; and name, reason and message of the last ones."""
        return self._metrics.failures(), self._metrics.examples()

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the received batches: integers, strings and integer arrays, no frames.

        `got` and `dropped` count the batches that the consumer received and the batches that were dropped.
        """
        self._home.check()
        mixer = self._mixer
        with mixer.lock:
            if (loaded := mixer.untouched_state()) is not None:
                return dict(loaded)
            stages = mixer.state_dict()
            counts = {"got": self._got, "dropped": self._drops + self._decoded.stats()["drops"]}
        own = {"version": VERSION, "stop": self.options.stop, "weights": list(self._weights)}
        return sealed({**own, **counts, **stages})

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, with its next batch. Frames are read when they are needed.

        Args:
            state: Output of `state_dict`.

        Raises:
            StateError: The state is of other options or was changed (its checksum tells), or the pipeline, or another
                one of its inlet, has started.
        """
        if self._started:
            raise StateError("expected a pipeline that has not started yet, to load a state into")
        mine: dict[str, Any] = {"version": VERSION, "stop": self.options.stop, "weights": self._weights}
        theirs = {name: state.get(name) for name in mine}
        if mine != theirs:
            raise StateError(f"expected the state of a run with {mine}, got one with {theirs}")
        self._mixer.load_state_dict(state)
        self._got = int(state["got"])
        self._drops = int(state["dropped"])


def _stop_later(mixer: StreamMixer, home: HomeProcess) -> None:
    """Stop the threads of a pipeline without references, in another thread.

    The calling thread may be one of the threads to stop, or may have one of their locks.
    """
    if home.is_here:
        threading.Thread(target=mixer.stop, daemon=True).start()
