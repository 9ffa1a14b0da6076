"""Spaces, colour spaces and trajectories: what the originals' pickles become, and what is wrong with others."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium.spaces as theirs
import numpy as np
import pytest

from penstock.containers.pickle import ColorSpace, Trajectory, loads
from penstock.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from penstock.errors import UnsafeDataError

Refuse = Callable[..., str]
FLOAT = np.dtype("float32")
SPACES: list[tuple[Any, Space]] = [
    (theirs.Discrete(5, start=-2), Discrete(5, -2)),
    (theirs.Box(-1.0, 1.0, (2, 3)), Box(np.full((2, 3), -1), np.ones((2, 3)), FLOAT)),
    (theirs.Box(0, 255, (4,), np.uint8), Box(np.zeros(4), np.full(4, 255), np.dtype("uint8"))),
    (theirs.Box(-np.inf, np.inf, (1,)), Box(np.array([-np.inf]), np.array([np.inf]), FLOAT)),
    (theirs.MultiDiscrete([2, 3], start=[1, 0]), MultiDiscrete(np.array([2, 3]), np.array([1, 0]))),
    (theirs.MultiBinary(3), MultiBinary(3)),
    (theirs.MultiBinary((2, 2)), MultiBinary((2, 2))),
    (theirs.Text(4, min_length=2, charset="ab"), Text(4, 2, "ab")),
    (theirs.Tuple((theirs.Discrete(2), theirs.Discrete(3))), Tuple((Discrete(2), Discrete(3)))),
    (
        theirs.Dict(b=theirs.Discrete(2), a=theirs.Dict(c=theirs.MultiBinary(1))),
        Dict({"b": Discrete(2), "a": Dict({"c": MultiBinary(1)})}),
    ),
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(("original", "ours"), SPACES, ids=lambda space: str(space)[:30])
def test_spaces_of_gymnasium(original: Any, ours: Space, protocol: int) -> None:
    read = loads(pickle.dumps(original, protocol))
    assert read == ours
    assert json.dumps(read.to_json()) == json.dumps(ours.to_json())


@pytest.mark.parametrize(("original", "ours"), SPACES, ids=lambda space: str(space)[:30])
def test_spaces_of_gym_have_the_same_fields(original: Any, ours: Space) -> None:
    assert loads(pickle.dumps(original, 2).replace(b"cgymnasium.", b"cgym.")) == ours


def made(module: str, name: str, state: Any) -> bytes:
    """An object of a class that is not here, by NEWOBJ and BUILD."""
    return f"c{module}\n{name}\n".encode() + b")\x81" + pickle.dumps(state, 3)[2:-1] + b"b."


def space(name: str, module: str, **state: Any) -> bytes:
    return made(f"gym.spaces.{module}", name, state)


@pytest.mark.parametrize(
    "data",
    [
        space("Discrete", "discrete"),
        space("Discrete", "discrete", n=0),
        space("Discrete", "discrete", n=1 << 70),
        space("Discrete", "discrete", n=2.5),
        space("Discrete", "discrete", n=np.zeros(3)),
        space("Box", "box", low=np.zeros(2)),
        space("Box", "box", low=0, high=1),
        space("Box", "box", low=np.zeros(2), high=np.zeros(3)),
        space("Box", "box", low=np.zeros(2), high=np.zeros(2), dtype=FLOAT),
        space("Box", "box", low=np.zeros(2), high=np.zeros(2), dtype="float64"),
        space("Box", "box", low=np.array(["a"]), high=np.array(["b"])),
        space("MultiDiscrete", "multi_discrete", nvec=[2, 3]),
        space("MultiDiscrete", "multi_discrete", nvec=np.array([2.5])),
        space("MultiDiscrete", "multi_discrete", nvec=np.array([2]), start=np.array([1, 2])),
        space("MultiBinary", "multi_binary", n="three"),
        space("MultiBinary", "multi_binary", n=(1,) * 40),
        space("Text", "text", max_length=3, min_length=1, _char_str=b"abc"),
        space("Tuple", "tuple", spaces=[1]),
        space("Tuple", "tuple", spaces=None),
        space("Dict", "dict", spaces={"a": 1}),
        space("Dict", "dict", spaces=[]),
        made("gym.spaces.discrete", "Discrete", [1]),
        made("imitation.data.types", "Trajectory", {"acts": 1}),
        made("imitation.data.types", "Trajectory", {"acts": 1, "obs": 2, "more": 3}),
        made("imitation.data.types", "Trajectory", {"acts": 1, "obs": 2, "terminal": "yes"}),
        made("imitation.data.types", "Trajectory", [1, 2]),
        b"cimitation.data.types\nTrajectory\n(K\x01t\x81.",
        b"cmagical.saved_trajectories\nMAGICALTrajectory\n(K\x01t\x81.",
        b"cimitation.augment.color\nColorSpace\n(U\x03BGRtR.",
        b"cimitation.augment.color\nColorSpace\n(K\x01tR.",
        b"cil_representations.envs.utils\n_inflate_object\n(cnumpy\nndarray\n}tR.",
        b"cil_representations.envs.utils\n_inflate_object\n(cos\nsystem\n}tR.",
        b"cil_representations.envs.utils\n_inflate_object\n(cgym.spaces.box\nBox\nNtR.",
    ],
)
def test_what_no_space_is(data: bytes, refuse: Refuse) -> None:
    refuse(data, UnsafeDataError)


def test_a_space_names_a_key_that_makes_no_path(refuse: Refuse) -> None:
    inner = theirs.Dict({"a": theirs.Discrete(2)})
    data = pickle.dumps(inner, 2).replace(b"X\x01\x00\x00\x00a", b"X\x01\x00\x00\x00/")
    assert "expected keys without '/'" in refuse(data, UnsafeDataError)


def test_spaces_in_spaces_have_a_depth(refuse: Refuse) -> None:
    deep = b"cgym.spaces.discrete\nDiscrete\n)\x81}U\x01nK\x02sb"
    for _ in range(200):
        deep = b"cgym.spaces.tuple\nTuple\n)\x81}U\x06spaces" + deep + b"\x85sb"
    assert "nested more than 100 deep" in refuse(deep + b".", UnsafeDataError)


def test_bounds_that_are_shared_are_paid_for(refuse: Refuse) -> None:
    low = pickle.dumps(np.zeros(100_000), 3)[2:-1]
    box = b"cgym.spaces.box\nBox\n)\x81}(U\x03lowh\xffU\x04highh\xffuba"
    assert "copied again and again" in refuse(b"](" + low + b"q\xfft0" + b"]" + box * 500 + b"a.", UnsafeDataError)


def test_colour_spaces() -> None:
    assert loads(b"cimitation.augment.color\nColorSpace\n(U\x04GRAYtR.") is ColorSpace.GRAY


@pytest.mark.parametrize(
    "name", ["imitation.util.rollout\nTrajectory", "magical.saved_trajectories\nMAGICALTrajectory"]
)
def test_named_tuples_of_old_protocols(name: str) -> None:
    data = f"ccopy_reg\n_reconstructor\n(c{name}\nc__builtin__\ntuple\n(I1\nI2\nI3\nI4\nttR.".encode()
    read = loads(data)
    assert type(read) is Trajectory
    assert (read.acts, read.obs, read.rews, read.infos, read.terminal) == (1, 2, 3, 4, None)


@pytest.mark.parametrize("name", ["Trajectory", "TrajectoryWithRew"])
def test_records_with_a_state(name: str) -> None:
    read = loads(made("imitation.data.types", name, {"obs": [1, 2], "acts": [0], "infos": None, "terminal": True}))
    assert (read.obs, read.acts, read.infos, read.terminal, read.rews) == ([1, 2], [0], None, True, None)
