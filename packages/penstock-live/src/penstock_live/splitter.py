"""`ChunkSourceSplitter`: assigns chunks to parts by a hash that is stable across processes and versions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from penstock.errors import PlanError
from penstock.plan.weights import Weight, shares
from penstock_live.chunk_source import ChunkSource, Opener, Wanted, WantedOfEach
from penstock_live.chunk_sources import Inlet

Int = npt.NDArray[np.int64]


class ChunkSourceSplitter:
    """Parts of all chunks in the proportion of `weights`, for example 9 to 1 for training and test.

    The part of chunk `i` of the source with sort key `key` is a function of `salt`, `key` and `i` alone: it is the
    64-bit little-endian number of `blake2b(f"{salt}/{key}/{i}", digest_size=8)`, looked up in the running sum of the
    shares times 2^64. So it does not depend on the other chunks, on the process, or on when a file arrived; and a part
    keeps its chunks where others are split further. Raises `PlanError` for weights without a share.

    Args:
        weights: Weight of each part, in any scale.
        salt: Text that makes another split of the same chunks. The default is empty.

    Example:
        >>> splitter = ChunkSourceSplitter([9, 1])
        >>> splitter.parts("games_17.tar", 1000).tolist().count(1)
        93
    """

    def __init__(self, weights: Sequence[Weight], salt: str = "") -> None:
        self.shares, self.salt = shares(weights), salt
        self._ends = [int(end * (1 << 64)) for end in accumulate(self.shares)]

    def parts(self, key: str, n: int, first: int = 0) -> Int:
        """Return `[n]` the part of each chunk of a source, from chunk `first` on. Cost: a few µs a chunk.

        Args:
            key: Sort key of the source.
            n: Number of chunks.
            first: Number of the first chunk. The default is 0.
        """
        return np.array([self._part(key, i) for i in range(first, first + n)], np.int64)

    def parts_of(self, source: ChunkSource) -> Int:
        """Return `[n]` the part of each chunk of a source.

        The hash uses the key of the source, or its attribute `split_by`: a permanent key and the number of its first
        chunk.

        Args:
            source: The source.
        """
        key, first = getattr(source, "split_by", (source.key, 0))
        return self.parts(key, len(source), first)

    def lost_of(self, source: ChunkSource) -> Int:
        """Return `[n]` the part that counts each lost chunk of a damaged source, as if it followed the last chunk.

        Args:
            source: The damaged source.
        """
        key, first = getattr(source, "split_by", (source.key, 0))
        return self.parts(key, source.expected - len(source), first + len(source))

    def _part(self, key: str, i: int) -> int:
        digest = hashlib.blake2b(f"{self.salt}/{key}/{i}".encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        return next(part for part, end in enumerate(self._ends) if number < end)

    def view(self, source: ChunkSource, part: int) -> ChunkSource:
        """Return the chunks of one part of a source, in its order; closing it closes the source.

        Args:
            source: The source.
            part: Number of the part.
        """
        self.check(part)
        lost = int(np.count_nonzero(self.lost_of(source) == part))
        return ChunkSubset(source, np.flatnonzero(self.parts_of(source) == part), lost)

    def split(self, inlet: Inlet) -> tuple[SplitPart, ...]:
        """Return the parts of an inlet in the order of the weights, one for each pipeline or stream.

        The parts share the inlet: each file is listed, opened and indexed once. Create all pipelines of an inlet before
        starting one.

        Args:
            inlet: The inlet to share.
        """
        return tuple(SplitPart(inlet, self, i) for i in range(len(self.shares)))

    def opener(self, opener: Opener, part: int) -> Opener:
        """Return an opener for one part of the files of another opener.

        Args:
            opener: Opens a file as a source of chunks.
            part: Number of the part.
        """
        self.check(part)

        def opened(path: Path) -> ChunkSource | None:
            source = opener(path)
            return None if source is None else self.view(source, part)

        return opened

    def check(self, part: int) -> None:
        """Check the number of a part.

        Args:
            part: Number of the part.

        Raises:
            PlanError: The part is out of range.
        """
        if not 0 <= part < len(self.shares):
            raise PlanError(f"expected a part within 0:{len(self.shares)}, got {part}")


@dataclass(frozen=True, eq=False)
class SplitPart:
    """Part `index` of an inlet; see `ChunkSourceSplitter.split`."""

    inlet: Inlet
    splitter: ChunkSourceSplitter
    index: int

    def __post_init__(self) -> None:
        self.splitter.check(self.index)


class ChunkSubset(ChunkSource):
    """Subset of the chunks of a source, with its number of lost chunks; closing it closes the source."""

    def __init__(self, source: ChunkSource, chosen: Int, lost: int = 0) -> None:
        self.key = source.key
        self.torn = source.torn
        self._source = source
        self._chosen = chosen
        self._lost = lost

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    @override
    def expected(self) -> int:
        return len(self) + self._lost

    @override
    def load(self, i: int, wanted: Wanted | None = None) -> npt.NDArray[np.uint8]:
        return self._source.load(int(self._chosen[i]), wanted)

    @override
    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[npt.NDArray[np.uint8] | None]:
        return self._source.load_some(self._chosen[list(chunks)].tolist(), wanted)

    @override
    def close(self) -> None:
        self._source.close()
