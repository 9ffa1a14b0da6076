"""Packs of other libraries, token by token. See tests/golden/packing/PROVENANCE.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.plan.packing import PackIndex, Rule, lower_bound

GOLDEN = Path(__file__).parents[1] / "golden" / "packing"


def cases(name: str) -> list[Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text())["cases"]


def named(name: str) -> Any:
    return [pytest.param(case, id=case["id"].split(":")[1]) for case in cases(name)]


def columns(elements: list[Any], axes: list[str]) -> list[list[list[Any]]]:
    """`[n, A]` lists of tokens; elements that are no dict have one axis, and scalars are one token."""
    rows = [[e[axis] for axis in axes] if isinstance(e, dict) else [e] for e in elements]
    return [[tokens if isinstance(tokens, list) else [tokens] for tokens in row] for row in rows]


def packed(index: PackIndex, items: list[list[list[Any]]], pad: bool, padding: Any = None) -> list[list[list[Any]]]:
    """`[packs, A]` lists of tokens as the index lays them out, up to the capacity if `pad`."""
    pieces = index.pieces(np.arange(len(index)))
    packs: list[list[dict[int, Any]]] = [[{} for _ in index.rule.capacity] for _ in range(len(index))]
    for pack, item, begin, length, at in zip(*pieces, strict=True):
        for a, place in enumerate(packs[pack]):
            for j in range(length[a]):
                assert at[a] + j not in place
                place[at[a] + j] = items[item][a][begin[a] + j]
    sizes = index.rule.capacity
    whole = [[range(sizes[a]) if pad else range(max(p, default=-1) + 1) for a, p in enumerate(row)] for row in packs]
    zeros = [
        next((np.full_like(t[0], padding[a] if padding else 0).tolist() for t in column if t), 0)
        for a, column in enumerate(zip(*items, strict=True))
    ]
    return [[[p.get(j, zeros[a]) for j in whole[k][a]] for a, p in enumerate(row)] for k, row in enumerate(packs)]


def lengths_of(items: list[list[list[Any]]]) -> Any:
    return np.array([[len(tokens) for tokens in item] for item in items], np.int64)


@pytest.mark.parametrize("case", cases("lengths_reference"))
def test_lengths(case: Any) -> None:
    lengths, capacity = np.array(case["lengths"]), case["capacity"]
    assert lower_bound(lengths, capacity) == case["lower_bound_L2"]
    index = PackIndex(lengths, Rule(capacity))
    pieces = index.pieces(np.arange(len(index)))
    ours = [lengths[pieces.item[pieces.pack == k]].tolist() for k in range(len(index))]
    # Only equal lengths may differ, for they change places every epoch.
    assert ours == [lengths[bin_].tolist() for bin_ in case["bfd_bins_as_example_ids"]]
    assert index.report().lower_bound == case["lower_bound_L2"]

    first = PackIndex(lengths, Rule(capacity, method="first_fit"))
    pieces = first.pieces(np.arange(len(first)))
    assert [lengths[pieces.item[pieces.pack == k]].tolist() for k in range(len(first))] == case[
        "first_fit_bins_lengths"
    ]


TRL = {
    "bfd": {"overlong": "truncate_right"},
    "bfd_split": {"overlong": "split"},
    "wrapped": {"method": "concat_split"},
}


@pytest.mark.parametrize("case", named("trl_packing"))
def test_trl(case: Any) -> None:
    axes = list(case["input"])
    rows = list(zip(*(case["input"][axis] for axis in axes), strict=True))
    items = [list(row) for row in rows if row[0]]  # empty examples are left out
    rule = Rule((case["seq_length"],) * len(axes), **TRL[case["strategy"]])
    ours = packed(PackIndex(lengths_of(items), rule), items, pad=False)
    expected = [list(row) for row in zip(*(case["output"][axis] for axis in axes), strict=True)]
    if len(set(map(len, case["input"][axes[0]]))) < len(items):  # equal lengths may have changed places
        assert [list(map(len, pack)) for pack in ours] == [list(map(len, pack)) for pack in expected]
        assert sorted(t for pack in ours for t in pack[0]) == sorted(t for pack in expected for t in pack[0])
    else:
        assert ours == expected


@pytest.mark.parametrize("case", named("airio_packing"))
def test_airio(case: Any) -> None:
    sizes = case["feature_lengths"]
    axes = [axis for axis, size in sizes.items() if size > 0] if isinstance(sizes, dict) else [""]
    capacity = tuple(sizes[axis] for axis in axes) if isinstance(sizes, dict) else (sizes,)
    if case["packer"]["kind"] == "NoamPacker":
        rule = Rule(capacity, method="concat_split")
    else:
        open_bins = case["packer"]["num_partial_examples"]
        rule = Rule(capacity, method="first_fit", open_bins=open_bins, overlong="truncate_right")
    items = columns(case["input"], axes)
    index = PackIndex(lengths_of(items), rule, window=case["pool_size"], block=1)
    ours, expected = packed(index, items, pad=False), columns(case["output"], axes)
    if "max_fan_out" in case["id"]:  # packs beyond the size of a pool are lost there
        assert [pack for pack in ours if pack in expected] == expected
        assert sum(len(tokens) for (tokens,) in ours) == sum(len(tokens) for (tokens,) in items)
    else:
        assert ours == expected


@pytest.mark.parametrize("case", named("grain_fit_packing"))
def test_grain_fits(case: Any) -> None:
    axes = list(case["length_struct"])
    align = set(case.get("pack_alignment_struct", {"": 1}).values())
    rule = Rule(
        tuple(case["length_struct"].values()),
        method="best_fit" if "BestFit" in case["packer"] else "first_fit",
        open_bins=case["num_packing_bins"],
        flush="block",
        align=align.pop(),
        max_sequences=case.get("max_sequences_per_bin"),
    )
    items = columns(case["input"], axes)
    index = PackIndex(lengths_of(items), rule)
    assert packed(index, items, pad=True, padding=case.get("padding")) == columns(case["output"], axes)


@pytest.mark.parametrize("case", named("grain_concat_then_split"))
def test_grain_concat_then_split(case: Any) -> None:
    # A limit on metadata, of which each sequence has one, is a limit on sequences.
    rule = Rule(
        case["length_struct"]["observation"],
        method="concat_split",
        whole=case["whole"],
        max_sequences=case["length_struct"].get("index"),
    )
    items = columns(case["input"], [""])
    index = PackIndex(lengths_of(items).reshape(-1, 1), rule)
    assert packed(index, items, pad=True) == columns(case["output"], [""])
