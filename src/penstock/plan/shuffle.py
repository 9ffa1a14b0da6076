"""`Shuffle`: another order every epoch, without a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError
from penstock.kernels.permute import LARGEST, permute
from penstock.plan.base import Plan, PlanTransform, Reordered, epochs, settle

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shuffle(PlanTransform):
    """A pseudo-random order of all samples, a new one every epoch: each sample exactly once, whatever the length.

    The order is a function of `(seed, epoch, position)` alone, so nothing is stored and any part of it can be computed
    anywhere.

    Where rows are decoded in blocks, a global order would decode a block for each row. With `block` and `pool`, blocks
    of `block` consecutive samples are permuted, and the samples of each `pool` blocks in a row are shuffled: every
    block is read within one stretch of `pool * block` positions, which is the radius of the shuffle and what a cache
    of `pool` blocks serves. The last block may be short.

    Arguments: `seed`, 0 to 2^64 - 1; `block` and `pool`, at least 1, both or neither.
    Raises `PlanError` for other values, and for plans of more than 2^62 samples.
    Cost: some 20 ns a position, three times that with `block`; no memory.

    >>> import numpy as np
    >>> Shuffle(seed=1).order(np.arange(6), 6).tolist() == Shuffle(seed=1).order(np.arange(6, 12), 6).tolist()
    False
    """

    seed: int = 0
    block: int | None = None
    pool: int | None = None

    def __post_init__(self) -> None:
        settle(self, "seed", 0, (1 << 64) - 1)
        if (self.block is None) != (self.pool is None):
            raise PlanError(f"expected both block and pool or neither, got block={self.block} and pool={self.pool}")
        if self.block is not None:
            settle(self, "block", 1, LARGEST)
            settle(self, "pool", 1, LARGEST)

    def reorder(self, plan: Plan) -> Plan:
        """The plan in shuffled order."""
        return Shuffled(plan, self)

    def order(self, k: Int, n: int) -> Int:
        """Where positions `k` of a sequence of epochs of `n` samples lie in the unshuffled sequence."""
        if len(k) == 0:
            return k
        epoch, x = epochs(k, n)
        return epoch * n + self.within(epoch, x, np.full(len(x), n))

    def within(self, epoch: Int, x: Int, size: Int) -> Int:
        """Where place `x[i]` of epoch `epoch[i]`, which has `size[i]` samples, lies in that epoch unshuffled."""
        if self.block is None or self.pool is None:
            return permute(x, size, epoch, self.seed)
        return _pooled(x, epoch, size, np.minimum(self.block, size), self.pool, self.seed)


class Shuffled(Reordered):
    """What `Shuffle` makes of a plan."""

    def __init__(self, upstream: Plan, transform: Shuffle) -> None:
        super().__init__(upstream, transform)
        self._shuffle = transform
        if len(upstream) > LARGEST:
            raise PlanError(f"expected a plan of at most 2^62 samples to shuffle, got {len(upstream)}")

    def positions(self, k: Int) -> Int:
        """Through the cipher of each epoch."""
        epoch, x = self.locate(k)
        return k - x + self._shuffle.within(epoch, x, self.sizes(epoch))


def _pooled(x: Int, epoch: Int, n: Int, block: Int, blocks_a_pool: int, seed: int) -> Int:
    """Blocks in permuted order, laid end to end and cut into pools of `pool` blocks; each pool shuffled.

    The short block comes at some place `last` of that order. To keep arithmetic regular, everything behind its end
    is counted as if it were whole: `missing` places further on.
    """
    blocks = -(-n // block)
    missing = blocks * block - n
    pool = np.minimum(blocks_a_pool, blocks)
    last = permute(blocks - 1, blocks, epoch, seed, inverse=True)
    short = last // pool  # the pool with the short block

    end = np.minimum((short + 1) * pool, blocks) * block - missing
    number = np.where(x < end, x, x + missing) // (pool * block)
    begin = number * (pool * block) - np.where(number > short, missing, 0)
    size = np.minimum((number + 1) * pool, blocks) * block - np.where(number >= short, missing, 0) - begin

    stream = epoch * -(-blocks // pool) + number
    place = begin + permute(x - begin, size, stream, (seed + 1) % (1 << 64))
    whole = np.where(place < (last + 1) * block - missing, place, place + missing)
    return permute(whole // block, blocks, epoch, seed) * block + whole % block
