"""Tensors, containers and times of others are data: equal to what PyTorch and Python make of them."""

from __future__ import annotations

import datetime
import io
import pickle
import zipfile
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest
import torch

from penstock.containers.pickle import load_saved, loads
from penstock.errors import FormatError, UnsafeDataError

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64")
BASE = torch.arange(24).reshape(4, 6)
TENSORS: dict[str, Any] = {
    **{name: (BASE % 2 if name == "bool" else BASE).to(getattr(torch, name)) for name in DTYPES},
    "transposed": BASE.T,
    "slice": BASE[1:3, ::2],
    "number": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "expanded": torch.ones(1, 3).expand(4, 3),
    "parameter": torch.nn.Parameter(torch.ones(2)),
}


def saved(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name: str) -> None:
    tensor = TENSORS[name]
    expected = tensor.detach().numpy()
    for found in (load_saved(saved(tensor)), loads(pickle.dumps(tensor)), loads(pickle.dumps(tensor, 2))):
        assert found.dtype == expected.dtype
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, expected)


def test_numbers_without_a_dtype_of_numpy_become_wider() -> None:
    tensor = torch.randn(5, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    for found in (load_saved(saved(tensor)), loads(pickle.dumps(tensor))):
        np.testing.assert_array_equal(found, tensor.float().numpy())


def test_values_of_a_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    found = load_saved(saved({"model": model.state_dict(), "step": 7, "shape": torch.Size([2, 3])}))
    assert (found["step"], found["shape"]) == (7, (2, 3))
    assert list(found["model"]) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(found["model"][name], tensor.numpy())


@pytest.mark.parametrize("protocol", range(6))
def test_containers_and_times(protocol: int) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=-2, minutes=-30), "here")
    times = [
        datetime.datetime(2024, 2, 29, 23, 59, 58, 123456),
        datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(2024, 11, 3, 1, 30, tzinfo=zone, fold=1 if protocol >= 4 else 0),
        datetime.date(1999, 12, 31),
        datetime.time(23, 1, 2, 3),
        datetime.timedelta(days=-1, seconds=3, microseconds=5),
    ]
    told = {"times": times, "last": deque([1, 2], maxlen=5), "empty": deque(), "ordered": OrderedDict(a=1)}
    counts: Any = defaultdict(list, {"a": [1]})
    found = loads(pickle.dumps({**told, "counts": counts}, protocol))
    assert found == {"times": times, "last": [1, 2], "empty": [], "ordered": {"a": 1}, "counts": {"a": [1]}}
    assert [type(value) for value in found.values()] == [list, list, list, dict, dict]


def changed(raw: bytes, name: str, make: Any) -> bytes:
    """A file of `torch.save` with another member of that name; None leaves the member out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            if not member.endswith(name):
                new.writestr(member, old.read(member))
            elif (data := make(old.read(member))) is not None:
                new.writestr(member, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("data/0", lambda _: None, "expected the storage '0', got none"),
        ("data/0", lambda raw: raw[:-1], "expected a storage of 12 bytes, got 11"),
        ("data.pkl", lambda _: None, "expected values and tensors"),
        ("data.pkl", lambda raw: raw.replace(b"FloatStorage", b"Tensor"), "nothing was imported or run"),
        ("data.pkl", lambda raw: raw.replace(b"torch._utils", b"os"), "nothing was imported or run"),
        ("data.pkl", lambda raw: raw.replace(b"K\x03\x85", b"K\x04\x85"), "within a storage of 3 values"),
        ("data.pkl", lambda raw: raw.replace(b"K\x03\x85", b"J\xff\xff\xff\xff\x85"), "within a storage of 3 values"),
        ("byteorder", lambda _: b"big", "little-endian"),
        ("version", lambda _: bytes(1_000_000), "more than there are bytes"),
    ],
)
def test_files_that_lie(name: str, make: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_saved(changed(saved(torch.ones(3)), name, make))


def test_programs_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(1, 2))
        archive.writestr("a/code/model.py", "import os")
    with pytest.raises(UnsafeDataError, match=r"a/code/model\.py"):
        load_saved(out.getvalue())
    with pytest.raises(UnsafeDataError, match="BINPERSID"):
        loads(b"\x80\x02K\x01Q.")
    for raw in (saved(torch.ones(3))[:-5], b"", b"PK"):
        with pytest.raises(FormatError, match=r"torch\.save"):
            load_saved(raw)
    with pytest.raises(UnsafeDataError, match="storage of PyTorch"):
        loads(pickle.dumps(torch.ones(3)).replace(b"FloatStorage", b"FancyStorage"))
