"""Read rows out of the lists of many `tf.train.Example` messages in one call.

A batch of random steps has a few rows of each of many records. Each list is walked from its start to the wanted rows;
no Python object is made for a record or a value. Lists of numbers are next to each other in a file, so walking costs
about a nanosecond a byte. Lists of bytes may have images between their heads, and walking touches a page for each: so
their places are kept, 4 bytes a value, which is enough because a message has less than 2 GiB. A place 0 means that the
record was not walked; threads that walk the same record write the same places.

Invariant: as in `examples`, no byte outside `begin : end` of a list is read. A piece that is malformed, has too few
values, or has numbers that are not packed, is marked. The caller reads it by the slower functions of `examples` and
learns the reason.

`data` may span the addresses of several maps, with other memory between them (`spanning`). Only the
bytes of lists are touched. The caller owns all arrays, and keeps the maps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.core.arrays import BoolArray, ByteArray, IntArray, IntScalar, UInt32Array
from penstock.kernels.examples import field_at, varint
from penstock.kernels.intrinsics import memcpy
from penstock.kernels.jit import helper, kernel

_PACKED = 10  # tag of field 1 with a length: packed numbers, or one value of bytes


class _Span:
    """Memory from an address on, for NumPy."""

    def __init__(self, address: int, size: int, owners: Sequence[ByteArray]) -> None:
        self.owners = tuple(owners)
        self.__array_interface__ = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}


def spanning(buffers: Sequence[ByteArray]) -> tuple[ByteArray, IntArray]:
    """Return an array over the addresses of several buffers, and the place `[B]` int64 at which each begins in it.

    The array keeps the buffers. The memory between them must not be touched.
    """
    address = np.array([buffer.ctypes.data for buffer in buffers if len(buffer)], np.int64)
    if not len(address):
        return np.zeros(0, np.uint8), np.zeros(len(buffers), np.int64)
    low = int(address.min())
    high = max(buffer.ctypes.data + len(buffer) for buffer in buffers)
    begin = np.array([buffer.ctypes.data - low if len(buffer) else 0 for buffer in buffers], np.int64)
    return np.asarray(_Span(low, high - low, buffers)), begin


def read_integers(
    data: ByteArray,
    begin: IntArray,
    end: IntArray,
    total: IntArray,
    skip: IntArray,
    count: IntArray,
    destination: IntArray,
    out: IntArray,
) -> BoolArray:
    """Read values of many lists of integers."""
    failed = _checked(data, begin, end, skip, count, destination, len(out))
    if len(total) != len(begin):
        raise ValueError(f"expected {len(begin)} totals, got {len(total)}")
    _read_integers(data, begin, end, total, skip, count, destination, out, failed)
    return failed


def read_floats(
    data: ByteArray,
    begin: IntArray,
    end: IntArray,
    skip: IntArray,
    count: IntArray,
    destination: IntArray,
    out: ByteArray,
) -> BoolArray:
    """Read values of many lists of floats; see `read_integers`."""
    failed = _checked(data, begin, end, skip, count, destination, len(out) // 4)
    _read_floats(data, begin, end, skip, count, destination, out, failed)
    return failed


def read_places(
    data: ByteArray,
    message: IntArray,
    begin: IntArray,
    end: IntArray,
    first: IntArray,
    total: IntArray,
    skip: IntArray,
    count: IntArray,
    destination: IntArray,
    known: UInt32Array,
    out: IntArray,
) -> BoolArray:
    """Find values of many lists of bytes."""
    failed = _checked(data, begin, end, skip, count, destination, len(out))
    inside = (message >= 0) & (message <= begin) & (end - message < 1 << 32) & (total >= 0)
    inside &= (skip <= total - count) & (first >= 0) & (first <= len(known) - total)
    if not len(message) == len(first) == len(total) == len(begin) or not inside.all() or out.shape[1:] != (2,):
        raise ValueError("expected pieces within lists, and lists within messages and the table of places")
    _read_places(data, message, begin, end, first, total, skip, count, destination, known, out, failed)
    return failed


def copy_places(data: ByteArray, places: IntArray, destination: IntArray, out: ByteArray) -> None:
    """Copy bytes."""
    size = places[:, 1] - places[:, 0]
    inside = (size >= 0) & (places[:, 0] >= 0) & (places[:, 1] <= len(data))
    inside &= (destination >= 0) & (destination <= len(out) - size)
    if len(destination) != len(places) or not inside.all():
        raise ValueError(f"expected parts within {len(data)} and {len(out)} bytes")
    _copy_places(data, places, destination, out)


def _checked(
    data: ByteArray, begin: IntArray, end: IntArray, skip: IntArray, count: IntArray, destination: IntArray, room: int
) -> BoolArray:
    """Raise `ValueError` unless pieces are within the data and the output. Returns the marks of failed pieces."""
    if not len(begin) == len(end) == len(skip) == len(count) == len(destination):
        raise ValueError(f"expected arrays of one length, got {len(begin)}, {len(end)}, {len(skip)}, {len(count)}")
    inside = (begin >= 0) & (begin <= end) & (end <= len(data)) & (skip >= 0) & (count >= 0)
    inside &= (destination >= 0) & (destination <= room - count)
    if not inside.all():
        raise ValueError(f"expected lists within {len(data)} bytes and places within {room}")
    return np.zeros(len(begin), np.bool_)


@kernel("u1[1Cr] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] b1[1C]")
def _read_integers(
    data: ByteArray,
    begin: IntArray,
    end: IntArray,
    total: IntArray,
    skip: IntArray,
    count: IntArray,
    destination: IntArray,
    out: IntArray,
    failed: BoolArray,
) -> None:
    for j in range(len(begin)):
        offset, stop = begin[j], end[j]
        left, todo = skip[j], count[j]
        place = destination[j]
        while todo and offset < stop:
            tag, offset = varint(data, offset, stop)
            size, offset = varint(data, offset, stop) if offset >= 0 and tag == _PACKED else (-1, -1)
            if offset < 0 or size < 0 or size > stop - offset:
                break
            last = offset + size
            if size == total[j]:  # one byte a value
                step = min(left, size)
                left -= step
                offset += step
            while left and offset < last:
                left -= data[offset] < 128
                offset += 1
            while todo and offset < last:
                value, offset = varint(data, offset, last)
                if offset < 0:
                    break
                out[place] = value
                place += 1
                todo -= 1
            if offset < 0:
                break
        failed[j] = todo > 0


@kernel("u1[1Cr] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] u1[1C] b1[1C]")
def _read_floats(
    data: ByteArray,
    begin: IntArray,
    end: IntArray,
    skip: IntArray,
    count: IntArray,
    destination: IntArray,
    out: ByteArray,
    failed: BoolArray,
) -> None:
    for j in range(len(begin)):
        offset, stop = begin[j], end[j]
        left, todo = 4 * skip[j], 4 * count[j]
        place = 4 * destination[j]
        while todo and offset < stop:
            tag, offset = varint(data, offset, stop)
            size, offset = varint(data, offset, stop) if offset >= 0 and tag == _PACKED else (-1, -1)
            if offset < 0 or size < 0 or size > stop - offset or size % 4:
                break
            step = min(left, size)
            left -= step
            take = min(todo, size - step)
            for i in range(take):
                out[place + i] = data[offset + step + i]
            place += take
            todo -= take
            offset += size
        failed[j] = todo > 0


@helper
def _walked(
    data: ByteArray,
    message: IntScalar,
    offset: IntScalar,
    end: IntScalar,
    first: IntScalar,
    total: IntScalar,
    known: UInt32Array,
) -> bool:
    """Enter the place of each value of a list. Returns False for a malformed list."""
    n = 0
    while offset < end:
        head = offset
        tag, _, offset = field_at(data, offset, end)
        if offset < 0:
            return False
        if tag == _PACKED:
            if n >= total:
                return False
            known[first + n] = head - message
            n += 1
    return n == total


@kernel("u1[1Cr] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] u4[1C] i8[2C] b1[1C]")
def _read_places(
    data: ByteArray,
    message: IntArray,
    begin: IntArray,
    end: IntArray,
    first: IntArray,
    total: IntArray,
    skip: IntArray,
    count: IntArray,
    destination: IntArray,
    known: UInt32Array,
    out: IntArray,
    failed: BoolArray,
) -> None:
    for j in range(len(begin)):
        for i in range(count[j]):
            row = first[j] + skip[j] + i
            if known[row] == 0 and not _walked(data, message[j], begin[j], end[j], first[j], total[j], known):
                failed[j] = True
                break
            # A walk that found damage may have entered heads of other values, so a head is checked again.
            offset = message[j] + np.int64(known[row])
            tag, offset = varint(data, offset, end[j])
            size, offset = varint(data, offset, end[j]) if offset >= 0 and tag == _PACKED else (-1, -1)
            if offset < 0 or size < 0 or size > end[j] - offset:
                failed[j] = True
                break
            out[destination[j] + i, 0], out[destination[j] + i, 1] = offset, offset + size


@kernel("u1[1Cr] i8[2C] i8[1C] u1[1C]")
def _copy_places(data: ByteArray, places: IntArray, destination: IntArray, out: ByteArray) -> None:
    source, target = data.ctypes.data, out.ctypes.data
    for j in range(len(places)):
        memcpy(target + destination[j], source + places[j, 0], places[j, 1] - places[j, 0])
