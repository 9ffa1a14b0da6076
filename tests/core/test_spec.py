from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spaces import Box, Dict, Discrete, Tuple
from penstock.core.spec import Field, Spec
from penstock.errors import SpecError

BOX = Box(np.zeros(2), np.ones(2), np.dtype("float32"))


def spec() -> Spec:
    return Spec(
        {
            "observations/a": Field(np.dtype("f4"), (2,), "boundary"),
            "observations/b": Field(np.dtype("u1"), (), "boundary", "text"),
            "actions/0": Field(np.dtype("i8")),
            "actions/1": Field(np.dtype("i8")),
            "rewards": Field(np.dtype("f8")),
            "terminations": Field(np.dtype("?")),
            "truncations": Field(np.dtype("?")),
            "infos/x": Field(np.dtype("f8"), (), "boundary"),
            "state/qpos": Field(np.dtype("f8"), (3,), "boundary"),
            "goal": Field(np.dtype("f8"), (1,), "episode"),
        },
        Dict({"a": BOX, "b": BOX}),
        Tuple((Discrete(2), Discrete(2))),
    )


def columns(steps: int = 3) -> dict:
    return {
        "observations/a": np.zeros((steps + 1, 2), "f4"),
        "observations/b": Ragged.from_strings(["s"] * (steps + 1)),
        "actions/0": np.zeros(steps, "i8"),
        "actions/1": np.ones(steps, "i8"),
        "rewards": np.arange(steps, dtype="f8"),
        "terminations": np.zeros(steps, "?"),
        "truncations": np.zeros(steps, "?"),
        "infos/x": np.zeros(steps + 1),
        "state/qpos": np.zeros((steps + 1, 3)),
        "goal": np.zeros((1, 1)),
    }


def test_spec_json_round_trip_and_fingerprint():
    again = Spec.from_json(json.loads(json.dumps(spec().to_json())))
    assert again == spec()
    assert again.fingerprint == spec().fingerprint
    assert hash(again) == hash(spec())
    assert again != Spec(spec().fields)
    assert again != Spec({**spec().fields, "more": Field(np.dtype("f4"))}, again.observation_space, again.action_space)


@pytest.mark.parametrize("made", [spec(), Spec({}), Spec(spec().fields), Spec({}, None, Discrete(3))])
def test_the_fingerprint_is_that_of_the_json(made):
    spaces = {"observation_space": made.observation_space, "action_space": made.action_space}
    standard = {name: None if space is None else space.to_json() for name, space in spaces.items()}
    text = json.dumps({**made.to_json(), **standard}, sort_keys=True)
    assert made.fingerprint == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("bad", [{}, {"fields": {"a": {}}}, {"fields": {"a": {"dtype": "O"}}}, {"fields": 3}])
def test_a_broken_spec_is_a_spec_error(bad):
    with pytest.raises(SpecError):
        Spec.from_json(bad)


@pytest.mark.parametrize("bad", [{"dtype": "O"}, {"align": "row"}, {"kind": "list"}])
def test_a_field_says_what_it_cannot_be(bad):
    with pytest.raises(SpecError, match="expected"):
        Field(**{"dtype": np.dtype("f4"), **bad})


def test_episode_structure_follows_the_spaces():
    episode = Episode(spec(), columns(), 4, {"seed": 7})
    assert len(episode) == 3
    assert set(episode.observations) == {"a", "b"}
    assert isinstance(episode.actions, tuple)
    assert episode.infos["x"].shape == (4,)
    assert list(episode.extras) == ["state", "goal"]
    assert episode.total_reward == 3.0
    assert "id=4" in repr(episode)


def test_paths_below_a_prefix():
    assert spec().paths("actions") == ["actions/0", "actions/1"]
    with pytest.raises(KeyError, match="nothing"):
        spec().paths("nothing")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("rewards", np.zeros(4), "expected 3 rewards for 3 steps, got 4 - at episode 9"),
        ("observations/a", np.zeros((3, 2), "f4"), "steps"),
        ("rewards", np.zeros(3, "f4"), "array of float64, got float32"),
        ("state/qpos", np.zeros((4, 2)), r"shape \(3,\), got \(2,\)"),
        ("observations/b", np.zeros(4, "u1"), "as text"),
        ("goal", np.zeros((2, 1)), "expected 1 goal"),
    ],
)
def test_an_episode_that_does_not_fit_its_spec(path, value, message):
    with pytest.raises(SpecError, match=message):
        Episode(spec(), {**columns(), path: value}, 9)


def test_missing_and_extra_columns_are_named():
    wrong = {**columns(), "more": np.zeros(3)}
    del wrong["rewards"]
    with pytest.raises(SpecError, match=r"\['rewards'\] missing and \['more'\] too many"):
        Episode(spec(), wrong)


@pytest.mark.parametrize("path", ["", "/", "a/", "/etc/passwd", "a//b"])
def test_paths_have_no_empty_parts(path: str) -> None:
    with pytest.raises(SpecError, match="expected paths of columns without empty parts"):
        Spec({"rewards": Field(np.dtype("f8")), path: Field(np.dtype("f8"))})


def test_an_episode_has_columns_by_name_and_says_which() -> None:
    columns = {"observations": np.zeros((3, 2)), "infos/a": np.ones(3), "infos/b": np.arange(3), "rewards": np.ones(2)}
    episode = penstock.from_arrays(columns, lengths=[2])[0]
    assert episode["rewards"].tolist() == episode.rewards.tolist()
    assert {name: array.tolist() for name, array in episode["infos"].items()} == {"a": [1, 1, 1], "b": [0, 1, 2]}
    with pytest.raises(SpecError, match=r"expected a column among .*, got 'reward'; did you mean 'rewards'\?"):
        episode["reward"]
    for wrong in (0, slice(2), None):
        with pytest.raises(SpecError, match="expected a column among"):
            episode[wrong]
