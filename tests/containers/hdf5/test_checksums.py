from __future__ import annotations

import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.containers.hdf5.filters import decode, fletcher32
from penstock.containers.hdf5.messages import Filter
from penstock.errors import FormatError
from penstock.kernels import checksum
from penstock.kernels.checksum import lookup3


def test_lookup3_of_its_author() -> None:
    # the examples in Bob Jenkins' lookup3.c, driver5
    assert lookup3(b"") == 0xDEADBEEF
    assert lookup3(b"Four score and seven years ago") == 0x17770551


@given(st.binary(max_size=200))
def test_lookup3_compiled_equals_lookup3_in_python(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "PATIENCE", 1 << 60)
        expected = lookup3(data)
        patch.setattr(checksum, "PATIENCE", -1)
        assert lookup3(data) == expected


@pytest.mark.parametrize("size", [1, 2, 7, 360, 720, 721, 5000])
@pytest.mark.parametrize("value", ["zeros", "ones", "random"])
def test_fletcher32_as_libhdf5_takes_it(tmp_path: Path, size: int, value: str) -> None:
    makers = {"zeros": np.zeros, "ones": lambda n, t: np.full(n, 255, t)}
    data = makers[value](size, np.uint8) if value in makers else np.arange(size).astype(np.uint8) * 37
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        d = f.create_dataset("x", data=data, chunks=(size,), fletcher32=True)
        stored = d.id.read_direct_chunk((0,))[1]
    assert fletcher32(data.tobytes()).to_bytes(4, "little") == stored[-4:]


@given(st.binary(max_size=300), st.integers(1, 9))
def test_deflate_then_shuffle_is_undone(data: bytes, size: int) -> None:
    whole = len(data) // size * size
    planes = np.frombuffer(data, np.uint8, whole).reshape(-1, size).T.tobytes() if whole else b""
    stored = zlib.compress(planes + data[whole:])
    filters = (Filter(2, "shuffle", (size,)), Filter(1, "deflate", (4,)))
    assert decode(stored, filters, 0, len(data)) == data
    assert decode(data, filters, 3, len(data)) == data
    with pytest.raises(FormatError):
        decode(stored, filters, 0, len(data) + 1)


@given(st.binary(max_size=200))
def test_any_bytes_as_lzf_end(data: bytes) -> None:
    try:
        out = decode(data, (Filter(32000, "lzf", ()),), 0, 100)
    except (FormatError, IndexError):  # the latter is placed by the dataset
        return
    assert len(out) == 100
