"""Files of a table that are none, and bytes behind an end; files that were put one behind the other."""

# pyright: basic

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.arrow import RangedArrowFile
from penstock.core.damage import collected_damage
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.format import recognise
from penstock.formats.base.source import Source
from penstock.formats.tables import FORMAT, source
from penstock.testing.accounts import AccountContract, Leftover, Planted

HTML = b"<!doctype html><title>404</title>" * 30
Written = Callable[..., bytes]


def table(*episodes: int, steps: int = 3) -> Any:
    index = np.repeat(np.array(episodes, np.int64), steps)
    return pa.table({"episode_index": index, "x": np.arange(len(index)) + 10.0 * index})


def parquet(*episodes: int, steps: int = 3, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table(*episodes, steps=steps), out, **options)
    return out.getvalue()


def arrow(*episodes: int, steps: int = 3, stream: bool = False) -> bytes:
    out, rows = io.BytesIO(), table(*episodes, steps=steps)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(out, rows.schema) as writer:
        writer.write_table(rows)
    return out.getvalue()


def stream(*episodes: int, steps: int = 3) -> bytes:
    return arrow(*episodes, steps=steps, stream=True)


def lines(*episodes: int, steps: int = 3) -> bytes:
    rows = table(*episodes, steps=steps).to_pylist()
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


KINDS: dict[str, tuple[str, Written]] = {
    "parquet": (".parquet", parquet),
    "arrow": (".arrow", arrow),
    "stream": (".arrow", stream),
    "lines": (".jsonl", lines),
}


def put(name: str, raw: bytes) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(raw)


class Tables(AccountContract):
    """A folder of two files of one kind."""

    kind: ClassVar[str]
    absent: ClassVar[Mapping[Leftover, str]] = {
        "array": "a table has columns",
        "member": "a table has columns",
        "column": "columns of other types are an error",
        "unfinished": "no writer writes tables",
    }

    def write(self, path: Path) -> Path:
        suffix, written = KINDS[self.kind]
        for number in (1, 2):
            (path / f"{number}{suffix}").write_bytes(written(number))
        return path

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


def planted(kind: str, tail: Planted) -> dict[Leftover, Planted]:
    suffix = KINDS[kind][0]
    return {
        "file": Planted(put("notes.md", b"# Notes"), "document", "notes.md"),
        "bad first file": Planted(put(f"0{suffix}", HTML), "bad-file", f"0{suffix}"),
        "tail": tail,
    }


class TestParquet(Tables):
    kind = "parquet"
    planted = planted(kind, Planted(put("3.parquet", parquet(3) + b"tail"), "", "3.parquet", refused=True))


class TestArrow(Tables):
    kind = "arrow"
    planted = planted(kind, Planted(put("3.arrow", arrow(3) + b"tail"), "", "3.arrow", refused=True))


class TestStream(Tables):
    kind = "stream"
    planted = planted(kind, Planted(put("3.arrow", stream(3) + b"tail"), "behind-the-end", "3.arrow: byte"))


class TestLines(Tables):
    kind = "lines"
    planted = planted(kind, Planted(put("3.jsonl", lines(3) + b"tail"), "", "3.jsonl", refused=True))


class TestSurveyed(TestStream):
    """As of many files, whose facts are in the cache."""

    @pytest.fixture(autouse=True)
    def many(self, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
        monkeypatch.setattr(source, "MANY_FILES", 1)
        monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))


class TestSaved(Tables):
    """A dataset that Hugging Face `datasets` saved, with caches next to it."""

    kind = "stream"
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(put("more.arrow", stream(3)), "other-file", "more.arrow"),
        "bad first file": Planted(put("1.arrow", HTML), "bad-file", "1.arrow"),
        "tail": Planted(put("2.arrow", stream(2) + b"tail"), "behind-the-end", "2.arrow: byte"),
    }

    def write(self, path: Path) -> Path:
        super().write(path)
        (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": f"{i}.arrow"} for i in (1, 2)]}))
        (path / "dataset_info.json").write_text("{}")
        (path / "cache-0123456789abcdef.arrow").write_bytes(stream(7))
        return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [b"", HTML, b"\x1f\x8b" + bytes(900)], ids=range(3))
@pytest.mark.parametrize("number", [0, 9])
def test_a_file_that_is_no_table_is_left_out_wherever_it_sorts(
    kind: str, bad: bytes, number: int, tmp_path: Path
) -> None:
    suffix, written = KINDS[kind]
    for episode in range(1, 4):
        (tmp_path / f"{episode}{suffix}").write_bytes(written(episode))
    name = f"{number}{suffix}"
    (tmp_path / name).write_bytes(bad)
    with pytest.warns(DamageWarning, match=name):
        data = penstock.open(tmp_path)
    assert [each.columns["x"].tolist() for each in data] == [[10.0 * e, 10.0 * e + 1, 10.0 * e + 2] for e in (1, 2, 3)]
    assert [(f.name, f.where) for f in penstock.check(tmp_path).findings if f.level == "error"] == [("bad-file", name)]
    files = sorted(tmp_path.iterdir())  # as shards of a list
    with collected_damage() as messages:
        assert len(penstock.open(files)) == 3
    assert name in messages[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    suffix, written = KINDS[kind]
    for episode in range(1, 4):
        (tmp_path / f"{episode}{suffix}").write_bytes(written(episode))
    (tmp_path / f"0{suffix}").write_bytes(written(0)[:-20])
    assert recognise(tmp_path)[0] is FORMAT
    with pytest.raises(FormatError, match=rf"0\{suffix}"):
        penstock.open(tmp_path)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 3), (3, 5), (2000, 3), (3, 2000)])
def test_streams_in_one_file_are_all_read(sizes: tuple[int, int], tmp_path: Path) -> None:
    parts = [stream(episode, steps=steps) for episode, steps in enumerate(sizes)]
    (path := tmp_path / "a.arrow").write_bytes(b"".join(parts))
    with penstock.open(path) as data:
        assert [len(each) for each in data] == list(sizes)
        assert data[1].columns["x"].tolist() == (np.arange(sizes[1]) + 10.0).tolist()
    path.write_bytes(parts[0][:-8] + bytes(8) + parts[1])
    with pytest.warns(DamageWarning, match=r"a\.arrow: byte"):
        assert len(penstock.open(path)) == 1
    others = pa.table({"episode_index": [1], "y": [1]})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, others.schema) as writer:
        writer.write_table(others)
    path.write_bytes(parts[0] + out.getvalue())
    with pytest.raises(
        FormatError, match=rf"got \['episode_index', 'y'\] from byte {len(parts[0])}; write them to two"
    ):
        penstock.open(path)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 3), (3, 5), (90_000, 3)])
@pytest.mark.parametrize("kind", ["arrow", "parquet", "parquet with indexes", "no rows"])
def test_files_in_one_file_are_refused(kind: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    written = arrow if kind == "arrow" else parquet
    options = {"write_page_index": True} if "indexes" in kind else {}
    first, second = (written(e, steps=0 if kind == "no rows" and e else n, **options) for e, n in enumerate(sizes))
    path = tmp_path / f"a.{'arrow' if kind == 'arrow' else 'parquet'}"
    for part in (first, second):
        path.write_bytes(part)
        penstock.open(path, format="tables").close()
    path.write_bytes(first + second)
    message = rf"got several, one behind the other; the last begins at byte {len(first)}"
    with pytest.raises(FormatError, match=message):
        penstock.open(path)
    if kind == "arrow":
        with pytest.raises(FormatError, match=message):
            RangedArrowFile(path)  # as behind a URL


def test_a_repair_keeps_bytes_behind_a_footer(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.parquet").write_bytes(parquet(number))
    path = tmp_path / "1.parquet"
    path.write_bytes(raw := parquet(1) + b"bytes that may be data")
    (finding,) = (each for each in penstock.check(tmp_path).findings if each.level == "error")
    assert (finding.name, finding.where) == ("behind-the-end", f"1.parquet: byte {len(parquet(1))}")
    assert penstock.repair(tmp_path, in_place=True).repairs == ()
    assert path.read_bytes() == raw
