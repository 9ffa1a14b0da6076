from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from penstock.errors import DataError, SpecError
from penstock.recording.collector import Collector
from penstock.recording.infos import InfoColumns, InfoSchema
from penstock.recording.memory import MemoryWriter


class Script(gymnasium.Env):
    """Gives the infos of a script, one list an episode, the first of each at the reset; ends with the script."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *episodes):
        self.script = iter(episodes)

    def reset(self, *, seed=None, options=None):
        self.infos = list(next(self.script))
        return 0, self.infos.pop(0)

    def step(self, action):
        info = self.infos.pop(0)
        return 0, 0.0, not self.infos, False, info


def record(*episodes, **how):
    env = Collector(Script(*episodes), writer := MemoryWriter(), **{"record_infos": "error", **how})
    for infos in episodes:
        env.reset()
        for _ in infos[1:]:
            env.step(0)
    return writer.episodes


def test_infos_of_all_kinds_have_a_row_for_each_boundary(toy, plain, equals):
    with Collector(toy(), writer := MemoryWriter(), record_infos=True, seed=0) as env:
        for _ in range(6):
            env.reset()
            while not any(env.step(0)[2:4]):
                pass
    for episode in writer.episodes:
        (oracle := plain(toy())).run(episode.metadata["seed"], [0] * len(episode))
        equals(episode, oracle.episodes[0][1])
        assert episode.infos["deep"]["speed"].dtype == np.float32
        assert len(episode.infos["t"]) == len(episode) + 1


def test_infos_are_not_recorded_unless_asked(toy):
    env = Collector(toy(longest=1), writer := MemoryWriter())
    env.reset()
    env.step(0)
    assert writer.episodes[0].infos == {}


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (True, "?", ()),
        (3, "i8", ()),
        (0.5, "f8", ()),
        (np.float32(0.5), "f4", ()),
        (np.uint8(7), "u1", ()),
        (np.arange(6, dtype="i2").reshape(2, 3), "i2", (2, 3)),
        ([1.0, 2.0], "f8", (2,)),
        ((1, 2), "i8", (2,)),
        (np.array(2.0), "f8", ()),
        (1j, "c16", ()),
    ],
)
def test_numbers_keep_their_dtype_and_shape(value, dtype, shape):
    episode = record([{"x": value}] * 3)[0]
    field = episode.spec["infos/x"]
    assert (field.dtype, field.shape, field.align) == (np.dtype(dtype), shape, "boundary")
    np.testing.assert_array_equal(episode.infos["x"], [value] * 3)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"x": 1, "y": 2}, "got infos/y too - at row 2"),
        ({}, "expected a value for infos/x, got none - at row 2"),
        ({"x": 1.5}, "expected infos/x of int64, got float64 - at row 2"),
        ({"x": True}, "expected infos/x of int64, got bool - at row 2"),
        ({"x": np.int32(1)}, "expected infos/x of int64, got int32 - at row 2"),
        ({"x": [1]}, r"expected infos/x of shape \(\), got \(1,\) - at row 2"),
        ({"x": "1"}, "expected infos/x of int64, got <U1 - at row 2"),
        ({"x": None}, "expected infos/x of int64, got object - at row 2"),
        ({"x": {"y": 1}}, "expected infos/x of int64, got object - at row 2"),
        ({"x": 2**70}, "expected infos/x of int64, got 1180591620717411303424 - at row 2"),
        ({"x": 1, "deep": {"y": 1}}, "got infos/deep too - at row 2"),
    ],
)
def test_an_info_that_differs_is_an_error_that_names_key_and_row(later, message):
    with pytest.raises(DataError, match=message):
        record([{"x": 1}, {"x": 2}, later])


def test_a_later_episode_must_have_the_keys_of_the_first():
    with pytest.raises(DataError, match=r"infos/b too - at row 0; .*record_infos=True"):
        record([{"a": 1}, {"a": 2}], [{"b": 1}, {"b": 1}])
    with pytest.raises(DataError, match="expected infos/d as a dict, got int"):
        record([{"d": {"a": 1}}, {"d": 3}])
    with pytest.raises(DataError, match="expected a value for infos/d/a"):
        record([{"d": {"a": 1}}, {"d": {}}])


def test_a_wrong_info_does_not_poison_the_next_episode():
    env = Collector(
        Script([{"a": 1}, {"a": 1, "b": {"c": 1}}], [{"a": 2}, {"a": 3}]),
        writer := MemoryWriter(),
        record_infos="error",
    )
    env.reset()
    with pytest.raises(DataError, match="infos/b too"):
        env.step(0)
    env.reset()
    env.step(0)
    assert [e.infos["a"].tolist() for e in writer.episodes] == [[2, 3]]


@pytest.mark.parametrize(
    "value", [object(), None, b"bytes", np.array([None]), [[1], [2, 3]], {1, 2}, np.datetime64("now")]
)
def test_values_without_a_column_are_refused(value):
    with pytest.raises(DataError, match="expected infos/x as a number, an array of numbers, a string"):
        record([{"x": value}, {"x": value}])


@pytest.mark.parametrize("key", ["a//b", "/", "", 7])
def test_keys_must_make_paths(key):
    with pytest.raises(DataError, match="expected keys that are strings"):
        record([{key: 1}, {key: 1}])


def test_union_fills_what_is_missing_and_says_where():
    infos = [
        {},
        {"f": 0.5, "i": 3, "b": True, "s": "hi", "v": np.ones(2, np.float32), "d": {"x": 1}},
        {"f": None, "late": 1},
        {"d": None, "s": "bye"},
    ]
    episode = record(infos, record_infos="union")[0]
    assert episode.infos["i"].tolist() == [0, 3, 0, 0]
    assert episode.infos["b"].tolist() == [False, True, False, False]
    assert episode.infos["s"].strings() == ["", "hi", "", "bye"]
    assert episode.infos["d"]["x"].tolist() == [0, 1, 0, 0]
    np.testing.assert_array_equal(episode.infos["f"], [np.nan, 0.5, np.nan, np.nan])
    np.testing.assert_array_equal(episode.infos["v"], [[np.nan] * 2, [1, 1], [np.nan] * 2, [np.nan] * 2])
    masks = episode.columns
    assert masks["infos_mask/f"].tolist() == [False, True, False, False]
    assert masks["infos_mask/d/x"].tolist() == [False, True, False, False]
    assert masks["infos_mask/s"].tolist() == [False, True, False, True]
    assert masks["infos_mask/late"].tolist() == [False, False, True, False]


def test_union_widens_within_the_first_episode():
    episode = record([{"x": 1, "y": True}, {"x": 0.5, "y": 7}, {"x": np.float32(2)}], record_infos="union")[0]
    np.testing.assert_array_equal(episode.infos["x"], [1, 0.5, 2])
    assert episode.infos["x"].dtype == np.float64
    assert episode.infos["y"].tolist() == [1, 7, 0]


def test_union_takes_narrower_values_later_but_neither_wider_nor_new_ones():
    episodes = record([{"x": 0.5}, {}], [{"x": 1}, {}], [{}, {"x": True}], record_infos="union")
    assert [e.infos["x"].dtype for e in episodes] == [np.float64] * 3
    np.testing.assert_array_equal(episodes[2].infos["x"], [np.nan, 1])
    with pytest.raises(DataError, match=r"expected infos/x of int64, got float64 - at row 1; .*info_example"):
        record([{"x": 1}, {}], [{}, {"x": 0.5}], record_infos="union")
    with pytest.raises(DataError, match=r"infos/won too - at row 1; .*info_example"):
        record([{}, {}], [{}, {"won": True}], record_infos="union")
    with pytest.raises(DataError, match="infos/deep too"):
        record([{}, {}], [{}, {"deep": {"won": True}}], record_infos="union")


def test_union_refuses_another_shape_or_text_for_a_number():
    with pytest.raises(DataError, match=r"expected infos/x of shape \(\), got \(2,\)"):
        record([{"x": 1}, {"x": [1, 2]}], record_infos="union")
    with pytest.raises(DataError, match="expected infos/x of int64, got <U1"):
        record([{"x": 1}, {"x": "1"}], record_infos="union")
    with pytest.raises(DataError, match="expected infos/x as a string, got int 1"):
        record([{"x": "1"}, {"x": 1}], record_infos="union")


def test_true_is_a_union_because_infos_of_resets_and_steps_differ():
    """As in MuJoCo's environments, whose steps add what their resets do not have."""
    script = [{"x": 0.0}, {"x": 0.5, "reward_ctrl": -0.1}, {"x": 0.75, "reward_ctrl": -0.2}]
    episode, same = (record(script, record_infos=how)[0] for how in (True, "union"))
    assert episode.infos["x"].tolist() == [0.0, 0.5, 0.75]
    np.testing.assert_array_equal(episode.infos["reward_ctrl"], [np.nan, -0.1, -0.2])
    assert episode.columns["infos_mask/reward_ctrl"].tolist() == [False, True, True]
    assert episode.columns.keys() == same.columns.keys()


def test_an_example_declares_what_comes_later():
    example = {"won": False, "deep": {"score": 0.0}}
    episodes = record([{}, {}], [{}, {"won": True, "deep": {"score": 2}}], record_infos="union", info_example=example)
    assert [e.infos["won"].tolist() for e in episodes] == [[False, False], [False, True]]
    np.testing.assert_array_equal(episodes[1].infos["deep"]["score"], [np.nan, 2])
    with pytest.raises(DataError, match="expected a value for infos/b"):
        record([{"a": 1}, {"a": 1}], info_example={"a": 1, "b": 2})
    with pytest.raises(SpecError, match="no info_example without record_infos"):
        record([{}], record_infos=False, info_example={})


def test_an_episode_without_steps_leaves_nothing_behind():
    infos = InfoColumns(InfoSchema("union"))
    infos.store(0, {"x": 1, "s": "old"})
    infos.store(0, {})
    infos.store(1, {"x": 2})
    columns = infos.take(2)
    assert columns["infos/x"].tolist() == [0, 2]
    assert columns["infos/s"].strings() == ["", ""]
    assert columns["infos_mask/s"].tolist() == [False, False]


def test_columns_of_one_schema_agree_whatever_came_to_each():
    a, b = InfoColumns(schema := InfoSchema("union")), InfoColumns(InfoSchema("union"))
    b.schema = schema
    a.store(0, {"x": 1})
    b.store(0, {"x": 0.5})
    a.store(1, {"x": 0.25})
    np.testing.assert_array_equal(a.take(2)["infos/x"], [1, 0.25])
    np.testing.assert_array_equal(b.take(2)["infos/x"], [0.5, np.nan])


def test_a_shared_strict_schema_asks_every_environment_for_all_columns():
    schema = InfoSchema("error")
    InfoColumns(schema).store(0, {"x": 1, "d": {"y": 1}})
    with pytest.raises(DataError, match="expected a value for infos/d/y, got none - at row 0"):
        InfoColumns(schema).store(0, {"x": 1})


def test_arrays_are_copied():
    shared = np.zeros(2)

    class Reuses(Script):
        def step(self, action):
            shared[:] += 1
            return super().step(action)

    env = Collector(Reuses([{"x": shared}] * 3), writer := MemoryWriter(), record_infos=True)
    env.reset()
    env.step(0)
    env.step(0)
    assert writer.episodes[0].infos["x"].tolist() == [[0, 0], [1, 1], [2, 2]]
