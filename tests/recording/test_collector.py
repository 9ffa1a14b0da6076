from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.envs import recover
from penstock.errors import DataError, SpecError, UnsafeDataError
from penstock.formats.base.format import named
from penstock.recording.collector import Collector
from penstock.recording.hooks import reward_statistics, seed_stream
from penstock.recording.memory import MemoryWriter


@pytest.fixture
def writer():
    return MemoryWriter()


def drive(env, episodes, seed=0):
    env.action_space.seed(seed)
    for _ in range(episodes):
        env.reset()
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated


def test_recordings_of_every_observation_space_can_be_replayed(toy, space, writer, same_as_replay):
    with Collector(toy(space), writer, seed=1) as env:
        drive(env, 12)
    assert len(writer.episodes) == 12
    assert {bool(e.terminations[-1]) for e in writer.episodes} == {True, False}
    same_as_replay(lambda: toy(space), writer.episodes)


def test_recordings_of_every_action_space_can_be_replayed(toy, space, writer, same_as_replay):
    with Collector(toy(action_space=space), writer, seed=1) as env:
        drive(env, 12)
    seeded = toy(action_space=space).action_space
    seeded.seed(0)
    for episode in writer.episodes:
        for t, action in enumerate(_rows(episode)):
            assert _same(action, seeded.sample()), t
    same_as_replay(lambda: toy(action_space=space), writer.episodes)


def _rows(episode):
    leaf = episode.columns
    paths = [p for p in leaf if p.startswith("actions")]
    texts = {p: leaf[p].strings() if episode.spec[p].ragged else leaf[p] for p in paths}
    return [[texts[p][t] for p in sorted(paths)] for t in range(len(episode))]


def _same(row, action):
    def flat(value):
        if isinstance(value, dict):
            return [leaf for key in sorted(value) for leaf in flat(value[key])]
        return [leaf for inner in value for leaf in flat(inner)] if isinstance(value, tuple) else [value]

    return all(np.array_equal(a, b) for a, b in zip(row, flat(action), strict=True))


def test_long_episodes_outgrow_the_buffer(toy, writer, same_as_replay):
    def make():
        return toy(gymnasium.spaces.Box(0, 1, (400,), np.float64), longest=3000)

    with Collector(make(), writer, seed=4) as env:
        drive(env, 3)
    assert max(len(e) for e in writer.episodes) > 400  # several doublings, and past the size of a hand-over
    same_as_replay(make, writer.episodes)
    first = writer.episodes[0].observations.copy()
    assert not any(np.shares_memory(writer.episodes[0].observations, e.observations) for e in writer.episodes[1:])
    np.testing.assert_array_equal(writer.episodes[0].observations, first)


def test_the_caller_sees_the_environment_unchanged(toy, writer):
    bare, env = toy(), Collector(toy(), writer)
    bare.action_space.seed(0)
    (theirs, info), (ours, same_info) = bare.reset(seed=5), env.reset(seed=5)
    np.testing.assert_array_equal(theirs, ours)
    assert info == same_info
    over = False
    while not over:
        action = bare.action_space.sample()
        expected, result = bare.step(action), env.step(action)
        np.testing.assert_array_equal(expected[0], result[0])
        assert expected[1:] == result[1:]
        over = expected[2] or expected[3]


def test_it_is_a_gymnasium_wrapper(toy, writer):
    env = Collector(inner := toy(), writer)
    assert isinstance(env, gymnasium.Env)
    assert env.unwrapped is inner
    assert env.observation_space is inner.observation_space
    outer = gymnasium.wrappers.TimeLimit(Collector(toy(longest=50), writer, seed=0), 3)
    outer.reset()
    assert outer.step(0)[3] is False


def test_seeds_are_drawn_from_a_seedable_stream_and_kept(toy):
    def seeds(**how):
        drive(Collector(toy(), writer := MemoryWriter(), **how), 5)
        return [e.metadata["seed"] for e in writer.episodes]

    first = seeds(seed=1)
    assert first == seeds(seed=1)
    assert all(type(s) is int and 0 <= s < 2**31 for s in first)
    assert len({*first, *seeds(seed=2)}) == 10
    assert seeds() != seeds()


def test_a_given_seed_and_options_are_passed_on_and_kept(toy, writer):
    env = Collector(inner := toy(), writer)
    options = {"level": {"name": "a"}}
    env.reset(seed=np.int64(17), options=options)
    options["level"]["name"] = "changed later"
    env.step(0)
    env.close()
    assert inner.resets == [(17, options)]
    assert type(inner.resets[0][0]) is int
    assert writer.episodes[0].metadata["seed"] == 17
    assert type(writer.episodes[0].metadata["seed"]) is int
    assert writer.episodes[0].metadata["options"] == {"level": {"name": "a"}}


def test_without_autoseed_nothing_is_seeded(toy, writer):
    drive(Collector(inner := toy(), writer, autoseed=False), 2)
    assert inner.resets == [(None, None)] * 2
    assert "seed" not in writer.episodes[0].metadata


def test_the_seed_stream_never_repeats_itself():
    stream = seed_stream(3)
    assert len({next(stream) for _ in range(100_000)}) == 100_000


def test_statistics_are_numpys(toy, writer):
    drive(Collector(toy(), writer, seed=0), 4)
    for episode in writer.episodes:
        rewards = episode.rewards
        for name in ("sum", "mean", "std", "max", "min"):
            assert episode.metadata[f"rewards_{name}"] == pytest.approx(getattr(np, name)(rewards), rel=1e-15)
            assert type(episode.metadata[f"rewards_{name}"]) is float


def test_own_episode_metadata(toy, writer):
    def describe(episode):
        return {**reward_statistics(episode), "steps": len(episode)}

    drive(Collector(toy(), writer, episode_metadata=describe), 1)
    assert writer.episodes[0].metadata["steps"] == len(writer.episodes[0])
    assert "rewards_sum" in writer.episodes[0].metadata
    drive(Collector(toy(), writer, episode_metadata=None, autoseed=False), 1)
    assert writer.episodes[1].metadata == {}


def test_an_unfinished_episode_is_truncated_at_reset(toy, writer):
    env = Collector(toy(longest=10**6), writer, seed=0)
    env.reset()
    env.reset()  # without steps there is nothing to keep
    for _ in range(3):
        env.step(0)
    env.reset()
    assert [len(e) for e in writer.episodes] == [3]
    assert writer.episodes[0].truncations.tolist() == [False, False, True]
    assert writer.episodes[0].terminations.tolist() == [False] * 3


@pytest.mark.parametrize(("unfinished", "kept"), [("save", [3]), ("drop", [])])
def test_close_saves_or_drops_the_open_episode(toy, writer, unfinished, kept):
    env = Collector(toy(longest=10**6), writer, seed=0, unfinished=unfinished)
    env.reset()
    for _ in range(3):
        env.step(0)
    env.close()
    env.close()
    assert [len(e) for e in writer.episodes] == kept
    assert all(e.truncations[-1] for e in writer.episodes)
    with pytest.raises(DataError, match="reset"):
        env.step(0)


def test_truncate_cuts_and_goes_on_from_the_last_observation(toy, writer, plain):
    env = Collector(toy(longest=10**6), writer, seed=0, record_infos=True)
    env.reset(seed=3)
    env.truncate()  # nothing to cut yet
    for action in (1, 2, -1):
        env.step(action)
    env.truncate()
    for action in (0, -2):
        env.step(action)
    env.close()
    (oracle := plain(toy(longest=10**6))).run(3, [1, 2, -1, 0, -2])
    columns, infos = oracle.episodes[0]
    first, second = writer.episodes
    np.testing.assert_array_equal(first.observations, columns["observations"][:4])
    np.testing.assert_array_equal(second.observations, columns["observations"][3:])
    np.testing.assert_array_equal(np.concatenate([first.rewards, second.rewards]), columns["rewards"])
    assert second.columns["infos/t"].tolist() == infos["infos/t"][3:] == [3, 4, 5]
    assert second.columns["infos/text"].strings() == infos["infos/text"][3:]
    assert first.truncations.tolist() == [False, False, True]
    assert second.metadata["continued"] is True
    assert "seed" not in second.metadata


def test_truncate_then_reset_starts_afresh(toy, writer, same_as_replay):
    env = Collector(toy(longest=10**6), writer, seed=0)
    for _ in range(2):
        env.reset()
        env.step(1)
        env.truncate()
    env.reset()
    env.close()
    assert [len(e) for e in writer.episodes] == [1, 1]
    same_as_replay(lambda: toy(longest=10**6), writer.episodes)


def test_steps_need_an_open_episode(toy, writer):
    env = Collector(toy(longest=1), writer)
    for use in (lambda: env.step(0), env.truncate):
        with pytest.raises(DataError, match="reset"):
            use()
    env.reset()
    env.step(0)
    with pytest.raises(DataError, match=r"expected reset\(\) before step"):
        env.step(0)


def test_an_action_that_the_environment_changes_is_recorded_as_given(toy, writer):
    class Clips(toy):
        def step(self, action):
            action *= 0
            return super().step(action)

    with Collector(Clips(action_space=gymnasium.spaces.Box(-1, 1, (2,), np.float64)), writer) as env:
        env.reset()
        env.step(np.array([0.25, 0.5]))
    assert writer.episodes[0].actions[0].tolist() == [0.25, 0.5]


def test_counters_and_spec(toy, writer):
    env = Collector(toy(), writer, seed=0)
    assert list(env.dataset_spec) == ["observations", "actions", "rewards", "terminations", "truncations"]
    drive(env, 3)
    assert (env.episodes, env.steps, env.pending) == (3, sum(len(e) for e in writer.episodes), 0)
    assert env.dataset_spec == writer.episodes[0].spec
    assert [e.id for e in writer.episodes] == [0, 1, 2]


def test_a_function_makes_the_writer_when_the_spec_is_known(toy, writer):
    specs = []

    def make(spec):
        specs.append(spec)
        return writer

    env = Collector(toy(), make, record_infos=True, seed=0)
    assert specs == []
    drive(env, 2)
    assert len(specs) == 1
    assert specs[0] == writer.episodes[0].spec
    assert "infos/deep/speed" in specs[0]


def test_a_writer_made_here_is_closed_here_and_one_handed_in_is_not(toy):
    class Closing(MemoryWriter):
        closed = 0

        def close(self):
            self.closed += 1

    made, handed = Closing(), Closing()
    for target in (lambda spec: made, handed):
        with Collector(toy(), target, seed=0) as env:
            drive(env, 1)
    assert (made.closed, handed.closed) == (1, 0)


def test_targets_that_cannot_be(toy, tmp_path):
    with pytest.raises(FileExistsError, match="choose another path"):
        Collector(toy(), tmp_path)
    with pytest.raises(SpecError, match="a path, a Writer or a function"):
        Collector(toy(), 3)
    with pytest.raises(SpecError, match="record_infos"):
        Collector(toy(), MemoryWriter(), record_infos="some")


@pytest.mark.parametrize("format", ["columns", "minari"])
def test_a_path_becomes_a_dataset_that_holds_what_memory_holds(toy, space, writer, tmp_path, format):
    for target, how in ((writer, {}), (tmp_path / "data", {"format": format, "metadata": {"author": "me"}})):
        with Collector(toy(space, space), target, seed=3, record_infos=True, **how) as env:
            drive(env, 5)
    with named(format).open(tmp_path / "data") as source:
        assert source.metadata["author"] in ("me", ["me"])
        assert len(source) == len(writer.episodes)
        for stored, kept in zip(source.episodes(), writer.episodes, strict=True):
            assert stored.metadata["seed"] == kept.metadata["seed"]
            assert stored.spec.observation_space == kept.spec.observation_space
            for path, column in kept.columns.items():
                held = stored.columns[path]
                if kept.spec[path].ragged:
                    assert held.strings() == column.strings()
                else:
                    np.testing.assert_array_equal(held, column)


def test_env_spec_and_metadata_reach_the_writer(tmp_path, monkeypatch):
    created = {}

    class Fake:
        def create(self, path, spec, metadata):
            created.update(path=path, metadata=metadata)
            return MemoryWriter()

    monkeypatch.setattr(
        "penstock.recording.sink.format_to_write", lambda path, name: created.update(name=name) or Fake()
    )
    with Collector(gymnasium.make("CartPole-v1"), tmp_path / "run", metadata={"author": "me"}, seed=0) as env:
        drive(env, 1)
    assert (created["path"], created["name"]) == (tmp_path / "run", None)
    assert created["metadata"]["author"] == "me"
    assert json.loads(created["metadata"]["env_spec"])["id"] == "CartPole-v1"


class Registered(gymnasium.Env):
    """An environment that is registered by its class, as notebooks do."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 0.0, True, False, {}


def test_an_environment_registered_by_a_class_is_recovered(tmp_path):
    gymnasium.register("penstock/Registered-v0", entry_point=Registered)
    with Collector(gymnasium.make("penstock/Registered-v0", disable_env_checker=True), tmp_path / "run") as env:
        drive(env, 1)
    stored = penstock.open(tmp_path / "run").metadata["env_spec"]
    assert json.loads(stored)["entry_point"] == f"{__name__}:Registered"
    assert isinstance(recover(stored).unwrapped, Registered)
    del gymnasium.registry["penstock/Registered-v0"]
    with pytest.raises(UnsafeDataError, match="expected a registered environment"):
        recover(stored)


def test_an_environment_made_by_a_function_is_recorded_without_env_spec(toy, tmp_path, monkeypatch):
    gymnasium.register("penstock/Toy-v0", entry_point=toy.make)
    seen = []
    fake = type("Fake", (), {"create": lambda self, path, spec, metadata: seen.append(metadata) or MemoryWriter()})
    monkeypatch.setattr("penstock.recording.sink.format_to_write", lambda path, name: fake())
    with Collector(gymnasium.make("penstock/Toy-v0", disable_env_checker=True), tmp_path / "x") as env:
        drive(env, 1)
    del gymnasium.registry["penstock/Toy-v0"]
    assert seen == [{}]


def test_a_closed_recorder_begins_no_episode(tmp_path: Path) -> None:
    for make in (partial(gymnasium.make, "CartPole-v1"), partial(gymnasium.make_vec, "CartPole-v1", 2)):
        path = tmp_path / make.func.__name__
        env = penstock.record(make(), path, seed=0)
        env.reset()
        env.step(env.action_space.sample())
        env.close()
        with pytest.raises(DataError, match=r"got one that was closed; record\(env, path, mode='append'\)"):
            env.reset()
        with pytest.raises(DataError, match="reset"):
            env.step(env.action_space.sample())
        env.close()
        assert len(penstock.open(path)) >= 1
