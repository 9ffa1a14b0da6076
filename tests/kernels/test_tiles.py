from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.ragged import offsets_of
from penstock.kernels import gather, jit
from penstock.kernels.tiles import TileMap

Arrays = list[np.ndarray[Any, Any]]


def cut(arrays: Arrays, shapes: list[tuple[int, ...]], missing: float, seed: int) -> tuple[TileMap, Any]:
    """Arrays `[rows, ..., itemsize]` in tiles in two buffers, and their rows as bytes, with missing tiles filled."""
    rng = np.random.default_rng(seed)
    itemsize = arrays[0].shape[-1]
    fill = bytes(range(100, 100 + itemsize))
    parts: list[Arrays] = [[np.zeros(3, np.uint8)], [np.zeros(5, np.uint8)]]
    buffer, offset, counts = [], [], []
    for array, shape in zip(arrays, shapes, strict=True):
        grid = [-(-n // c) for n, c in zip(array.shape[:-1], shape, strict=True)]
        for corner in np.ndindex(*grid):
            box = tuple(slice(g * c, (g + 1) * c) for g, c in zip(corner, shape, strict=True))
            which = int(rng.integers(0, 2))
            buffer.append(which)
            if rng.random() < missing:
                array[box] = np.frombuffer(fill, np.uint8)
                offset.append(-1)
                continue
            tile = rng.integers(0, 256, (*shape, itemsize), np.uint8)  # what lies over the edge is anything
            tile[tuple(slice(n) for n in array[box].shape)] = array[box]
            offset.append(sum(p.size for p in parts[which]))
            parts[which].append(tile.reshape(-1))
        counts.append(prod(grid))
    first = offsets_of([len(a) for a in arrays])
    tiles = TileMap.build(
        [np.concatenate(p) for p in parts], arrays[0].shape[1:-1], itemsize, first, np.array(shapes),
        offsets_of(counts), np.array(buffer, np.int64), np.array(offset, np.int64), fill,
    )  # fmt: skip
    return tiles, np.concatenate([a.reshape(len(a), prod(a.shape[1:])) for a in arrays])


def gathered(tiles: TileMap, start: Any, length: Any) -> Any:
    at = offsets_of(length)
    out = np.full((at[-1], tiles.row_bytes), 7, np.uint8)
    tiles.gather(start, length, at[:-1], out)
    return out


def check(tiles: TileMap, dense: Any, seed: int) -> None:
    start = np.random.default_rng(seed).integers(0, tiles.n + 1, 5)
    length = np.random.default_rng(seed + 1).integers(0, tiles.n - start + 1)
    want = np.concatenate([dense[s : s + n] for s, n in zip(start, length, strict=True)])
    np.testing.assert_array_equal(gathered(tiles, start, length), want)
    slow = np.full((len(want), *tiles.row_shape, tiles.itemsize), 7, np.uint8)
    tiles._gather_any_axes(start, length, offsets_of(length)[:-1], slow)
    np.testing.assert_array_equal(slow.reshape(want.shape), want)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_tiles_of_any_shape(data: Any) -> None:
    axes = data.draw(st.lists(st.integers(1, 6), max_size=5))
    itemsize = data.draw(st.sampled_from([1, 2, 4, 8, 12]))
    rows = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    shapes = [(data.draw(st.integers(1, 4)), *(data.draw(st.integers(1, n + 1)) for n in axes)) for _ in rows]
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(0, 256, (n, *axes, itemsize), np.uint8) for n in rows]
    missing = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    check(*cut(arrays, shapes, missing, seed), seed)


@pytest.mark.parametrize("channels", [2, 3, 4, 5])
@pytest.mark.parametrize("width", [1, 7, 15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_images_in_byte_tiles(channels: int, width: int, missing: float) -> None:
    rng = np.random.default_rng(width)
    image = rng.integers(0, 256, (5, 6, 2 * width + 3, channels, 1), np.uint8)
    check(*cut([image], [(2, 4, width, 1)], missing, width), width)


def test_more_split_axes_than_the_compiled_gather_knows() -> None:
    array = np.random.default_rng(0).integers(0, 256, (3, 3, 3, 3, 3, 3, 1), np.uint8)
    check(*cut([array], [(2,) * 6], 0.0, 0), 0)


def build(**changes: Any) -> TileMap:
    arguments: dict[str, Any] = {
        "buffers": [np.zeros(24, np.uint8)],
        "row_shape": (3,),
        "itemsize": 2,
        "first": np.array([0, 3]),
        "tile_shape": np.array([[2, 3]]),
        "tile_first": np.array([0, 2]),
        "tile_buffer": np.array([0, 0]),
        "tile_offset": np.array([0, 12]),
        "fill": b"\0\0",
    }
    return TileMap.build(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile_offset": np.array([0, 13])}, "tile 1 to end within its buffer, got 12 bytes from byte 13"),
        ({"tile_offset": np.array([0, -2])}, "tile 1 to end within"),
        ({"tile_offset": np.array([0, 2**62])}, "tile 1 to end within"),
        ({"tile_buffer": np.array([0, 1])}, "buffer numbers within 0:1"),
        ({"tile_buffer": np.array([-1, 0])}, "buffer numbers within 0:1"),
        ({"tile_offset": np.array([0])}, "expected 2 tiles"),
        ({"first": np.array([0, 5])}, "run 0 of 5 rows to have a grid of 3 by 1 tiles, got 2"),
        ({"first": np.array([0, -1])}, "run 0 of -1 rows"),
        ({"row_shape": (4,)}, "grid of 2 by 2 tiles"),
        ({"row_shape": (-1,)}, "at least one element"),
        ({"tile_shape": np.array([[2, 0]])}, "at least one element"),
        ({"tile_shape": np.array([[2, 2**62]]), "tile_offset": np.array([0, 0])}, "tile 0 to end within"),
        ({"fill": b"\0"}, "fill of 2 bytes"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(IndexError, match=message):
        build(**changes)


def test_shapes_of_any_size_cost_nothing_where_nothing_is_stored() -> None:
    huge = build(row_shape=(2**40, 3), tile_shape=np.array([[2, 2**40, 3]]), tile_offset=np.array([-1, -1]))
    assert huge.row_bytes == 2**40 * 6
    with pytest.raises(IndexError, match="whole rows"):
        huge.gather(np.array([0]), np.array([1]), np.array([0]), np.zeros(6, np.uint8))


def test_bad_spans_copy_nothing() -> None:
    out = np.ones((3, 6), np.uint8)
    for start, length, at in [(3, 1, 0), (-1, 1, 0), (0, -1, 0), (0, 3, 1), (2**62, 2**62, 0)]:
        with pytest.raises(IndexError, match="within 0:3"):
            build().gather(np.array([0, start]), np.array([1, length]), np.array([0, at]), out)
    assert out.all()


def test_empty_spans_look_at_no_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("an empty span looks for its tiles")

    for name in ("_place_in_tiles", "_copy_rows"):
        monkeypatch.setattr(gather, name, refuse)
    m = build(first=np.zeros(2, np.int64), tile_first=np.zeros(2, np.int64), tile_buffer=[], tile_offset=[])
    nothing, out = np.zeros(3, np.int64), np.zeros(0, np.uint8)
    loop: Any = jit.KERNELS["penstock.kernels.gather._gather_tiles"]
    done = loop.function(
        m.first, m.guide, m.shift, m.tile_shape, m.tile_first, m.address, m.layout, m.axes, m.fill,
        nothing, nothing, nothing, m.row_bytes, np.empty((4, 3), np.int64), np.ones((2, len(m.axes)), np.int64),
        np.ones(len(m.axes), np.bool_), out,
    )  # fmt: skip
    assert done == -1


def test_rows_without_bytes() -> None:
    empty = build(
        row_shape=(0,),
        tile_first=np.array([0, 0]),
        tile_buffer=np.zeros(0, np.int64),
        tile_offset=np.zeros(0, np.int64),
    )
    empty.gather(np.array([0]), np.array([2]), np.array([0]), np.zeros((2, 0), np.uint8))
