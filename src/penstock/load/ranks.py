"""Which share of every batch is mine: rank and world, given or found."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError
from penstock.load.shares import plans_below
from penstock.plan.base import Plan
from penstock.plan.shard import Share

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranks:
    """One of `world` processes that share every batch: number `rank`, and where that was `found` ("" if given).

    Of a batch of `m` samples, rank `r` of `R` has the rows `r * m // R : (r + 1) * m // R`: contiguous shares that
    differ by one row at most, together the batch in its order, for any `m` and `R`.

    Raises `PlanError` unless `0 <= rank < world`.

    >>> [tuple(int(edge) for edge in Ranks(r, 3).share(np.array(7))) for r in range(3)]
    [(0, 2), (2, 4), (4, 7)]
    """

    rank: int = 0
    world: int = 1
    found: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            where = f" - in {self.found}" if self.found else ""
            raise PlanError(f"expected a rank within 0:{self.world}, got {self.rank}{where}")

    def share(self, samples: Int) -> tuple[Int, Int]:
        """First row of the share, and the first after it, of batches of so many samples."""
        return self.rank * samples // self.world, (self.rank + 1) * samples // self.world


def ranks(rank: int | None, world: int | None) -> Ranks:
    """The ranks that are given, or else those found by `find`.

    Raises `PlanError` if only one of the two is given.
    """
    if rank is None and world is None:
        return find()
    if rank is None or world is None:
        raise PlanError(f"expected both rank and world or neither, got rank={rank} and world={world}")
    return Ranks(rank, world)


def find() -> Ranks:
    """Rank and world of this process: those of `torch.distributed` if it is initialised, else those of JAX if
    `jax.distributed` is, else the environment's `RANK` and `WORLD_SIZE`, else one process alone.

    Neither library is imported, and no JAX backend started unless its processes are already joined.
    """
    return _torch_ranks() or _jax_ranks() or _environment_ranks() or Ranks()


def _torch_ranks() -> Ranks | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size(), "torch.distributed")


def _jax_ranks() -> Ranks | None:
    jax = sys.modules.get("jax")
    joined = getattr(getattr(jax, "distributed", None), "is_initialized", None)  # not there in old versions
    if jax is None or joined is None or not joined():
        return None
    return Ranks(jax.process_index(), jax.process_count(), "jax.distributed")


def _environment_ranks() -> Ranks | None:
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None or world is None:
        return None
    where = "the environment variables RANK and WORLD_SIZE"
    if not (rank.isdecimal() and world.isdecimal()):
        raise PlanError(
            f"expected two numbers in {where}, got {rank!r} and {world!r}; unset them, or give rank and world"
        )
    return Ranks(int(rank), int(world), where)


def check_ranks(plan: Plan, batch_size: int, shares: Ranks) -> None:
    """Raise `PlanError` for a batch with fewer samples than ranks, and for a plan that was cut into shares already."""
    if batch_size < shares.world:
        raise PlanError(
            f"expected a batch_size of at least 1 for each of {shares.world} ranks, got {batch_size} in all; "
            "batch_size counts the samples of all ranks together"
        )
    if shares.found and shares.world > 1 and _holds_share(plan):
        raise PlanError(
            f"expected a plan without shard(), for rank {shares.rank} of {shares.world} was found in {shares.found} "
            "and the loader takes its share of every batch; leave shard() out, or keep it and give rank=0, world=1"
        )


def _holds_share(plan: Plan) -> bool:
    return isinstance(plan, Share) or any(_holds_share(below) for below in plans_below(plan))
