"""`Shuffle`: a new order every epoch, computed without a table.

A place within an epoch is mapped by a keyed permutation of `0 : n`, whose stream is the number of the epoch
(`kernels.permute`). Any position is therefore found in constant time and memory, by any thread or rank, and no state is
saved. The permutation is a bijection for every `n`, so each epoch has each sample once.

With `block` and `pool`, blocks are permuted first, and then the samples of `pool` blocks that follow each other. The
reader then touches few blocks at a time. The last block may be short. `_Pools` computes as if it were whole, and moves
the places behind it back by the missing samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.errors import PlanError
from penstock.kernels.permute import LARGEST, permute
from penstock.plan.base import Plan, Reordered, check_ends, epochs, within
from penstock.plan.transform import PlanTransform, require_int


@dataclass(frozen=True)
class Shuffle(PlanTransform):
    """Shuffle all samples, in a new pseudo-random order every epoch.

    The order is a function of seed, epoch and position, so it needs no memory and any part can be computed on its own.
    Cost: some 20 ns for each position, and three times that with `block`.

    Data that is decoded block by block makes a global shuffle slow: each row would decode a block. With `block` and
    `pool`, the blocks are permuted, and the samples of each `pool` consecutive blocks are shuffled. Each block is then
    needed within `pool * block` positions only, and a cache of `pool` blocks is enough. The last block may be short.

    Args:
        seed: 0 to 2^64 - 1. The default is 0.
        block: Consecutive samples of a block, at least 1. The default is None: shuffle globally.
        pool: Blocks to shuffle together, at least 1. Required with `block`.

    Raises:
        PlanError: A number is out of range, only one of `block` and `pool` is given, an epoch has more than 2^62
            samples, or the dataset has no end: shuffle before `repeat()`.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps().apply(Shuffle(seed=1))
        >>> sorted(data[:]["x"].tolist())
        [0, 1, 2, 3, 4, 5]

        Every epoch has another order:

        >>> Shuffle(seed=1).order(np.arange(6), 6).tolist() == Shuffle(seed=1).order(np.arange(6, 12), 6).tolist()
        False
    """

    seed: int = 0
    block: int | None = None
    pool: int | None = None

    def __post_init__(self) -> None:
        require_int(self, "seed", 0, (1 << 64) - 1)
        if (self.block is None) != (self.pool is None):
            raise PlanError(f"expected both block and pool or neither, got block={self.block} and pool={self.pool}")
        if self.block is not None:
            require_int(self, "block", 1, LARGEST)
            require_int(self, "pool", 1, LARGEST)

    @override
    def reorder(self, plan: Plan) -> Plan:
        shuffled = ShuffledPlan(plan, self)
        check_ends(plan, "shuffling it")  # a permutation of 2^62 positions would have no passes over the data
        return shuffled

    def order(self, k: IntArray, n: int) -> IntArray:
        """Return unshuffled positions, for epochs of `n` samples.

        Args:
            k: `[m]` int64 shuffled positions, 0 or more.
            n: Samples of an epoch.
        """
        if len(k) == 0:
            return k
        epoch, x = epochs(k, n)
        return epoch * n + self.within(epoch, x, np.full(len(x), n))

    def within(self, epoch: IntArray, x: IntArray, size: IntArray) -> IntArray:
        """Return unshuffled places inside epochs.

        Args:
            epoch: `[m]` int64 number of each epoch.
            x: `[m]` int64 shuffled place in that epoch.
            size: `[m]` int64 samples of that epoch.
        """
        if self.block is None or self.pool is None:
            return permute(x, size, epoch, self.seed)
        return _Pools.of(epoch, size, self.block, self.pool, self.seed).forward(x)

    def inverse_within(self, epoch: IntArray, y: IntArray, size: IntArray) -> IntArray:
        """Return shuffled places inside epochs: the inverse of `within`.

        Args:
            epoch: `[m]` int64 number of each epoch.
            y: `[m]` int64 unshuffled place in that epoch.
            size: `[m]` int64 samples of that epoch.
        """
        if self.block is None or self.pool is None:
            return permute(y, size, epoch, self.seed, inverse=True)
        return _Pools.of(epoch, size, self.block, self.pool, self.seed).backward(y)


class ShuffledPlan(Reordered):
    """Plan of `Shuffle`."""

    def __init__(self, upstream: Plan, transform: Shuffle) -> None:
        super().__init__(upstream, transform)
        self._shuffle = transform
        if len(upstream) > LARGEST:
            raise PlanError(f"expected a plan of at most 2^62 samples to shuffle, got {len(upstream)}")

    @override
    def positions(self, k: IntArray) -> IntArray:
        epoch, x = self.locate(k)
        return k - x + self._shuffle.within(epoch, x, self.sizes(epoch))

    @override
    def inverse(self, below: IntArray, lo: int, hi: int) -> IntArray:
        epoch, y = self.locate(below)
        k = below - y + self._shuffle.inverse_within(epoch, y, self.sizes(epoch))
        return np.sort(within(k, lo, hi))


@dataclass(frozen=True, eq=False)
class _Pools:
    """Permute the blocks, concatenate them, cut them into pools of `pool` blocks, and shuffle each pool.

    The short block has some place `last` in that order. To keep arithmetic regular, everything after it is counted as
    if it were whole: `missing` places later. Arrays are `[m]`, for the epoch of each place.
    """

    epoch: IntArray
    n: IntArray
    block: IntArray
    blocks: IntArray
    pool: IntArray
    last: IntArray
    missing: IntArray
    seed: int

    @classmethod
    def of(cls, epoch: IntArray, n: IntArray, samples: int, blocks_a_pool: int, seed: int) -> _Pools:
        block = np.minimum(samples, n)
        blocks = -(-n // block)
        last = permute(blocks - 1, blocks, epoch, seed, inverse=True)
        return cls(epoch, n, block, blocks, np.minimum(blocks_a_pool, blocks), last, blocks * block - n, seed)

    def forward(self, x: IntArray) -> IntArray:
        """The unshuffled place of each shuffled one."""
        place = self._in_pool(x, inverse=False)
        whole = np.where(place < (self.last + 1) * self.block - self.missing, place, place + self.missing)
        return permute(whole // self.block, self.blocks, self.epoch, self.seed) * self.block + whole % self.block

    def backward(self, y: IntArray) -> IntArray:
        """The shuffled place of each unshuffled one."""
        block = permute(y // self.block, self.blocks, self.epoch, self.seed, inverse=True)
        place = block * self.block + y % self.block - np.where(block > self.last, self.missing, 0)
        return self._in_pool(place, inverse=True)

    def _in_pool(self, x: IntArray, *, inverse: bool) -> IntArray:
        """Permute each place within its pool."""
        of_pool = self.pool * self.block
        short = self.last // self.pool  # the pool with the short block
        end = np.minimum((short + 1) * self.pool, self.blocks) * self.block - self.missing
        number = np.where(x < end, x, x + self.missing) // of_pool
        begin = number * of_pool - np.where(number > short, self.missing, 0)
        after = np.minimum((number + 1) * self.pool, self.blocks) * self.block
        size = after - np.where(number >= short, self.missing, 0) - begin
        stream = self.epoch * -(-self.blocks // self.pool) + number
        return begin + permute(x - begin, size, stream, (self.seed + 1) % (1 << 64), inverse=inverse)
