"""Puzzles against one made tile by tile in plain Python; their classes; tables of orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import Columns, FormatError, PlanError, SpecError
from penstock.data.map_dataset import planned_samples
from penstock_imitation.jigsaw import Jigsaw
from penstock_imitation.target_pairs import TargetPairs


def frames(n: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), np.uint8)


def puzzle(image: np.ndarray[Any, Any], order: list[int], side: int, gap: int) -> np.ndarray[Any, Any]:
    """Row by row, the tile at the top left of each cell in turn."""
    cell_h, cell_w = image.shape[1] // side, image.shape[2] // side
    tiles = []
    for cell in order:
        top, left = cell // side * cell_h, cell % side * cell_w
        tiles.append(image[:, top : top + cell_h - gap, left : left + cell_w - gap])
    rows = [np.concatenate(tiles[r * side : (r + 1) * side], axis=2) for r in range(side)]
    return np.concatenate(rows, axis=1)


@pytest.mark.parametrize(
    ("shape", "side", "gap"), [((3, 12, 12), 3, 2), ((1, 13, 20), 3, 2), ((2, 16, 8), 2, 0), ((4, 20, 20), 4, 1)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_puzzles_are_those_made_tile_by_tile(shape: tuple[int, ...], side: int, gap: int, seed: int) -> None:
    images, table = frames(7, shape, seed), Jigsaw.permutations(5, side * side, seed)
    data = penstock.from_arrays({"observations": images}, lengths=[3, 4])
    pairs = (
        data.apply(TargetPairs("identity")).select_columns("context").map(Jigsaw(table, side * side, gap), seed=seed)
    )
    made = pairs[:]
    assert (made["target"].dtype, made["target"].shape) == (np.int64, (7, 1))
    assert made["context"].dtype == np.uint8
    for i, number in enumerate(made["target"][:, 0].tolist()):
        np.testing.assert_array_equal(made["context"][i], puzzle(images[i], table[number].tolist(), side, gap))
    assert made["traj_ts_ids"].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [1, 3]]


def test_classes_follow_from_seed_and_position_alone() -> None:
    data = penstock.from_arrays({"observations": frames(64, (1, 9, 9))}, lengths=[64])
    table = Jigsaw.permutations(10, seed=2)
    pairs = data.apply(TargetPairs("identity")).map(Jigsaw(table), seed=7)
    whole = pairs[:]["target"]
    for size, threads in [(1, 0), (7, 2), (64, 3)]:
        rows = np.concatenate([batch["target"] for batch in pairs.loader(batch_size=size, threads=threads)])
        np.testing.assert_array_equal(rows, whole)
    others = [data.apply(TargetPairs("identity")).map(Jigsaw(table), seed=seed)[:]["target"] for seed in range(5)]
    assert (
        len({rows.tobytes() for rows in [whole, *others, planned_samples(pairs).at(np.arange(64, 128))["target"]]}) == 7
    )


def test_all_classes_come_about_as_often() -> None:
    counts = np.zeros(4, np.int64)
    data = penstock.from_arrays({"observations": np.zeros((1, 1, 2, 2), np.uint8)}, lengths=[1])
    pairs = data.steps().map(Jigsaw(Jigsaw.permutations(4, 4), 4, 0, "observations"), seed=3)
    counts += np.bincount(planned_samples(pairs).at(np.arange(8000))["target"][:, 0], minlength=4)
    assert np.abs(counts - 2000).max() < 200  # five standard deviations


def test_a_table_from_a_file(tmp_path: Path) -> None:
    table = Jigsaw.permutations(6, seed=1)
    np.save(tmp_path / "orders.npy", table)
    from_file, from_array = Jigsaw(tmp_path / "orders.npy"), Jigsaw(table.tolist())
    assert repr(from_file) == repr(Jigsaw(str(tmp_path / "orders.npy"))) == repr(from_array)
    assert repr(from_file) != repr(Jigsaw(table[::-1]))
    assert repr(from_file) != repr(Jigsaw(table, gap=1))
    data = penstock.from_arrays({"observations": frames(4, (1, 9, 9))}, lengths=[4]).apply(TargetPairs("identity"))
    one, other, third = (data.map(j, seed=0) for j in (from_file, from_array, Jigsaw(table[::-1])))
    assert one.fingerprint == other.fingerprint != third.fingerprint


def test_no_pickle_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "orders.npy", np.array([[0, 1, 2, 3]], object), allow_pickle=True)
    with pytest.raises(FormatError, match=r"orders\.npy"):
        Jigsaw(tmp_path / "orders.npy", n_tiles=4)


@pytest.mark.parametrize("n_tiles", [4, 9, 16])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_orders_differ_as_far_as_they_can(n_tiles: int, seed: int) -> None:
    table = Jigsaw.permutations(n_tiles, n_tiles, seed)
    assert np.array_equal(np.sort(table, axis=1), np.tile(np.arange(n_tiles), (n_tiles, 1)))
    distance = (table[:, None] != table[None]).sum(axis=-1)[~np.eye(n_tiles, dtype=bool)]
    assert distance.min() == n_tiles if n_tiles == 4 else distance.min() >= n_tiles - 3
    assert np.array_equal(table, Jigsaw.permutations(n_tiles, n_tiles, seed))
    assert np.array_equal(table[:3], Jigsaw.permutations(3, n_tiles, seed))
    assert not np.array_equal(table, Jigsaw.permutations(n_tiles, n_tiles, seed + 3))


def test_the_next_order_is_a_best_one() -> None:
    table = Jigsaw.permutations(24, n_tiles=4, seed=5).astype(int)
    every = np.array(sorted(map(tuple, table.tolist())))
    assert len(np.unique(every, axis=0)) == 24  # all there are
    for count in range(1, 24):
        nearest = (every[:, None] != table[None, :count]).sum(axis=-1).min(axis=1)
        assert (table[count] != table[:count]).sum(axis=-1).min() == nearest.max()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (([[0, 1, 2]], 3), PlanError, "square of at least 4, got 3"),
        (([[0]], 1), PlanError, "square of at least 4, got 1"),
        (([[0, 1, 2, 3]], 4, -1), PlanError, "gap of 0 pixels or more, got -1"),
        (([[0, 1, 2, 3]],), FormatError, r"orders of 9 tiles, got int64\[1, 4\]; set n_tiles"),
        (([[0, 1, 2, 2]], 4), FormatError, r"each of 0 to 3 once, got \[0, 1, 2, 2\] - at row 0"),
        (([[1, 2, 3, 4]], 4), FormatError, r"got \[1, 2, 3, 4\]; subtract 1 from all"),
        (([[0.0, 1.0, 2.0, 3.0]], 4), FormatError, r"of integers, got float64\[1, 4\]"),
        (([], 4), FormatError, r"orders \[P, 4\] of integers"),
    ],
)
def test_impossible_tables(arguments: tuple[Any, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Jigsaw(*arguments)


@pytest.mark.parametrize(("count", "n_tiles"), [(25, 4), (0, 4), (1, 1), (1, 300)])
def test_more_orders_than_there_are(count: int, n_tiles: int) -> None:
    with pytest.raises(PlanError, match=r"expected 1 to \d+ orders of 2 to 256 tiles"):
        Jigsaw.permutations(count, n_tiles)


@pytest.mark.parametrize("shape", [(1, 6, 6), (9, 9), (1, 9, 6)])
def test_images_that_cannot_be_cut(shape: tuple[int, ...]) -> None:
    cut = Jigsaw(Jigsaw.permutations(2))
    with pytest.raises(SpecError, match=r"images \[n, C, H, W\] of more than 6 pixels a side, got \[2, "):
        cut(Columns({"context": frames(2, shape)}), np.zeros(2, np.uint64))
