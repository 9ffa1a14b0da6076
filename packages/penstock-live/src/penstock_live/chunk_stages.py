"""`ChunkStages`: checks or changes chunks in stages, each with its own metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.flow.metrics import StageMetrics
from penstock_live.hooks import Frames, Rejected

Transform = Callable[[Frames, str], Frames | Rejected]


class ChunkStages:
    """A `transform` of `ChunkFunctions` made of named stages, which each get the result of the stage before.

    The first stage that rejects a chunk drops it. Each stage counts the `chunks` that pass and `rejected.<reason>`.

    Args:
        stages: Name and function of each stage, in order.

    Example:
        >>> def short(frames, name):
        ...     return frames if len(frames) > 1 else Rejected("short")
        >>> stages = ChunkStages([("chunk_validator", short)])
        >>> stages(b"x", "game")
        Rejected(reason='short', message='')
        >>> stages.metrics()[0].snapshot()["counts"]
        {'rejected.short': 1}
    """

    def __init__(self, stages: Sequence[tuple[str, Transform]]) -> None:
        self._stages = [(StageMetrics(name), transform) for name, transform in stages]

    def metrics(self, threads: int = 1) -> list[StageMetrics]:
        """Return the metrics of each stage, in order; `threads` is the number of threads that run the stages.

        Args:
            threads: Number of threads that run the stages. The default is 1.
        """
        for metrics, _ in self._stages:
            metrics.threads = threads
        return [metrics for metrics, _ in self._stages]

    def __call__(self, frames: Frames, name: str) -> Frames | Rejected:
        """Return the frames after the last stage, or the rejection."""
        for metrics, transform in self._stages:
            with metrics.work():
                changed = transform(frames, name)
            if isinstance(changed, Rejected):
                metrics.add(**{f"rejected.{changed.reason.rpartition('.')[2]}": 1})
                return changed
            metrics.add(chunks=1)
            frames = changed
        return frames
