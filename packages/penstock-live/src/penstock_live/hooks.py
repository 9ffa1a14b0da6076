"""`ChunkFunctions`: functions of a domain that a pipeline calls with the frames of chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array
from penstock.flow.metrics import StageMetrics
from penstock_live.hanse import Float

Frames = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Result of a `transform` for a chunk that must not be used; `reason` is counted.

    Args:
        reason: Name that is counted.
        message: Details for people. The default is empty.

    Example:
        >>> Rejected("short").reason
        'short'
    """

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ChunkFunctions:
    """Functions of a domain that give frames their meaning. Each is optional and may be called by any thread.

    An exception of a function ends the run: `LivePipeline.get_next` raises it, with a note that names the chunk.

    * `transform(frames [n, width] uint8, name)` returns frames, of any number and width, or `Rejected`.
    * `weights(frames)` returns the weight `[n]` of each position; a chunk's weight is their sum.
    * `encode(frames, places)` returns the rows of the positions `places`: compact, ragged or of one width. A row may
      depend on its own frame only, because `frames` may have only the wanted frames. Without it, frames are the rows.

    Without `transform` and `weights`, only the wanted positions of a chunk are read. With `unverified`, such reads skip
    a check that reading the whole chunk makes, and are counted under this name.

    Args:
        transform: Called as `transform(frames, name)`; returns frames or `Rejected`. The default None keeps all.
        weights: Returns the weight `[n]` of each position. The default None: all weigh the same.
        encode: Called as `encode(frames, places)`; returns one row for each place. The default None: frames are the
            rows.
        unverified: Whether reads of some positions skip a check that reading the whole chunk makes. The default is
            False.

    Example:
        >>> import numpy as np
        >>> first = ChunkFunctions(encode=lambda frames, places: frames[places, :1])
        >>> first.rows(np.zeros((4, 8), np.uint8), np.array([1, 3])).shape
        (2, 1)
    """

    transform: Callable[[Frames, str], Frames | Rejected] | None = None
    weights: Callable[[Frames], Float] | None = None
    encode: Callable[[Frames, Int], Array] | None = None
    unverified: bool = False

    @property
    def needs_whole(self) -> bool:
        """Whether all frames of a chunk are needed, whatever positions are wanted."""
        return self.transform is not None or self.weights is not None

    def rows(self, frames: Frames, places: Int) -> Array:
        """Return the rows of the positions `places`, encoded if there is a function for it.

        Args:
            frames: `[n, width]` uint8 frames.
            places: `[k]` int64 positions.
        """
        if self.encode is not None and len(places):
            return self.encode(frames, places)
        return frames if len(places) == len(frames) and ascending(places) else frames[places]


def ascending(places: Int) -> bool:
    return len(places) < 2 or bool((places[1:] > places[:-1]).all())


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
