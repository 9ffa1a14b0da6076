from __future__ import annotations

import pytest

from penstock.errors import DataError, UnsafeDataError
from penstock.formats.minari import metadata
from penstock_mirrors.minari.storage import root


def _dataset(base, dataset_id):
    data = base.joinpath(dataset_id, "data")
    data.mkdir(parents=True)
    metadata.write_json(data / "metadata.json", {"dataset_id": dataset_id})


def test_datasets_are_listed_in_order(tmp_path):
    for name in ("x-v10", "x-v2", "ab/cd/y-v0", "ab/a-v0", ".hidden/z-v0", "ab/not an id"):
        _dataset(tmp_path, name)
    assert root.datasets(tmp_path) == ["x-v2", "x-v10", "ab/a-v0", "ab/cd/y-v0"]
    assert root.datasets(tmp_path, "ab") == ["ab/a-v0", "ab/cd/y-v0"]
    assert root.datasets(tmp_path, "ab/cd/y-v0") == ["ab/cd/y-v0"]
    assert root.datasets(tmp_path / "missing") == []
    with pytest.raises(UnsafeDataError):
        root.datasets(tmp_path, "../")


def test_a_loop_of_links_ends(tmp_path):
    _dataset(tmp_path, "x-v0")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert "x-v0" in root.datasets(tmp_path)


def test_deleting(tmp_path):
    _dataset(tmp_path, "ab/x-v0")
    with pytest.raises(DataError):
        root.delete_dataset("../ab/x-v0", tmp_path)
    with pytest.raises(FileNotFoundError):
        root.delete_dataset("ab/y-v0", tmp_path)
    root.delete_dataset("ab/x-v0", tmp_path)
    assert root.datasets(tmp_path) == []


def test_namespaces_have_metadata(tmp_path):
    root.write_namespace("ab/cd", {"description": "deep"}, tmp_path)
    assert root.namespaces(tmp_path) == ["ab", "ab/cd"]
    assert root.namespace_metadata("ab/cd", tmp_path) == {"description": "deep"}
    assert root.namespace_metadata("ab", tmp_path) == {}
    with pytest.raises(DataError, match="is not empty"):
        root.delete_namespace("ab", tmp_path)
    root.delete_namespace("ab/cd", tmp_path)
    assert root.namespaces(tmp_path) == ["ab"]
    with pytest.raises(DataError, match="that exists"):
        root.namespace_metadata("ab/cd", tmp_path)
