"""Files that lie: every one is an error that names array and chunk, and none costs more than it should."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import tempfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.containers.zarr.writing import ArrayWriter, compressor_of, create_group
from penstock.errors import FormatError, UnsafeDataError

ROW = np.dtype([("place", "<f8", (2,)), ("id", "<u4")])
PROFILE = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def stored(folder: Path, codec: Any = "lz4", n: int = 20_000, chunk: int = 10_000) -> Path:
    folder.mkdir()
    create_group(folder, {})
    writer = ArrayWriter.create(folder / "rows", ArrayMetadata.of(ROW, (0,), chunk, compressor_of(codec)))
    rows = np.zeros(n, ROW)
    rows["id"], rows["place"] = np.arange(n), np.random.default_rng(0).integers(0, 9, (n, 2))
    writer.append(rows)
    writer.commit()
    return folder


def opened(folder: Path) -> ZarrArray:
    return ZarrGroup(folder).array("rows", "refuse")


def told(folder: Path, **changes: Any) -> None:
    """Change what `.zarray` says."""
    path = folder / "rows" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"zarr_format": 3},
        {"zarr_format": None},
        {"shape": [-1]},
        {"shape": [True]},
        {"shape": [1.5]},
        {"shape": "20"},
        {"shape": []},
        {"shape": [1 << 63]},
        {"shape": [10, 0], "chunks": [5, 0]},
        {"shape": [1] * 9, "chunks": [1] * 9},
        {"chunks": [0]},
        {"chunks": [-5]},
        {"chunks": None},
        {"chunks": [5, 5]},
        {"shape": [20, 1 << 20], "chunks": [5, 2]},
        {"shape": [20, 2], "chunks": [1 << 27, 2], "order": "F"},
        {"filters": [{"id": "delta"}]},
        {"filters": "delta"},
        {"shape": [1 << 61], "chunks": [1 << 61]},
        {"dtype": "|O"},
        {"dtype": [["a", "|O"]]},
        {"dtype": "<f3"},
        {"dtype": "object"},
        {"dtype": "<M8[ns]"},
        {"dtype": []},
        {"dtype": 5},
        {"dtype": {}},
        {"dtype": [["a"]]},
        {"dtype": [["a", "<f4"], ["a", "<f4"]]},
        {"dtype": [["", "<f4"]]},
        {"dtype": [["a", "<f4", [-1]]]},
        {"dtype": [["a", "<f4", [1 << 40]]]},
        {"dtype": [["a", "<f4", "3"]]},
        {"dtype": [["a", "<f4", [1, 2], 3]]},
        {"dtype": [["a", [["b", [["c", [["d", [["e", "<f4"]]]]]]]]]]},
        {"dtype": "<U999999999"},
        {"dtype": "|V99999999"},
        {"dtype": "f4,__import__('os')"},
        {"fill_value": "AA=="},
        {"fill_value": {}},
        {"order": "K"},
        {"filters": [{"id": "pickle"}]},
        {"compressor": "blosc"},
        {"compressor": {}},
        {"compressor": {"id": 5}},
        {"dimension_separator": "../"},
    ],
    ids=str,
)
def test_metadata_that_cannot_be(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = stored(tmp_path / "g", n=50, chunk=20)
    if "dtype" in changes or "fill_value" not in changes:
        told(folder, fill_value=None)
    told(folder, **changes)
    with pytest.raises(FormatError, match=r"rows/\.zarray in") as caught:
        opened(folder)
    assert isinstance(caught.value, UnsafeDataError) == ("O" in str(changes.get("dtype", ""))[:12].replace("os", ""))


@pytest.mark.parametrize("raw", [b"", b"[", b"[]", b"5", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000])
@pytest.mark.parametrize("key", [".zgroup", ".zattrs", "rows/.zarray", ".zmetadata"])
def test_what_is_no_json(tmp_path: Path, raw: bytes, key: str) -> None:
    folder = stored(tmp_path / "g", n=5)
    (folder / key).write_bytes(raw)
    with pytest.raises(FormatError, match=key.replace(".", r"\.")):
        opened(folder)


def test_consolidated_metadata_that_are_none(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g", n=5)
    (folder / ".zgroup").unlink()
    for metadata in ([], {".zgroup": 5}, {".zgroup": {"zarr_format": 3}}, {}):
        (folder / ".zmetadata").write_text(json.dumps({"metadata": metadata}))
        with pytest.raises(FormatError):
            opened(folder)


def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g", n=5)
    told(folder, compressor={"id": "pickle"})
    with pytest.raises(FormatError, match=r"'pickle'.*rows/\.zarray in"):
        opened(folder)


CODECS = [None, "lz4", "zlib", "gzip", "bz2", "lzma", {"id": "lz4"}, {"id": "zstd"}]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("cut", [0, 1, 5, 15, 16, 17, 40, 300, -1, -8])
def test_chunks_that_are_cut(tmp_path: Path, codec: Any, cut: int) -> None:
    folder = stored(tmp_path / "g", codec)
    path = folder / "rows" / "1"
    path.write_bytes(path.read_bytes()[:cut])
    array = opened(folder)
    assert len(array[:10_000]) == 10_000
    for index in (slice(10_000, 20_000), slice(0, 20_000), slice(9_990, 10_010), -1):
        with pytest.raises(FormatError, match="rows/1 in"):
            array[index]


@pytest.mark.parametrize("codec", CODECS[1:], ids=str)
@pytest.mark.parametrize("rows", [1, 9_999, 10_001, 5_000_000])
def test_chunks_that_hold_another_number_of_rows(tmp_path: Path, codec: Any, rows: int) -> None:
    folder = stored(tmp_path / "g", codec)
    told(folder, chunks=[rows])
    with pytest.raises(FormatError, match="rows/0 in"):
        opened(folder)[0]


@pytest.mark.parametrize("chunk", [1 << 31, 1 << 40])
def test_chunks_larger_than_codecs_know(tmp_path: Path, chunk: int) -> None:
    folder = stored(tmp_path / "g")
    told(folder, chunks=[chunk])
    with pytest.raises(FormatError, match="at most"):
        opened(folder)[0]


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(200 << 20), 9)
    folder = stored(tmp_path / "g", "zlib")
    (folder / "rows" / "0").write_bytes(bomb)
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"got more - at|at most"):
        opened(folder)[0]
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_a_bomb_in_an_archive_is_stopped(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g")
    (folder / "rows" / "0").write_bytes(bytes(100 << 20))
    path = tmp_path / "g.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, str(file.relative_to(folder)))
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"at most .* at rows/0"):
        opened(path)[0]
    raw = path.read_bytes()
    size = struct.pack("<I", 100 << 20)
    path.write_bytes(raw.replace(size, struct.pack("<I", 1000)))  # and lies about its size
    with pytest.raises(FormatError, match=r"rows/0"):
        opened(path)[0]
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_rows_that_a_file_merely_claims_cost_nothing(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g")
    told(folder, shape=[1 << 50])
    array = opened(folder)
    for read in (lambda: array[:], lambda: array["id"], lambda: array[1 << 49]):
        with pytest.raises(FormatError, match="got none"):
            read()


def blosc(folder: Path, at: int, value: int, width: str = "<I") -> None:
    """Change a number in the first chunk."""
    path = folder / "rows" / "0"
    raw = bytearray(path.read_bytes())
    struct.pack_into(width, raw, at, value)
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        *[(0, v) for v in (0x03000000, 0x74310001)],  # version
        *[(4, v) for v in (0, 1, 199_999, 200_001, 0xFFFFFFFF)],  # decoded bytes
        *[(8, v) for v in (0, 1, 7, 0xFFFFFFFF, 0x7FFFFFFF)],  # bytes of a block
        *[(12, v) for v in (0, 16, 0xFFFFFFFF)],  # bytes of the buffer
        *[(16, v) for v in (0, 15, 20, 0x7FFFFFFF, 0xFFFFFFFF)],  # where a block begins
    ],
)
def test_lies_in_a_blosc_header(tmp_path: Path, at: int, value: int) -> None:
    folder = stored(tmp_path / "g")
    blosc(folder, at, value)
    for index in (0, slice(0, 10_000), slice(0, 20_000)):
        with pytest.raises(FormatError, match="rows/0 in"):
            opened(folder)[index]


def test_lies_in_a_blosc_block(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g")
    first = struct.unpack_from("<I", (folder / "rows" / "0").read_bytes(), 16)[0]
    for value in (0x7FFFFFFF, 0xFFFFFFFF, 1 << 20):
        blosc(folder, first, value)
        for index in (0, slice(0, 10_000)):
            with pytest.raises(FormatError, match="rows/0 in"):
                opened(folder)[index]


@PROFILE
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4), st.integers(0, 7))
def test_changed_bytes_are_values_or_errors(changes: list[tuple[int, int]], codec: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = stored(Path(place) / "g", CODECS[codec], 3000, 2000)
        path = folder / "rows" / "0"
        raw = bytearray(path.read_bytes())
        for at, change in changes:
            raw[min(at % 64 if change & 1 else at, len(raw) - 1) % len(raw)] ^= change
        path.write_bytes(raw)
        for index in (0, slice(100, 1200), slice(None), [1999, 5]):
            try:
                assert len(np.atleast_1d(opened(folder)[index])) in (1, 1100, 3000, 2)
            except FormatError as error:
                assert error.where == "rows/0"  # noqa: PT017


@PROFILE
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4))
def test_changed_archives_are_values_or_errors(changes: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = stored(Path(place) / "g", "lz4", 30, 20)
        path = Path(shutil.make_archive(str(Path(place) / "a"), "zip", folder))
        raw = bytearray(path.read_bytes())
        for at, change in changes:
            raw[at % len(raw)] ^= change
        path.write_bytes(raw)
        with contextlib.suppress(FormatError):
            assert len(opened(path)[:]) >= 0


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(FormatError, match="zip"):
        ZarrGroup(path)
