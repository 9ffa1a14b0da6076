"""Hubs: a directory, and fsspec's file system in memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from penstock.errors import DataError, MissingExtraError, UnsafeDataError
from penstock.locations.objects import ObjectInfo
from penstock_mirrors import minari
from penstock_mirrors.minari import MinariDataset, namespace
from penstock_mirrors.minari.storage.hosting import split_remote
from penstock_mirrors.minari.storage.remotes import get_cloud_storage

Collect = Callable[..., MinariDataset]


@pytest.fixture(params=["directory", "file", "memory"])
def hub(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    path = tmp_path / "hub"
    url = {"directory": str(path), "file": path.as_uri(), "memory": "memory://hub"}[request.param]
    monkeypatch.setenv("MINARI_REMOTE", url)
    yield url
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def other_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "other"))


def test_up_and_down_again(hub: str, collect: Collect, other_root: Callable[[], None]) -> None:
    collect("toys/one-v0", seed=3)
    parts = [collect(f"toys/deep/{name}-v0") for name in ("two", "three")]
    minari.combine_datasets(parts, "toys/both-v1")
    namespace.update_namespace_metadata("toys", description="small ones")
    minari.upload_dataset("toys/one-v0")
    minari.upload_dataset("toys/both-v1", "token")
    with pytest.warns(UserWarning, match="already in remote"):
        minari.upload_dataset("toys/one-v0")
    assert sorted(minari.list_remote_datasets()) == [
        "toys/both-v1",
        "toys/deep/three-v0",
        "toys/deep/two-v0",
        "toys/one-v0",
    ]
    assert list(minari.list_remote_datasets(prefix="toys/deep/t")) == ["toys/deep/three-v0", "toys/deep/two-v0"]
    other_root()
    assert minari.list_local_datasets() == {}
    assert minari.load_dataset("toys/one-v0", download=True).storage.get_episode_metadata([0])[0]["seed"] == 3
    assert namespace.get_namespace_metadata("toys") == {"description": "small ones"}
    minari.download_dataset("toys/both-v1")
    assert set(minari.list_local_datasets()) == {
        "toys/both-v1",
        "toys/one-v0",
        "toys/deep/two-v0",
        "toys/deep/three-v0",
    }


def test_versions_are_checked(hub: str, collect: Collect, other_root: Callable[[], None]) -> None:
    for version in (1, 2, 10):
        collect(f"toys/one-v{version}")
        minari.upload_dataset(f"toys/one-v{version}")
    assert list(minari.list_remote_datasets(latest_version=True)) == ["toys/one-v10"]
    other_root()
    with pytest.raises(ValueError, match="Couldn't find any version for dataset toys/on"):
        minari.download_dataset("toys/on-v1")
    with pytest.raises(ValueError, match=r"doesn't exist in the remote Farama server.*toys/one-v10"):
        minari.download_dataset("toys/one-v3")
    with pytest.warns(UserWarning, match=r"We recommend you install a higher dataset version.*toys/one-v10"):
        minari.download_dataset("toys/one-v1")
    assert list(minari.list_local_datasets()) == ["toys/one-v1"]
    minari.download_dataset("toys/one-v10")
    with pytest.warns(UserWarning, match="Skipping Download. Dataset toys/one-v10 found locally at"):
        minari.download_dataset("toys/one-v10")


def test_incompatible_versions_need_force(hub: str, collect: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    collect("toys/one-v1")
    minari.upload_dataset("toys/one-v1")
    monkeypatch.setattr(minari, "supported_dataset_versions", set())
    with pytest.raises(ValueError, match="Couldn't find any compatible version of dataset toys/one"):
        minari.download_dataset("toys/one-v1")
    with pytest.warns(UserWarning, match="Couldn't find any compatible version"):
        minari.download_dataset("toys/one-v1", force_download=True)


def test_force_replaces_what_is_here(hub: str, collect: Collect) -> None:
    collect("toys/one-v0", seed=1)
    minari.upload_dataset("toys/one-v0")
    minari.delete_dataset("toys/one-v0")
    collect("toys/one-v0", seed=2)
    minari.download_dataset("toys/one-v0", force_download=True)
    assert minari.load_dataset("toys/one-v0").storage.get_episode_metadata([0])[0]["seed"] == 1


def replaced_by_force(collect: Collect, root: Path) -> Path:
    """A dataset on the hub, and another of its name here."""
    collect("toys/one-v0", seed=1)
    minari.upload_dataset("toys/one-v0")
    minari.delete_dataset("toys/one-v0")
    collect("toys/one-v0", seed=2)
    return root / "toys" / "one-v0"


def seed_of(dataset: MinariDataset) -> int:
    return dataset.storage.get_episode_metadata([0])[0]["seed"]


def test_there_is_no_moment_without_the_dataset_that_is_replaced(
    collect: Collect, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = replaced_by_force(collect, root)
    missing = list[str]()

    def watched(name: str, call: Any) -> Any:
        def made(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            if not (place / "data" / "main_data.hdf5").exists():
                missing.append(name)
            return result

        return made

    for name in ("rename", "replace", "mkdir", "rmdir", "unlink"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    minari.download_dataset("toys/one-v0", force_download=True)
    assert missing == []
    assert seed_of(minari.load_dataset("toys/one-v0")) == 1
    assert sorted(path.name for path in place.parent.iterdir()) == ["namespace_metadata.json", "one-v0"]


def test_a_replacement_that_was_killed_between_two_renames_ends_at_the_next_loading(
    collect: Collect, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = replaced_by_force(collect, root)
    script = """if True:
        import os, signal
        from penstock_mirrors import minari
        from penstock.files import replace
        replace._renameat2 = lambda *_: False  # as on a system that cannot exchange two names
        real, calls = os.rename, []
        def once(*names):
            if "one-v0" in str(names[0]):
                calls.append(names)
                if len(calls) == 3:  # the new one moved in, the old one moved out
                    os.kill(os.getpid(), signal.SIGKILL)
            real(*names)
        os.rename = once
        minari.download_dataset("toys/one-v0", force_download=True)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert not place.exists()
    assert seed_of(minari.load_dataset("toys/one-v0")) == 1
    assert sorted(path.name for path in place.parent.iterdir()) == ["namespace_metadata.json", "one-v0"]


def test_a_url_names_hub_and_dataset(hub: str, collect: Collect, other_root: Callable[[], None]) -> None:
    collect("toys/deep/one-v0")
    minari.upload_dataset("toys/deep/one-v0")
    other_root()
    if "://" not in hub:
        return
    assert split_remote(f"{hub}/toys/deep/one-v0") == (hub, "toys/deep/one-v0")
    minari.download_dataset(f"{hub}/toys/deep/one-v0")
    assert list(minari.list_local_datasets()) == ["toys/deep/one-v0"]
    with pytest.raises(DataError, match="URL of a dataset"):
        minari.download_dataset(f"{hub}/toys/deep")
    assert split_remote("gcp://bucket/toys/one-v0") == ("gcp://bucket", "toys/one-v0")


def test_an_interrupted_download_leaves_nothing(
    hub: str, collect: Collect, other_root: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collect("toys/one-v0")
    minari.upload_dataset("toys/one-v0")
    other_root()
    storage = get_cloud_storage()
    taken: list[str] = []

    read = storage.store.read

    def fail_second(name: str, ranges: Any, version: str) -> list[bytes]:
        if taken:
            raise OSError("the line went dead")
        taken.append(name)
        return read(name, ranges, version)

    monkeypatch.setattr(storage.store, "read", fail_second)
    with pytest.raises(OSError, match="dead"):
        storage.download_dataset("toys/one-v0", tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_hostile_names_do_not_leave_the_dataset(
    hub: str, collect: Collect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collect("toys/one-v0")
    minari.upload_dataset("toys/one-v0")
    storage = get_cloud_storage()
    base = "toys/one-v0"
    for name in (f"{base}/../../../escaped", f"{base}/data/..\\..\\escaped", "etc/passwd", "/etc/passwd", f"{base}/"):
        monkeypatch.setattr(storage.store, "list", lambda prefix, name=name: [ObjectInfo(name, 1, "")])
        with pytest.raises(UnsafeDataError):
            storage.download_dataset("toys/one-v0", tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_damaged_metadata_is_left_out_of_the_list(tmp_path: Path, collect: Collect) -> None:
    collect("toys/one-v0")
    minari.upload_dataset("toys/one-v0")
    for name, text in (("list-v0", "[1]"), ("cut-v0", "{"), ("two.dots-v0", "{}")):
        (tmp_path / "hub" / "toys" / name / "data").mkdir(parents=True)
        (tmp_path / "hub" / "toys" / name / "data" / "metadata.json").write_text(text)
    with pytest.warns(UserWarning, match="Skipping") as caught:
        assert list(minari.list_remote_datasets()) == ["toys/one-v0"]
    assert sorted(re.findall(r"Skipping (\S+),", " ".join(str(w.message) for w in caught))) == [
        "toys/cut-v0",
        "toys/list-v0",
    ]


def test_namespaces_up_and_down(hub: str, other_root: Callable[[], None]) -> None:
    namespace.create_namespace("toys/deep", description="inner")
    namespace.upload_namespace("toys/deep", "token")
    with pytest.warns(UserWarning, match="Upload aborted"):
        namespace.upload_namespace("toys/deep", "token")
    assert namespace.list_remote_namespaces() == ["toys", "toys/deep"]
    other_root()
    namespace.download_namespace_metadata("toys/deep")
    assert namespace.list_local_namespaces() == ["toys/deep"]
    with pytest.warns(UserWarning, match="Skipping update for namespace"):
        namespace.download_namespace_metadata("toys/deep")
    namespace.update_namespace_metadata("toys/deep", description="mine")
    namespace.download_namespace_metadata("toys/deep", overwrite=True)
    assert namespace.get_namespace_metadata("toys/deep") == {"description": "inner"}
    with pytest.raises(ValueError, match="doesn't exist in the remote"):
        namespace.download_namespace_metadata("absent")


class _Repository:
    id = "org/toys"


class _Api:
    def __init__(self, token: str | None = None) -> None:
        self.token = token

    def list_datasets(self, author: str) -> list[_Repository]:
        assert author == "org"
        return [_Repository()]

    def create_repo(self, name: str, **options: Any) -> None:
        assert name == "org/toys"


def test_the_register_of_a_hugging_face_repository_is_read_and_written(
    collect: Collect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collect("toys/one-v0")
    minari.upload_dataset("toys/one-v0")
    register: dict[str, Any] = {"datasets": ["toys/one-v0", "../../escaped-v0"], "namespaces": ["toys/deep"]}
    (tmp_path / "hub" / "toys" / "namespace_metadata.json").write_text(json.dumps(register))
    storage = get_cloud_storage()
    storage.scheme, storage.name = "hf", "org"
    module = type("huggingface_hub", (), {"HfApi": _Api})
    monkeypatch.setattr("penstock_mirrors.minari.storage.remotes.cloud_storage.require", lambda *_: module)
    assert list(storage.list_datasets()) == ["toys/one-v0"]
    assert list(storage.list_namespaces()) == ["toys", "toys/deep"]
    collect("toys/two-v0")
    storage.upload_dataset("toys/two-v0")
    assert list(storage.list_datasets("toys/t")) == ["toys/two-v0"]


def test_what_cannot_be_reached_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="URL that fsspec knows"):
        get_cloud_storage("nonsense://place")
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
    with pytest.raises(MissingExtraError, match=r"penstock\[gcp\]"):
        get_cloud_storage("gcp://bucket")
