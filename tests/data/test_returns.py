"""Ready-made derived columns: equal to a plain loop over random episodes, and to what published code computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.data.episode_function import EpisodeRows
from penstock.errors import ArgumentError, DataError, SpecError

GOLDEN = Path(__file__).parents[1] / "golden" / "returns" / "returns.npz"

rewards = st.floats(-100, 100, width=32)
episodes = st.lists(st.lists(st.tuples(rewards, rewards, st.booleans()), max_size=6), min_size=1, max_size=6)
shares = st.floats(0, 1)


def dataset(made: Sequence[Sequence[tuple[float, float, bool]]], last_values: float = 3.0) -> penstock.EpisodeDataset:
    """Episodes of steps (reward, value, whether it terminates). Boundary values end with `last_values`."""
    steps = [step for episode in made for step in episode]
    boundary = [value for episode in made for value in [*(step[1] for step in episode), last_values]]
    columns = {
        "rewards": np.array([step[0] for step in steps], np.float64),
        "terminations": np.array([step[2] for step in steps], np.bool_),
        "step_values": np.array([step[1] for step in steps], np.float64),
        "values": np.array(boundary, np.float64),
    }
    return penstock.from_arrays(columns, [len(episode) for episode in made])


def computed(data: penstock.EpisodeDataset, function: penstock.EpisodeFunction) -> list[list[float]]:
    """Values of each episode, from one call for all of them."""
    rows = EpisodeRows(data.source, 0, len(data))
    values, cuts = np.asarray(function.compute(rows)), rows.offsets(function.align)
    return [values[a:b].tolist() for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]


def assert_close(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> None:
    assert [len(episode) for episode in found] == [len(episode) for episode in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@given(episodes, shares)
def test_returns_to_go_are_a_plain_loop(made: Any, gamma: float) -> None:
    wanted = [
        [sum(gamma ** (k - t) * episode[k][0] for k in range(t, len(episode))) for t in range(len(episode))]
        for episode in made
    ]
    assert_close(computed(dataset(made), penstock.returns_to_go(gamma)), wanted)
    firsts = [[episode[0]] if episode else [0.0] for episode in wanted]
    assert_close(computed(dataset(made), penstock.episode_returns(gamma)), firsts)


def values_after(episode: Sequence[tuple[float, float, bool]], t: int, last: float) -> float:
    """Value of the observation after step `t`: none after a termination."""
    if episode[t][2]:
        return 0.0
    return episode[t + 1][1] if t + 1 < len(episode) else last


@given(episodes, shares, shares)
def test_advantages_and_lambda_returns_are_a_plain_loop(made: Any, gamma: float, lam: float) -> None:
    wanted, targets = [], []
    for episode in made:
        advantages = [0.0] * (len(episode) + 1)
        for t in reversed(range(len(episode))):
            reward, value, ended = episode[t]
            delta = reward + gamma * values_after(episode, t, 3.0) - value
            advantages[t] = delta + (0.0 if ended else gamma * lam * advantages[t + 1])
        wanted.append(advantages[:-1])
        goals = [0.0] * len(episode) + [3.0]
        for t in reversed(range(len(episode))):
            ended = episode[t][2]
            following = 0.0 if ended else (1 - lam) * values_after(episode, t, 3.0) + lam * goals[t + 1]
            goals[t] = episode[t][0] + gamma * following
        targets.append(goals[:-1])
    assert_close(computed(dataset(made), penstock.advantages(gamma, lam)), wanted)
    assert_close(computed(dataset(made), penstock.lambda_returns(gamma, lam)), targets)


@given(episodes, st.integers(1, 5), shares, st.booleans())
def test_n_step_returns_are_a_plain_loop(made: Any, n: int, gamma: float, bootstrap: bool) -> None:
    wanted = []
    for episode in made:
        found = []
        for t in range(len(episode)):
            total, k = 0.0, t
            while True:
                total += gamma ** (k - t) * episode[k][0]
                if episode[k][2]:
                    break
                if k + 1 == len(episode) or k + 1 == t + n:
                    total += gamma ** (k + 1 - t) * values_after(episode, k, 3.0) * bootstrap
                    break
                k += 1
            found.append(total)
        wanted.append(found)
    function = penstock.n_step_returns(n, gamma, bootstrap="values" if bootstrap else None)
    assert_close(computed(dataset(made), function), wanted)


@given(episodes, shares, shares)
def test_values_of_steps_serve_where_every_episode_terminates(made: Any, gamma: float, lam: float) -> None:
    made = [[*episode[:-1], (*episode[-1][:2], True)] for episode in made if episode]
    if made:
        data = dataset(made, last_values=np.nan)
        for function in (penstock.advantages, penstock.lambda_returns):
            ours = computed(data, function(gamma, lam, values="step_values"))
            assert_close(ours, computed(data, function(gamma, lam)))
        steps = penstock.n_step_returns(2, gamma, bootstrap="step_values")
        assert_close(computed(data, steps), computed(data, penstock.n_step_returns(2, gamma, bootstrap="values")))


def test_values_of_steps_are_refused_where_an_episode_is_cut_off() -> None:
    data = dataset([[(1.0, 1.0, True)], [(1.0, 1.0, False)]])
    column = data.with_column("advantages", penstock.advantages(0.9, 0.9, values="step_values"))
    with pytest.raises(DataError, match=r"episode 1 does not end by termination; use values with T \+ 1 rows"):
        column.steps()[:]


@given(episodes)
def test_numbers_of_steps_are_a_plain_loop(made: Any) -> None:
    data, lengths = dataset(made), [len(episode) for episode in made]
    assert computed(data, penstock.timesteps()) == [list(range(n)) for n in lengths]
    assert computed(data, penstock.steps_to_end()) == [list(range(n))[::-1] for n in lengths]
    assert_close(computed(data, penstock.progress()), [[(t + 1) / n for t in range(n)] for n in lengths])


def test_columns_have_the_dtype_that_is_asked_for() -> None:
    data = dataset([[(0.1, 0.0, False), (0.2, 0.0, True)]])
    assert data.with_column("x", penstock.returns_to_go()).spec["x"].dtype == np.float32
    precise = data.with_column("x", penstock.returns_to_go(), dtype="f8").steps()[:]["x"]
    assert precise.tolist() == [0.1 + 0.2, 0.2]
    assert data.with_column("x", penstock.timesteps()).spec["x"].dtype == np.int32


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), True, "0.9"])
def test_shares_out_of_range_are_refused(gamma: Any) -> None:
    for made in (
        lambda: penstock.returns_to_go(gamma),
        lambda: penstock.n_step_returns(1, gamma),
        lambda: penstock.advantages(gamma, 0.5),
        lambda: penstock.lambda_returns(0.5, gamma),
    ):
        with pytest.raises(ArgumentError, match="to be a number within 0 to 1"):
            made()


def test_other_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="n to be a whole number of at least 1, got 0"):
        penstock.n_step_returns(0, 0.9)
    data = penstock.from_arrays({"rewards": np.zeros((3, 2)), "values": np.zeros(3)}, [3])
    with pytest.raises(SpecError, match="a column 'terminations' for advantages"):
        data.with_column("x", penstock.advantages(0.9, 0.9))
    with pytest.raises(SpecError, match="one number a row in 'rewards'"):
        data.with_column("x", penstock.returns_to_go()).steps()[:]


def test_the_printed_text_names_the_arguments() -> None:
    assert repr(penstock.returns_to_go(0.5)) == "returns_to_go(gamma=0.5, rewards='rewards')"


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN))


@pytest.fixture
def recorded(golden: dict[str, np.ndarray]) -> penstock.EpisodeDataset:
    columns = {name: golden[name] for name in ("rewards", "terminations", "values")}
    return penstock.from_arrays(columns, golden["lengths"].tolist())


def read(data: penstock.EpisodeDataset, function: penstock.EpisodeFunction) -> np.ndarray:
    return data.with_column("x", function).steps()[:]["x"]


def test_advantages_equal_stable_baselines3(golden: Any, recorded: penstock.EpisodeDataset) -> None:
    gamma, lam = golden["gamma"].item(), golden["lam"].item()
    ours = read(recorded, penstock.advantages(gamma, lam))
    np.testing.assert_allclose(ours, golden["sb3_advantages"], rtol=1e-5, atol=1e-5)
    ours = read(recorded, penstock.lambda_returns(gamma, lam))
    np.testing.assert_allclose(ours, golden["sb3_returns"], rtol=1e-5, atol=1e-5)


def test_returns_to_go_equal_corl(golden: Any, recorded: penstock.EpisodeDataset) -> None:
    for name, gamma in (("corl_returns", golden["gamma"].item()), ("corl_returns_1", 1.0)):
        np.testing.assert_allclose(read(recorded, penstock.returns_to_go(gamma)), golden[name], rtol=1e-5, atol=1e-5)


def test_n_step_returns_equal_stable_baselines3(golden: Any, recorded: penstock.EpisodeDataset) -> None:
    n, gamma = golden["n"].item(), golden["gamma"].item()
    ours = read(recorded, penstock.n_step_returns(n, gamma))
    np.testing.assert_allclose(ours, golden["sb3_n_step"], rtol=1e-5, atol=1e-5)
    ours = read(recorded, penstock.n_step_returns(n, gamma, bootstrap="values"))
    np.testing.assert_allclose(ours, golden["sb3_n_step_values"], rtol=1e-5, atol=1e-5)


def test_numbers_of_numpy_are_parameters() -> None:
    columns = {"rewards": [1.0, 2.0, 4.0], "terminations": [False, False, True]}
    data = penstock.from_arrays(columns, lengths=[3])
    for function in (penstock.returns_to_go(np.float32(0.5)), penstock.n_step_returns(np.int64(2), np.float64(0.5))):
        assert data.with_column("x", function)[0].columns["x"].shape == (3,)
    with pytest.raises(ArgumentError, match="within 0 to 1"):
        penstock.returns_to_go(np.float32(1.5))
