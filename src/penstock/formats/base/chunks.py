"""Chunks: what a file of a growing dataset holds, as live data take it in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt


class ChunkSource(ABC):
    """Chunks `0 .. len - 1` of one file, each the frames of one game in order. Reads may be called from any thread.

    `key` sorts sources by age: the newest has the greatest.
    """

    key: str

    @abstractmethod
    def __len__(self) -> int:
        """How many chunks there are."""

    @abstractmethod
    def load(self, i: int) -> npt.NDArray[np.uint8]:
        """`[n, width]` frames of chunk `i`, in memory of their own. Raises `FormatError` saying what is wrong."""

    def close(self) -> None:
        """Release what is held. Reading afterwards is an error."""


Opener = Callable[[Path], ChunkSource | None]
"""Opens and indexes the file at a path; None if it is no file of chunks. Raises `FormatError` and `OSError`."""
