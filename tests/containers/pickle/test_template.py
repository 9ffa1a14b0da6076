"""A template says what the interpreter would say, of every member, or nothing."""

from __future__ import annotations

import pickle
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from penstock.containers.pickle import PickleTemplate, loads
from penstock.errors import FormatError, UnsafeDataError

DTYPES = st.one_of(
    hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(sizes=(64, 128)), hnp.byte_string_dtypes(), hnp.datetime64_dtypes(),
)  # fmt: skip
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)


def learn(value: Any, protocol: int = 4) -> PickleTemplate:
    template = PickleTemplate.learn(pickle.dumps(value, protocol))
    assert template is not None
    return template


@pytest.mark.parametrize("protocol", [3, 4, 5])
@given(data=st.data(), dtype=DTYPES, shape=SHAPES, fortran=st.booleans(), scalar=st.booleans())
def test_equal_to_the_interpreter(
    protocol: int, data: st.DataObject, dtype: np.dtype, shape: tuple[int, ...], fortran: bool, scalar: bool
) -> None:
    first, second = (data.draw(hnp.arrays(dtype, () if scalar else shape)) for _ in range(2))
    if fortran and not scalar:
        first, second = np.asfortranarray(first), np.asfortranarray(second)
    member, other = (pickle.dumps(value[()] if scalar else value, protocol) for value in (first, second))
    template = PickleTemplate.learn(member)
    if template is None:
        assert dtype.kind == "S" if scalar else first.nbytes == 1  # as long as the b"b" in every array
        return
    assert template.scalar is scalar
    for one in (member, other, memoryview(other)):
        found, truth = template.match(one), loads(one)
        if found is None:
            assert len(one) != template.length or one[: template.offset] != template.prefix
        else:
            assert (found.dtype.newbyteorder("="), found.shape) == (truth.dtype.newbyteorder("="), truth.shape)
            assert found.astype(truth.dtype).tobytes() == truth.tobytes()
            assert not found.flags.writeable


@given(member=st.binary(min_size=1, max_size=400), at=st.integers(0, 400), value=st.integers(0, 255))
def test_a_changed_byte_matches_in_the_payload_only(member: bytes, at: int, value: int) -> None:
    data = bytearray(pickle.dumps(np.frombuffer(member + b"xx", np.uint8), protocol=4))
    template = PickleTemplate.learn(bytes(data))
    assert template is not None
    at %= len(data)
    unchanged = data[at] == value
    data[at] = value
    found = template.match(data)
    if unchanged or template.offset <= at < template.offset + template.nbytes:
        assert found is not None
        assert found.tobytes() == loads(data).tobytes()
    else:
        assert found is None


def test_booleans_that_are_none_do_not_match() -> None:
    member = bytearray(pickle.dumps(np.bool_(False), protocol=4))
    template = learn(np.bool_(True))
    assert template.match(member) == np.bool_(False)
    member[template.offset] = 2
    assert template.match(member) is None
    with pytest.raises(UnsafeDataError, match="booleans of 0 or 1"):
        loads(member)


def test_a_scalar_of_foreign_byte_order_keeps_it() -> None:
    native = pickle.dumps(np.float64(0), protocol=3)
    foreign = native.replace(b"X\x01\x00\x00\x00<", b"X\x01\x00\x00\x00>")
    template = PickleTemplate.learn(foreign)
    assert template is not None
    assert template.dtype == np.dtype(">f8")
    swapped = foreign.replace(bytes(8), np.array(1.5, ">f8").tobytes())
    assert template.match(swapped) == loads(swapped) == pickle.loads(swapped) == 1.5


@pytest.mark.parametrize(
    "value",
    [
        1,
        "text",
        b"bytes",
        None,
        [np.zeros(3)],
        {"a": np.zeros(3)},
        np.array(["u"]),
        np.str_("u"),
        np.bytes_(b"b"),
        np.zeros(0),
        np.array([None]),
    ],
    ids=repr,
)
def test_what_has_no_template(value: Any) -> None:
    assert PickleTemplate.learn(pickle.dumps(value, protocol=4)) is None
    assert PickleTemplate.learn(pickle.dumps(value, protocol=2)) is None


def test_payloads_that_are_used_twice_are_not_learnt() -> None:
    plain = pickle.dumps(np.zeros(4, np.uint8), protocol=3)
    assert PickleTemplate.learn(plain) is not None
    payload = b"C\x04\x00\x00\x00\x00"
    assert payload in plain
    doubled = plain.replace(payload, payload + b"20")
    twice = plain.replace(payload, payload + b"0" + payload)
    fetched = plain.replace(payload, payload + b"q\xf0h\xf00")
    by_number = plain.replace(payload, payload + b"p240\n")
    for data in (doubled, twice, fetched, by_number):
        assert loads(data).tolist() == pickle.loads(data).tolist() == [0, 0, 0, 0]
        assert PickleTemplate.learn(data) is None


def test_learning_refuses_what_reading_refuses() -> None:
    with pytest.raises(UnsafeDataError, match="os"):
        PickleTemplate.learn(b"cos\nsystem\n.")
    with pytest.raises(FormatError, match="expected STOP"):
        PickleTemplate.learn(b"N")
