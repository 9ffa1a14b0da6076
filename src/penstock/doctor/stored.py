"""Comparison of statistics that a dataset stores with its values.

Sums are added block by block in the order of the blocks, so the result does not depend on threads. Means are compared
within `MEAN_SHARE` of the standard deviation, because writers sum in float32; smallest and largest values within the
rounding of float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.narrowing import is_mapping
from penstock.core.spec import Spec, is_camera
from penstock.data.loaded_episodes import flattened
from penstock.doctor.block import EpisodeBlock
from penstock.doctor.rows import spaces_of
from penstock.formats.base.findings import Finding

ROUNDING = 2.0**-20
MEAN_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """Count, sum and extremes of a column, by element of a row."""

    count: int
    total: FloatArray
    low: FloatArray
    high: FloatArray

    def __or__(self, other: ColumnSums) -> ColumnSums:
        return ColumnSums(
            self.count + other.count,
            self.total + other.total,
            np.fmin(self.low, other.low),
            np.fmax(self.high, other.high),
        )


def column_sums(block: EpisodeBlock, stored: Mapping[str, Any]) -> dict[str, ColumnSums]:
    """Return the sums of the columns that have stored statistics; pictures are left out, which are mostly sampled."""
    sums: dict[str, ColumnSums] = {}
    for path, field, rows in block.arrays():
        if path in stored and rows.dtype.kind in "biuf" and not is_camera(field) and len(rows):
            values = flattened(rows).astype(np.float64)
            with np.errstate(invalid="ignore"):
                sums[path] = ColumnSums(len(rows), values.sum(axis=0), values.min(axis=0), values.max(axis=0))
    return sums


def stored_statistics(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry `statistics` of the metadata: by column a mapping with `min`, `max`, `mean` and others."""
    stored = metadata.get("statistics")
    return stored if is_mapping(stored) else {}


def wrong_statistics(stored: Mapping[str, Any], sums: Mapping[str, ColumnSums]) -> Iterator[Finding]:
    """Yield a finding for each column whose stored count, extremes or mean differ from the data."""
    for path, known in sums.items():
        entry: Any = stored[path]
        if not is_mapping(entry):
            continue
        with np.errstate(invalid="ignore"):
            spread = known.high - known.low  # NaN of infinite values, whose figures are not compared
        actual = {
            "count": (np.array([float(known.count)]), np.zeros(1)),
            "min": (known.low, np.abs(known.low) * ROUNDING),
            "max": (known.high, np.abs(known.high) * ROUNDING),
            "mean": (known.total / known.count, spread * MEAN_SHARE + np.abs(known.high) * ROUNDING),
        }
        for name, (expected, slack) in actual.items():
            try:
                stated = np.asarray(entry[name], np.float64).reshape(-1)
            except (KeyError, TypeError, ValueError):
                continue  # not stored, or by groups
            if stated.shape != expected.shape or not np.isfinite(expected).all():
                continue
            wrong = np.flatnonzero(~(np.abs(stated - expected) <= slack))
            if len(wrong):
                i = int(wrong[0])
                message = f"{path}: the stored {name} is {stated[i]}, of the data {expected[i]}"
                yield Finding("wrong-statistics", f"metadata/statistics/{path}", message, path)
                break


def narrow_dtypes(spec: Spec) -> Iterator[Finding]:
    """Yield a finding for each column that is stored with fewer bits than its space has."""
    for path, space in spaces_of(spec).items():
        wanted: Any = getattr(space, "dtype", None)
        dtype = spec[path].dtype
        if wanted is not None and np.dtype(wanted).kind == dtype.kind and dtype.itemsize < np.dtype(wanted).itemsize:
            message = f"{path} is stored as {dtype}, its space has {np.dtype(wanted)}"
            yield Finding("narrow-dtype", f"spec/{path}", message, path)
