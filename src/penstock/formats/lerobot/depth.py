"""Depth maps: their unit, and the 12-bit codes that stand for them in video.

A code is a step between `depth_min` and `depth_max`, of the depth or of the logarithm of depth plus `shift`. As in
LeRobot since 0.6, depth in metres is float32, and depth in millimetres uint16. Codes become depth by a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_dict
from penstock.errors import DataError

Unit = Literal["m", "mm"]
UNITS: tuple[Unit, ...] = get_args(Unit)
CODES = 1 << 12
MM = 1000.0  # of a metre
DEPTH = "depth"  # entry of the metadata of a dataset: what `to_json` of each depth map returns, by path of the column
_NUMBERS = ("depth_min", "depth_max", "shift")
CODE_NAMES = (*_NUMBERS, "use_log")


@dataclass(frozen=True)
class Depth:
    """Unit and codes of a depth map."""

    unit: Unit | None = None
    depth_min: float = 0.01
    depth_max: float = 10.0
    shift: float = 3.5
    use_log: bool = True

    def __post_init__(self) -> None:
        if self.unit not in (None, *UNITS):
            raise ValueError(f"expected a unit among {list(UNITS)} of a depth map, got {self.unit!r}")
        numbers = [getattr(self, name) for name in _NUMBERS]
        if any(isinstance(n, bool) or not isinstance(n, (int, float)) or not math.isfinite(n) for n in numbers):
            raise ValueError(f"expected finite numbers {', '.join(_NUMBERS)} of a depth map, got {numbers}")
        if self.depth_min >= self.depth_max or (self.use_log and self.depth_min + self.shift <= 0):
            raise ValueError(f"expected depth_min below depth_max, and above -shift with use_log, got {self}")

    @classmethod
    def of(cls, feature: Mapping[str, Any]) -> Depth | None:
        """Return the depth that a feature of `meta/info.json` describes, or None for one without depth."""
        entries = [entry if is_dict(entry := feature.get(name)) else {} for name in ("info", "video_info")]
        info = entries[0]
        if not any(entry.get(name) for entry in entries for name in ("is_depth_map", "video.is_depth_map")):
            return None
        return cls._read(info.get("depth_unit"), {name: info.get(f"video.{name}") for name in CODE_NAMES})

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Depth:
        """Return the depth of an entry that `to_json` made."""
        return cls._read(entry.get("unit"), {name: entry.get(name) for name in CODE_NAMES})

    @classmethod
    def _read(cls, unit: Any, codes: Mapping[str, Any]) -> Depth:
        """Return the depth of values that were read; None stands for the default."""
        return cls(unit, **{name: value for name, value in codes.items() if value is not None})

    @staticmethod
    def unit_of(dtype: np.dtype[Any]) -> Unit:
        """Return the unit of depth of a dtype: floats are metres, as in LeRobot."""
        return "m" if dtype.kind == "f" else "mm"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.unit == "m" else np.uint16)

    @cached_property
    def values(self) -> AnyArray:
        """`[4096]` depth of each code, in the unit and dtype of the column. Calculated in float32, as LeRobot does."""
        low, high = (self._place(metres) for metres in (self.depth_min, self.depth_max))
        values = np.arange(CODES, dtype=np.float32) * np.float32((high - low) / (CODES - 1)) + np.float32(low)
        if self.use_log:
            exact = np.exp(
                values.astype(np.float64)
            )  # rounded once: NumPy and PyTorch differ in the last bit of float32
            values = exact.astype(np.float32) - np.float32(self.shift)
        values = np.clip(values, np.float32(self.depth_min), np.float32(self.depth_max))
        if self.unit == "m":
            return values
        return np.clip(np.rint(values * np.float32(MM)), 0, np.iinfo(np.uint16).max).astype(np.uint16)

    def codes(self, depth: AnyArray) -> AnyArray:
        """Return the nearest code of each depth, uint16. Depth outside of the range has the first or last code."""
        scale = 1.0 if self.unit == "m" else MM
        values = depth.astype(np.float32)
        if np.isnan(values).any():
            raise DataError("expected depth that a video can hold, got NaN; store depth as images")
        low, high = (self._place(metres, scale) for metres in (self.depth_min, self.depth_max))
        if self.use_log:
            least = np.float32(self.depth_min * scale)
            values = np.log(np.maximum(values, least) + np.float32(self.shift * scale))
        share = (values - np.float32(low)) / np.float32(high - low)
        return np.clip(np.rint(share * np.float32(CODES - 1)), 0, CODES - 1).astype(np.uint16)

    def _place(self, metres: float, scale: float = 1.0) -> float:
        if not self.use_log:
            return metres * scale
        if scale == 1.0:
            return math.log(metres + self.shift)
        return math.log(float(np.float32(metres * scale) + np.float32(self.shift * scale)))

    def described(self, *, video: bool) -> dict[str, Any]:
        """Return the entry `info` of the feature."""
        codes = {f"video.{name}": getattr(self, name) for name in CODE_NAMES} if video else {}
        return {"is_depth_map": True, **({"depth_unit": self.unit} if self.unit else {}), **codes}

    def to_json(self, *, video: bool) -> dict[str, Any]:
        """Return the entry of a column in the metadata of a dataset."""
        return {"unit": self.unit, **({name: getattr(self, name) for name in CODE_NAMES} if video else {})}
