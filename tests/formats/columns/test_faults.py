"""Disks that are full, writes that come up short, interrupts: the episode is not there, and the next one is."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import DataError, LockedError
from penstock.formats.columns import FORMAT
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import FLAT, RAGGED, random_episode
from penstock.testing.writers import killed_after, numbered

EPISODES = RAGGED.episodes()


class FailingDisk:
    """Lets `good` calls of one function of `os` pass; the next fails, after half of its bytes if it `tears`."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
        self.real: Callable[..., Any] = getattr(os, name)
        self.error, self.good, self.tears, self.calls = error, 1 << 30, False, 0
        patch.setattr(os, name, self)

    def __call__(self, fd: int, *args: Any) -> Any:
        self.calls += 1
        self.good -= 1
        if self.good >= 0:
            return self.real(fd, *args)
        if self.tears and len(args[0]) > 1:
            self.tears = False
            data, position = args
            return self.real(fd, memoryview(data)[: len(data) // 2], position)
        raise self.error


def same(path: Path, episodes: list[Any]) -> None:
    with ColumnsSource(path) as source:
        assert len(source) == len(episodes)
        for found, expected in zip(source.episodes(), episodes, strict=True):
            assert_same_episode(found, expected)


def calls_of_a_write(tmp_path: Path, name: str, sync: Any, level: int | None = None) -> int:
    with pytest.MonkeyPatch.context() as patch:
        writer = ColumnsWriter.create(tmp_path / "count", RAGGED.spec, sync=sync, compression=level, block_steps=2)
        disk = FailingDisk(patch, name, OSError())
        writer.write(EPISODES[1])
        return disk.calls


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize("tears", [False, True], ids=["nothing", "half"])
@pytest.mark.parametrize("level", [None, 6], ids=["raw", "packed"])
def test_a_write_that_fails_at_any_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, tears: bool, level: int | None
) -> None:
    calls = calls_of_a_write(tmp_path, "pwrite", "close", level)
    assert calls >= len(RAGGED.spec) + 2
    disk = FailingDisk(monkeypatch, "pwrite", error)
    for position in range(calls):
        path = tmp_path / str(position)
        with ColumnsWriter.create(path, RAGGED.spec, compression=level, block_steps=2) as writer:
            writer.write(EPISODES[0])
            disk.good, disk.tears = position, tears
            with pytest.raises(type(error)):
                writer.write(EPISODES[1])
            disk.good = 1 << 30
            same(path, EPISODES[:1])
            assert list(FORMAT.check(path)) == []  # nothing is left behind, the space is free again
            assert writer.write(EPISODES[1]) == 1
            assert writer.write(EPISODES[2]) == 2
        same(path, EPISODES)


def test_a_disk_too_full_even_to_tidy_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of_a_write(tmp_path, "pwrite", "close")
    writes = FailingDisk(monkeypatch, "pwrite", OSError(errno.ENOSPC, "full"))
    cuts = FailingDisk(monkeypatch, "ftruncate", OSError(errno.EIO, "broken"))
    for position in range(calls):
        path = tmp_path / str(position)
        with ColumnsWriter.create(path, RAGGED.spec) as writer:
            writer.write(EPISODES[0])
            writes.good, writes.tears, cuts.good = position, True, 0
            with pytest.raises(OSError, match=r"full|broken"):
                writer.write(EPISODES[1])
            same(path, EPISODES[:1])
            writes.good = cuts.good = 1 << 30
            assert writer.write_all(EPISODES[1:]) == [1, 2]
        same(path, EPISODES)
        assert list(FORMAT.check(path)) == []


def test_a_flush_that_fails_takes_the_episode_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of_a_write(tmp_path, "fsync", "episode")
    disk = FailingDisk(monkeypatch, "fsync", OSError(errno.EIO, "broken"))
    for position in range(calls):
        path = tmp_path / str(position)
        with ColumnsWriter.create(path, RAGGED.spec, sync="episode") as writer:
            writer.write(EPISODES[0])
            disk.good = position
            with pytest.raises(OSError, match="broken"):
                writer.write(EPISODES[1])
            disk.good = 1 << 30
            same(path, EPISODES[:1])
            assert writer.write_all(EPISODES[1:]) == [1, 2]
        same(path, EPISODES)


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, memoryview(data)[:7], position))
    with ColumnsWriter.create(tmp_path / "store", RAGGED.spec) as writer:
        writer.write_all(EPISODES)
    same(tmp_path / "store", EPISODES)
    assert list(FORMAT.check(tmp_path / "store")) == []


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ColumnsWriter.create(path, FLAT.spec).close()

    def limited() -> Iterator[int]:
        refused = 0
        with ColumnsWriter(path) as writer:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            for e in range(100):
                try:
                    writer.write(numbered(e))
                except OSError:
                    refused += 1
            assert 0 < refused < 100
            yield refused
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            yield writer.write(numbered(7))
            while True:
                yield -1

    refused, number = killed_after(2, limited)[:2]
    with ColumnsSource(path) as source:
        assert len(source) == 100 - refused + 1
        assert number == len(source) - 1
        assert_same_episode(source.episode(-1), numbered(7))
    assert [finding.level for finding in FORMAT.check(path)] == []


def test_what_cannot_be_kept_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    with ColumnsWriter.create(tmp_path / "store", FLAT.spec) as writer:
        for metadata in ({"a": object()}, {"a": {1: 2}}, {"a": b"x"}, {"a": np.zeros(1, "M8[s]")}, {"a": 1j}):
            episode = random_episode(np.random.default_rng(0), FLAT.spec, 2)
            object.__setattr__(episode, "metadata", metadata)
            with pytest.raises(DataError):
                writer.write(episode)
        endless: list[Any] = []
        endless.append(endless)
        with pytest.raises(DataError, match="without end"):
            writer.update_metadata({"a": endless})
    assert list(FORMAT.check(tmp_path / "store")) == []


def test_a_forked_process_must_not_write_beside_its_parent(tmp_path: Path) -> None:
    with ColumnsWriter.create(tmp_path / "store", FLAT.spec) as writer:

        def child() -> Iterator[int]:
            with pytest.raises(LockedError):
                writer.write(numbered(0))
            while True:
                yield 5

        assert killed_after(1, child)[0] == 5
        assert writer.write(numbered(0)) == 0


def test_an_unknown_sync_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sync"):
        ColumnsWriter.create(tmp_path / "store", FLAT.spec, sync="never")  # pyright: ignore[reportArgumentType]
