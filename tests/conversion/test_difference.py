"""`difference` finds each change that is made to a copy, and nothing in an equal copy of another format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.conversion.difference import difference
from penstock.core.ragged import Ragged
from penstock.errors import ArgumentError
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture
from tests.conversion.conftest import Make, field


@pytest.mark.parametrize("match", ["number", "content"])
@pytest.mark.parametrize("format", ["columns", "minari"])
def test_an_equal_copy(make: Make, tmp_path: Path, format: str, match: str) -> None:
    data = make()
    penstock.convert(data, tmp_path / "out", format=format)
    with penstock.open(tmp_path / "out") as copy:
        assert difference(data, copy, match=match) == ()


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_value_is_found_at_its_place(make: Make, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = make()
    arrays = {path: np.concatenate([np.asarray(e.columns[path]) for e in data]) for path in data.spec}
    row = int(rng.integers(23))
    arrays["rewards"][row] += 0.25
    other = penstock.from_arrays(arrays, lengths=data.episodes.length.tolist())
    (found,) = difference(data, other, threads=int(rng.integers(3)))
    episode = int(np.searchsorted(data.source.offsets, row, side="right")) - 1
    assert (found.kind, found.what, found.episodes) == ("values", "rewards", (episode,))
    assert found.rows == (row - int(data.source.offsets[episode]),)
    assert found.largest == pytest.approx(0.25)
    assert difference(data, other, tolerance=0.26) == ()
    both = difference(data, other, match="content")
    assert [(each.what, each.episodes) for each in both] == [("first", (episode,)), ("second", (episode,))]


def test_other_columns_lengths_and_episodes(make: Make) -> None:
    text = Ragged.from_strings(["a"] * 23)
    one = make({"only": (field("f4"), np.zeros(23, "f4")), "task": (field("u1", kind="text"), text)})
    changed = Ragged.from_strings(["a"] * 22 + ["ab"])
    other = make({"actions": (field("i4"), np.zeros(23, "i4")), "task": (field("u1", kind="text"), changed)})
    found = {(each.kind, each.what): each for each in difference(one, other)}
    assert found.keys() == {("column", "only"), ("column", "actions"), ("values", "task")}
    assert found["column", "only"].message == "only in the first"
    assert "int64" in found["column", "actions"].message
    assert found["values", "task"].episodes == (5,)
    shorter = make(lengths=(3, 2))
    kinds = {(each.kind, each.what): each.episodes for each in difference(make(), shorter)}
    assert kinds["episodes", "first"] == (2, 3, 4, 5)
    assert kinds["length", "steps"] == (1,)


def test_a_copy_of_a_copy_counts_once(make: Make) -> None:
    data = make()
    (found,) = difference(data[[0, 1, 1]], data[[1, 0]], match="content")
    assert (found.what, found.episodes) == ("first", (2,))
    with pytest.raises(ArgumentError, match="tolerance"):
        difference(data, data, match="content", tolerance=1.0)
    with pytest.raises(ArgumentError, match="match"):
        difference(data, data, match="name")  # pyright: ignore[reportArgumentType]


def test_nan_equals_nan() -> None:
    one = penstock.from_arrays({"x": np.array([np.nan, 1.0])}, lengths=[2])
    other = penstock.from_arrays({"x": np.array([np.nan, np.nan])}, lengths=[2])
    assert difference(one, one) == ()
    (found,) = difference(one, other)
    assert (found.rows, found.largest) == ((1,), None)


def test_the_command(call: Call, make: Make, tmp_path: Path) -> None:  # noqa: F811
    penstock.convert(make(), tmp_path / "a")
    penstock.convert(make(), tmp_path / "b", format="minari")
    penstock.convert(make(seed=1), tmp_path / "c")
    assert call("diff", tmp_path / "a", tmp_path / "b").out.strip() == "no difference"
    answer = call("diff", tmp_path / "a", tmp_path / "c", "--json")
    assert answer.code == 1
    assert {each["what"] for each in answer.json["differences"]} == {"observations", "actions", "rewards"}
    assert "rewards" in call("diff", tmp_path / "a", tmp_path / "c").out
