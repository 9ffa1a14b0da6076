"""Reports from D4RL, d3rlpy, CORL, IQL and others about where the trajectories of flat files end, and how."""

# pyright: basic

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.errors import DamageWarning
from tests.reports.reported import report

LENGTHS = [5, 4, 6]
ENDS = np.cumsum(LENGTHS)
N = int(ENDS[-1])
LAST = np.isin(np.arange(N), ENDS - 1)
TERMINALS = np.arange(N) == ENDS[1] - 1
ROWS = np.concatenate([100.0 * e + np.arange(length) for e, length in enumerate(LENGTHS)]).astype("f4")


def steps(**arrays: Any) -> dict[str, Any]:
    rows = {"observations": ROWS[:, None], "actions": ROWS[:, None], "rewards": np.ones(N, "f4")}
    return {**rows, **arrays}


def hdf5(path: Path, **arrays: Any) -> Path:
    with h5py.File(path / "a.hdf5", "w") as file:
        for name, array in steps(**arrays).items():
            file[name] = array
    return path / "a.hdf5"


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path / "a.npz", **steps(**arrays))
    return path / "a.npz"


def lengths(data: Any) -> list[int]:
    return [len(episode) for episode in data]


def crossing(data: Any) -> int:
    """Windows of two steps that are not of one trajectory."""
    return int((np.diff(data.windows(2)[:]["observations"][:, :2, 0], axis=1) != 1).sum())


def terminations(data: Any) -> Any:
    return np.concatenate([episode.terminations for episode in data])


@report("takuseno/d3rlpy#166", "episodes end at episode_terminals, and only terminals cut bootstrapping")
@report("takuseno/d3rlpy#312", "a dataset that version 1 dumped is read")
def test_d3rlpy_1(tmp_path: Path) -> None:
    marks = {"terminals": TERMINALS.astype("f4"), "episode_terminals": LAST.astype("f4")}
    with penstock.open(hdf5(tmp_path, **marks, discrete_action=False, version="1.0")) as data:
        assert (lengths(data), crossing(data)) == (LENGTHS, 0)
        np.testing.assert_array_equal(terminations(data), TERMINALS)
        assert data.metadata["version"] == "1.0"


@report("takuseno/d3rlpy#127", "two terminal steps in a row are an episode of one step, not an error")
def test_terminals_in_a_row(tmp_path: Path) -> None:
    terminals = np.zeros(N)
    terminals[[3, 4, N - 1]] = 1
    with penstock.open(hdf5(tmp_path, terminals=terminals)) as data:
        assert lengths(data) == [4, 1, 10]
        assert data[1].rewards.tolist() == [1.0]


@report("takuseno/d3rlpy#18", "the observation after the last action of an episode is kept")
def test_the_last_next_observation_is_kept(tmp_path: Path) -> None:
    marks = {"terminals": TERMINALS, "timeouts": LAST & ~TERMINALS, "next_observations": ROWS[:, None] + 1}
    with penstock.open(hdf5(tmp_path, **marks)) as data:
        assert [int(episode.observations[-1, 0]) for episode in data] == [5, 104, 206]


@report("Farama-Foundation/D4RL#31", "without next observations, they are the observations of the next step alone")
@report("Farama-Foundation/D4RL#145", "the next observation of a trajectory's last step is not of the next trajectory")
@report("Farama-Foundation/D4RL#204", "no step is dropped or doubled but those that have no next observation")
@report("gwthomas/IQL-PyTorch#4", "trajectories without their last step still end where they were cut off")
def test_transitions(tmp_path: Path) -> None:
    path = hdf5(tmp_path, terminals=TERMINALS, timeouts=LAST & ~TERMINALS)
    with penstock.open(path) as data:
        assert lengths(data) == LENGTHS
    with penstock.open(path, transitions=True) as data:
        assert lengths(data) == [4, 4, 5]
        batch = data.transitions()[:]
        steps_on = (batch["next_observations"] - batch["observations"])[:, 0]
        assert (steps_on[~batch["terminations"]] == 1).all()


@report("Farama-Foundation/D4RL#176", "a file without timeouts says that nothing marks time limits")
@report("Farama-Foundation/D4RL#40", "trajectories that no flag ends are cut by their stated length")
def test_no_timeouts(tmp_path: Path) -> None:
    path = hdf5(tmp_path, terminals=np.zeros(N))
    with penstock.open(path) as data:
        assert (lengths(data), data.source.account.ends) == ([N], "episodes end where `terminals` is true")
    with penstock.open(path, max_episode_steps=5) as data:
        assert lengths(data) == [5, 5, 5]
        assert not terminations(data).any()


@report("Farama-Foundation/D4RL#85", "trajectories between timeouts have any length, also one step")
@report("Farama-Foundation/D4RL#162", "a timeout before the limit of the environment ends a trajectory")
def test_timeouts_anywhere(tmp_path: Path) -> None:
    timeouts = np.isin(np.arange(N), [0, 6, N - 1])
    with penstock.open(hdf5(tmp_path, terminals=np.zeros(N), timeouts=timeouts)) as data:
        assert lengths(data) == [1, 6, 8]
        assert not terminations(data).any()


@report("Farama-Foundation/D4RL#77", "a jump inside a trajectory is not shown as the next observation of a step")
def test_timeouts_that_are_not_in_step_with_the_trajectories(tmp_path: Path) -> None:
    timeouts = np.isin(np.arange(N), [5, 9, N - 1])  # one late
    path = hdf5(tmp_path, terminals=np.zeros(N), timeouts=timeouts, next_observations=ROWS[:, None] + 1)
    with penstock.open(path) as data:
        batch = data.steps()[:]
        assert ((batch["next_observations"] - batch["observations"]) == 1).all()
    assert "next-observation" in [finding.name for finding in penstock.check(path, progress=False).findings]


@report("tinkoff-ai/CORL#43", "the last trajectory is kept although no flag ends it, and is truncated")
def test_the_last_trajectory(tmp_path: Path) -> None:
    unmarked = LAST & (np.arange(N) < N - 1)
    with penstock.open(hdf5(tmp_path, terminals=unmarked, timeouts=np.zeros(N))) as data:
        assert lengths(data) == LENGTHS
        assert data[2].truncations.tolist() == [False] * 5 + [True]


@report("tinkoff-ai/CORL#63", "trajectories that no flag ends are split where the next observation does not follow")
@report("seohongpark/HIQL#2", "a jump splits a trajectory whose flags are wrong")
@pytest.mark.parametrize("write", [hdf5, npz])
def test_jumps(tmp_path: Path, write: Any) -> None:
    after = ROWS[:, None] + 1
    with penstock.open(write(tmp_path, terminals=np.zeros(N), next_observations=after)) as data:
        assert (lengths(data), crossing(data)) == (LENGTHS, 0)
    with penstock.open(write(tmp_path, terminals=np.zeros(N), dones_float=LAST.astype("f4"))) as data:
        assert (lengths(data), terminations(data).any()) == (LENGTHS, False)


@report("hill-a/stable-baselines#863", "an episode that a step limit ends is not terminated")
@report("thu-ml/tianshou#766", "a file of the old API has terminations and truncations")
@report("openai/gym#1230", "a done with a truncation is a time limit")
def test_artificial_terminals(tmp_path: Path) -> None:
    with penstock.open(npz(tmp_path, dones=LAST, truncateds=LAST & ~TERMINALS)) as data:
        np.testing.assert_array_equal(terminations(data), TERMINALS)
        assert np.concatenate([episode.truncations for episode in data]).tolist() == (LAST & ~TERMINALS).tolist()


@report("DLR-RM/stable-baselines3#1276", "an end that is terminal and at the limit at once is terminal")
def test_terminal_at_the_limit(tmp_path: Path) -> None:
    with penstock.open(npz(tmp_path, dones=TERMINALS, timeouts=LAST)) as data:
        np.testing.assert_array_equal(terminations(data), TERMINALS)


@report("rr-learning/trifinger_rl_datasets#3", "episodes of nearly equal length end where the flags say")
def test_lengths_that_differ_by_one(tmp_path: Path) -> None:
    flags = np.isin(np.arange(N), [4, 8, N - 1])
    with penstock.open(npz(tmp_path, timeouts=flags)) as data:
        assert lengths(data) == [5, 4, 6]


@report("Farama-Foundation/D4RL#199", "a flag that stays set at the goal does not end trajectories that timeouts end")
def test_flags_that_stay_set(tmp_path: Path) -> None:
    """With ids, steps at the goal are not episodes of one step."""
    goal = LAST | np.roll(LAST, -1)
    ids = np.repeat([0, 1, 2], LENGTHS)
    with pytest.warns(DamageWarning, match="terminals .marks further ends"):
        data = penstock.open(npz(tmp_path, terminals=goal, traj_ids=ids))
    assert lengths(data) == LENGTHS


@report("conglu1997/v-d4rl#9", "episodes of Dreamer end at is_last, and terminate at is_terminal alone")
def test_dreamer(tmp_path: Path) -> None:
    with penstock.open(npz(tmp_path, is_first=np.roll(LAST, 1), is_last=LAST, is_terminal=TERMINALS)) as data:
        assert lengths(data) == LENGTHS
        np.testing.assert_array_equal(terminations(data), TERMINALS)


@report("tensorflow/agents#939", "an n-step return does not spill over a truncation")
def test_n_step_returns_stop_at_time_limits(tmp_path: Path) -> None:
    with penstock.open(npz(tmp_path, dones=LAST, truncated=LAST & ~TERMINALS)) as data:
        returns = data.with_column("returns", penstock.n_step_returns(3, 1.0)).steps()[:]["returns"]
        left = np.concatenate([np.arange(length, 0, -1) for length in LENGTHS])
        np.testing.assert_array_equal(returns, np.minimum(left, 3))


def table(path: Path, *recordings: list[tuple[int, int]]) -> Path:
    path.mkdir()
    for i, recording in enumerate(recordings):
        rows = [
            {"episode_index": e, "frame_index": t, "x": float(1000 * i + 100 * e + t), "done": t == length - 1}
            for e, length in recording
            for t in range(length)
        ]
        pq.write_table(pa.Table.from_pylist(rows), path / f"{i}.parquet")
    return path


@report("huggingface/lerobot#986", "recordings whose episodes have equal numbers stay apart")
@report("huggingface/lerobot#1158", "two recordings put together have the episodes of both")
@report("huggingface/lerobot#924", "recordings of several sources keep their episodes in order")
def test_recordings_that_number_alike(tmp_path: Path) -> None:
    with penstock.open(table(tmp_path / "meet", [(0, 4)], [(0, 3), (1, 2)])) as data:
        assert lengths(data) == [4, 3, 2]
        assert (np.diff(data.windows(2)[:]["x"], axis=1) == 1).all()
    with penstock.open(table(tmp_path / "again", [(0, 3), (1, 2)], [(0, 3), (1, 2)])) as data:
        assert lengths(data) == [3, 2, 3, 2]
        assert data.source.episode_metadata([2]) == [{"episode_index": 0}]


@report("HumanCompatibleAI/imitation#335", "a trajectory that was cut off does not end in a terminal state")
@report("HumanCompatibleAI/imitation#699", "a trajectory has one observation more than actions")
def test_imitation(tmp_path: Path) -> None:
    arrays = {"obs": np.arange(6.0)[:, None], "acts": np.arange(4), "infos": np.array([{}] * 4)}
    np.savez(tmp_path / "a.npz", **arrays, terminal=np.array([True, False]), indices=np.array([1]))
    with penstock.open(tmp_path / "a.npz") as data:
        assert [len(episode.observations) for episode in data] == [2, 4]
        assert terminations(data).tolist() == [True, False, False, False]
        assert data[1].truncations.tolist() == [False, False, True]
