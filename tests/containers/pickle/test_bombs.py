"""Pickles that grow without end: in depth, in memory, in time, or only once somebody walks through them."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

import numpy as np
import pytest

from penstock.containers.pickle import Limits, loads
from penstock.errors import UnsafeDataError

Refuse = Callable[..., str]
OBJECTS = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR(K\x01K\x01\x85"
    b"cnumpy\ndtype\n(U\x02O8\x89\x88tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb\x89]"
)
DEEPEST = 2 * 10**5  # enough to break every stack
MANY = 10**5


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + b"N" + closing * depth + b"."


DEEP = {
    "lists": (nested(b"]", b"a", DEEPEST), "nested more than 100 deep", UnsafeDataError),
    "tuples": (nested(b"", b"\x85", DEEPEST), "nested more than 100 deep", UnsafeDataError),
    "dicts": (nested(b"}K\x01", b"s", DEEPEST), "nested more than 100 deep", UnsafeDataError),
    "101 lists": (nested(b"]", b"a", 101), "nested more than 100 deep", UnsafeDataError),
}


@pytest.mark.parametrize("what", DEEP)
def test_depth(what: str, refuse: Refuse) -> None:
    data, message, kind = DEEP[what]
    assert message in refuse(data, kind)


def test_a_hundred_lists_are_fine() -> None:
    assert repr(loads(nested(b"]", b"a", 100))) == "[" * 100 + "None" + "]" * 100


def test_marks(refuse: Refuse) -> None:
    assert "1024 marks" in refuse(b"(" * DEEPEST)
    assert "1024 marks" in refuse(nested(b"(", b"t", DEEPEST))


def test_a_list_in_itself_many_times(refuse: Refuse) -> None:
    assert "a list contains itself" in refuse(b"]" + b"2" * DEEPEST + b"a" * DEEPEST + b".")


def test_object_arrays_in_object_arrays(refuse: Refuse) -> None:
    data = OBJECTS * 5000 + b"N" + b"atb" * 5000 + b"."
    message = refuse(data, UnsafeDataError, limits=Limits(marks=1 << 20))
    assert "object arrays are nested more than 32 deep" in message


def laughs(levels: int, make: bytes) -> bytes:
    """Ten of ten of ten ... empty lists, with every level of it."""
    rows = (b"(" + b"h%c" % i * 10 + make + b"q%c" % (i + 1) for i in range(levels))
    return b"(]q\x00" + b"".join(rows) + b"t."


@pytest.mark.parametrize("make", [b"l", b"t"])
def test_a_billion_laughs(make: bytes, refuse: Refuse) -> None:
    assert len(loads(laughs(3, make))) == 4
    assert "make more than 67108864 values" in refuse(laughs(60, make), UnsafeDataError)
    assert "make more than 67108864 values" in refuse(laughs(9, make), UnsafeDataError)


def test_a_tuple_of_tuples_that_takes_for_ever_to_hash(refuse: Refuse) -> None:
    for fill in (b"}%bNs.", b"\x8f(%b\x90.", b"(%b\x91.", b"cbuiltins\nset\n(]%batR."):
        assert "short tuples" in refuse(fill % (b"K\x01" + b"2\x86" * 60))
    assert "short tuples" in refuse(b"}" + nested(b"", b"\x85", DEEPEST)[:-1] + b"Ns.")


def test_sharing_that_would_fill_the_memory_of_who_copies_it(refuse: Refuse) -> None:
    shared = b"(C\xff" + b"x" * 255 + b"q\x00" + b"h\x00" * 100_000 + b"t."
    assert len(loads(shared)) == 100_001
    assert "shared objects make more than" in refuse(shared, UnsafeDataError, limits=Limits(nbytes=1 << 20))


@pytest.mark.parametrize(
    "again",
    [
        b"c_codecs\nencode\n(h\x01V" + b"latin1\ntRa",
        b"cbuiltins\nbytearray\n(h\x00tRa",
        b"cbuiltins\nset\n(h\x02tRa",
        b"ccollections\nOrderedDict\n(h\x03tRa",
    ],
)
def test_copies_of_the_same_data_are_paid_for(again: bytes, refuse: Refuse) -> None:
    size = struct.pack("<I", MANY)
    data = b"(B" + size + b"a" * MANY + b"q\x00X" + size + b"a" * MANY + b"q\x01"
    data += b"](" + b"N" * MANY + b"eq\x02](NN\x86q\x05" + b"h\x05" * MANY + b"eq\x03"
    assert "copied again and again" in refuse(data + b"]" + again * 1000 + b"t.", UnsafeDataError)


def test_large_containers_are_no_repetition() -> None:
    assert len(loads(pickle.dumps(set(range(MANY)), 2))) == MANY
    assert loads(pickle.dumps(np.full(MANY, None), 3)).shape == (MANY,)
    assert len(loads(pickle.dumps(bytearray(MANY * 8), 2))) == MANY * 8


def test_integers_of_one_hash(refuse: Refuse) -> None:
    keys = [i * ((1 << 61) - 1) for i in range(1, 5000)]
    assert len({hash(key) for key in keys}) == 1
    for data in (pickle.dumps(dict.fromkeys(keys)), pickle.dumps(set(keys)), pickle.dumps(frozenset(keys), 3)):
        assert "keys of a container have one hash" in refuse(data, UnsafeDataError)
    assert loads(pickle.dumps(dict.fromkeys(range(5000))))[4999] is None
    assert len(loads(pickle.dumps({(i, -i) for i in range(5000)}))) == 5000


def test_keys_that_cannot_be_compared_are_malformed(refuse: Refuse) -> None:
    second = next(i for i in range(256) if abs(hash((1, i))) < (1 << 61) - 1)
    scalar = np.int64(hash((1, second)))
    assert hash(scalar) == hash((1, second))
    keys = pickle.dumps(scalar, 3)[2:-1], second
    for fill in (b"}(%bNK\x01K%c\x86Nu.", b"\x8f(%bK\x01K%c\x86\x90.", b"(%bK\x01K%c\x86\x91."):
        assert "expected keys that can be compared" in refuse(fill % keys)


def test_limits_hold(refuse: Refuse) -> None:
    assert "more than 50 opcodes" in refuse(b"]" + b"Na" * 100 + b".", limits=Limits(opcodes=50))
    assert "unused memo entry below 50" in refuse(b"](" + b"N\x94" * 100 + b"e.", limits=Limits(memo=50))
    assert "more than 10 marks" in refuse(b"(" * 20, limits=Limits(marks=10))
    assert "more than 10 deep" in refuse(nested(b"]", b"a", 20), UnsafeDataError, limits=Limits(depth=10))
    assert "at most 100 bytes" in refuse(pickle.dumps(1 << 1000), limits=Limits(integer=100))
    many = pickle.dumps(list(range(100)))
    assert "more than 50 values" in refuse(many, UnsafeDataError, limits=Limits(values=50))
