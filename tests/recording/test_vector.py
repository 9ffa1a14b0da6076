from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from penstock.errors import DataError, SpecError
from penstock.recording.batch import split_infos
from penstock.recording.memory import MemoryWriter
from penstock.recording.vector import VectorCollector

MODES = list(AutoresetMode)


@pytest.fixture
def writer():
    return MemoryWriter()


def drive(envs, steps, seed=0):
    """Steps with random actions; resets by mask what has ended where the environments do not."""
    disabled = envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    envs.action_space.seed(seed)
    envs.reset()
    for _ in range(steps):
        *_, terminations, truncations, _ = envs.step(envs.action_space.sample())
        over = terminations | truncations
        if disabled and over.any():
            envs.reset(options={"reset_mask": over})


def check(make, writer, seeds, plain, equals, infos=True):
    """Each environment's episodes, in order, equal those of one driven alone from the seed of its stream."""
    for k, seed in enumerate(seeds):
        mine = [e for e in writer.episodes if e.metadata["env"] == k]
        oracle = plain(make())
        for j, episode in enumerate(mine):
            assert episode.metadata["stream_seed"] == seed
            assert episode.metadata["stream_episode"] == j
            assert episode.metadata.get("seed") == (seed if j == 0 else None)
            actions = _actions(episode)
            oracle.run(seed if j == 0 else None, actions, truncate=bool(episode.truncations[-1]))
            columns, expected = oracle.episodes[-1]
            equals(episode, columns)
            if infos:
                equals(episode, expected)
        assert len(mine) > 2


def _actions(episode):
    def pick(tree, t):
        if isinstance(tree, dict):
            return {key: pick(inner, t) for key, inner in tree.items()}
        if isinstance(tree, tuple):
            return tuple(pick(inner, t) for inner in tree)
        return tree.strings()[t] if hasattr(tree, "strings") else tree[t]

    return [pick(episode.actions, t) for t in range(len(episode))]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_every_space_in_every_autoreset_mode(toy, space, mode, writer, plain, equals):
    make = [lambda: toy(space, space)] * 3
    with VectorCollector(SyncVectorEnv(make, autoreset_mode=mode), writer, record_infos=True) as envs:
        envs.action_space.seed(0)
        envs.reset(seed=[5, 9, 2])
        for _ in range(40):
            envs.step(envs.action_space.sample())
    check(make[0], writer, [5, 9, 2], plain, equals)


def test_disabled_autoreset_with_masked_resets(toy, space, writer, plain, equals):
    envs = VectorCollector(
        SyncVectorEnv([lambda: toy(space)] * 3, autoreset_mode="Disabled"), writer, seed=4, record_infos=True
    )
    with envs:
        drive(envs, 40)
    assert len({e.metadata["seed"] for e in writer.episodes}) == len(writer.episodes)
    for episode in writer.episodes:
        (oracle := plain(toy(space))).run(
            episode.metadata["seed"], _actions(episode), truncate=bool(episode.truncations[-1])
        )
        equals(episode, oracle.episodes[0][0])
        equals(episode, oracle.episodes[0][1])


@pytest.mark.parametrize("mode", MODES)
def test_asynchronous_environments_record_the_same_as_synchronous_ones(toy, mode):
    kinds = {}
    for kind in (SyncVectorEnv, AsyncVectorEnv):
        writer = MemoryWriter()
        reuse = kind is SyncVectorEnv or mode is not AutoresetMode.SAME_STEP
        envs = kind([lambda reuse=reuse: toy(reuse=reuse)] * 2, autoreset_mode=mode)
        with VectorCollector(envs, writer, seed=1, record_infos=True) as envs:
            drive(envs, 30)
        kinds[kind] = writer.episodes
    ours, theirs = kinds.values()
    assert len(ours) == len(theirs) > 5
    for a, b in zip(ours, theirs, strict=True):
        assert a.metadata == b.metadata
        for path in a.columns:
            x, y = (c.values if hasattr(c, "values") else c for c in (a.columns[path], b.columns[path]))
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("mode", MODES)
def test_long_recordings_reuse_their_rows(toy, mode, writer, plain, equals):
    make = [lambda: toy(longest=40), lambda: toy(longest=300)]
    with VectorCollector(SyncVectorEnv(make, autoreset_mode=mode), writer, seed=2) as envs:
        drive(envs, 2000)
        assert envs._buffer._rewards.array.shape[0] <= 1024
    short, long = ([e for e in writer.episodes if e.metadata["env"] == k] for k in range(2))
    assert len(short) > 50
    if mode is not AutoresetMode.DISABLED:
        for k, mine in enumerate((short, long)):
            oracle = plain(make[k]())
            for j, episode in enumerate(mine):
                seed = episode.metadata["stream_seed"] if j == 0 else None
                oracle.run(seed, _actions(episode), truncate=bool(episode.truncations[-1]))
                equals(episode, oracle.episodes[-1][0])


def test_environments_that_gymnasium_vectorises_itself(writer):
    with VectorCollector(gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync"), writer, seed=3) as envs:
        drive(envs, 60)
    alone = gymnasium.make("CartPole-v1")
    first = [e for e in writer.episodes if "seed" in e.metadata]
    assert len(first) == 3
    for episode in first:
        observation, _ = alone.reset(seed=episode.metadata["seed"])
        for t, action in enumerate(episode.actions):
            np.testing.assert_array_equal(episode.observations[t], observation)
            observation, *_ = alone.step(action)
        np.testing.assert_array_equal(episode.observations[-1], observation)


def test_one_seed_for_all_where_the_environments_take_one(writer):
    envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    with VectorCollector(envs, writer, seed=3) as envs:
        drive(envs, 60)
    about = [e.metadata for e in writer.episodes if e.metadata["env"] == 1]
    assert [a["stream_episode"] for a in about] == list(range(len(about)))
    assert len({a["vector_seed"] for a in about}) == 1
    assert "seed" not in about[0]
    for episode in writer.episodes:
        assert len(episode.observations) == len(episode) + 1
        assert not episode.terminations[:-1].any()
        np.testing.assert_array_less(np.abs(episode.observations[:-1, 2]), 0.21)  # none goes on over a reset


@pytest.mark.parametrize(("given", "expected"), [(7, [7, 8]), ([3, 1], [3, 1]), ((4, None), [4, None])])
def test_seeds_that_are_given(toy, writer, given, expected):
    with VectorCollector(SyncVectorEnv([toy] * 2), writer) as envs:
        envs.reset(seed=given, options={"level": 2})
        for _ in range(12):
            envs.step(envs.action_space.sample())
    first = [next(e for e in writer.episodes if e.metadata["env"] == k) for k in range(2)]
    assert [e.metadata.get("seed") for e in first] == expected
    assert [e.metadata["options"] for e in first] == [{"level": 2}] * 2


def test_seeds_that_are_drawn_vary_and_can_be_drawn_again(toy):
    def seeds(**how):
        with VectorCollector(SyncVectorEnv([toy] * 3), writer := MemoryWriter(), **how) as envs:
            drive(envs, 20)
        return [e.metadata.get("stream_seed") for e in writer.episodes]

    assert seeds(seed=1) == seeds(seed=1)
    assert not {*seeds(seed=1)} & {*seeds(seed=2)}
    assert set(seeds(autoseed=False)) == {None}


def test_a_reset_truncates_what_is_open(toy, writer):
    with VectorCollector(SyncVectorEnv([lambda: toy(longest=10**6)] * 2), writer, seed=0) as envs:
        envs.reset()
        for _ in range(3):
            envs.step(np.zeros(2, np.int64))
        envs.reset(options={"reset_mask": np.array([False, True])})
        envs.step(np.zeros(2, np.int64))
        envs.reset()
    assert [(len(e), e.metadata["env"], bool(e.truncations[-1])) for e in writer.episodes] == [
        (3, 1, True),
        (4, 0, True),
        (1, 1, True),
    ]


@pytest.mark.parametrize(("unfinished", "kept"), [("save", 2), ("drop", 0)])
def test_close_saves_or_drops_open_episodes(toy, writer, unfinished, kept):
    envs = VectorCollector(SyncVectorEnv([lambda: toy(longest=10**6)] * 2), writer, unfinished=unfinished)
    envs.reset()
    envs.step(np.zeros(2, np.int64))
    envs.close()
    envs.close()
    assert len(writer.episodes) == kept
    assert envs.closed


def test_truncate_goes_on_from_the_last_observation(toy, writer, plain):
    with VectorCollector(SyncVectorEnv([lambda: toy(longest=10**6)] * 2), writer, record_infos=True) as envs:
        envs.reset(seed=5)
        for _ in range(2):
            envs.step(np.ones(2, np.int64))
        envs.truncate(np.array([True, False]))
        envs.step(np.ones(2, np.int64))
    (oracle := plain(toy(longest=10**6))).run(5, [1] * 3)
    seen = np.array(oracle.episodes[0][0]["observations"])
    before, after, other = writer.episodes
    np.testing.assert_array_equal(before.observations, seen[:3])
    np.testing.assert_array_equal(after.observations, seen[2:])
    assert after.infos["t"].tolist() == [2, 3]
    assert (after.metadata["continued"], after.metadata["stream_seed"]) == (True, 5)
    assert (len(other), other.metadata["env"]) == (3, 1)


def test_steps_need_a_reset(toy, writer):
    envs = VectorCollector(SyncVectorEnv([lambda: toy(longest=1)] * 2, autoreset_mode="Disabled"), writer)
    for use in (lambda: envs.step(np.zeros(2, np.int64)), envs.truncate):
        with pytest.raises(DataError, match="reset"):
            use()
    with pytest.raises(DataError, match="a reset of all environments before one of some"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset()
    envs.step(np.zeros(2, np.int64))
    with pytest.raises(DataError, match=r"reset_mask.* of the environments \[0, 1\]"):
        envs.step(np.zeros(2, np.int64))
    envs.close()


def test_actions_are_checked_before_the_environments_move(toy, writer):
    with VectorCollector(SyncVectorEnv([lambda: toy(longest=10**6)] * 2), writer, seed=0) as envs:
        envs.reset()
        for bad in (np.zeros(3, np.int64), np.zeros(2, np.float32), np.int64(0)):
            with pytest.raises(DataError, match="expected actions"):
                envs.step(bad)
        envs.step([0, 1])
    assert [e.actions.tolist() for e in writer.episodes] == [[0], [1]]


def test_the_autoreset_mode_must_be_known(toy, writer):
    envs = SyncVectorEnv([toy])
    del envs.metadata["autoreset_mode"]
    with pytest.raises(SpecError, match="pass autoreset_mode"):
        VectorCollector(envs, writer)
    VectorCollector(envs, writer, autoreset_mode="NextStep").close()


def test_same_step_needs_the_final_observation(toy, writer):
    class Forgets(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            *result, _ = super().step(actions)
            return *result, {}

    with VectorCollector(Forgets(SyncVectorEnv([lambda: toy(longest=1)], autoreset_mode="SameStep")), writer) as envs:
        envs.reset()
        with pytest.raises(DataError, match=r"infos\['final_obs'\]"):
            envs.step(np.zeros(1, np.int64))


def test_infos_that_only_some_environments_have(toy, writer):
    class Odd(toy):
        def _info(self):
            return {"won": True} if self.t == self.limit else {}

    envs = VectorCollector(SyncVectorEnv([Odd, toy]), writer, record_infos="union", seed=0, unfinished="drop")
    with envs:
        drive(envs, 30)
    for episode in writer.episodes:
        steps, odd = len(episode), episode.metadata["env"] == 0
        assert episode.columns["infos_mask/won"].tolist() == [False] * steps + [odd]
        assert episode.columns["infos_mask/t"].tolist() == [not odd] * (steps + 1)
        assert episode.infos["t"].tolist() == ([0] * (steps + 1) if odd else list(range(steps + 1)))


def test_splitting_infos():
    infos = {"a": np.array([1, 2]), "_a": np.array([True, False]), "d": {"x": np.array([5, 6])}, "s": ["p", "q"]}
    assert split_infos(infos, 2) == [{"a": 1, "d": {"x": 5}, "s": "p"}, {"d": {"x": 6}, "s": "q"}]
    with pytest.raises(DataError, match="an entry for each of 2 environments"):
        split_infos({"a": 3}, 2)


def test_a_step_that_cannot_be_recorded_ends_all_episodes_before_it(toy, writer):
    class Breaks(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            observations, *rest = super().step(actions)
            return observations.astype(np.float64) if self.env.envs[0].t > 2 else observations, *rest

    with VectorCollector(Breaks(SyncVectorEnv([lambda: toy(longest=10**6)] * 2)), writer) as envs:
        envs.reset()
        envs.step(np.zeros(2, np.int64))
        envs.step(np.zeros(2, np.int64))
        with pytest.raises(DataError, match="expected observations of float32, got float64 - at row 3"):
            envs.step(np.zeros(2, np.int64))
        with pytest.raises(DataError, match="the last step failed"):
            envs.step(np.zeros(2, np.int64))
    assert [len(e) for e in writer.episodes] == [2, 2]


def test_one_refused_episode_does_not_hold_up_the_others(toy, writer):
    class Nan(toy):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, np.nan, *rest

    with VectorCollector(SyncVectorEnv([lambda: Nan(longest=1), lambda: toy(longest=1)]), writer) as envs:
        envs.reset()
        with pytest.raises(DataError, match="expected finite rewards, got nan"):
            envs.step(np.zeros(2, np.int64))
        assert [e.metadata["env"] for e in writer.episodes] == [1]
        envs.step(np.zeros(2, np.int64))  # both reset, and recording goes on
