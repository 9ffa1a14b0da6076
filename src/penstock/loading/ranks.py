"""Rank and world of this process, and its rows of every batch."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.data.plan_picture import plans_below
from penstock.errors import PlanError
from penstock.plan.base import Plan
from penstock.plan.shard import ShardPlan

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MeshRows:
    """Parts of equal size of every batch, as a mesh of devices has them: the parts of this process, and whose each is.

    Several processes may have the same part. `holders` has the first one of each.
    """

    mine: tuple[int, ...]
    holders: tuple[int, ...]


@dataclass(frozen=True)
class Ranks:
    """Rank of this process among `world` processes that share every batch.

    Of a batch of `m` samples, rank `r` of `R` has the rows `r * m // R : (r + 1) * m // R`. Numbers of rows differ by
    at most one, for any `m` and `R`. With a mesh, it has these rows of each part `r` of `R` parts that is its own.
    """

    rank: int = 0
    world: int = 1
    origin: str = ""
    mesh: MeshRows | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            where = f" - in {self.origin}" if self.origin else ""
            raise PlanError(f"expected a rank within 0:{self.world}, got {self.rank}{where}")

    @property
    def parts(self) -> int:
        return self.world if self.mesh is None else len(self.mesh.holders)

    @property
    def mine(self) -> tuple[int, ...]:
        """Parts of this rank, ascending."""
        return (self.rank,) if self.mesh is None else self.mesh.mine

    @cached_property
    def times(self) -> float:
        """How many times more rows a batch has than this rank."""
        return self.parts / len(self.mine)

    def share(self, samples: Int) -> tuple[Int, Int]:
        """Return `[..., p]` first rows of the parts of this rank, and the rows after their last, of `[...]` samples."""
        parts = np.array(self.mine)
        return parts * samples[..., None] // self.parts, (parts + 1) * samples[..., None] // self.parts

    def weight(self, rows: int, samples: int) -> float:
        """Return the rows of this rank, divided by the mean of all ranks: 0 without rows."""
        return rows * self.times / samples if rows else 0.0


def ranks(rank: int | None, world: int | None) -> Ranks:
    """Return the given ranks, or detect them with `find`."""
    if rank is None and world is None:
        return find()
    if rank is None or world is None:
        raise PlanError(f"expected both rank and world or neither, got rank={rank} and world={world}")
    return Ranks(rank, world)


def find() -> Ranks:
    """Detect rank and world of this process.

    The first of these applies: `torch.distributed` if it is initialised, `jax.distributed` if it is initialised, the
    training function of Ray Train, `RANK` and `WORLD_SIZE` in the environment, or a single process. This imports none
    of the libraries, and starts no JAX backend.
    """
    return _torch_ranks() or _jax_ranks() or _ray_ranks() or _environment_ranks() or Ranks()


def _torch_ranks() -> Ranks | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size(), "torch.distributed")


def _jax_ranks() -> Ranks | None:
    jax = sys.modules.get("jax")
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)  # not there in old versions
    if jax is None or is_initialized is None or not is_initialized():
        return None
    return Ranks(jax.process_index(), jax.process_count(), "jax.distributed")


def _ray_ranks() -> Ranks | None:
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, world = context.get_world_rank(), context.get_world_size()
    except RuntimeError:  # this process imported Ray Train, and runs no training function
        return None
    return None if rank is None or world is None else Ranks(rank, world, "ray.train")


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
    """Check that ranks can share the batches of a plan."""
    if batch_size < shares.parts:
        raise PlanError(
            f"expected a batch_size of at least 1 for each of {shares.parts} ranks, got {batch_size} in all; "
            "batch_size counts the samples of all ranks together"
        )
    if shares.origin and shares.world > 1 and _holds_share(plan):
        raise PlanError(
            f"expected a plan without shard(), for rank {shares.rank} of {shares.world} was found in {shares.origin} "
            "and the loader takes its share of every batch; leave shard() out, or keep it and give rank=0, world=1"
        )


def _holds_share(plan: Plan) -> bool:
    return isinstance(plan, ShardPlan) or any(_holds_share(below) for below in plans_below(plan))
