"""Compressed columns: smaller, the same to the bit, each block decoded once, and blocks that lie are refused."""

from __future__ import annotations

import itertools
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core.episode import Episode
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError, SpecError
from penstock.formats.columns import FORMAT, reading
from penstock.formats.columns.compact import compact
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter

SPEC = Spec({"image": Field(np.dtype("u1"), (16, 16), "boundary"), "reward": Field(np.dtype("f8"))})
LENGTHS = (10, 0, 4, 8)


def episodes() -> list[Episode]:
    def image(steps: int, e: int) -> Any:
        return np.repeat(np.arange(steps + 1, dtype="u1") + e, 256).reshape(-1, 16, 16)

    return [Episode(SPEC, {"image": image(n, e), "reward": np.arange(n) + e / 2}, e) for e, n in enumerate(LENGTHS)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with ColumnsWriter.create(tmp_path / "store", SPEC, compression={"image": 6}, block_steps=4) as writer:
        writer.write_all(episodes())
    return tmp_path / "store"


def selection(rows: list[int], length: int = 1) -> Selection:
    start = np.array(rows, np.int64)
    return Selection(start * 0, start, start * 0 + length, np.arange(len(rows)) * length, (len(rows), length))


def test_only_what_was_asked_for_is_compressed_and_it_is_smaller(store: Path) -> None:
    segment = store / "segments" / "0"
    assert (segment / "image.values").stat().st_size < sum(LENGTHS) * 256 / 4
    rewards = np.fromfile(segment / "reward.values", "<f8")
    assert rewards.tolist() == np.concatenate([e.columns["reward"] for e in episodes()]).tolist()


def test_the_file_is_zlib_and_positions_as_the_page_says(store: Path) -> None:
    segment = store / "segments" / "0"
    raw, ends = (segment / "image.values").read_bytes(), np.fromfile(segment / "blocks", "<i8")
    assert (ends[0], ends[-1], len(ends)) == (0, len(raw), 8)
    found = b"".join(zlib.decompress(raw[a:b]) for a, b in itertools.pairwise(ends))
    assert found == b"".join(np.asarray(e.columns["image"]).tobytes() for e in episodes())


def test_compression_leaves_the_fingerprint(store: Path, tmp_path: Path) -> None:
    compact(store, tmp_path / "raw", compression=None)
    with ColumnsSource(tmp_path / "raw") as source, ColumnsSource(store) as packed:
        assert source.fingerprint == packed.fingerprint


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_each_block_is_decoded_once_a_read(store: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    calls: list[int] = []
    real = zlib.decompressobj

    def counting() -> Any:
        calls.append(1)
        return real()

    monkeypatch.setattr(reading.zlib, "decompressobj", counting)
    expected = np.concatenate([np.asarray(e.columns["image"]) for e in episodes()])
    with ColumnsSource(store) as source:
        source.state.maps.decoded.limit = limit
        rows = [25, 0, 1, 24, 3, 0, 11, 12, 10]
        for _ in range(2):
            assert source.read(["image"], selection(rows))["image"][:, 0].tolist() == expected[rows].tolist()
    assert len(calls) == (5 if limit else 10)


def test_nothing_is_read_where_nothing_is_asked_for(store: Path) -> None:
    with ColumnsSource(store) as source:
        assert source.read(["image"], selection([]))["image"].shape[:2] == (0, 1)


def with_positions(store: Path, changes: dict[int, int]) -> None:
    file = store / "segments/0/blocks"
    ends = np.fromfile(file, "<i8")
    for i, value in changes.items():
        ends[i] = value
    ends.tofile(file)


@pytest.mark.parametrize("changes", [{1: -1}, {1: 1 << 62}, {3: 2}, {0: 5}, {7: 1 << 62}, {7: -5}, {4: 0}], ids=str)
def test_positions_that_lie(store: Path, changes: dict[int, int]) -> None:
    with_positions(store, changes)
    with pytest.raises(FormatError):
        read_all(store)
    assert "error" in [finding.level for finding in FORMAT.check(store)]


def read_all(store: Path) -> None:
    with ColumnsSource(store) as source:
        source.read(["image"], selection(list(range(26))))


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    spec = Spec({"image": Field(np.dtype("u1"), (1 << 10,), "step")})
    store = tmp_path / "store"
    with ColumnsWriter.create(store, spec, compression=9, block_steps=4) as writer:
        writer.write(Episode(spec, {"image": np.zeros((4, 1 << 10), "u1")}))
    with ColumnsSource(store) as source:
        source.episode(0)  # compiles kernels, whose memory is not meant
    bomb = zlib.compress(bytes(1 << 26), 9)
    (store / "segments/0/image.values").write_bytes(bomb)
    np.array([0, len(bomb)], "<i8").tofile(store / "segments/0/blocks")
    tracemalloc.start()
    with pytest.raises(FormatError, match="more"), ColumnsSource(store) as source:
        source.episode(0)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_rows_that_no_block_could_hold(store: Path) -> None:
    read_all(store)  # compiles kernels, whose memory is not meant
    data = json.loads((store / "spec.json").read_text())
    data["spec"]["fields"]["image"]["shape"] = [1 << 30]
    (store / "spec.json").write_text(json.dumps(data))
    tracemalloc.start()
    with pytest.raises(FormatError, match="block 0"), ColumnsSource(store) as source:
        source.episode(0)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("compression", [10, -1, {"image": 6.0}, {"nothing": 1}])
def test_what_cannot_be_compressed_is_refused(tmp_path: Path, compression: Any) -> None:
    with pytest.raises(SpecError):
        ColumnsWriter.create(tmp_path / "store", SPEC, compression=compression)
    with pytest.raises(SpecError, match="steps"):
        ColumnsWriter.create(tmp_path / "store", SPEC, compression=1, block_steps=0)
    assert list(tmp_path.iterdir()) == []
