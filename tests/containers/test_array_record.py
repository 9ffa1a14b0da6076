"""ArrayRecord files of every compression and size of chunks, and damaged ones."""

# pyright: basic

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zstandard

from penstock.containers.array_record import BLOCK, MAGIC, START, chunk_at, decode_chunk, is_riegeli, record_chunks
from penstock.core.arrays import read_only
from penstock.errors import ChecksumError, FormatError
from penstock.kernels.highwayhash import highway_hash


def array(raw):
    return read_only(np.frombuffer(bytes(raw), np.uint8))


def number(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def hashed(raw):
    return highway_hash(array(raw)).to_bytes(8, "little")


class File:
    """A Riegeli file as its description says, to be read."""

    def __init__(self):
        self.raw = bytearray(START)
        self.write(hashed(header := self.header(b"", b"s", 0, 0)) + header)

    @staticmethod
    def header(data, kind, records, decoded):
        kinds = int.from_bytes(kind, "little") | records << 8
        return b"".join(
            (len(data).to_bytes(8, "little"), hashed(data), kinds.to_bytes(8, "little"), decoded.to_bytes(8, "little"))
        )

    def write(self, data):
        for byte in data:
            if len(self.raw) % BLOCK == 0:
                self.raw += bytes(24)
            self.raw.append(byte)

    def chunk(self, records, kind=b"z"):
        def pack(raw):
            return number(len(raw)) + zstandard.compress(raw) if kind == b"z" else raw

        sizes = pack(b"".join(number(len(record)) for record in records))
        data = kind + number(len(sizes)) + sizes + pack(b"".join(records))
        header = self.header(data, b"r", len(records), sum(map(len, records)))
        self.write(hashed(header) + header + data)

    def closed(self):
        end = len(self.raw)
        self.chunk([b"the footer"])
        self.raw += bytes(-len(self.raw) % BLOCK)
        self.chunk([b"\x08" + number(end) + b"\x10" + number(MAGIC)] * 3, b"\0")
        self.raw += bytes(-len(self.raw) % BLOCK)
        return array(self.raw)


RECORDS = [np.random.default_rng(seed).bytes(size) for seed, size in enumerate((0, 5, 70_000, 200_000, 3, 65_000))]


def records_of(data):
    chunks, damaged = record_chunks(data)
    assert damaged is None
    parts = [decode_chunk(data, chunk) for chunk in chunks]
    return [values[a:b].tobytes() for values, offsets in parts for a, b in pairwise(offsets)]


@pytest.mark.parametrize("kind", [b"\0", b"z"])
@pytest.mark.parametrize("group", [1, 4])
def test_chunks_that_cross_blocks_are_read(kind, group):
    file = File()
    for i in range(0, len(RECORDS), group):
        file.chunk(RECORDS[i : i + group], kind)
    data = file.closed()
    assert is_riegeli(data)
    assert not is_riegeli(data[1:])
    assert records_of(data) == RECORDS


def test_chunks_at_every_place_near_the_end_of_a_block():
    for size in range(BLOCK - 190, BLOCK - 90, 2):
        file = File()
        file.chunk([bytes(size)], b"\0")
        file.chunk([b"next"], b"\0")
        assert records_of(file.closed()) == [bytes(size), b"next"]


def test_changed_bytes_are_noticed():
    file = File()
    file.chunk([b"abc", b"defg"])
    whole = file.closed()
    end = 64 + record_chunks(whole)[0][0].end - 64
    for place in range(64, end):
        raw = bytearray(whole)
        raw[place] ^= 16
        data = array(raw)
        chunks, damaged = record_chunks(data)
        if damaged is None:
            with pytest.raises(ChecksumError, match="as they were written - at byte 64"):
                decode_chunk(data, chunks[0])


def test_a_file_that_was_not_closed_has_the_chunks_before_its_end():
    file = File()
    file.chunk([b"abc"])
    file.chunk([b"d"])
    data = array(file.raw[:-1])
    chunks, damaged = record_chunks(data)
    assert damaged.startswith("no postscript")
    assert decode_chunk(data, chunks[0])[0].tobytes() == b"abc"
    with pytest.raises(FormatError, match="the end of the file"):
        decode_chunk(data, chunks[1])


def test_other_compressions_are_named():
    file = File()
    file.chunk([b"abc"], b"b")
    data = file.closed()
    with pytest.raises(FormatError, match="plain or compressed with zstd, got b'b'"):
        decode_chunk(data, chunk_at(data, 64))


def test_edited_files_without_hashes_are_refused_or_read():
    rng = random.Random(5)
    file = File()
    file.chunk([b"abc" * 9, b"", b"x"])
    whole = file.closed()
    chunk = chunk_at(whole, 64)
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            raw[rng.randrange(104, chunk.end)] = rng.randrange(256)
        try:
            values, offsets = decode_chunk(array(raw), chunk, verify=False)
            assert offsets[-1] == len(values)
        except FormatError:
            continue


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 1), (1, 2, 1)])
def test_files_one_behind_the_other_are_refused(order):
    folder = Path(__file__).parents[1] / "golden/rlds/array_record/toy_arm/1.0.0"
    files = [(folder / f"toy_arm-train.array_record-0000{number}-of-00003").read_bytes() for number in order]
    for raw in files:
        assert record_chunks(array(raw))[1] is None
    with pytest.raises(FormatError, match=rf"got several; another one begins at byte {len(files[0])}; split them"):
        record_chunks(array(b"".join(files)))
