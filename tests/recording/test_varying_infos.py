"""Infos whose shape varies, lists of strings, and keys with a slash."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import penstock
from penstock.errors import DataError
from penstock.recording.collector import Collector
from penstock.recording.infos import InfoColumns, InfoSchema, make_infos
from penstock.recording.memory import MemoryWriter
from penstock.recording.vector import VectorCollector


def columns(*rows, policy="union", schema=None):
    infos = InfoColumns(schema or InfoSchema(policy))
    for i, row in enumerate(rows):
        infos.store(i, row)
    return infos.take(len(rows))


def test_arrays_are_filled_up_to_the_largest():
    found = columns({"x": np.array([1.0, 2.0])}, {}, {"x": np.array([3.0])}, {"x": np.array([4.0, 5.0, 6.0])})
    nan = np.nan
    np.testing.assert_array_equal(found["infos/x"], [[1, 2, nan], [nan] * 3, [3, nan, nan], [4, 5, 6]])
    assert found["infos_shape/x"].tolist() == [[2], [0], [1], [3]]
    assert found["infos_mask/x"].tolist() == [True, False, True, True]


def test_every_axis_may_vary():
    found = columns({"x": np.ones((1, 3), np.int64)}, {"x": np.full((2, 1), 2)})
    assert found["infos/x"].tolist() == [[[1, 1, 1], [0, 0, 0]], [[2, 0, 0], [2, 0, 0]]]
    assert found["infos_shape/x"].tolist() == [[1, 3], [2, 1]]


def test_later_episodes_have_the_shape_of_the_first():
    schema = InfoSchema("union")
    infos = InfoColumns(schema)
    for i, n in enumerate((2, 3)):
        infos.store(i, {"x": np.arange(n)})
    infos.take(2)
    infos.store(0, {"x": np.arange(1)})
    assert infos.take(1)["infos_shape/x"].tolist() == [[1]]
    with pytest.raises(DataError, match=r"of shape \(3,\), got \(4,\) - at row 0; .*info_example"):
        infos.store(0, {"x": np.arange(4)})
    fields = schema.all_fields()
    assert (fields["infos/x"].shape, fields["infos_shape/x"].shape) == ((3,), (1,))


def test_one_shape_in_the_first_episode_is_that_of_all():
    infos = InfoColumns(InfoSchema("union"))
    infos.store(0, {"x": np.arange(3)})
    assert "infos_shape/x" not in infos.take(1)
    with pytest.raises(DataError, match="is fixed by the first episode"):
        infos.store(0, {"x": np.arange(2)})


def test_an_example_says_the_largest():
    schema = make_infos("union", {"x": np.zeros(5)})
    found = columns({"x": np.ones(2)}, {"x": np.ones(3)}, schema=schema)
    assert found["infos/x"].shape == (2, 5)
    assert found["infos_shape/x"].tolist() == [[2], [3]]


def test_policy_error_keeps_to_one_shape():
    with pytest.raises(DataError, match=r"of shape \(2,\), got \(3,\)"):
        columns({"x": np.ones(2)}, {"x": np.ones(3)}, policy="error")


def test_the_last_row_starts_the_next_episode_with_its_shape():
    infos = InfoColumns(InfoSchema("union"))
    for i, n in enumerate((3, 1)):
        infos.store(i, {"x": np.arange(n)})
    infos.take(2, carry=True)
    infos.store(1, {"x": np.arange(2)})
    assert infos.take(2)["infos_shape/x"].tolist() == [[1], [2]]


@pytest.mark.parametrize("policy", ["error", "union"])
def test_lists_of_strings_are_a_column_an_item(policy):
    rows = ({"n": ["a", "b"]}, {"n": ("c", "d")}, {"n": np.array(["e", "f"])})
    found = columns(*rows, policy=policy)
    assert found["infos/n/0"].strings() == ["a", "c", "e"]
    assert found["infos/n/1"].strings() == ["b", "d", "f"]


def test_lists_of_strings_of_several_lengths():
    found = columns({}, {"n": []}, {"n": ["a"]}, {"n": ["b", "c"]}, {"n": []}, {"n": None})
    assert found["infos/n/1"].strings() == ["", "", "", "c", "", ""]
    assert found["infos_mask/n/0"].tolist() == [False, False, True, True, False, False]
    with pytest.raises(DataError, match="expected a value for infos/n/1, got none"):
        columns({"n": ["a", "b"]}, {"n": ["a"]}, policy="error")
    with pytest.raises(DataError, match="infos/n as a list of strings, got str - at row 1"):
        columns({"n": ["a", "b"]}, {"n": "ab"})


@pytest.mark.parametrize("policy", ["error", "union"])
def test_keys_with_a_slash_are_paths(policy):
    found = columns({"a/b": 1, "a": {"c": 2}}, {"a/b": 3, "a": {"c": 4}}, policy=policy)
    assert (found["infos/a/b"].tolist(), found["infos/a/c"].tolist()) == ([1, 3], [2, 4])


@pytest.mark.parametrize(
    "info",
    [
        {"a/b": 1, "a": {"b": 2}},
        {"a": {"b": 2}, "a/b": 1},
        {"a": 1, "a/b": 2},
        {"a/b": 2, "a": 1},
        {"/a": 1},
        {"a//b": 1},
    ],
)
def test_keys_that_contradict_each_other(info):
    with pytest.raises(DataError, match="expected"):
        columns(info)


class Growing(gymnasium.Env):
    """Moves that are legal, their names, and a key with a slash; two steps an episode."""

    observation_space, action_space = spaces.Discrete(9), spaces.Discrete(2)

    def __init__(self, most=3):
        self.most = most

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return 0, self.info()

    def step(self, action):
        self.t += 1
        return self.t, 0.0, self.t == 2, False, self.info()

    def info(self):
        n = (1, self.most, 2)[self.t]
        return {"moves": np.arange(n), "names": [f"m{i}" for i in range(n)], "clock/white": float(self.t)}


@pytest.mark.parametrize("format", ["columns", "minari"])
def test_recorded_and_read_again(format, tmp_path):
    with Collector(Growing(), tmp_path / "a-v0", format=format, record_infos="union") as env:
        for _ in range(2):
            env.reset(seed=0)
            for _ in range(2):
                env.step(0)
    episodes = penstock.open(tmp_path / "a-v0")
    columns = episodes.source.episode(1).columns
    assert columns["infos/moves"].tolist() == [[0, 0, 0], [0, 1, 2], [0, 1, 0]]
    assert columns["infos_shape/moves"].tolist() == [[1], [3], [2]]
    assert columns["infos/names/1"].strings() == ["", "m1", "m1"]
    assert columns["infos/clock/white"].tolist() == [0, 1, 2]


def test_environments_that_share_their_columns():
    infos = InfoSchema("union")
    small, large = InfoColumns(infos), InfoColumns(infos)
    for i, n in enumerate((1, 2, 2)):
        small.store(i, {"x": np.arange(n)})
        large.store(i, {"x": np.arange(n + 2)})
    first = small.take(3)
    assert first["infos/x"].shape == (3, 4)
    assert first["infos_shape/x"].tolist() == [[1], [2], [2]]
    small.store(0, {"x": np.arange(3)})
    assert small.take(1)["infos/x"].tolist() == [[0, 1, 2, 0]]


def test_a_vector_environment_with_lists_of_strings():
    class Named(Growing):
        def info(self):
            return {"names": ["a", "b"]}

    writer = MemoryWriter()
    with VectorCollector(SyncVectorEnv([Named]), writer, record_infos="union") as envs:
        envs.reset(seed=0)
        for _ in range(6):
            envs.step(np.zeros(1, np.int64))
    assert writer.episodes[0].columns["infos/names/1"].strings() == ["b"] * 3
