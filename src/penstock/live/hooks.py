"""`ChunkFunctions`: what a domain knows about frames, as functions that a pipeline calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array
from penstock.live.hanse import Float

Frames = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rejected:
    """What a `transform` gives for a chunk that is not to be used, and why: `reason` is counted."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ChunkFunctions:
    """What values mean, given by a domain; each is optional, and is called by any thread. An exception of one of them
    ends the run: it is raised as it is, by `LivePipeline.get_next`, with a note that names the chunk.

    `transform(frames [n, width] uint8, name)` gives frames, of any number and width, or `Rejected`.
    `weights(frames)` gives `[n]`, how much each position is wanted; a chunk's weight is their sum.
    `encode(frames, places)` gives the rows of some positions: compact, ragged or of one width; each by its own frame
    alone, as `frames` may be no more than those that are wanted. Without it, they stay as they are.

    Without `transform` and `weights`, no more of a chunk need be read than the positions that are wanted. With
    `unverified`, such reads leave out a check that reading all makes, and are counted under this name.
    """

    transform: Callable[[Frames, str], Frames | Rejected] | None = None
    weights: Callable[[Frames], Float] | None = None
    encode: Callable[[Frames, Int], Array] | None = None
    unverified: bool = False
