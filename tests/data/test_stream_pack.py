"""Packing streams: what comes out is what went in, and any state goes on as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.blocks import BlockIterator
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.data.iter_dataset import IterDataset
from penstock.data.lengths import LengthsFile, read_lengths
from penstock.errors import DataError, FormatError, PlanError, SpecError, StateError


class Blocks:
    """A stream of `columns`, cut at `cuts`; its state is the number of the block."""

    def __init__(self, columns: dict[str, Any], cuts: list[int], fingerprint: str = "here") -> None:
        self.columns, self.cuts, self.fingerprint = Columns(columns), cuts, fingerprint

    def __call__(self) -> BlockIterator:
        return Walk(self)


class Walk(BlockIterator):
    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.i = blocks, 0

    def __next__(self) -> Columns:
        if self.i + 1 >= len(self.blocks.cuts):
            raise StopIteration
        a, b = self.blocks.cuts[self.i : self.i + 2]
        self.i += 1
        return self.blocks.columns.take(np.arange(a, b))

    def state_dict(self) -> dict[str, Any]:
        return {"i": self.i}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.i = state["i"]


def told(lengths: Any, first: int = 0) -> Ragged:
    """Values that say where they come from: sequence times 1000 and place."""
    rows = [1000 * (first + i) + np.arange(n) for i, n in enumerate(lengths)]
    return Ragged(np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64), offsets_of(lengths))


def stream(lengths: Any, block: int = 7, **more: Any) -> IterDataset:
    cuts = [*range(0, len(lengths), block), len(lengths)]
    return IterDataset(Blocks({"tokens": told(lengths), **more}, cuts))


def same(found: list[Columns], expected: list[Columns]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert list(a) == list(b)
        for path in a:
            x, y = a[path], b[path]
            if isinstance(x, Ragged):
                np.testing.assert_array_equal(x.offsets, y.offsets)
                x, y = x.values, y.values
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype


def pieces(blocks: list[Columns], column: str = "tokens", before: str = "") -> list[list[list[int]]]:
    """Rows as lists of segments; checks that ids count from 1 without a gap, positions from 0, and padding is last."""
    found: list[list[list[int]]] = []
    for block in blocks:
        for values, ids, places in zip(
            block[column], block[f"{before}segment_ids"], block[f"{before}positions"], strict=True
        ):
            used = int(np.count_nonzero(ids))
            assert not ids[used:].any()
            assert not places[used:].any()
            assert np.all(np.diff(ids[:used]) >= 0)
            segments = [values[:used][ids[:used] == i].tolist() for i in range(1, ids.max(initial=0) + 1)]
            assert [p for s in segments for p in range(len(s))] == places[:used].tolist()
            found.append(segments)
    return found


lengths_of = st.lists(st.integers(0, 12), max_size=60)


@settings(deadline=None, max_examples=150)
@given(lengths_of, st.integers(1, 9), st.integers(1, 6), st.integers(1, 5), st.integers(1, 9), st.sampled_from([1, 99]))
def test_every_sequence_comes_out_once_and_whole(lengths, block, bins, rows, more_age, most) -> None:
    packed = stream(lengths, block).pack(
        12, open_bins=bins, rows=rows, max_age=bins + more_age, max_sequences=most, fill=-100
    )
    blocks = list(packed)
    rows_out = pieces(blocks)
    assert all(len(row) <= most and sum(map(len, row)) <= 12 for row in rows_out)
    assert all(len(b["tokens"]) == rows for b in blocks[:-1])
    for b in blocks:
        assert b["segment_ids"].dtype == b["positions"].dtype == np.int32
        assert np.all((b["tokens"] == -100) == (b["segment_ids"] == 0))
    expected = [row.tolist() for row in told(lengths) if len(row)]
    assert sorted(s for row in rows_out for s in row) == expected
    assert all([s[0] for s in row] == sorted(s[0] for s in row) for row in rows_out)  # in the order of the stream


@settings(deadline=None, max_examples=60)
@given(lengths_of, st.integers(1, 9), st.integers(1, 6), st.integers(1, 3), st.integers(1, 9), st.sampled_from([2, 99]))
def test_any_state_goes_on_as_the_uninterrupted_run(lengths, block, bins, rows, more_age, most) -> None:
    packed = stream(lengths, block, source=np.arange(len(lengths))).pack(
        9, open_bins=bins, rows=rows, max_age=bins + more_age, max_sequences=most, overlong="split", keep=["source"]
    )
    whole, states, iterator = [], [], iter(packed)
    states.append(iterator.state_dict())
    for b in iterator:
        whole.append(b)
        states.append(iterator.state_dict())
    passed = iterator.passed
    for taken, state in enumerate(states):
        for _ in range(2):  # restoring twice is as good as once
            other = iter(packed)
            other.load_state_dict(json.loads(json.dumps(state)))
            assert other.state_dict() == state
            rest = []
            for i, b in enumerate(other):
                rest.append(b)
                assert other.state_dict() == states[taken + i + 1]
            same(rest, whole[taken:])
            assert other.passed == passed


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), max_size=40), st.integers(1, 6), st.integers(1, 5))
def test_columns_of_their_own_lengths_stay_together(sizes, bins, rows) -> None:
    a, b = told([x for x, _ in sizes]), told([y for _, y in sizes])
    blocks = IterDataset(Blocks({"a": a, "b": b}, [*range(0, len(sizes), 5), len(sizes)]))
    packed = blocks.pack({"a": 30, "b": 20}, open_bins=bins, rows=rows)
    whole, states, iterator = [], [], iter(packed)
    for block in iterator:
        whole.append(block)
        states.append(iterator.state_dict())
    for taken, state in enumerate(states):
        iterator.load_state_dict(state)
        same(list(iterator), whole[taken + 1 :])
    found = []
    for block in whole:
        assert list(block) == ["a", "a_segment_ids", "a_positions", "b", "b_segment_ids", "b_positions"]
        for i in range(block.n):
            top = max(block["a_segment_ids"][i].max(), block["b_segment_ids"][i].max())
            for s in range(1, top + 1):
                parts = [block[c][i][block[f"{c}_segment_ids"][i] == s].tolist() for c in ("a", "b")]
                starts = {p[0] for p in parts if p}
                assert len(starts) == 1  # one segment number is one sequence
                found.append((starts.pop() // 1000, *map(len, parts)))
    assert sorted(found) == [(i, x, y) for i, (x, y) in enumerate(sizes) if x or y]


def waits(blocks: list[Columns], lengths: Any) -> int:
    """How many packs came out, at most, after a pack's first sequence had come and before the pack."""
    rows = [[s[0] // 1000 for s in row] for row in pieces(blocks)]
    opened = {row[0]: j for j, row in enumerate(rows)}
    out_after: list[int] = []  # of each pack, the last sequence that it waited for
    for row in rows:
        out_after.append(max(row[-1], out_after[-1] if out_after else 0))
    return max(j - int(np.searchsorted(out_after, first)) for first, j in opened.items())


@pytest.mark.parametrize(("bins", "age"), [(4, 5), (16, 20), (16, 64)])
def test_no_pack_waits_longer_than_max_age(bins: int, age: int) -> None:
    lengths = np.random.default_rng(0).integers(51, 61, 3000)  # two never fit: each pack waits for a filler
    lengths[::50] = 1
    assert waits(list(stream(lengths, 512).pack(100, open_bins=bins, max_age=age)), lengths) <= age


def test_a_window_that_covers_the_data_needs_no_more_packs_than_first_fit() -> None:
    lengths = np.random.default_rng(1).integers(1, 60, 500)
    room: list[int] = []
    for n in lengths.tolist():
        fit = next((i for i, r in enumerate(room) if r >= n), None)
        if fit is None:
            room.append(100 - n)
        else:
            room[fit] -= n
    assert len(pieces(list(stream(lengths).pack(100)))) <= len(room)


@pytest.mark.parametrize(
    ("overlong", "expected", "lost"),
    [
        ("truncate_left", [[0, 1], [1003, 1004, 1005, 1006], [2000, 2001, 2002, 2003]], 3),
        ("truncate_right", [[0, 1], [1000, 1001, 1002, 1003], [2000, 2001, 2002, 2003]], 3),
        ("drop", [[0, 1], [2000, 2001, 2002, 2003]], 7),
        ("split", [[0, 1], [1000, 1001, 1002, 1003], [1004, 1005, 1006], [2000, 2001, 2002, 2003]], 0),
    ],
)
def test_what_is_too_long(overlong: Any, expected: list[list[int]], lost: int) -> None:
    iterator = iter(stream([2, 7, 4, 0]).pack(4, overlong=overlong))
    assert sorted(s for row in pieces(list(iterator)) for s in row) == expected
    passed = iterator.passed
    assert (passed.sequences, passed.empty, passed.overlong, passed.lost) == (4, 1, 1, lost)


def test_positions_of_parts_can_continue() -> None:
    columns = {"a": told([20]), "b": told([7], first=100)}
    packed = IterDataset(Blocks(columns, [0, 1])).pack({"a": 4, "b": 4}, overlong="split", positions="continue")
    for block in packed:
        for name in ("a", "b"):
            real = block[f"{name}_segment_ids"] > 0
            np.testing.assert_array_equal(block[f"{name}_positions"][real], block[name][real] % 1000)
            assert not block[f"{name}_positions"][~real].any()


def test_too_long_is_an_error_unless_asked_otherwise() -> None:
    with pytest.raises(DataError, match="expected at most 4 tokens, got 7 at sequence 8"):
        list(stream([1] * 8 + [7]).pack(4))
    iterator = iter(stream([1] * 8 + [7]).pack(4))
    for _ in range(2):  # it does not go on without what it read
        with pytest.raises(DataError, match="at sequence 8"):
            next(iterator)


def test_parts_of_several_columns_hold_each_value_once() -> None:
    columns = {"a": told([20]), "b": told([7], first=100)}
    blocks = list(IterDataset(Blocks(columns, [0, 1])).pack({"a": 4, "b": 4}, overlong="split"))
    for name, n in (("a", 20), ("b", 7)):
        real = np.concatenate([b[name][b[f"{name}_segment_ids"] > 0] for b in blocks])
        assert (np.sort(real) % 1000).tolist() == list(range(n))


@pytest.mark.parametrize(
    ("dtype", "inner", "pad"), [("<f4", (3,), 0.5), (">i2", (), 1), ("u1", (2, 2), 255), ("?", (), 1), ("<f8", (0,), 0)]
)
def test_any_dtype_and_shape(dtype: str, inner: tuple[int, ...], pad: float) -> None:
    lengths = np.array([3, 0, 5, 2, 8])
    values = np.random.default_rng(0).integers(0, 2, (18, *inner)).astype(dtype)
    blocks = list(IterDataset(Blocks({"x": Ragged(values, offsets_of(lengths))}, [0, 2, 5])).pack(8, fill={"x": pad}))
    out, ids = (np.concatenate([b[name] for b in blocks]) for name in ("x", "segment_ids"))
    assert out.dtype == np.dtype(dtype).newbyteorder("=")
    assert out.shape == (3, 8, *inner)
    assert np.all(out[ids == 0] == np.asarray(pad).astype(dtype))
    assert sorted(map(bytes, out[ids > 0])) == sorted(map(bytes, values.astype(out.dtype)))
    assert ids.max() == 2  # the fill value never shows in ids


def test_columns_that_go_together_share_their_ids_and_metadata_is_kept_on_request() -> None:
    lengths = [3, 1, 2]
    columns = {"tokens": told(lengths), "loss": told(lengths), "source": np.array([7, 8, 9]), "other": np.zeros(3)}
    (block,) = IterDataset(Blocks(columns, [0, 3])).pack(5, keep=["source"])
    assert list(block) == ["tokens", "loss", "segment_ids", "positions", "source"]
    np.testing.assert_array_equal(block["tokens"], block["loss"])
    assert [row.tolist() for row in block["source"]] == [[7, 8], [9]] or [
        sorted(row.tolist()) for row in block["source"]
    ] == [[7, 9], [8]]
    columns["loss"] = told([3, 2, 1])
    with pytest.raises(DataError, match="got 1 and 2 of loss at sequence 1"):
        list(IterDataset(Blocks(columns, [0, 3])).pack(5))


def test_iterators_share_nothing() -> None:
    packed = stream(np.random.default_rng(2).integers(1, 20, 200)).pack(40, open_bins=8, rows=4)
    whole = list(packed)
    abandoned = iter(packed)
    next(abandoned)
    same(list(packed), whole)
    one, other = iter(packed), iter(packed)
    for expected in whole:
        same([next(one), next(other)], [expected, expected])


def test_two_epochs_differ_and_an_empty_stream_gives_nothing() -> None:
    assert list(stream([]).pack(4)) == list(stream([0, 0]).pack(4)) == []
    words = Ragged.from_rows([np.full(n, i) for i, n in enumerate([1, 2, 3, 4, 5] * 9)], "i8")
    data = penstock.from_arrays({"words": words}, lengths=[45]).steps().shuffle(seed=0)
    first, both = (list(penstock.IterDataset.of(data, 5, epochs=e).pack(6, rows=1)) for e in (1, 2))
    count = len(first)
    assert sum(np.count_nonzero(b["segment_ids"]) for b in both) == 2 * 135
    assert any(not np.array_equal(a["words"], b["words"]) for a, b in zip(first, both[count:], strict=False))


def test_the_loader_resumes_a_packed_stream() -> None:
    packed = stream(np.random.default_rng(3).integers(1, 20, 300)).pack(40, open_bins=8, rows=4)
    whole = list(packed)
    loader = packed.loader()
    walk = iter(loader)
    for _ in range(5):
        next(walk)
    other = packed.loader()
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    same(list(other), whole[5:])


def test_foreign_states_are_refused() -> None:
    packed = stream(np.random.default_rng(3).integers(1, 20, 300)).pack(40, open_bins=8, rows=4)
    iterator = iter(packed)
    next(iterator)
    state = iterator.state_dict()
    bad = (
        {"i": 3},
        {**state, "taken": -1},
        {**state, "taken": state["taken"] + 9},
        {**state, "flags": "?"},
        {**state, "flags": 7},
        {**state, "passed": {"sequences": -1}},
        {**state, "passed": {"rows": 1}},
    )
    for wrong in bad:
        with pytest.raises(StateError):
            iter(packed).load_state_dict(wrong)
    for shorter in (stream([5] * 10), stream([40] * 300)):  # other data under the same name
        other = iter(shorter.pack(40, open_bins=8, rows=4))
        other.load_state_dict(state)
        with pytest.raises(StateError, match="changed since"):
            list(other)


def test_bad_arguments() -> None:
    one = stream([1])
    for wrong in (
        {"length": 0}, {"length": {}}, {"length": {"tokens": 0}}, {"length": 1.5}, {"length": 4, "open_bins": 0},
        {"length": 4, "open_bins": 8, "max_age": 8}, {"length": 4, "rows": 0}, {"length": 4, "max_sequences": 0},
        {"length": 4, "overlong": "cut"}, {"length": 4, "positions": "on"}, {"length": 1 << 31},
    ):  # fmt: skip
        with pytest.raises(PlanError):
            one.pack(**wrong)
    with pytest.raises(PlanError, match="that x, uint16, can hold"):
        list(IterDataset(Blocks({"x": Ragged(np.zeros(1, "u2"), np.array([0, 1]))}, [0, 1])).pack(4, fill=-100))
    for wrong in ({"length": {"nothing": 3}}, {"length": 4, "keep": ["nothing"]}, {"length": 4, "keep": ["tokens"]}):
        with pytest.raises(SpecError):
            list(one.pack(**wrong))
    with pytest.raises(SpecError, match="names that differ"):
        list(IterDataset(Blocks({"positions": told([1])}, [0, 1])).pack(4))


def test_lengths_are_written_as_they_pass(tmp_path: Path) -> None:
    lengths = np.random.default_rng(4).integers(0, 20, 3000)
    path = tmp_path / "tokens.lengths"
    packed = stream(lengths, 300).pack(16, open_bins=8, rows=4, overlong="split", lengths=path)
    iterator = iter(packed)
    for _ in range(40):
        next(iterator)
    state = iterator.state_dict()
    with pytest.raises(FileNotFoundError):
        read_lengths(path)
    other = iter(packed)
    other.load_state_dict(state)
    assert sum(1 for _ in other)
    assert read_lengths(path, fingerprint="here")["tokens"].tolist() == lengths.tolist()
    assert list(tmp_path.iterdir()) == [path]
    list(packed)  # a second pass finds them done
    path.unlink()
    assert all(a.n == b.n for a, b in zip(packed, packed, strict=True))  # two at once end with the same file
    assert read_lengths(path)["tokens"].tolist() == lengths.tolist()
    with pytest.raises(StateError, match="expected lengths of there"):
        read_lengths(path, fingerprint="there")
    path.unlink()
    other = iter(packed)
    other.load_state_dict({**state, "passed": {**state["passed"], "sequences": 10}})
    with pytest.raises(StateError, match="expected the lengths of 10 sequences"):
        next(other)


def test_damaged_lengths_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with LengthsFile(path, ["a", "b"], "f") as file:
        file.write(0, np.array([[1, 2], [3, 4]]))
        file.finish(2)
    sound = path.read_bytes()
    for i in range(len(sound)):
        path.write_bytes(sound[:i] + bytes([sound[i] ^ 1]) + sound[i + 1 :])
        try:
            assert list(read_lengths(path, fingerprint="f")) != ["a", "b"]  # a name is damaged, and nothing else
        except (FormatError, StateError):
            continue
    for i in range(len(sound)):
        path.write_bytes(sound[:i])
        with pytest.raises(FormatError):
            read_lengths(path)
