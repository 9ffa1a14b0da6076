"""`LoadedEpisodes`: consecutive episodes in memory, and digests of their values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.ragged import Array, Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field, Spec
from penstock.formats.base.source import Source

DIGEST_BYTES = 16
NUMBERS = frozenset(("index", "frame_index", "episode_index", "episode_id"))


@dataclass(frozen=True, eq=False)
class LoadedEpisodes:
    """Consecutive episodes."""

    spec: Spec
    first: int
    lengths: IntArray
    columns: Mapping[str, Array]

    @classmethod
    def read(cls, source: Source, first: int, last: int, paths: Sequence[str]) -> Self:
        """Read columns of episodes `first` to `last - 1`."""
        columns: dict[str, Array] = {}
        for path in paths:
            bounds = source.rows_between(source.spec[path].align, first, last)
            begin, end = int(bounds[0]), int(bounds[-1])
            rows: Any = source.read([path], Selection.consecutive(begin, end))[path]
            columns[path] = rows.reshape(end - begin) if isinstance(rows, Ragged) else rows[0]
        lengths = np.diff(source.offsets[first : last + 1])
        return cls(source.spec, first, lengths, columns)

    def __len__(self) -> int:
        return len(self.lengths)

    def bounds(self, align: Align) -> IntArray:
        """`[n + 1]` first row of each episode in the columns of an alignment, and the end."""
        return self._bounds[align]

    @cached_property
    def _bounds(self) -> dict[Align, IntArray]:
        n = np.arange(len(self.lengths) + 1)
        steps = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        return {"step": steps, "boundary": steps + n, "episode": n}

    def digests(self) -> ByteArray:
        """`[n, 16]` BLAKE2b of all columns but numberings, each with its path, dtype and number of bytes."""
        digests = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(len(self))]
        for path in sorted(path for path in self.columns if not is_numbering(path, self.spec[path])):
            rows = self.columns[path]
            bounds = self.bounds(self.spec[path].align)
            if isinstance(rows, Ragged):
                for digest, a, b in zip(digests, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                    digest.update((rows.offsets[a : b + 1] - rows.offsets[a]).tobytes())
                bounds, rows = rows.offsets[bounds], rows.values
            head = f"{path} {rows.dtype.str} {rows.shape[1:]} ".encode()
            raw = np.ascontiguousarray(flattened(rows)).view(np.uint8)
            for digest, a, b in zip(digests, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                digest.update(head + str(b - a).encode())
                digest.update(raw[a:b].data)
        return np.frombuffer(b"".join(digest.digest() for digest in digests), np.uint8).reshape(-1, DIGEST_BYTES)


def is_numbering(path: str, field: Field) -> bool:
    """Whether a column numbers episodes or rows, as LeRobot stores them: it differs between copies of an episode."""
    return path in NUMBERS and field.dtype.kind in "iu" and field.shape in ((), (1,))


def flattened(rows: AnyArray) -> AnyArray:
    """`[n, values of a row]`, also without rows, for which `reshape(0, -1)` is an error."""
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))
