"""Examples and records: our parser against the library of protocol buffers, and against edited bytes."""

import random
from contextlib import suppress

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.core.arrays import read_only
from penstock.kernels.crc32c import crc32c, first_damaged, masked, walk_records
from penstock.kernels.examples import (
    BYTES,
    FLOATS,
    INTEGERS,
    blobs_of,
    count_blobs,
    floats_of,
    integers_of,
    packed_bits,
    packed_floats,
    scan_examples,
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
    return example.SerializeToString()


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
            found = [data[a:b].tobytes() for a, b in blobs_of(data, first, last, len(values)).tolist()]
        else:
            found = (floats_of if name == "float_list" else integers_of)(data, first, last, len(values)).tolist()
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
    assert integers_of(data, *(begin[0] + spans[0, 0, :2]).tolist(), 2).tolist() == [2, 3]


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
                read = {BYTES: blobs_of, FLOATS: floats_of, INTEGERS: integers_of}[kind]
                with suppress(ValueError):  # an integer of more than ten bytes is seen here
                    count = count_blobs(data, first, last) if kind == BYTES else int(spans[0, k, 2])
                    assert len(read(data, first, last, count)) == count


def test_arguments_that_do_not_fit_are_refused():
    data = read_only(np.zeros(8, np.uint8))
    for read in (integers_of, floats_of, blobs_of):
        with pytest.raises(ValueError, match="within 8 bytes"):
            read(data, 0, 9, 1)
        with pytest.raises(ValueError, match="within 8 bytes"):
            read(data, 0, 4, 5)
        with pytest.raises(ValueError, match="a sound list"):
            read(data, 0, 8, 3)
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
