"""Target pairs against a generator in plain Python; epochs of a nominal length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import PlanError
from penstock.core.spec import Field, Spec
from penstock.data.map_dataset import planned_samples
from penstock.formats.memory import MemorySource
from penstock.plan import Episodes, EpochLength, Plan, Shuffle, Steps, apply
from penstock.testing.plans import PlanContract, episodes_of
from penstock_imitation.target_pairs import KINDS, PairKind, TargetPairs

Step = dict[str, Any]
SPEC = Spec(
    {
        "observations/image": Field(np.dtype("u1"), (2, 3), "boundary"),
        "observations/speed": Field(np.dtype("f4"), (), "boundary"),
        "actions": Field(np.dtype("i8"), (2,), "step"),
        "rewards": Field(np.dtype("f8"), (), "step"),
        "terminations": Field(np.dtype("bool"), (), "step"),
        "truncations": Field(np.dtype("bool"), (), "step"),
        "goal": Field(np.dtype("i8"), (), "episode"),
    }
)


def stored(lengths: list[int], cut: list[bool], seed: int) -> MemorySource:
    """Random values; episode `e` ends by truncation if `cut[e]`, else by termination."""
    rng = np.random.default_rng(seed)
    steps, episodes = sum(lengths), len(lengths)
    ends = np.cumsum(lengths, dtype=np.int64)
    last = np.isin(np.arange(steps), ends - 1)
    by_cut = np.repeat(np.array(cut[:episodes], bool), lengths)
    columns = {
        "observations/image": rng.integers(0, 256, (steps + episodes, 2, 3), np.uint8),
        "observations/speed": rng.random(steps + episodes, np.float32),
        "actions": rng.integers(0, 9, (steps, 2)),
        "rewards": rng.random(steps),
        "terminations": last & ~by_cut,
        "truncations": last & by_cut,
        "goal": np.arange(episodes),
    }
    return MemorySource(SPEC, columns, np.concatenate([[0], ends]))


def stream(source: MemorySource) -> Iterator[Step]:
    """The steps one by one, as an environment would have given them."""
    for episode in (source.episode(e) for e in range(len(source))):
        flat = episode.columns
        for t in range(len(episode)):
            seen = {name.split("/")[1]: flat[name] for name in SPEC if name.startswith("observations/")}
            yield {
                "obs": {name: rows[t] for name, rows in seen.items()},
                "next_obs": {name: rows[t + 1] for name, rows in seen.items()},
                "act": flat["actions"][t],
                "rew": flat["rewards"][t],
                "done": flat["terminations"][t] or flat["truncations"][t],
            }


def trajectories(steps: Iterator[Step]) -> Iterator[list[Step]]:
    """Cut where a step says that it ends one."""
    held: list[Step] = []
    for step in steps:
        held.append(step)
        if step["done"]:
            yield held
            held = []
    if held:
        yield held


def pairs_of(steps: list[Step], kind: str, k: int, last: bool) -> Iterator[tuple[Any, Any, Any, int]]:
    """Context, target, extra context and the time step of the target, pair by pair."""
    seen = [step["obs"] for step in steps] + ([steps[-1]["next_obs"]] if last else [])
    k = 0 if kind == "identity" else k
    for t in range(len(seen) - k):
        acts = [step["act"] for step in steps[t : t + k]]
        target, extra = {
            "identity": (seen[t], None),
            "temporal": (seen[t + k], None),
            "dynamics": (seen[t + k], acts),
            "inverse_dynamics": (acts, seen[t + k]),
            "action_prediction": (acts, None),
            "reward_prediction": ([step["rew"] for step in steps[t : t + k]], None),
        }[kind]
        yield seen[t], target, extra, t + k


def batch_of(values: list[Any], name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Stacked, under the names of the outputs."""
    if isinstance(values[0], dict):
        return {f"{name}/{leaf}": np.stack([value[leaf] for value in values]) for leaf in values[0]}
    return {name: np.stack([np.stack(value) for value in values])}


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    cut=st.lists(st.booleans(), min_size=6, max_size=6),
    kind=st.sampled_from(sorted(KINDS)),
    k=st.integers(1, 4),
    last=st.booleans(),
    stride=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_all_pairs_are_those_of_a_plain_generator(
    lengths: list[int], cut: list[bool], kind: PairKind, k: int, last: bool, stride: int, seed: int
) -> None:
    source = stored(lengths, cut, seed)
    k = 1 if kind == "identity" else k
    pairs = penstock.EpisodeDataset(source).apply(TargetPairs(kind, k, last=last, stride=stride))
    wanted = [
        (*pair, e)
        for e, steps in enumerate(trajectories(stream(source)))
        for pair in list(pairs_of(steps, kind, k, last))[::stride]
    ]
    assert len(pairs) == len(wanted)
    if not wanted:
        return
    contexts, targets, extras, ts, e = (list(part) for part in zip(*wanted, strict=True))
    expected = batch_of(contexts, "context") | batch_of(targets, "target")
    if extras[0] is not None:
        expected |= batch_of(extras, "extra_context")
    expected["traj_ts_ids"] = np.stack([np.array(e), np.array(ts)], axis=1)
    got = pairs[:].flat
    assert set(got) == set(expected)
    for name, rows in expected.items():
        np.testing.assert_array_equal(got[name], rows)
        assert got[name].dtype == rows.dtype


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"identity"}))
@pytest.mark.parametrize(("lengths", "k"), [([5, 1, 7, 3], 1), ([5, 1, 7, 3], 3), ([2, 2], 3), ([0, 4, 0], 2)])
def test_counts_are_those_of_the_docstring(kind: PairKind, lengths: list[int], k: int) -> None:
    episodes = episodes_of(lengths)
    assert len(TargetPairs(kind, k).plan(episodes)) == sum(max(n - k, 0) for n in lengths)
    assert len(TargetPairs(kind, k, last=True).plan(episodes)) == sum(max(n + 1 - k, 0) for n in lengths)


def test_identity_has_every_observation_also_those_of_empty_episodes() -> None:
    episodes = episodes_of([2, 0, 1])
    assert len(TargetPairs("identity").plan(episodes)) == 3
    plan = TargetPairs("identity", last=True).plan(episodes)
    assert [s.start.tolist() for s in plan.resolve(np.arange(6))] == [[0, 1, 2, 3, 4, 5]]


CHAINS: dict[str, tuple[Any, ...]] = {
    **{kind: (TargetPairs(kind),) for kind in KINDS},
    "dynamics far": (TargetPairs("dynamics", 3),),
    "inverse dynamics with the last": (TargetPairs("inverse_dynamics", 2, last=True),),
    "identity with the last": (TargetPairs("identity", last=True),),
    "every second": (TargetPairs("temporal", 2, stride=2), Shuffle(3)),
    "nominal epochs": (Steps(), EpochLength(11), Shuffle(1)),
}


class TestContract(PlanContract):
    @pytest.fixture(params=CHAINS, autouse=True)
    def _chain(self, request: pytest.FixtureRequest) -> None:
        self.chain = CHAINS[request.param]
        self.same_samples = request.param != "nominal epochs"

    def episodes(self) -> Episodes:
        return episodes_of([3, 0, 9, 1, 12, 2, 5], lead=4)

    def plan(self, episodes: Episodes) -> Plan:
        plan = apply(episodes, *self.chain)
        assert isinstance(plan, Plan)
        return plan


def test_parameters_are_in_the_fingerprint_and_the_print() -> None:
    episodes = episodes_of([9, 4])
    transforms = [t for chain in CHAINS.values() for t in chain if isinstance(t, TargetPairs)]
    assert len({t.plan(episodes).fingerprint for t in transforms}) == len(transforms)
    assert [eval(repr(t)) for t in [*transforms, EpochLength(3)]] == [*transforms, EpochLength(3)]  # noqa: S307


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"kind": "inverse_dynamic"}, "did you mean 'inverse_dynamics'"),
        ({"kind": "zzz"}, r"expected a kind among \['identity', .*, got 'zzz'$"),
        ({"kind": "temporal", "offset": 0}, "offset to be an integer of at least 1, got 0"),
        ({"kind": "temporal", "offset": 1.5}, "offset to be an integer of at least 1, got 1.5"),
        ({"kind": "temporal", "stride": 0}, "stride to be an integer of at least 1, got 0"),
        ({"kind": "identity", "offset": 2}, "expected no offset for kind 'identity', got 2"),
    ],
)
def test_impossible_arguments(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        TargetPairs(**arguments)


@pytest.mark.parametrize(
    ("pairs", "aligns", "said"),
    [
        (TargetPairs("dynamics"), {"observations": "boundary"}, "got 'actions'.*name the column by actions="),
        (TargetPairs("reward_prediction"), {"observations": "step"}, "got 'rewards'.*name the column by rewards="),
        (TargetPairs("identity"), {"obs": "step"}, r"among \['obs'\], got 'observations'.*observations="),
        (TargetPairs("temporal", last=True), {"observations": "step"}, r"T \+ 1 rows.*got .'observations': 'step'"),
        (TargetPairs("identity", last=True), {"observations": "step"}, r"T \+ 1 rows"),
        (TargetPairs("identity"), {"observations": "episode"}, "a row a step.*episode"),
        (TargetPairs("dynamics", actions="goal"), {"observations": "step", "goal": "episode"}, "one row a step"),
    ],
)
def test_columns_that_do_not_fit_are_named(pairs: TargetPairs, aligns: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        pairs.plan(episodes_of([3], aligns))


def test_columns_of_other_names_and_observations_of_steps_alone() -> None:
    columns = {"frames": np.arange(5), "moves": np.arange(10, 15), "score": np.arange(20.0, 25.0)}
    data = penstock.from_arrays(columns, lengths=[2, 3])
    pairs = data.apply(TargetPairs("dynamics", observations="frames", actions="moves"))[:]
    assert (pairs["context"].tolist(), pairs["target"].tolist()) == ([0, 2, 3], [1, 3, 4])
    assert pairs["extra_context"].tolist() == [[10], [12], [13]]
    # No observation is read behind the last step here, so that all steps have their action or reward.
    acts = data.apply(TargetPairs("action_prediction", last=True, observations="frames", actions="moves"))[:]
    assert acts["target"].tolist() == [[10], [11], [12], [13], [14]]
    rewards = data.apply(TargetPairs("reward_prediction", 2, last=True, observations="frames", rewards="score"))[:]
    assert rewards["target"].tolist() == [[20.0, 21.0], [22.0, 23.0], [23.0, 24.0]]


class TestEpochLength:
    @pytest.mark.parametrize("samples", [1, 3, 10, 25])
    def test_epochs_go_on_where_the_last_one_ended(self, samples: int) -> None:
        data = penstock.from_arrays({"x": np.arange(10)}, lengths=[10]).steps().shuffle(seed=4)
        nominal = data.with_epoch_length(samples)
        k = np.arange(60)
        assert len(nominal) == samples
        np.testing.assert_array_equal(planned_samples(nominal).at(k)["x"], planned_samples(data).at(k)["x"])
        assert nominal.plan.steady == (samples % 10 == 0)
        loader = nominal.loader(batch_size=4, threads=2)
        loaded = [batch["x"] for _ in range(4) for batch in loader]
        np.testing.assert_array_equal(np.concatenate(loaded), planned_samples(data).at(np.arange(4 * samples))["x"])

    def test_shuffled_above_each_epoch_keeps_its_own_samples(self) -> None:
        data = penstock.from_arrays({"x": np.arange(10)}, lengths=[10]).steps()
        epochs = planned_samples(data.with_epoch_length(4).shuffle(seed=2)).at(np.arange(20))["x"].reshape(5, 4)
        expected = (np.arange(20) % 10).reshape(5, 4)
        assert [sorted(rows.tolist()) for rows in epochs] == [sorted(rows.tolist()) for rows in expected]

    def test_what_it_cannot_be(self) -> None:
        with pytest.raises(PlanError, match="samples to be an integer of at least 1, got 0"):
            EpochLength(0)
        data = penstock.from_arrays({"x": np.arange(40)}, lengths=[3, 5] * 5)
        mixed = penstock.mix([data.sequences(), data.sequences()], [1, 2], label=None)
        with pytest.raises(PlanError, match="packs that are planned again"):
            mixed.pack(8).with_epoch_length(5)
