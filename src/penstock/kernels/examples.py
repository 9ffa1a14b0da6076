"""Parse `tf.train.Example` messages: where the list of each feature is, and the values of a list.

The wire format of protocol buffers is a sequence of fields: a tag (number and type, a varint), then a varint, 4 or 8
bytes, or a length and that number of bytes. An Example has one field 1, the Features. Each field 1 of the Features is
an entry of a map: the key in field 1, the Feature in field 2. A Feature has one list: bytes in field 1, floats in field
2, integers in field 3; the values of a list are in its fields 1, numbers packed or one by one. Unknown fields are
skipped, and of two entries with one key the last counts, as the format says.

Invariant: no byte outside `begin : end` of a message is read, and a length is compared with
the rest before it is added. The caller owns all arrays. Format: protobuf.dev, "Encoding"; `example.proto` and
`feature.proto` of TensorFlow.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, Float32Array, IntArray, IntScalar
from penstock.kernels.jit import helper, kernel

# Kinds of lists, by their field in a Feature.
ABSENT = 0
BYTES = 1
FLOATS = 2
INTEGERS = 3


def scan_examples(
    data: ByteArray,
    begin: IntArray,
    size: IntArray,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
) -> IntArray:
    """Find the lists of wanted features in messages.

    Args:
        data: `[n]` uint8, read-only, all messages.
        begin: `[R]` int64, the byte at which each message begins.
        size: `[R]` int64, the bytes of each message.
        keys: uint8, read-only, the names of the wanted features end to end.
        key_ends: `[K]` int64, the end of each name.
        spans: `[R, K, 3]` int64, receives begin and end of each list, from the start of its message, and the number of
            its values, -1 for a list of bytes, which would have to be read; zeros for absent features.
        kinds: `[R, K]` uint8, receives `BYTES`, `FLOATS`, `INTEGERS` or `ABSENT`.

    Returns:
        `[R]` int64, 0 for each sound message and 1 for others.

    Raises:
        ValueError: The arrays do not fit together, or a message is not within the data.
    """
    rows, columns = kinds.shape
    inside = (begin >= 0) & (size >= 0) & (begin <= len(data) - size)
    if spans.shape != (rows, columns, 3) or not len(begin) == len(size) == rows or len(key_ends) != columns:
        raise ValueError(f"expected {rows} messages and {columns} keys, got {len(begin)}, {spans.shape}")
    if not inside.all() or (columns and key_ends[-1] > len(keys)) or (np.diff(key_ends, prepend=0) < 0).any():
        raise ValueError(f"expected messages within {len(data)} bytes and keys within {len(keys)}")
    damaged = np.zeros(rows, np.int64)
    _scan_examples(data, begin, size, keys, key_ends, spans, kinds, damaged)
    return damaged


def integers_of(data: ByteArray, begin: int, end: int, count: int) -> IntArray:
    """Return the `[count]` int64 values of a list of integers that `scan_examples` counted.

    Args:
        data: `[n]` uint8, read-only.
        begin: The byte at which the list begins.
        end: The byte behind it.
        count: The number of values.

    Raises:
        ValueError: The list is not within the data, or has another number of values.
    """
    out = np.empty(_room(data, begin, end, count), np.int64)
    return _filled(out, count, _integers_of(data, begin, end, out))


def floats_of(data: ByteArray, begin: int, end: int, count: int) -> Float32Array:
    """Return the `[count]` float32 values of a list of floats; see `integers_of`.

    Args:
        data: `[n]` uint8, read-only.
        begin: The byte at which the list begins.
        end: The byte behind it.
        count: The number of values.

    Raises:
        ValueError: The list is not within the data, or has another number of values.
    """
    out = np.empty(4 * _room(data, begin, end, count), np.uint8)
    return _filled(out, 4 * count, _floats_of(data, begin, end, out)).view("<f4")


def blobs_of(data: ByteArray, begin: int, end: int, count: int) -> IntArray:
    """Return `[count, 2]` int64, begin and end of each value in a list of bytes; see `integers_of`.

    Args:
        data: `[n]` uint8, read-only.
        begin: The byte at which the list begins.
        end: The byte behind it.
        count: The number of values.

    Raises:
        ValueError: The list is not within the data, or has another number of values.
    """
    out = np.empty((_room(data, begin, end, count), 2), np.int64)
    return _filled(out, count, _blobs_of(data, begin, end, out))


def count_blobs(data: ByteArray, begin: int, end: int) -> int:
    """Return the number of values in a list of bytes.

    Args:
        data: `[n]` uint8, read-only.
        begin: The byte at which the list begins.
        end: The byte behind it.

    Raises:
        ValueError: The list is malformed, or not within the data.
    """
    _room(data, begin, end, 0)
    count = int(_count_blobs(data, begin, end))
    if count < 0:
        raise ValueError("expected a sound list of bytes")
    return count


def packed_floats(data: ByteArray, begin: IntArray, size: IntArray) -> IntArray:
    """Return the byte at which the values of each list of floats begin, -1 where they are not in one packed field.

    Args:
        data: `[n]` uint8, read-only.
        begin: `[R]` int64, the byte at which each list begins.
        size: `[R]` int64, the bytes of each list.

    Raises:
        ValueError: A list is not within the data.
    """
    return _packed_of(data, begin, size)


def packed_bits(data: ByteArray, begin: IntArray, size: IntArray, count: IntArray) -> IntArray:
    """Return the byte at which the values of each list of integers begin, -1 where they are not one byte each in one
    packed field.

    Args:
        data: `[n]` uint8, read-only.
        begin: `[R]` int64, the byte at which each list begins.
        size: `[R]` int64, the bytes of each list.
        count: `[R]` int64, the number of values of each list.

    Raises:
        ValueError: A list is not within the data.
    """
    place = _packed_of(data, begin, size)
    return np.where(begin + size - place == count, place, -1)


def _packed_of(data: ByteArray, begin: IntArray, size: IntArray) -> IntArray:
    if len(begin) != len(size) or not ((begin >= 0) & (size >= 0) & (begin <= len(data) - size)).all():
        raise ValueError(f"expected lists within {len(data)} bytes")
    out = np.empty(len(begin), np.int64)
    _packed_places(data, np.ascontiguousarray(begin), np.ascontiguousarray(size), out)
    return out


def _room(data: ByteArray, begin: int, end: int, count: int) -> int:
    if not 0 <= begin <= end <= len(data) or not 0 <= count <= end - begin:
        raise ValueError(f"expected a list within {len(data)} bytes, got {count} values in {begin}:{end}")
    return count


def _filled(out: AnyArray, expected: int, written: IntScalar) -> AnyArray:
    if written != expected:
        raise ValueError("expected a sound list with the counted number of values")
    return out


@helper
def varint(data: ByteArray, at: IntScalar, end: IntScalar) -> tuple[IntScalar, IntScalar]:
    """Return a number, and the byte behind it or -1."""
    value = np.int64(0)
    shift = 0
    while at < end and shift < 70:
        byte = np.int64(data[at])
        at += 1
        if shift < 64:
            value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, -1


@helper
def skip_field(data: ByteArray, at: IntScalar, end: IntScalar, wire: IntScalar) -> IntScalar:
    """Return the byte behind the value of a field, or -1."""
    if wire == 0:
        _, at = varint(data, at, end)
        return at
    size = np.int64(-1)
    if wire == 2:
        size, at = varint(data, at, end)
    elif wire == 1:
        size = np.int64(8)
    elif wire == 5:
        size = np.int64(4)
    return at + size if at >= 0 and 0 <= size <= end - at else -1


@helper
def _count(data: ByteArray, at: IntScalar, end: IntScalar, kind: IntScalar) -> IntScalar:
    """Return the number of values of a list, or -1 for a malformed list."""
    count = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return -1
        begin = at
        at = skip_field(data, at, end, tag & 7)
        if at < 0:
            return -1
        if tag >> 3 != 1:
            continue
        if tag == 10 and kind > 1:  # packed
            size, begin = varint(data, begin, end)
            if kind == 2:
                if size % 4:
                    return -1
                count += size // 4
            else:
                for i in range(begin, at):
                    count += data[i] < 128
                if size and data[at - 1] >= 128:
                    return -1
        elif tag == 10 or (tag == 13 and kind == 2) or (tag == 8 and kind == 3):
            count += 1
        else:
            return -1
    return count


@helper
def _feature(data: ByteArray, at: IntScalar, end: IntScalar) -> tuple[IntScalar, IntScalar, IntScalar]:
    """Return kind, begin and end of the list of a Feature; the kind is -1 for a malformed one."""
    kind = 0
    begin, stop = 0, 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return -1, 0, 0
        after = skip_field(data, at, end, tag & 7)
        if after < 0:
            return -1, 0, 0
        if tag & 7 == 2 and 1 <= tag >> 3 <= 3:
            size, begin = varint(data, at, end)
            kind, stop = tag >> 3, begin + size
        at = after
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
    at: IntScalar,
    end: IntScalar,
    base: IntScalar,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
) -> bool:
    """Read an entry of the map. Returns False for a malformed one."""
    key = -1
    begin, stop = np.int64(0), np.int64(0)
    kind = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return False
        after = skip_field(data, at, end, tag & 7)
        if after < 0:
            return False
        if tag == 10:
            _, first = varint(data, at, end)
            key = _key_of(data, first, after, keys, key_ends)
        elif tag == 18:
            _, first = varint(data, at, end)
            kind, begin, stop = _feature(data, first, after)
            if kind < 0:
                return False
        at = after
    if key >= 0:
        count = _count(data, begin, stop, kind) if kind > 1 else 0
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
    at: IntScalar,
    end: IntScalar,
    base: IntScalar,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
) -> bool:
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return False
        after = skip_field(data, at, end, tag & 7)
        if after < 0:
            return False
        if tag == 10:
            _, first = varint(data, at, end)
            if not _entry(data, first, after, base, keys, key_ends, spans, kinds):
                return False
        at = after
    return True


@kernel("u1[1Cr] i8[1C] i8[1C] u1[1Cr] i8[1C] i8[3C] u1[2C] i8[1C]")
def _scan_examples(
    data: ByteArray,
    begin: IntArray,
    size: IntArray,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
    damaged: IntArray,
) -> None:
    for i in range(len(begin)):
        at, end = begin[i], begin[i] + size[i]
        kinds[i] = 0
        spans[i] = 0
        while at < end and not damaged[i]:
            tag, at = varint(data, at, end)
            after = skip_field(data, at, end, tag & 7) if at >= 0 else -1
            if after < 0:
                damaged[i] = 1
            elif tag == 10:
                _, first = varint(data, at, end)
                sound = _features(data, first, after, begin[i], keys, key_ends, spans[i], kinds[i])
                damaged[i] = 0 if sound else 1
            at = after


@kernel("u1[1Cr] i8 i8 i8[1C]")
def _integers_of(data: ByteArray, at: IntScalar, end: IntScalar, out: IntArray) -> IntScalar:
    n = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return -1
        stop = end
        if tag == 10:
            size, at = varint(data, at, end)
            if at < 0 or size < 0 or size > end - at:
                return -1
            stop = at + size
        elif tag != 8:
            at = skip_field(data, at, end, tag & 7)
            if at < 0:
                return -1
            continue
        while at < stop:
            value, at = varint(data, at, stop)
            if at < 0 or n >= len(out):
                return -1
            out[n] = value
            n += 1
            if tag == 8:
                break
    return n


@kernel("u1[1Cr] i8 i8 u1[1C]")
def _floats_of(data: ByteArray, at: IntScalar, end: IntScalar, out: ByteArray) -> IntScalar:
    n = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return -1
        after = skip_field(data, at, end, tag & 7)
        if after < 0:
            return -1
        packed = tag == 10
        if packed:
            _, at = varint(data, at, end)
        if packed or tag == 13:
            if n + after - at > len(out):
                return -1
            for i in range(at, after):
                out[n] = data[i]
                n += 1
        at = after
    return n


@kernel("u1[1Cr] i8 i8 i8[2C]")
def _blobs_of(data: ByteArray, at: IntScalar, end: IntScalar, out: IntArray) -> IntScalar:
    n = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return -1
        after = skip_field(data, at, end, tag & 7)
        if after < 0:
            return -1
        if tag == 10:
            _, first = varint(data, at, end)
            if n >= len(out):
                return -1
            out[n, 0], out[n, 1] = first, after
            n += 1
        at = after
    return n


@kernel("u1[1Cr] i8 i8")
def _count_blobs(data: ByteArray, at: IntScalar, end: IntScalar) -> IntScalar:
    return _count(data, at, end, 1)


@kernel("u1[1Cr] i8[1C] i8[1C] i8[1C]")
def _packed_places(data: ByteArray, begin: IntArray, size: IntArray, out: IntArray) -> None:
    for i in range(len(begin)):
        end = begin[i] + size[i]
        out[i] = begin[i]
        if size[i] == 0:
            continue
        out[i] = -1
        tag, at = varint(data, begin[i], end)
        if at >= 0 and tag == 10:
            length, at = varint(data, at, end)
            if at >= 0 and at + length == end:
                out[i] = at
