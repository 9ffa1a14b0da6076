"""Damaged records, missing shards, and what options refuse."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers import images
from penstock.errors import ArgumentError, ChecksumError, DamageWarning, FormatError
from penstock.formats.rlds import FORMAT
from penstock.formats.rlds.index import index_split

GOLDEN = Path(__file__).parents[2] / "golden/rlds/tfrecord/toy_arm"
SHARD = "toy_arm-train.tfrecord-00001-of-00003"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "toy_arm")) / "1.0.0"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def edit(file: Path, place: int, value: bytes) -> None:
    with file.open("r+b") as out:
        out.seek(place)
        out.write(value)


def starts(file: Path) -> list[int]:
    """The byte at which each record begins."""
    raw, found = file.read_bytes(), [0]
    while found[-1] < len(raw):
        found.append(found[-1] + 16 + int.from_bytes(raw[found[-1] : found[-1] + 8], "little"))
    return found


def test_damaged_data_are_named_by_shard_and_record_and_the_rest_is_read(folder: Path) -> None:
    whole = penstock.open(GOLDEN)
    place = starts(folder / SHARD)[2] - 3000
    edit(folder / SHARD, place, b"!")
    data = penstock.open(folder, cache="off")
    assert len(data) == len(whole)
    for e in range(len(data)):
        if e == 4:
            with pytest.raises(ChecksumError, match=rf"as they were written.*record 1 in .*{SHARD}"):
                data[e]
            with pytest.raises(ChecksumError, match="record 1"):
                data.source.episode_metadata([4])
        else:
            np.testing.assert_array_equal(data[e].columns["observations/image"], whole[e].columns["observations/image"])
    assert [(f.name, f.where) for f in FORMAT.check(folder)] == [("checksum", "episode 4")]
    unchecked = penstock.open(folder, verify=False, cache="off")
    assert unchecked.source.episode_metadata([4]) == whole.source.episode_metadata([4])


def test_records_behind_a_damaged_size_are_left_out_with_a_warning(folder: Path) -> None:
    edit(folder / SHARD, starts(folder / SHARD)[1], b"!")
    with pytest.warns(DamageWarning, match=rf"left out 2 parts of bytes: {SHARD} \(record 1 and those.* got 1\)"):
        data = penstock.open(folder)
    assert np.diff(data.source.offsets).tolist() == [9, 4, 8, 4, 3, 5, 3]
    assert [(each.where, each.reason) for each in data.source.account.left_out] == [(SHARD, "damaged-part")] * 2


def test_a_shard_that_was_cut_off_has_its_whole_records(folder: Path) -> None:
    raw = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(raw[:-1])
    with pytest.warns(DamageWarning, match="expected 3 records as in dataset_info.json, got 2"):
        assert len(penstock.open(folder)) == 8
    (folder / SHARD).write_bytes(raw[: starts(folder / SHARD)[0]])
    with pytest.warns(DamageWarning, match=r"expected 3 records as in dataset_info.json, got 0"):
        assert len(penstock.open(folder)) == 6


def test_missing_shards_are_named(folder: Path) -> None:
    (folder / SHARD).unlink()
    with pytest.warns(DamageWarning, match=r"shards of train \(expected 3 shards, got 2"):
        data = penstock.open(folder)
    assert np.diff(data.source.offsets).tolist() == [9, 4, 8, 3, 5, 3]


def test_a_truncated_file_is_noticed_while_it_is_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.files.mapping.BELIEVED", 0.0)
    data = penstock.open(folder, verify=False)
    (folder / SHARD).write_bytes(b"")
    with pytest.raises(FormatError, match="truncated while it was open"):
        data[4]


def test_splits_configs_and_versions_are_chosen_by_name(folder: Path) -> None:
    assert len(penstock.open(folder)) == 9
    assert len(penstock.open(folder, split="val")) == len(penstock.open(f"{folder}:val")) == 3
    assert len(penstock.open(f"{folder.parent}:train+val")) == 12
    assert penstock.open(folder, split="val+train").metadata["split"] == "val+train"
    with pytest.raises(ArgumentError, match=r"no split 'vla'; did you mean 'val'\?; there are \['train', 'val'\]"):
        penstock.open(folder, split="vla")
    with pytest.raises(ArgumentError, match="each split once"):
        penstock.open(folder, split="val+val")
    for version in ("1.2.0", "1.10.0"):
        shutil.copytree(folder, folder.parent / version)
        (folder.parent / version / "dataset_info.json").write_text(json.dumps({"version": version}))
    assert penstock.open(folder.parent).metadata["version"] == "1.10.0"
    assert penstock.open(folder.parent, version="1.2.0").metadata["version"] == "1.2.0"
    with pytest.raises(ArgumentError, match=r"no version '2.0.0'; there are \['1.0.0', '1.2.0', '1.10.0'\]"):
        penstock.open(folder.parent, version="2.0.0")
    with pytest.raises(ArgumentError, match="expected no config and version"):
        penstock.open(folder, version="1.0.0")
    shutil.copytree(folder, folder.parent / "small/1.0.0")
    with pytest.raises(ArgumentError, match=r"the name of a config, as config=''; there are \['', 'small'\]"):
        penstock.open(folder.parent)
    assert len(penstock.open(folder.parent, config="small")) == 9


def test_without_train_a_split_must_be_named(folder: Path) -> None:
    for file in [*folder.glob("*-train.*")]:
        file.rename(file.with_name(file.name.replace("-train", "-test")))
    with pytest.raises(ArgumentError, match="expected the name of a split, as split='val'"):
        penstock.open(folder)


def test_columns_are_chosen_by_name(folder: Path) -> None:
    assert list(penstock.open(folder, columns=["rewards", "tag"]).spec) == ["rewards", "tag"]
    with pytest.raises(ArgumentError, match=r"no column 'reward'; did you mean 'rewards'\?"):
        penstock.open(folder, columns=["reward"])
    with pytest.raises(ArgumentError, match="expected last_step"):
        penstock.open(folder, last_step="none")
    with pytest.raises(ArgumentError, match="expected jpeg 'accurate' or 'fast', got 'slow'"):
        penstock.open(folder, jpeg="slow")


def features(folder: Path) -> Any:
    return json.loads((folder / "features.json").read_text())


def steps_of(tree: Any) -> dict[str, Any]:
    return tree["featuresDict"]["features"]["steps"]["sequence"]["feature"]["featuresDict"]["features"]


def test_features_that_do_not_fit_the_records_are_an_error(folder: Path) -> None:
    tree = features(folder)
    steps_of(tree)["tag"]["tensor"]["shape"] = {"dimensions": ["2"]}
    (folder / "features.json").write_text(json.dumps(tree))
    with pytest.warns(DamageWarning, match=r"record 0: features of different numbers of steps"):
        assert len(penstock.open(folder)) < 9


def test_features_without_a_column_are_left_out_and_unknown_ones_refused(folder: Path) -> None:
    tree = features(folder)
    image = steps_of(tree)["observation"]["featuresDict"]["features"]["image"]
    name = "tensorflow_datasets.core.features.sequence_feature.Sequence"
    steps_of(tree)["views"] = {"pythonClassName": name, "sequence": {"length": "-1", "feature": image}}
    (folder / "features.json").write_text(json.dumps(tree))
    with pytest.warns(DamageWarning, match=r"left out 1 column: steps/views \(several values of this kind"):
        data = penstock.open(folder)
    assert "views" not in data.spec
    steps_of(tree)["views"] = {"pythonClassName": "my.Audio", "audio": {}}
    (folder / "features.json").write_text(json.dumps(tree))
    with pytest.raises(FormatError, match=r"known classes, got 'Audio' - at steps/views in .*features.json"):
        penstock.open(folder)


@pytest.mark.parametrize("thread_bytes", [0, images.THREAD_BYTES])
def test_images_of_another_shape_are_an_error_and_unknown_sizes_come_from_the_first(
    thread_bytes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = penstock.open(folder).windows(3)[:20]["observations"]
    monkeypatch.setattr(images, "THREAD_BYTES", thread_bytes)
    monkeypatch.setattr(images, "cores", lambda: 3)
    for name, found in penstock.open(folder).windows(3)[:20]["observations"].items():
        np.testing.assert_array_equal(found, expected[name])
    tree = features(folder)
    image = steps_of(tree)["observation"]["featuresDict"]["features"]["image"]["image"]
    image["shape"] = {"dimensions": ["-1", "-1", "3"]}
    (folder / "features.json").write_text(json.dumps(tree))
    assert penstock.open(folder).spec["observations/image"].shape == (64, 96, 3)
    image["shape"] = {"dimensions": ["64", "95", "3"]}
    (folder / "features.json").write_text(json.dumps(tree))
    with pytest.raises(FormatError, match=r"expected an image uint8\(64, 95, 3\).*observation/image, row 0"):
        penstock.open(folder)[0]


def test_a_folder_without_steps_is_refused(folder: Path) -> None:
    tree = features(folder)
    del tree["featuresDict"]["features"]["steps"]
    (folder / "features.json").write_text(json.dumps(tree))
    with pytest.raises(FormatError, match="expected a feature 'steps'"):
        penstock.open(folder)
    (folder / "features.json").write_text("{")
    with pytest.raises(FormatError, match="expected JSON"):
        penstock.open(folder)


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_records_without_steps_are_left_out_where_an_observation_is_needed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = GOLDEN.parents[1] / kind / "toy_arm:val"
    whole = penstock.open(folder, last_step="observation")

    def indexed(*arguments: Any, **options: Any) -> Any:
        index = index_split(*arguments, **options)
        return replace(index, steps=np.concatenate([[0], index.steps[1:]]))

    monkeypatch.setattr("penstock.formats.rlds.source.index_split", indexed)
    with pytest.warns(DamageWarning, match="expected an observation, got no step"):
        data = penstock.open(folder, last_step="observation")
    assert len(data) == len(whole) - 1
    for path, column in whole[1].columns.items():
        np.testing.assert_array_equal(np.asarray(data[0].columns[path]), np.asarray(column))
