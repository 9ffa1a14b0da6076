"""`Jigsaw`: images as puzzles of permuted tiles, with the permutation as the class to predict."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import chain, permutations
from math import factorial, isqrt
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, ByteArray, IntArray, UInt64Array
from penstock.core.columns import Columns
from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_array
from penstock.errors import FormatError, PlanError, SpecError

LISTED = 9  # tiles of which all orders are candidates; of more tiles some are drawn
DRAWN = 1 << 17


@dataclass(frozen=True, eq=False)
class Jigsaw:
    """Jigsaw puzzles for `MapDataset.map`: permute the tiles of each image, and return the permutation as the class.

    An image `[C, H, W]` is cut into `s * s = n_tiles` cells of `H // s` by `W // s` pixels. Of each cell, the top left
    `h = H // s - gap` by `w = W // s - gap` pixels are kept, so that edges do not continue in the next tile. With
    `order = table[target]`, place `j` of the puzzle, row by row, has the tile of cell `order[j]`.

    The output has the other columns, `context` `[n, C, s * h, s * w]`, and `target` `[n, 1]` int64. Each pixel is
    copied twice. The class is drawn from seed and position. It is the same in any batch, thread and run, and changes
    every epoch.

    Args:
        table: `[P, n_tiles]` integers, each row a permutation counted from 0, or the path of such an `.npy` file.
            `Jigsaw.permutations` makes one.
        n_tiles: Number of tiles, a square of at least 4. The default is 9.
        gap: Pixels to leave out between tiles, 0 or more. The default is 2.
        column: Column with the images `[n, C, H, W]`. The default is `"context"`.

    Raises:
        PlanError: `n_tiles` is not a square, or `gap` is negative.
        FormatError: The table is not made of permutations.
        SpecError: When called, images have another shape or are too small.

    Example:
        >>> import numpy as np, penstock
        >>> images = penstock.from_arrays({"context": np.arange(32).reshape(2, 1, 4, 4)}, lengths=[2]).steps()
        >>> puzzles = images.map(Jigsaw([[3, 2, 1, 0], [0, 1, 2, 3]], n_tiles=4, gap=0), seed=1)
        >>> puzzles[:]["context"].shape, puzzles[:]["target"].shape
        ((2, 1, 4, 4), (2, 1))

        Called directly:

        >>> puzzle = Jigsaw([[3, 2, 1, 0]], n_tiles=4, gap=0)
        >>> made = puzzle(Columns({"context": np.arange(4).reshape(1, 1, 2, 2)}), np.zeros(1, np.uint64))
        >>> made["context"].tolist(), made["target"].tolist()
        ([[[[3, 2], [1, 0]]]], [[0]])

    Source: Noroozi and Favaro, "Unsupervised learning of visual representations by solving jigsaw puzzles" (2016).
    """

    table: npt.ArrayLike | str | PathLike[str]
    n_tiles: int = 9
    gap: int = 2
    column: str = "context"

    def __post_init__(self) -> None:
        side = isqrt(max(self.n_tiles, 0))
        if side * side != self.n_tiles or side < 2:
            raise PlanError(f"expected n_tiles to be a square of at least 4, got {self.n_tiles}")
        if self.gap < 0:
            raise PlanError(f"expected a gap of 0 pixels or more, got {self.gap}")
        path = self.table if isinstance(self.table, str | PathLike) else None
        table = _loaded(path) if path is not None else np.asarray(self.table)
        set_fields(self, table=_checked(table, self.n_tiles, path))

    def __repr__(self) -> str:
        orders = self._orders
        digest = hashlib.sha256(orders.tobytes()).hexdigest()[:16]
        summary = f"n={len(orders)}, sha256={digest!r}"
        return f"Jigsaw({summary}, n_tiles={self.n_tiles}, gap={self.gap}, column={self.column!r})"

    @property
    def _orders(self) -> IntArray:
        return np.asarray(self.table)

    def __call__(self, columns: Columns, keys: UInt64Array) -> Columns:
        """Return the columns with `context` and `target`.

        Args:
            columns: Columns with the images.
            keys: `[n]` uint64 random keys, which `map` passes if it has a seed.
        """
        target = ((keys >> np.uint64(32)) * np.uint64(len(self._orders)) >> np.uint64(32)).astype(np.int64)
        context = self._shuffled(np.asarray(columns[self.column]), self._orders[target])
        return columns.merged({"context": context, "target": target[:, None]})

    def _shuffled(self, images: AnyArray, order: IntArray) -> AnyArray:
        """`[n, C, s * h, s * w]`: the tile of cell `order[i, j]` at place `j` of image `i`."""
        side = isqrt(self.n_tiles)
        if images.ndim != 4 or min(images.shape[2:]) // side <= self.gap:
            raise SpecError(
                f"expected {self.column!r} as images [n, C, H, W] of more than {side * self.gap} pixels a side, "
                f"got {list(images.shape)}"
            )
        n, channels, height, width = images.shape
        cell_h, cell_w = height // side, width // side
        h, w = cell_h - self.gap, cell_w - self.gap
        cells = images[:, :, : side * cell_h, : side * cell_w].reshape(n, channels, side, cell_h, side, cell_w)
        tiles = cells[:, :, :, :h, :, :w].transpose(0, 2, 4, 1, 3, 5)  # [n, s, s, C, h, w], a view where it can be
        out = np.empty((n, channels, side, h, side, w), images.dtype)
        every = np.arange(n, dtype=np.int64)
        for place in range(self.n_tiles):
            out[:, :, place // side, :, place % side] = tiles[every, order[:, place] // side, order[:, place] % side]
        return out.reshape(n, channels, side * h, side * w)

    @staticmethod
    def permutations(count: int, n_tiles: int = 9, seed: int = 0) -> ByteArray:
        """Draw permutations that differ in many places.

        The first is drawn at random. Each next one is the candidate that differs most from the most similar chosen one.
        Ties go to the candidate that differs most from all chosen ones. Candidates are all permutations of up to 9
        tiles, or 131,072 random permutations of more tiles.

        Args:
            count: Number of permutations, at least 1 and at most the number of candidates.
            n_tiles: Number of tiles, 2 to 256. The default is 9.
            seed: Seed of the draws. The default is 0.

        Returns:
            `[count, n_tiles]` uint8. Cost: some 5 ms for each permutation.

        Raises:
            PlanError: A number is out of range.

        Example:
            >>> Jigsaw.permutations(3, n_tiles=4, seed=1).shape
            (3, 4)
        """
        rng = np.random.default_rng(seed)
        most = factorial(n_tiles) if n_tiles <= LISTED else DRAWN
        if not 1 <= count <= most or not 2 <= n_tiles <= 256:
            raise PlanError(f"expected 1 to {most} orders of 2 to 256 tiles, got {count} of {n_tiles}")
        candidates = _candidates(n_tiles, rng)
        nearest = np.full(candidates.shape[1], n_tiles, np.uint8)
        total = np.zeros(int(candidates.shape[1]), np.int64)
        chosen = [int(rng.integers(int(candidates.shape[1])))]
        while len(chosen) < count:
            distance = np.zeros_like(nearest)
            for place in candidates:
                distance += place != place[chosen[-1]]
            np.minimum(nearest, distance, out=nearest)
            total += distance
            best = np.flatnonzero(nearest == nearest.max())
            chosen.append(int(best[total[best].argmax()]))
        return np.ascontiguousarray(candidates[:, chosen].T)


def _candidates(n_tiles: int, rng: np.random.Generator) -> ByteArray:
    """`[n_tiles, M]` distinct orders, a column each."""
    if n_tiles <= LISTED:
        orders = np.fromiter(chain.from_iterable(permutations(range(n_tiles))), np.uint8)
        return np.ascontiguousarray(orders.reshape(-1, n_tiles).T)
    drawn = rng.permuted(np.tile(np.arange(n_tiles, dtype=np.uint8), (DRAWN, 1)), axis=1)
    return np.ascontiguousarray(drawn.T)


def _loaded(path: str | PathLike[str]) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise FormatError(
            f"expected an array of integers as .npy, got what cannot be read: {error}", path=path
        ) from None


def _checked(table: Any, n_tiles: int, path: str | PathLike[str] | None) -> IntArray:
    """`[P, n_tiles]` int64, every row an order of `0 : n_tiles`."""
    if not is_array(table) or table.dtype.kind not in "iu" or table.ndim != 2 or not table.size:
        raise FormatError(f"expected orders [P, {n_tiles}] of integers, got {_shape_text(table)}", path=path)
    if table.shape[1] != n_tiles:
        raise FormatError(f"expected orders of {n_tiles} tiles, got {_shape_text(table)}; set n_tiles", path=path)
    orders = np.array(table, np.int64)
    wrong = np.flatnonzero(np.any(np.sort(orders, axis=1) != np.arange(n_tiles), axis=1))
    if len(wrong):
        hint = "; subtract 1 from all" if orders.min() == 1 and orders.max() == n_tiles else ""
        problem = f"{orders[wrong[0]].tolist()}{hint}"
        raise FormatError(
            f"expected each of 0 to {n_tiles - 1} once, got {problem}", path=path, where=f"row {wrong[0]}"
        )
    return orders


def _shape_text(table: Any) -> str:
    return f"{table.dtype}{list(table.shape)}" if is_array(table) else type(table).__name__
