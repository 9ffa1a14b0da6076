from __future__ import annotations

import numpy as np
import pytest

import penstock
from penstock.formats.minari import FORMAT, metadata
from tests.formats.minari.conftest import raw_episode, simple_episode, simple_spec, write_h5


def _messages(folder):
    return [(f.level, f.where, f.message) for f in penstock.check(folder, deep=True).findings]


def _one(folder, level, where, text):
    found = _messages(folder)
    assert [entry for entry in found if entry[0] == level and where in entry[1] and text in entry[2]], found


def test_a_sound_dataset_has_no_findings(tmp_path):
    assert _messages(write_h5(tmp_path / "x-v0", [raw_episode(3), raw_episode(5)])) == []


@pytest.mark.parametrize("back", ["hdf5", "arrow", "parquet"])
def test_what_we_write_is_sound(tmp_path, back):
    spec = simple_spec()
    with FORMAT.create(tmp_path / "x-v0", spec, {}, data_format=back) as writer:
        writer.write(simple_episode(spec, 5000))
    assert _messages(tmp_path / "x-v0") == []


def test_nan_and_values_outside_their_space(tmp_path):
    episode = raw_episode(5000)
    episode["observations"][4500, 1] = np.nan
    episode["observations"][[1, 2, 3, 4], 0] = 11
    episode["rewards"][7] = np.nan
    episode["actions"][3] = 4
    folder = write_h5(tmp_path / "x-v0", [episode])
    _one(folder, "error", "episode 0/observations row 4500", "NaN in 1 row")
    _one(folder, "error", "episode 0/rewards row 7", "NaN")
    _one(folder, "warning", "episode 0/actions row 3", "outside their space in 1 row")
    _one(folder, "warning", "episode 0/observations row 1", "outside their space in 4 rows")


def test_a_last_step_that_does_not_end(tmp_path):
    episode = raw_episode(3)
    episode["terminations"][:] = False
    _one(write_h5(tmp_path / "x-v0", [episode]), "warning", "episode 0", "neither terminated nor truncated")
    _one(write_h5(tmp_path / "y-v0", [raw_episode(0)]), "warning", "episode 0", "no steps")


def test_metadata_that_does_not_fit(tmp_path):
    entries = {"total_episodes": 7, "total_steps": 1, "dataset_id": "other-v0"}
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)], entries=entries)
    _one(folder, "error", "metadata.json", "total_episodes 1 as in the files, got 7")
    _one(folder, "error", "metadata.json", "total_steps 3")
    _one(folder, "error", "metadata.json", "dataset_id x-v0 of its place, got other-v0")
    bare = write_h5(tmp_path / "z-v0", [raw_episode(3)], (None, None))
    _one(bare, "error", "metadata.json", "expected observation_space, got none")


def test_infos_that_differ_and_the_rest_is_still_checked(tmp_path):
    episodes = [{**raw_episode(3), "infos/a": np.ones(4)}, raw_episode(3)]
    episodes[1]["rewards"][0] = np.nan
    folder = write_h5(tmp_path / "x-v0", episodes)
    _one(folder, "error", "x-v0", "expected infos/a in every episode")
    found = penstock.check(folder, deep=True, infos="skip").findings
    assert [(f.name, f.column, f.episodes) for f in found if f.level == "error"] == [("nan", "rewards", (1,))]


def test_numbers_with_a_gap(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3), raw_episode(3)])
    import h5py

    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file.move("episode_0", "episode_5")
    _one(folder, "error", "data", "numbered from 0 on, got [1, 5]")


@pytest.mark.parametrize("back", ["arrow", "parquet"])
def test_damaged_columns_are_named(tmp_path, back):
    spec = simple_spec()
    with FORMAT.create(tmp_path / "x-v0", spec, {}, data_format=back) as writer:
        writer.write_all([simple_episode(spec, 30, e) for e in range(2)])
    (tmp_path / "x-v0" / "data" / "0" / f"part-0.{back}").write_bytes(b"PAR1")
    assert _messages(tmp_path / "x-v0")[0][0] == "error"


def test_metadata_of_an_episode_that_is_not_json(tmp_path):
    spec = simple_spec()
    with FORMAT.create(tmp_path / "x-v0", spec, {}, data_format="arrow") as writer:
        writer.write(simple_episode(spec, 3))
    (tmp_path / "x-v0" / "data" / "0" / metadata.FILE).write_text("[")
    _one(tmp_path / "x-v0", "error", "episode 0", "JSON object")
