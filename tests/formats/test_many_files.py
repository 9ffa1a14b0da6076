"""Datasets of many files, opened by what is kept of each file: equal to opening all of them, and never out of date."""

# pyright: basic

from __future__ import annotations

import errno
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.arrow import ParquetFile
from penstock.core.cache import Cache
from penstock.core.order import in_natural_order, natural
from penstock.errors import FormatError
from penstock.files import remote, user_cache
from penstock.files.listing import FilePaths
from penstock.formats.base import file_facts
from penstock.formats.base.source import Source
from penstock.formats.tables import source as survey
from penstock.formats.webdataset import source as shards

AGE = 1_000_000_000  # seconds: all files are older than any clock tick


def aged(path: Path, tick: int = 0) -> None:
    os.utime(path, ns=(AGE * 10**9 + tick, AGE * 10**9 + tick))


def write_tables(folder: Path, kind: type) -> Path:
    """Seven files, one of them empty; episodes go on in the next file."""
    folder.mkdir()
    for i in range(7):
        episodes = [kind(n) for n in ([] if i == 3 else range(5 * i, 5 * i + 6))]
        table = pa.table(
            {"episode": pa.array(episodes, pa.from_numpy_dtype(kind)), "x": np.arange(1.0 * len(episodes))}
        )
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=4)
        aged(folder / f"{i}.parquet")
    return folder


def write_tars(folder: Path) -> Path:
    lengths = np.arange(1, 13)
    columns = {"observations": np.arange(lengths.sum()), "notes": np.arange(lengths.sum()) % 7}
    data = penstock.from_arrays(columns, lengths=lengths)
    penstock.convert(data, folder, format="webdataset", options={"shard_episodes": 2})
    for path in folder.iterdir():
        aged(path)
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    "numbers": lambda folder: write_tables(folder, int),
    "text": lambda folder: write_tables(folder, str),
    "tars": write_tars,
}


@pytest.fixture(params=WRITERS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return WRITERS[request.param](tmp_path / "data")


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    return write_tables(tmp_path / "data", int)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """Counts files that are opened. Every dataset has many files, and its index is kept."""
    counts = Counter[str]()

    def counted(owner: Any, name: str, path_at: int) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            counts[Path(args[path_at]).name] += 1
            return real(*args, **options)

        monkeypatch.setattr(owner, name, call)

    counted(survey, "open_shard", 0)
    counted(shards, "read_members", 1)
    counted(shards, "plain", 0)
    monkeypatch.setattr(survey, "MANY_FILES", 2)
    monkeypatch.setattr(shards, "MANY", 2)
    monkeypatch.setattr(shards, "WORTH", 0)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return counts


def content(data: penstock.EpisodeDataset) -> Any:
    episodes = [data[e] for e in range(len(data))]
    values = [{name: np.asarray(value).tolist() for name, value in each.columns.items()} for each in episodes]
    metadata = data.source.episode_metadata(range(len(data)))
    return data.source.fingerprint, data.source.offsets.tolist(), values, metadata


def opened_whole(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """The content as of a dataset of few files."""
    with monkeypatch.context() as patched:
        patched.setattr(survey, "MANY_FILES", 1 << 30)
        patched.setattr(shards, "MANY", 1 << 30)
        return content(penstock.open(folder))


def test_the_second_opening_opens_no_file(folder: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = opened_whole(monkeypatch, folder)
    assert content(penstock.open(folder)) == whole
    reads.clear()
    again = penstock.open(folder)
    assert not reads
    assert content(again) == whole
    rows = np.random.default_rng(0).permutation(again.total_steps)
    assert again.steps()[rows].keys() == again.steps()[:].keys()


def test_a_changed_file_is_read_again_and_no_other(
    parquet: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock.open(parquet)
    table = pq.read_table(parquet / "2.parquet")
    pq.write_table(table.slice(0, 4), parquet / "2.parquet")
    aged(parquet / "2.parquet", 5)
    reads.clear()
    data = penstock.open(parquet)
    assert set(reads) == {"2.parquet"}
    assert content(data) == opened_whole(monkeypatch, parquet)
    reads.clear()
    penstock.open(parquet)
    assert not reads
    (parquet / "6.parquet").unlink()
    assert content(penstock.open(parquet)) == opened_whole(monkeypatch, parquet)
    pq.write_table(table.slice(0, 1).replace_schema_metadata({"a": "b"}), parquet / "9.parquet")
    with pytest.raises(FormatError, match="next to each other"):
        penstock.open(parquet)


def test_a_file_as_old_as_its_reading_is_read_again(
    parquet: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "SETTLED", 10**12)
    os.utime(parquet / "1.parquet")
    penstock.open(parquet)
    reads.clear()
    penstock.open(parquet)
    assert set(reads) == {"1.parquet"}


@pytest.mark.parametrize("change", ["truncated", "replaced", "deleted"])
def test_a_file_that_changes_after_the_opening_is_an_error(folder: Path, change: str, reads: Counter[str]) -> None:
    penstock.open(folder)
    data = penstock.open(folder)
    path = sorted(folder.iterdir())[2]
    if change == "deleted":
        path.unlink()
    elif change == "replaced":
        path.write_bytes(path.read_bytes()[::-1])
        aged(path, 7)
    else:
        os.truncate(path, 100)
    with pytest.raises(FormatError, match="expected the file that was opened"):
        data.steps()[:]


def test_a_damaged_index_is_made_again(
    folder: Path, reads: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(penstock.open(folder))
    (file,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    raw = bytearray(file.read_bytes())
    for cut in (bytes(raw[:-9]), bytes(raw[:-8]) + bytes(8), b""):
        file.write_bytes(cut)
        assert content(penstock.open(folder)) == whole
        assert file.read_bytes() == raw


def test_a_full_disk_costs_time_alone(
    folder: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = opened_whole(monkeypatch, folder)
    (tmp_path / "cache").mkdir(exist_ok=True)

    def full(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(user_cache, "write_arrays", full)
    assert content(penstock.open(folder)) == whole
    monkeypatch.setenv("PENSTOCK_CACHE", "/proc/nothing")  # no folder can be made there
    assert content(penstock.open(folder)) == whole


def test_a_file_with_an_error_is_named(parquet: Path, reads: Counter[str]) -> None:
    raw = (parquet / "4.parquet").read_bytes()
    (parquet / "4.parquet").write_bytes(raw[:-4])
    with pytest.raises(FormatError, match=r"4\.parquet"):
        penstock.open(parquet)
    (parquet / "4.parquet").write_bytes(raw)
    assert len(penstock.open(parquet)) > 0


def test_other_columns_in_one_file_are_named(parquet: Path, reads: Counter[str]) -> None:
    table = pq.read_table(parquet / "5.parquet")
    pq.write_table(table.rename_columns(["episode", "y"]), parquet / "5.parquet")
    with pytest.raises(FormatError, match=r"expected the columns of 0\.parquet.*5\.parquet"):
        penstock.open(parquet)


def test_a_source_in_another_process_maps_the_same_table(parquet: Path, reads: Counter[str]) -> None:
    import pickle

    data = penstock.open(parquet)
    reads.clear()
    source: Source = pickle.loads(pickle.dumps(data.source))
    assert not reads
    assert source.fingerprint == data.source.fingerprint


@pytest.mark.parametrize("waits", [0, 1])
def test_files_on_slow_storage_are_read_by_threads(
    waits: int, parquet: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = opened_whole(monkeypatch, parquet)
    counts = iter(range(0, 10**6, 10**3 * waits) if waits else [0] * 1000)
    names = set[str]()

    def waited() -> int:
        names.add(threading.current_thread().name)
        return next(counts)

    widths: list[int] = []
    read = file_facts.FileSurvey._read
    monkeypatch.setattr(file_facts, "_waits", waited)
    monkeypatch.setattr(file_facts, "_PROBE", 2)
    monkeypatch.setattr(file_facts, "AT_ONCE", 3)
    monkeypatch.setattr(
        file_facts.FileSurvey,
        "_read",
        lambda self, numbers, threads: widths.append(threads) or read(self, numbers, threads),
    )
    assert content(penstock.open(parquet)) == whole
    assert widths == [file_facts.WAITING_READS * waits] * 3
    assert names == {threading.current_thread().name}


def test_statistics_of_a_footer_are_used_for_one_integer_or_boolean_alone(tmp_path: Path) -> None:
    nested = pa.array([{"id": 3}, {"id": 3}])
    columns = {
        "same": [7, 7],
        "other": [7, 8],
        "missing": [7, None],
        "real": [7.0, 7.0],
        "text": ["a", "a"],
        "info": nested,
        "info.id": [5, 5],
        "lists": [[1], [1]],
        "never": [False, False],
        "once": [False, True],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    pq.write_table(pa.table(columns), tmp_path / "b.parquet", write_statistics=False)
    file, without = (ParquetFile(tmp_path / f"{name}.parquet", Cache(1 << 20)) for name in "ab")
    assert {name: value for name in columns if (value := file.constant(0, name)) is not None} == {"same": 7, "never": 0}
    assert [without.constant(0, name) for name in columns] == [None] * len(columns)


def test_natural_order_compares_numbers_and_text() -> None:
    def parts(name: str) -> Any:
        pieces = re.split("([0-9]+)", name)
        return [(int(piece), "") if i % 2 else (-1, piece) for i, piece in enumerate(pieces)], name

    rng = random.Random(5)
    names = ["".join(rng.choices("a0b12./ \u00e9_09\U0001f600", k=rng.randrange(9))) for _ in range(3000)]
    assert sorted(names, key=natural) == sorted(names, key=parts)
    assert in_natural_order(names) == sorted(names, key=parts)
    paths = FilePaths.within(tmp := Path("/a"), names)
    assert list(paths) == [tmp / name if not name.startswith("/") else Path(name) for name in names]
    assert paths[-1] == list(paths)[-1]
