"""Parts of several chunks that are read in one go change nothing that comes out, whatever of them cannot be had."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Games, catalog_of, loader_of, named, names, write
from penstock_live.account import SourceGone
from penstock_live.chunk_source import WantedOfEach
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.journal import Arrival
from penstock_live.pipeline import LiveOptions, LivePipeline

FILES = [[0, 1, 2], [10], [20, 21], [30, 31, 32, 33], [*range(40, 70)]]
WAYS: list[dict[str, Any]] = [
    {"count": 1},
    {"count": 3},
    {"rate": "1/10"},
    {"rate": "1/3"},
    {"count": 2, "ahead": 5},
    {"count": 1, "hanse_gamma": 1.0},
]


class Some(Games):
    """Gives few frames at once, of two of three chunks."""

    asked = 0

    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[Any]:
        Some.asked += len(chunks)
        found: list[Any] = []
        for k, i in enumerate(chunks):
            try:
                found.append(self.load(i, lambda n, k=k: wanted(k, n)) if i % 3 else None)
            except Exception:  # noqa: BLE001  as a source does that meets what is wrong
                found.append(None)
        return found


class Failing(Games):
    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[Any]:
        wanted(0, 2)
        raise [ValueError("?"), OSError(5, "I/O"), KeyError(1)][len(chunks) % 3]


def inlet(directory: Path, opener: Any) -> ChunkSourceLoader:
    return ChunkSourceLoader(FilePathProvider(directory, watch="off"), opener)


def run(directory: Path, opener: Any, **options: Any) -> tuple[list[Any], dict[str, int], list[str]]:
    chosen: dict[str, Any] = {"reservoir": 9, "batch_size": 4, "follow": False, "passes": 7, "seed": 3, **options}
    with LivePipeline(inlet(directory, opener), LiveOptions(**chosen)) as batches:
        frames = [named(batch["rows"]) for batch in batches]
        failures, examples = batches.failures()
        return frames, failures, sorted(name for name, _, _ in examples)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_frames_and_failures_in_the_same_order(
    tmp_path: Path, options: dict[str, Any], bad: bool, threads: int
) -> None:
    names(tmp_path, FILES)
    if bad:
        for name in ("g0000.chk", "g0003.chk"):
            data = bytearray((tmp_path / name).read_bytes())
            data[-1] ^= 1
            (tmp_path / name).write_bytes(bytes(data))
    expected = run(tmp_path, Games, threads=1, **options)
    assert sum(map(len, expected[0])) > 40
    assert len(expected[2]) == (2 if bad else 0)
    for draws, opener in itertools.product((1, 16), (Some, Failing)) if threads > 1 else [(16, Some)]:
        before = Some.asked
        assert run(tmp_path, opener, threads=threads, draws=draws, **options) == expected
        assert (Some.asked > before) == (opener is Some and options.get("rate") != "1/3")


def test_a_file_that_is_written_anew_while_parts_of_it_are_read_gives_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.chk", [1, 2, 3])

    class Rewritten(Some):
        def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[Any]:
            found = super().load_some(chunks, wanted)
            write(path, [4, 5, 6], age=2000.0)
            return found

    (opened,) = inlet(tmp_path, Rewritten).begin(wanted=9)
    with pytest.raises(SourceGone):
        opened.load_some([1, 2], lambda k, n: np.array([0]))
    assert opened.arrival.count == 3


def test_each_source_is_asked_once_for_all_that_is_wanted_of_it() -> None:
    asked: list[tuple[str, list[int]]] = []

    class Letters(Games):
        def __init__(self, key: str) -> None:
            self.key = key

        def __len__(self) -> int:
            return 3

        def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[Any]:
            asked.append((self.key, list(chunks)))
            return [wanted(k, i).astype(np.uint8)[:, None] for k, i in enumerate(chunks)]

    catalog = catalog_of(lambda arrival: Letters(arrival.key), limit=1)
    for lo, name in [(10, "a"), (13, "b")]:
        catalog.place(lo, Arrival(name, name, 3))
    found = loader_of(catalog).load_some([15, 10, 99, 13, 12], lambda k, n: np.array([k, n]))
    assert asked == [("b", [2, 0]), ("a", [0, 2])]
    assert [None if rows is None else rows[:, 0].tolist() for rows in found] == [[0, 2], [1, 0], None, [3, 0], [4, 2]]
    assert catalog.open_sources == 1
