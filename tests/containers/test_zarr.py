"""Arrays as written and read: dtypes, codecs, stores, every way to index, the cache and its bound."""

from __future__ import annotations

import json
import os
import shutil
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.blosc import BloscBuffer
from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ArrayMetadata, described, dtype_of, fill_described, fill_of
from penstock.containers.zarr.stores import ZipStore, open_store
from penstock.containers.zarr.writing import ArrayWriter, compressor_of, create_group, write_attributes
from penstock.core.cache import Cache
from penstock.errors import DataError, FormatError, SpecError, UnsafeDataError

ROW = np.dtype([("place", "<f8", (2,)), ("kind", "<U3"), ("id", "<u8"), ("turn", "<f4", (3, 3))])
CODECS = [None, "lz4", "zstd", "zlib", "gzip", "bz2", "lzma", {"id": "lz4"}, {"id": "zstd"}]


def rows_of(n: int, seed: int = 0, dtype: np.dtype[Any] = ROW) -> np.ndarray[Any, Any]:
    """Random rows that compress a little."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(n, dtype)
    rows["place"], rows["id"] = rng.normal(size=(n, 2)), np.arange(n)
    rows["kind"], rows["turn"] = rng.choice(["car", "né", ""], n), rng.integers(3, size=(n, 3, 3))
    return rows


def stored(
    folder: Path, rows: np.ndarray[Any, Any], chunk: int = 64, codec: str | Mapping[str, Any] | None = "lz4"
) -> Path:
    """A group of one array `rows`."""
    folder.mkdir(exist_ok=True)
    create_group(folder, {"labels": ["a"]})
    metadata = ArrayMetadata.of(rows.dtype, (0, *rows.shape[1:]), chunk, compressor_of(codec))
    writer = ArrayWriter.create(folder / "rows", metadata)
    writer.append(rows)
    writer.commit()
    writer.sync()
    writer.close()
    return folder


def zipped(folder: Path, method: int = zipfile.ZIP_STORED, prefix: str = "") -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, prefix + str(file.relative_to(folder)))
    return path


def opened(location: Any, cache: Cache | None = None) -> ZarrArray:
    return ZarrGroup(location, cache).array("rows", "refuse")


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize(("n", "chunk"), [(0, 5), (1, 5), (5, 5), (333, 64), (300, 1000), (64 * 3, 64), (7000, 5000)])
def test_rows_come_back_to_the_bit_by_every_index(tmp_path: Path, codec: Any, n: int, chunk: int) -> None:
    rows = rows_of(n)
    array = opened(stored(tmp_path / "g", rows, chunk, codec))
    assert (array.dtype, array.shape, len(array), array.ndim) == (ROW, (n,), n, 1)
    assert array[:].tobytes() == rows.tobytes() == np.asarray(array).tobytes() == array[...].tobytes()
    assert array["place"].tobytes() == np.ascontiguousarray(rows["place"]).tobytes()
    rng = np.random.default_rng(n)
    for _ in range(20):
        a, b = rng.integers(-n - 2, n + 3, 2).tolist()
        step = int(rng.choice([1, 1, 2, 7, -1, -3]))
        assert array[a:b:step].tobytes() == rows[a:b:step].tobytes()
    if n:
        for i in (0, -1, n - 1, -n, n // 2):
            assert array[i].tobytes() == array[np.int64(i)].tobytes() == rows[i].tobytes()
            assert array[i]["kind"] == rows[i]["kind"]
        numbers = rng.integers(-n, n, 50)
        mask = rng.random(n) < 0.3
        assert array[numbers].tobytes() == rows[numbers].tobytes()
        assert array[numbers.tolist()].tobytes() == rows[numbers].tobytes()
        assert array[np.sort(numbers).astype(np.int32)].tobytes() == rows[np.sort(numbers)].tobytes()
        assert array[mask].tobytes() == rows[mask].tobytes()
    assert array[[]].tobytes() == b""


def test_indices_that_are_none_are_refused(tmp_path: Path) -> None:
    array = opened(stored(tmp_path / "g", rows_of(10), 4))
    for wrong in (10, -11, [0, 10], [-11], np.ones(9, bool), [[0]], [0.5]):
        with pytest.raises(IndexError):
            array[wrong]
    with pytest.raises(KeyError, match="place"):
        array["nothing"]
    with pytest.raises(TypeError, match="tuple"):
        array[0, 1]
    with pytest.raises(ValueError, match="copy"):
        np.array(array, copy=False)


def test_what_is_handed_out_may_be_changed(tmp_path: Path) -> None:
    rows = rows_of(100)
    array = opened(stored(tmp_path / "g", rows, 30))
    for found in (array[5], array[5:7], array[[5, 6]], array[:]):
        found["id"] = 999
    assert array[:].tobytes() == rows.tobytes()
    assert array[5].tobytes() == rows[5].tobytes()


@pytest.mark.parametrize("dtype", ["|b1", "<i4", ">f8", "<u2", "|S4", "<U3", "<c8"])
@pytest.mark.parametrize("shape", [(90,), (90, 2), (90, 3, 2)])
def test_plain_dtypes_and_more_axes(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    array = opened(stored(tmp_path / "g", rows, 40))
    assert array.shape == shape
    assert array[:].tobytes() == rows.tobytes()
    assert np.asarray(array[7]).tobytes() == rows[7].tobytes()
    assert array[[80, 3]].tobytes() == rows[[80, 3]].tobytes()
    assert array[[80, 3]].shape == (2, *shape[1:])
    key = array.metadata.key(1)
    assert (tmp_path / "g" / "rows" / key).exists()
    assert key == ".".join(["1", *["0"] * (len(shape) - 1)])


def test_dtypes_are_described_and_read_back() -> None:
    inner = np.dtype([("a", "<i2"), ("b", [("c", "<f4", (2,)), ("d", "|S3")])])
    for dtype in (ROW, inner, np.dtype("<f8"), np.dtype("|b1")):
        told = json.loads(json.dumps(described(dtype)))
        assert dtype_of(told) == dtype
        raw = fill_of(json.loads(json.dumps(fill_described(dtype))), dtype)
        assert raw == bytes(dtype.itemsize)
    for wrong in (np.dtype("O"), np.dtype([("a", "i1"), ("b", "i8")], align=True), np.dtype("M8[ns]")):
        with pytest.raises(DataError):
            described(wrong)


def test_fill_values_of_every_kind() -> None:
    assert fill_of("NaN", np.dtype("<f8")) == np.array(np.nan).tobytes()
    assert fill_of("-Infinity", np.dtype("<f4")) == np.array(-np.inf, "<f4").tobytes()
    assert fill_of(7, np.dtype(">i2")) == b"\0\7"
    assert fill_of("ab", np.dtype("<U2")) == np.array("ab").tobytes()
    assert fill_of([1.0, 2.0], np.dtype("<c16")) == np.array(1 + 2j).tobytes()
    for value, dtype in (
        ("x", "<f8"),
        (1, "<U2"),
        ([], "<i4"),
        ({}, "<i4"),
        (1 << 70, "<i8"),
        ("!", "|S2"),
        ("AA==", ROW),
    ):
        with pytest.raises(FormatError, match="fill value"):
            fill_of(value, np.dtype(dtype))


def test_chunks_that_are_not_there_are_the_fill_value_or_refused(tmp_path: Path) -> None:
    rows = rows_of(100)
    folder = stored(tmp_path / "g", rows, 30)
    (folder / "rows" / "1").unlink()
    filled = ZarrGroup(folder).array("rows")
    expected = rows.copy()
    expected[30:60] = np.zeros((), ROW)
    assert filled[:].tobytes() == expected.tobytes()
    assert filled[[35, 5]].tobytes() == expected[[35, 5]].tobytes()
    array = opened(folder)
    assert array[:30].tobytes() == rows[:30].tobytes()
    for index in (35, slice(20, 40), slice(None), [99, 31]):
        with pytest.raises(FormatError, match=r"chunk 1, of rows 30:60.*at rows/1 in"):
            array[index]
    told = json.loads((folder / "rows" / ".zarray").read_text())
    told["fill_value"] = fill_described(ROW)[:-4] + "AAAB"
    (folder / "rows" / ".zarray").write_text(json.dumps(told))
    assert ZarrGroup(folder).array("rows")[30].tobytes() != bytes(ROW.itemsize)


def test_stores_of_every_kind_hold_the_same(tmp_path: Path) -> None:
    rows = rows_of(200)
    folder = stored(tmp_path / "g", rows, 64)
    places: list[str | Path] = [folder, str(folder)]
    for i, (method, prefix) in enumerate(((0, ""), (8, ""), (0, "g.zarr/"), (8, "a/b/"))):
        (tmp_path / str(i)).mkdir()
        copied = shutil.copytree(folder, tmp_path / str(i) / "g")
        places.append(zipped(Path(copied), method, prefix))
    for place in places:
        group = ZarrGroup(place)
        assert group.attributes == {"labels": ["a"]}
        assert "rows" in group
        assert "nothing" not in group
        assert group.array("rows", "refuse")[:].tobytes() == rows.tobytes()
        states = list(group.store.states("rows"))
        assert [state[0] for state in states] == [".zarray", "0", "1", "2", "3"]
        assert list(group.store.states("nothing")) == []
        with pytest.raises(FormatError, match="nothing"):
            group.array("nothing")
        group.close()
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "nothing")


def test_consolidated_metadata_stand_in_for_files(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g", rows_of(50), 20)
    told: dict[str, Any] = {}
    for name in (".zgroup", ".zattrs", "rows/.zarray"):
        told[name] = json.loads((folder / name).read_text())
        (folder / name).unlink()
    (folder / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": told}))
    group = ZarrGroup(folder)
    assert group.attributes == {"labels": ["a"]}
    assert group.array("rows")[:].tobytes() == rows_of(50).tobytes()
    write_attributes(folder, {"labels": []})
    assert not (folder / ".zmetadata").exists()


def test_metadata_are_written_as_zarr_writes_them(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g", rows_of(3), 20)
    assert (folder / ".zgroup").read_bytes() == b'{\n    "zarr_format": 2\n}'
    told = json.loads((folder / "rows" / ".zarray").read_text())
    assert told["compressor"] == {"blocksize": 0, "clevel": 5, "cname": "lz4", "id": "blosc", "shuffle": 1}
    assert (told["chunks"], told["shape"], told["order"], told["filters"]) == ([20], [3], "C", None)
    assert list(told) == sorted(told)


@pytest.mark.parametrize("parts", [(1, 1, 1), (64, 64), (10, 100, 0, 30), (63, 2, 127, 1), (0,)])
def test_rows_appended_in_parts_are_the_same(tmp_path: Path, parts: tuple[int, ...]) -> None:
    rows = rows_of(sum(parts))
    (tmp_path / "g").mkdir()
    create_group(tmp_path / "g", {})
    folder = tmp_path / "g" / "rows"
    ArrayWriter.create(folder, ArrayMetadata.of(ROW, (0,), 64)).close()
    at = 0
    for n in parts:
        writer = ArrayWriter(folder, opened(tmp_path / "g").metadata, at)
        writer.append(rows[at : at + n])
        assert opened(tmp_path / "g")[:].tobytes() == rows[:at].tobytes()  # nothing is seen before the commit
        writer.commit()
        at += n
        assert len(writer) == at
        assert opened(tmp_path / "g")[:].tobytes() == rows[:at].tobytes()
    with pytest.raises(FileExistsError):
        ArrayWriter.create(folder, ArrayMetadata.of(ROW, (0,), 64))


def test_rows_that_are_taken_back_are_written_over(tmp_path: Path) -> None:
    rows, others = rows_of(200), rows_of(200, 1)
    stored(tmp_path / "g", rows[:50], 64)
    writer = ArrayWriter(tmp_path / "g" / "rows", opened(tmp_path / "g").metadata, 50)
    writer.append(others[:150])
    assert opened(tmp_path / "g")[:].tobytes() == rows[:50].tobytes()
    writer.rollback(50)
    writer.append(rows[50:])
    writer.commit()
    assert opened(tmp_path / "g")[:].tobytes() == rows.tobytes()
    for wrong in (np.zeros(2, "f4"), np.zeros((2, 2), ROW)):
        with pytest.raises(SpecError):
            writer.append(wrong)


def test_codecs_that_are_none_are_refused() -> None:
    for wrong in ("snappy9", {"id": "pickle"}, {"id": "blosc", "level": 3}, {}):
        with pytest.raises(DataError):
            compressor_of(wrong)
    assert compressor_of("none") is compressor_of(None) is None
    assert compressor_of({"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 2})["shuffle"] == 2


def counted(array: ZarrArray, cache: Cache, index: Any) -> int:
    """How many values the cache had made for a read."""
    before = cache.made
    array[index]
    return cache.made - before


def test_a_slice_costs_its_blocks_and_each_is_decoded_once(tmp_path: Path) -> None:
    cache = Cache(1 << 24)
    array = opened(stored(tmp_path / "g", rows_of(20_000), 10_000), cache)
    assert counted(array, cache, 0) == 1
    assert counted(array, cache, 1) == 0
    assert counted(array, cache, slice(0, 5)) == 0
    size = array.chunk(0).piece_rows
    assert 100 < size < 5000
    assert counted(array, cache, slice(size, size + 1)) == 1
    assert counted(array, cache, slice(0, size * 2)) == 0
    assert counted(array, cache, np.arange(5 * size - 1, -1, -1)) == 3
    assert counted(array, cache, slice(0, 10_000)) == 0  # whole chunks go where they are wanted
    assert counted(array, cache, slice(10_000, 20_000)) == 0


def test_the_cache_is_bounded(tmp_path: Path) -> None:
    rows = rows_of(30_000)
    cache = Cache(600_000)
    array = opened(stored(tmp_path / "g", rows, 10_000), cache)
    for i in np.random.default_rng(0).integers(30_000, size=300).tolist():
        assert array[i].tobytes() == rows[i].tobytes()
        assert cache.nbytes <= 600_000
    none = opened(tmp_path / "g", Cache(0))
    assert none[29_000:].tobytes() == rows[29_000:].tobytes()


def test_blocks_that_cut_rows_make_the_chunk_one_piece(tmp_path: Path) -> None:
    rows = rows_of(3000)
    raw = np.ascontiguousarray(rows).view(np.uint8)
    import numcodecs

    folder = stored(tmp_path / "g", rows, 3000)
    for element in (1, 4, 8):
        for shuffle in (0, 1, 2):
            codec = numcodecs.Blosc("lz4", 5, shuffle, blocksize=20_000)
            data = codec.encode(raw.view(f"V{element}") if element > 1 else raw)
            (folder / "rows" / "0").write_bytes(data)
            assert opened(folder)[1234:1300].tobytes() == rows[1234:1300].tobytes()
            assert opened(folder)[:].tobytes() == rows.tobytes()


@pytest.mark.parametrize("limit", [0, 1 << 20], ids=["no cache", "cache"])
def test_a_gather_decodes_each_block_of_cut_rows_once_on_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Also where one thread pushes the pieces of another one out of the cache."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (4000, 700)).astype("u1")
    compressor = {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": 1 << 16}
    group = ZarrGroup(stored(tmp_path / "g", rows, 1000, compressor), Cache(limit))
    group.tables = Cache(1 << 20)
    array = group.array("rows", "refuse")
    decoded: list[tuple[BloscBuffer, int]] = []
    block = BloscBuffer.block

    def counting(buffer: BloscBuffer, b: int) -> Any:
        decoded.append((buffer, b))
        return block(buffer, b)

    monkeypatch.setattr(BloscBuffer, "block", counting)
    monkeypatch.setattr("penstock.containers.zarr.array.cores", lambda: 2)
    start = rng.integers(0, 4000 - 16, 200)
    start[:3] = 0, 990, 3984
    out = np.empty((200 * 16, 700), "u1")
    array.gather(start, np.full(200, 16), np.arange(200) * 16, out.reshape(-1))
    assert np.array_equal(out, rows[(start[:, None] + np.arange(16)).ravel()])
    assert array.chunk(0).piece_rows == (1 << 16) // 700
    found = [(id(buffer), b) for buffer, b in decoded]
    assert len(found) == len(set(found)) == 4 * 11


def test_split_blocks_of_small_elements(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 50, 1_500_003).astype("<i4")
    array = opened(stored(tmp_path / "g", values, 1_000_000))
    assert array.chunk(0).piece_rows < 1_000_000
    numbers = np.random.default_rng(1).integers(0, 1_500_003, 1000)
    assert array[numbers].tolist() == values[numbers].tolist()
    for a in (999_990, 1_500_000 - 5):
        assert array[a : a + 20].tolist() == values[a : a + 20].tolist()


def test_random_bytes_are_copied_by_blosc_and_read_in_place(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 63, 5000).astype("<u8")
    folder = stored(tmp_path / "g", values, 5000, {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 0})
    array = opened(folder)
    assert array.chunk(0).decoded
    assert array[4000:4010].tolist() == values[4000:4010].tolist()
    assert array[:].tolist() == values.tolist()


def test_threads_share_the_cache(tmp_path: Path) -> None:
    rows = rows_of(20_000)
    cache = Cache(1 << 26)
    array = opened(stored(tmp_path / "g", rows, 10_000), cache)
    failed: list[BaseException] = []
    start = threading.Barrier(4)

    def read(seed: int) -> None:
        try:
            start.wait()
            for a in np.random.default_rng(seed).integers(0, 19_000, 100).tolist():
                assert array[a : a + 900].tobytes() == rows[a : a + 900].tobytes()
        except BaseException as error:  # noqa: BLE001  handed to the test below
            failed.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    blocks = sum(-(-10_000 // array.chunk(c).piece_rows) for c in (0, 1))
    assert cache.made <= blocks  # each once, whoever asked first


def test_arrays_that_are_gone_leave_nothing_to_those_that_follow(tmp_path: Path) -> None:
    cache = Cache(1 << 24)
    for seed in range(30):
        folder = stored(tmp_path / str(seed), rows_of(50, seed), 50)
        assert opened(folder, cache)[3].tobytes() == rows_of(50, seed)[3].tobytes()


def test_files_replaced_by_an_append_keep_old_rows(tmp_path: Path) -> None:
    rows = rows_of(100)
    folder = stored(tmp_path / "g", rows[:70], 64)
    array = opened(folder)
    assert array[65].tobytes() == rows[65].tobytes()
    writer = ArrayWriter(folder / "rows", array.metadata, 70)
    writer.append(rows[70:])
    writer.commit()
    assert array[:].tobytes() == rows[:70].tobytes()
    assert opened(folder)[:].tobytes() == rows.tobytes()


def test_keys_stay_below_the_group(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g", rows_of(5), 5)
    (tmp_path / "secret").mkdir()
    shutil.copytree(folder / "rows", tmp_path / "secret" / "rows")
    for store in (folder, zipped(folder)):
        for name in ("../secret/rows", "/etc", "rows/../../secret/rows", "", "a//b", "rows\\..", "a\0b"):
            with pytest.raises(UnsafeDataError):
                ZarrGroup(store).array(name)
    assert isinstance(ZarrGroup(zipped(folder)).store, ZipStore)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    folder = stored(tmp_path / "g", rows_of(5), 5)
    (folder / "rows" / "0").unlink()
    os.mkfifo(folder / "rows" / "0")
    with pytest.raises(FormatError, match="expected a regular file"):
        opened(folder)[0]
