"""Examples and records: our parser against the library of protocol buffers, and against edited bytes."""

import random
from contextlib import suppress

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.core.arrays import read_only
from penstock.kernels.crc32c import crc32c, first_damaged, masked, walk_records
from penstock.kernels.example_rows import copy_places, read_floats, read_integers, read_places, spanning
from penstock.kernels.examples import (
    BYTES,
    FLOATS,
    INTEGERS,
    LACKING,
    PART,
    SOUND,
    count_blobs,
    packed_bits,
    packed_floats,
    scan_examples,
    values_of,
)

LISTS = {"bytes_list": (12, False), "float_list": (2, True), "int64_list": (3, True)}


def message_class(packed=True):
    """`tf.train.Example`, whose lists of numbers are packed or not."""
    package = f"tf{int(packed)}"
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")

    def message(name):
        return file.message_type.add(name=name)

    def field(parent, name, number, kind, repeated=False, type_name=None):
        return parent.field.add(name=name, number=number, type=kind, label=3 if repeated else 1, type_name=type_name)

    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, (kind, packs)) in enumerate(LISTS.items(), 1):
        values = field(message(f"L{number}"), "value", 1, kind, repeated=True)
        if packs:
            values.options.packed = packed
        field(feature, name, number, 11, type_name=f".{package}.L{number}").oneof_index = 0
    features = message("Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, 9)
    field(entry, "value", 2, 11, type_name=f".{package}.Feature")
    field(features, "feature", 1, 11, repeated=True, type_name=f".{package}.Features.FeatureEntry")
    field(message("Example"), "features", 1, 11, type_name=f".{package}.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Example"))


EXAMPLE = {packed: message_class(packed) for packed in (False, True)}
VALUES = {
    "steps/action": ("float_list", [0.5, -1.0, 3.25]),
    "steps/tag": ("int64_list", [0, 1, -1, 2**63 - 1, -(2**63), 300]),
    "steps/image": ("bytes_list", [b"", b"abc", bytes(300)]),
    "none": ("int64_list", []),
    "é": ("bytes_list", ["ö".encode()]),
}


def serialized(packed=True, **more):
    example = EXAMPLE[packed]()
    for key, (kind, values) in {**VALUES, **more}.items():
        getattr(example.features.feature[key], kind).value.extend(values)
    return example.SerializeToString(deterministic=True)


def scan(messages, keys):
    data = read_only(np.frombuffer(b"".join(messages), np.uint8))
    size = np.array([len(m) for m in messages])
    names = [key.encode() for key in keys]
    spans, kinds = np.ones((len(size), len(keys), 3), np.int64), np.ones((len(size), len(keys)), np.uint8)
    ends = np.cumsum([len(name) for name in names])
    blob = read_only(np.frombuffer(b"".join(names), np.uint8))
    begin = np.cumsum(size) - size
    return data, begin, scan_examples(data, begin, size, blob, ends, spans, kinds), spans, kinds


@pytest.mark.parametrize("packed", [False, True])
def test_lists_are_found_and_read_as_the_library_wrote_them(packed):
    keys = [*VALUES, "absent"]
    data, begin, damaged, spans, kinds = scan([serialized(), serialized(packed)], keys)
    assert damaged.tolist() == [0, 0]
    expected = {"bytes_list": BYTES, "float_list": FLOATS, "int64_list": INTEGERS}
    for k, key in enumerate(VALUES):
        name, values = VALUES[key]
        first, last = (begin[1] + spans[1, k, :2]).tolist()
        assert kinds[:, k].tolist() == [expected[name]] * 2
        count = count_blobs(data, first, last) if name == "bytes_list" else spans[1, k, 2]
        assert count == len(values)
        if name == "bytes_list":
            found = [data[a:b].tobytes() for a, b in values_of(data, BYTES, first, last, len(values)).tolist()]
        else:
            kind = FLOATS if name == "float_list" else INTEGERS
            found = values_of(data, kind, first, last, len(values)).tolist()
        assert found == values
    assert kinds[:, -1].tolist() == [0, 0]
    assert not spans[:, -1].any()


def test_numbers_that_are_in_one_piece_are_said_so():
    more = {"flags": ("int64_list", [0, 1, 1])}
    data, begin, _, spans, _ = scan([serialized(**more), serialized(False, **more)], ["steps/action", "flags", "none"])
    first, size, count = begin[:, None] + spans[:, :, 0], spans[:, :, 1] - spans[:, :, 0], spans[:, :, 2]
    place = packed_floats(data, first[:, 0], size[:, 0])
    assert (place >= 0).tolist() == [True, False]
    assert data[place[0] : place[0] + 12].view("<f4").tolist() == [0.5, -1.0, 3.25]
    place = packed_bits(data, first[:, 1], size[:, 1], count[:, 1])
    assert (place >= 0).tolist() == [True, False]
    assert data[place[0] : place[0] + 3].tolist() == [0, 1, 1]
    assert (packed_bits(data, first[:, 2], size[:, 2], count[:, 2]) >= 0).all()


def test_the_last_of_two_equal_keys_counts():
    one, two = EXAMPLE[True](), EXAMPLE[True]()
    one.features.feature["x"].int64_list.value.append(1)
    two.features.feature["x"].int64_list.value.extend([2, 3])
    data, begin, _, spans, _ = scan([one.SerializeToString() + two.SerializeToString()], ["x"])
    assert values_of(data, INTEGERS, *(begin[0] + spans[0, 0, :2]).tolist(), 2).tolist() == [2, 3]


def test_edited_messages_are_refused_or_read_within_their_bytes():
    rng = random.Random(3)
    whole = serialized()
    for _ in range(400):
        raw = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        raw = bytes(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.3 else raw)
        data, begin, damaged, spans, kinds = scan([raw], list(VALUES))
        if damaged[0]:
            continue
        for k in range(len(VALUES)):
            kind, (first, last) = int(kinds[0, k]), (begin[0] + spans[0, k, :2]).tolist()
            assert 0 <= first <= last <= len(raw)
            if kind:
                with suppress(ValueError):  # an integer of more than ten bytes is seen here
                    count = count_blobs(data, first, last) if kind == BYTES else int(spans[0, k, 2])
                    assert len(values_of(data, kind, first, last, count)) == count


def test_arguments_that_do_not_fit_are_refused():
    data = read_only(np.zeros(8, np.uint8))
    for kind in (INTEGERS, FLOATS, BYTES):
        with pytest.raises(ValueError, match="within 8 bytes"):
            values_of(data, kind, 0, 9, 1)
        with pytest.raises(ValueError, match="within 8 bytes"):
            values_of(data, kind, 0, 4, 5)
        with pytest.raises(ValueError, match="a sound list"):
            values_of(data, kind, 0, 8, 3)
    one, spans, kinds = np.ones(1, np.int64), np.zeros((1, 1, 3), np.int64), np.zeros((1, 1), np.uint8)
    for call in (
        lambda: packed_floats(data, one * 4, one * 5),
        lambda: first_damaged(data, one * 0, one),
        lambda: walk_records(data, -1, one, one),
        lambda: scan_examples(data, one * 9, one, data, one, spans, kinds),
        lambda: scan_examples(data, one, one, data, one * 9, spans, kinds),
        lambda: scan_examples(data, one, one, data, one, spans[:0], kinds),
    ):
        with pytest.raises(ValueError, match="expected"):
            call()


def pieces_of(rng, total):
    """Random parts of lists of `total` values: values to skip, values wanted, and where these go."""
    skip = np.array([rng.randrange(n + 1) for n in total])
    count = np.array([rng.randrange(n - s + 1) for n, s in zip(total, skip.tolist(), strict=True)])
    return skip, count, np.cumsum(count) - count


def parts(lists, skip, count):
    return [value for row, s, n in zip(lists, skip, count, strict=True) for value in row[s : s + n]]


def test_rows_of_many_records_are_read_in_one_call():
    rng = random.Random(5)
    limits = [2, 200, 2**40, 2**63]
    integers = [
        [rng.randrange(-m, m) if m > 2 else rng.randrange(m) for _ in range(rng.randrange(9))] for m in limits * 9
    ]
    floats = [[rng.randrange(1 << 20) / 8 for _ in each] for each in integers]
    blobs = [[rng.randbytes(rng.randrange(300)) for _ in each] for each in integers]
    messages = [
        serialized(a=("int64_list", i), b=("float_list", f), c=("bytes_list", c))
        for i, f, c in zip(integers, floats, blobs, strict=True)
    ]
    data, message, _, spans, _ = scan(messages, ["a", "b", "c"])
    begin, end, total = message[:, None] + spans[:, :, 0], message[:, None] + spans[:, :, 1], spans[:, 0, 2].copy()
    a, b, c = ((begin[:, k].copy(), end[:, k].copy()) for k in range(3))
    first = np.cumsum(total) - total
    known = np.zeros(total.sum(), np.uint32)
    for _ in range(4):  # later rounds know places of some values
        skip, count, place = pieces_of(rng, total.tolist())
        out = np.empty(count.sum(), np.int64)
        assert not read_integers(data, *a, total, skip, count, place, out).any()
        assert out.tolist() == parts(integers, skip, count)
        raw = np.empty(4 * count.sum(), np.uint8)
        assert not read_floats(data, *b, skip, count, place, raw).any()
        assert raw.view("<f4").tolist() == [
            x for row, s, n in zip(floats, skip, count, strict=True) for x in row[s : s + n]
        ]
        places = np.empty((count.sum(), 2), np.int64)
        assert not read_places(data, message, *c, first, total, skip, count, place, known, places).any()
        found = [data[x:y].tobytes() for x, y in places.tolist()]
        assert found == parts(blobs, skip, count)
        size = places[:, 1] - places[:, 0]
        joined = np.empty(size.sum(), np.uint8)
        copy_places(data, places, np.cumsum(size) - size, joined)
        assert joined.tobytes() == b"".join(found)
    apart, bases = spanning([np.array([7], np.uint8), np.zeros(0, np.uint8), np.array([8, 9], np.uint8)])
    assert apart[bases[2] + 1] == 9


def test_lists_that_are_not_usual_are_left_to_the_caller():
    more = {"a": ("int64_list", [5, 6]), "b": ("float_list", [1.0, 2.0]), "c": ("bytes_list", [b"x", b"y"])}
    data, message, _, spans, _ = scan([serialized(**more), serialized(False, **more)], ["a", "b", "c"])
    begin, end = message[:, None] + spans[:, :, 0], message[:, None] + spans[:, :, 1]
    a, b, c = ((begin[:, k].copy(), end[:, k].copy()) for k in range(3))
    zero, one, two = (np.full(2, n) for n in (0, 1, 2))
    place = np.array([0, 1])
    assert read_integers(data, *a, two, one, one, place, np.empty(2, np.int64)).tolist() == [False, True]  # not packed
    assert read_floats(data, *b, one, one, place, np.empty(8, np.uint8)).tolist() == [False, True]
    assert read_integers(data, *a, two, two, one, place, np.empty(2, np.int64)).all()  # too few values
    known, out = np.zeros(6, np.uint32), np.zeros((2, 2), np.int64)
    assert read_places(data, message, *c, 3 * place, 3 * one, zero, one, place, known, out).all()
    with pytest.raises(ValueError, match="places within 1"):
        read_integers(data, *a, two, zero, one, place, np.empty(1, np.int64))
    with pytest.raises(ValueError, match="lists within"):
        read_floats(data, a[0], a[1] + len(data), zero, one, place, np.empty(8, np.uint8))
    with pytest.raises(ValueError, match="table of places"):
        read_places(data, message, *c, 5 * one, two, zero, one, place, known, out)
    with pytest.raises(ValueError, match="expected parts"):
        copy_places(data, np.array([[0, len(data) + 1]]), np.zeros(1, np.int64), np.empty(9, np.uint8))


def test_rows_of_edited_messages_are_read_as_by_the_other_functions_or_marked():
    rng = random.Random(7)
    whole = serialized()
    marked = 0
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        data, message, damaged, spans, kinds = scan([bytes(raw)], list(VALUES))
        for k in range(len(VALUES)):
            if damaged[0] or kinds[0, k] not in (BYTES, INTEGERS):
                continue
            begin, end = message + spans[:, k, 0], message + spans[:, k, 1]
            zero, total = np.zeros(1, np.int64), spans[:, k, 2].copy()
            expected = None
            if kinds[0, k] == INTEGERS:
                out = np.empty(int(total[0]), np.int64)
                with suppress(ValueError):
                    expected = values_of(data, INTEGERS, int(begin[0]), int(end[0]), int(total[0]))
                failed = read_integers(data, begin, end, total, zero, total, zero, out)
            else:
                with suppress(ValueError):
                    total[0] = count_blobs(data, int(begin[0]), int(end[0]))
                    expected = values_of(data, BYTES, int(begin[0]), int(end[0]), int(total[0]))
                total[0] = max(int(total[0]), 0)
                out = np.empty((int(total[0]), 2), np.int64)
                known = np.zeros(int(total[0]), np.uint32)
                failed = read_places(data, message, begin, end, zero, total, zero, total, zero, known, out)
            marked += int(failed[0])
            if not failed[0] and expected is not None:
                assert out.tolist() == expected.tolist()
    assert marked


def framed(payload):
    def checksum(raw):
        return masked(crc32c(read_only(np.frombuffer(raw, np.uint8)))).to_bytes(4, "little")

    size = len(payload).to_bytes(8, "little")
    return size + checksum(size) + payload + checksum(payload)


def slow_crc32c(raw):
    crc = 0xFFFFFFFF
    for byte in raw:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_checksums_equal_the_definition_at_every_length():
    raw = np.random.default_rng(0).bytes(40)
    for n in range(41):
        assert crc32c(read_only(np.frombuffer(raw[:n], np.uint8))) == slow_crc32c(raw[:n])
    assert crc32c(read_only(np.zeros(32, np.uint8))) == 0x8A9136AA  # RFC 3720, B.4


def test_records_are_listed_up_to_the_first_that_is_not_whole():
    payloads = [b"", b"a", bytes(100)]
    raw = b"".join(map(framed, payloads))
    for cut in range(len(raw) + 1):
        data = read_only(np.frombuffer(raw[:cut], np.uint8))
        begin, size = np.zeros((2, 5), np.int64)
        n, after = walk_records(data, 0, begin, size)
        whole = [p for i, p in enumerate(payloads) if sum(len(framed(q)) for q in payloads[: i + 1]) <= cut]
        assert [raw[a : a + s] for a, s in zip(begin[:n].tolist(), size[:n].tolist(), strict=True)] == whole
        assert after == sum(len(framed(p)) for p in whole)
    assert walk_records(read_only(np.frombuffer(raw, np.uint8)), 0, *np.zeros((2, 2), np.int64))[0] == 2


def test_every_changed_bit_is_noticed():
    raw = bytearray(framed(b"abc") + framed(b"defgh"))
    begin, size = np.array([12, 31]), np.array([3, 5])
    assert first_damaged(read_only(np.frombuffer(bytes(raw), np.uint8)), begin, size) == -1
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        data = read_only(np.frombuffer(bytes(changed), np.uint8))
        n, _ = walk_records(data, 0, *np.zeros((2, 3), np.int64))
        assert n < 2 or first_damaged(data, begin, size) >= 0


@pytest.mark.parametrize("seed", range(4))
def test_a_scan_reads_only_bytes_that_are_present(seed):
    """Absent parts have other bytes. A scan asks for what it needs, and gives what a scan of all bytes gives."""
    rng = np.random.default_rng(seed)
    messages = []
    for number in range(6):
        more = {
            f"{'abcdefgh'[k]}{'x' * int(rng.integers(1, 300))}": [
                ("bytes_list", [rng.bytes(int(rng.integers(0, 90_000))) for _ in range(4)]),
                ("float_list", rng.normal(size=int(rng.integers(0, 60_000))).tolist()),
                ("int64_list", rng.integers(-5, 1 << 40, int(rng.integers(0, 30_000))).tolist()),
            ][int(rng.integers(3))]
            for k in range(8)
        }
        raw = bytearray(serialized(bool(number % 2), **more))
        if number == 3:
            raw[int(rng.integers(len(raw)))] ^= 0xFF
        messages.append((bytes(raw), list(more)))
    keys = [*VALUES, *(key for _, names in messages for key in names)]
    data, begin, result, spans, kinds = scan([raw for raw, _ in messages], keys)
    ends = np.cumsum([len(key.encode()) for key in keys])
    blob = read_only(np.frombuffer("".join(keys).encode(), np.uint8))
    size = np.array([len(raw) for raw, _ in messages])
    some = rng.integers(0, 256, len(data), np.uint8)
    present = np.zeros(-(-len(data) // PART), np.uint8)
    need = np.zeros((6, 2), np.int64)
    found = np.ones_like(spans), np.ones_like(kinds)
    states = [read_only(some), read_only(present)]
    rounds = 0
    while (again := scan_examples(states[0], begin, size, blob, ends, *found, states[1], need) == LACKING).any():
        for first, last in need[again].tolist():
            assert first < last
            for part in range(first // PART, (last - 1) // PART + 1):
                some[part * PART : (part + 1) * PART] = data[part * PART : (part + 1) * PART]
                present[part] = 1
        rounds += 1
        assert rounds < len(present)
    assert present.sum() < len(present)
    again = scan_examples(states[0], begin, size, blob, ends, *found, states[1], need)
    np.testing.assert_array_equal(again, result)
    sound = result == SOUND
    assert sound.sum() >= 5
    np.testing.assert_array_equal(found[0][sound], spans[sound])
    np.testing.assert_array_equal(found[1][sound], kinds[sound])
