"""Steps of open episodes: random runs compared with plain lists of episodes."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.core.arrays import AnyArray
from penstock.recording.memory import MemoryWriter
from penstock.replay.replay import run_of
from tests.replay.runs import take

WINDOWS = penstock.transforms.Windows
SAMPLES: list[Any] = [
    penstock.replay.Transitions(),
    penstock.replay.Transitions(n_step=3, gamma=0.5, stack=4),
    WINDOWS(4, stride=2),
    WINDOWS(5, past=2, pad="zero"),
]


@dataclass
class PlainEpisode:
    """Rows of an episode, and how many of its samples have arrived."""

    observations: list[float]
    rewards: list[float] = field(default_factory=list[float])
    ends: list[tuple[bool, bool]] = field(default_factory=list[tuple[bool, bool]])
    closed: bool = False
    arrived: int = 0

    @property
    def steps(self) -> int:
        return len(self.rewards)


class PlainReplay:
    """The samples of a run, and the step that completed each, by their definition."""

    def __init__(self, samples: Any, capacity: int) -> None:
        self.samples, self.capacity = samples, capacity
        self.open: dict[int, PlainEpisode] = {}
        self.steps = 0
        self.anchors: list[tuple[PlainEpisode, int, int]] = []

    def begin(self, lane: int, observation: float) -> None:
        self.open[lane] = PlainEpisode([observation])

    def step(self, lane: int, reward: float, following: float, terminated: bool, truncated: bool) -> None:
        episode = self.open[lane]
        episode.rewards.append(reward)
        episode.observations.append(following)
        episode.ends.append((terminated, truncated))
        self.steps += 1
        episode.closed = terminated or truncated
        self._enter(episode)

    def truncate(self, lane: int) -> None:
        episode = self.open[lane]
        episode.ends[-1] = (False, True)
        episode.closed = True
        self._enter(episode)

    def _enter(self, episode: PlainEpisode) -> None:
        if isinstance(self.samples, penstock.replay.Transitions):
            wanted = list(range(episode.steps))
        elif self.samples.pad == "drop":
            wanted = list(range(0, episode.steps - 3, 2))
        else:
            wanted = [t for t in range(episode.steps) if episode.closed or t + 3 <= episode.steps]
        for t in wanted[episode.arrived :]:
            self.anchors.append((episode, t, self.steps - 1))
        episode.arrived = max(episode.arrived, len(wanted))

    def live(self) -> list[int]:
        return [i for i, (_, _, since) in enumerate(self.anchors) if since >= self.steps - self.capacity]

    def sample(self, i: int) -> dict[str, Any]:
        episode, t, _ = self.anchors[i]
        if isinstance(self.samples, penstock.replay.Transitions):
            return self._transition(episode, t, self.samples)
        lo, hi = (0, 4) if self.samples.pad == "drop" else (-2, 3)
        inside = [r for r in range(t + lo, t + hi) if 0 <= r < episode.steps]
        front, back = max(0, -(t + lo)), hi - lo
        rows = {"rewards": episode.rewards, "observations": episode.observations}
        out: dict[str, Any] = {}
        for name, values in rows.items():
            padded = np.zeros(back)
            padded[front : front + len(inside)] = [values[r] for r in inside]
            out[name] = padded
        if self.samples.pad != "drop":
            out["mask"] = np.arange(back) >= front
            out["mask"][front + len(inside) :] = False
        return out

    def _transition(self, episode: PlainEpisode, t: int, samples: Any) -> dict[str, Any]:
        end = min(t + samples.n_step, episode.steps)
        inside = range(t, end)
        out: dict[str, Any] = {
            "rewards": sum(samples.gamma**k * episode.rewards[r] for k, r in enumerate(inside)),
            "terminations": episode.ends[end - 1][0],
            "truncations": episode.ends[end - 1][1],
        }
        for name, at in (("observations", t), ("next_observations", end)):
            frames = [episode.observations[max(r, 0)] for r in range(at - samples.stack + 1, at + 1)]
            out[name] = frames if samples.stack > 1 else frames[0]
        if samples.n_step > 1:
            out["discounts"] = 0.0 if out["terminations"] else samples.gamma ** len(inside)
        return out


class Environments:
    """A vector environment of an autoreset mode, whose observations are the numbers of their moments."""

    def __init__(self, n: int, mode: str, rng: Any) -> None:
        self.n, self.mode, self.rng, self.moment = n, mode, rng, 0.0
        self.ended = np.zeros(n, np.bool_)
        self.left: set[int] = set()  # whose episodes a reset has ended
        self.now = self.fresh(np.ones(n, np.bool_), np.zeros(n))

    def fresh(self, which: AnyArray, old: AnyArray) -> AnyArray:
        numbers = old.copy()
        for k in np.flatnonzero(which):
            self.moment += 1
            numbers[k] = self.moment
        return numbers

    def reset_one(self, lane: int) -> None:
        """Reset an environment in the middle of its episode."""
        self.now = self.fresh(np.arange(self.n) == lane, self.now)
        self.ended[lane] = False
        self.left.add(lane)

    def step(self) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray, dict[str, Any]]:
        resetting = self.ended & (self.mode == "NextStep")
        following = self.fresh(np.ones(self.n, np.bool_), self.now)
        rewards = np.where(resetting, 0.0, following / 4)
        ends = self.rng.random((2, self.n)) < 0.1
        terminated, truncated = ends[0] & ~resetting, ends[1] & ~ends[0] & ~resetting
        self.ended = terminated | truncated
        infos: dict[str, Any] = {}
        if self.mode == "SameStep" and self.ended.any():
            infos["final_obs"] = finals = np.full(self.n, None)
            for k in np.flatnonzero(self.ended):
                finals[k] = following[k : k + 1].copy()
            following = self.fresh(self.ended, following)
        return following, rewards, terminated, truncated, infos


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("samples", SAMPLES, ids=repr)
@pytest.mark.parametrize(("n", "capacity", "pause"), [(1, 1, 1), (1, 40, 13), (3, 7, 1), (4, 90, 9)])
def test_steps_are_drawn_at_once(n: int, capacity: int, pause: int, samples: Any, mode: str) -> None:
    """`pause` steps come between two looks at the samples: the replay counts them late."""
    if capacity == 1 and not isinstance(samples, penstock.replay.Transitions):
        capacity = 5
    rng = np.random.default_rng([n, capacity])
    envs, replay, plain = (
        Environments(n, mode, rng),
        penstock.Replay(None, capacity, samples=samples),
        PlainReplay(samples, capacity),
    )
    for turn in range(100):
        if turn % 31 == 30:
            envs.reset_one(int(rng.integers(n)))
        if turn % 40 == 39:
            write_one(replay, plain)
        record(envs, replay, plain)
        if turn % pause == 0:
            assert_equal(replay, plain)


def write_one(replay: penstock.Replay, plain: PlainReplay) -> None:
    """Write a whole episode from elsewhere."""
    plain.begin(-1, 500.0)
    for t in range(3):
        plain.step(-1, 1.0, 501.0 + t, False, t == 2)
    replay.write(whole_episode())


def record(envs: Environments, replay: penstock.Replay, plain: PlainReplay) -> None:
    """Take a step of all environments, and record it on both sides."""
    n, mode = envs.n, envs.mode
    stepping = np.flatnonzero(~(envs.ended & (mode == "NextStep"))).tolist()
    if mode == "Disabled":
        envs.now = envs.fresh(envs.ended, envs.now)
    for k in sorted(envs.left):
        if k in plain.open and not plain.open[k].closed:
            plain.truncate(k)
    envs.left.clear()
    for k in stepping:
        if k not in plain.open or plain.open[k].closed:
            plain.begin(k, envs.now[k])
    before = envs.now
    following, rewards, terminated, truncated, infos = envs.step()
    step = before[:, None], np.zeros(n, np.int64), following[:, None], rewards, terminated, truncated
    replay.add(*step, infos, autoreset=mode)
    for k in stepping:
        final = infos["final_obs"][k][0] if "final_obs" in infos and envs.ended[k] else following[k]
        plain.step(k, rewards[k], final, bool(terminated[k]), bool(truncated[k]))
    envs.now = following


def whole_episode() -> penstock.Episode:
    columns = {
        "observations": np.arange(500.0, 504.0)[:, None],
        "actions": np.zeros(3, np.int64),
        "rewards": np.ones(3),
        "terminations": np.zeros(3, np.bool_),
        "truncations": np.arange(3) == 2,
    }
    return penstock.from_arrays(columns, lengths=[3])[0]


def assert_equal(replay: penstock.Replay, plain: PlainReplay) -> None:
    """All samples in memory are those of the plain replay."""
    live = plain.live()
    assert run_of(replay).anchors == ((live[0], live[-1] + 1) if live else (len(plain.anchors),) * 2)
    if live:
        batch = take(replay, live)
        wanted = [plain.sample(i) for i in live]
        for name in wanted[0]:
            rows = np.squeeze(batch[name], -1) if "observations" in name else batch[name]
            np.testing.assert_allclose(rows, np.array([each[name] for each in wanted]), rtol=1e-6, err_msg=name)


PRIORITIZED = penstock.replay.PrioritizedSampler(1.0)
SAMPLERS: list[Any] = [
    penstock.replay.UniformSampler(),
    penstock.replay.RecentSampler(30.0),
    penstock.replay.StratifiedSampler(),
    PRIORITIZED,
    penstock.replay.PrioritizedSampler(kind="rank"),
]


def chain(replay: penstock.Replay, envs: Environments, plain: PlainReplay, turns: int, rng: Any) -> list[Any]:
    """Steps, whole episodes, draws and updates in a random order. Returns what was drawn."""
    drawn: list[Any] = []
    for _ in range(turns):
        choice = int(rng.integers(10))
        if choice < 6 or not len(replay):
            record(envs, replay, plain)
        elif choice == 6:
            write_one(replay, plain)
        elif choice == 7:
            envs.reset_one(int(rng.integers(envs.n)))
        else:
            batch = replay.sample(9)
            drawn.append({name: rows.tolist() for name, rows in batch.items()})
            if "weights" in batch:
                replay.update(batch.ticket, rng.random(9))
    return drawn


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("way", ["pickle", "rows", "path", "path rows"])
def test_a_saved_replay_goes_on_as_if_nothing_had_happened(way: str, sampler: Any, tmp_path: Path) -> None:
    """Steps come in between too: open episodes go on where they were."""
    samples = SAMPLES[3] if way in ("rows", "path") else SAMPLES[1]

    def new(folder: str) -> penstock.Replay:
        where = tmp_path / folder if way.startswith("path") else None
        return penstock.Replay(where, 50, samples=samples, sampler=sampler, seed=4)

    ends: list[list[Any]] = []
    for saved in (False, True):
        rng = np.random.default_rng(8)
        replay, envs, plain = new(str(saved)), Environments(3, "NextStep", rng), PlainReplay(samples, 50)
        drawn: list[Any] = []
        for _ in range(3):
            drawn += chain(replay, envs, plain, 50, rng)
            if way.startswith("path"):
                replay.sample(1)
            if saved and way == "pickle":
                replay = pickle.loads(pickle.dumps(replay))
            elif saved:
                state = pickle.loads(pickle.dumps(replay.state_dict(rows="rows" in way)))
                replay = new(str(saved))
                replay.load_state_dict(state)
            if way in ("pickle", "rows"):
                assert_equal(replay, plain)
        ends.append(drawn)
    assert ends[0] == ends[1]
    assert len(ends[0]) > 10


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_the_journal_repeats_a_run_of_steps(sampler: Any, in_folder: bool, tmp_path: Path) -> None:
    """Also without a folder, and of a run that was killed while episodes were open."""
    samples = SAMPLES[1]
    rng = np.random.default_rng(5)
    store = tmp_path / "store" if in_folder else None
    replay = penstock.Replay(store, 50, samples=samples, sampler=sampler, seed=4, journal=tmp_path / "journal")
    envs, plain = Environments(3, "SameStep", rng), PlainReplay(samples, 50)
    drawn = chain(replay, envs, plain, 150, rng)
    again = penstock.Replay(store, 50, samples=samples, sampler=sampler, seed=4, replays=tmp_path / "journal")
    for wanted in drawn:
        assert {name: rows.tolist() for name, rows in again.sample(9).items()} == wanted
    with pytest.raises(penstock.errors.StateError, match="repeats a journal"):
        record(envs, again, plain)
    with pytest.raises(TypeError, match="one run writes a journal"):
        pickle.dumps(replay)


def test_a_folder_has_the_episodes_whose_steps_were_added(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    replay = penstock.Replay(tmp_path / "store", 50)
    envs, plain = Environments(3, "NextStep", rng), PlainReplay(SAMPLES[0], 10_000)
    everything: list[PlainEpisode] = []
    for _ in range(120):
        record(envs, replay, plain)
        everything += [each for each in plain.open.values() if not any(each is one for one in everything)]
    with penstock.Replay(tmp_path / "store", 50) as killed:  # a process that was killed now would leave this
        ended = [each for each in everything if each.closed]
        assert killed.refresh().episodes == len(ended)
    assert replay.refresh().episodes == len(ended)
    replay.close()
    stored = {tuple(np.asarray(each.observations)[:, 0]): each for each in penstock.open(tmp_path / "store")}
    wanted = {tuple(each.observations): each for each in everything if each.steps}
    assert stored.keys() == wanted.keys()
    for key, each in stored.items():
        assert bool(each.truncations[-1]) == (not wanted[key].closed or wanted[key].ends[-1][1])
    lines = replay.why(replay.sample(64).ticket).table
    assert set(lines["episode"].tolist()) <= set(range(len(stored)))


class Counting(gymnasium.Env[Any, Any]):
    """Observations count the steps of an episode, which ends after `length` of them."""

    observation_space = gymnasium.spaces.Dict({"at": gymnasium.spaces.Box(-1, 1e6, (2,), np.float64)})
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, length: int) -> None:
        self.length, self.number = length, 100 * length
        self.at: float = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.number, self.at = self.number + 1, 0
        return {"at": np.array([self.number, 0.0])}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        ends = self.at == self.length
        return {"at": np.array([self.number, float(self.at)])}, float(action), ends and self.length == 3, ends, {}


def rows_of(columns: Any, steps: int) -> set[tuple[float, ...]]:
    names = ("observations/at", "actions", "rewards", "next_observations/at", "terminations", "truncations")
    flat = np.concatenate([np.asarray(columns[name], np.float64).reshape(steps, -1) for name in names], 1)
    return set(map(tuple, flat.tolist()))


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled", None])
def test_collectors_deliver_each_step(mode: str | None, in_folder: bool, tmp_path: Path) -> None:
    """The rows are those that a recording of the same run has, and are there before the episodes end."""
    replay = penstock.Replay(tmp_path / "store" if in_folder else None, 10_000)
    written = MemoryWriter()
    makers = [lambda length=length: Counting(length) for length in (3, 5, 40)]
    for target in (replay, written):
        rng = np.random.default_rng(1)
        env: Any = Counting(5) if mode is None else gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=mode)
        with penstock.record(env, target, seed=0, outside="keep") as env:
            env.reset()
            for turn in range(30):
                result = env.step(int(rng.integers(3)) if mode is None else rng.integers(0, 3, 3))
                ended = np.logical_or(result[2], result[3])
                if target is replay and turn < 2:
                    assert len(replay) == (turn + 1) * (1 if mode is None else 3)
                if mode is None and ended:
                    env.reset()
                elif mode == "Disabled" and ended.any():
                    env.reset(options={"reset_mask": ended})
    data = penstock.EpisodeDataset(penstock.formats.MemorySource.from_episodes(written.episodes)).transitions()
    batch = take(replay, np.arange(len(replay)))
    assert len(replay) == len(data) > 20
    assert rows_of(batch, len(replay)) == rows_of(data[:], len(data))
    assert replay.refresh().episodes == len(written.episodes)
    if in_folder:
        stored = penstock.open(tmp_path / "store")
        assert [each.metadata for each in stored] == [each.metadata for each in written.episodes]
        lines = replay.why(replay.sample(500).ticket).table
        assert set(lines["episode"].tolist()) == set(range(len(stored)))


def test_an_episode_that_is_refused_leaves_its_steps_in_memory_only(tmp_path: Path) -> None:
    replay = penstock.Replay(tmp_path / "store", 100)
    counting = Counting(9)
    env = penstock.record(counting, replay)
    env.reset()
    for at in (0, 1, np.nan):
        counting.at = at
        env.step(0)
    with pytest.raises(penstock.errors.DataError, match="expected finite"):
        env.reset()
    assert len(replay) == 3
    with penstock.record(Counting(5), replay) as env:
        penstock.rollout(env, episodes=2, seed=0)
    replay.close()
    assert len(replay) == 13
    assert [len(each) for each in penstock.open(tmp_path / "store")] == [5, 5]


def test_what_add_refuses() -> None:
    replay = penstock.Replay(None, 100)
    step = np.zeros((2, 3)), np.zeros(2, np.int64), np.ones((2, 3)), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool)
    with pytest.raises(penstock.errors.ArgumentError, match=r"envs.metadata\['autoreset_mode'\]"):
        replay.add(*step)
    replay.add(*step, autoreset="Disabled")
    wrong: list[tuple[int, Any, str]] = [
        (0, np.zeros((2, 4)), "expected observations of shape"),
        (1, np.array([0.5, 1.0]), "expected actions of int64, got float64"),
        (1, np.array([2**63, 0], np.uint64), "expected actions of int64"),
        (2, {"at": np.zeros((2, 3))}, "the columns of the replay"),
        (4, np.zeros(2), "expected terminations of bool"),
    ]
    for place, value, message in wrong:
        with pytest.raises(penstock.errors.DataError, match=message):
            replay.add(*(value if i == place else each for i, each in enumerate(step)), autoreset="Disabled")
    ended = (*step[:4], np.ones(2, bool), step[5])
    with pytest.raises(penstock.errors.DataError, match=r"infos\['final_obs'\]"):
        replay.add(*ended, autoreset=gymnasium.vector.AutoresetMode.SAME_STEP)
    again = step[2]
    replay.add(np.zeros((2, 3)), *step[1:2], again, *step[3:], autoreset="Disabled")
    again += 1
    with pytest.raises(penstock.errors.DataError, match="give copies to add"):
        replay.add(again, *step[1:], autoreset="Disabled")
    completions = penstock.Replay(
        None, 100, samples=penstock.replay.Completions(8), sampler=penstock.replay.GroupSampler(2)
    )
    with pytest.raises(penstock.errors.PlanError, match="expected whole episodes"):
        completions.add(*step, autoreset="Disabled")


def test_further_columns_and_episode_values() -> None:
    data = penstock.from_arrays(
        {
            "observations": np.zeros(3),
            **dict.fromkeys(("actions", "rewards", "log_prob"), np.zeros(2)),
            **dict.fromkeys(("terminations", "truncations"), np.zeros(2, bool)),
            "task": np.array([7]),
        },
        [2],
        align={"task": "episode"},
    )
    replay = penstock.Replay(None, 100)
    replay.write(data[0])
    for t in range(40):
        replay.add(float(t), 0.0, t + 1.0, 1, False, False, extras={"log_prob": t / 2, "task": 9})
    batch = take(replay, np.arange(42))
    assert batch["task"].tolist() == [7] * 2 + [9] * 40
    assert batch["log_prob"].tolist() == [0, 0, *(t / 2 for t in range(40))]
    with pytest.raises(penstock.errors.DataError, match="give further columns as extras="):
        replay.add(40.0, 0.0, 41.0, 1, False, False)


def test_the_public_members_are_those_that_a_learner_uses() -> None:
    wanted = "add batches close load_state_dict refresh sample set_policy_version spec state_dict update why"
    writer = "update_metadata write write_all write_together"
    assert [name for name in dir(penstock.Replay) if name[0] != "_"] == sorted(f"{wanted} {writer}".split())
    replay = penstock.Replay(None, 10)
    assert [name for name in vars(replay) if name[0] != "_"] == []


def test_values_of_other_types_give_the_rows_of_arrays() -> None:
    """Steps inside of episodes are written without conversion where values fit, and are checked where not."""
    rng = np.random.default_rng(6)
    first, other = penstock.Replay(None, 300), penstock.Replay(None, 300)
    now = {"a": rng.random((2, 3), np.float32), "b": rng.integers(9, size=(2,))}
    for t in range(60):
        after = {"a": rng.random((2, 3), np.float32), "b": rng.integers(9, size=(2,))}
        rewards, ended = rng.random(2), np.array([t % 20 == 19, False])
        step = {"x": rng.random((2, 4)).astype(np.float32)}, after, rewards, np.zeros(2, np.bool_), ended
        first.add(now, *step, autoreset="Disabled")
        kinds = [
            np.asfortranarray,
            lambda array: array.tolist(),
            lambda array: array.astype(array.dtype.newbyteorder()),
        ]
        kind: Any = kinds[t % 3] if t else np.asarray
        changed = {"x": np.asfortranarray(step[0]["x"])}, {"a": kind(after["a"]), "b": after["b"]}, *step[2:]
        if t % 3 == 1:
            changed[1]["a"] = np.asarray(changed[1]["a"], np.float32)
        other.add({"a": now["a"].copy(), "b": now["b"].tolist() if t else now["b"]}, *changed, autoreset="Disabled")
        now = after
    anchors = list(range(120))
    wanted, got = take(first, anchors), take(other, anchors)
    assert all(np.array_equal(got[name], wanted[name]) for name in wanted)
    with pytest.raises(penstock.errors.DataError, match="rewards of shape"):
        first.add(now, {"x": step[0]["x"]}, after, np.zeros((2, 1)), *step[3:], autoreset="Disabled")
    with pytest.raises(penstock.errors.ArgumentError, match="autoreset"):
        first.add(now, *step)
    assert len(first) == 120


@pytest.mark.parametrize("seed", [0, 1])
def test_numbers_of_one_environment_give_the_rows_of_arrays(seed: int) -> None:
    """Steps are written together when somebody looks: at any time, across 64 of them and the ends of segments."""
    rng = np.random.default_rng(seed)
    first, other = penstock.Replay(None, 5000), penstock.Replay(None, 5000)
    now = 0
    for t in range(700):
        action, reward, ended = int(rng.integers(5)), float(rng.normal()), t % 230 == 229
        after = int(rng.integers(40))
        first.add(np.asarray(now), np.asarray(action), np.asarray(after), np.asarray(reward), ended, False)
        mixed = np.int64(after) if rng.random() < 0.1 else after
        other.add(now, np.int64(action), mixed, np.float32(reward) if t == 350 else reward, np.bool_(ended), False)
        if t == 350:
            with pytest.raises(penstock.errors.DataError):
                other.add(after, 2**70, after, 0.0, False, False)
        if rng.random() < 0.02:
            assert len(first) == len(other) == t + 1
            assert np.array_equal(take(first, [t])["actions"], take(other, [t])["actions"])
        now = after
    wanted, got = take(first, range(700)), take(other, range(700))
    assert np.delete(got["rewards"], 350).tolist() == np.delete(wanted["rewards"], 350).tolist()
    assert got["rewards"][350] == np.float32(wanted["rewards"][350])
    assert all(np.array_equal(got[name], wanted[name]) for name in wanted if name != "rewards")
    assert other.refresh().episodes == 4


def test_not_a_number_and_minus_zero_are_observations_like_others() -> None:
    replay = penstock.Replay(None, 100)
    values = [0.0, 1.0, np.nan, 2.0, -0.0, 3.0, 4.0]
    for now, after in itertools.pairwise(values):
        replay.add(np.float64(now), 0, np.float64(after), 0.0, False, False)
    assert replay.refresh().episodes == 1
    replay.add(np.float64(-4.0), 0, np.float64(0.0), 0.0, False, False)
    replay.add(np.float64(-0.0), 0, np.float64(1.0), 0.0, False, False)
    assert replay.refresh().episodes == 3


@pytest.mark.parametrize("dtype", ["u1", "i8", "f4"])
def test_flags_may_be_numbers(dtype: str) -> None:
    replay, flags = penstock.Replay(None, 100), np.zeros((2, 30, 2), dtype)
    flags[0, 9::10, 0] = flags[1, 14::15, 1] = 2
    for t in range(30):
        now, after = np.full((2, 3), t, np.float32), np.full((2, 3), t + 1, np.float32)
        replay.add(now, np.zeros(2), after, np.ones(2), flags[0, t], flags[1, t], autoreset="Disabled")
    assert replay.refresh().episodes == 5
    samples = take(replay, range(60))
    assert samples["terminations"].reshape(30, 2).tolist() == flags[0].tolist()
    assert samples["truncations"].reshape(30, 2).tolist() == flags[1].tolist()
