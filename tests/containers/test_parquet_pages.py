"""Single values of a Parquet column of bytes: equal to what PyArrow reads, few bytes, and errors for damaged files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.arrow import ParquetFile, stored_leaves
from penstock.containers.arrow.footer import I64, ThriftReader, offset_indexes, struct_bytes
from penstock.containers.arrow.pages import BytesChunk, Take, is_bytes, packed_numbers
from penstock.core.cache import Cache
from penstock.errors import FormatError

ROWS = 300
RNG = np.random.default_rng(0)
BLOBS = [RNG.bytes(int(size)) for size in RNG.integers(0, 4000, ROWS)]
SOME = np.array([299, 0, 7, 7, 150, 149, 298])
IMAGES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write(path: Path, blobs: list[bytes | None], kind: Any = IMAGES, **options: Any) -> Path:
    values = [{"bytes": blob, "path": None} for blob in blobs] if kind == IMAGES else blobs
    table = pa.table({"number": np.arange(len(blobs)), "image": pa.array(values, kind)})
    pq.write_table(table, path, row_group_size=len(blobs), **options)
    return path


def values(path: Path, rows: Any, leaf: str = "image.bytes", cache: Cache | None = None) -> list[bytes] | None:
    return ParquetFile(path, Cache(1 << 20)).values(leaf, np.asarray(rows), cache or Cache(1 << 30))


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "brotli"])
@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize("repeated", [False, True], ids=["different", "repeated"])
def test_values_are_those_of_pyarrow(tmp_path: Path, codec: str, dictionary: bool, repeated: bool) -> None:
    blobs = BLOBS[:3] * 100 if repeated else BLOBS
    options = {"compression": codec, "use_dictionary": dictionary, "data_page_size": 1 << 14, "write_batch_size": 32}
    path = write(tmp_path / "a.parquet", blobs, **options, dictionary_pagesize_limit=1 << 16)
    assert values(path, SOME) == [blobs[row] for row in SOME]
    assert values(path, np.arange(ROWS)) == blobs
    assert values(path, np.zeros(0, np.int64)) == []


@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
def test_an_offset_index_says_the_same_as_the_headers_of_pages(tmp_path: Path, dictionary: bool) -> None:
    options = {"use_dictionary": dictionary, "data_page_size": 1 << 14, "write_batch_size": 32}
    path = write(tmp_path / "a.parquet", BLOBS, **options, dictionary_pagesize_limit=1 << 16, write_page_index=True)
    chunks = BytesChunk.of(reader(path), leaf_of(path), 2), BytesChunk.indexed(index_of(path), leaf_of(path), 2)
    assert (chunks[0].dictionary is not None, len(chunks[0].begin) > 5) == (dictionary, True)
    assert chunks[0].dictionary == chunks[1].dictionary
    places = np.zeros((ROWS, 2), np.int64)
    for name in ("begin", "end", "first"):
        assert np.array_equal(getattr(chunks[0], name), getattr(chunks[1], name))
    assert chunks[1].read(reader(path), SOME, Cache(1 << 20), places) == [BLOBS[row] for row in SOME]
    begin, end = chunks[0].ranges(SOME).T
    assert (end - begin).sum() < leaf_of(path).total_compressed_size / 2


def test_a_damaged_offset_index_is_an_error_or_names_the_same_pages(tmp_path: Path) -> None:
    options = {"use_dictionary": False, "data_page_size": 1 << 14, "write_batch_size": 32}
    path = write(tmp_path / "a.parquet", BLOBS, **options, write_page_index=True)
    index = index_of(path)
    damaged, places = 0, np.zeros((ROWS, 2), np.int64)
    for place in range(len(index)):
        raw = bytearray(index)
        raw[place] ^= 1 << int(RNG.integers(8))
        try:
            chunk = BytesChunk.indexed(bytes(raw), leaf_of(path), 2)
            assert chunk.read(reader(path), np.arange(ROWS), Cache(1 << 20), places) == BLOBS
        except FormatError:
            damaged += 1
    assert damaged > len(index) / 2
    for wrong in (b"", b"\0", index[: len(index) // 2]):
        with pytest.raises(FormatError):
            BytesChunk.indexed(wrong, leaf_of(path), 2)
    footer = path.read_bytes()[-8 - pq.read_metadata(path).serialized_size : -8]
    for wrong in (b"\0", footer[:40]):
        with pytest.raises(FormatError):
            offset_indexes(wrong, 1)


def leaf_of(path: Path) -> Any:
    return pq.read_metadata(path).row_group(0).column(1)


def reader(path: Path) -> Take:
    content = path.read_bytes()
    return lambda begin, end: content[begin:end]


def index_of(path: Path) -> bytes:
    content = path.read_bytes()
    ((begin, end),) = offset_indexes(content[-8 - pq.read_metadata(path).serialized_size : -8], 1)
    return content[begin:end]


def test_bytes_at_the_top_and_of_one_value(tmp_path: Path) -> None:
    kind = pa.binary()
    path = write(tmp_path / "a.parquet", [b"same"] * 20, kind)
    assert values(path, [3, 19], "image") == [b"same"] * 2
    table = pa.table({"image": pa.array(BLOBS, kind)}, pa.schema([pa.field("image", kind, nullable=False)]))
    pq.write_table(table, path, use_dictionary=False)
    assert values(path, SOME, "image") == [BLOBS[row] for row in SOME]


@pytest.mark.parametrize(
    ("kind", "blobs", "options"),
    [
        (pa.string(), ["a", "b"], {}),
        (pa.list_(pa.binary()), [[b"a"], []], {}),
        (pa.binary(1), [b"a", b"b"], {}),
        (pa.binary(), [b"a", None], {}),
        (pa.binary(), [b"a", b"b"], {"data_page_version": "2.0"}),
        (pa.binary(), [b"a", b"b"], {"use_dictionary": False, "column_encoding": {"image": "DELTA_LENGTH_BYTE_ARRAY"}}),
        (pa.binary(), [b"a", b"b"], {"compression": "lz4"}),
    ],
    ids=["text", "lists", "fixed", "missing", "pages of version 2", "other encoding", "other codec"],
)
def test_other_layouts_are_left_to_pyarrow(tmp_path: Path, kind: Any, blobs: Any, options: Any) -> None:
    path = write(tmp_path / "a.parquet", blobs, kind, **options)
    leaf = ParquetFile(path, Cache(0)).schema.names[1]
    assert values(path, [0, 1], leaf) is None
    assert values(path, [0], "nothing") is None


def test_wanted_bytes_alone_are_read_of_pictures_as_we_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = [RNG.bytes(20_000) for _ in range(200)]
    table = pa.table({"image": pa.array([{"bytes": blob, "path": None} for blob in blobs], IMAGES)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, **stored_leaves(table.schema))
    file, cache, sizes = ParquetFile(path, Cache(1 << 20)), Cache(1 << 20), list[int]()
    file.values("image.bytes", np.array([3, 5]), cache)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, place: sizes.append(size) or pread(fd, size, place))
    assert file.values("image.bytes", np.array([3, 5]), cache) == [blobs[3], blobs[5]]
    assert sizes == [20_000, 20_000]
    assert cache.nbytes < 10_000


@pytest.mark.parametrize("size", [1_500, 20_000, 500_000])
def test_our_pages_of_pictures_make_files_a_thousandth_larger(size: int, tmp_path: Path) -> None:
    table = pa.table({"image": pa.array([RNG.bytes(size) for _ in range(4_000_000 // size)])})
    sizes: list[int] = []
    for options in ({"compression": "none", "use_dictionary": False}, stored_leaves(table.schema)):
        pq.write_table(table, tmp_path / "a.parquet", **options)
        sizes.append((tmp_path / "a.parquet").stat().st_size)
        assert pq.read_table(tmp_path / "a.parquet").equals(table)
    assert sizes[1] < sizes[0] * 1.0015
    chunk = BytesChunk.of(
        reader(tmp_path / "a.parquet"), pq.read_metadata(tmp_path / "a.parquet").row_group(0).column(0), 1
    )
    assert (chunk.end - chunk.begin).max() < (1 << 15) + size + 100


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_damage_is_an_error_or_gives_other_bytes(tmp_path: Path, codec: str) -> None:
    path = write(tmp_path / "a.parquet", BLOBS[:40], compression=codec, use_dictionary=False)
    whole = path.read_bytes()
    leaf = pq.read_metadata(path).row_group(0).column(1)
    begin, size = leaf.data_page_offset, leaf.total_compressed_size
    damaged = 0
    for place in [*range(begin, begin + 60), *RNG.integers(begin, begin + size, 60).tolist()]:
        raw = bytearray(whole)
        raw[place] ^= 1 << int(RNG.integers(8))
        path.write_bytes(raw)
        try:
            values(path, np.arange(40))
        except FormatError:
            damaged += 1
    assert damaged > 5


@pytest.mark.parametrize("part", ["header", "length of a value"])
def test_what_is_wrong_is_said(tmp_path: Path, part: str) -> None:
    path = write(tmp_path / "a.parquet", [b"abcdefgh"] * 4, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    if part == "header":
        begin = pq.read_metadata(path).row_group(0).column(1).data_page_offset
        content[begin : begin + 20] = b"\xff" * 20
    else:
        begin = content.index(b"\x08\0\0\0abcdefgh")
        content[begin : begin + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="header of a page" if part == "header" else "within their page"):
        values(path, [3])


def test_a_chunk_that_ends_behind_the_file_takes_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", BLOBS, compression="none", use_dictionary=False)
    content, size = path.read_bytes(), pq.read_metadata(path).serialized_size
    footer = ThriftReader(content[-8 - size : -8]).struct()
    leaf = footer[4][1][1][0][1][1][1][1][3][1]
    leaf[5], leaf[7] = (I64, 1 << 40), (I64, 1 << 50)  # values and stored bytes
    written = struct_bytes(footer)
    path.write_bytes(content[: -8 - size] + written + len(written).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FormatError, match="column chunk within the"):
        values(path, SOME)


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", BLOBS)
    file = ParquetFile(path, Cache(1 << 20))
    write(path, BLOBS[:200])
    with pytest.raises(FormatError, match="opened"):
        file.values("image.bytes", np.array([0]), Cache(1 << 20))
    file = ParquetFile(path, Cache(1 << 20))
    write(tmp_path / "other.parquet", BLOBS[:200]).replace(path)
    with pytest.raises(FormatError, match="a changed one"):
        file.values("image.bytes", np.array([0]), Cache(1 << 20))
    path.unlink()
    with pytest.raises(FormatError, match="got none; restore it"):
        file.values("image.bytes", np.array([0]), Cache(1 << 20))


@pytest.mark.parametrize(
    ("name", "options"),
    [("lerobot", {"fps": 10, "cameras": "image"}), ("minari", {"data_format": "parquet", "images": "jpeg"})],
)
def test_our_writers_store_pictures_as_they_are_and_read_no_more_than_some(
    name: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "observations": RNG.integers(0, 256, (62, 40, 40, 3), np.uint8),
        "actions": np.zeros((60, 2), np.float32),
        "rewards": np.zeros(60),
        "terminations": np.zeros(60, bool),
        "truncations": np.arange(60) % 30 == 29,
    }
    episodes = penstock.from_arrays(columns, lengths=[30, 30])
    path = tmp_path / "data-v0"
    penstock.convert(episodes, path, format=name, options=options)
    stored = 0
    for file in path.rglob("*.parquet"):
        metadata = pq.read_metadata(file)
        for number in range(metadata.num_columns):
            leaf = metadata.row_group(0).column(number)
            if is_bytes(metadata.schema.column(number)):
                stored += 1
                assert (leaf.compression, leaf.has_dictionary_page) == ("UNCOMPRESSED", False)
                assert leaf.has_offset_index
                assert leaf.statistics is None
    assert stored
    with penstock.open(path) as data:
        rows = data.windows(2)[[3, 40, 3, 4]]["observations"]
        monkeypatch.setattr(ParquetFile, "values", lambda self, path, rows, cache: None)
        assert np.array_equal(data.windows(2)[[3, 40, 3, 4]]["observations"], rows)


def test_damaged_pictures_of_an_episode_are_named(tmp_path: Path) -> None:
    columns = {"observations": RNG.integers(0, 256, (21, 40, 40, 3), np.uint8), "actions": np.zeros((20, 1))}
    columns |= {"rewards": np.zeros(20), "terminations": np.zeros(20, bool), "truncations": np.arange(20) == 19}
    path = tmp_path / "data-v0"
    options = {"data_format": "parquet", "images": "jpeg"}
    penstock.convert(penstock.from_arrays(columns, lengths=[20]), path, format="minari", options=options)
    (file,) = path.rglob("*.parquet")
    content = bytearray(file.read_bytes())
    place = content.index(b"\xff\xd8\xff", len(content) // 2)
    content[place : place + 3] = b"abc"
    file.write_bytes(content)
    with penstock.open(path) as data, pytest.raises(FormatError, match=r"observations, row \d+ of episode 0"):
        data.steps()[:]


@pytest.mark.parametrize("width", [0, 1, 8])
def test_a_run_takes_no_more_memory_than_its_numbers(width: int) -> None:
    """Whatever length the file states."""
    head = b"\xff\xff\xff\xff\x3f"  # 2**33 groups
    if width:
        with pytest.raises(FormatError, match="values within their page"):
            list(packed_numbers(head + bytes(8), width, 5))
    else:
        assert [run.tolist() for run in packed_numbers(head, width, 5)] == [[0] * 5]
