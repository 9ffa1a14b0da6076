"""Spaces against Gymnasium's own membership, and their JSON against what the reference wrote."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ragged import Ragged
from penstock.core.space_columns import unflatten
from penstock.core.space_json import compact, json_text
from penstock.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from penstock.errors import SpecError

SPACES = [
    Box(np.full((2, 3), -1.5), np.full((2, 3), np.inf), np.dtype("float32")),
    Box(np.zeros(3), np.full(3, 255), np.dtype("uint8")),
    Box(np.array(-(2**62)), np.array(2**62), np.dtype("int64")),
    Box(np.zeros(2), np.ones(2), np.dtype("float16")),
    Discrete(7, start=-3),
    MultiDiscrete(np.array([2, 5]), np.array([0, -1]), np.dtype("int32")),
    MultiDiscrete(np.array([[2, 5], [1, 1]])),
    MultiBinary(4),
    MultiBinary((2, 2)),
    Text(5, 0, "abcé"),
    Tuple((Discrete(2), Tuple((Discrete(3), Box(np.zeros(1), np.ones(1), np.dtype("float64")))))),
    Dict({"b": Discrete(2), "a": Dict({"x": MultiBinary(3)})}),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.type)
def test_json_round_trip(space):
    again = Space.from_json(json.dumps(space.to_json()))
    assert again == space
    assert hash(again) == hash(space)
    assert all(again != other for other in SPACES if other is not space)


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.type)
def test_compact_round_trip(space):
    assert Space.from_json(json.dumps(compact(space))) == space


ODD = [
    Box(np.zeros((2, 0, 3)), np.zeros((2, 0, 3)), np.dtype("f8")),
    Box(np.array([0.0, -0.0]), np.array([-0.0, -0.0]), np.dtype("f4")),
    Box(np.full(3, np.nan), np.full(3, np.inf), np.dtype("f4")),
    Box(np.array([[0, 1], [0, 1]]), np.full((2, 2), 7), np.dtype("i8")),
    Box(np.zeros((2, 2)), np.ones((2, 2)), np.dtype("?")),
    Box(np.full((1, 1, 2), 0.1), np.full((1, 1, 2), 1e300), np.dtype(">f8")),
    Dict({'"é': Discrete(2), "A": Dict({}), "a b": Tuple(())}),
]


@pytest.mark.parametrize("space", [*SPACES, *ODD], ids=lambda s: s.type)
def test_the_text_of_a_space_is_that_of_its_json(space):
    assert json_text(space) == json.dumps(space.to_json(), sort_keys=True)


def test_compact_keeps_one_number_for_a_bound_that_has_one():
    assert compact(SPACES[0])["low"] == -1.5
    assert compact(SPACES[0])["high"] == np.inf
    own = Box(np.array([0, 1]), np.array([9, 9]), np.dtype("int16"))
    assert compact(own)["low"] == [0, 1]
    assert compact(Box(np.zeros(0), np.zeros(0), np.dtype("f4")))["low"] == []


def test_a_box_is_one_short_line_as_gymnasiums_is():
    for low, high, dtype in ((0, 255, "uint8"), (-np.inf, np.inf, "float32"), (-1.5, 2, "float64")):
        shape = (4, 84, 84)
        ours = Box(np.full(shape, low), np.full(shape, high), np.dtype(dtype))
        assert repr(ours) == repr(gymnasium.spaces.Box(low, high, shape, np.dtype(dtype).type))
    own = Box(np.array([0, 1]), np.array([9, 9]), np.dtype("int16"))
    assert repr(own) == "Box(0 to 1, 9, (2,), int16)"
    assert "none" in repr(Box(np.zeros(0), np.zeros(0), np.dtype("f4")))


@given(st.integers(0, 2**32 - 1))
def test_box_membership_equals_gymnasiums(seed):
    rng = np.random.default_rng(seed)
    low, high = np.float32([-1, 0]), np.float32([1, np.inf])
    values = rng.normal(0, 1.5, (20, 2)).astype(np.float32)
    values[rng.integers(20)] = np.nan
    theirs = gymnasium.spaces.Box(low, high, dtype=np.float32)
    assert Box(low, high, np.dtype("float32")).contains(values).tolist() == [theirs.contains(v) for v in values]


@given(st.integers(-5, 5), st.integers(1, 6), st.lists(st.integers(-12, 12), max_size=20))
def test_discrete_membership_equals_gymnasiums(start, n, values):
    theirs = gymnasium.spaces.Discrete(n, start=start)
    assert Discrete(n, start).contains(np.array(values, np.int64)).tolist() == [theirs.contains(v) for v in values]


@given(st.lists(st.text("ab1", max_size=6), max_size=10))
def test_text_membership_equals_gymnasiums(strings):
    theirs = gymnasium.spaces.Text(4, min_length=1, charset="ab")
    assert Text(4, 1, "ab").contains(Ragged.from_strings(strings)).tolist() == [theirs.contains(s) for s in strings]


def test_multi_spaces_refuse_other_shapes():
    assert MultiDiscrete(np.array([2, 2])).contains(np.zeros((3, 4))).tolist() == [False] * 3
    assert MultiBinary(2).contains(np.array([[0, 1], [1, 2]])).tolist() == [True, False]


def test_leaves_and_unflatten_are_inverse():
    space = SPACES[-2]
    values = {path: i for i, (path, _) in enumerate(space.leaves())}
    assert list(values) == ["0", "1/0", "1/1"]
    assert unflatten(space, values) == (0, (1, 2))
    assert unflatten(None, {"a/b": 1, "c": 2}) == {"a": {"b": 1}, "c": 2}
    assert unflatten(Discrete(2), {"": 5}) == 5


def test_unflatten_names_what_is_missing():
    with pytest.raises(SpecError, match="'1/0'"):
        unflatten(SPACES[-2], {"0": 1})


@pytest.mark.parametrize(
    "bad",
    [
        '{"type": "Graph"}',
        '{"type": "Box", "dtype": "object", "shape": [], "low": 0, "high": 1}',
        '{"type": "Box", "dtype": "float32", "shape": [2], "low": [0], "high": [1]}',
        '{"type": "Box", "dtype": "float32", "shape": [1000000000000], "low": [0], "high": [1]}',
        '{"type": "Box", "dtype": "float32", "shape": [1000000, 1000000], "low": 0, "high": 1}',
        '{"type": "Discrete"}',
        '{"type": "Tuple", "subspaces": [1]}',
        "[]",
        "not json",
        '{"type": "Dict", "subspaces": {"a/b": {"type": "Discrete", "n": 2}}}',
        '{"type":"Tuple","subspaces":[' * 20_000,
    ],
)
def test_what_the_standard_has_no_place_for_is_a_spec_error(bad):
    with pytest.raises(SpecError):
        Space.from_json(bad)
