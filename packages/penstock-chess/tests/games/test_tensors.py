"""Planes, policies and values against what the originals gave, bit for bit, by every path."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from games.reference import frames as reference
from penstock.errors import DataError
from penstock_chess import expansion
from penstock_chess.compact import encode
from penstock_chess.expansion import expand, levels
from penstock_chess.planes import bit_planes, from_bits, input_formats, planes, rule50_divisors
from penstock_chess.policy import probabilities
from penstock_chess.tensors import FIVE, THREE, ChessTensors
from penstock_chess.values import outcomes, values

GZ = ("gz/training.700001.gz", "gz/training.700027.gz")
FORMATS = (2, 3, 4, 5, 132, 133)
FILES = {
    "gz_raw": GZ,
    "tar_raw": ("tar/training-run1-test80-20240101-0042.tar",),
    "v7_raw": ("v7/training.700001.gz", "v7/training.700027.gz"),
    **{f"format_{n}": (f"formats/fmt{n}_training.700028.gz", f"formats/fmt{n}_training.700000.gz") for n in FORMATS},
    **{f"old_v{n}": (f"old/v{n}.gz",) for n in (3, 4, 5)},
}
OURS = {
    **{f"loader_{name}": name for name in ("planes", "values")},
    **{f"parser_{name}": name for name in ("planes", "winner", "best_q", "plies_left")},
    "loader_probs": "probabilities",
    "parser_probs": "probabilities",
}
ALL = tuple(dict.fromkeys(THREE + FIVE))


def same(actual: Any, expected: Any) -> None:
    """Bit for bit."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()


def read(path: Path) -> dict[str, Any]:
    """What the originals gave; how the rows split over chunks is left out."""
    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files if not name.startswith("chunk_")}
    assert found
    return found


@pytest.mark.parametrize("name", FILES)
def test_what_the_originals_gave(name: str, golden: Path, frames: Any) -> None:
    rows = frames(*FILES[name])
    expected = read(golden / "expected" / f"{name}.npz")
    for given in (rows, encode(rows)):
        loader = ChessTensors(input_format="reference").decode(given)
        parser = ChessTensors(outputs=FIVE).decode(given)
        parser["plies_left"] = parser["plies_left"][:, 0]
        for theirs, array in expected.items():
            same((loader if theirs.startswith("loader") else parser)[OURS[theirs]], array)


def test_the_loaders_planes_are_wrong_for_other_formats(frames: Any) -> None:
    rows = frames(*FILES["format_132"])
    wrong = np.unique(np.nonzero(planes(rows) != planes(rows, input_format="reference"))[1])
    assert set(wrong) <= set(range(104, 111))
    assert {104, 109} <= set(wrong)


@pytest.mark.parametrize("which", ["mixed", "garbage"])
@pytest.mark.parametrize("input_format", ["record", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "bits"])
def test_every_path_gives_the_same_bits(
    which: str, input_format: Any, dtype: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = request.getfixturevalue(which)
    wanted = ChessTensors(dtype, ALL, input_format)
    compiled = wanted.decode(rows)
    compact = wanted.decode(encode(rows))
    for name in ("expand_frames", "expand_rows"):
        monkeypatch.setattr(expansion, name, getattr(reference, name))
    for got in (compact, wanted.decode(rows), wanted.decode(encode(rows))):
        assert list(got) == list(compiled) == list(wanted.forms)
        for name, array in got.items():
            same(array, compiled[name])


def test_a_batch_may_mix_formats(mixed: Any) -> None:
    together = planes(mixed)
    assert len(set(input_formats(mixed).tolist())) == 7
    assert input_formats(encode(mixed)).tolist() == input_formats(mixed).tolist()
    for i in range(len(mixed)):
        same(together[i : i + 1], planes(mixed[i : i + 1]))


def test_dtypes_agree(mixed: Any) -> None:
    wide = planes(mixed)
    same(planes(mixed, "float16"), wide.astype(np.float16))
    small = planes(mixed, "uint8")
    assert np.all(small[:, 109, 0, 0] == mixed[:, 8277])
    back = small.astype(np.float32)
    back[:, 109] /= rule50_divisors(mixed)[:, None, None]
    same(back, wide)
    same(from_bits(bit_planes(mixed)), wide)
    same(from_bits(bit_planes(encode(mixed), input_format="reference")), planes(mixed, input_format="reference"))


def test_divisors_by_format(mixed: Any) -> None:
    hecto = np.isin(input_formats(mixed), (4, 5, 132, 133))
    assert rule50_divisors(mixed).tolist() == np.where(hecto, 100, 99).tolist()
    assert set(rule50_divisors(encode(mixed), input_format="reference").tolist()) == {99}


def test_planes_are_what_the_record_says() -> None:
    """Without the originals: one position made by hand for each kind of plane."""
    rows = np.zeros((3, 8396), np.uint8)
    rows[:, 4] = 1, 2, 132
    rows[:, 7440] = 0b1000_0001  # a1 and h1 in plane 0
    rows[:, 8272:8276] = 1, 0, 1, 1
    rows[1:, 8272:8276] = 1, 128, 2, 64
    rows[:, 8276] = 1
    rows[:, 8277] = 99
    rows[2, 8278] = 128
    out = planes(rows)
    assert np.argwhere(out[:, 0]).tolist() == [[i, 0, file] for i in range(3) for file in (0, 7)]
    assert out[0, 104:, 3, 3].tolist() == [1, 0, 1, 1, 1, 1, 0, 1]
    for i in (1, 2):
        assert np.argwhere(out[i, 104]).tolist() == [[0, 0], [7, 1]]
        assert np.argwhere(out[i, 105]).tolist() == [[0, 7], [7, 6]]
        assert not out[i, 106:108].any()
    assert out[1, 108:, 3, 3].tolist() == [1, 1, 0, 1]
    assert np.argwhere(out[2, 108]).tolist() == [[7, 0]]
    assert out[2, 109:, 3, 3].tolist() == [np.float32(0.99), 1, 1]


def test_numbers_beyond_a_flag_fill_planes() -> None:
    rows = np.zeros((1, 8396), np.uint8)
    rows[0, 4], rows[0, 8272], rows[0, 8276] = 1, 200, 255
    assert planes(rows)[0, [104, 108], 0, 0].tolist() == [200, 255]


def test_every_count_is_divided_in_float32() -> None:
    count = np.arange(256)
    same(levels("f4").view(np.float32)[1], (count / 99).astype(np.float32))
    same(levels("f4").view(np.float32)[2], (count / 100).astype(np.float32))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "bits"])
def test_any_number_of_positions(n: int, dtype: Any, mixed: Any) -> None:
    wanted = ChessTensors(dtype, ALL)
    whole = wanted.decode(encode(mixed[:n]))
    pieces = [wanted.decode(mixed[i : i + 1]) for i in range(n)]
    for name, (shape, form) in wanted.forms.items():
        same(whole[name], np.concatenate([np.empty((0, *shape), form), *(piece[name] for piece in pieces)]))


@pytest.mark.parametrize(("dtype", "n"), [("float32", 300), ("float16", 600), ("uint8", 1200), ("uint8", 1171)])
def test_batches_that_are_written_around_the_cache(dtype: Any, n: int, mixed: Any, garbage: Any) -> None:
    rows = np.resize(np.concatenate([mixed, garbage]), (n, 8396))
    parts = np.concatenate([planes(rows[i : i + 100], dtype) for i in range(0, n, 100)])
    same(planes(rows, dtype), parts)
    same(planes(encode(rows), dtype), parts)


@pytest.mark.parametrize("shifts", [(0, 0), (4, 0), (0, 4), (0, 8), (8, 8), (16, 24), (32, 16)])
def test_buffers_of_any_alignment(mixed: Any, garbage: Any, shifts: tuple[int, int]) -> None:
    """Also of policies that are written around the cache with the planes: sparse, and stored whole."""
    rows = np.resize(np.concatenate([mixed, garbage]), (301, 8396))
    wanted = ChessTensors(outputs=("planes", "probabilities"), input_format="reference")
    pieces = [wanted.decode(rows[i : i + 100]) for i in range(0, len(rows), 100)]
    out: dict[str, Any] = {}
    for shift, (name, (shape, dtype)) in zip(shifts, wanted.forms.items(), strict=True):
        held = np.empty(301 * int(np.prod(shape)) * dtype.itemsize + 128, np.uint8)
        begin = -held.ctypes.data % 64 + shift
        out[name] = held[begin : held.size - 128 + begin].view(dtype).reshape(301, *shape)
    for given in (rows, encode(rows)):
        for array in out.values():
            array.fill(3)
        expand(given, planes=out["planes"], probabilities=out["probabilities"], input_format="reference")
        for name, array in out.items():
            same(array, np.concatenate([piece[name] for piece in pieces]))


def test_buffers_are_used_again_whatever_is_in_them(mixed: Any, garbage: Any) -> None:
    wanted = ChessTensors("float16", ALL)
    buffers = wanted.buffers(28)
    wanted.decode(encode(garbage), buffers)
    got = wanted.decode(encode(mixed[:28]), buffers)
    expected = wanted.decode(mixed[:28])
    for name, array in got.items():
        assert array is buffers[name]
        same(array, expected[name])


def test_threads_may_decode_at_once(mixed: Any, garbage: Any) -> None:
    batches = [np.concatenate([mixed[i:], garbage, mixed[:i]]) for i in range(16)]
    wanted = ChessTensors()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda batch: wanted.decode(encode(batch)), batches))
    for batch, got in zip(batches, together, strict=True):
        for name, array in wanted.decode(batch).items():
            same(got[name], array)


def test_tables_cannot_be_spoilt() -> None:
    with pytest.raises(ValueError, match="read-only"):
        levels("f4")[0, 1] = 7


def test_rows_need_not_be_contiguous(mixed: Any) -> None:
    wide = np.zeros((2 * len(mixed), 9000), np.uint8)
    wide[::2, 100:8496] = mixed
    same(planes(wide[::2, 100:8496]), planes(mixed))
    same(values(wide[::2, 100:8496]), values(mixed))
    assert encode(wide[::2, 100:8496]).blobs() == encode(mixed).blobs()


def test_policies_and_values_keep_nan_and_zeros(garbage: Any) -> None:
    rows = garbage.copy()
    odd = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000], "<u4")
    rows[:, 8:24] = odd.view(np.uint8)
    rows[:, 8328:8336] = odd[:2].view(np.uint8)
    for given in (rows, encode(rows)):
        assert np.all(probabilities(given).view(np.uint32)[:, :4] == odd)
        assert np.all(values(given).view(np.uint32)[:, 3, :2] == odd[:2])
        assert np.all(values(given).view(np.uint32)[:, 5, 2] == 0x7FC00000)


def test_outcomes_of_odd_values_do_not_warn() -> None:
    odd = np.array([[np.inf, np.inf, 0], [-np.inf, 0, np.nan], [3e38, -3e38, 0]], np.float32)
    targets = outcomes(np.broadcast_to(odd[:, None], (3, 6, 3)))
    expected = [[np.nan, np.inf, -np.inf], [-np.inf, 0, np.inf], [3e38, -3e38, 0]]
    np.testing.assert_array_equal(targets.winner, np.array(expected, np.float32))
    np.testing.assert_array_equal(targets.best_q, targets.winner)


@pytest.mark.parametrize("number", [0, 6, 131, 134, 2**32 - 1])
def test_unknown_input_formats_are_refused(number: int, mixed: Any) -> None:
    rows = mixed[:3].copy()
    rows[1, 4:8].view("<u4")[0] = number
    for given in (rows, encode(rows)):
        with pytest.raises(DataError, match=f"expected an input format of .* got {number} in row 1"):
            planes(given)
        assert planes(given, input_format="reference").shape == (3, 112, 8, 8)


def test_wrong_arguments_are_named(mixed: Any) -> None:
    with pytest.raises(DataError, match=r"\[n, 8396\] uint8 .* got \[112, 8356\] uint8"):
        planes(mixed[:, :8356])
    with pytest.raises(DataError, match="got 'int8'"):
        planes(mixed, "int8")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="input_format to be one of"):
        planes(mixed, input_format="loader")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="expected out of float16, got float32"):
        planes(mixed, "float16", np.empty((112, 112, 8, 8), np.float32))
    with pytest.raises(DataError, match="contiguous: False"):
        planes(mixed, out=np.empty((112, 112, 8, 16), np.float32)[..., ::2])
    with pytest.raises(DataError, match=r"expected values as \[112, 6, 3\]"):
        values(mixed, np.empty((111, 6, 3), np.float32))
    with pytest.raises(DataError, match="float32, float16, uint8 or uint64, got int16"):
        expand(mixed, planes=np.empty((112, 112, 8, 8), np.int16))
    with pytest.raises(DataError, match="expected values"):
        outcomes(np.zeros((2, 18), np.float32))
    with pytest.raises(DataError, match="words and"):
        from_bits(bit_planes(mixed)._replace(fill=np.zeros((1, 8), np.float32)))


def test_wanted_tensors_are_checked(mixed: Any) -> None:
    with pytest.raises(DataError, match="each once"):
        ChessTensors(outputs=("planes", "planes"))
    with pytest.raises(DataError, match="each once"):
        ChessTensors(outputs=("moves",))
    with pytest.raises(DataError, match="expected planes to be one of"):
        ChessTensors("float64")  # type: ignore[arg-type]
    buffers = ChessTensors().buffers(3)
    with pytest.raises(DataError, match=r"buffers\(112\) makes them"):
        ChessTensors().decode(mixed, buffers)
    with pytest.raises(DataError, match=r"buffers\(3\) makes them"):
        ChessTensors(outputs=("values",)).decode(mixed[:3], buffers)
