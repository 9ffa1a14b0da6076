"""Files that the Zarr library wrote are read as it reads them."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

import penstock
from penstock.containers.zarr.group import ZarrGroup
from penstock.errors import ArgumentError, DataError
from penstock.formats.zarr import FORMAT, ZarrSource, ZarrWriter

GOLDEN = Path(__file__).parents[2] / "golden" / "zarr"
BUFFERS = ("pusht", "umi", "buffer3")


@pytest.mark.parametrize("name", ["codecs2", "codecs3"])
def test_every_codec(name: str) -> None:
    group = ZarrGroup(GOLDEN / f"{name}.zarr.zip")
    with np.load(GOLDEN / f"{name}.npz") as expected:
        assert sorted(group.arrays("")) == sorted(expected)
        for key, values in expected.items():
            array = group.array(key)
            assert array.dtype == values.dtype or array.dtype.newbyteorder("=") == values.dtype, key
            np.testing.assert_array_equal(array[:], values, err_msg=key)
            np.testing.assert_array_equal(array[3:9], values[3:9], err_msg=key)
            np.testing.assert_array_equal(array[[9, 0, 5, 5]], values[[9, 0, 5, 5]], err_msg=key)


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("name", BUFFERS)
def test_every_column(tmp_path: Path, name: str, folder: bool) -> None:
    path = GOLDEN / f"{name}.zarr.zip"
    if folder:
        ZipFile(path).extractall(tmp_path / "buffer")
        path = tmp_path / "buffer"
    with penstock.open(path) as data, np.load(GOLDEN / f"{name}.npz") as expected:
        assert isinstance(data.source, ZarrSource)
        assert data.source.offsets.tolist() == [0, *expected["meta__episode_ends"].tolist()]
        keys = data.metadata["zarr_keys"]
        assert {key.replace("/", "__") for key in keys.values()} | {"meta__episode_ends"} == set(expected)
        for column, key in keys.items():
            assert data.spec[column].align == "step"
            values = expected[key.replace("/", "__")]
            whole = np.concatenate([episode.columns[column] for episode in data.source.episodes()])
            np.testing.assert_array_equal(whole, values, err_msg=key)
            windows = data.windows(3, columns={column: (0, 3)}, pad="zero").shuffle(seed=0)[:]
            rows = windows[column][windows["mask"]]
            assert len(rows) >= len(values)
            assert rows.sum(dtype=np.float64) == pytest.approx(window_sum(values, data.source.offsets, 3), rel=1e-5)


def window_sum(values: np.ndarray, offsets: np.ndarray, size: int) -> float:
    """The sum of all values in all windows that begin at each row and end with the episode."""
    pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    parts = [values[row : min(row + size, b)].sum(dtype=np.float64) for a, b in pairs for row in range(a, b)]
    return float(sum(parts))


def test_names_of_columns() -> None:
    path = GOLDEN / "pusht.zarr.zip"
    with ZarrSource(path) as source:
        assert list(source.spec) == [
            "actions",
            *(f"observations/{key}" for key in ("img", "keypoint", "n_contacts", "state")),
        ]
    with ZarrSource(path, names={"n_contacts": "infos/contacts"}) as source:
        assert "infos/contacts" in source.spec
    with pytest.raises(ArgumentError, match="no key 'n_contact' in the buffer; did you mean 'n_contacts'"):
        ZarrSource(path, names={"n_contact": "infos/contacts"})


@pytest.mark.parametrize("name", ["pusht", "umi"])
def test_buffers_of_others_are_continued_in_their_own_way(tmp_path: Path, name: str) -> None:
    with ZipFile(GOLDEN / f"{name}.zarr.zip") as archive:
        archive.extractall(tmp_path / "buffer")
    with FORMAT.open(tmp_path / "buffer") as source:
        episodes = list(source.episodes())
        compressor = source.array("data/action").metadata.compressor
    if name == "umi":  # whose images we only read
        with pytest.raises(DataError, match="convert"):
            ZarrWriter(tmp_path / "buffer")
        return
    with ZarrWriter(tmp_path / "buffer") as writer:
        assert writer.write(episodes[1]) == 4
    with FORMAT.open(tmp_path / "buffer") as source:
        assert source.offsets.tolist() == [0, 5, 14, 15, 22, 31]
        np.testing.assert_array_equal(source.episode(4).columns["actions"], episodes[1].columns["actions"])
        assert source.array("data/action").metadata.compressor == compressor
        assert source.episode_metadata([0, 4]) == [{}, {}]
    assert [finding.message for finding in FORMAT.check(tmp_path / "buffer")] == []


def test_checks_say_what_is_not_stored() -> None:
    found = list(FORMAT.check(GOLDEN / "buffer3.zarr.zip"))
    assert [(finding.name, finding.where) for finding in found] == [("not-stored", "data/reward")]


def test_a_false_length_is_not_searched_to_its_end(tmp_path: Path) -> None:
    data = penstock.from_arrays({"actions": np.zeros(6), "rewards": np.zeros(6)}, lengths=[6])
    penstock.convert(data, tmp_path / "buffer.zarr")
    described = tmp_path / "buffer.zarr" / "data" / "reward" / ".zarray"
    entries = json.loads(described.read_text())
    described.write_text(json.dumps({**entries, "shape": [1 << 40], "chunks": [1]}))
    found = {finding.name: finding.message for finding in FORMAT.check(tmp_path / "buffer.zarr", deep=False)}
    assert found["not-stored"].startswith("at least 65,536 chunks are not stored")
    with FORMAT.open(tmp_path / "buffer.zarr") as source:
        (entry,) = source.account.left_out
    assert (entry.reason, entry.where) == ("unused-rows", "data/reward")
