"""Arrays, rows and files of a buffer that are of no column are named; the other columns are read."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from typing import ClassVar
from zipfile import ZipFile

import numpy as np
import pytest

import penstock
from penstock.errors import DamageWarning, FormatError
from penstock.formats.zarr import FORMAT, ZarrWriter
from penstock.testing.accounts import AccountContract, Planted
from tests.formats.zarr.test_zarr_golden import GOLDEN

STEPS = 24
CHUNKS = {"chunks": [5], "compressor": None, "filters": None, "order": "C", "zarr_format": 2}
# Descriptions of arrays as zarr 3.1 writes them for Zarr 2.
ODD = {
    "text": ({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "shape": [STEPS]}, "unsupported-dtype"),
    "dates": ({"dtype": "<M8[us]", "shape": [STEPS]}, "unsupported-dtype"),
    "durations": ({"dtype": "<m8[s]", "shape": [STEPS]}, "unsupported-dtype"),
    "scalar": ({"dtype": "<f8", "shape": [], "chunks": []}, "other-length"),
    "empty": ({"dtype": "<f4", "shape": [0, 3], "chunks": [1, 3]}, "other-length"),
    "no values": ({"dtype": "<f4", "shape": [STEPS, 0], "chunks": [1, 1]}, "other-length"),
    "one an episode": ({"dtype": "<f4", "shape": [2]}, "other-length"),
    "unknown codec": ({"dtype": "<f4", "shape": [STEPS], "compressor": {"id": "mystery"}}, "damaged-part"),
}


def array(path, name, **entries):
    """An array without chunks, which holds its fill value."""
    (path / name).mkdir(parents=True)
    (path / name / ".zarray").write_text(json.dumps({**CHUNKS, "fill_value": 0, **entries}))


def buffer(path):
    """A buffer that the Zarr library wrote."""
    with ZipFile(GOLDEN / "pusht.zarr.zip") as archive:
        archive.extractall(path / "buffer")
    return path / "buffer"


@pytest.mark.parametrize("name", ODD)
def test_an_odd_array_is_left_out_by_name_and_the_others_are_read(tmp_path, name):
    path = buffer(tmp_path)
    with penstock.open(path) as data:
        spec, actions = data.spec, data[1].columns["actions"]
    entries, reason = ODD[name]
    array(path, "data/odd", **entries)
    with pytest.warns(DamageWarning, match=r"left out 1 array: data/odd \(expected"):
        data = penstock.open(path)
    assert data.spec == spec
    np.testing.assert_array_equal(data[1].columns["actions"], actions)
    findings = [(each.name, each.where) for each in penstock.check(path).findings]
    assert (reason, "data/odd") in findings
    with pytest.raises(FormatError, match="move the array out of data"):  # which would not grow with the others
        FORMAT.append(path)


def test_an_odd_array_of_version_3(tmp_path):
    """Text and dates as zarr 3.1 writes them."""
    with ZipFile(GOLDEN / "buffer3.zarr.zip") as archive:
        archive.extractall(tmp_path / "buffer")
    folder = tmp_path / "buffer"
    description = json.loads((folder / "meta/episode_ends/zarr.json").read_text())
    dates = {"name": "numpy.datetime64", "configuration": {"unit": "us", "scale_factor": 1}}
    for name, kind in {"text": "string", "dates": dates}.items():
        (folder / "data" / name).mkdir()
        (folder / "data" / name / "zarr.json").write_text(json.dumps({**description, "data_type": kind}))
    with pytest.warns(DamageWarning, match=r"2 arrays: data/dates .*'numpy.datetime64'.*; data/text .*'string'"):
        assert len(penstock.open(folder)) > 0


def test_arrays_of_meta_and_of_other_groups_are_named(tmp_path):
    path = buffer(tmp_path)
    array(path, "meta/success", dtype="|b1", shape=[9])
    array(path, "meta/fps", dtype="<f8", shape=[1])
    array(path, "statistics/mean", dtype="<f8", shape=[2])
    with pytest.warns(DamageWarning, match="left out 3 arrays"):
        account = penstock.open(path).source.account
    reasons = {entry.where: entry.reason for entry in account.left_out}
    assert reasons == {
        "meta/fps": "other-length",
        "meta/success": "unused-array",
        "statistics/mean": "unused-array",
    }
    assert account.used["data/action"] == "actions"


def test_a_buffer_whose_arrays_are_all_too_short_is_refused(tmp_path):
    path = buffer(tmp_path)
    for file in (path / "data").glob("*/.zarray"):
        entries = json.loads(file.read_text())
        file.write_text(json.dumps({**entries, "shape": [3, *entries["shape"][1:]]}))
    with pytest.raises(FormatError, match=r"expected a row for each of .* steps, as meta/episode_ends says, got 3"):
        penstock.open(path)


def longer(path):
    file = path / "data/action/.zarray"
    entries = json.loads(file.read_text())
    file.write_text(json.dumps({**entries, "shape": [entries["shape"][0] + 3, *entries["shape"][1:]]}))


class TestAccount(AccountContract):
    planted: ClassVar = {
        "file": Planted(lambda path: (path / "notes.bin").touch(), "other-file", "notes.bin"),
        "array": Planted(lambda path: array(path, "data/odd", dtype="|O", shape=[STEPS]), "unsupported-dtype", "odd"),
        "member": Planted(lambda path: (path / "data/._action").touch(), "hidden", "data/._action"),
        "tail": Planted(longer, "unused-rows", "data/action"),
    }
    absent: ClassVar = {
        "column": "a column is an array",
        "bad first file": "the arrays of one group; none is the first",
        "unfinished": "a buffer appears at its path when it is complete; parts have a folder of their own",
    }

    def write(self, path):
        return buffer(path)

    def open(self, path, **options):
        return penstock.open(path, **options).source


class TestAccountOfArchive(TestAccount):
    """Members of a ZIP archive."""

    planted: ClassVar = {
        "member": Planted(lambda path: add(path, "notes.bin"), "other-file", "notes.bin"),
        "array": Planted(lambda path: add(path, "data/odd/.zarray"), "damaged-part", "data/odd"),
    }
    absent: ClassVar = {
        **TestAccount.absent,
        "file": "files are members",
        "tail": "of rows, as in a folder; bytes behind the archive are its comment",
    }

    def write(self, path):
        return shutil.copy(GOLDEN / "pusht.zarr.zip", path / "buffer.zarr.zip")


def add(path, name):
    with ZipFile(path, "a") as archive:
        archive.writestr(name, b"{")


def test_columns_of_ours_that_another_library_did_not_extend(tmp_path):
    """Diffusion Policy copies arrays in `meta`, and does not extend them."""
    spec = penstock.Spec(
        {
            "observations": penstock.Field(np.dtype("f4"), (2,), "boundary"),
            "success": penstock.Field(np.dtype("?"), (), "episode"),
        }
    )
    with ZarrWriter.create(tmp_path / "ours", spec) as writer:
        for e in range(2):
            observations = np.full((4, 2), e, np.float32)
            writer.write(penstock.Episode(spec, {"observations": observations, "success": np.ones(1, np.bool_)}))
    for name in ("success", "final.obs", "episode_metadata.ends"):
        file = tmp_path / "ours/meta" / name / ".zarray"
        entries = json.loads(file.read_text())
        file.write_text(json.dumps({**entries, "shape": [1, *entries["shape"][1:]]}))
    with pytest.warns(DamageWarning, match="left out 1 column, 3 arrays: success"):
        source = penstock.open(tmp_path / "ours").source
    assert source.spec["observations"].align == "step"
    reasons = {entry.where: entry.reason for entry in source.account.left_out}
    assert reasons["success"] == reasons["meta/final.obs"] == reasons["meta/episode_metadata.ends"] == "other-length"
