"""Whole episodes, one and many: the values of NumPy and h5py, whichever way they are chosen."""

# pyright: basic

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.curation import Curation, EpisodeMarks
from penstock.errors import ArgumentError, FormatError
from penstock.formats.base.format import named
from penstock.formats.base.source import BLOCK_BYTES

WIDE = 64
LONG = BLOCK_BYTES // 16 // (8 * WIDE) + 1  # steps of an episode that is read by itself


def recorded(seed: int, episodes: int = 60) -> tuple[penstock.EpisodeDataset, list[dict[str, Any]]]:
    """Episodes of very unequal lengths, and their columns cut by NumPy."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 300, episodes)
    lengths[rng.integers(0, episodes, 3)] = LONG, LONG + 7, 1
    total = int(lengths.sum())
    columns = {
        "observations": rng.random((total + episodes, WIDE)),
        "actions": rng.integers(0, 9, (total, 3)),
        "rewards": rng.random(total).astype("f4"),
        "terminations": rng.random(total) < 0.01,
        "truncations": np.zeros(total, np.bool_),
        "infos/tokens": Ragged.from_rows([np.arange(n) + n for n in rng.integers(0, 5, total)]),
    }
    ends = np.cumsum(lengths).tolist()
    cut: list[dict[str, Any]] = []
    for e, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        first = {"observations": begin + e}
        last = {"observations": end + e + 1}
        cut.append({path: array[first.get(path, begin) : last.get(path, end)] for path, array in columns.items()})
    return penstock.from_arrays(columns, lengths=lengths.tolist()), cut


def assert_same(episode: Episode, expected: dict[str, Any]) -> None:
    """Compare the columns of an episode, which are all but the ragged one or all."""
    assert [*episode.columns, "infos/tokens"][: len(expected)] == list(expected)
    for path, column in episode.columns.items():
        array: Any = expected[path]
        if isinstance(array, Ragged):
            assert isinstance(column, Ragged)
            assert column.values.tobytes() == array.values.tobytes(), path
            assert column.offsets.tolist() == array.offsets.tolist(), path
        else:
            assert column.dtype == array.dtype, path
            np.testing.assert_array_equal(np.asarray(column), array, err_msg=path)


STORED: dict[str, Callable[[penstock.EpisodeDataset, Path], penstock.EpisodeDataset]] = {
    "memory": lambda data, _: data,
    "store": lambda data, path: stored(data, path, "columns"),
    "compressed": lambda data, path: stored(data, path, "columns", options={"compression": 1}),
    "minari": lambda data, path: stored(data, path / "some-v0", "minari", drop=["infos/tokens"]),
    "joined": lambda data, path: penstock.open([stored_part(data, path, 0, 20), stored_part(data, path, 20, 60)]),
}


def stored(data: penstock.EpisodeDataset, path: Path, format: str, **options: Any) -> penstock.EpisodeDataset:
    penstock.convert(data, path, format=format, **options)
    return penstock.open(path)


def stored_part(data: penstock.EpisodeDataset, path: Path, first: int, end: int) -> Path:
    penstock.convert(data[first:end], path / str(first), format="columns")
    return path / str(first)


@pytest.mark.parametrize(("seed", "kind"), list(enumerate(STORED)))
def test_episodes_in_any_order_are_what_numpy_cuts(seed: int, kind: str, tmp_path: Path) -> None:
    data, expected = recorded(seed)
    opened = STORED[kind](data, tmp_path / "data")
    rng = np.random.default_rng(seed)
    order: list[int] = rng.integers(-60, 60, 150).tolist()
    runs = [*range(10, 30), *range(5), 59, 59, *range(40, 20, -1)]
    mask = rng.random(60) < 0.3
    chosen: list[tuple[Any, list[int]]] = [
        *((order, order), (np.array(runs), runs), (mask, np.flatnonzero(mask).tolist()), ([], [])),
        (slice(50, 3, -3), list(range(50, 3, -3))),
    ]
    for given, numbers in chosen:
        read = list(opened[given])
        assert [episode.id for episode in read] == [e % 60 for e in numbers]
        for episode, e in zip(read, numbers, strict=True):
            assert_same(episode, expected[e])
    indices: list[Any] = [7, -1, np.int32(59), np.uint8(3), np.array(-60)]
    for index in indices:
        assert_same(opened[index], expected[int(index)])
    short = opened.filter("total_steps < 50")
    assert [episode.id for episode in short] == [e for e in range(60) if len(expected[e]["rewards"]) < 50]
    for episode in short[[-1, 0, -1]]:
        assert_same(episode, expected[episode.id])


def test_arrays_that_are_kept_do_not_change() -> None:
    """The memory of episodes that nothing refers to is used again."""
    data, expected = recorded(5)
    rng = np.random.default_rng(5)
    kept: list[tuple[int, Any]] = []
    for _ in range(6):
        for episode in data[rng.integers(0, 60, 90)]:
            if rng.random() < 0.1:
                kept.append((episode.id, episode.observations[1:]))
    assert len(kept) > 20
    for e, rows in kept:
        np.testing.assert_array_equal(rows, expected[e]["observations"][1:])
        rows[:] = 0  # they are the caller's own
    for episode in data[[e for e, _ in kept]]:
        assert_same(episode, expected[episode.id])


def test_parts_between_excluded_spans_in_any_order() -> None:
    data, expected = recorded(6)
    curation = Curation.of(data.source)
    for e in (3, 8, 20):
        curation[e] = EpisodeMarks(excluded_spans=[(1, 1)])
    curated = data.apply(curation)
    steps = {e: len(expected[e]["rewards"]) for e in range(60)}
    assert all(steps[e] > 2 for e in (3, 8, 20))
    parts = [(e, part) for e in range(60) for part in ([(0, 1), (2, steps[e])] if e in (3, 8, 20) else [(0, steps[e])])]
    order: list[int] = np.random.default_rng(6).integers(0, len(parts), 200).tolist()
    for episode, i in zip(curated[order], order, strict=True):
        e, (begin, end) = parts[i]
        after = {"observations": 1}
        assert_same(episode, {path: array[begin : end + after.get(path, 0)] for path, array in expected[e].items()})
        assert_same(curated[i], dict(episode.columns))


def test_a_growing_store_in_any_order(tmp_path: Path) -> None:
    data, expected = recorded(7)
    with named("columns").create(tmp_path / "data", data.spec) as writer:
        writer.write_all(data[:30])
        opened = penstock.open(tmp_path / "data")
        chosen = opened[[29, 0, 29]]
        writer.write_all(data[30:])
    assert [episode.id for episode in chosen] == [29, 0, 29]
    with pytest.raises(IndexError, match="0:30"):
        opened[30]
    grown = opened.refresh()
    for e in (59, 30, 29):
        assert_same(grown[e], expected[e])
    for dataset in (chosen, grown[[29, 0, 59]]):
        for episode in dataset:
            assert_same(episode, expected[episode.id])


def test_minaris_files_are_what_h5py_reads() -> None:
    folder = Path(__file__).parents[1] / "golden" / "minari" / "0.5.4" / "hdf5-image-v0"
    with penstock.open(folder) as data, h5py.File(folder / "data" / "main_data.hdf5") as file:
        order = [*range(len(data)), 0, -1, 0]
        for episode, e in zip(data[order], order, strict=True):
            for name in ("actions", "rewards", "terminations"):
                stored: Any = file[f"episode_{e % len(data)}/{name}"]
                np.testing.assert_array_equal(episode.columns[name], stored[:])


def test_a_store_that_is_cut_while_it_is_open_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.files.mapping.BELIEVED", -1.0)  # look at the file at each read
    data, expected = recorded(8)
    opened = stored(data, tmp_path / "data", "columns")
    assert_same(opened[59], expected[59])
    with (tmp_path / "data" / "segments" / "0" / "observations.values").open("r+b") as file:
        file.truncate(len(expected[0]["observations"]) * WIDE * 8)
    assert_same(opened[0], expected[0])
    for read in (lambda: opened[1], lambda: list(opened[[2, 1]])):
        with pytest.raises(FormatError, match=r"truncated while it was open.*observations\.values"):
            read()


@pytest.mark.parametrize(
    ("index", "error", "match"),
    [
        (60, IndexError, "0:60, got 60"),
        (-61, IndexError, "0:60, got -61"),
        (10**30, IndexError, "0:60"),
        ([0, 60], IndexError, "0:60, got 0:61"),
        (True, ArgumentError, "numbers of episodes"),
        (1.0, ArgumentError, "numbers of episodes"),
        ([0.5], ArgumentError, "numbers of episodes"),
        ("3", ArgumentError, "numbers of episodes"),
        (None, ArgumentError, "numbers of episodes"),
        ([[1]], ArgumentError, "numbers of episodes"),
        (np.zeros(3, np.bool_), IndexError, "a mask of 60"),
    ],
)
def test_what_is_no_episode_is_said(index: Any, error: type[Exception], match: str) -> None:
    data, _ = recorded(9)
    with pytest.raises(error, match=match):
        data[index]
    with pytest.raises(IndexError, match="0:60"):
        list(data.source.episodes([0, 60]))
