"""Hindsight goals: rows within the episode, distributions, recorded goals, relabelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.ragged import Ragged
from penstock.data.map_dataset import planned_samples
from penstock.errors import PlanError, SpecError
from penstock.plan import Goals, PlanTransform
from penstock.testing.plans import TransformContract

EPISODE = ("future", "final", "episode", "geometric")


def dataset(lengths: list[int]) -> penstock.EpisodeDataset:
    """Observations are `1000 * episode + state`; goals and states of steps say the same."""
    states = np.concatenate([1000 * e + np.arange(n + 1) for e, n in enumerate(lengths)])
    steps = np.concatenate([1000 * e + np.arange(n) for e, n in enumerate(lengths)])
    columns = {
        "observations": {"state": states, "desired": -states, "wide": np.stack([states, states], axis=1)},
        "actions": steps,
        "rewards": steps * 0.0 - 7,
    }
    return penstock.from_arrays(columns, lengths)


def options_of(strategy: str) -> dict[str, Any]:
    return {"p": 0.3} if strategy == "geometric" else {}


class TestGoals(TransformContract):
    keeps_samples = takes_uneven = same_samples = distinct = False

    @pytest.fixture(
        params=[
            Goals("future", seed=3),
            Goals("episode", "actions", offset=0),
            Goals("geometric", p=0.2, original="seed", k=1),
            Goals("future", original="observations", name="wish"),
        ],
        ids=repr,
        autouse=True,
    )
    def _transform(self, request: pytest.FixtureRequest) -> None:
        self._chosen = request.param

    def transform(self) -> PlanTransform:
        return self._chosen


class TestFinalGoals(TransformContract):
    keeps_samples = takes_uneven = False

    def transform(self) -> PlanTransform:
        return Goals("final")


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    st.sampled_from(EPISODE),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2**64 - 1),
    st.booleans(),
)
def test_goals_are_states_of_the_same_episode(
    lengths: list[int], strategy: str, offset: int, boundary: bool, seed: int, shuffled: bool
) -> None:
    samples = dataset(lengths).windows(1, pad="zero")
    samples = samples.shuffle(5) if shuffled else samples
    column = "observations/state" if boundary else "actions"
    goals = samples.goals(strategy, column, offset=offset, seed=seed, **options_of(strategy))
    batch = planned_samples(goals).at(np.arange(3 * len(goals)))
    episode, step = np.divmod(batch["actions"][:, 0], 1000)
    goal_episode, goal_step = np.divmod(batch["goal"], 1000)
    last = np.array(lengths)[episode] - (not boundary)
    assert np.array_equal(goal_episode, episode)
    assert np.all((goal_step >= 0) & (goal_step <= last))
    if strategy == "final":
        assert np.array_equal(goal_step, last)
    if strategy in ("future", "geometric"):
        assert np.all(goal_step >= np.minimum(step + offset, last))


def chi_square(found: np.ndarray, share: np.ndarray) -> float:
    """Of counts against shares, in standard deviations of the statistic."""
    count = np.bincount(found, minlength=len(share))
    expected = share * len(found)
    assert count[share == 0].sum() == 0
    used = expected > 0
    degrees = used.sum() - 1
    return (((count - expected)[used] ** 2 / expected[used]).sum() - degrees) / np.sqrt(2 * max(degrees, 1))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("strategy", EPISODE)
def test_goals_have_their_distribution(strategy: str, seed: int) -> None:
    n, t, epochs = 12, 4, 20_000
    samples = dataset([n]).steps().goals(strategy, "observations/state", seed=seed, **options_of(strategy))
    found = planned_samples(samples).at(np.arange(epochs) * n + t)["goal"]
    distance = np.arange(n + 1) - t
    share = {
        "future": (distance > 0) / 8,
        "final": (distance == 8) * 1.0,
        "episode": np.full(n + 1, 1 / 13),
        "geometric": np.where(distance > 0, 0.3 * 0.7 ** np.maximum(distance - 1, 0), 0),
    }[strategy]
    share[-1] += 1 - share.sum()
    assert chi_square(found, share) < 4


def test_geometric_tails_have_their_share() -> None:
    samples = dataset([3]).steps().goals("geometric", "observations/state", p=0.5)
    found = planned_samples(samples).at(np.arange(0, 90_000, 3))["goal"]
    assert chi_square(found, np.array([0, 0.5, 0.25, 0.25])) < 4
    certain = dataset([5]).steps().goals("geometric", "observations/state", p=1)
    assert certain[:]["goal"].tolist() == [1, 2, 3, 4, 5]
    rare = dataset([5]).steps().goals("geometric", "observations/state", p=1e-9)
    assert rare[:]["goal"].tolist() == [5] * 5


def test_random_goals_are_states_of_all_episodes() -> None:
    data = dataset([2, 0, 5])
    samples = data.steps().goals("random", "observations/state", seed=1)
    found = planned_samples(samples).at(np.arange(40_000))["goal"]
    states = [0, 1, 2, 1000, *range(2000, 2006)]
    assert chi_square(np.searchsorted(states, found), np.full(10, 0.1)) < 4
    chosen = data.filter("total_steps > 2").steps().goals("random", "actions", seed=2)
    assert set(planned_samples(chosen).at(np.arange(500))["goal"].tolist()) == set(range(2000, 2005))


def test_goals_of_neighbours_are_independent() -> None:
    goal = dataset([1, *[1000] * 30]).steps().goals("episode", "actions")[:]["goal"][1:] % 1000
    assert abs(np.corrcoef(goal[1:], goal[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize("k", [1, 4])
def test_recorded_goals_come_once_in_each_turn(k: int) -> None:
    data = dataset([5, 8, 30])
    column = {"original": "observations/desired", "k": k}
    samples = data.steps().shuffle(3).goals("future", "observations/state", seed=9, **column)
    own = np.zeros((43, k + 1), bool)
    for epoch in range(k + 1):
        batch = planned_samples(samples).at(np.arange(43) + 43 * epoch)
        recorded = ~batch["goal_drawn"]
        assert np.array_equal(batch["goal"][recorded], batch["observations"]["desired"][recorded])
        assert np.all(batch["goal"][~recorded] > batch["observations"]["state"][~recorded])
        number = np.searchsorted(data.steps()[:]["actions"], batch["actions"])
        own[number[recorded], epoch] = True
    assert np.array_equal(own.sum(axis=1), np.ones(43))
    assert own.sum(axis=0).min() > 0
    again = planned_samples(samples).at(np.arange(43) + 43 * (k + 1))["goal_drawn"]
    first = planned_samples(samples).at(np.arange(43))["goal_drawn"]
    assert again.sum() == first.sum()


def test_hindsight_replay_recomputes_rewards() -> None:
    """Future strategy with k = 4, as in the paper; rewards are 0 where the next state is the goal, and else -1."""
    data = dataset([20] * 10)

    def reward(columns: penstock.Columns) -> dict[str, Any]:
        reached = columns["next_observations"]["state"] == columns["goal"]
        return {"rewards": reached - 1.0, "terminations": reached}

    samples = data.transitions().shuffle(1)
    samples = samples.goals("future", "observations/state", original="observations/desired").relabel(reward)
    batch = planned_samples(samples).at(np.arange(1000))
    drawn = batch["goal_drawn"]
    assert drawn.sum() == 800
    reached = batch["next_observations"]["state"] == batch["goal"]
    assert np.array_equal(batch["rewards"], np.where(drawn, reached - 1.0, -7.0))
    assert np.array_equal(batch["terminations"], reached)
    share = reached[drawn].mean()  # one of 20 - t states is the next one
    assert abs(share - np.mean(1 / np.arange(1, 21))) < 0.05
    assert set(batch) >= {"goal", "goal_drawn", "rewards", "terminations"}
    assert "goal/drawn" not in batch.flat


def test_a_run_that_is_resumed_on_other_ranks_sees_the_same_goals() -> None:
    samples = dataset([7, 11, 4]).windows(3, pad="repeat").shuffle(2)
    samples = samples.goals("future", "observations/state", original="observations/desired", k=2, seed=4)
    whole = [batch["goal"].tolist() for loader in [samples.loader(5)] for _ in range(3) for batch in loader]
    loader = samples.loader(5, threads=0)
    first = [batch["goal"].tolist() for _, batch in zip(range(3), loader, strict=False)]
    ranks = [samples.loader(5, rank=rank, world=2, threads=0) for rank in range(2)]
    for each in ranks:
        each.load_state_dict(loader.state_dict())
    rest = [
        [x for part in parts for x in part["goal"].tolist()] for _ in range(3) for parts in zip(*ranks, strict=True)
    ]
    assert first + rest == whole


def test_why_lists_the_row_of_a_goal() -> None:
    samples = dataset([7, 11, 4]).steps().goals("future", "observations/state")
    loader = samples.loader(22)
    batch = next(iter(loader))
    table = loader.why(batch.ticket, "goal").table
    assert (1000 * table["episode"] + table["step"]).tolist() == batch["goal"].tolist()


def test_goals_in_mixes_and_selections() -> None:
    parts = {
        "a": dataset([7, 11]).steps().goals("future", "observations/state", original="observations/desired"),
        "b": dataset([30]).steps().goals("final", "observations/state", original="observations/desired", k=1),
    }
    mixed = penstock.mix(parts, [1, 1], stop=40)
    batch = mixed[:]
    for number, part in enumerate(parts.values()):
        mine = batch["source"] == number
        assert batch["goal"][mine].tolist() == planned_samples(part).at(np.arange(20))["goal"].tolist()
        assert batch["goal_drawn"][mine].tolist() == planned_samples(part).at(np.arange(20))["goal_drawn"].tolist()
    narrow = parts["a"].select_columns("goal", "actions")
    assert np.array_equal(narrow[:]["goal"], parts["a"][:]["goal"])
    two = dataset([9]).steps().goals("final", "actions").goals("future", "observations/wide", name="other")
    assert two[:3]["other"].shape == (3, 2)
    assert two[:3]["goal"].tolist() == [8, 8, 8]


def test_steps_that_goals_are_drawn_for() -> None:
    windows = dataset([6]).windows(2, past=1).goals("final", "observations/state")
    assert windows[:]["goal"].tolist() == [6] * 5
    ahead = dataset([6]).windows(3).goals("future", "observations/state", offset=3)
    batch = planned_samples(ahead).at(np.arange(400))
    assert np.all(batch["goal"] >= batch["actions"][:, 0] + 3)
    taken = dataset([6]).steps().filter(lambda c: c["actions"] > 3).goals("episode", "actions")
    assert taken[:]["actions"].tolist() == [4, 5]
    weighted = dataset([6]).steps().weighted([0, 0, 1, 0, 0, 0]).goals("future", "observations/state")
    assert set(planned_samples(weighted).at(np.arange(400))["goal"].tolist()) == {3, 4, 5, 6}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "past"}, "a strategy among"),
        ({"strategy": "geometric"}, "p above 0 and at most 1 .*got None"),
        ({"strategy": "geometric", "p": 0.0}, "got 0.0"),
        ({"strategy": "geometric", "p": 1.5}, "got 1.5"),
        ({"strategy": "geometric", "p": float("nan")}, "got nan"),
        ({"p": 0.5}, "p only for"),
        ({"k": 4}, "k only together"),
        ({"k": 0, "original": "actions"}, "Goals k to be an integer of at least 1"),
        ({"offset": -1}, "offset"),
        ({"seed": -1}, "seed"),
        ({"column": "observation/state"}, "a column of goals among .*got 'observation/state'"),
        ({"column": "task"}, "one row for each episode"),
        ({"column": "words"}, "ragged"),
        ({"name": "actions"}, "no output named 'actions'"),
        ({"name": "observations"}, "no output named 'observations'"),
    ],
)
def test_wrong_goals_are_refused(options: dict[str, Any], message: str) -> None:
    spec = {"x": np.arange(3), "actions": np.arange(3), "observations": np.arange(5)}
    columns = {**spec, "words": Ragged.from_rows([[1], [], [2, 3]], np.int64)}
    data = penstock.from_arrays(columns, [1, 2])
    source = penstock.formats.MemorySource(
        penstock.Spec({**data.spec, "task": penstock.Field(np.dtype("int64"), (), "episode")}),
        {**columns, "task": np.arange(2)},
        np.array([0, 1, 3]),
    )
    samples = penstock.EpisodeDataset(source).steps()
    with pytest.raises(PlanError, match=message):
        samples.goals(**{"column": "observations", **options})


@pytest.mark.parametrize("options", [{}, {"original": "observations/desired", "k": 1}, {"strategy": "random"}])
def test_goals_after_a_mix_are_the_goals_of_its_datasets(options: dict[str, Any]) -> None:
    def drawn(samples: Any) -> Any:
        return samples.goals(column="observations/state", seed=4, **options)

    one, two, three = (dataset([n, 11]).steps().shuffle(n) for n in (7, 3, 20))
    inner, outer = {"a": one, "b": two}, [2, 1]
    after = drawn(penstock.mix({"ab": penstock.mix(inner), "c": three}, outer).shuffle(2))
    before = {name: drawn(each) for name, each in inner.items()}
    parts = penstock.mix({"ab": penstock.mix(before), "c": drawn(three)}, outer).shuffle(2)
    assert after.fingerprint == parts.fingerprint
    assert after[:]["goal"].tolist() == parts[:]["goal"].tolist()


def test_goals_of_samples_at_times_are_the_goals_of_steps() -> None:
    data = dataset([4, 9, 2])
    times = data.delta_timestamps({"actions": [-0.2, 0.0, 0.1]}, fps=10)
    for strategy in ("final", "future", "random"):
        ours, steps = (each.shuffle(3).goals(strategy, "observations/state", seed=2) for each in (times, data.steps()))
        assert ours[:]["goal"].tolist() == steps[:]["goal"].tolist()


def test_goals_at_a_wrong_place_are_refused() -> None:
    data = dataset([4, 5])
    with pytest.raises(PlanError, match="got SequencePlan"):
        data.sequences().goals("final", "actions")
    with pytest.raises(PlanError, match=r"got MixedPlan; .* before a mix is filtered"):
        penstock.mix([data.steps()], stop="drain").filter("actions > 0").goals("final", "actions")
    with pytest.raises(PlanError, match="without functions"):
        data.steps().map(dict).goals("final", "actions")
    with pytest.raises(PlanError, match="without goals"):
        data.windows(2).goals("final", "actions").pack(8)
    for limits in ({"pad_before": 1}, {"past": 2, "pad_after": 3}):
        with pytest.raises(PlanError, match="a past of pad_before"):
            data.windows(4, pad="zero", **limits).goals("final", "actions")
    assert len(data.windows(4, past=1, pad="zero", pad_before=1, pad_after=2).goals("final", "actions")) == 9
    with pytest.raises(PlanError, match="same samples every epoch"):
        data.windows(2).goals("future", "actions").filter(lambda c: c["actions"] > 0)


def test_wrong_functions_are_refused() -> None:
    data = dataset([4, 5]).steps()
    with pytest.raises(SpecError, match="no column 'goal'"):
        data.relabel(lambda c: {"rewards": c["rewards"]})[:]
    goals = data.goals("final", "observations/state")
    with pytest.raises(SpecError, match=r"'rewards' .* as float64\[9\], got float32\[9\]"):
        goals.relabel(lambda c: {"rewards": c["rewards"].astype("f4")})[:]
    with pytest.raises(SpecError, match="expected 9 rows of 'done'"):
        goals.relabel(lambda c: {"done": c["rewards"][:3]})[:]
    with pytest.raises(SpecError, match="recorded goals like drawn ones"):
        data.goals("final", "observations/wide", original="actions")[:]


def test_fingerprints_cover_goals_and_functions() -> None:
    data = dataset([4, 5]).steps()
    made = [
        data,
        data.goals("final", "actions"),
        data.goals("future", "actions"),
        data.goals("future", "actions", seed=1),
        data.goals("future", "actions").relabel(lambda c: {"rewards": c["rewards"] + 1}),
        data.goals("future", "actions").relabel(lambda c: {"rewards": c["rewards"] + 2}),
    ]
    assert len({each.fingerprint for each in made}) == len(made)
    assert "Goals(column='actions'" in planned_samples(made[2]).chain[-1]
