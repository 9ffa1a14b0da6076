"""Reports from RLDS, TFDS and Open X-Embodiment."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.damage import collected_damage
from penstock.errors import UnknownFormatError
from tests.reports.reported import report

GOLDEN = Path(__file__).parents[1] / "golden/rlds/tfrecord/toy_arm"
SHARD = "toy_arm-train.tfrecord-00002-of-00003"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(GOLDEN, tmp_path / "toy_arm")) / "1.0.0"


def opened(folder: Path) -> tuple[Any, list[str]]:
    with collected_damage() as messages:
        data = penstock.open(folder)
    return data, messages


@report("google-deepmind/open_x_embodiment#40", "a shard that was not published is named, and the others are read")
def test_a_missing_last_shard(folder: Path) -> None:
    (folder / SHARD).unlink()
    data, messages = opened(folder)
    assert (len(data), len(messages)) == (6, 1)
    assert "shards of train (expected 3 shards, got 2" in messages[0]


@report("kpertsch/rlds_dataset_builder#15", "lengths of fewer shards than there are do not hide episodes")
def test_a_wrong_number_of_shards(folder: Path) -> None:
    info = json.loads((folder / "dataset_info.json").read_text())
    for split in info["splits"]:
        split["shardLengths"] = split["shardLengths"][:2]
    (folder / "dataset_info.json").write_text(json.dumps(info))
    data, _ = opened(folder)
    assert len(data) == 9


@report("moojink/openvla-oft#3", "shards that are pointers of Git LFS are named as such")
def test_pointers_instead_of_shards(folder: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    (folder / SHARD).write_bytes(pointer)
    data, messages = opened(folder)
    assert len(data) == 6
    assert f"{SHARD} (expected records, got a pointer of Git LFS" in messages[0]
    (folder / "one.hdf5").write_bytes(pointer)
    with pytest.raises(UnknownFormatError, match="git lfs pull"):
        penstock.open(folder / "one.hdf5")


@report("google-deepmind/envlogger#14", "a sequence of images in each step does not close the dataset")
@report("google-research/rlds#13", "a dataset with a sequence feature opens, and says what is not read")
@report("google-deepmind/open_x_embodiment#100", "features that cannot be read are named, others are read")
def test_sequences_of_images(folder: Path) -> None:
    features = json.loads((folder / "features.json").read_text())
    steps = features["featuresDict"]["features"]["steps"]["sequence"]["feature"]["featuresDict"]["features"]
    image = steps["observation"]["featuresDict"]["features"]["image"]
    name = "tensorflow_datasets.core.features.sequence_feature.Sequence"
    steps["stack"] = {"pythonClassName": name, "sequence": {"length": "3", "feature": image}}
    (folder / "features.json").write_text(json.dumps(features))
    data, messages = opened(folder)
    assert len(data) == 9
    assert ["steps/stack" in message for message in messages] == [True]
    assert data[0].columns["observations/image"].shape[1:] == (64, 96, 3)


@report("octo-models/octo#100", "a last action of zeros is not taken for padding without a word")
def test_a_last_action_of_zeros(tmp_path: Path) -> None:
    actions = np.ones((9, 2))
    actions[[4, 8]] = 0
    data = penstock.from_arrays({"observations": np.zeros((9, 3)), "actions": actions}, lengths=[5, 4])
    penstock.convert(data, tmp_path / "toy/1.0.0", format="rlds")
    (tmp_path / "toy/1.0.0/penstock.json").unlink()
    _, messages = opened(tmp_path / "toy/1.0.0")
    assert ["last_step='step'" in message for message in messages] == [True]
    with penstock.open(tmp_path / "toy/1.0.0", last_step="step") as whole:
        assert [episode.actions[-1].tolist() for episode in whole] == [[0.0, 0.0]] * 2


@report("youliangtan/agentlace#10", "an action belongs to the observation before it, not after it")
def test_actions_belong_to_the_observation_before(tmp_path: Path) -> None:
    rows = np.arange(6.0)
    data = penstock.from_arrays(
        {"observations": np.arange(7.0)[:, None], "actions": rows, "rewards": rows}, lengths=[6]
    )
    penstock.convert(data, tmp_path / "toy/1.0.0", format="rlds")
    with penstock.open(tmp_path / "toy/1.0.0") as back:
        batch = back.transitions()[:]
        np.testing.assert_array_equal(batch["observations"][:, 0], batch["actions"])
        np.testing.assert_array_equal(batch["next_observations"][:, 0], batch["actions"] + 1)
