"""Blocks: frames on their way between stages, with where each comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """`n` frames: `rows`, `[n, width]` uint8 or ragged rows of uint8; `chunk` `[n]` int64, the number of the chunk
    that each is from; `place` `[n]` int32, its position there.

    A pair of chunk and place names a frame for ever.
    """

    rows: Array
    chunk: npt.NDArray[np.int64]
    place: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.rows.nbytes
