"""Reports about tar archives of samples and about tables: samples and rows lost, merged, or of another file."""

# pyright: basic

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import penstock
from penstock.containers.tar import END, member
from penstock.core.damage import collected_damage
from penstock.errors import FormatError
from penstock.formats.webdataset.streaming import ShardStream
from tests.reports.reported import report


def archive(path: Path, *names: str, end: bytes = END) -> Path:
    """Samples whose values are their places."""
    path.write_bytes(b"".join(member(name, b"%d" % i) for i, name in enumerate(names)) + end)
    return path


def classes(path: Path, **options: Any) -> list[int]:
    with penstock.open(path, **options) as data:
        return [int(each.columns["cls"][0]) for each in data]


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@report("libarchive/libarchive#1620", "`cat a.tar b.tar` has the members of both")
@report("plougher/squashfs-tools#212", "tar archives that were concatenated are read past the zeros between them")
def test_archives_one_behind_the_other(tmp_path: Path) -> None:
    parts = [archive(tmp_path / f"{n}.tar", f"{n}.cls").read_bytes() for n in range(3)]
    (path := tmp_path / "all.tar").write_bytes(b"".join(parts))
    assert classes(path) == [0, 0, 0]
    assert [len(block["cls"]) for block in ShardStream(path)()] == [3]


@report("ruby/zlib#7", "gzip files that were concatenated unpack to the contents of all")
@report("madler/zlib#984", "a gzip file of several members is read past the end of the first")
def test_members_of_gzip(tmp_path: Path) -> None:
    parts = [archive(tmp_path / f"{n}.tar", f"{n}.cls").read_bytes() for n in range(3)]
    (path := tmp_path / "all.tar.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    assert classes(path) == [0, 0, 0]


@report("ray-project/ray#65044", "members of a sample that stand apart are an error that names sample and archive")
@report("ray-project/ray#63374", "an archive that is not sorted by key does not give more samples than it has")
@report("webdataset/webdataset#407", "a sample with one of its three members says that members are not adjacent")
@report("webdataset/webdataset#140", "the error of members that stand apart says how to sort the archive")
def test_members_apart(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", "0.cls", "1.cls", "0.txt", "1.txt")
    for missing in ("error", "leave_out", "fill"):
        with pytest.raises(FormatError, match=r"got cls apart from txt; sort .* tar --sort=name .*'0'.*a\.tar"):
            penstock.open(path, missing=missing)


@report("NVIDIA/DALI#3306", "members whose names begin with a dot are no samples")
@report("IBM/SynthTabNet#15", "an archive from macOS with `.DS_Store` and `._` files has the samples of a clean one")
def test_hidden_members(tmp_path: Path) -> None:
    names = (".DS_Store", "._0.cls", "0.cls", "d/._1.cls", "d/1.cls")
    assert classes(archive(tmp_path / "a.tar", *names)) == [2, 4]


@report("NVIDIA/DALI#3640", "archives in PAX format, as Python 3.8 and later write them, are read")
def test_pax(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as out:
        for i in range(3):
            info = tarfile.TarInfo(f"{i}.cls")
            info.size, info.mtime = 1, 1.5
            out.addfile(info, io.BytesIO(b"%d" % i))
    assert classes(tmp_path / "a.tar") == [0, 1, 2]


@report("huggingface/datasets#7150", "a key ends at the first dot of the file's name, not of the path")
@report("macrodata-labs/refiner#124", "a dot in the name of a folder does not merge the samples in it")
def test_dots_in_folders(tmp_path: Path) -> None:
    names = ("train.v1/22.0/1.cls", "train.v1/22.0/2.cls", "train.v1/22.1/1.cls")
    with penstock.open(archive(tmp_path / "a.tar", *names)) as data:
        keys = [data.source.sample(i)["__key__"] for i in range(3)]
    assert keys == ["train.v1/22.0/1", "train.v1/22.0/2", "train.v1/22.1/1"]


@report("Amshaker/Mobile-O#8", "archives with other image extensions lose no image, and refuse to read in silence")
@report("huggingface/datasets#7055", "samples with other numbers of members can be read, with a mask of what is there")
def test_other_extensions(tmp_path: Path) -> None:
    archive(tmp_path / "0.tar", "0.jpg", "0.txt")
    archive(tmp_path / "1.tar", "1.png", "1.txt", "1.2.png")
    with pytest.raises(FormatError, match=r"expected a member 'jpg' in every sample.*sample '1'.*1\.tar"):
        penstock.open(tmp_path)
    with penstock.open(tmp_path, missing="fill") as data:
        flags = {name: [bool(e.columns[f"missing/{name}"][0]) for e in data] for name in ("jpg", "png", "2.png")}
        images = [data[i].columns[name].blobs() for i, name in enumerate(("jpg", "png"))]
    assert flags == {"jpg": [False, True], "png": [True, False], "2.png": [True, False]}
    assert images == [[b"0"], [b"0"]]


@report("webdataset/webdataset#32", "an archive whose writer was not closed is not read as a whole one")
@report("webdataset/webdataset#142", "the error of an archive that is cut off names it, and the way to read the rest")
def test_cut_archives(tmp_path: Path) -> None:
    path = archive(tmp_path / "00000022.tar", *(f"{i}.{e}" for i in range(3) for e in ("cls", "txt")), end=b"")
    with collected_damage() as messages:
        assert len(penstock.open(path)) == 3
    assert "expected the end-of-archive marker" in messages[0]
    path.write_bytes(path.read_bytes()[:-512])
    with pytest.raises(FormatError, match=r"ends within this member.*00000022\.tar.*salvage=True"):
        penstock.open(path)
    with collected_damage():
        assert len(penstock.open(path, salvage=True)) == 2


@report("webdataset/webdataset#157", "a name that an archive has twice in one sample is an error")
@report("ray-project/ray#48643", "the error of a name that a sample has twice names the archive")
def test_a_name_twice(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"expected each extension once.*fx001\.jpg.*b\.tar"):
        penstock.open(archive(tmp_path / "b.tar", "fx001.jpg", "fx001.json", "fx001.jpg"))


@report("mosaicml/streaming#138", "a dataset of compressed shards alone opens")
def test_compressed_alone(tmp_path: Path) -> None:
    for n in range(2):
        raw = archive(tmp_path / "plain", f"{n}.cls").read_bytes()
        (tmp_path / f"{n}.tar.zst").write_bytes(zstandard.compress(raw))
    (tmp_path / "plain").unlink()
    assert classes(tmp_path) == [0, 0]


@report(
    "huggingface/datasets#8397", "an empty file among JSON lines, Parquet files or archives does not break the others"
)
@report("huggingface/datasets#7806", "a bad Parquet file is named, and the others can be read")
def test_an_empty_file_that_sorts_first(tmp_path: Path) -> None:
    for suffix in ("jsonl", "parquet", "tar"):
        (folder := tmp_path / suffix).mkdir()
        for n in (1, 2):
            file, row = folder / f"{n}.{suffix}", {"episode": n, "cls": n}
            if suffix == "jsonl":
                lines(file, row)
            elif suffix == "parquet":
                pq.write_table(pa.Table.from_pylist([row]), file)
            else:
                file.write_bytes(member(f"{n}.cls", b"%d" % n) + END)
        (folder / f"0.{suffix}").touch()
        with collected_damage() as messages:
            assert classes(folder) == [1, 2]
        assert f"0.{suffix} (expected" in messages[0]


@report(
    "huggingface/datasets#7372", "files that an earlier save left in the folder of a saved dataset are left out by name"
)
def test_files_of_an_earlier_save(tmp_path: Path) -> None:
    for name in ("data-00000-of-00001.arrow", "data-00001-of-00002.arrow"):
        table = pa.table({"episode": [0], "x": [1.0]})
        with pa.ipc.new_stream(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    with collected_damage() as messages, penstock.open(tmp_path) as data:
        assert data.total_steps == 1
    assert "left out 1 file: data-00001-of-00002.arrow" in messages[0]


@report("tenzir/tenzir#6472", "Arrow streams that were concatenated are all read")
@report("apache/arrow-go#1325", "a reader of concatenated Arrow streams does not end without a word behind the first")
def test_streams_one_behind_the_other(tmp_path: Path) -> None:
    out = io.BytesIO()
    for n in range(3):
        table = pa.table({"episode": [n, n], "x": [n, n + 0.5]})
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    (path := tmp_path / "all.arrow").write_bytes(out.getvalue())
    with penstock.open(path) as data:
        assert [each.columns["x"].tolist() for each in data] == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]


@report("apache/arrow#41683", "each record batch of a stream has the values of its own dictionary")
def test_dictionaries_that_are_replaced(tmp_path: Path) -> None:
    words = (["a", "b"], ["c", "d"])
    batches = [
        pa.record_batch({"episode": pa.array([n, n]), "w": pa.array(pair).dictionary_encode()})
        for n, pair in enumerate(words)
    ]
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with penstock.open(tmp_path / "a.arrow") as data:
        assert [each.columns["w"].strings() for each in data] == list(map(list, words))


@report("dask/dask#7248", "files of a table are in the order of their numbers, 2 before 10")
@report("pola-rs/polars#23376", "parts whose numbers have no zeros in front come back in the order of writing")
def test_the_order_of_parts(tmp_path: Path) -> None:
    for n in range(12):
        pq.write_table(pa.table({"episode": [n], "x": [n]}), tmp_path / f"part.{n}.parquet")
    with penstock.open(tmp_path) as data:
        assert [int(each.columns["x"][0]) for each in data] == list(range(12))


@report("huggingface/datasets#8241", "JSON lines behind a byte order mark are those of the file without it")
@report("duckdb/duckdb#16568", "a byte order mark does not make JSON unreadable")
@report("wbolster/jsonlines#68", "files of JSON lines with and without a byte order mark are read without an option")
def test_byte_order_mark(tmp_path: Path) -> None:
    row = {"episode": 0, "x": [1, 2], "name": "é"}
    for n, mark in enumerate((b"", b"\xef\xbb\xbf")):
        (tmp_path / f"{n}.jsonl").write_bytes(mark + json.dumps(row, ensure_ascii=False).encode() + b"\r\n")
    with penstock.open(tmp_path) as data:
        assert data[0].columns["x"].tolist() == [[1, 2], [1, 2]]
        assert data[0].columns["name"].strings() == ["é", "é"]


@report("huggingface/datasets#7092", "a column of empty lists in the first file has the values of the others")
@report("huggingface/datasets#7222", "a column of nulls in one file is an error of missing values, not of types")
def test_types_of_json_lines_are_those_of_all_files(tmp_path: Path) -> None:
    (lists := tmp_path / "lists").mkdir()
    (nulls := tmp_path / "nulls").mkdir()
    for n, (values, text) in enumerate((([], None), ([1, 2], "d"))):
        lines(lists / f"{n}.jsonl", {"episode": n, "c": values})
        lines(nulls / f"{n}.jsonl", {"episode": n, "d": text})
    with penstock.open(lists) as data:
        assert [data[n].columns["c"][0].tolist() for n in range(2)] == [[], [1, 2]]
    with penstock.open(nulls) as data, pytest.raises(FormatError, match="expected a value in every row, got 1 missing"):
        data[0].columns["d"]


@report("huggingface/datasets#7059", "a null in a list keeps its place")
def test_nulls_in_lists(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"episode": 0, "b": [None, 1.0, 2.0]}, {"episode": 0, "b": [3.0, None, 5.0]})
    with penstock.open(path) as data:
        np.testing.assert_array_equal(data[0].columns["b"], [[np.nan, 1.0, 2.0], [3.0, np.nan, 5.0]])
