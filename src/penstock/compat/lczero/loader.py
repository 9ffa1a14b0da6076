"""`DataLoader` and `make_dataloader`: the interface of Leela Chess Zero's loader over penstock's live stages."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from penstock.compat.lczero.assembly import Assembly
from penstock.compat.lczero.binding import bind, load_config
from penstock.compat.lczero.config import (
    ShufflingChunkPoolControlRequest,
    ShufflingChunkPoolControlResponse,
    StageControlRequest,
    StageControlResponse,
)
from penstock.compat.lczero.graph import Branch, Graph
from penstock.compat.lczero.metrics import History, stage_metrics
from penstock.core.boundary import loading_state
from penstock.domains.chess.tensors import ChessTensors
from penstock.errors import PlanError, StateError
from penstock.live.pipeline import LivePipeline
from penstock.live.pool import ShufflingChunkPool

VERSION = 2
Batch = tuple[Any, ...]


class DataLoader(Iterator[Batch]):
    """Batches of training positions from a folder of games that grows, as the configuration of the stages says.

    `config`: text, a dict, a message or a `DataLoaderConfig`; see `docs/lczero.md` for what each field does. A batch is
    a tuple of `inputs` `[B, 112, 8, 8]`, `probabilities` `[B, 1858]` and `values` `[B, 6, 3]`, float32; `tensors` asks
    for others. An iterator over the first output, and a context manager.

    Beyond the original: `seed` fixes the order, whatever the number of threads; `timeout` in seconds bounds each wait
    of `get_next`; `follow=False` reads what is there, `passes` times, and then raises `StopIteration`; `journal` is a
    folder where the moves of each window are written, `replay` one whose moves are repeated; `state_dict` is all that a
    run needs to go on.

    Raises `DataError`, `FormatError` and `PlanError` for a configuration that is none, that does not fit together, or
    that asks for what there is not; `FormatError` where there is no such directory.

    >>> import tempfile
    >>> from penstock.formats.lc0 import FRAME, packed_chunk
    >>> import numpy as np
    >>> folder, games = tempfile.mkdtemp(), np.zeros((5, 8396), np.uint8)
    >>> games.view(FRAME)["version"], games.view(FRAME)["input_format"] = 7, 1
    >>> _ = Path(folder, "training.1.gz").write_bytes(packed_chunk(games))
    >>> config = f'''
    ...     stage {{ name: "files" file_path_provider {{ directory: "{folder}" }} }}
    ...     stage {{ name: "sources" input: "files" chunk_source_loader {{}} }}
    ...     stage {{ name: "pool" input: "sources" shuffling_chunk_pool {{}} }}
    ...     stage {{ name: "frames" input: "pool" chunk_unpacker {{ position_sampling_rate: 1 }} }}
    ...     stage {{ name: "tensors" input: "frames" tensor_generator {{ batch_size: 4 }} }}
    ...     output: "tensors"
    ... '''
    >>> with DataLoader(config, follow=False) as loader:
    ...     [[array.shape for array in batch] for batch in loader]
    [[(4, 112, 8, 8), (4, 1858), (4, 6, 3)], [(1, 112, 8, 8), (1, 1858), (1, 6, 3)]]
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
    ) -> None:
        self._graph = Graph(load_config(config))
        self._timeout = timeout
        self._options: dict[str, Any] = {"seed": seed, "follow": follow, "passes": passes, "tensors": tensors}
        self._options |= {"journal": journal and Path(journal), "replay": replay and Path(replay)}
        self._made: dict[str, tuple[Branch, LivePipeline]] | None = None
        self._history: dict[str, History] = {}

    @property
    def pipelines(self) -> dict[str, LivePipeline]:
        """The pipeline behind each output, by alias; from now on no stages can be added."""
        return {alias: pipeline for alias, (_, pipeline) in self._branches().items()}

    def add_stages(self, config: object) -> None:
        """Append stages, and outputs, of another configuration. Raises as the constructor, and once it is wired."""
        if self._made is not None:
            raise PlanError("expected stages to be added before anything is read, got some afterwards")
        self._graph.add(load_config(config))

    def start(self) -> None:
        """Take in what is there and begin to work ahead. Waiting for a batch does so by itself."""
        try:
            for alias, pipeline in self.pipelines.items():
                pipeline.start()
                self._look(alias)
        except BaseException:
            self.stop()  # no output runs on where another cannot
            raise

    def stop(self) -> None:
        """End all threads and close all files. A state can still be taken."""
        for _, pipeline in (self._made or {}).values():
            pipeline.stop()

    def get_next(self, alias: str = "", timeout: float | None = None) -> Batch:
        """The next batch of an output.

        Raises `PlanError` for an alias that there is not, `StopIteration` at the end of finite data, `TimeoutError`,
        `DataError` where no chunk can be used, and `QueueClosed`, a `RuntimeError`, after `stop`.
        """
        pipeline = self._pipeline(alias)
        batch = pipeline.get_next(self._timeout if timeout is None else timeout)
        self._look(alias)
        return tuple(batch.values())

    def maybe_get_next(self, alias: str = "") -> Batch | None:
        """The next batch of an output if it is ready, else None. Raises as `get_next`."""
        batch = self._pipeline(alias).maybe_get_next()
        self._look(alias)
        return None if batch is None else tuple(batch.values())

    def __next__(self) -> Batch:
        return self.get_next(next(iter(self.pipelines)))

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def send_control_message(self, request: object) -> list[tuple[str, StageControlResponse]]:
        """Ask the pools for their anchor, or to set or reset it; gives the name and the answer of each pool.

        `request`: a `StageControlRequest`, or text, a dict or a message of that form. The count in the answer to a
        reset is that before it. Raises `DataError` for another form.
        """
        asked = bind(StageControlRequest, request, "the request").chunk_pool_request
        if asked is None:
            return []
        answers: list[tuple[str, StageControlResponse]] = []
        for branch, pipeline in self._branches().values():
            for feed, pool in zip(branch.feeds, pipeline.pools, strict=True):
                if "shuffling_chunk_pool" in feed.names:
                    answers.append((feed.names["shuffling_chunk_pool"], _answer(pool, asked)))
        return answers

    def get_bucket_metrics(self, time_period: int, include_pending: bool = True) -> tuple[dict[str, Any], float]:
        """Figures of all stages over the last `2 ** time_period` seconds, as `get_aggregate_ending_now`."""
        return self.get_aggregate_ending_now(2.0**time_period, include_pending)

    def get_aggregate_ending_now(
        self, duration_seconds: float, include_pending: bool = True
    ) -> tuple[dict[str, Any], float]:
        """Figures of all stages over so many seconds, and how many seconds these are.

        A dict with the fields of `DataLoaderMetricsProto`. Without `include_pending` the time ends when figures were
        last kept, a quarter of a second ago or more, rather than now. `math.inf` means since the start.
        """
        stages: dict[str, dict[str, Any]] = {}
        spent = 0.0
        for alias, (branch, pipeline) in self._branches().items():
            history, now = self._history[alias], pipeline.metrics()
            kept = history.at(math.inf)
            after = now if include_pending or not kept["stages"] else kept
            history.add(now)
            before = history.at(after["time"] - duration_seconds)
            texts = [{"anchor": pool.anchor(), "last_chunk_key": pool.newest} for pool in pipeline.pools]
            for stage in stage_metrics(branch, before, after, texts):  # what several outputs share is there once
                stages.setdefault(stage["name"], stage)
            spent = max(spent, after["time"] - before["time"])
        return {"stage_metrics": list(stages.values())}, spent

    def state_dict(self) -> dict[str, Any]:
        """Where each output stands after the batches that were got: see `LivePipeline.state_dict`."""
        outputs = {alias: pipeline.state_dict() for alias, pipeline in self.pipelines.items()}
        return {"version": VERSION, "outputs": outputs}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken. Before the start. Raises `StateError` for a state of another configuration."""
        outputs = state.get("outputs")
        if state.get("version") != VERSION or not isinstance(outputs, Mapping) or set(outputs) != set(self.pipelines):
            raise StateError(
                f"expected the state of a loader with outputs {sorted(self.pipelines)}, got {sorted(state)}"
            )
        for alias, pipeline in self.pipelines.items():
            pipeline.load_state_dict(outputs[alias])

    def _pipeline(self, alias: str) -> LivePipeline:
        found = self.pipelines
        if alias not in found:
            raise PlanError(f"expected one of the outputs {sorted(found)}, got {alias!r}")
        return found[alias]

    def _branches(self) -> dict[str, tuple[Branch, LivePipeline]]:
        if self._made is None:
            branches = self._graph.branches()
            pipelines = Assembly(**self._options).pipelines(branches)
            made = {branch.alias: (branch, pipelines[branch.alias]) for branch in branches}
            for alias in made:
                self._history[alias] = History()
                self._history[alias].add({"time": time.monotonic(), "stages": {}})
            self._made = made
        return self._made

    def _look(self, alias: str) -> None:
        if self._history[alias].wants(time.monotonic()):
            self._history[alias].add(self.pipelines[alias].metrics())


def _answer(pool: ShufflingChunkPool, asked: ShufflingChunkPoolControlRequest) -> StageControlResponse:
    """Do what a pool is asked for, and say how it stands."""
    since = pool.chunks_since_anchor
    if asked.reset_chunk_anchor:
        pool.reset_anchor()
    elif asked.set_chunk_anchor is not None:
        pool.set_anchor(asked.set_chunk_anchor)
        since = pool.chunks_since_anchor
    return StageControlResponse(ShufflingChunkPoolControlResponse(pool.anchor(), since))


def make_dataloader(config: object, **options: Any) -> DataLoader:
    """A `DataLoader` that has been started. Options and errors are the same.

    >>> make_dataloader('output: "tensors"')
    Traceback (most recent call last):
    ...
    penstock.errors.PlanError: expected a stage for an output to read among [], got 'tensors'
    """
    loader = DataLoader(config, **options)
    loader.start()
    return loader
