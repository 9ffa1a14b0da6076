from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from penstock.containers.hdf5 import Appender, Dataset, File

Same = Callable[[Path], int]

WRITER = """
import os, sys
import numpy as np
from penstock.containers.hdf5 import Appender
path, first = sys.argv[1], int(sys.argv[2])
w = Appender.open(path)
for i in range(first, first + 10_000):
    w.add_group(f"episode_{i}", {"x": np.full(50, i), "t": [str(i)] * 3}, {"id": i})
    w.set_attrs("/", {"total": i + 1})
    w.commit()
    os.write(1, b".")
"""


def _check(path: Path, at_least: int, at_most: int) -> int:
    with File(path) as ours, h5py.File(path) as theirs:
        n = len(ours.root)
        assert at_least <= n <= at_most
        assert list(ours.root) == list(theirs)
        assert set(theirs) == {f"episode_{i}" for i in range(n)}
        assert n == 0 or ours.root.attrs["total"] == theirs.attrs["total"] == n
        for i in range(n):
            x, t = ours[f"episode_{i}/x"], ours[f"episode_{i}/t"]
            assert isinstance(x, Dataset)
            assert isinstance(t, Dataset)
            assert (x.read() == i).all()
            assert t.read_list() == [str(i).encode()] * 3
            np.testing.assert_array_equal(x.read(), theirs[f"episode_{i}/x"][()])
        return n


def test_what_was_committed_survives_kills(tmp_path: Path) -> None:
    path, rng = tmp_path / "a.hdf5", random.Random(0)
    path.touch()
    done = 0
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(path), str(done)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            seen = len(child.stdout.read(rng.randrange(1, 40)))
            child.send_signal(signal.SIGKILL)
            seen += len(child.stdout.read())
        done = _check(path, done + seen, done + seen + 1)  # a commit may not have been told
    assert done > 60


def _commits(path: Path, count: int) -> list[tuple[int, bytes]]:
    """Bytes of the file after each of `count` commits."""
    states: list[tuple[int, bytes]] = []
    with Appender.create(path, fsync=False) as w:
        for i in range(count):
            w.add_group(f"episode_{i}", {"x": np.full(5, i), "t": [str(i)] * 3}, {"id": i})
            w.set_attrs("/", {"total": i + 1})
            w.commit()
            states.append((i + 1, path.read_bytes()))
    return states


def test_every_cut_of_the_unfinished_part(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.hdf5", tmp_path / "cut.hdf5"
    states = _commits(path, 10)
    (n, old), (_, new) = states[-2:]
    for size in range(len(old), len(new), 5):
        # the superblock is the last write: all before it may have got anywhere
        torn = old[:128] + new[128:size]
        cut.write_bytes(torn)
        if size % 32 == 0:
            _check(cut, n, n)
        else:
            with File(cut) as ours:
                assert len(ours.root) == n


class Stop(Exception):
    pass


def test_a_failure_before_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, left = os.pwrite, [0]

    def limited(fd: int, raw: Any, at: int) -> int:
        if left[0] == 0:
            raise Stop
        part = min(left[0], len(raw))
        left[0] -= part
        return whole(fd, bytes(raw[:part]), at)

    base = tmp_path / "base.hdf5"
    _commits(base, 6)
    for budget in [*range(0, 4000, 61), 10**6]:
        path = tmp_path / "a.hdf5"
        path.write_bytes(base.read_bytes())
        left[0] = budget
        monkeypatch.setattr(os, "pwrite", limited)
        w = Appender.open(path)
        try:
            w.add_group("episode_6", {"x": np.full(5, 6), "t": ["6"] * 3}, {"id": 6})
            w.set_attrs("/", {"total": 7})
            w.commit()
            w.close()
            expected = 7
        except Stop:
            w.close(commit=False)
            expected = 6
        monkeypatch.setattr(os, "pwrite", whole)
        switched = expected == 6 and _superblock_torn(path, base)
        if not switched:
            _check(path, expected, expected)
        with Appender.open(path, fsync=False) if not switched else Appender.open(base, fsync=False) as again:
            assert "episode_5" in again


def _superblock_torn(path: Path, base: Path) -> bool:
    """A write that the system cuts inside 100 bytes is the one thing that is taken not to happen."""
    return path.read_bytes()[:100] != base.read_bytes()[:100]


def test_garbage_behind_the_end_is_overwritten(tmp_path: Path, same_as_h5py: Same) -> None:
    path = tmp_path / "a.hdf5"
    _commits(path, 4)
    with path.open("ab") as f:
        f.write(np.random.default_rng(0).bytes(5000))
    _check(path, 4, 4)
    with Appender.open(path, fsync=False) as w:
        w.add_group("episode_4", {"x": np.full(5, 4), "t": ["4"] * 3}, {"id": 4})
        w.set_attrs("/", {"total": 5})
    _check(path, 5, 5)
    assert same_as_h5py(path) == 10


@pytest.mark.parametrize("left", [0, 500])
def test_a_file_without_its_first_commit_is_new(tmp_path: Path, left: int) -> None:
    path = tmp_path / "a.hdf5"
    path.write_bytes(bytes(left))
    with Appender.open(path, fsync=False) as w:
        w.add_group("g")
    with h5py.File(path) as f:
        assert list(f) == ["g"]


def test_the_data_is_synced_before_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    write, sync = os.pwrite, os.fsync
    monkeypatch.setattr(os, "pwrite", lambda fd, raw, at: calls.append(("write", at)) or write(fd, raw, at))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(("sync", 0)) or sync(fd))
    with Appender.create(tmp_path / "a.hdf5") as w:
        calls.clear()
        w.add_group("g", {"x": np.zeros(3)})
        w.commit()
    kinds = [(kind, at == 0) for kind, at in calls]
    assert kinds[-3:] == [("sync", True), ("write", True), ("sync", True)]
    assert ("write", True) not in kinds[:-3]


def test_two_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    path.touch()

    def write(who: int) -> None:
        for i in range(25):
            with Appender.open(path, fsync=False) as w:
                w.add_group(f"episode_{who}_{i}", {"x": np.full(3, i)})

    threads = [threading.Thread(target=write, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with h5py.File(path) as f:
        assert set(f) == {f"episode_{who}_{i}" for who in range(3) for i in range(25)}
        assert all((f[name]["x"][()] == int(name.split("_")[2])).all() for name in f)
