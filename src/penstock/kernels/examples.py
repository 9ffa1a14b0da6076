"""Parse `tf.train.Example` messages: where the list of each feature is, and the values of a list.

The wire format of protocol buffers is a sequence of fields: a tag (number and type, a varint), then a varint, 4 or 8
bytes, or a length and that number of bytes. An Example has one field 1, the Features. Each field 1 of the Features is
an entry of a map: the key in field 1, the Feature in field 2. A Feature has one list: bytes in field 1, floats in field
2, integers in field 3; the values of a list are in its fields 1, numbers packed or one by one. Unknown fields are
skipped, and of two entries with one key the last counts, as the format says.

Invariant: no byte outside `begin : end` of a message is read, and a length is compared with
the rest before it is added. The caller owns all arrays. Format: protobuf.dev, "Encoding"; `example.proto` and
`feature.proto` of TensorFlow.

A scan skips the values of floats and bytes. So it can run where most bytes of large messages were not fetched: it
looks up in `present` whether bytes may be read, and stops a message at those that are lacking, which it names. The
caller fetches them and scans the message again: once for each large list, as lists are found by jumps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray, IntScalar, read_only
from penstock.kernels.jit import helper, kernel

# Kinds of lists, by their field in a Feature.
ABSENT = 0
BYTES = 1
FLOATS = 2
INTEGERS = 3

# Results of a scan.
SOUND = 0
DAMAGED = 1
LACKING = 2  # bytes are not present

PART = 1 << 16
"""Bytes for which one entry of `present` tells whether they may be read."""

_PART_BITS = 16
_HEAD = 20  # bytes of a tag and a length at most


def scan_examples(
    data: ByteArray,
    begin: IntArray,
    size: IntArray,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
    present: ByteArray | None = None,
    need: IntArray | None = None,
) -> IntArray:
    """Find the lists of wanted features in messages."""
    rows, columns = kinds.shape
    inside = (begin >= 0) & (size >= 0) & (begin <= len(data) - size)
    if spans.shape != (rows, columns, 3) or not len(begin) == len(size) == rows or len(key_ends) != columns:
        raise ValueError(f"expected {rows} messages and {columns} keys, got {len(begin)}, {spans.shape}")
    if not inside.all() or (columns and key_ends[-1] > len(keys)) or (np.diff(key_ends, prepend=0) < 0).any():
        raise ValueError(f"expected messages within {len(data)} bytes and keys within {len(keys)}")
    present = read_only(np.zeros(0, np.uint8)) if present is None else present
    need = np.zeros((rows, 2), np.int64) if need is None else need
    if (len(present) and len(present) * PART < len(data)) or need.shape != (rows, 2):
        raise ValueError(f"expected parts of {len(data)} bytes and {rows} needs, got {len(present)}, {need.shape}")
    result = np.zeros(rows, np.int64)
    _scan_examples(data, begin, size, keys, key_ends, spans, kinds, result, present, need)
    return result


def values_of(data: ByteArray, kind: int, begin: int, end: int, count: int) -> AnyArray:
    """Return the values of a list that `scan_examples` or `count_blobs` counted."""
    _require_within(data, begin, end, count)
    read, shape, dtype = _READERS[kind]
    out = np.empty((count, *shape), dtype)
    if read(data, begin, end, out) != len(out):
        raise ValueError("expected a sound list with the counted number of values")
    return out.view("<f4")[:, 0] if kind == FLOATS else out


def count_blobs(data: ByteArray, begin: int, end: int) -> int:
    """Return the number of values in a list of bytes."""
    _require_within(data, begin, end, 0)
    count = int(_count_blobs(data, begin, end, np.zeros(2, np.int64)))
    if count < 0:
        raise ValueError("expected a sound list of bytes")
    return count


def packed_floats(data: ByteArray, begin: IntArray, size: IntArray) -> IntArray:
    """Return the byte at which the values of each list of floats begin, -1 where they are not in one packed field."""
    return _packed_of(data, begin, size)


def packed_bits(data: ByteArray, begin: IntArray, size: IntArray, count: IntArray) -> IntArray:
    """Return the byte at which the values of each list of integers begin, -1 where they are not one byte each in one
    packed field.
    """
    place = _packed_of(data, begin, size)
    return np.where(begin + size - place == count, place, -1)


def _packed_of(data: ByteArray, begin: IntArray, size: IntArray) -> IntArray:
    if len(begin) != len(size) or not ((begin >= 0) & (size >= 0) & (begin <= len(data) - size)).all():
        raise ValueError(f"expected lists within {len(data)} bytes")
    out = np.empty(len(begin), np.int64)
    _packed_places(data, np.ascontiguousarray(begin), np.ascontiguousarray(size), out)
    return out


def _require_within(data: ByteArray, begin: int, end: int, count: int) -> None:
    if not 0 <= begin <= end <= len(data) or not 0 <= count <= end - begin:
        raise ValueError(f"expected a list within {len(data)} bytes, got {count} values in {begin}:{end}")


@helper
def varint(data: ByteArray, offset: IntScalar, end: IntScalar) -> tuple[IntScalar, IntScalar]:
    """Return a number, and the byte behind it or -1."""
    value = np.int64(0)
    shift = 0
    while offset < end and shift < 70:
        byte = np.int64(data[offset])
        offset += 1
        if shift < 64:
            value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
    return 0, -1


@helper
def field_at(data: ByteArray, offset: IntScalar, end: IntScalar) -> tuple[IntScalar, IntScalar, IntScalar]:
    """Return the tag of a field, and begin and end of its value, without the length of one; the end is -1 for a
    malformed field."""
    tag, begin = varint(data, offset, end)
    wire = tag & 7
    size = np.int64(-1)
    if begin < 0:
        return tag, begin, begin
    if wire == 0:
        _, stop = varint(data, begin, end)
        return tag, begin, stop
    if wire == 2:
        size, begin = varint(data, begin, end)
    elif wire == 1:
        size = np.int64(8)
    elif wire == 5:
        size = np.int64(4)
    return tag, begin, begin + size if begin >= 0 and 0 <= size <= end - begin else -1


@helper
def _may_read(present: ByteArray, begin: IntScalar, end: IntScalar, need: IntArray) -> bool:
    """Return whether bytes are present. Others are entered in `need`."""
    if len(present) and begin < end:
        for part in range(begin >> _PART_BITS, (end - 1 >> _PART_BITS) + 1):
            if present[part] == 0:
                need[0], need[1] = begin, end
                return False
    return True


@helper
def _present_field(
    data: ByteArray, offset: IntScalar, end: IntScalar, present: ByteArray, need: IntArray
) -> tuple[IntScalar, IntScalar, IntScalar]:
    """As `field_at`, also with the end -1 where the head of the field is not present."""
    if not _may_read(present, offset, min(offset + _HEAD, end), need):
        return 0, -1, -1
    return field_at(data, offset, end)


@helper
def _count(
    data: ByteArray, offset: IntScalar, end: IntScalar, kind: IntScalar, present: ByteArray, need: IntArray
) -> IntScalar:
    """Return the number of values of a list, or -1 for a malformed or lacking list."""
    count = 0
    while offset < end:
        tag, begin, offset = _present_field(data, offset, end, present, need)
        if offset < 0:
            return -1
        if tag >> 3 != 1:
            continue
        if tag == 10 and kind == 2:  # packed floats
            if (offset - begin) % 4:
                return -1
            count += (offset - begin) // 4
        elif tag == 10 and kind == 3:  # packed integers
            if not _may_read(present, begin, offset, need):
                return -1
            for i in range(begin, offset):
                count += data[i] < 128
            if offset > begin and data[offset - 1] >= 128:
                return -1
        elif tag == 10 or (tag == 13 and kind == 2) or (tag == 8 and kind == 3):
            count += 1
        else:
            return -1
    return count


@helper
def _feature(
    data: ByteArray, offset: IntScalar, end: IntScalar, present: ByteArray, need: IntArray
) -> tuple[IntScalar, IntScalar, IntScalar]:
    """Return kind, begin and end of the list of a Feature; the kind is -1 for a malformed or lacking one."""
    kind = 0
    begin, stop = 0, 0
    while offset < end:
        tag, first, offset = _present_field(data, offset, end, present, need)
        if offset < 0:
            return -1, 0, 0
        if tag & 7 == 2 and 1 <= tag >> 3 <= 3:
            kind = tag >> 3
            begin = first
            stop = offset
    return kind, begin, stop


@helper
def _key_of(data: ByteArray, begin: IntScalar, end: IntScalar, keys: ByteArray, key_ends: IntArray) -> IntScalar:
    """Return the number of a key, or -1."""
    first = np.int64(0)
    for k in range(len(key_ends)):
        size = key_ends[k] - first
        if size == end - begin:
            i = 0
            while i < size and data[begin + i] == keys[first + i]:
                i += 1
            if i == size:
                return k
        first = key_ends[k]
    return -1


@helper
def _entry(
    data: ByteArray,
    offset: IntScalar,
    end: IntScalar,
    base: IntScalar,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
    present: ByteArray,
    need: IntArray,
) -> bool:
    """Read an entry of the map. Returns False for a malformed or lacking one."""
    key = -1
    begin, stop = np.int64(0), np.int64(0)
    kind = 0
    while offset < end:
        tag, first, offset = _present_field(data, offset, end, present, need)
        if offset < 0:
            return False
        if tag == 10:
            if not _may_read(present, first, offset, need):
                return False
            key = _key_of(data, first, offset, keys, key_ends)
        elif tag == 18:
            kind, begin, stop = _feature(data, first, offset, present, need)
            if kind < 0:
                return False
    if key >= 0:
        count = _count(data, begin, stop, kind, present, need) if kind > 1 else 0
        if count < 0:
            return False
        kinds[key] = kind
        spans[key, 0], spans[key, 1] = begin - base, stop - base
        spans[key, 2] = count
        if kind == 0:
            spans[key, 0], spans[key, 1] = 0, 0
        elif kind == 1:
            spans[key, 2] = -1
    return True


@helper
def _features(
    data: ByteArray,
    offset: IntScalar,
    end: IntScalar,
    base: IntScalar,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
    present: ByteArray,
    need: IntArray,
) -> bool:
    while offset < end:
        tag, first, offset = _present_field(data, offset, end, present, need)
        if offset < 0 or (
            tag == 10 and not _entry(data, first, offset, base, keys, key_ends, spans, kinds, present, need)
        ):
            return False
    return True


@kernel("u1[1Cr] i8[1C] i8[1C] u1[1Cr] i8[1C] i8[3C] u1[2C] i8[1C] u1[1Cr] i8[2C]")
def _scan_examples(
    data: ByteArray,
    begin: IntArray,
    size: IntArray,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
    result: IntArray,
    present: ByteArray,
    need: IntArray,
) -> None:
    for i in range(len(begin)):
        offset, end = begin[i], begin[i] + size[i]
        kinds[i] = 0
        spans[i] = 0
        need[i] = 0
        while offset < end and result[i] == 0:
            tag, first, offset = _present_field(data, offset, end, present, need[i])
            if offset < 0 or (
                tag == 10
                and not _features(data, first, offset, begin[i], keys, key_ends, spans[i], kinds[i], present, need[i])
            ):
                result[i] = LACKING if need[i, 1] > 0 else DAMAGED


@kernel("u1[1Cr] i8 i8 i8[1C]")
def _read_integers(data: ByteArray, offset: IntScalar, end: IntScalar, out: IntArray) -> IntScalar:
    n = 0
    while offset < end:
        tag, value_at, offset = field_at(data, offset, end)
        if offset < 0:
            return -1
        if tag != 10 and tag != 8:
            continue
        while value_at < offset:
            value, value_at = varint(data, value_at, offset)
            if value_at < 0 or n >= len(out):
                return -1
            out[n] = value
            n += 1
    return n


@kernel("u1[1Cr] i8 i8 u1[2C]")
def _read_floats(data: ByteArray, offset: IntScalar, end: IntScalar, out: ByteArray) -> IntScalar:
    n = 0
    while offset < end:
        tag, begin, offset = field_at(data, offset, end)
        if offset < 0:
            return -1
        if tag == 10 or tag == 13:
            if (offset - begin) % 4 or n + (offset - begin) // 4 > len(out):
                return -1
            for i in range(begin, offset, 4):
                for byte in range(4):
                    out[n, byte] = data[i + byte]
                n += 1
    return n


@kernel("u1[1Cr] i8 i8 i8[2C]")
def _read_blobs(data: ByteArray, offset: IntScalar, end: IntScalar, out: IntArray) -> IntScalar:
    n = 0
    while offset < end:
        tag, begin, offset = field_at(data, offset, end)
        if offset < 0 or (tag == 10 and n >= len(out)):
            return -1
        if tag == 10:
            out[n, 0], out[n, 1] = begin, offset
            n += 1
    return n


@kernel("u1[1Cr] i8 i8 i8[1C]")
def _count_blobs(data: ByteArray, offset: IntScalar, end: IntScalar, need: IntArray) -> IntScalar:
    return _count(data, offset, end, 1, data[:0], need)


@kernel("u1[1Cr] i8[1C] i8[1C] i8[1C]")
def _packed_places(data: ByteArray, begin: IntArray, size: IntArray, out: IntArray) -> None:
    for i in range(len(begin)):
        end = begin[i] + size[i]
        out[i] = begin[i]
        if size[i] == 0:
            continue
        tag, first, stop = field_at(data, begin[i], end)
        out[i] = first if tag == 10 and stop == end else -1


_READERS: dict[int, tuple[Callable[..., IntScalar], tuple[int, ...], str]] = {
    BYTES: (_read_blobs, (2,), "i8"),
    FLOATS: (_read_floats, (4,), "u1"),
    INTEGERS: (_read_integers, (), "i8"),
}
"""By kind of list: the kernel that reads one, the shape of a value, and its dtype. Floats are copied as four bytes."""
