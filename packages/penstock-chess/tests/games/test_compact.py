"""Compact rows give back every byte of every frame, and nothing else passes for one."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.reference import frames as reference
from penstock.core.ragged import Ragged
from penstock.errors import DataError
from penstock_chess.compact import ROOM, decode, encode
from penstock_chess.formats.lc0.upgrade import records, upgraded
from penstock_chess.kernels import rows as kernels
from penstock_chess.kernels.layout import ILLEGAL, LARGEST, SPARSE_MOVES
from penstock_chess.planes import input_formats, planes

WIDTH = 8396


def back(frames: Any) -> None:
    """There and back by the kernel and by its reference, whose rows are the same."""
    rows = []
    for module in (kernels, reference):
        out, offsets = np.empty(len(frames) * LARGEST + 8, np.uint8), np.zeros(len(frames) + 1, np.int64)
        assert module.encode_rows(frames, False, np.arange(len(frames)), 0, out, offsets) == len(frames)
        rows.append((out[: offsets[-1]].tobytes(), offsets.tolist()))
        again = np.full((len(frames), WIDTH), 0xA5, np.uint8)
        assert module.decode_rows(out[: offsets[-1]], offsets, again) == -1
        np.testing.assert_array_equal(again, frames)
    assert rows[0] == rows[1]


parts = st.one_of(
    st.just(np.zeros(WIDTH, np.uint8)),
    st.just(np.full(WIDTH, 255, np.uint8)),
    st.integers(0, 2**32).map(lambda seed: np.random.default_rng(seed).integers(0, 256, WIDTH, np.uint8)),
)


@st.composite
def odd_frames(draw: st.DrawFn) -> Any:
    """Frames regular in some parts and arbitrary in others."""
    frame = draw(parts).copy()
    if draw(st.booleans()):
        policy = np.full(1858, ILLEGAL, "<u4")
        count = draw(st.sampled_from([0, 1, 27, 218, SPARSE_MOVES - 1, SPARSE_MOVES, SPARSE_MOVES + 1, 1857, 1858]))
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        policy[rng.choice(1858, count, replace=False)] = rng.integers(0, 2**32, count, np.uint32)
        frame[8:7440] = policy.view(np.uint8)
    if draw(st.booleans()):
        history = np.tile(np.random.default_rng(draw(st.integers(0, 9))).integers(0, 256, 104, np.uint8), 8)
        history[draw(st.integers(0, 831))] ^= 1
        frame[7440:8272] = history
    if draw(st.booleans()):
        frame[8364:] = 0
        frame[8364:][draw(st.integers(0, 31))] = draw(st.integers(0, 1))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, WIDTH - 1), st.integers(0, 255)), max_size=5)):
        frame[at] = byte
    return frame


@settings(max_examples=150)
@given(st.lists(odd_frames(), max_size=3))
def test_any_bytes_come_back(frames: Any) -> None:
    back(np.array(frames, np.uint8).reshape(-1, WIDTH))


@settings(max_examples=30)
@given(st.binary(max_size=1000), st.integers(0, WIDTH))
def test_any_string_of_bytes_comes_back(text: bytes, at: int) -> None:
    back(np.frombuffer((text * 9)[:at].ljust(WIDTH, text[:1] or bytes(1)), np.uint8).reshape(1, WIDTH))


def test_games_come_back_small(frames: Any) -> None:
    rows = frames("gz/training.700001.gz", "gz/training.700027.gz", "v7/training.700001.gz", "old/v4.gz")
    compact = encode(rows)
    np.testing.assert_array_equal(decode(compact), rows)
    assert compact.lengths.mean() < 480
    assert np.all(compact.lengths % 8 == 0)


@pytest.mark.parametrize("missing_st", ["zero", "nan"])
@pytest.mark.parametrize("q_st", [0.0, -0.0, 1.0, np.nan, 1e-45])
def test_records_of_version_6_give_the_rows_of_their_frames(golden: Any, missing_st: Any, q_st: float) -> None:
    data = bytearray(gzip.decompress((golden / "gz" / "training.700001.gz").read_bytes()))
    data[8352:8356] = np.float32(q_st).tobytes()
    rows, version = records(bytes(data))
    assert (version, rows.shape[1]) == (6, 8356)
    frames = upgraded(bytes(data), missing_st)
    for places in (None, [0], [5, 0, 5]):
        made, expected = (encode(given, places, missing_st=missing_st) for given in (rows, frames))
        assert made.values.tobytes() == expected.values.tobytes()
        assert made.offsets.tolist() == expected.offsets.tolist()


def test_every_bit_of_a_frame_counts(mixed: Any) -> None:
    """Each byte changed alone: the row changes, and comes back."""
    many = np.repeat(mixed[:1], WIDTH, axis=0)
    many[np.arange(WIDTH), np.arange(WIDTH)] ^= 0x10
    compact = encode(many)
    np.testing.assert_array_equal(decode(compact), many)
    assert len(set(compact.blobs())) == WIDTH


@pytest.mark.parametrize("places", [[], [3], [5, 0, 5], np.arange(112)[::-3]])
def test_selected_places(places: Any, mixed: Any) -> None:
    np.testing.assert_array_equal(decode(encode(mixed, places)), mixed[np.asarray(places, int)])


@pytest.mark.parametrize("n", [0, 1, 2, 70])
def test_rows_that_need_more_room_than_was_asked_for(n: int, garbage: Any) -> None:
    rows = np.resize(garbage, (n, WIDTH))
    compact = encode(rows)
    assert compact.lengths.tolist() == [LARGEST] * n
    assert n < 2 or LARGEST > ROOM
    np.testing.assert_array_equal(decode(compact), rows)


def test_nothing_is_written_behind_the_room(garbage: Any, mixed: Any) -> None:
    for rows in (garbage, mixed):
        for module in (kernels, reference):
            out, offsets = np.full(3 * LARGEST, 0xEE, np.uint8), np.zeros(len(rows) + 1, np.int64)
            done = module.encode_rows(rows, False, np.arange(len(rows)), 0, out[: 2 * LARGEST + 8], offsets)
            assert 2 <= done < len(rows)
            assert np.all(out[2 * LARGEST + 8 :] == 0xEE)


def test_out_is_checked(mixed: Any) -> None:
    rows = encode(mixed)
    out = np.empty((len(mixed), WIDTH), np.uint8)
    assert decode(rows, out) is out
    with pytest.raises(DataError, match="expected out as"):
        decode(rows, np.empty((1, WIDTH), np.uint8))
    with pytest.raises(DataError, match="places within 0:112, got 112 to 112"):
        encode(mixed, [112])
    with pytest.raises(DataError, match="places within 0:112, got -1 to 0"):
        encode(mixed, [0, -1])
    with pytest.raises(DataError, match="integers"):
        encode(mixed, [0.5])
    with pytest.raises(DataError, match="uint8"):
        encode(mixed.astype(np.int16))
    with pytest.raises(DataError, match="expected compact rows of uint8"):
        decode(Ragged(rows.values.view(np.int8), rows.offsets))
    with pytest.raises(DataError, match="fewer than 8"):
        input_formats(Ragged.from_bytes([b"abc"]))


def damaged(row: bytes) -> dict[str, bytes]:
    """Rows that are none, by what is wrong with them."""

    def at(place: int, *bytes_: int) -> bytes:
        return row[:place] + bytes(bytes_) + row[place + len(bytes_) :]

    moves = int.from_bytes(row[22:24], "little")
    first = 120 + 8 * row[21] + 4 * moves
    return {
        "nothing": b"",
        "header cut": row[:119],
        "only the header": row[:120],
        "cut": row[:-8],
        "longer": row + bytes(8),
        "one more plane said": at(8, row[8] ^ 1),
        "one more plane counted": at(21, row[21] + 1),
        "more moves": at(22, 255, 255),
        "flag": at(116, 4),
        "layout": at(117, 2),
        "spare": at(118, 1),
        "dense": at(116, 1),
        "reserved": at(116, 2),
        "move outside": at(first + 2 * moves - 2, 0x42, 0x07),
        "move twice": at(first + 2, *row[first : first + 2]),
        "padding": row[:-1] + b"\1",
    }


def test_damaged_rows_are_refused(mixed: Any) -> None:
    row = next(blob for blob in encode(mixed).blobs() if int.from_bytes(blob[22:24], "little") % 4 == 1)
    for name, blob in damaged(row).items():
        rows = Ragged.from_bytes([row, blob])
        with pytest.raises(DataError, match=r"expected row 1 as `compact\.encode` makes it, got \d+ other bytes"):
            decode(rows)
        for input_format in ("record", "reference"):
            with pytest.raises(DataError, match="expected row 1 as"):
                planes(rows, input_format=input_format)
        assert decode(Ragged.from_bytes([row, row])).shape == (2, WIDTH), name


@settings(max_examples=200)
@given(
    st.integers(0, 111), st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=4), st.integers(0, 16)
)
def test_the_reference_refuses_the_same(mixed: Any, i: int, changes: list[tuple[int, int]], cut: int) -> None:
    row = np.frombuffer(encode(mixed, [i]).values.tobytes(), np.uint8).copy()
    row = row[: len(row) - cut]
    for at, byte in changes:
        row[at % len(row)] = byte
    offsets = np.array([0, len(row)])
    results = []
    for module in (kernels, reference):
        out = np.zeros((1, WIDTH), np.uint8)
        bad = module.decode_rows(row, offsets, out)
        results.append((bad, module.check_rows(row, offsets, 0), bytes(0) if bad >= 0 else out.tobytes()))
    assert results[0] == results[1]
