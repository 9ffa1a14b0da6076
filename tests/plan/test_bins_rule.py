"""What is refused: rules, lengths, requests and saved plans."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest

from penstock.errors import ChecksumError, FormatError, PlanError, StateError
from penstock.plan.packing import PackIndex, Rule, lower_bound

LENGTHS = np.random.default_rng(0).integers(0, 100, 500)


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 0},
        {"capacity": ()},
        {"capacity": 1.5},
        {"capacity": True},
        {"capacity": (8, 1 << 41)},
        {"method": "worst_fit"},
        {"overlong": "cut"},
        {"flush": "none"},
        {"flush": "block"},
        {"open_bins": 3},
        {"open_bins": 0, "method": "first_fit"},
        {"align": 0},
        {"max_sequences": 0},
        {"seed": -1},
        {"head": 1},
        {"head": 8, "method": "concat_split"},
        {"whole": True},
        {"whole": 2, "method": "concat_split"},
    ],
)
def test_rules_that_are_refused(options: Any) -> None:
    with pytest.raises(PlanError, match=r"expected (Rule|open_bins|head)"):
        Rule(**({"capacity": 8} | options))


def test_a_rule_is_a_value() -> None:
    assert Rule(np.int64(8)) == Rule((8,)) == Rule([8])  # type: ignore[arg-type]
    assert repr(Rule(np.array([8, 4]))) == repr(Rule((8, 4)))  # type: ignore[arg-type]
    assert Rule(8, seed=1).seed_for("order") != Rule(8).seed_for("order")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, -1], r"got \[-1\] at item 1"),
        ([3, 9], r"got \[9\] at item 1; choose"),
        (np.array([1 << 63], np.uint64), "at item 0"),
        ([1.5], "integer lengths"),
        ([[[1]]], "integer lengths"),
        ([[1, 2]], "one axis for each"),
        (lambda item: item + 0.5, "integer lengths"),
        (lambda item: item[:-1], "integer lengths"),
    ],
)
def test_lengths_that_are_refused(lengths: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        len(PackIndex(lengths, Rule((8,)), n=1 if callable(lengths) else None))


def test_the_item_is_named_wherever_its_window_has_it() -> None:
    lengths = np.full(5000, 3)
    lengths[4321] = 9
    with pytest.raises(PlanError, match="at item 4321;"):
        len(PackIndex(lengths, Rule((8,)), window=256))


@pytest.mark.parametrize(
    "options", [{"window": 10, "block": 4}, {"window": 0}, {"block": 0}, {"keep": "disk"}, {"threads": 0}, {"n": 501}]
)
def test_settings_that_are_refused(options: Any) -> None:
    with pytest.raises(PlanError):
        PackIndex(LENGTHS, Rule((100,)), **options)
    with pytest.raises(PlanError, match="with a function"):
        PackIndex(lambda item: item, Rule((100,)))


def test_requests_that_are_refused() -> None:
    index = PackIndex(LENGTHS, Rule((100,)))
    for packs, epoch in (([-1], 0), ([len(index)], 0), ([0], -1), ([0, 1], [0, 1, 2])):
        with pytest.raises(PlanError):
            index.pieces(packs, epoch)
    with pytest.raises(PlanError, match="within 0 to 10"):
        lower_bound([11], 10)
    with pytest.raises(PlanError, match="axes"):
        lower_bound([[1, 2]], 10)


def test_a_plan_belongs_to_its_lengths_and_rule() -> None:
    data = PackIndex(LENGTHS, Rule((100,))).to_bytes()
    for lengths, rule in ((LENGTHS[:-1], Rule((100,))), (LENGTHS, Rule((101,))), (LENGTHS[::-1], Rule((100,)))):
        with pytest.raises(StateError, match="plan again"):
            PackIndex.from_bytes(data, lengths, rule)


@pytest.mark.parametrize("keep", ["memory", "recompute"])
def test_bytes_that_are_no_plan(keep: Any) -> None:
    data = PackIndex(LENGTHS, Rule((100,)), window=64, keep=keep).to_bytes()
    for place in range(0, len(data), 37):
        for bad in (data[:place], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
            with pytest.raises(FormatError):
                PackIndex.from_bytes(bad, LENGTHS, Rule((100,)))
    with pytest.raises(ChecksumError):
        PackIndex.from_bytes(data[:-1] + b"?", LENGTHS, Rule((100,)))


def forged(data: bytes, change: Any) -> bytes:
    """The plan with its header changed, under a checksum that is right."""
    magic, line, rest = data.split(b"\n", 2)
    header = json.loads(line)
    change(header)
    body = b"\n".join([magic, json.dumps(header).encode(), rest[:-4]])
    return body + zlib.crc32(body).to_bytes(4, "little")


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.pop("tally"),
        lambda h: h.pop("arrays"),
        lambda h: h.update(window="64"[:1]),
        lambda h: h["arrays"].update(first=["<i8", [1 << 60]]),
        lambda h: h["arrays"].update(first=["|O", [9]]),
        lambda h: h["arrays"].pop("cut"),
        lambda h: h["arrays"].update(slot=["<u2", [1]]),
    ],
)
def test_forged_headers(change: Any) -> None:
    data = PackIndex(LENGTHS, Rule((100,)), window=64, keep="memory").to_bytes()
    with pytest.raises((FormatError, StateError, PlanError)):
        PackIndex.from_bytes(forged(data, change), LENGTHS, Rule((100,)))


@pytest.mark.parametrize("overlong", ["truncate_left", "split", "own_pack"])
@pytest.mark.parametrize("method", ["best_fit_decreasing", "concat_split", "first_fit"])
def test_forged_numbers_never_leave_the_arrays(method: Any, overlong: Any) -> None:
    """Any byte of the arrays changed: refused, or another plan whose reads stay inside."""
    rule = Rule((60,), method, overlong=overlong)
    data = PackIndex(LENGTHS, rule, window=64, keep="memory").to_bytes()
    begin = data.index(b"\n", 20) + 1
    for place in range(begin, len(data) - 4, 53):
        body = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 : -4]
        try:
            index = PackIndex.from_bytes(body + zlib.crc32(body).to_bytes(4, "little"), LENGTHS, rule)
        except FormatError:
            continue
        item = index.pieces(np.arange(len(index))).item
        assert ((item >= 0) & (item < len(LENGTHS))).all()
