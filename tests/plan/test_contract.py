"""Every plan of the library passes the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from penstock.plan import (
    Episodes,
    Pairs,
    Plan,
    PlanTransform,
    Reordered,
    Repeat,
    Shard,
    Shuffle,
    Split,
    Steps,
    Where,
    Windows,
    apply,
)
from penstock.plan.base import settle
from penstock.testing.plans import PlanContract, episodes_of

ROWS = {"observations": (-1, 2), "next_observations": ("observations", 1, 4)}


@dataclass(frozen=True)
class Reverse(PlanTransform):
    """A transform that is not the library's: all it takes is here."""

    skip: int = 0

    def __post_init__(self) -> None:
        settle(self, "skip", 0)

    def reorder(self, plan: Plan) -> Plan:
        return Reversed(plan, self)


class Reversed(Reordered):
    def __len__(self) -> int:
        return len(self.upstream)

    def positions(self, k: Any) -> Any:
        epoch, place = np.divmod(k, max(len(self), 1))
        return epoch * len(self) + len(self) - 1 - place


CHAINS: dict[str, tuple[Any, ...]] = {
    "steps": (Steps(),),
    "steps with next": (Steps(next_observations=True),),
    "windows": (Windows(3),),
    "windows with past and stride": (Windows(4, past=2, stride=3),),
    "windows padded with zeros": (Windows(4, past=2, pad="zero"),),
    "windows padded by repeating": (Windows(4, past=1, stride=2, pad="repeat"),),
    "windows with ranges": (Windows(2, columns=ROWS),),
    "windows with ranges and zeros": (Windows(2, pad="zero", columns=ROWS),),
    "windows with ranges repeated": (Windows(2, pad="repeat", columns=ROWS),),
    "pairs": (Pairs(),),
    "distant pairs": (Pairs(3),),
    "pairs with the last": (Pairs(2, last=True),),
    "shuffle": (Windows(2), Shuffle(5)),
    "shuffle in pools": (Steps(), Shuffle(5, block=4, pool=2)),
    "shuffle in blocks": (Steps(), Shuffle(5, block=7, pool=1)),
    "shard": (Steps(), Shard(1, 3)),
    "shuffle of a shard": (Steps(), Shard(2, 3), Shuffle(1)),
    "split": (Split((0.5, 0.5)), Windows(2, pad="repeat")),
    "reverse": (Steps(), Reverse()),
}


class TestChains(PlanContract):
    @pytest.fixture(params=CHAINS, autouse=True)
    def _chain(self, request: pytest.FixtureRequest) -> None:
        self.chain = CHAINS[request.param]

    def episodes(self) -> Episodes:
        return episodes_of([3, 0, 9, 1, 12, 2, 5], lead=4)

    def plan(self, episodes: Episodes) -> Plan:
        plan = apply(episodes, *self.chain)
        assert isinstance(plan, Plan)
        return plan


class TestTwoSources(TestChains):
    def episodes(self) -> Episodes:
        one = episodes_of([3, 0, 9, 4])
        both = np.arange(8) // 4, *(np.tile(a, 2) for a in (one.index, one.start, one.length))
        return Episodes(*both, one.aligns, "two")


class TestShareOfAShuffle(PlanContract):
    same_samples = False

    def episodes(self) -> Episodes:
        return episodes_of([3, 0, 9])

    def plan(self, episodes: Episodes) -> Plan:
        return Shard(1, 3).reorder(Shuffle(1).reorder(Steps().plan(episodes)))


class TestRepeat(PlanContract):
    distinct = False

    def episodes(self) -> Episodes:
        return episodes_of([3, 0, 9])

    def plan(self, episodes: Episodes) -> Plan:
        return Repeat(3).reorder(Shuffle(2).reorder(Steps().plan(episodes)))


@pytest.mark.parametrize("name", CHAINS)
def test_parameters_and_episodes_are_in_the_fingerprint(name: str) -> None:
    def fingerprint(lengths: list[int], *chain: Any) -> str:
        plan = apply(episodes_of(lengths), *chain)
        assert isinstance(plan, Plan)
        return plan.fingerprint

    chains = [chain for other, chain in CHAINS.items() if other != name]
    mine = fingerprint([20, 30], *CHAINS[name])
    assert mine != fingerprint([20, 31], *CHAINS[name])
    assert mine not in {fingerprint([20, 30], *chain) for chain in chains}


def test_every_transform_prints_as_it_is_written() -> None:
    for transform in [t for chain in CHAINS.values() for t in chain] + [Where("id > 3"), Repeat(2)]:
        assert eval(repr(transform)) == transform  # noqa: S307
        assert hash(transform) == hash(eval(repr(transform)))  # noqa: S307
