"""`FlattenObservations`: observations of a composite space as one vector, as Gymnasium flattens them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns, under
from penstock.core.narrowing import is_array
from penstock.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from penstock.errors import SpecError


@dataclass(frozen=True)
class FlattenObservations:
    """Function for `MapDataset.map` that makes one vector of the observations of each step.

    Values, order and dtype are as in `gymnasium.spaces.utils.flatten`: keys in the order of the space, arrays in C
    order, `Discrete` and `MultiDiscrete` values as one-hot vectors, and the common dtype of all parts. Values outside
    of a discrete space, such as padding, become zeros. Next observations are flattened too.

    Args:
        space: Space of the observations, such as `dataset.spec.observation_space`.
        column: Column of the observations, which may be a prefix. The default is `"observations"`.

    Raises:
        SpecError: The space is None, or has a `Text`. When called: the columns are not the columns of the space.

    Example:
        >>> import numpy as np, penstock
        >>> arm = penstock.spaces.Box(np.zeros(2), np.ones(2), np.dtype("f4"))
        >>> space = penstock.spaces.Dict({"arm": arm, "mode": penstock.spaces.Discrete(3)})
        >>> columns = {"observations": {"arm": np.full((4, 2), 0.5, "f4"), "mode": np.array([2, 0, 1, 1])}}
        >>> steps = penstock.from_arrays(columns, lengths=[3]).steps()
        >>> steps.map(FlattenObservations(space))[:1]["observations"].tolist()
        [[0.5, 0.5, 0.0, 0.0, 1.0]]
    """

    space: Space | None
    column: str = "observations"

    def __post_init__(self) -> None:
        for path, leaf in self._known_space().leaves():
            if not isinstance(leaf, Box | Discrete | MultiBinary | MultiDiscrete):
                raise SpecError(f"expected spaces of numbers to flatten, got {leaf} at {path!r}; select other columns")

    def __call__(self, columns: Columns) -> Columns:
        """Return the columns with one vector for each step in place of the observations.

        Args:
            columns: Columns with any number of leading axes.
        """
        space = self._known_space()
        roots = [root for root in (self.column, f"next_{self.column}") if root in columns]
        if self.column not in roots:
            raise SpecError(f"expected a column {self.column!r} to flatten, got {list(columns)}")
        for root in roots:
            wanted = {f"{root}/{path}" if path else root for path, _ in space.leaves()}
            paths = [path for path in columns.flat if under(root, path)]
            if wanted != set(paths):
                raise SpecError(f"expected the columns {sorted(wanted)} of the space, got {paths}; give another space")
        flat: dict[str, Any] = {}
        for path, array in columns.flat.items():
            root = next((root for root in roots if under(root, path)), None)
            if root is None:
                flat[path] = array
            elif root not in flat:
                flat[root] = _flattened(space, columns.flat, root)
        return Columns.of_flat(flat, columns.n)

    def _known_space(self) -> Space:
        if self.space is None:
            raise SpecError(f"expected the space of {self.column}, got None; give one of penstock.spaces")
        return self.space


def _flattened(space: Space, columns: Mapping[str, Any], path: str) -> AnyArray:
    if isinstance(space, Dict):
        return np.concatenate([_flattened(part, columns, f"{path}/{key}") for key, part in space.spaces.items()], -1)
    if isinstance(space, Tuple):
        return np.concatenate([_flattened(part, columns, f"{path}/{i}") for i, part in enumerate(space.spaces)], -1)
    array = columns.get(path)
    if not is_array(array):
        raise SpecError(f"expected rows of one shape at {path!r} for {space}, got rows of different lengths")
    match space:
        case Discrete(n=n, start=start, dtype=dtype):
            return _one_hot(array, start, n, dtype)
        case MultiDiscrete(nvec=nvec, start=start, dtype=dtype):
            cells = _rows(array, nvec.shape)
            ranges = zip(np.asarray(start).ravel().tolist(), nvec.ravel().tolist(), strict=True)
            return np.concatenate([_one_hot(cells[..., i], *each, dtype) for i, each in enumerate(ranges)], -1)
        case Box() | MultiBinary():
            return _rows(array, space.shape)
        case _:
            raise SpecError(f"expected a space of numbers at {path!r}, got {space}")


def _one_hot(values: AnyArray, start: int, n: int, dtype: np.dtype[Any]) -> AnyArray:
    return (values[..., None] == np.arange(start, start + n)).astype(dtype)


def _rows(array: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """Return an array with one axis in place of the axes of a value."""
    leading = array.shape[: array.ndim - len(shape)]
    if array.shape[len(leading) :] != shape:
        raise SpecError(f"expected values of shape {shape}, got an array of {array.shape}")
    return array.reshape(*leading, math.prod(shape))
