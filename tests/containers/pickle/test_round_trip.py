"""Values through `pickle.dumps`, every protocol, and back: equal to what `pickle.loads` makes of them."""

from __future__ import annotations

import collections
import math
import pickle
import pickletools
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from penstock.containers.pickle import Trajectory, load, loads
from penstock.errors import DataError, FormatError

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(1 << 2000), 1 << 2000), st.floats(), st.text(), st.binary()
)
KEYS = st.one_of(st.text(), st.integers(), st.binary(), st.tuples(st.integers(), st.text()))
VALUES = st.recursive(
    st.one_of(ATOMS, st.complex_numbers(), st.sets(KEYS), st.frozensets(KEYS), st.binary().map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(KEYS, inner),
        st.dictionaries(st.text(), inner).map(collections.OrderedDict),
    ),
    max_leaves=20,
)
DTYPES = st.one_of(
    hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(sizes=(64, 128)), hnp.byte_string_dtypes(), hnp.unicode_string_dtypes(),
    hnp.datetime64_dtypes(), hnp.timedelta64_dtypes(),
)  # fmt: skip
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))


def plain(value: Any) -> Any:
    """`value` with ordered dicts as dicts and NaNs that are equal to themselves."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(inner) for inner in value)
    return "nan" if isinstance(value, float | complex) and value != value else value  # noqa: PLR0124


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(value=VALUES)
def test_plain_values(protocol: int, value: Any) -> None:
    data = pickle.dumps(value, protocol)
    ours = loads(data)
    assert plain(ours) == plain(pickle.loads(data))
    assert repr(plain(loads(pickletools.optimize(data)))) == repr(plain(ours))
    assert type(ours) is (dict if isinstance(value, dict) else type(value))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(array=ARRAYS, axes=st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_arrays(protocol: int, array: np.ndarray, axes: Any) -> None:
    order = list(range(array.ndim))
    axes.shuffle(order)
    for given_array in (
        array,
        np.asfortranarray(array),
        array.transpose(order),
        array[..., ::2] if array.ndim else array,
    ):
        data = pickle.dumps(given_array, protocol)
        ours, theirs = loads(data), pickle.loads(data)
        native = ours.astype(theirs.dtype)  # NumPy may swap bytes as it reads; ours stay a view of the pickle
        assert ours.dtype == array.dtype
        assert theirs.dtype.newbyteorder("=") == ours.dtype.newbyteorder("=")
        assert (native.shape, native.tobytes()) == (theirs.shape, theirs.tobytes())
        assert ours.strides == theirs.strides or 0 in ours.shape
        assert not ours.flags.writeable


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(array=hnp.arrays(DTYPES, ()))
def test_scalars(protocol: int, array: np.ndarray) -> None:
    data = pickle.dumps(array[()], protocol)
    ours, theirs = loads(data), pickle.loads(data)
    assert type(ours) is type(theirs)
    assert (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_object_arrays(protocol: int) -> None:
    array = np.empty((2, 2), object)
    array[0, 0], array[0, 1], array[1, 0] = {"a": np.arange(3)}, [1, 2], "text"
    data = pickle.dumps(array.T, protocol)
    for result in (loads(data), pickle.loads(data)):
        assert result.shape == (2, 2)
        assert result[0, 0]["a"].tolist() == [0, 1, 2]
        assert (result[1, 0], result[0, 1], result[1, 1]) == ([1, 2], "text", None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shared_objects_stay_shared(protocol: int) -> None:
    inner = [1]
    ours = loads(pickle.dumps([inner, inner, {"a": inner}], protocol))
    assert ours[0] is ours[1] is ours[2]["a"]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"S'a\\x41\\n\\'\\\\'\n.", "aA\n'\\"),  # Python 2 wrote str in three ways
        (b'S"\\xff"\n.', b"\xff"),
        (b"U\x02ab.", "ab"),
        (b"T\x01\x00\x00\x00\xe9.", b"\xe9"),
        (b"I01\n.", True),
        (b"I-7\n.", -7),
        (b"L12L\n.", 12),
        (b"F-1e3\n.", -1000.0),
        (b"(I1\nI2\nd.", {1: 2}),
        (b"(I1\nI2\nl.", [1, 2]),
        (b"(K\x01(K\x0200t.", (1,)),  # POP takes a value, then the mark
        (b"]2\x86.", ([], [])),
    ],
)
def test_opcodes_that_nobody_writes_any_more(data: bytes, value: Any) -> None:
    assert loads(data) == value
    if b"\xff" not in data and b"\xe9" not in data and b"\\xff" not in data:
        assert pickle.loads(data) == value


def test_an_array_of_python_2_is_bytes_in_an_8_bit_string() -> None:
    head = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\ntcnumpy\ndtype\n"
    body = b"(S'i2'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
    assert loads(head + body + b"S'\\x01\\x00\\xff\\xff'\ntb.").tolist() == [1, -1]
    assert loads(head + body + b"S'abcd'\ntb.").tolist() == [25185, 25699]


def test_memoryviews_and_bytearrays_are_read_too() -> None:
    data = pickle.dumps(np.arange(5))
    for form in (memoryview(data), bytearray(data), memoryview(b"xx" + data)[2:]):
        assert loads(form).tolist() == [0, 1, 2, 3, 4]


def test_trust_has_to_be_said() -> None:
    data = pickle.dumps(math.sqrt)
    with pytest.raises(FormatError, match=r"math\.sqrt.*trust=\"pickle\" - at byte \d+ of the pickle in demo\.pkl"):
        load(data, path="demo.pkl")
    assert load(data, path="demo.pkl", trust="pickle") is math.sqrt
    with pytest.raises(DataError, match="expected trust to be False or 'pickle', got True"):
        load(data, path="demo.pkl", trust=True)  # type: ignore[arg-type]
    assert load(pickle.dumps(1), path="demo.pkl") == 1


def test_trajectories_are_made_by_their_names() -> None:
    assert Trajectory(1, 2, infos=[]).infos == []
    with pytest.raises(AttributeError):
        Trajectory(1, 2).acts = 3  # type: ignore[misc]
