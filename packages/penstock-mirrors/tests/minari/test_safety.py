"""Nothing found in a dataset is executed, and no id leaves the datasets root."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

from penstock.envs.recovery import recover, spec_from_json
from penstock.errors import DataError, FormatError, UnsafeDataError
from penstock_mirrors import minari
from penstock_mirrors.minari import MinariDataset
from penstock_mirrors.minari.cli import app
from penstock_mirrors.minari.storage import get_dataset_path

BAD_IDS = [
    "",
    ".",
    "..",
    "../x",
    "../x-v0",
    "/etc-v0",
    "a/../../x-v0",
    "~/x-v0",
    "a\\..\\x-v0",
    "aa/x",
    "x.y-v0",
    "aa//",
]

Collect = Callable[..., MinariDataset]


@pytest.mark.parametrize("dataset_id", BAD_IDS)
def test_ids_are_checked_before_the_disk_is_touched(dataset_id: str, root: Path, collect: Collect) -> None:
    outside = root.parent / "x"
    (outside / "data").mkdir(parents=True)
    dataset = collect("box/test-v0")
    for refused in (
        lambda: minari.delete_dataset(dataset_id),
        lambda: minari.load_dataset(dataset_id),
        lambda: minari.load_dataset(dataset_id, download=True),
        lambda: minari.upload_dataset(dataset_id, "token"),
        lambda: minari.combine_datasets([dataset], dataset_id),
        lambda: minari.create_dataset_from_buffers(dataset_id, []),
    ):
        with pytest.raises(ValueError, match="expected"):
            refused()
    assert (outside / "data").exists()
    assert sorted(path.name for path in root.iterdir()) == ["box"]


def test_a_path_never_leaves_the_root(root: Path) -> None:
    (root.parent / "secret").mkdir()
    (root / "link").symlink_to(root.parent / "secret")
    for name in ("../secret", "link", "/etc"):
        with pytest.raises(UnsafeDataError):
            get_dataset_path(name)
    assert get_dataset_path() == root


@pytest.fixture
def poisoned(collect: Collect) -> Callable[..., MinariDataset]:
    """A dataset whose metadata names another environment."""

    def make(**changes: Any) -> MinariDataset:
        path = collect("box/test-v0").storage.data_path / "metadata.json"
        entries = json.loads(path.read_text())
        for name in ("env_spec", "eval_env_spec"):
            entries[name] = json.dumps({**json.loads(entries[name]), **changes})
        path.write_text(json.dumps(entries))
        return minari.load_dataset("box/test-v0")

    return make


@pytest.mark.parametrize(
    "changes",
    [
        {"entry_point": "os:system", "kwargs": {"command": "touch executed"}},
        {"id": "Other-v0", "entry_point": "os:system", "kwargs": {"command": "touch executed"}},
        {"id": "json.tool:Other-v0"},
        {"additional_wrappers": [{"name": "x", "entry_point": "os:system", "kwargs": {"command": "touch executed"}}]},
        {
            "additional_wrappers": [
                {
                    "name": "RecordVideo",
                    "entry_point": "gymnasium.wrappers.rendering:RecordVideo",
                    "kwargs": {"video_folder": "executed"},
                }
            ]
        },
    ],
)
def test_an_environment_of_a_file_is_not_run(
    poisoned: Callable[..., MinariDataset], changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = poisoned(**changes)
    minari.list_local_datasets()
    assert dataset.env_spec is not None
    assert dataset.spec.env_spec is not None
    assert CliRunner().invoke(app, ["show", "box/test-v0"]).exit_code == 0
    for eval_env in (False, True):
        with pytest.raises(UnsafeDataError, match="trust=True"):
            dataset.recover_environment(eval_env)
    assert not (tmp_path / "executed").exists()


KWARGS = {"xml_file": "/etc/passwd"}


def test_arguments_of_a_file_are_shown_and_need_trust(
    poisoned: Callable[..., MinariDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = poisoned(kwargs=KWARGS)
    monkeypatch.setattr(gymnasium, "make", lambda spec, **kwargs: (spec.kwargs, kwargs))
    with pytest.raises(
        UnsafeDataError, match=r"got \{'xml_file': '/etc/passwd'\} in the dataset's metadata.*trust=True"
    ):
        dataset.recover_environment()
    assert "/etc/passwd" in CliRunner().invoke(app, ["show", "box/test-v0"]).output
    assert dataset.recover_environment(trust=True) == (KWARGS, {})
    given = {"xml_file": "mine.xml"}
    assert dataset.recover_environment(**given) == (KWARGS, given)  # what the caller says counts


def test_registered_arguments_need_no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    known = gymnasium.spec("CartPole-v1")
    monkeypatch.setattr(known, "kwargs", {"maze": ((1, 0), (0, 1)), "length": 5})
    monkeypatch.setattr(gymnasium, "make", lambda spec, **kwargs: spec.kwargs)
    same = {"maze": [[1, 0], [0, 1]], "length": 5}

    def recovered(kwargs: dict[str, Any]) -> Any:
        stored = {"id": "CartPole-v1", "entry_point": known.entry_point, "kwargs": kwargs}
        spec = spec_from_json(json.dumps(stored), "env_spec")
        assert spec is not None
        return recover(spec, trust=False)

    assert recovered(same) == same
    assert recovered({**same, "render_mode": None})
    for other in ({**same, "length": 6}, {**same, "render_mode": "rgb_array"}):
        with pytest.raises(UnsafeDataError, match="registered arguments"):
            recovered(other)


@pytest.mark.parametrize(
    ("entry_point", "safe"),
    [
        ("gymnasium.wrappers.common:TimeLimit", True),
        ("gymnasium.wrappers.transform_action:ClipAction", True),
        ("gymnasium.wrappers.common:deepcopy", False),
        ("gymnasium.wrappers.rendering:HumanRendering", False),
        ("gymnasium.wrappers:TimeLimit", False),
        ("elsewhere:TimeLimit", False),
    ],
)
def test_wrappers_outside_the_list_are_shown_and_need_trust(
    poisoned: Callable[..., MinariDataset], entry_point: str, safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = {"name": "W", "entry_point": entry_point, "kwargs": {"max_episode_steps": 7}}
    dataset = poisoned(kwargs={}, additional_wrappers=[wrapper])
    monkeypatch.setattr(gymnasium, "make", lambda spec, **kwargs: "made")
    if safe:
        assert dataset.recover_environment() == "made"
    else:
        with pytest.raises(UnsafeDataError, match=f"W from '{entry_point}' with .*'max_episode_steps': 7.*trust=True"):
            dataset.recover_environment()
    assert dataset.recover_environment(trust=True) == "made"


def test_trust_is_an_argument(poisoned: Callable[..., MinariDataset]) -> None:
    point = "gymnasium.envs.classic_control.mountain_car:MountainCarEnv"
    dataset = poisoned(id="Unregistered-v0", entry_point=point, kwargs={})
    assert type(dataset.recover_environment(trust=True).unwrapped).__name__ == "MountainCarEnv"


def test_a_missing_package_is_named(poisoned: Callable[..., MinariDataset]) -> None:
    dataset = poisoned(id="Absent-v0", entry_point="absent_package.envs:Absent")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'absent_package.envs'"):
        dataset.recover_environment()


def test_missing_spaces_are_read_off_the_columns(collect: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    path = collect("box/test-v0").storage.data_path / "metadata.json"
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in entries.items() if not k.endswith("_space")}))
    monkeypatch.setattr(gymnasium, "make", None)
    dataset = minari.load_dataset("box/test-v0")
    assert dataset.observation_space.shape == (2,)
    assert dataset.action_space.contains(np.asarray(dataset[0].actions[0]))


def test_a_spec_of_an_older_gymnasium_is_read(poisoned: Callable[..., MinariDataset]) -> None:
    dataset = poisoned(
        id="CartPole-v1", entry_point=gymnasium.spec("CartPole-v1").entry_point, kwargs={}, autoreset=False
    )
    assert dataset.recover_environment().unwrapped.spec is not None


@pytest.mark.parametrize("stored", ["", "[", '{"id": "no version!"}', "[1]", "{}"])
def test_a_spec_that_is_none_is_a_format_error(collect: Collect, stored: str) -> None:
    path = collect("box/test-v0").storage.data_path / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "env_spec": stored}))
    dataset = minari.load_dataset("box/test-v0")
    with pytest.raises(FormatError, match="spec"):
        _ = dataset.env_spec


def test_an_emptied_metadata_file_is_told_apart(collect: Collect, recwarn: pytest.WarningsRecorder) -> None:
    (collect("box/test-v0").storage.data_path / "metadata.json").write_bytes(b"")
    with pytest.raises(FormatError, match="killed writer"):
        minari.load_dataset("box/test-v0")
    with pytest.warns(UserWarning, match="Misconfigured dataset named box/test-v0"):
        assert minari.list_local_datasets() == {}


def test_an_id_that_is_not_its_place_is_left_out(collect: Collect, root: Path) -> None:
    collect("box/test-v0")
    (root / "box" / "test-v0").rename(root / "box" / "moved-v0")
    with pytest.warns(UserWarning, match="Misconfigured dataset named box/moved-v0"):
        assert minari.list_local_datasets() == {}


def test_requirements_warn(collect: Collect) -> None:
    dataset = collect("box/test-v0", requirements=["mal<formed@@3", "absent-package", "minari<0.1", "numpy>=2"])
    with pytest.warns(UserWarning, match="requirement|install") as caught:
        dataset.recover_environment(trust=True)
    told = [str(warning.message) for warning in caught]
    assert len(told) == 3
    assert "malformed" in told[0]
    assert "absent-package is not installed" in told[1]
    assert "required version" in told[2]


def test_a_refused_id_leaves_nothing_behind(root: Path, about: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="Malformed dataset ID"):
        minari.create_dataset_from_buffers("no/version", [], env="CartPole-v1", **about)
    assert list(root.iterdir()) == []
