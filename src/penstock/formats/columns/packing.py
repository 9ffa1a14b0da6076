"""How values are compressed: which columns, how hard, and how many steps are packed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import under
from penstock.core.narrowing import is_dict
from penstock.core.spec import Field, Spec
from penstock.errors import SpecError

NAME = "zlib"
STEPS = 64
_MOST_STEPS = 1 << 20
Compression = int | Mapping[str, int] | None


@dataclass(frozen=True)
class Packing:
    """Blocks of `steps` steps of one episode are deflated together, each column of `levels` with its zlib
    level 0..9.

    The last block of an episode holds what is left, and the last boundary row. Columns that are not named stay raw.
    """

    steps: int
    levels: Mapping[str, int]

    @classmethod
    def of(cls, spec: Spec, compression: Compression, steps: int = STEPS) -> Packing | None:
        """`compression` is a level for every column that can be packed, or levels by path, or None for raw values.

        Raises `SpecError` for a level that zlib does not know, or a column that cannot be packed.
        """
        if compression is None:
            return None
        if isinstance(compression, Mapping):
            levels = {p: level for name, level in compression.items() for p in spec if under(name, p)}
            missing = [name for name in compression if not any(under(name, p) for p in spec)]
            if missing:
                raise SpecError(f"expected columns among {list(spec)} to compress, got {missing}")
        else:
            levels = {path: compression for path, field in spec.fields.items() if packable(field)}
        return cls(steps, {path: levels[path] for path in spec if path in levels}).checked(spec)

    def checked(self, spec: Spec) -> Packing:
        """Itself. Raises `SpecError` where it does not fit the columns."""
        if type(self.steps) is not int or not 1 <= self.steps <= _MOST_STEPS:
            raise SpecError(f"expected blocks of 1..{_MOST_STEPS} steps, got {self.steps!r}")
        if not self.levels:
            raise SpecError(f"expected columns of equal rows that follow the steps to compress, got {list(spec)}")
        for path, level in self.levels.items():
            if type(level) is not int or not 0 <= level <= 9:
                raise SpecError(f"expected a zlib level of 0..9, got {level!r} - at {path}")
            if path not in spec or not packable(spec[path]):
                raise SpecError(f"expected a column of equal rows that follow the steps, got {path}: it stays raw")
        return self

    def counts(self, steps: IntArray) -> IntArray:
        """How many blocks episodes of so many steps have: at least one, for the last boundary row."""
        return np.maximum(-(-steps // self.steps), 1)

    def to_json(self) -> dict[str, Any]:
        """A plain dict that `from_json` reads back."""
        return {"name": NAME, "steps": self.steps, "levels": dict(self.levels)}

    @classmethod
    def from_json(cls, data: Any, spec: Spec) -> Packing | None:
        """Read what `to_json` wrote, or None. Raises `SpecError` for anything else."""
        if data is None:
            return None
        if not is_dict(data) or data.get("name") != NAME or not isinstance(data.get("levels"), dict):
            raise SpecError(f"expected compression by {NAME} with levels by column, got {str(data)[:200]}")
        levels = data["levels"]
        return cls(data.get("steps", 0), {path: levels[path] for path in (*spec, *levels) if path in levels}).checked(
            spec
        )


def packable(field: Field) -> bool:
    """Whether rows of the column can be compressed: of equal size, not empty, one a step or boundary."""
    return not field.ragged and field.align != "episode" and field.row_bytes > 0
