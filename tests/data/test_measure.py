"""Sequences that a function makes of records: lengths are found once, values again when they are read."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.data.lengths import read_lengths
from penstock.data.measure import measure
from penstock.errors import DataError, ExpiredRowError, PlanError, SpecError
from penstock.testing.compare import random_selection

SIZES = np.array([3, 0, 5, 1, 0, 0, 7, 2, 4, 0])


def numbers(n: int = 10):
    return penstock.from_arrays({"n": np.arange(n), "size": SIZES[:n]}, lengths=[n]).steps()


def words(columns: Columns) -> dict[str, Any]:
    values = [100 * n + np.arange(s) for n, s in zip(columns["n"], columns["size"], strict=True)]
    flat = np.concatenate([*values, np.zeros(0, np.int64)]).astype("i4")
    tokens = Ragged(flat, offsets_of(columns["size"]))
    return {"tokens": tokens, "more": {"mask": Ragged(flat % 2 == 0, tokens.offsets)}, "label": columns["n"] * 2.0}


class Counted:
    """`words`, with the records of every call."""

    def __init__(self, shrink: bool = False) -> None:
        self.calls: list[list[int]] = []
        self.shrink = shrink

    def __call__(self, columns: Columns) -> dict[str, Any]:
        self.calls.append(columns["n"].tolist())
        made = words(columns)
        if self.shrink:
            made["tokens"] = Ragged(np.zeros(0, "i4"), np.zeros(columns.n + 1, np.int64))
        return made


def span(start: int, length: int) -> Selection:
    zero = np.zeros(1, np.int64)
    return Selection(zero, zero + start, zero + length, zero, (1, max(length, 1)))


def test_every_record_is_an_episode() -> None:
    data = measure(numbers(), words, block=3)
    assert (len(data), data.total_steps) == (10, 10)
    assert {p: (f.align, f.kind) for p, f in data.spec.items()} == {
        "tokens": ("episode", "ragged"), "more/mask": ("episode", "ragged"), "label": ("episode", "array"),
    }  # fmt: skip
    assert data.source.value_offsets("tokens").tolist() == offsets_of(SIZES).tolist()
    two = np.array([0, 2])
    found = data.source.read(["tokens", "label"], Selection(two * 0, 6 - two * 2, 2 - two // 2, two, (3, 1)))
    rows = [row.tolist() for row in found["tokens"].reshape(3)]
    assert rows == [list(range(600, 607)), [700, 701], list(range(200, 205))]
    assert found["label"].tolist() == [[12.0], [14.0], [4.0]]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 6), st.integers(1, 4))
def test_values_are_read_by_their_numbers(seed: int, n: int, width: int, block: int) -> None:
    source = measure(numbers(), words, block=block).source
    whole = words(numbers()[:])
    chosen = random_selection(np.random.default_rng(seed), int(SIZES.sum()), n, width)
    for path, held in (("tokens", whole["tokens"]), ("more/mask", whole["more"]["mask"])):
        out = np.full(n * width, 77).astype(held.dtype)
        source.read_values(path, chosen, out)
        rows = chosen.rows().ravel()
        np.testing.assert_array_equal(out[rows >= 0], held.values[rows[rows >= 0]])
        np.testing.assert_array_equal(out[rows < 0], np.full(np.count_nonzero(rows < 0), 77).astype(held.dtype))


def test_values_that_are_not_there_are_refused() -> None:
    source = measure(numbers(), words).source
    with pytest.raises(ExpiredRowError):
        source.read_values("tokens", span(20, 3), np.zeros(3, "i4"))
    source.read_values("tokens", span(22, 0), np.zeros(1, "i4"))


def test_all_columns_of_a_batch_cost_one_call_on_its_records_alone() -> None:
    fn = Counted()
    source = measure(numbers(), fn).source
    fn.calls.clear()
    for path in ("tokens", "more/mask"):
        source.read_values(path, span(1, 6), np.zeros(6, source.spec[path].dtype))  # a part of 0, and of 2
        source.read_ragged(path, span(2, 2))
    source.read(["label"], span(2, 2))
    assert fn.calls == [[0, 1, 2], [2, 3]]


def test_a_pass_that_was_killed_goes_on_and_is_then_kept(tmp_path: Path) -> None:
    cache = tmp_path / "lengths"
    fn = Counted()

    def dies(columns: Columns) -> dict[str, Any]:
        if 6 in columns["n"]:
            raise RuntimeError("killed")
        return fn(columns)

    with pytest.raises(RuntimeError):
        measure(numbers(), dies, cache=cache, block=2, version="1")
    partial = cache.with_name("lengths.partial")
    with open(partial, "ab") as torn:
        torn.write(b"\1\2\3")
    fn.calls.clear()

    def lives(columns: Columns) -> dict[str, Any]:
        return fn(columns)

    data = measure(numbers(), lives, cache=cache, block=2, version="1")
    assert fn.calls == [[0], [6, 7], [8, 9], [0]]
    assert not partial.exists()
    assert read_lengths(cache)["tokens"].tolist() == SIZES.tolist()
    fn.calls.clear()
    assert measure(numbers(), lives, cache=cache, version="1").source.fingerprint == data.source.fingerprint
    assert fn.calls == [[0], [0]]  # the columns alone


def test_another_version_is_measured_anew(tmp_path: Path) -> None:
    cache, fn = tmp_path / "lengths", Counted()
    one = measure(numbers(), fn, cache=cache, version="1")
    changed = measure(numbers(), Counted(shrink=True), cache=cache, version="1")
    with pytest.raises(DataError, match="expected 3 values of tokens, as were measured, got 0 - at record 0"):
        changed.source.read_ragged("tokens", span(0, 1))
    anew = measure(numbers(), Counted(shrink=True), cache=cache, version="2")
    assert anew.source.value_offsets("tokens")[-1] == 0
    assert len({one.source.fingerprint, anew.source.fingerprint}) == 2


def test_it_travels_and_is_read_by_threads() -> None:
    source = measure(numbers(), words, block=4).source
    other = pickle.loads(pickle.dumps(source))
    assert other.fingerprint == source.fingerprint
    failed: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            for _ in range(20):
                test_values = np.zeros(22, "i4")
                other.read_values("tokens", span(0, 22), test_values)
                np.testing.assert_array_equal(test_values, words(numbers()[:])["tokens"].values)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_functions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SpecError, match="expected 1 rows"):
        measure(numbers(), lambda c: {"x": np.zeros(c.n + 1)})
    with pytest.raises(SpecError, match="for the records from 4 on"):
        measure(numbers(), lambda c: {"x": np.zeros((c.n, 1 + (c["n"][0] == 4)))} | words(c), block=4)
    with pytest.raises(SpecError, match="at least one record"):
        measure(numbers(0), words)
    with pytest.raises(PlanError, match="block"):
        measure(numbers(), words, block=0)
    grid = Ragged(np.zeros(2), np.arange(3), (1, 2))
    with pytest.raises(SpecError, match="one sequence of numbers"):
        measure(numbers(), lambda c: {"x": grid})
