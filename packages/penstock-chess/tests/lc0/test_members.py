"""The walk over plain members: the compiled one equals its definition, whatever stands in the headers."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.reference import members as reference
from penstock_chess.kernels.members import plain_members

SIZES = st.sampled_from([0, 1, 511, 512, 513, 2000])
NAMES = st.sampled_from(["a", "x" * 99, "y" * 100, "z" * 101, "./a", "a/..", "a..b", "/a", "a/", "é", "n\0m", "d/e.gz"])
HEADS = st.tuples(NAMES, SIZES, st.sampled_from([tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE]))
PLAIN = [("a.gz", 700, tarfile.REGTYPE), ("b/c.gz", 0, tarfile.REGTYPE), ("d.gz", 512, tarfile.AREGTYPE)]


def archive(heads: list[tuple[str, int, bytes]]) -> bytes:
    file = io.BytesIO()
    for name, size, kind in heads:
        head = tarfile.TarInfo(name)
        head.size, head.type = size, kind
        file.write(head.tobuf(tarfile.USTAR_FORMAT if len(name) <= 100 else tarfile.GNU_FORMAT))
        file.write(bytes(-(-size // 512) * 512))
    return file.getvalue() + bytes(1024)


def walked(walk: Any, data: bytes, room: int) -> tuple[Any, ...]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        payload, size, name = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros((room, 100), np.uint8)
        n, position = walk(file.fileno(), 0, os.fstat(file.fileno()).st_size, payload, size, name)
    return n, position, payload[:n].tolist(), size[:n].tolist(), [bytes(row).rstrip(b"\0") for row in name[:n]]


@given(st.lists(HEADS, max_size=4), st.integers(0, 4), st.integers(0, 9000))
def test_both_walks_are_equal_up_to_the_first_odd_header_or_cut(heads: Any, room: int, cut: int) -> None:
    data = archive(heads)[:-cut] if cut else archive(heads)
    assert walked(plain_members, data, room) == walked(reference.plain_members, data, room)


@given(st.integers(0, 511), st.integers(0, 255))
def test_both_walks_are_equal_where_a_byte_of_a_header_is_another(at: int, value: int) -> None:
    data = bytearray(archive(PLAIN))
    data[1536 + at] = value
    for sound in (False, True):
        if sound:
            data[1536 + 148 : 1536 + 156] = b" " * 8
            data[1536 + 148 : 1536 + 156] = b"%06o\0 " % sum(data[1536:2048])
        assert walked(plain_members, data, 9) == walked(reference.plain_members, data, 9)


@pytest.mark.parametrize("room", [0, 1, 2, 3, 4])
def test_plain_members_are_found_as_far_as_there_is_room(room: int) -> None:
    n, position, payload, size, names = walked(plain_members, archive(PLAIN), room)
    assert (n, names) == (min(room, 3), [name.encode() for name, _, _ in PLAIN[:room]])
    assert (payload, size) == ([512, 2048, 2560][:room], [700, 0, 512][:room])
    assert position == [0, 1536, 2048, 3072, 3072][room]


def test_arrays_fit_together() -> None:
    numbers, names = np.zeros(2, np.int64), np.zeros((2, 100), np.uint8)
    for arrays in ((numbers[:1], numbers, names), (numbers, numbers[:1], names), (numbers, numbers, names[:1])):
        with pytest.raises(ValueError, match=r"names \[n, 100\]"):
            plain_members(0, 0, 0, *arrays)
    with pytest.raises(ValueError, match=r"names \[n, 100\]"):
        plain_members(0, 0, 0, numbers, numbers, np.zeros((2, 99), np.uint8))
