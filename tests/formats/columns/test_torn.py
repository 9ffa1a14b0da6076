"""Stores cut off at any byte: what was complete is there, and the next writer goes on from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.core.episode import Episode
from penstock.errors import ChecksumError, FormatError
from penstock.formats.columns import FORMAT, table
from penstock.formats.columns.compact import compact
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import RAGGED

EPISODES = RAGGED.episodes()


@pytest.fixture(params=[None, 6], ids=["raw", "packed"])
def level(request: pytest.FixtureRequest) -> int | None:
    return request.param


@pytest.fixture
def store(tmp_path: Path, level: int | None) -> Path:
    with ColumnsWriter.create(tmp_path / "store", RAGGED.spec, compression=level, block_steps=1) as writer:
        writer.write_all(EPISODES)
    return tmp_path / "store"


def same(path: Path, episodes: list[Episode]) -> None:
    with ColumnsSource(path) as source:
        assert len(source) == len(episodes)
        for found, expected in zip(source.episodes(), episodes, strict=True):
            assert_same_episode(found, expected)


def cut(path: Path, size: int) -> None:
    with open(path, "r+b") as file:
        file.truncate(size)


def files_with_sizes(path: Path) -> dict[Path, int]:
    return {file: file.stat().st_size for file in sorted((path / "segments").rglob("*")) if file.is_file()}


def sizes_before_the_last(store: Path, tmp_path: Path, level: int | None) -> dict[Path, int]:
    with ColumnsWriter.create(tmp_path / "short", RAGGED.spec, compression=level, block_steps=1) as writer:
        writer.write_all(EPISODES[:-1])
    short = files_with_sizes(tmp_path / "short")
    return {store / file.relative_to(tmp_path / "short"): size for file, size in short.items()}


def test_the_last_entry_at_every_byte(store: Path) -> None:
    full = (store / "episodes").read_bytes()
    for size in range(len(full) - table.SIZE, len(full)):
        cut(store / "episodes", size)
        same(store, EPISODES[:-1])
        torn = size - (len(full) - table.SIZE)
        levels = [finding.level for finding in FORMAT.check(store)]
        assert levels == ["warning"] * len(levels)
        assert len(levels) > (torn > 0)  # orphan rows as well
        with ColumnsWriter(store) as writer:
            assert writer.write(EPISODES[-1]) == len(EPISODES) - 1
        same(store, EPISODES)
        assert (store / "episodes").read_bytes() == full
        assert list(FORMAT.check(store)) == []


def test_the_last_rows_at_every_byte_before_their_entry(store: Path, tmp_path: Path, level: int | None) -> None:
    before, after = sizes_before_the_last(store, tmp_path, level), files_with_sizes(store)
    entries = (store / "episodes").stat().st_size
    contents = {file: file.read_bytes() for file in after}
    for file, start in before.items():
        for size in range(start, after[file]):
            cut(store / "episodes", entries - table.SIZE)
            cut(file, size)
            same(store, EPISODES[:-1])
            ColumnsWriter(store).close()
            assert files_with_sizes(store) == before
            with ColumnsWriter(store) as writer:
                writer.write(EPISODES[-1])
            assert {file: file.read_bytes() for file in after} == contents
    same(store, EPISODES)


def test_rows_missing_behind_a_whole_entry(store: Path, tmp_path: Path, level: int | None) -> None:
    before, after = sizes_before_the_last(store, tmp_path, level), files_with_sizes(store)
    for file, start in before.items():
        for size in {start, (start + after[file]) // 2, after[file] - 1} - {after[file]}:
            broken = tmp_path / "broken"
            shutil.copytree(store, broken)
            cut(broken / file.relative_to(store), size)
            for opening in (ColumnsSource, ColumnsWriter):
                with pytest.raises(FormatError, match="at least"):
                    opening(broken)
            assert "error" in [finding.level for finding in FORMAT.check(broken)]
            with pytest.raises(FormatError):
                compact(broken, tmp_path / "saved")
            lost = compact(broken, tmp_path / "saved", damaged="skip")
            assert [finding.where for finding in lost] == [f"episode {len(EPISODES) - 1}"]
            same(tmp_path / "saved", EPISODES[:-1])
            shutil.rmtree(tmp_path / "saved")
            shutil.rmtree(broken)


def test_every_flipped_byte_is_found(store: Path, level: int | None) -> None:
    for file in [store / "episodes", *files_with_sizes(store)]:
        whole = file.read_bytes()
        for position in range(0, len(whole), max(len(whole) // 40, 1)):
            changed = bytearray(whole)
            changed[position] ^= 1 << position % 8
            file.write_bytes(changed)
            found = [finding.level for finding in FORMAT.check(store)]
            if found == [] and level is not None and file.name.endswith(".values"):
                same(store, EPISODES)  # the bits that fill up the last byte of a deflated block say nothing
            else:
                assert "error" in found, (file, position)
        file.write_bytes(whole)
    assert list(FORMAT.check(store)) == []


def test_a_damaged_entry_among_sound_ones_is_no_torn_tail(store: Path, tmp_path: Path) -> None:
    raw = bytearray((store / "episodes").read_bytes())
    raw[table.SIZE + 20] ^= 4
    (store / "episodes").write_bytes(raw)
    for opening in (ColumnsSource, ColumnsWriter):
        with pytest.raises(ChecksumError, match="entry 1"):
            opening(store)
    lost = compact(store, tmp_path / "saved", damaged="skip")
    assert [finding.where for finding in lost] == ["episode 1"]
    same(tmp_path / "saved", [EPISODES[0], EPISODES[2]])


def test_zeros_behind_the_table_as_a_power_loss_leaves_them(store: Path) -> None:
    with open(store / "episodes", "ab") as file:
        file.write(bytes(3 * table.SIZE))
    same(store, EPISODES)
    assert [finding.where for finding in FORMAT.check(store)] == [f"entry {len(EPISODES)}"]
    ColumnsWriter(store).close()
    assert list(FORMAT.check(store)) == []


def test_a_reader_notices_that_the_store_was_rolled_back(store: Path) -> None:
    with ColumnsSource(store) as source:
        cut(store / "episodes", table.SIZE)
        with ColumnsWriter(store) as writer:
            writer.write_all([EPISODES[2], EPISODES[2]])
        with pytest.raises(FormatError, match="rolled back"):
            source.refresh()


def test_damaged_metadata_of_the_store(store: Path, tmp_path: Path) -> None:
    (store / "metadata.json").write_text("{")
    assert [finding.level for finding in FORMAT.check(store)] == ["error"]
    with pytest.raises(FormatError):
        compact(store, tmp_path / "saved")
    assert [finding.where for finding in compact(store, tmp_path / "saved", damaged="skip")] == ["metadata.json"]
    same(tmp_path / "saved", EPISODES)
