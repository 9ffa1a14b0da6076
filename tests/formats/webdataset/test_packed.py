"""Compressed archives as they are written: what is there after a kill at any step, and which of two copies counts."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError
from penstock.formats.base.format import recognise
from penstock.formats.webdataset import FORMAT
from penstock.formats.webdataset.shards import recording, shards_of
from penstock.formats.webdataset.source import ShardSource

SPEC = Spec({"rewards": Field(np.dtype("f8"))})
STEPS = ("replace", "unlink", "pwritev", "ftruncate", "fsync", "utime", "fchmod", "close", "mkdir")
CASES: dict[str, dict[str, Any]] = {
    "folder": {"shard_episodes": 2, "compression": "gzip"},
    "folder.zst": {"shard_episodes": 1, "compression": "zstd"},
    "one.tgz": {},
    "one.tar.gz": {"compression": "gzip"},
    "one.tar.zst": {},
}


def episode(i: int) -> Episode:
    return Episode(SPEC, {"rewards": np.arange(3.0) + 10 * i}, metadata={"i": i})


def numbers(path: Path) -> list[int]:
    with ShardSource(path, index=False) as source:
        assert all(e.rewards.tolist() == episode(e.metadata["i"]).rewards.tolist() for e in source.episodes())
        return [e.metadata["i"] for e in source.episodes()]


def killed_at(step: int, work: Callable[[Callable[[int], None]], None]) -> tuple[bool, int]:
    """Run `work` in a process that ends before its call number `step` of those in STEPS: whether it was done before,
    and the last number that it told."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        calls = [0]

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                calls[0] += 1
                if calls[0] == step:
                    os._exit(9)
                return real(*args, **options)

            return call

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        code = 1
        try:
            work(lambda number: os.write(writer, bytes([number])) and None)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        told = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 0, told[-1] if told else 0


@pytest.mark.parametrize("name", CASES)
def test_a_kill_at_any_step_loses_nothing_and_counts_nothing_twice(name: str, tmp_path: Path) -> None:
    # Each third step of one case, and each tenth of the others, from a first step of their own.
    stride = 3 if name == "one.tgz" else 10
    steps = -(zlib.crc32(name.encode()) % stride)
    cut = 0
    while True:
        steps += stride
        path = tmp_path / str(steps) / name
        path.parent.mkdir()

        def work(tell: Callable[[int], None], path: Path = path) -> None:
            with FORMAT.create(path, SPEC, **CASES[name]) as writer:
                for i in range(3):
                    writer.write(episode(i))
                    tell(i + 1)
            with FORMAT.append(path, **CASES[name]) as writer:
                writer.write(episode(3))
                tell(4)

        done, told = killed_at(steps, work)
        if not told and not done:
            continue  # killed before there was an episode, or a dataset at all
        found = numbers(path)
        assert found == list(range(len(found)))
        assert len(found) in (told, told + 1)
        cut += not done
        if path.parent.joinpath(name).is_dir() or path.exists() or recording(path).exists():
            assert recognise(path)[0] is FORMAT
        with FORMAT.append(path, **CASES[name]) as writer:
            assert writer.write(episode(len(found))) == len(found)
        assert numbers(path) == [*found, len(found)]
        left = [p.name for p in (path if path.is_dir() else path.parent).iterdir() if p.suffix == ".tar"]
        assert left == []
        if done:
            break
    assert cut > 20 // stride


def test_one_packed_archive_is_read_while_it_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.tgz"
    with FORMAT.create(path, SPEC, {"author": "me"}) as writer:
        writer.write(episode(0))
        assert not path.exists()
        data = penstock.open(path)
        assert data.steps()[:]["rewards"].tolist() == [0.0, 1.0, 2.0]
        with pytest.raises(FileExistsError):
            FORMAT.create(path, SPEC)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert shards_of(path) == [path]
    with pytest.raises(FileExistsError):
        FORMAT.create(path, SPEC)
    with FORMAT.append(path) as writer:
        writer.update_metadata({"author": "you"})
    with ShardSource(path) as source:
        assert (len(source), source.metadata) == (1, {"author": "you"})


def test_what_replaces_an_archive_counts_more_than_what_was_left_behind(tmp_path: Path) -> None:
    """A kill before the plain copy was removed, then another archive in the place of the packed one."""
    for name, i in (("a.tgz", 0), ("b.tgz", 1)):
        with FORMAT.create(tmp_path / name, SPEC) as writer:
            writer.write(episode(i))
    with FORMAT.create(tmp_path / "plain.tar", SPEC) as writer:
        writer.write(episode(0))
    os.replace(tmp_path / "plain.tar", recording(tmp_path / "a.tgz"))
    os.utime(recording(tmp_path / "a.tgz"), ns=(0, (tmp_path / "a.tgz").stat().st_mtime_ns))
    (tmp_path / "a.tgz").write_bytes((tmp_path / "b.tgz").read_bytes())
    assert numbers(tmp_path / "a.tgz") == [1]


def test_two_archives_of_one_name_that_are_not_ours(tmp_path: Path) -> None:
    with FORMAT.create(tmp_path / "a.tar", SPEC) as writer:
        writer.write(episode(0))
    with FORMAT.create(tmp_path / "a.tgz", SPEC) as writer:
        writer.write(episode(1))
    with pytest.raises(FormatError, match=r"expected every shard once, got a\.tar and a\.tgz"):
        ShardSource(tmp_path)
    assert numbers(Path(f"{tmp_path}/a.{{tar,tgz}}")) == [0, 1]
