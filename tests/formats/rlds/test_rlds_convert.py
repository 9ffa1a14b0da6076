"""Conversions from and to RLDS, and what the writer refuses."""

# pyright: basic

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.core.damage import collected_damage
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, DataError, FormatError, SpecError
from penstock.formats.rlds import FORMAT
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import FLAT, field

GOLDEN = Path(__file__).parents[2] / "golden/rlds/tfrecord/toy_arm"


def test_a_dataset_is_converted_and_back(tmp_path: Path) -> None:
    data = penstock.open(f"{GOLDEN}:val", cache="off")
    there = penstock.convert(data, tmp_path / "columns").out
    back = penstock.convert(there, tmp_path / "toy/1.0.0", format="rlds").out
    found = penstock.open(back, cache="off")
    assert found.spec == data.spec
    for e in range(len(data)):
        assert_same_episode(found[e], data[e])
    info = json.loads((tmp_path / "toy/1.0.0/dataset_info.json").read_text())
    assert (info["name"], info["splits"][0]["shardLengths"]) == ("toy", ["3"])


@pytest.mark.parametrize("filled", [False, True])
def test_the_alignment_is_decided_by_content_and_shown(tmp_path: Path, filled: bool) -> None:
    """Without our own file, zeros as the last action say that the last step is an observation alone."""
    rng = np.random.default_rng(0)
    rows = 9 if filled else 11
    columns = {"observations": rng.normal(size=(rows, 2)), "actions": 1 + rng.random(9), "rewards": rng.random(9)}
    align = {"observations": "step" if filled else "boundary"}
    data = penstock.from_arrays(columns, lengths=[4, 5], align=align)
    penstock.convert(data, tmp_path / "toy/1.0.0", format="rlds")
    (tmp_path / "toy/1.0.0/penstock.json").unlink()
    found = penstock.open(tmp_path / "toy")
    last_step = "step" if filled else "observation"
    assert found.metadata["last_step"] == last_step
    assert np.diff(found.source.offsets).tolist() == [4, 5]
    assert found.spec["observations"].align == align["observations"]
    for episode, expected in zip(found, data, strict=True):
        for name in columns:
            np.testing.assert_array_equal(episode.columns[name], expected.columns[name])
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "toy")])
    assert shown.exit_code == 0
    assert f"last_step {last_step}" in " ".join(shown.output.split())
    split = CliRunner().invoke(app, ["info", str(tmp_path / "toy:train"), "--json"])
    assert json.loads(split.output)["bytes"] > 500


@pytest.mark.parametrize("reward", ["none", "zero", "sparse", "dense"])
def test_a_guess_that_shortens_episodes_says_so_with_the_option_that_decides(tmp_path: Path, reward: str) -> None:
    """A real episode may end with an action of zeros; only a reward at each other step tells that none was taken."""
    rng, lengths = np.random.default_rng(0), [5, 4, 6]
    last = np.cumsum(lengths) - 1
    actions, rewards = 1 + rng.random((15, 2)), np.zeros(15)
    rewards[:] = 1 + rng.random(15) if reward == "dense" else 0
    rewards[last - 1] += reward == "sparse"
    actions[last] = rewards[last] = 0
    columns = {"observations": {"state": rng.random((15, 3))}, "actions": actions}
    data = penstock.from_arrays(columns | ({} if reward == "none" else {"rewards": rewards}), lengths=lengths)
    out = penstock.convert(data, tmp_path / "toy/1.0.0", format="rlds").out
    (tmp_path / "toy/1.0.0/penstock.json").unlink()  # as another writer leaves it
    with collected_damage() as messages:
        guessed = penstock.open(out, cache="off")
    assert [len(episode) for episode in guessed] == [4, 3, 5]
    assert guessed.source.account.ends.endswith("whose last step is an observation alone")
    assert ["last_step='step' keeps it" in message for message in messages] == [True] * (reward != "dense")
    assert ["guessed"] * (reward != "dense") == [f.name for f in penstock.check(out, progress=False).findings][:1]
    for last_step, expected in (("step", lengths), ("observation", [4, 3, 5])):
        said = penstock.open(out, cache="off", last_step=last_step)
        assert [len(episode) for episode in said] == expected
        assert not said.source.account.left_out


def test_images_are_encoded_as_asked(tmp_path: Path) -> None:
    spec = Spec({"observations/image": field("u1", 16, 16, 3), "observations/small": field("u1", 2, 2, 3)})
    image = np.arange(2 * 16 * 16 * 3, dtype=np.uint8).reshape(2, 16, 16, 3)
    episode = penstock.Episode(spec, {"observations/image": image, "observations/small": image[:, :2, :2]})
    for images in ("png", "jpeg", "raw"):
        with FORMAT.create(tmp_path / images, spec, images=images) as writer:
            writer.write(episode)
        found = FORMAT.open(tmp_path / images, cache="off").episode(0).columns
        assert np.array_equal(found["observations/image"], image) is (images != "jpeg")
        np.testing.assert_array_equal(found["observations/small"], image[:, :2, :2])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": field("c8")}, "numbers or text"),
        ({"terminations": field("u1")}, "one bool for each step"),
        ({"is_first": field("?")}, "features of their own, got is_first"),
        ({"is_last/x": field("?")}, "features of their own"),
        ({"observation": field("f4"), "observations": field("f4")}, "features of their own"),
        ({"steps/x": Field(np.dtype("f4"), (), "episode")}, "features of their own"),
        ({"episode_metadata/x": Field(np.dtype("f4"), (), "episode")}, "features of their own"),
    ],
)
def test_columns_without_a_feature_are_refused(tmp_path: Path, fields: dict[str, Field], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        FORMAT.create(tmp_path / "data", Spec(fields))
    assert not (tmp_path / "data").exists()


def test_names_and_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="a name of letters"):
        FORMAT.create(tmp_path / "data", FLAT.spec, name="my set")
    with pytest.raises(ArgumentError, match="images 'png'"):
        FORMAT.create(tmp_path / "data", FLAT.spec, images="gif")
    with FORMAT.create(tmp_path / "1-2", FLAT.spec) as writer:
        episode = FLAT.episodes()[0]
        with pytest.raises(DataError, match="metadata that JSON can hold"):
            writer.write(penstock.Episode(episode.spec, episode.columns, 0, {"x": object()}))
    assert [file.name for file in (tmp_path / "1-2").glob("*train*")] == ["dataset-train.tfrecord-00000-of-00001"]
    with pytest.raises(FormatError, match="as penstock creates it"):
        FORMAT.append(GOLDEN / "1.0.0")


def test_a_part_of_a_record_at_the_end_is_cut_off(tmp_path: Path) -> None:
    episodes = FLAT.episodes()
    with FORMAT.create(tmp_path / "data", FLAT.spec) as writer:
        writer.write_all(episodes[:2])
    shard = next((tmp_path / "data").glob("*train*"))
    shard.write_bytes(shard.read_bytes() + b"half")
    with FORMAT.append(tmp_path / "data") as writer:
        assert writer.write(episodes[2]) == 2
    for found, expected in zip(FORMAT.open(tmp_path / "data", cache="off").episodes(), episodes[:3], strict=True):
        assert_same_episode(found, expected)
