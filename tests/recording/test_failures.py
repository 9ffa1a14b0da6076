"""What is decided about full disks, failing environments and bad values; see docs/howto/recording.md."""

from __future__ import annotations

import errno
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from penstock.errors import DataError, MissingExtraError
from penstock.kernels import bounds, library
from penstock.kernels.jit import KERNELS, Kernel
from penstock.recording.checks import RecordingWarning
from penstock.recording.collector import Collector
from penstock.recording.memory import MemoryWriter
from penstock.recording.vector import VectorCollector


class Disk(MemoryWriter):
    """Has room for so many episodes."""

    room = 0

    def write(self, episode):
        if len(self.episodes) >= self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(episode)


@pytest.fixture
def writer():
    return MemoryWriter()


def run(env, episodes=1, action=0):
    for _ in range(episodes):
        env.reset()
        while not any(env.step(action)[2:4]):
            pass


def test_a_full_disk_keeps_the_episode_until_there_is_room(toy, same_as_replay):
    env = Collector(toy(), disk := Disk(), seed=0)
    for waiting in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            run(env)
        assert (env.pending, env.episodes) == (waiting, 0)
    disk.room = 1
    with pytest.raises(OSError, match="No space left"):
        env.flush()
    assert (env.pending, env.episodes) == (1, 1)
    disk.room = 9
    env.flush()
    run(env)
    assert (env.pending, env.episodes) == (0, 3)
    assert [e.id for e in disk.episodes] == [0, 1, 2]
    same_as_replay(toy, disk.episodes)


def test_close_on_a_full_disk_can_be_called_again(toy):
    closed = []

    class Env(toy):
        def close(self):
            closed.append(self)

    env = Collector(Env(longest=10**6), disk := Disk(), seed=0)
    env.reset()
    env.step(0)
    with pytest.raises(OSError, match="No space left"):
        env.close()
    disk.room = 1
    env.close()
    assert len(closed) == 1
    assert [len(e) for e in disk.episodes] == [1]


def test_a_full_disk_under_vectorised_environments(toy):
    envs = VectorCollector(SyncVectorEnv([lambda: toy(longest=1)] * 3), disk := Disk(), seed=0)
    envs.reset()
    with pytest.raises(OSError, match="No space left"):
        envs.step(np.zeros(3, np.int64))
    assert envs.pending == 3
    envs.step(np.zeros(3, np.int64))  # the step that resets
    disk.room = 9
    envs.step(np.zeros(3, np.int64))
    envs.close()
    assert [e.metadata["env"] for e in disk.episodes] == [0, 1, 2] * 2


def test_an_episode_that_the_format_refuses_is_dropped_and_the_next_is_written(toy):
    class Picky(MemoryWriter):
        def write(self, episode):
            if episode.metadata["seed"] == 1:
                raise DataError("no place for it")
            return super().write(episode)

    env = Collector(toy(longest=1), writer := Picky())
    env.reset(seed=1)
    with pytest.raises(DataError, match="no place"):
        env.step(0)
    env.reset(seed=2)
    env.step(0)
    assert [e.metadata["seed"] for e in writer.episodes] == [2]


class Crash(Exception):
    pass


def test_without_code_of_kernels_nothing_begins(toy, writer, monkeypatch):
    marked = KERNELS["penstock.kernels.bounds._are_within"]
    monkeypatch.setattr(bounds, "_are_within", Kernel(marked.function, marked.signatures))
    monkeypatch.setattr(library, "_tools", lambda: "")
    monkeypatch.setitem(sys.modules, "penstock.kernels.compiler", None)
    monkeypatch.delattr("penstock.kernels.compiler", raising=False)
    with pytest.raises(MissingExtraError, match="got neither"):
        Collector(toy(), writer)


def test_a_failing_environment_leaves_what_was_recorded(toy, writer, same_as_replay):
    class Fails(toy):
        def step(self, action):
            if self.t == 3:
                raise Crash("simulator")
            return super().step(action)

    env = Collector(Fails(longest=10**6), writer, seed=0)
    env.reset()
    for _ in range(3):
        env.step(1)
    with pytest.raises(Crash, match=r"^simulator$"):
        env.step(1)
    assert writer.episodes == []
    env.close()
    assert writer.episodes[0].truncations.tolist() == [False, False, True]
    same_as_replay(lambda: toy(longest=10**6), writer.episodes)


def test_the_with_block_saves_on_the_way_out_of_an_exception(toy, writer):
    def crash():
        with Collector(toy(longest=10**6), writer) as env:
            env.reset()
            env.step(0)
            raise Crash

    with pytest.raises(Crash):
        crash()
    assert [len(e) for e in writer.episodes] == [1]


def test_a_failing_reset_opens_nothing(toy, writer):
    class Fails(toy):
        def reset(self, **how):
            raise Crash

    env = Collector(Fails(), writer)
    with pytest.raises(Crash):
        env.reset()
    with pytest.raises(DataError, match="reset"):
        env.step(0)


def emits(toy, at, observation=None, reward=None, longest=10**6):
    class Emits(toy):
        def step(self, action):
            seen, value, *rest = super().step(action)
            if self.t != at:
                return seen, value, *rest
            return seen if observation is None else observation(seen), value if reward is None else reward, *rest

    return Emits(longest=longest)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (lambda o: o.astype(np.float64), "expected observations of float32, got float64 - at row 3"),
        (lambda o: o[:2], r"expected observations of shape \(3,\), got \(2,\) - at row 3"),
        (lambda o: o[:1], r"expected observations of shape \(3,\), got \(1,\) - at row 3"),
        (lambda o: {"a": o}, r"expected observations of shape \(3,\), got \(\)"),
        (lambda o: [[1.0], [2.0, 3.0]], "expected observations as an array"),
        (lambda o: None, r"shape \(3,\), got \(\)"),
    ],
)
def test_a_wrong_observation_is_an_error_at_its_step_and_ends_the_episode_before(toy, writer, observation, message):
    env = Collector(emits(toy, 3, observation), writer, seed=0)
    env.reset()
    env.step(0)
    env.step(0)
    with pytest.raises(DataError, match=message):
        env.step(0)
    with pytest.raises(DataError, match=r"expected reset\(\)"):
        env.step(0)
    env.reset()
    assert [len(e) for e in writer.episodes] == [2]
    assert writer.episodes[0].truncations.tolist() == [False, True]


@pytest.mark.parametrize("reward", ["1", None, np.zeros(1), [1.0], 1j])
def test_a_wrong_reward_is_an_error_at_its_step(toy, writer, reward):
    class Pays(toy):
        def step(self, action):
            seen, _, *rest = super().step(action)
            return seen, reward, *rest

    with Collector(Pays(longest=10**6), writer) as env:
        env.reset()
        with pytest.raises(DataError, match=r"expected rewards of .* - at row 0"):
            env.step(0)


@pytest.mark.parametrize("reward", [2, True, np.float32(2), np.array(2.0), np.int64(2)])
def test_any_real_number_is_a_reward(toy, writer, reward):
    with Collector(emits(toy, 1, reward=reward), writer) as env:
        env.reset()
        env.step(0)
    assert writer.episodes[0].rewards.tolist() == [float(reward)]


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (gymnasium.spaces.Discrete(3), 1.0),
        (gymnasium.spaces.Discrete(3), np.zeros(1, np.int64)),
        (gymnasium.spaces.Discrete(3), 2**70),
        (gymnasium.spaces.Box(-1, 1, (2,), np.float32), np.zeros(2)),
        (gymnasium.spaces.Box(0, 255, (2,), np.uint8), [0, 256]),
        (gymnasium.spaces.Text(3), 5),
        (gymnasium.spaces.Text(3), "\udc80"),
        (gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)}), {"a": 1, "b": 1}),
        (gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)}), 1),
        (gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)]), (1, 1)),
        (gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)]), 1),
    ],
    ids=str,
)
def test_a_wrong_action_is_an_error_before_the_environment_moves(toy, writer, space, action):
    env = Collector(inner := toy(action_space=space, longest=10**6), writer, seed=0)
    env.reset()
    with pytest.raises(DataError, match="expected actions"):
        env.step(action)
    assert inner.t == 0
    env.step(inner.action_space.sample())
    env.close()
    assert [len(e) for e in writer.episodes] == [1]


def test_python_numbers_and_lists_are_taken_where_they_fit(toy, writer):
    box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    with Collector(toy(action_space=box), writer, seed=0) as env:
        env.reset()
        env.step([0.5, 1])
    assert writer.episodes[0].actions.tolist() == [[0.5, 1]]


def test_dtypes_can_be_cast_within_their_kind(toy, writer):
    with Collector(emits(toy, 1, lambda o: o.astype(np.float64) / 3), writer, dtypes="cast", seed=0) as env:
        env.reset()
        env.step(np.int32(1))
        with pytest.raises(DataError, match="expected actions of int64, got float64"):
            env.step(1.0)
    assert writer.episodes[0].observations.dtype == np.float32


BAD = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("where", ["observations", "rewards"])
def test_values_that_are_not_finite(toy, where, bad):
    def make(verdict, writer):
        if where == "rewards":
            env = emits(toy, 2, reward=bad)
        else:
            env = emits(toy, 2, lambda o: np.array([0, bad, 0], np.float32))
        env.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        env = Collector(env, writer, nan=verdict, seed=0)
        env.reset()
        for _ in range(4):
            env.step(0)
        return env

    row = 2 if where == "observations" else 1
    message = f"expected finite {where}, got .*{bad}.* - at row {row} of episode 0; 1 of {row + 3} rows"
    message = message.replace(f"{row + 3} rows", "5 rows" if where == "observations" else "4 rows")
    env = make("error", writer := MemoryWriter())
    with pytest.raises(DataError, match=message):
        env.reset()
    assert writer.episodes == []
    env = make("warn", writer)
    with pytest.warns(RecordingWarning, match=message):
        env.close()
    make("keep", writer).close()
    assert len(writer.episodes) == 2


def test_values_outside_their_space(toy):
    def make(verdict, writer):
        env = Collector(emits(toy, 1, lambda o: o + 9, longest=1), writer, outside=verdict, seed=0)
        env.reset()
        return env

    message = r"expected in Box\(.*, observations, got .* - at row 1 of episode 0; 1 of 2 rows are so"
    env = make("error", writer := MemoryWriter())
    with pytest.raises(DataError, match=message):
        env.step(0)
    assert writer.episodes == []
    env = make("warn", writer)
    with pytest.warns(RecordingWarning, match=message):
        env.step(0)
    run(env, 3)  # said once a column: a warning would be an error
    env = make("keep", writer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(0)
    assert len(writer.episodes) == 5


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (gymnasium.spaces.Discrete(3, start=5), 8),
        (gymnasium.spaces.MultiDiscrete([2, 3]), np.array([0, 3])),
        (gymnasium.spaces.MultiBinary(2), np.array([0, 2], np.int8)),
        (gymnasium.spaces.Text(3, charset="ab"), "abc"),
        (gymnasium.spaces.Dict({"x": gymnasium.spaces.Discrete(2)}), {"x": 2}),
    ],
    ids=str,
)
def test_actions_outside_their_space(toy, writer, space, action):
    env = Collector(toy(action_space=space, longest=1), writer, outside="error", seed=0)
    assert not space.contains(action)
    env.reset()
    with pytest.raises(DataError, match=r"expected in .* actions.* at row 0 of episode 0"):
        env.step(action)


def test_nan_is_reported_once_and_not_as_outside_too(toy, writer):
    env = Collector(emits(toy, 1, lambda o: o * np.nan, longest=1), writer, nan="warn", outside="error", seed=0)
    env.reset()
    with pytest.warns(RecordingWarning, match="expected finite observations"):
        env.step(0)


def test_bounds_are_inclusive_and_what_passes_is_what_the_space_contains(toy):
    rng = np.random.default_rng(0)
    spaces = [
        gymnasium.spaces.Box(np.array([0, -np.inf], np.float32), np.array([1, 1], np.float32)),
        gymnasium.spaces.Box(0, 2, (), np.float64),
        gymnasium.spaces.Box(1, 3, (2, 2), np.uint8),
        gymnasium.spaces.Discrete(3, start=1),
        gymnasium.spaces.MultiDiscrete([3, 2], start=[1, 1]),
        gymnasium.spaces.MultiBinary((2, 2)),
    ]
    seen = set()
    for space in spaces * 30:
        action = np.asarray(rng.integers(0, 4, space.shape)).astype(space.dtype)[()]
        env = Collector(toy(action_space=space, longest=1), MemoryWriter(), outside="error", seed=0)
        env.reset()
        inside = space.contains(np.asarray(action))
        seen.add((id(space), inside))
        if inside:
            env.step(action)
        else:
            with pytest.raises(DataError, match=r"expected in .* actions"):
                env.step(action)
    assert len(seen) == 2 * len(spaces)


def test_an_action_that_is_not_finite(toy, writer):
    box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    env = Collector(toy(action_space=box, longest=1), writer, seed=0)
    env.reset()
    with pytest.raises(DataError, match="expected finite actions"):
        env.step(np.array([np.nan, 0], np.float32))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("format", ["columns", "minari", "webdataset"])
def test_an_unwritable_target_is_noticed_before_the_first_step(toy, format, several, tmp_path):
    (tmp_path / "file").write_text("")
    kind, env = (VectorCollector, SyncVectorEnv([toy])) if several else (Collector, toy())
    with pytest.raises(OSError, match="file"):
        kind(env, tmp_path / "file" / "data", format=format)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("format", ["columns", "minari", "webdataset"])
def test_folders_above_the_target_are_made(toy, format, tmp_path):
    with Collector(toy(), path := tmp_path / "a" / "b" / "data", format=format) as env:
        env.reset(seed=0)
        env.step(0)
    assert path.exists()
    assert [p.name for p in path.parent.iterdir()] == ["data"]
