"""Output that the commands share: JSON for machines, bars and sizes for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Annotated, Any, cast

import numpy as np
import numpy.typing as npt
import typer

from penstock.core.narrowing import is_array, is_mapping, is_scalar
from penstock.data.statistics import equal_bins

BARS = "▁▂▃▄▅▆▇█"

Json = Annotated[bool, typer.Option("--json", help="Print JSON only, for machines.")]


def print_json(data: object) -> None:
    """Print `data` as JSON on standard output. `plain` converts values that JSON does not have."""
    typer.echo(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Convert `value` to JSON types: NumPy to Python, infinity and NaN to null, unknown objects to text."""
    if is_array(value) or is_scalar(value):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if is_mapping(value):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [plain(inner) for inner in cast("Iterable[Any]", value)]
    return str(value)


def histogram_bars(values: npt.ArrayLike, bins: int = 20) -> str:
    """Draw how many of `values` are in each of `bins` equal ranges, a space for none; NaN and infinity are left out."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) == 0:
        return ""
    counts, _ = equal_bins(numbers, bins, float(numbers.min()), float(numbers.max()))
    tallest = max(int(counts.max()), 1)
    return "".join(BARS[-(-int(n) * len(BARS) // tallest) - 1] if n else " " for n in counts)


def size(n: float) -> str:
    """Format bytes with a unit that leaves at most four digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def spread(values: npt.ArrayLike) -> dict[str, float] | None:
    """Return the least, mean and greatest of numbers, infinite where the sum overflows; None if there are none."""
    numbers = np.asarray(values, np.float64)
    if len(numbers) == 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return {"min": float(numbers.min()), "mean": float(numbers.mean()), "max": float(numbers.max())}
