"""Files that released versions of Minari wrote; see tests/golden/minari/PROVENANCE.md."""

from __future__ import annotations

import hashlib
import io
import json

import h5py
import numpy as np
import pytest
from PIL import Image

from penstock.core.ragged import Ragged
from penstock.formats.minari import FORMAT
from tests.formats.minari.conftest import GOLDEN

ARRAYS = ("observations", "actions", "rewards", "terminations", "truncations", "infos")
LOSSY = {("0.5.3", "hdf5-grid-v0"), ("0.5.3", "hdf5-image-v0"), ("0.5.4", "hdf5-image-v0"), ("0.5.4", "arrow-image-v0")}


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(inner) for inner in value)
    return value.strings() if isinstance(value, Ragged) else value


def _digest(value):
    if isinstance(value, dict):
        return {key: _digest(inner) for key, inner in sorted(value.items())}
    if isinstance(value, tuple):
        return [_digest(inner) for inner in value]
    if isinstance(value, list):
        return hashlib.sha256("\0".join(value).encode()).hexdigest()[:16]
    array = np.ascontiguousarray(value)
    return hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + array.tobytes()).hexdigest()[:16]


def _cases():
    for release in ("0.5.0", "0.5.3", "0.5.4"):
        for name, expected in json.loads((GOLDEN / release / "expected.json").read_text()).items():
            yield pytest.param(release, name, expected, id=f"{release}-{name}")


def _wanted(expected, want, array):
    """What was handed in; 0.5.0 stored the integers of Discrete as int32 in Arrow, and reads them back so."""
    e = expected["written"].index(want)
    return [want[array], *([expected["read"][e][array]] if "read" in expected else [])]


@pytest.mark.parametrize(("release", "name", "expected"), list(_cases()))
def test_every_array_is_what_the_release_was_given(release, name, expected):
    with FORMAT.open(GOLDEN / release / name) as source:
        assert len(source) == len(expected["written"])
        for found, want in zip(source.episodes(), expected["written"], strict=True):
            skip = ("observations",) if (release, name) in LOSSY else ()
            for array in (a for a in ARRAYS if a not in skip):
                assert _digest(_plain(getattr(found, array))) in _wanted(expected, want, array), array
            assert len(found) == want["steps"]
            assert found.metadata.get("seed") == want["seed"]
            assert found.metadata.get("options") == want["options"]


@pytest.mark.parametrize("release", ["0.5.3", "0.5.4"])
def test_jpeg_frames_equal_what_pillow_decodes(release):
    path = GOLDEN / release / "hdf5-image-v0"
    with FORMAT.open(path) as source, h5py.File(path / "data" / "main_data.hdf5") as file:
        assert source.frames == {"observations"}
        for e, episode in enumerate(source.episodes()):
            blobs = file[f"episode_{e}/observations"][()]
            frames = [np.array(Image.open(io.BytesIO(blob.tobytes()))) for blob in blobs]
            np.testing.assert_array_equal(episode.observations, np.stack(frames))
    if release == "0.5.4":
        with FORMAT.open(path) as a, FORMAT.open(GOLDEN / release / "arrow-image-v0") as b:
            np.testing.assert_array_equal(a.episode(0).observations, b.episode(0).observations)


def test_small_grids_that_were_stored_as_jpeg_are_decoded():
    with FORMAT.open(GOLDEN / "0.5.3" / "hdf5-grid-v0") as source:
        assert source.spec["observations"].shape == (7, 7, 3)
        assert source.episode(0).observations.shape == (4, 7, 7, 3)


def test_raw_images_are_told_by_their_bytes_though_the_flag_is_missing():
    with FORMAT.open(GOLDEN / "0.5.0" / "hdf5-image-v0") as source:
        assert "jpeg_encoding" not in source.metadata
        assert source.frames == frozenset()


@pytest.mark.parametrize("name", ["cartpole-old-v1", "nested-spaces-v0"])
def test_the_older_layout(name):
    expected = json.loads((GOLDEN / "0.4.2" / "expected.json").read_text())[name]
    with FORMAT.open(GOLDEN / "0.4.2" / name) as source:
        assert source.layout == "0.4"
        assert len(source) == expected["total_episodes"] == source.metadata["total_episodes"]
        assert source.steps == expected["total_steps"] == source.metadata["total_steps"]
        assert {key: source.metadata[key] for key in expected["metadata"]} == expected["metadata"]
        assert json.loads(source.metadata["env_spec"])["id"] == expected.get("env_id", "Old-v0")
        for found, want in zip(source.episodes(), expected["episodes"], strict=True):
            assert (len(found), found.metadata.get("seed")) == (want["total_steps"], want["seed"])
            assert found.metadata["rewards_sum"] == pytest.approx(found.rewards.sum())
            assert found.metadata["rewards_max"] == found.rewards.max()


def test_the_older_layout_to_the_bit():
    for name in ("cartpole-old-v1", "nested-spaces-v0"):
        folder = GOLDEN / "0.4.2" / name / "data"
        with FORMAT.open(folder) as source, h5py.File(folder / "main_data.hdf5") as file:
            for e, episode in enumerate(source.episodes()):
                _same(episode, file[f"episode_{e}"], source.spec)


def _same(episode, group, spec):
    seen = []

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            path = name.replace("_index_", "")
            seen.append(path)
            found = episode.columns[path]
            if isinstance(found, Ragged):
                assert found.strings() == [text.decode() for text in item[()]]
            else:
                assert found.dtype == item.dtype
                np.testing.assert_array_equal(found, item[()])

    group.visititems(visit)
    assert sorted(seen) == sorted(spec)


def test_the_state_groups_of_the_older_layout_are_extras():
    with FORMAT.open(GOLDEN / "0.4.2" / "cartpole-old-v1") as source:
        extras = source.episode(5).extras
        assert extras["state"]["raw"].shape == (16, 4)
        assert extras["state"]["deep"]["x"].shape == (16, 1)
        assert source.spec["state/raw"].align == "boundary"


_PATHS = sorted(path.parent for path in GOLDEN.glob("*/*/data"))


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_file_is_recognised_and_sound(path):
    assert FORMAT.recognises(path)
    assert FORMAT.recognises(path / "data")
    assert [f for f in FORMAT.check(path) if f.level == "error"] == []
