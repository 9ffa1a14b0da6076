"""Inputs on which a reference is wrong, one test a case: ours does what the case requires.

The cases and their ids are those of tests/golden/packing/known_defects.json.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.formats.memory import MemorySource
from penstock.plan.schedule import Schedule
from penstock.plan.weights import shares

GOLDEN = Path(__file__).parents[1] / "golden" / "packing" / "known_defects.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(GOLDEN.read_text())["cases"]}


def documents(lengths: list[int], base: int = 1) -> MapDataset:
    """Token `i` of all is `base + i`."""
    return penstock.from_arrays({"tokens": np.arange(sum(lengths)) + base}, lengths).sequences()


def records(**columns: list[list[int]]) -> MapDataset:
    """Records with a sequence of their own length in each column."""
    n = len(next(iter(columns.values())))
    spec = Spec({name: Field(np.dtype("i8"), (), "episode", "ragged") for name in columns})
    held = {name: Ragged.from_rows(rows, "i8") for name, rows in columns.items()}
    return EpisodeDataset(MemorySource(spec, held, np.arange(n + 1))).sequences()


def used(batch: Any, column: str = "tokens", ids: str = "segment_ids") -> list[int]:
    return batch[column][batch[ids] > 0].tolist()


def test_every_case_has_its_test():
    tests = {name.removeprefix("test_case_").replace("_", "-") for name in vars(sys.modules[__name__])}
    assert set(CASES) <= tests


@pytest.mark.parametrize("n", CASES["shuffle-not-a-permutation"]["n"])
def test_case_shuffle_not_a_permutation(n):
    order = penstock.from_arrays({"x": np.arange(n)}, [n]).steps().shuffle(0)[:]["x"]
    assert np.array_equal(np.sort(order), np.arange(n))


def test_case_window_shuffle_tail():
    case = CASES["window-shuffle-tail"]
    for seed in range(200):
        data = penstock.from_arrays({"x": np.arange(case["n"])}, [case["n"]]).steps()
        order = data.shuffle(seed, block=1, pool=case["window"])[:]["x"]
        assert sorted(order.tolist()) == list(range(case["n"]))


def test_case_concat_then_split_duplicates():
    case = CASES["concat-then-split-duplicates"]
    (row,) = case["input"]
    packs = records(a=[row["a"]], b=[row["b"]]).pack(case["length_struct"], method="concat_split")
    batch = packs[:]
    assert used(batch, "a", "a_segment_ids") == row["a"]
    assert used(batch, "b", "b_segment_ids") == case["required"]["b_tokens_out"]


@pytest.mark.parametrize(("positions", "second"), [("restart", [0, 1, 2]), ("continue", [4, 5, 6])])
def test_case_concat_then_split_positions(positions, second):
    batch = documents([7]).pack(4, method="concat_split", positions=positions)[:]
    assert batch["positions"].tolist() == [[0, 1, 2, 3], [*second, 0]]


def test_case_sparse_mix_rate():
    weights = CASES["sparse-mix-rate"]["weights"]
    data = penstock.from_arrays({"x": np.arange(1000)}, [1000]).steps()
    filtered = data.filter(lambda c: c["x"] % 10 == 0)
    mixed = penstock.mix([data, filtered, data], weights).shuffle(3)
    counts = np.bincount(mixed[np.random.default_rng(0).permutation(len(mixed))]["source"])
    assert np.all(np.abs(counts - len(mixed) * np.array(weights)) < 1)


def test_case_float_weights_quantised():
    exact = shares(CASES["float-weights-quantised"]["weights"])
    source, _ = Schedule.of(exact).picks(np.arange(2009 * 3))
    off = np.cumsum(source == 1) - float(exact[1]) * np.arange(1, len(source) + 1)
    assert np.abs(off).max() < 1
    assert np.bincount(source[:2009]).tolist() == [1000, 1009]


def test_case_packer_state_shared_between_iterators():
    case = CASES["packer-state-shared-between-iterators"]
    packs = documents(case["lengths"]).pack(case["feature_length"], method="first_fit", open_bins=2)
    abandoned = iter(penstock.IterDataset.of(packs, 1))
    next(abandoned)
    assert [b["tokens"].tolist() for b in penstock.IterDataset.of(packs, 1)] == [
        b["tokens"].tolist() for b in penstock.IterDataset.of(packs, 1)
    ]
    assert sorted(t for b in penstock.IterDataset.of(packs, 2) for t in used(b)) == list(range(1, 13))


def test_case_preset_packer_shared_between_tasks():
    case = CASES["preset-packer-shared-between-tasks"]
    parts = [records(t=case[name]).pack(case["feature_length"]) for name in "AB"]
    mixed = penstock.mix(parts, case["weights"], stop="drain")[:]
    for row, ids, source in zip(mixed["t"], mixed["segment_ids"], mixed["source"], strict=True):
        assert set(row[ids > 0].tolist()) == {source + 1}


def test_case_packed_map_repeat_empty():
    case = CASES["packed-map-repeat-empty"]
    packs = documents(case["lengths"]).pack(4)
    twice = packs.repeat(2)
    assert len(twice) == 2 * len(packs)
    assert Counter(used(twice[:])) == Counter([*range(1, 13), *range(1, 13)])


def test_case_noam_map_drops_tokens():
    case = CASES["noam-map-drops-tokens"]
    packs = documents([case["input_length"]]).pack(case["feature_length"], method="concat_split")
    assert len(used(packs[:])) == case["required"]["tokens_out"]


def test_case_slice_and_queue_not_checkpointable():
    packs = documents([5, 9, 2, 7]).pack(4, method="concat_split")
    iterator = iter(penstock.IterDataset.of(packs, 1))
    first = [next(iterator) for _ in range(2)]
    state = json.loads(json.dumps(iterator.state_dict()))
    rest = [b["tokens"].tolist() for b in iterator]
    again = iter(penstock.IterDataset.of(packs, 1))
    again.load_state_dict(state)
    assert [b["tokens"].tolist() for b in again] == rest
    assert len(first) + len(rest) == len(packs)


def test_case_pad_id_leaks_into_segment_ids():
    case = CASES["pad-id-leaks-into-segment-ids"]
    data = records(**{name: [row[name] for row in case["input"]] for name in ("inputs", "targets")})
    batch = data.pack(case["sequence_lengths"], method="first_fit", open_bins=4, fill=case["pad_id"])[:]
    assert batch["inputs_segment_ids"].tolist() == [case["required"]["encoder_segment_ids"]]
    assert batch["inputs_positions"].tolist() == [case["required"]["encoder_positions"]]
    assert batch["inputs"].tolist() == [[7, 8, 5, 1, 1]]


@pytest.mark.parametrize("repack", [False, True])
def test_case_iter_repeat_replays_the_same_packs(repack):
    lengths = np.random.default_rng(0).integers(1, 9, 200).tolist()
    packs = documents(lengths).shuffle(1).pack(16, repack=repack).shuffle(2)
    epochs = [planned_samples(packs).at(np.arange(packs.plan.start(e), packs.plan.start(e + 1))) for e in range(3)]
    for batch in epochs:  # no pack spans two epochs: each has every token once
        assert sorted(used(batch)) == list(range(1, sum(lengths) + 1))
    rows = [{tuple(row) for row in batch["tokens"].tolist()} for batch in epochs]
    assert rows[0] != rows[1] != rows[2]
    assert len(rows[0] & rows[1]) < len(rows[0]) / 2


def test_case_token_zero_counts_as_padding():
    batch = records(t=[[5, 0, 6, 7], [0, 0]]).pack(8, method="next_fit", fill=0)[:]
    assert batch["t"].tolist() == [[5, 0, 6, 7, 0, 0, 0, 0]]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 1, 2, 2, 0, 0]]
    assert used(batch, "t") == [5, 0, 6, 7, 0, 0]
