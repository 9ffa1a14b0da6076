from __future__ import annotations

import numpy as np
import pytest

from penstock.core.columns import Columns, flatten, nest, under
from penstock.core.ragged import Ragged
from penstock.errors import SpecError


def batch() -> Columns:
    return Columns(
        {"observations": {"p": np.arange(6).reshape(3, 2), "q": (np.zeros(3), np.ones(3))}, "t": np.arange(3)}
    )


def test_paths_of_nested_dicts_and_tuples():
    assert list(batch()) == ["observations/p", "observations/q/0", "observations/q/1", "t"]


def test_reading_a_prefix_gives_columns_below_it():
    inner = batch()["observations"]
    assert list(inner) == ["p", "q/0", "q/1"]
    assert inner["q"]["1"].tolist() == [1, 1, 1]
    assert "observations/q" in batch()
    assert "obs" not in batch()


def test_groups_and_ragged_columns_by_name():
    columns = Columns({"a": {"b": np.arange(2), "c": np.arange(2)}, "text": Ragged.from_strings(["go", "left"])})
    assert list(columns.group("a")) == ["b", "c"]
    assert columns.ragged("text").strings() == ["go", "left"]
    assert columns["a"]["b"].tolist() == [0, 1]


@pytest.mark.parametrize(("read", "message"), [("group", "several columns"), ("ragged", "a Ragged column")])
def test_a_group_or_a_ragged_column_of_another_kind_is_refused(read, message):
    with pytest.raises(SpecError, match=message):
        getattr(Columns({"a/b": np.arange(2)}), read)("a/b")


def test_an_unknown_column_is_a_key_error_naming_those_there_are():
    with pytest.raises(KeyError, match="observations/p"):
        batch()["rewards"]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(SpecError, match=r"3 rows, got \{'b': 2\}"):
        Columns({"a": np.zeros(3), "b": np.zeros(2)})


def test_take_row_and_tree():
    columns = batch()
    assert columns.take(np.array([2, 0]))["t"].tolist() == [2, 0]
    assert columns.row(1)["observations"]["p"].tolist() == [2, 3]
    assert nest(flatten(columns.tree())).keys() == columns.tree().keys()


def test_merged_prefers_the_other():
    merged = batch().merged({"t": np.full(3, 9), "new": np.zeros(3)})
    assert merged["t"].tolist() == [9, 9, 9]
    assert "new" in merged


def test_ragged_columns_count_rows_and_bytes():
    columns = Columns({"text": Ragged.from_strings(["a", "bc"])})
    assert columns.n == 2
    assert columns.nbytes == 3 + 24
    assert columns.take(slice(1, 2))["text"].strings() == ["bc"]


def test_no_columns_can_still_have_rows():
    assert Columns({}, n=4).n == 4


def test_repr_names_dtypes_and_shapes():
    assert repr(batch()).startswith("Columns(observations/p: int64[3, 2]")


@pytest.mark.parametrize(("prefix", "path", "inside"), [("a", "a", True), ("a", "a/b", True), ("a", "ab", False)])
def test_under(prefix, path, inside):
    assert under(prefix, path) is inside
