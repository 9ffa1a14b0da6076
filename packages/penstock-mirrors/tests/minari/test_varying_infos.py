"""Infos that are lists of strings, and infos whose shape differs from episode to episode."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from penstock_mirrors import minari
from penstock_mirrors.minari.data_collector import EpisodeBuffer


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / ".cache"))
    return tmp_path


def buffer(**infos):
    return EpisodeBuffer(
        observations=np.zeros((4, 2), np.float32),
        actions=np.zeros(3, np.int64),
        rewards=[1.0] * 3,
        terminations=[False, False, True],
        truncations=[False] * 3,
        infos=infos,
    )


@pytest.mark.filterwarnings("ignore:.*is set to None|env_spec is None:UserWarning")
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_lists_of_strings_are_stored(data_format, root):
    names = [[f"{t}a", f"{t}b"] for t in range(4)]
    dataset = minari.create_dataset_from_buffers(
        "names-v0",
        [buffer(names=names, tail=[np.array(row) for row in names])],
        observation_space=spaces.Box(-1, 1, (2,)),
        action_space=spaces.Discrete(2),
        data_format=data_format,
    )
    infos = dataset[0].infos
    assert infos["names"]["1"].tolist() == ["0b", "1b", "2b", "3b"]
    assert infos["tail"]["0"].tolist() == ["0a", "1a", "2a", "3a"]


@pytest.mark.filterwarnings("ignore:.*is set to None|env_spec is None:UserWarning")
def test_each_episode_has_the_shape_that_is_stored(root):
    dataset = minari.create_dataset_from_buffers(
        "shapes-v0",
        [buffer(x=np.ones((4, 2), np.int64)), buffer(x=np.ones((4, 2), np.int64))],
        observation_space=spaces.Box(-1, 1, (2,)),
        action_space=spaces.Discrete(2),
    )
    with h5py.File(root / "shapes-v0" / "data" / "main_data.hdf5", "r+") as file:
        del file["episode_1/infos/x"]
        file["episode_1/infos/x"] = np.full((4, 3), 2)
    dataset = minari.load_dataset("shapes-v0")
    assert [episode.infos["x"].shape for episode in dataset] == [(4, 2), (4, 3)]
    assert dataset[1].extras is None or "shapes" not in dataset[1].extras
