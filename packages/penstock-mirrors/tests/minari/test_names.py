"""The small parts: spaces as text, buffers, ids, namespaces, and the names that programs import."""

from __future__ import annotations

import importlib
import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import penstock
from penstock.errors import DataError
from penstock_mirrors import minari
from penstock_mirrors.minari import EpisodeData
from penstock_mirrors.minari.data_collector import EpisodeBuffer
from penstock_mirrors.minari.dataset.minari_dataset import gen_dataset_id, parse_dataset_id
from penstock_mirrors.minari.dataset.minari_storage import is_image_space
from penstock_mirrors.minari.namespace import create_namespace, delete_namespace, list_local_namespaces
from penstock_mirrors.minari.serialization import deserialize_space, serialize_space

SPACES = [
    spaces.Box(-np.inf, np.inf, (2, 2)),
    spaces.Discrete(3, start=-1),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete([2, 3], start=[1, 1], dtype=np.int32),
    spaces.MultiBinary((2, 3)),
    spaces.Text(4, charset="ba"),
    spaces.Dict({"z": spaces.Discrete(2), "a": spaces.Tuple((spaces.Text(1), spaces.MultiBinary(2)))}),
]

MODULES = {
    "": [*minari.__all__, "__version__", "supported_dataset_versions"],
    ".cli": ["app"],
    ".data_collector": ["DataCollector", "EpisodeBuffer"],
    ".data_collector.callbacks.episode_metadata": ["EpisodeMetadataCallback"],
    ".data_collector.callbacks.step_callback": ["StepDataCallback"],
    ".data_collector.data_collector": ["DataCollector"],
    ".data_collector.episode_buffer": ["EpisodeBuffer"],
    ".dataset._storages": ["get_minari_storage", "get_storage_keys"],
    ".dataset.episode_data": ["EpisodeData"],
    ".dataset.minari_dataset": ["MinariDataset", "MinariDatasetSpec", "gen_dataset_id", "parse_dataset_id"],
    ".dataset.minari_storage": ["METADATA_FILE_NAME", "MinariStorage", "is_image_space"],
    ".dataset.step_data": ["StepData"],
    ".namespace": ["namespace_hierarchy", "upload_namespace", "validate_namespace"],
    ".storage.datasets_root_dir": ["get_dataset_path"],
    ".storage.hosting": ["download_dataset", "list_remote_datasets", "upload_dataset"],
    ".storage.local": ["delete_dataset", "list_local_datasets", "load_dataset"],
    ".storage.remotes": ["DEFAULT_REMOTE", "get_cloud_storage"],
    ".utils": ["RandomPolicy", "combine_datasets", "get_dataset_spec_dict", "get_env_spec_dict"],
}


@pytest.mark.parametrize(("module", "names"), MODULES.items())
def test_the_names_are_where_programs_import_them_from(module: str, names: list[str]) -> None:
    found = importlib.import_module(f"penstock_mirrors.minari{module}")
    assert [name for name in names if not hasattr(found, name)] == []


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_equal(space: gymnasium.Space[Any]) -> None:
    again = deserialize_space(serialize_space(space))
    assert again == space
    assert again.dtype == space.dtype
    assert serialize_space(again) == serialize_space(space)
    assert json.dumps(serialize_space(space, to_string=False)) == serialize_space(space)


class Mission(spaces.Text):
    """A space of one's own."""


def test_spaces_of_ones_own_are_registered() -> None:
    @serialize_space.register(Mission)
    def write(space: Mission, to_string: bool = True) -> dict[str, Any] | str:
        data = {"type": "Mission", "length": space.max_length}
        return json.dumps(data) if to_string else data

    @deserialize_space.register("Mission")
    def read(data: dict[str, Any]) -> Mission:
        return Mission(data["length"])

    again: Any = deserialize_space(serialize_space(spaces.Dict({"a": Mission(7)})))
    assert (type(again["a"]), again["a"].max_length) == (Mission, 7)
    for kind in (NotImplementedError, penstock.errors.PenstockError):
        with pytest.raises(kind, match=r"No serialization method .* @serialize_space.register\(Sequence\)"):
            serialize_space(spaces.Sequence(spaces.Discrete(2)))
        with pytest.raises(kind, match=r"No serialization method .* @serialize_space.register\(Graph\)"):
            serialize_space(spaces.Tuple((spaces.Graph(spaces.Discrete(2), None),)))
        with pytest.raises(kind, match=r"No deserialization method available for Hat; .*register\('Hat'\)"):
            deserialize_space({"type": "Hat"})


def test_ids() -> None:
    assert parse_dataset_id("aB1-_/env-name/eF3-v45") == ("aB1-_/env-name", "eF3", 45)
    assert gen_dataset_id("a/b", "c", 0) == "a/b/c-v0"
    for malformed in ("a", "a.b-v0", "x/", "a b-v0"):
        with pytest.raises(ValueError, match="Malformed dataset ID"):
            parse_dataset_id(malformed)


def test_namespaces() -> None:
    create_namespace("one/two", "inner", key=[1])
    assert list_local_namespaces() == ["one", "one/two"]
    assert minari.namespace.get_namespace_metadata("one/two") == {"key": [1], "description": "inner"}
    with pytest.raises(ValueError, match="already exists"):
        create_namespace("one")
    with pytest.raises(ValueError, match="is not empty"):
        delete_namespace("one")
    delete_namespace("one/two")
    with pytest.warns(UserWarning, match="does not exist"):
        delete_namespace("one/two")
    with pytest.raises(TypeError, match="None"):
        create_namespace(None)  # type: ignore[arg-type]
    for malformed in ("/", "../x", "a/", "/a", "a", ""):
        with pytest.raises(ValueError, match="Malformed namespace"):
            create_namespace(malformed)


def step(observation: Any, **more: Any) -> dict[str, Any]:
    base = {"action": (1, 2), "reward": 1, "terminated": False, "truncated": False, "info": {}}
    return {"observation": observation, **base, **more}


def test_a_buffer_copies_what_it_takes() -> None:
    held = np.zeros(2)
    buffer = EpisodeBuffer(observations={"a": held, "b": "x"}, infos={"i": held})
    for i in range(2):
        held += 1
        buffer = buffer.add_step_data(step({"a": held, "b": "y"}, info={"i": held}, state={"p": held}))
        assert len(buffer) == i + 1
    assert np.array(buffer.observations["a"])[:, 0].tolist() == [0, 1, 2]
    assert np.array(buffer.infos["i"])[:, 0].tolist() == [0, 1, 2]
    assert np.array(buffer.extras["state"]["p"])[:, 0].tolist() == [1, 2]
    assert buffer.observations["b"] == ["x", "y", "y"]
    assert buffer.actions == ([1, 1], [2, 2])


@pytest.mark.parametrize(
    "wrong", [{"info": {}}, {"info": {"j": 1}}, {"action": (1,)}, {"action": 1}, {"info": {"i": {}}}]
)
def test_a_buffer_refuses_another_structure(wrong: dict[str, Any]) -> None:
    buffer = EpisodeBuffer(observations=0).add_step_data(step(1, info={"i": 1}))
    with pytest.raises(DataError, match="expected"):
        buffer.add_step_data(step(1, info={"i": 1}) | wrong)


def test_episode_data_tells_what_it_holds() -> None:
    flags = np.zeros(2, bool)
    episode = EpisodeData(3, {"a": np.zeros((3, 2))}, (np.zeros(2),), np.zeros(2), flags, flags, {"i": flags})
    assert repr(episode) == (
        "EpisodeData(id=3, total_steps=2, observations={a: ndarray of shape (3, 2) and dtype float64}, "
        "actions=(ndarray of shape (2,) and dtype float64), rewards=ndarray of 2 floats, "
        "terminations=ndarray of 2 bools, truncations=ndarray of 2 bools, infos=dict with the following keys: ['i'])"
    )


def test_images() -> None:
    assert is_image_space(spaces.Box(0, 255, (32, 40, 3), np.uint8))
    assert not is_image_space(spaces.Box(0, 255, (7, 7, 3), np.uint8))
    assert not is_image_space(spaces.Discrete(2))
