"""Stores that keep their last episodes: what readers see, kills at each step of a removal, and writers meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import DataError, ExpiredRowError, FormatError
from penstock.formats.columns import FORMAT, retention
from penstock.formats.columns.compact import compact
from penstock.formats.columns.retention import Retention, first_kept, read_retention
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import FLAT, RAGGED, Example
from penstock.testing.writers import killed_after, numbered

KEEP = 200  # steps: about ten episodes of 0 to 39 steps


def store(path: Path, episodes: int, example: Example = FLAT, **options: Any) -> Retention:
    with ColumnsWriter.create(path, example.spec, **options) as writer:
        kept = Retention.begin(path, KEEP)
        for e in range(episodes):
            writer.write(numbered(e, example))
    return kept


def assert_kept(path: Path, episodes: int, example: Example = FLAT) -> None:
    """The store has its last episodes, at least `KEEP` steps and not an episode more, and no file of older ones."""
    with ColumnsSource(path) as source:
        assert source.first + len(source) == episodes
        lengths = [e % 40 for e in range(episodes)]
        assert sum(lengths[source.first :]) >= KEEP > sum(lengths[source.first + 1 :])
        for e, found in enumerate(source.episodes()):
            assert_same_episode(found, numbered(source.first + e, example))
    assert list(FORMAT.check(path)) == []


def segments(path: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(path / "segments") if name.isdigit())


@pytest.mark.parametrize("example", [FLAT, RAGGED], ids=repr)
def test_old_segments_are_removed(tmp_path: Path, example: Example) -> None:
    path = tmp_path / "store"
    kept = store(path, 100, example)
    before = segments(path)
    assert kept.trim() > 20
    assert segments(path) == before[-len(segments(path)) :]
    assert len(os.listdir(path / "segments")) == len(segments(path))
    assert_kept(path, 100, example)
    assert kept.trim() == 0
    compact(path, tmp_path / "copy")
    with ColumnsSource(path) as one, ColumnsSource(tmp_path / "copy") as other:
        assert one.fingerprint == other.fingerprint


def test_compressed_stores_too(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store(path, 100, compression=1, block_steps=4).trim()
    assert_kept(path, 100)
    with ColumnsSource(path) as source:
        with ColumnsWriter(path) as writer:
            writer.write(numbered(100))
        assert source.refresh()
        assert_same_episode(source.episode(-1), numbered(100))


def test_a_store_without_a_retention_keeps_everything_in_one_segment(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with ColumnsWriter.create(path, FLAT.spec) as writer:
        for e in range(100):
            writer.write(numbered(e))
    assert segments(path) == [0]
    assert read_retention(path) is None


def test_readers_keep_what_they_opened(tmp_path: Path) -> None:
    path = tmp_path / "store"
    kept = store(path, 60)
    source = ColumnsSource(path)
    known = len(source)
    pickled = pickle.dumps(source)
    with ColumnsWriter(path) as writer:
        for e in range(60, 140):
            writer.write(numbered(e))
            kept.trim()
            if e == 64:
                assert source.refresh()
                assert len(source) == known + 5
    for e, found in enumerate(source.episodes()):
        assert_same_episode(found, numbered(source.first + e))
    with pytest.raises(
        ExpiredRowError, match=r"after number 64 in .* keeps episodes from number 119 on; open it again"
    ):
        source.refresh()
    with pytest.raises(ExpiredRowError, match="from number 0 on"):
        pickle.loads(pickled)
    assert_kept(path, 140)


def test_an_open_writer_keeps_its_segment(tmp_path: Path) -> None:
    path = tmp_path / "store"
    kept = store(path, 10)
    with ColumnsWriter(path) as idle:
        idle.write(numbered(10))
        mine = max(segments(path))
        with ColumnsWriter(path) as busy:
            for e in range(11, 100):
                busy.write(numbered(e))
        kept.trim()
        assert min(segments(path)) == mine
        assert_kept(path, 100)
        assert idle.write(numbered(100)) == 100
    kept.trim()
    assert_kept(path, 101)
    with ColumnsWriter(path) as later:
        later.write(numbered(101))
    kept.trim()
    assert_kept(path, 102)


STEPS: list[tuple[str, Any, bool, int]] = [
    ("_write", retention, False, 0),
    ("_write", retention, True, 0),
    ("move", retention, False, 3),
    ("move", retention, True, 0),
    ("move", retention, True, 3),
    ("rmtree", shutil, False, 0),
    ("unlink", os, True, 0),
    ("unlink", os, True, 17),
]
"""Functions of a removal, whether the process is killed after them rather than before, and at which of their calls."""


@pytest.mark.parametrize(("name", "module", "after", "call"), STEPS)
def test_kills_at_each_step_of_a_removal(tmp_path: Path, name: str, module: Any, after: bool, call: int) -> None:
    path = tmp_path / "store"
    kept = store(path, 100)

    def work() -> None:
        function: Callable[..., Any] = getattr(module, name)
        calls = iter(range(1000))

        def killed(*args: Any, **options: Any) -> Any:
            last = next(calls) == call
            if last and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            function(*args, **options)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(module, name, killed)
        kept.trim()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    with ColumnsSource(path) as source:  # all episodes, or those that are kept
        assert source.first in (0, first_kept(path))
        for e, found in enumerate(source.episodes()):
            assert_same_episode(found, numbered(source.first + e))
    assert list(FORMAT.check(path)) == []
    with ColumnsWriter(path) as writer:
        assert writer.write(numbered(100)) == 100
    Retention.begin(path, KEEP).trim()
    assert_kept(path, 101)
    used = {int(entry["segment"]) for entry in ColumnsSource(path).state.entries}
    assert set(segments(path)) == used


def test_writers_append_while_files_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ColumnsWriter.create(path, FLAT.spec).close()
    kept = Retention.begin(path, KEEP)

    def record() -> Iterator[int]:
        with ColumnsWriter(path) as writer:
            for e in range(1000):
                episode = numbered(e)
                object.__setattr__(episode, "metadata", {"number": e})
                yield writer.write(episode)

    last = -1
    for _ in range(4):
        numbers = killed_after(60, record)
        assert numbers[0] in (last + 1, last + 2)  # an episode may be whole, and not yet reported
        last = numbers[-1]
        kept.trim()
        with ColumnsSource(path) as source:
            assert source.first + len(source) in (last + 1, last + 2)
            last = source.first + len(source) - 1
            for episode in source.episodes():
                expected = numbered(episode.metadata["number"])
                np.testing.assert_array_equal(episode.rewards, expected.rewards)
    assert first_kept(path) > 0
    assert list(FORMAT.check(path)) == []


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store"
    kept = store(path, 10)
    with pytest.raises(DataError, match="keep_steps of at least 1, got 0"):
        Retention.begin(path, 0)
    whole = (path / "retention.json").read_text()
    for wrong in ('{"keep_steps": 0, "segment_steps": 1, "first": 0}', '{"first": "x"}', "[]"):
        (path / "retention.json").write_text(wrong)
        with pytest.raises(FormatError):
            ColumnsSource(path)
        with pytest.raises(FormatError):
            kept.trim()
    (path / "retention.json").write_text(whole.replace('"first": 0', '"first": 11'))
    with pytest.raises(FormatError, match="expected at least 11 episodes"):
        ColumnsSource(path)
