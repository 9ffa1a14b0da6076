"""Several writers and a reader at once, in processes; writers that are killed; segments that are taken over."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from penstock.formats.columns import FORMAT
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import FLAT, RAGGED, Example
from penstock.testing.writers import killed_after, numbered


def started(work: Callable[..., Any], *args: Any) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work, args=args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def record(path: Path, seeds: range, go: Any, example: Example) -> None:
    with ColumnsWriter(path) as writer:
        go.wait()
        for seed in seeds:
            episode = numbered(seed, example)
            object.__setattr__(episode, "metadata", {"number": seed})
            writer.write(episode)


@pytest.mark.parametrize("example", [FLAT, RAGGED], ids=repr)
def test_two_writers_and_a_reader_at_once(tmp_path: Path, example: Example) -> None:
    path, each = tmp_path / "store", 150
    ColumnsWriter.create(path, example.spec).close()
    go = multiprocessing.get_context("fork").Barrier(3)
    children = [started(record, path, range(i * each, (i + 1) * each), go, example) for i in range(2)]
    with ColumnsSource(path) as source:
        go.wait()
        known: list[int] = []
        while len(source) < 2 * each:
            assert any(child.is_alive() for child in children) or source.refresh()
            source.refresh()
            numbers = [entry["number"] for entry in source.episode_metadata(range(len(source)))]
            assert numbers[: len(known)] == known  # rows are never given away again
            for e in range(len(known), len(numbers)):
                assert_rows(source, e, numbers[e], example)
            known = numbers
        assert sorted(known) == list(range(2 * each))
        assert [n for n in known if n < each] == list(range(each))  # each writer's in its order
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert list(FORMAT.check(path)) == []
    assert len(list((path / "segments").iterdir())) == 2


def assert_rows(source: ColumnsSource, e: int, number: int, example: Example) -> None:
    expected = numbered(number, example)
    object.__setattr__(expected, "metadata", {"number": number})
    assert_same_episode(source.episode(e), expected)


def test_a_dead_writers_segment_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ColumnsWriter.create(path, FLAT.spec).close()
    total = 0
    for _ in range(3):

        def work() -> Iterator[int]:
            with ColumnsWriter(path) as writer:
                for e in range(1000):
                    yield writer.write(numbered(e))

        killed_after(5, work)
        with ColumnsSource(path) as source:
            assert len(source) >= total + 5
            total = len(source)
    assert [folder.name for folder in (path / "segments").iterdir()] == ["0"]
    with ColumnsWriter(path) as a, ColumnsWriter(path) as b:
        assert (a.write(numbered(0)), b.write(numbered(1)), a.write(numbered(2))) == (total, total + 1, total + 2)
    assert sorted(folder.name for folder in (path / "segments").iterdir()) == ["0", "1"]
    assert list(FORMAT.check(path)) == []


def test_metadata_of_two_writers_is_merged(tmp_path: Path) -> None:
    with (
        ColumnsWriter.create(tmp_path / "store", FLAT.spec, {"a": 0}) as first,
        ColumnsWriter(tmp_path / "store") as second,
    ):
        first.update_metadata({"a": 1, "b": 1})
        second.update_metadata({"b": 2, "c": 2})
    with ColumnsSource(tmp_path / "store") as source:
        assert source.metadata == {"a": 1, "b": 2, "c": 2}
