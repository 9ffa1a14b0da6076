"""`.npy` files as NumPy writes them, and such as it would not."""

import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from penstock.containers.npy import array_of, header_bytes, header_of
from penstock.errors import FormatError, UnsafeDataError
from tests.threads import taking_turns


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="<i2").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 4), ">f4"),
        np.array(3, "u1"),
        np.array([True, False]),
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"]),
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_are_what_numpy_wrote(array: np.ndarray[Any, Any], version: tuple[int, int]) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    found = array_of(file.getvalue(), path=None)
    assert found.dtype == array.dtype
    assert not found.flags.writeable or not found.size
    np.testing.assert_array_equal(found, array)
    for cut in (1, 50, len(file.getvalue()) - 1):
        if cut > 50 and not array.nbytes:
            continue
        with pytest.raises(FormatError):
            array_of(file.getvalue()[:cut], path=None)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i2', 'fortran_order': False, 'shape': (3, -1), }",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<i3', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<i2', 'fortran_order': 1, 'shape': (3,), }",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (True,), }",
        "{'descr': '<i2', 'fortran_order': False, 'shape': 3, }",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), 'more': 1, }",
        "{'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f4,<f4', 'fortran_order': False, 'shape': (3,), }",
        "['descr']",
        "{'descr': [], 'fortran_order': False, 'shape': (3,)}",
        "(" * 20_000,
        "1" * 60_000 + "x",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (__import__('os'),), }",
        "{'descr': '|V6', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (" + "1, " * 40 + "), }",
        "",
    ],
)
def test_headers_are_not_believed(header: str) -> None:
    raw = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + bytes(6)
    with pytest.raises(FormatError):
        array_of(raw, path="x.npy")
    flags = b"\x93NUMPY\1\0\x39\0{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }"
    assert len(flags) == 10 + 0x39
    assert array_of(flags + b"\1\0", path=None).tolist() == [True, False]
    with pytest.raises(UnsafeDataError, match="booleans"):
        array_of(flags + b"\1\2", path=None)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
@pytest.mark.parametrize("dtype", ["<f4", "|u1", "|S3", "<U2", ">i8"])
def test_headers_are_those_that_numpy_writes(dtype: str, shape: tuple[int, ...]) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype))
    assert file.getvalue().startswith(header_bytes(dtype, shape))
    assert array_of(header_bytes(dtype, shape) + np.zeros(shape, dtype).tobytes(), path=None).shape == shape


ROWS = [
    np.dtype([("a", "<f4"), ("pair", "<i8", (2,)), ("matrix", ">f8", (3, 3)), ("name", "<U16"), ("raw", "S3")]),
    np.dtype([("outer", [("True", "?"), ("L", "<i2", (0,))]), ("again", [("x", "<f8")], (2,))]),
]


@pytest.mark.parametrize("dtype", ROWS)
def test_rows_of_fields_are_read_where_they_are_asked_for(dtype: np.dtype[Any]) -> None:
    raw = header_bytes(dtype, (3,))
    header = header_of(raw, path=None, fields=True)
    assert (header.dtype, header.shape, header.fortran, header.offset) == (dtype, (3,), False, len(raw))
    with pytest.raises(FormatError, match="rows of the fields"):
        header_of(raw, path=None)


@pytest.mark.parametrize(
    "fields", ["[['a']]", "[('', '<f4')]", "[('a', '<f4'), ('a', '<f4')]", "[(1, '<f4')]", "[1]", "[[]]"]
)
def test_fields_are_not_believed(fields: str) -> None:
    header = f"{{'descr': {fields}, 'fortran_order': False, 'shape': (3,), }}".encode()
    with pytest.raises(FormatError):
        header_of(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header, path="x.npy", fields=True)


@pytest.mark.parametrize(
    "text",
    ["{'shape':(2,3),'fortran_order':True,'descr':'<f4'}", "{'descr':'<f4', 'fortran_order':True, 'shape':(2L, 3L)}"],
)
def test_other_writers_order_and_space_as_they_like(text: str) -> None:
    header = header_of(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode(), path=None)
    assert (header.dtype, header.shape, header.fortran) == (np.dtype("<f4"), (2, 3), True)


def test_threads_read_headers_at_a_time() -> None:
    """NumPy's own reader fails here before Python 3.13: `ast` has one counter of its depth for all threads."""
    raws = {shape: header_bytes(ROWS[0], (shape,)) for shape in range(2000)}

    def read(first: int) -> list[tuple[int, ...]]:
        return [header_of(raws[k % 2000], path=None, fields=True).shape for k in range(first, first + 2000)]

    with taking_turns(), ThreadPoolExecutor(3) as pool:
        for first, shapes in zip((0, 500, 1000), pool.map(read, (0, 500, 1000)), strict=True):
            assert shapes == [(k % 2000,) for k in range(first, first + 2000)]


def test_objects_are_read_where_they_are_asked_for() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}, None], object), allow_pickle=True)
    assert array_of(file.getvalue(), path=None, objects=True).tolist() == [{"a": 1}, None]
    with pytest.raises(FormatError, match=r"objects - in x\.npy"):
        array_of(file.getvalue(), path="x.npy")
    with pytest.raises(FormatError, match=r"expected object\[3\] as objects, got object\[2\]"):
        array_of(file.getvalue().replace(b"(2,)", b"(3,)"), path=None, objects=True)


def test_nothing_has_a_shape_that_there_can_be() -> None:
    with pytest.raises(FormatError, match="a shape that there can be"):
        array_of(header_bytes("<f8", (0, 1 << 62, 1 << 62)), path=None)
