"""`DataLoader` and `make_dataloader`: the interface of Leela Chess Zero's loader over penstock's live stages."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray
from penstock.core.boundary import loading_state
from penstock.core.narrowing import is_mapping
from penstock.errors import PlanError, StateError
from penstock_chess.lczero import messages
from penstock_chess.lczero.assembly import Assembly
from penstock_chess.lczero.binding import is_protobuf, load_config, load_request
from penstock_chess.lczero.config import (
    QueueConfig,
    ShufflingChunkPoolConfig,
    ShufflingChunkPoolControlRequest,
    ShufflingChunkPoolControlResponse,
    StageControlResponse,
)
from penstock_chess.lczero.graph import Branch, Feed, Graph
from penstock_chess.lczero.history import History
from penstock_chess.lczero.metrics import stage_metrics
from penstock_chess.tensors import ChessTensors
from penstock_live.pipeline import LiveOptions, LivePipeline
from penstock_live.pool import ShufflingChunkPool


class TensorBase:
    """Shape, strides and type of an array.

    In the original, tensors own the memory of the arrays that `get_next` returns. Here arrays own their memory, and a
    tensor describes one that it is given.
    """

    def __init__(self, array: AnyArray) -> None:
        self._array = np.asarray(array)

    def shape(self) -> list[int]:
        """Return the length of each axis."""
        return list(self._array.shape)

    def strides(self) -> list[int]:
        """Return the bytes from one element to the next on each axis."""
        return list(self._array.strides)

    def element_size(self) -> int:
        return self._array.itemsize

    def py_format(self) -> str:
        """Return the format of an element, as the `struct` module writes it: "f", "d", "i" or "q", and others."""
        dtype = self._array.dtype
        return "q" if dtype == np.int64 else dtype.char

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return np.array(self._array, dtype, copy=copy)


GAMMA = ShufflingChunkPoolConfig().hanse_sampling_gamma
CAPACITY = QueueConfig().queue_capacity


def without_effect(branches: Sequence[Branch], queues: Mapping[str, Sequence[QueueConfig]]) -> list[str]:
    """Return a warning for each setting without effect: here, or, as in the original, without another field."""
    settings = [setting for branch in branches for feed in branch.feeds for setting in _of_feed(feed)]
    tensors = {branch.names["tensor_generator"] for branch in branches}  # their capacity says how many batches wait
    others = {name: outputs for name, outputs in queues.items() if name not in tensors}
    sized = [name for name, outputs in others.items() if any(queue.queue_capacity != CAPACITY for queue in outputs)]
    bounded = f"queue_capacity of {sized}, as what waits behind these stages is bounded in bytes"
    return [*dict.fromkeys(settings), *([bounded] if sized else [])]


def _of_feed(feed: Feed) -> list[str]:
    pool = feed.pool
    unpacker = feed.unpacker
    settings = list[str]()
    if unpacker.position_sampling is not None and unpacker.position_count is None:
        settings.append(f"position_sampling of {feed.names['chunk_unpacker']!r}, without position_count")
    if not isinstance(pool, ShufflingChunkPoolConfig):
        return settings
    name = feed.names["shuffling_chunk_pool"]
    if not pool.hanse_sampling_threshold and pool.position_sampling is not None:
        settings.append(f"position_sampling of {name!r}, without hanse_sampling_threshold")
    if not pool.hanse_sampling_threshold and pool.hanse_sampling_gamma != GAMMA:
        settings.append(f"hanse_sampling_gamma of {name!r}, without hanse_sampling_threshold")
    if pool.position_cache_size and pool.cachehit_output is None:
        settings.append(f"position_cache_size of {name!r}, without cachehit_output")
    return settings


VERSION = 2
LOOK = 0.25  # seconds between two looks at the figures, while the loader runs
Batch = tuple[Any, ...]


class DataLoader(Iterator[Batch]):
    """Loader of batches of training positions from a growing folder of games, configured by stages.

    A batch is a tuple of `inputs` `[B, 112, 8, 8]`, `probabilities` `[B, 1858]` and `values` `[B, 6, 3]`, float32;
    `tensors` selects others. The loader is an iterator over the first output, and a context manager.
    """

    def __init__(
        self,
        config: object,
        *,
        seed: int = 0,
        timeout: float | None = None,
        follow: bool | Literal["manual"] = True,
        passes: int | None = None,
        journal: str | os.PathLike[str] | None = None,
        replay: str | os.PathLike[str] | None = None,
        tensors: ChessTensors | None = None,
        max_lost: float | None = LiveOptions.max_lost,
        protobuf: bool | None = None,
    ) -> None:
        self._protobuf = is_protobuf(config) if protobuf is None else protobuf
        if self._protobuf:
            messages.message_class(messages.METRICS)  # an extra that lacks is said now, not in the middle of a run
        self._graph = Graph(load_config(config))
        self._timeout = timeout
        self._options: dict[str, Any] = {"seed": seed, "follow": follow, "passes": passes, "tensors": tensors}
        self._options["max_lost"] = max_lost
        self._options |= {"journal": journal and Path(journal), "replay": replay and Path(replay)}
        self._made: dict[str, tuple[Branch, LivePipeline]] | None = None
        self._history: dict[str, History] = {}
        self._figures = threading.RLock()  # over the history
        self._stopped: threading.Event | None = None

    @property
    def pipelines(self) -> dict[str, LivePipeline]:
        """The pipeline of each output, by alias. After the first access no stages can be added."""
        return {alias: pipeline for alias, (_, pipeline) in self._branches().items()}

    def add_stages(self, config: object) -> None:
        """Append stages, and outputs, of another configuration. Raises as the constructor, and once it is wired."""
        if self._made is not None:
            raise PlanError("expected stages to be added before anything is read, got some afterwards")
        self._graph.add(load_config(config))

    def start(self) -> None:
        """Read the existing files and start to prefetch. `get_next` starts the loader too."""
        try:
            for pipeline in self.pipelines.values():
                pipeline.start()
        except BaseException:
            self.stop()  # no output runs on where another cannot
            raise
        self._watch()

    def stop(self) -> None:
        """End all threads and close all files. A state can still be taken."""
        if self._stopped is not None:
            self._stopped.set()
        for _, pipeline in (self._made or {}).values():
            pipeline.stop()

    def get_next(self, alias: str = "", timeout: float | None = None) -> Batch:
        pipeline = self._pipeline(alias)
        self._watch()
        return tuple(pipeline.get_next(self._timeout if timeout is None else timeout).values())

    def maybe_get_next(self, alias: str = "") -> Batch | None:
        """Return the next batch of an output if it is ready, else None. Same errors as `get_next`."""
        pipeline = self._pipeline(alias)
        self._watch()
        batch = pipeline.maybe_get_next()
        return None if batch is None else tuple(batch.values())

    def __next__(self) -> Batch:
        return self.get_next(next(iter(self.pipelines)))

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def send_control_message(self, request: object) -> list[tuple[str, Any]]:
        """Ask the pools for their anchor, or to set or reset it. The count in the answer to a reset is
        that before it.
        """
        asked = load_request(request).chunk_pool_request
        if asked is None:
            return []
        answers: list[tuple[str, Any]] = []
        for branch, pipeline in self._branches().values():
            for feed, pool in zip(branch.feeds, pipeline.pools, strict=True):
                if "shuffling_chunk_pool" in feed.names:
                    answer: Any = _answer(pool, asked)
                    if is_protobuf(request):
                        answer = messages.response_to(request, dataclasses.asdict(answer))
                    answers.append((feed.names["shuffling_chunk_pool"], answer))
        return answers

    def get_bucket_metrics(self, time_period: int, include_pending: bool = True) -> tuple[Any, float]:
        """Return the figures of all stages over the last `2 ** time_period` seconds, as `get_aggregate_ending_now`."""
        if type(time_period) is not int or not -128 <= time_period <= 127:
            raise PlanError(f"expected a period from -128 to 127, the power of two of seconds, got {time_period!r}")
        return self.get_aggregate_ending_now(2.0**time_period, include_pending)

    def get_aggregate_ending_now(self, duration_seconds: float, include_pending: bool = True) -> tuple[Any, float]:
        """Return the figures of all stages over so many seconds, and how many seconds these are."""
        if not duration_seconds >= 0:
            raise PlanError(f"expected a time of zero seconds or more, got {duration_seconds!r}")
        with self._figures:
            stages, spent = self._stages_of(duration_seconds, include_pending)
        figures = {"stage_metrics": [stages[name] for name in self._graph.queues if name in stages]}
        return (messages.serialize(messages.METRICS, figures) if self._protobuf else figures), spent

    def _stages_of(self, seconds: float, include_pending: bool) -> tuple[dict[str, dict[str, Any]], float]:
        """Return the metrics of each stage over a period that ends now, or at the last snapshot, and its length."""
        stages: dict[str, dict[str, Any]] = {}
        spent = 0.0
        for alias, (branch, pipeline) in self._branches().items():
            history, now = self._history[alias], pipeline.metrics()
            kept = history.at(math.inf)
            after = now if include_pending or not kept["stages"] else kept
            history.add(now)
            before = history.at(after["time"] - seconds)
            texts = [{"anchor": pool.anchor(), "last_chunk_key": pool.newest} for pool in pipeline.pools]
            fullness = history.fullness(before["time"], after["time"])
            figures = stage_metrics(branch, before, after, fullness=fullness, pools=texts, queues=self._graph.queues)
            for stage in figures:  # a stage that several outputs share is listed once
                stages.setdefault(stage["name"], stage)
            spent = max(spent, after["time"] - before["time"])
        return stages, spent

    def state_dict(self) -> dict[str, Any]:
        """Return the position of each output after the batches received so far: see `LivePipeline.state_dict`."""
        outputs = {alias: pipeline.state_dict() for alias, pipeline in self.pipelines.items()}
        return {"version": VERSION, "outputs": outputs}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, before the start."""
        outputs = state.get("outputs")
        if state.get("version") != VERSION or not is_mapping(outputs) or set(outputs) != set(self.pipelines):
            raise StateError(
                f"expected the state of a loader with outputs {sorted(self.pipelines)}, got {sorted(state)}"
            )
        for alias, pipeline in self.pipelines.items():
            pipeline.load_state_dict(outputs[alias])

    def _pipeline(self, alias: str) -> LivePipeline:
        pipelines = self.pipelines
        if alias not in pipelines:
            raise PlanError(f"expected one of the outputs {sorted(pipelines)}, got {alias!r}")
        return pipelines[alias]

    def _branches(self) -> dict[str, tuple[Branch, LivePipeline]]:
        if self._made is None:
            branches = self._graph.branches()
            if idle := without_effect(branches, self._graph.queues):
                warnings.warn(f"settings of the loader without effect: {'; '.join(idle)}", stacklevel=4)
            pipelines = Assembly(**self._options).pipelines(branches)
            named_branches = {branch.alias: (branch, pipelines[branch.alias]) for branch in branches}
            for alias in named_branches:
                self._history[alias] = History()
                self._history[alias].add({"time": time.monotonic(), "stages": {}})
            self._made = named_branches
        return self._made

    def _watch(self) -> None:
        """Take a snapshot every quarter of a second, in a thread that ends with the loader."""
        if self._stopped is None:
            self._stopped = threading.Event()
            name = "penstock lczero figures"
            threading.Thread(target=_look, args=(weakref.ref(self), self._stopped), name=name, daemon=True).start()

    def _look(self) -> None:
        """Take a snapshot now."""
        with self._figures:
            for alias, (_, pipeline) in self._branches().items():
                if self._history[alias].wants(time.monotonic()):
                    self._history[alias].add(pipeline.metrics())


def _look(loader: weakref.ref[DataLoader], stopped: threading.Event) -> None:
    """Take snapshots of a loader until it is stopped or garbage-collected."""
    while not stopped.wait(LOOK) and (owner := loader()) is not None:
        owner._look()  # pyright: ignore[reportPrivateUsage]  this is the loader's own thread
        del owner


def _answer(pool: ShufflingChunkPool, asked: ShufflingChunkPoolControlRequest) -> StageControlResponse:
    """Apply a request to a pool, and return the pool's state."""
    since = pool.chunks_since_anchor
    if asked.reset_chunk_anchor:
        pool.reset_anchor()
    elif asked.set_chunk_anchor is not None:
        pool.set_anchor(asked.set_chunk_anchor)
        since = pool.chunks_since_anchor
    return StageControlResponse(ShufflingChunkPoolControlResponse(pool.anchor(), since))


def make_dataloader(config: object, **options: Any) -> DataLoader:
    """Return a started `DataLoader`. Options and errors are the same."""
    loader = DataLoader(config, **options)
    loader.start()
    return loader
