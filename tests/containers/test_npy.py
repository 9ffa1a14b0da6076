"""`.npy` files as NumPy writes them, and such as it would not."""

import io
from typing import Any

import numpy as np
import pytest

from penstock.containers.npy import array_of, header_bytes
from penstock.errors import FormatError, UnsafeDataError


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
