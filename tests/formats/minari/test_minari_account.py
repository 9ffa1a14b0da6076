"""What a Minari dataset holds besides its columns is named; totals that are wrong are findings."""

# pyright: basic

from __future__ import annotations

import json
from typing import Any, ClassVar

import h5py
import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.formats.minari.format import MinariFormat
from penstock.testing.accounts import AccountContract, Planted
from tests.formats.minari.conftest import simple_episode, simple_spec

FORMAT = MinariFormat()
BACK_ENDS = ("hdf5", "arrow", "parquet")


def written(path, **options):
    spec = simple_spec()
    with FORMAT.create(path, spec, **options) as writer:
        for e in range(3):
            writer.write(simple_episode(spec, 4 + e, e))
    return path


def in_hdf5(change):
    def plant(path):
        with h5py.File(path / "data/main_data.hdf5", "r+") as file:
            change(file)

    return plant


def cut(name):
    return lambda path: (path / "data" / name).write_bytes((path / "data" / name).read_bytes()[:200])


class TestAccountOfHdf5(AccountContract):
    planted: ClassVar = {
        "file": Planted(
            lambda path: (path / "data/additional_data_7.hdf5").touch(), "other-file", "additional_data_7.hdf5"
        ),
        "array": Planted(in_hdf5(lambda file: file.create_dataset("notes", data=[1])), "unused-array", "notes"),
        "member": Planted(in_hdf5(lambda file: file.create_group("episode_9")), "no-steps", "episode_9"),
        "column": Planted(
            in_hdf5(lambda file: file["episode_0"].create_dataset("infos/text", (5,), h5py.opaque_dtype("M8[us]"))),
            "unsupported-dtype",
            "infos/text",
            refused=True,
        ),
        "bad first file": Planted(lambda path: (path / "data/metadata.json").write_text(""), "bad-file", "metadata"),
    }
    absent: ClassVar = {
        "tail": "bytes behind the end that the superblock names are of a commit that did not finish",
        "unfinished": "the folder appears when it is complete; parts have folders of their own",
    }

    def write(self, path):
        return written(path / "a-v0")

    def open(self, path, **options):
        return penstock.open(path, **options).source


class TestAccountOfArrow(TestAccountOfHdf5):
    planted: ClassVar = {
        "file": Planted(lambda path: (path / "data/more.arrow").touch(), "other-file", "more.arrow"),
        "array": Planted(cut("2/part-0.arrow"), "bad-file", "2/part-0.arrow"),
        "member": Planted(lambda path: (path / "data/2/part-0.arrow").unlink(), "bad-file", "2"),
        "tail": Planted(lambda path: (path / "data/extra").mkdir(), "other-file", "extra"),
        "bad first file": Planted(cut("0/part-0.arrow"), "bad-file", "part-0.arrow", refused=True),
    }
    absent: ClassVar = {
        "column": "types that are not read are refused, with the option that leaves them out",
        "unfinished": TestAccountOfHdf5.absent["unfinished"],
    }

    def write(self, path):
        return written(path / "a-v0", data_format="arrow")


@pytest.mark.parametrize("data_format", BACK_ENDS)
def test_a_wrong_number_of_steps_of_an_episode_is_a_finding(data_format, tmp_path):
    path = written(tmp_path / "a-v0", data_format=data_format)
    assert penstock.check(path).findings == ()
    if data_format == "hdf5":
        in_hdf5(lambda file: file["episode_1"].attrs.__setitem__("total_steps", 77))(path)
    else:
        place = path / "data/1/metadata.json"
        place.write_text(json.dumps({**json.loads(place.read_text()), "total_steps": 77}))
    found = [(each.name, each.episodes, each.message) for each in penstock.check(path).findings]
    assert found == [("totals", (1,), "expected total_steps 5 as in the episode, got 77")]


@pytest.mark.parametrize("name", ["total_steps", "total_episodes"])
def test_wrong_totals_of_the_older_layout_are_findings_and_it_stays_the_older_layout(name, tmp_path):
    path = written(tmp_path / "a-v0", layout="0.4")
    assert penstock.check(path).findings == ()
    in_hdf5(lambda file: file.attrs.__setitem__(name, 77))(path)
    (finding,) = penstock.check(path).findings
    assert (finding.name, "got 77" in finding.message) == ("totals", True)
    penstock.repair(path, in_place=True)
    assert not (path / "data/metadata.json").exists()


TEXTS = ["pick", "place", "", "a name that is longer than twelve bytes", "x", "y", "z"]


def backwards(rows):
    """Views of lists whose values are stored from the last to the first."""
    sizes = np.array([len(row) for row in rows])
    starts = sizes[::-1].cumsum()[::-1] - sizes
    values = pa.array([value for row in rows[::-1] for value in row], pa.int32())
    return pa.ListViewArray.from_arrays(pa.array(starts, pa.int32()), pa.array(sizes, pa.int32()), values)


VIEWS = {
    "text": (TEXTS, lambda rows: pa.array(rows, pa.string_view())),
    "bytes": ([text.encode() for text in TEXTS], lambda rows: pa.array(rows, pa.binary_view())),
    "lists": ([[1], [2, 3], [], [4], [5], [6, 7, 8], []], lambda rows: pa.array(rows, pa.list_view(pa.int32()))),
    "lists backwards": ([[1], [2, 3], [], [4], [5], [6, 7, 8], []], backwards),
    "dictionary": (TEXTS, lambda rows: pa.array(rows).dictionary_encode()),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_and_dictionaries_of_arrow_are_read(kind, tmp_path):
    """Polars writes text as views."""
    path, (rows, make) = written(tmp_path / "a-v0", data_format="arrow"), VIEWS[kind]
    for e in range(3):
        part = path / f"data/{e}/part-0.arrow"
        table = pa.ipc.open_file(pa.BufferReader(part.read_bytes())).read_all()
        table = table.append_column("says", make(rows[: len(table)]))
        with pa.OSFile(str(part), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    with penstock.open(path) as data:
        says: Any = data[2].columns["says"]
        values = says.strings() if rows is TEXTS else [row.tolist() for row in says]
    assert values == [list(row) if isinstance(row, bytes) else row for row in rows]
