"""Every plan of the library passes the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from penstock.plan import (
    DeltaTimestamps,
    DerivedPlan,
    Episodes,
    EpochLength,
    MixSchedule,
    Pack,
    Pairs,
    Plan,
    PlanTransform,
    Reordered,
    Repeat,
    RowNumbers,
    Select,
    Sequences,
    Shard,
    Shuffle,
    Split,
    Steps,
    Take,
    Where,
    Windows,
    Without,
    apply,
)
from penstock.plan.mixed import MixedPlan, MixPart
from penstock.plan.transform import require_int
from penstock.plan.weights import shares
from penstock.testing.plans import PlanContract, TransformContract, episodes_of, samples_of

ROWS = {"observations": (-1, 2), "next_observations": ("observations", 1, 4)}


@dataclass(frozen=True)
class Reverse(PlanTransform):
    """A transform that is not the library's: all it takes is here."""

    skip: int = 0

    def __post_init__(self) -> None:
        require_int(self, "skip", 0)

    def reorder(self, plan: Plan) -> Plan:
        return Reversed(plan, self)


class Reversed(Reordered):
    def positions(self, k: Any) -> Any:
        epoch, place = self.locate(k)
        return k + self.sizes(epoch) - 1 - 2 * place


CHAINS: dict[str, tuple[Any, ...]] = {
    "steps": (Steps(),),
    "steps with next": (Steps(next_observations=True),),
    "windows": (Windows(3),),
    "windows with past and stride": (Windows(4, past=2, stride=3),),
    "windows padded with zeros": (Windows(4, past=2, pad="zero"),),
    "windows padded by repeating": (Windows(4, past=1, stride=2, pad="repeat"),),
    "times": (DeltaTimestamps({"actions": [-0.2, 0.0, 0.2], "observations": [0.3, 0.0, -0.1]}, fps=10),),
    "windows with limits of padding": (Windows(4, pad="zero", pad_before=3, pad_after=2),),
    "windows of every third step": (Windows(4, stride=2, pad="repeat", pad_after=0, frame_skip=3),),
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


class TestReordering(TransformContract):
    @pytest.fixture(
        params=[Shuffle(3), Shuffle(3, block=4, pool=2), Reverse(), Select(("observations",)), Repeat(1), RowNumbers()],
        ids=repr,
        autouse=True,
    )
    def _transform(self, request: pytest.FixtureRequest) -> None:
        self._chosen = request.param

    def transform(self) -> PlanTransform:
        return self._chosen


class TestShard(TransformContract):
    keeps_samples = takes_uneven = same_samples = False

    def transform(self) -> PlanTransform:
        return Shard(1, 3)


class TestShardThatIsTheWhole(TransformContract):
    takes_uneven = False

    def transform(self) -> PlanTransform:
        return Shard(0, 1)


class TestEpochLength(TransformContract):
    keeps_samples = takes_uneven = same_samples = False

    def transform(self) -> PlanTransform:
        return EpochLength(15)


class TestEpochLengthOfWholeEpochs(TestEpochLength):
    same_samples = True
    distinct = False

    def transform(self) -> PlanTransform:
        return EpochLength(64)


class TestRepeat(TransformContract):
    keeps_samples = distinct = False

    def transform(self) -> PlanTransform:
        return Repeat(3)


class TestTake(TransformContract):
    keeps_samples = takes_uneven = False

    def transform(self) -> PlanTransform:
        return Take(np.array([5, 2, 30]))

    def test_no_episodes_make_an_empty_plan(self) -> None:
        """Rows that are taken have to be there."""


class TestWithout(TransformContract):
    keeps_samples = False

    def transform(self) -> PlanTransform:
        return Without({0: [2, 6]})


class TestWithoutInEpochsThatDiffer(TestWithout):
    same_samples = False

    def plan(self, episodes: Episodes) -> Plan:
        return self.transform().reorder(Shard(1, 3).reorder(Shuffle(1).reorder(Steps().plan(episodes))))


class TestMix(PlanContract):
    """Of a shuffle, and of a share of another."""

    stop: Any = "first_exhausted"
    same_samples = distinct = False

    def episodes(self) -> Episodes:
        return episodes_of([3, 0, 9, 1, 12])

    def plan(self, episodes: Episodes) -> Plan:
        one = Shuffle(1).reorder(Steps().plan(episodes))
        parts = [one, Shard(1, 2).reorder(Shuffle(2).reorder(one))]
        if len(one) == 0:
            parts = [one, one]
        course = MixSchedule.of(shares([2, 1]), [len(part) for part in parts], self.stop if len(one) else "drain")
        return MixedPlan([MixPart(str(i), part, 1) for i, part in enumerate(parts)], course)


class TestMixOfAll(TestMix):
    stop = "all_exhausted"


class TestMixThatDrains(TestMix):
    stop = "drain"


class TestPackOfAShareOfAShuffle(PlanContract):
    same_samples = False

    def episodes(self) -> Episodes:
        return episodes_of([1, 13, 8, 1, 4, 5, 1, 4, 9, 2, 3, 7])

    def plan(self, episodes: Episodes) -> Plan:
        shared = Shard(1, 2).reorder(Shuffle(1).reorder(Sequences().plan(episodes)))
        return Pack(13, max_sequences=13).reorder(shared)

    def test_a_sample_lies_in_one_episode(self) -> None:
        """A pack lies in several."""

    def test_each_epoch_packs_the_share_of_that_epoch(self) -> None:
        episodes = self.episodes()
        shared = Shard(1, 2).reorder(Shuffle(1).reorder(Sequences().plan(episodes)))
        packs = self.plan(episodes)
        for epoch in range(4):
            wanted, found = (_step_rows(plan, epoch) for plan in (shared, packs))
            assert wanted == found


def _step_rows(plan: Plan, epoch: int) -> list[int]:
    number = next(i for i, view in enumerate(plan.views) if view.align == "step")
    rows = plan.resolve(np.arange(plan.start(epoch), plan.start(epoch + 1)))[number].rows()
    return sorted(rows[rows >= 0].tolist())


def test_the_contract_finds_epochs_that_are_counted_by_the_length_of_the_first() -> None:
    """The mirror of the first epoch's length is right only where epochs have one length."""

    class Mirror(Reordered):
        def positions(self, k: Any) -> Any:
            n = len(self)
            return k // n * n + n - 1 - k % n

    class Mirrored(TransformContract):
        def transform(self) -> PlanTransform:
            class Backwards(PlanTransform):
                def reorder(self, plan: Plan) -> Plan:
                    return Mirror(plan, self)

            return Backwards()

    contract = Mirrored()
    contract.test_epochs_hold_the_same_samples()
    with pytest.raises(AssertionError, match="in epoch"):
        contract.test_each_epoch_has_the_samples_of_the_epoch_below()


def test_the_contract_finds_a_share_that_says_it_never_changes() -> None:
    class Half(DerivedPlan):
        steady = True

        def __len__(self) -> int:
            return len(self.upstream) // 2

        def positions(self, k: Any) -> Any:
            epoch, place = self.locate(k)
            return epoch * len(self.upstream) + place

    class Halved(TransformContract):
        keeps_samples = same_samples = False

        def transform(self) -> PlanTransform:
            class First(PlanTransform):
                def reorder(self, plan: Plan) -> Plan:
                    return Half(plan, self)

            return First()

    with pytest.raises(AssertionError):
        Halved().test_what_a_plan_says_of_its_epochs_is_true()


def test_a_plan_cannot_define_half_of_its_epochs() -> None:
    with pytest.raises(TypeError, match=r"expected Short to define all of .* got \['__len__'\].* those of Reordered"):

        class Short(Reordered):
            def __len__(self) -> int:
                return 3

    with pytest.raises(TypeError, match=r"expected Late to define all of .* got \['start'\].* fixed-length ones"):

        class Late(DerivedPlan):
            def start(self, epoch: int) -> int:
                return 7


def test_no_base_class_says_that_epochs_have_the_same_samples() -> None:
    class Nothing(DerivedPlan):
        def __len__(self) -> int:
            return 1

        def positions(self, k: Any) -> Any:
            return k

    with pytest.raises(TypeError, match=r"abstract.*steady"):
        Nothing(Steps().plan(episodes_of([3])), "nothing")  # type: ignore[abstract]


def test_a_share_of_what_never_changes_never_changes() -> None:
    steps = Steps().plan(episodes_of([5, 8]))
    share = Shuffle(1).reorder(Shard(1, 3).reorder(steps))
    assert share.steady
    assert not share.periodic
    assert sorted(samples_of(share, 0)) == sorted(samples_of(share, 1)) != samples_of(share, 1)


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
