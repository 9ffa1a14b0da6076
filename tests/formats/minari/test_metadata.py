from __future__ import annotations

import json

import numpy as np
import pytest

from penstock.errors import DataError, FormatError
from penstock.formats.minari import metadata


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "metadata.json"
    metadata.write_json(path, {"a": np.int64(3), "b": {"x"}, "c": np.array([1.5, np.inf]), "d": tmp_path})
    assert metadata.read_json(path) == {"a": 3, "b": ["x"], "c": [1.5, float("inf")], "d": str(tmp_path)}
    assert [p.name for p in tmp_path.iterdir()] == ["metadata.json"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "metadata.json"
    metadata.write_json(path, {"a": 1})
    with pytest.raises(DataError, match="JSON can hold"):
        metadata.write_json(path, {"a": object()})
    assert metadata.read_json(path) == {"a": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_missing_or_empty_file_is_none(tmp_path):
    assert metadata.read_json(tmp_path / "none.json") is None
    (tmp_path / "empty.json").write_bytes(b"\0\0 \n")
    assert metadata.read_json(tmp_path / "empty.json") is None


@pytest.mark.parametrize("text", ["[1]", '"x"', "{", "{]", "\xff", "[" * 100_000, '{"a":' * 100_000, "null"])
def test_anything_but_one_object_is_a_format_error(text, tmp_path):
    path = tmp_path / "metadata.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match="expected a JSON object"):
        metadata.read_json(path)


def test_size_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps({"a": "x" * 100}))
    monkeypatch.setattr(metadata, "LIMIT", 50)
    with pytest.raises(FormatError, match="at most 50 bytes"):
        metadata.read_json(path)


def test_options_are_flattened_and_back():
    options = {"low": 0, "deep": {"x": 1, "y": {"z": "t"}}}
    flat = dict(metadata.flattened(options, "options"))
    assert flat == {"options/low": 0, "options/deep/x": 1, "options/deep/y/z": "t"}
    assert metadata.unflattened(flat.items()) == {"options": options}


def test_entries_of_an_episode_are_true():
    stored = {"id": 9, "total_steps": 5, "seed": np.uint64(2**64 - 1), "options/a": 1}
    assert metadata.episode_entries(stored, 2, 10) == {
        "id": 2,
        "total_steps": 10,
        "seed": 2**64 - 1,
        "options": {"a": 1},
    }
    assert "seed" not in metadata.episode_entries({"seed": "None"}, 0, 1)
    assert metadata.episode_entries({"seed": "12"}, 0, 1)["seed"] == 12


def test_entries_that_describe_the_data_do_not_change():
    assert metadata.changed({"a": 1}, {"a": 2, "b": 3}) == {"a": 2, "b": 3}
    with pytest.raises(DataError, match="data_format"):
        metadata.changed({"data_format": "hdf5"}, {"data_format": "arrow"})


def test_statistics_have_the_names_of_the_standard():
    rewards = np.array([1, 2, 6], np.int64)
    assert metadata.statistics(rewards) == {
        "rewards_sum": 9.0,
        "rewards_mean": 3.0,
        "rewards_std": float(rewards.std()),
        "rewards_max": 6.0,
        "rewards_min": 1.0,
    }
    assert metadata.statistics(np.zeros(0)) == {}


def test_size_is_in_megabytes(tmp_path):
    (tmp_path / "a").write_bytes(bytes(1_250_001))
    assert metadata.size_of(tmp_path) == 1.3
