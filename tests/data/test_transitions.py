"""Transitions of n steps, against a loop in plain Python and against a replay."""

# pyright: basic

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import PlanError, SpecError
from tests.replay.runs import take

LENGTHS = [1, 4, 7, 2]


def dataset(seed: int = 0, lengths: list[int] = LENGTHS, inner: bool = True) -> penstock.EpisodeDataset:
    """Episodes of which some terminate, some are truncated, and some have a termination inside."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminations = rng.random(n) < (0.2 if inner else 0)
    terminations[ends] = rng.random(len(ends)) < 0.5
    truncations = np.zeros(n, np.bool_)
    truncations[ends] = ~terminations[ends]
    columns = {
        "observations": {"x": np.arange(n + len(lengths)), "y": rng.normal(size=(n + len(lengths), 2))},
        "actions": rng.integers(0, 9, n),
        "rewards": rng.normal(size=n).astype(np.float32),
        "terminations": terminations,
        "truncations": truncations,
    }
    return penstock.from_arrays(columns, lengths=lengths)


def looped(data: penstock.EpisodeDataset, n_step: int, gamma: float) -> list[tuple[float, float, bool, bool, int, int]]:
    """Reward, discount, flags, observation and number of steps of every step, as the definition says."""
    made = []
    for episode in data:
        rewards, ended, cut = (np.asarray(episode.columns[name]) for name in ("rewards", "terminations", "truncations"))
        x = np.asarray(episode.columns["observations/x"])
        for t in range(len(episode)):
            total, steps = 0.0, 0
            for k in range(t, min(t + n_step, len(episode))):
                total += gamma**steps * float(rewards[k])
                steps += 1
                if ended[k]:
                    break
            last = t + steps - 1
            made.append(
                (total, 0.0 if ended[last] else gamma**steps, bool(ended[last]), bool(cut[last]), int(x[t]), steps)
            )
    return made


@given(st.integers(0, 20), st.integers(2, 9), st.floats(0, 1))
def test_sums_are_those_of_the_definition(seed: int, n_step: int, gamma: float) -> None:
    data = dataset(seed)
    batch = data.transitions(n_step, gamma)[:]
    wanted = looped(data, n_step, gamma)
    np.testing.assert_allclose(batch["rewards"], [each[0] for each in wanted], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch["discounts"], [each[1] for each in wanted], rtol=1e-6, atol=1e-30)
    assert batch["terminations"].tolist() == [each[2] for each in wanted]
    assert batch["truncations"].tolist() == [each[3] for each in wanted]
    assert batch["observations/x"].tolist() == [each[4] for each in wanted]
    following = batch["next_observations/x"] - batch["observations/x"]
    known = ~batch["terminations"]
    assert following[known].tolist() == [each[5] for each, is_known in zip(wanted, known, strict=True) if is_known]
    assert (batch["rewards"].dtype, batch["discounts"].dtype) == (np.float32, np.float32)
    assert "__real__" not in batch


@pytest.mark.parametrize("n_step", [1, 2, 3, 20])
def test_a_replay_has_the_same_samples(n_step: int) -> None:
    data = dataset(3)
    replay = penstock.Replay(None, 100, samples=penstock.replay.Transitions(n_step=n_step, gamma=0.9))
    for episode in data:
        replay.write(episode)
    theirs, ours = take(replay, np.arange(sum(LENGTHS))), data.transitions(n_step, 0.9)[:]
    assert sorted(theirs) == sorted(ours)
    for name in ours.flat:
        np.testing.assert_array_equal(ours.flat[name], theirs.flat[name], err_msg=name)


def test_one_step_is_what_is_stored() -> None:
    data = dataset()
    batch = data.transitions()[:]
    assert batch["rewards"].tolist() == data.steps()[:]["rewards"].tolist()
    assert "discounts" not in batch
    assert data.transitions(1).fingerprint == data.transitions(1, 0.5).fingerprint


def test_transitions_are_shuffled_filtered_and_loaded_as_other_samples() -> None:
    samples = dataset().transitions(3, 0.9)
    whole = samples[:]
    shuffled = samples.shuffle(seed=1)[:]
    order = np.argsort(shuffled["observations/x"])
    np.testing.assert_array_equal(shuffled["rewards"][order], whole["rewards"])
    assert samples.filter("discounts == 0")[:]["terminations"].all()
    loaded = np.concatenate([batch["rewards"] for batch in samples.loader(4, threads=2)])
    np.testing.assert_array_equal(loaded, whole["rewards"])
    assert samples.fingerprint != dataset().transitions(3, 0.8).fingerprint != dataset().transitions(4, 0.8).fingerprint


def test_wrong_transitions_are_refused() -> None:
    data = dataset()
    with pytest.raises(PlanError, match="n_step to be an integer of at least 1, got 0"):
        data.transitions(0)
    with pytest.raises(PlanError, match=r"gamma within 0 to 1, got 1\.5"):
        data.transitions(2, 1.5)
    columns = {"observations": np.arange(3), "rewards": np.zeros(2)}
    with pytest.raises(PlanError, match=r"for rewards of 2 steps, got no \['terminations', 'truncations'\]"):
        penstock.from_arrays(columns, lengths=[2]).transitions(2)
    wide = {"terminations": np.zeros((2, 2), bool), "truncations": np.zeros(2, bool)}
    with pytest.raises(SpecError, match="one flag a step for rewards of 2 steps"):
        penstock.from_arrays(columns | wide, lengths=[2]).transitions(2)
    with pytest.raises(PlanError, match="'observations'"):
        penstock.from_arrays({name: [0.0] for name in ("rewards", "terminations", "truncations")}, [1]).transitions(2)
    with pytest.raises(SpecError, match=r"got no \['terminations', 'truncations'\]"):
        data.transitions(2).select_columns("rewards")[:]
