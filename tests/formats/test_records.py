"""Records of other libraries, read where they are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.core.spec import Field
from penstock.data.from_arrays import from_records
from penstock.errors import DataError, ExpiredRowError, SpecError
from penstock.formats.records import RecordSource
from penstock.testing.compare import random_selection

TEXTS = ["go", "", "é", "left and right"]


def record(i: int) -> dict[str, Any]:
    return {
        "x": float(i),
        "image": np.full((2, 3), i, np.uint8),
        "inner": {"pair": (i, bool(i % 2)), "list": [i, i + 1]},
        "tokens": np.arange(i % 5, dtype="i4") + 10 * i,
        "text": TEXTS[i % 4],
        "raw": bytes([i] * (i % 3)),
    }


class Counted:
    """A random-access source that remembers what was asked for."""

    def __init__(self, n: int) -> None:
        self.n, self.asked = n, list[int]()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> dict[str, Any]:
        assert type(i) is int
        self.asked.append(i)
        return record(i)

    def __repr__(self) -> str:
        return f"Counted({self.n})"


class Many(Counted):
    def __getitems__(self, order: list[int]) -> list[dict[str, Any]]:
        return [self[i] for i in order]


def test_what_is_what() -> None:
    spec = from_records(Counted(20)).spec
    assert {p: (f.dtype.str, f.shape, f.align, f.kind) for p, f in spec.items()} == {
        "x": ("<f8", (), "step", "array"),
        "image": ("|u1", (2, 3), "step", "array"),
        "inner/pair/0": ("<i8", (), "step", "array"),
        "inner/pair/1": ("|b1", (), "step", "array"),
        "inner/list": ("<i8", (2,), "step", "array"),
        "tokens": ("<i4", (), "episode", "ragged"),
        "text": ("|u1", (), "episode", "text"),
        "raw": ("|u1", (), "episode", "ragged"),
    }


@pytest.mark.parametrize("kind", [Counted, Many])
def test_samples_equal_the_records(kind: Any) -> None:
    source = kind(30)
    data = from_records(source)
    assert (len(data), data.total_steps) == (30, 30)
    source.asked.clear()
    batch = data.steps()[[7, 0, 7, 29]]
    assert sorted(set(source.asked)) == [0, 7, 29]
    assert len(source.asked) == 3  # once a record, for all columns
    for k, i in enumerate([7, 0, 7, 29]):
        one = record(i)
        assert batch["x"][k] == i
        np.testing.assert_array_equal(batch["image"][k], one["image"])
        np.testing.assert_array_equal(batch["inner/list"][k], one["inner"]["list"])
    episode = data[7]
    assert episode.columns["tokens"][0].tolist() == record(7)["tokens"].tolist()
    assert episode.columns["text"].strings() == [TEXTS[3]]
    assert episode.columns["raw"].blobs() == [bytes([7])]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 6))
def test_ragged_rows_and_values_equal_the_records(seed: int, n: int, width: int) -> None:
    source = RecordSource(Counted(23))
    rng = np.random.default_rng(seed)
    chosen = random_selection(rng, 23, n, width)
    found = source.read_ragged("tokens", chosen)
    rows = chosen.rows().ravel()
    assert [r.tolist() for r in found] == [[] if r < 0 else record(r)["tokens"].tolist() for r in rows.tolist()]
    whole = Ragged.from_rows([record(i)["tokens"] for i in range(23)], "i4")
    assert source.value_offsets("tokens").tolist() == whole.offsets.tolist()
    chosen = random_selection(rng, len(whole.values), n, width)
    out = np.full(n * width, -7, "i4")
    source.read_values("tokens", chosen, out)
    rows = chosen.rows().ravel()
    np.testing.assert_array_equal(out, np.where(rows < 0, -7, whole.values[rows]))


def test_lengths_are_found_in_one_pass_and_kept() -> None:
    counted = Counted(50)
    source = RecordSource(counted)
    counted.asked.clear()
    source.value_offsets("tokens")
    source.value_offsets("raw")
    assert counted.asked == list(range(50))
    with pytest.raises(KeyError):
        source.value_offsets("x")
    zero = np.zeros(1, np.int64)
    with pytest.raises(ExpiredRowError):
        source.read_values(
            "raw", penstock.transforms.Selection(zero, zero, zero + 99, zero, (1, 99)), np.zeros(99, "u1")
        )


def test_columns_can_be_chosen_and_told() -> None:
    records = [{"a": np.arange(2), "b": 1} for _ in range(16)] + [{"a": np.arange(3), "b": 2.5}]
    with pytest.raises(SpecError, match=r"expected a as int64\[2\] of int64, got int64\[3\] - at record 16"):
        from_records(records, columns=["a"]).steps()[:]
    fields = {"a": Field(np.dtype("i8"), (), "episode", "ragged"), "b": Field(np.dtype("f8"))}
    data = from_records(records, columns=fields)
    assert data.steps()[:]["b"].tolist() == [1.0] * 16 + [2.5]
    assert data.source.value_offsets("a")[-1] == 35
    assert from_records([], columns=fields).total_steps == 0
    assert list(from_records(records, columns=["b"]).spec) == ["b"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"x": "text", "t": "a"}, "got str - at record 20"),
        ({"x": 1.5, "t": "a"}, "got float64"),
        ({"x": np.zeros(2, int), "t": "a"}, r"got int64\[2\]"),
        ({"x": 1, "t": 3}, "expected t as text"),
        ({"x": 1}, r"expected t, got a record with \['x'\] - at record 20"),
        ({"x": None, "t": "a"}, "numbers, text or bytes, got NoneType - at record 20"),
        ({"x": [[1], [1, 2]], "t": "a"}, "numbers, text or bytes, got list - at record 20"),
        ([1], "expected a dict, got list - at record 20"),
    ],
)
def test_records_that_do_not_fit_are_named(bad: Any, message: str) -> None:
    data = from_records([{"x": 1, "t": "a"}] * 20 + [bad])
    assert data.steps()[:20].n == 20
    with pytest.raises(SpecError, match=message):
        data.source.episode(20)


def test_first_records_that_do_not_fit_together() -> None:
    for records, message in (
        ([], "at least one record"),
        ([{"x": 1}, {"x": "a"}], "of one kind"),
        ([{"x": np.zeros((1, 2))}, {"x": np.zeros((2, 3))}], "first axis alone"),
    ):
        with pytest.raises(SpecError, match=message):
            from_records(records)
    assert from_records([{"x": 1}, {"x": 1.5}]).spec["x"].dtype == np.float64


def test_fingerprints_and_travel() -> None:
    one, other, named = RecordSource(Counted(20)), RecordSource(Counted(21)), RecordSource(Counted(20), None, "mine")
    assert len({s.fingerprint for s in (one, other, named)}) == 3
    assert named.fingerprint == RecordSource(Counted(20), None, "mine").fingerprint
    back = pickle.loads(pickle.dumps(one))
    assert (back.fingerprint, back.spec) == (one.fingerprint, one.spec)
    assert back.episode(4).columns["tokens"][0].tolist() == record(4)["tokens"].tolist()


def test_a_dataset_is_a_random_access_source_itself() -> None:
    """What Grain asks of a `RandomAccessDataSource`, and torch of a map-style dataset."""
    data = penstock.from_arrays({"x": np.arange(12).reshape(6, 2)}, lengths=[6]).steps().shuffle(seed=0)
    assert len(data) == 6
    assert "MapDataset" in repr(data)
    rows = [data[i] for i in range(len(data))]
    assert all(isinstance(row, dict) for row in rows)
    stacked = np.stack([row["x"] for row in rows])
    np.testing.assert_array_equal(stacked, data[:]["x"])
    many = data.__getitems__([4, 0, 4])
    np.testing.assert_array_equal([row["x"] for row in many], stacked[[4, 0, 4]])
    again = from_records(data)  # and so it can be opened as one
    np.testing.assert_array_equal(again.steps()[:]["x"], stacked)
    with pytest.raises(IndexError):
        data.__getitems__([6])


def test_records_measure_into_sequences() -> None:
    data = from_records(Counted(20), columns=["inner/pair/0"]).steps()

    def tokens(columns: Columns) -> dict[str, Ragged]:
        return {"t": Ragged.from_rows([record(int(i))["tokens"] for i in columns["inner/pair/0"]], "i4")}

    words = penstock.transforms.measure(data, tokens)
    assert words.source.value_offsets("t").tolist() == RecordSource(Counted(20)).value_offsets("tokens").tolist()


def test_arrays_that_differ_in_their_first_axis_are_ragged_rows_of_vectors() -> None:
    records = [{"x": np.arange(2 * n).reshape(n, 2) + 100 * n} for n in (3, 0, 1, 2)]
    data = from_records(records)
    field = data.spec["x"]
    assert (field.kind, field.shape, field.align) == ("ragged", (2,), "episode")
    assert data.source.value_offsets("x").tolist() == [0, 3, 3, 4, 6]
    read = data.steps()[np.array([3, 1, 0])]["x"]
    assert [row.tolist() for row in (read[i] for i in range(3))] == [records[i]["x"].tolist() for i in (3, 1, 0)]
    sequences = data.sequences()[:]
    assert sequences["x"].shape == (4, 3, 2)
    assert sequences["x"][0].tolist() == records[0]["x"].tolist()
    assert sequences["x"][2].tolist() == [[100, 101], [0, 0], [0, 0]]
    with pytest.raises(
        SpecError, match=r"expected x as ragged rows of \[2\] of int64, got int64\[1, 3\] - at record 4"
    ):
        from_records([*records, {"x": np.zeros((1, 3), np.int64)}], columns={"x": field}).source.value_offsets("x")


def test_arrays_of_ragged_vectors_are_a_dataset_too() -> None:
    ragged = Ragged(np.arange(12.0).reshape(6, 2), np.array([0, 1, 4, 6]))
    data = penstock.from_arrays({"x": ragged, "y": np.arange(3)}, lengths=[1, 2])
    assert data.spec["x"].shape == (2,)
    assert data[1].columns["x"][0].tolist() == [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]


@pytest.mark.parametrize("target", ["columns", "webdataset"])
def test_formats_without_ragged_vectors_get_their_numbers_one_by_one_and_say_so(tmp_path: Path, target: str) -> None:
    data = from_records([{"x": np.arange(2.0 * n).reshape(n, 2), "y": n} for n in (1, 2)])
    report = penstock.convert(data, tmp_path / "out", format=target)
    (note,) = report.notes
    assert (note.level, note.what) == ("adapted", "x")
    assert "each value of shape (2,), number by number" in note.message
    with penstock.open(tmp_path / "out") as converted:
        assert [episode.columns["x"][0].tolist() for episode in converted] == [[0, 1], [0, 1, 2, 3]]
    with pytest.raises(DataError, match="lossless"):
        penstock.convert(data, tmp_path / "again", format=target, require="lossless")
