"""`normalize`: scale columns by their statistics, and back, as a function of batches of any framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, FloatArray, read_only
from penstock.core.columns import Columns
from penstock.core.recycler import Recycler
from penstock.data.map_function import OverwritingFunction
from penstock.data.statistics import ColumnStatistics, Statistics
from penstock.errors import ArgumentError, PlanError, SpecError
from penstock.kernels.scaling import overwrite_rows, scale_rows


def replace_columns(columns: Any, paths: Iterable[str], fn: Callable[[str, Any], Any], purpose: str) -> Any:
    """Return a batch with some of its columns changed. The batch and its other columns stay as they are."""
    if isinstance(columns, Columns):
        changed: dict[str, Any] = {}
        for path in paths:
            if path not in columns.flat:
                raise _missing(path, purpose, columns.flat)
            changed[path] = fn(path, columns.flat[path])
        return Columns.of_flat({**columns.flat, **changed}, columns.n)
    copied = dict(columns)
    for path in paths:
        _replace(copied, path, path, fn, purpose)
    return copied


def _replace(columns: dict[str, Any], key: str, path: str, fn: Callable[[str, Any], Any], purpose: str) -> None:
    """Replace a column of a dict, which is this call's own copy, or of a dict within it, which is copied."""
    if key in columns:
        columns[key] = fn(path, columns[key])
        return
    head, _, rest = key.partition("/")
    if not rest or not isinstance(columns.get(head), Mapping):
        raise _missing(path, purpose, columns)
    columns[head] = dict(columns[head])
    _replace(columns[head], rest, path, fn, purpose)


def _missing(path: str, purpose: str, columns: Iterable[str]) -> SpecError:
    return SpecError(f"expected a column {path!r} to {purpose}, got {list(columns)}")


Mode = Literal["standard", "min_max", "quantile"]
MOST_FIGURES = 64  # shapes of samples whose figures are kept
_RECYCLER = Recycler(1 << 28)  # memory of normalized batches, which is used again when a batch is gone
FLOATS = (np.dtype(np.float32).str, np.dtype(np.float64).str)


@dataclass(frozen=True, eq=False)
class Normalize(OverwritingFunction):
    """Function that maps columns `x` to `(x - center) / width`, or back.

    It takes `Columns` and (nested) dicts of arrays of NumPy, PyTorch or JAX, and returns the same, with the other
    columns as they are. Whole numbers become float32; floats keep their dtype. Padding is scaled like other rows.

    Args:
        center: Value that becomes 0, by output. Its shape broadcasts against a row.
        width: Distance from it that becomes 1, by output.
        inverted: Whether to map back: `y * width + center`. The default is False.

    Example:
        >>> scale = Normalize({"x": np.array([1.0, 5.0])}, {"x": np.array([1.0, 2.0])})
        >>> scale({"x": np.array([[2.0, 9.0]])})["x"].tolist()
        [[1.0, 2.0]]
        >>> scale.inverse({"x": np.array([[1.0, 2.0]])})["x"].tolist()
        [[2.0, 9.0]]
    """

    center: Mapping[str, FloatArray]
    width: Mapping[str, FloatArray]
    inverted: bool = False
    _figures: dict[tuple[str, str, tuple[int, ...]], tuple[AnyArray, AnyArray]] = field(
        default_factory=dict[tuple[str, str, tuple[int, ...]], tuple[AnyArray, AnyArray]], init=False, repr=False
    )
    """Center and width of the elements of a sample, by path, dtype and shape, as the kernel reads them."""

    def __reduce__(self) -> tuple[type[Normalize], tuple[Mapping[str, FloatArray], Mapping[str, FloatArray], bool]]:
        return Normalize, (self.center, self.width, self.inverted)

    @property
    def inverse(self) -> Normalize:
        """The function that undoes this one, up to rounding."""
        return replace(self, inverted=not self.inverted)

    def __call__(self, columns: Any) -> Any:
        """Scale the columns of a batch.

        Args:
            columns: `Columns`, or a mapping. Columns have any leading axes before the shape of a row.

        Returns:
            `Columns`, or dicts, with new arrays for the scaled columns.

        Raises:
            SpecError: A column to scale is missing.
        """
        return replace_columns(columns, self.center, self._scaled, "normalize")

    @override
    def overwrite(self, columns: Columns) -> Columns:
        """Scale the columns of a batch in their own memory, where the kernel can; otherwise as a call does.

        Args:
            columns: Columns, to whose arrays nothing else refers.

        Raises:
            SpecError: A column to scale is missing.
        """
        return replace_columns(columns, self.center, self._overwritten, "normalize")

    def _overwritten(self, path: str, x: Any) -> Any:
        figures = self._known(path, x)
        if figures is None or not x.flags.c_contiguous or not x.flags.writeable or not len(x):
            return self._scaled(path, x)
        overwrite_rows(x.reshape(len(x), -1), *figures, self.inverted)
        return x

    def _known(self, path: str, x: Any) -> tuple[AnyArray, AnyArray] | None:
        return self._figures.get((path, x.dtype.str, x.shape[1:])) if type(x) is np.ndarray else None

    def _scaled(self, path: str, x: Any) -> Any:
        if (figures := self._known(path, x)) is not None:
            return _by_kernel(x, *figures, self.inverted)
        if type(x).__module__.partition(".")[0] == "torch":
            if not x.is_floating_point():
                wide = x.element_size() > 2 and x.device.type != "mps"
                return self._scaled(path, x.double()).float() if wide else self._scaled(path, x.float())
            center, width = (x.new_tensor(each[path]) for each in (self.center, self.width))
        else:
            if np.dtype(x.dtype).kind in "biu":
                # float32 would round numbers above 2^24, such as times, before their center is subtracted.
                if isinstance(x, np.ndarray) and cast("AnyArray", x).itemsize > 2:
                    return self._scaled(path, x.astype(np.float64)).astype(np.float32)
                return self._scaled(path, x.astype(np.float32))
            center, width = (each[path].astype(x.dtype) for each in (self.center, self.width))
            if _in_kernel(x) and x.ndim > max(center.ndim, 1) and x.size:
                # A row of the kernel is a sample: steps of windows and pixels of a channel have the same figures.
                center, width = (read_only(np.broadcast_to(each, x.shape[1:]).reshape(-1)) for each in (center, width))
                if len(self._figures) >= MOST_FIGURES:
                    self._figures.clear()
                self._figures[path, x.dtype.str, x.shape[1:]] = center, width
                return _by_kernel(x, center, width, self.inverted)
        return x * width + center if self.inverted else (x - center) / width


def normalize(
    statistics: Statistics,
    columns: Sequence[str] | Mapping[str, str],
    mode: Mode = "standard",
    *,
    quantiles: tuple[float, float] = (0.01, 0.99),
    min_width: float = 0.0,
) -> Normalize:
    """Return a function for `MapDataset.map` that normalizes columns by their statistics.

    Elements that never change have a width of 1, so that they become 0. Elements that change by rounding alone, such as
    0.1 + 0.2 and 0.3, become numbers of about 1 unless `min_width` is above their width.

    Args:
        statistics: Statistics of the columns.
        columns: Columns to normalize. A mapping has the column of the statistics for each output, where their names
            differ, such as `{"observations": "observations", "next_observations": "observations"}`.
        mode: `"standard"` maps the mean to 0 and one standard deviation to 1. `"min_max"` maps the least value to -1
            and the greatest to 1. `"quantile"` maps two quantiles to -1 and 1, which outliers do not move. The default
            is `"standard"`.
        quantiles: The two quantiles of the mode `"quantile"`. The default is `(0.01, 0.99)`.
        min_width: Least distance that becomes 1, in the units of the columns: a deviation, or half of a range. The
            default is 0: none.

    Returns:
        A function of batches, which pickles and prints its columns.

    Raises:
        ArgumentError: `columns` is one string.
        KeyError: A column has no statistics.
        PlanError: `mode` is unknown, the quantiles are not increasing within 0 and 1, `min_width` is negative or not
            finite, or a column has no finite value.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"x": [0.0, 2.0, 4.0]}, lengths=[3])
        >>> scale = penstock.normalize(penstock.statistics(data), ["x"], "min_max")
        >>> data.steps().map(scale)[:]["x"].tolist()
        [-1.0, 0.0, 1.0]
    """
    if isinstance(columns, str):
        raise ArgumentError(f"expected a list of columns to normalize, got {columns!r}; write [{columns!r}]")
    if mode not in ("standard", "min_max", "quantile"):
        raise PlanError(f"expected mode to be 'standard', 'min_max' or 'quantile', got {mode!r}")
    low, high = quantiles
    if not 0 <= low < high <= 1:
        raise PlanError(f"expected increasing quantiles within 0 and 1, got {quantiles}")
    if not 0 <= min_width < np.inf:
        raise PlanError(f"expected min_width as a number of at least 0, got {min_width}")
    named = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
    center: dict[str, FloatArray] = {}
    width: dict[str, FloatArray] = {}
    for output, path in named.items():
        column = statistics[path]
        if not column.count.all():
            raise PlanError(f"expected finite values of {path} to normalize by, got none for some elements")
        center[output], width[output] = _scale(column, mode, quantiles, min_width)
    return Normalize(center, width)


def _scale(
    column: ColumnStatistics, mode: Mode, quantiles: tuple[float, float], min_width: float
) -> tuple[FloatArray, AnyArray]:
    """The value that becomes 0, and the distance from it that becomes 1."""
    if mode == "standard":
        center, width = column.mean, column.std
    else:
        ends = (column.min, column.max) if mode == "min_max" else column.quantile(quantiles)
        center, width = ends[0] / 2 + ends[1] / 2, ends[1] / 2 - ends[0] / 2
    return center, np.where(width > 0, np.maximum(width, min_width), 1.0)


def _by_kernel(x: AnyArray, center: AnyArray, width: AnyArray, inverted: bool) -> AnyArray:
    out = _RECYCLER.empty(x.shape, x.dtype)
    if len(x):
        scale_rows(x.reshape(len(x), -1), center, width, inverted, out.reshape(len(x), -1))
    return out


def _in_kernel(x: Any) -> bool:
    """Whether the kernel takes the array: NumPy's, float32 or float64 in the byte order of the machine."""
    return isinstance(x, np.ndarray) and cast("AnyArray", x).dtype.str in FLOATS
