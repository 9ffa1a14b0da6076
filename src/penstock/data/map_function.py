"""Functions from columns to columns, which a `MapDataset` applies, and `Mapped`, one with a seed and a digest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.core.narrowing import is_mapping
from penstock.data.function_digest import FunctionDigest
from penstock.data.names import name_of
from penstock.errors import ArgumentError, SpecError
from penstock.plan.keys import keys

MapFn = Callable[..., Mapping[str, Any]]


class ColumnFunction(Protocol):
    """A function that turns columns into columns, row by row."""

    @property
    def fingerprint(self) -> str:
        """Digest that differs between functions that compute different values."""
        ...

    def __call__(self, columns: Columns, positions: IntArray) -> Columns: ...


class OverwritingFunction(ABC):
    """A function of columns that can put its result into their memory."""

    @abstractmethod
    def overwrite(self, columns: Columns) -> Columns:
        """Return the new columns.

        Args:
            columns: Columns, to whose arrays nothing else refers.
        """


@dataclass(frozen=True)
class Mapped:
    """A map function, the seed of its random keys, and a digest of its code and values."""

    fn: MapFn
    seed: int | None
    version: str | int | None = None
    digest: FunctionDigest = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, fn: MapFn, seed: int | None, version: str | int | None) -> Mapped:
        """Take the digest of a function, as it is now."""
        if not callable(fn):
            raise ArgumentError(f"expected a function of columns, got {fn!r}")
        return cls(fn, seed, version, digest=FunctionDigest.of(fn, version))

    @property
    def fingerprint(self) -> str:
        """Digest of the function, and the seed."""
        return f"map({self.digest.text}, seed={self.seed})"

    def __call__(self, columns: Columns, positions: IntArray) -> Columns:
        """Apply the function, and check that the number of rows stays the same."""
        result = self.fn(columns) if self.seed is None else self.fn(columns, keys(self.seed, positions))
        return self._checked(result, columns)

    def overwrite(self, columns: Columns, positions: IntArray) -> Columns:
        """Apply the function to columns to which nothing else refers. `Normalize` uses their memory for its result."""
        if self.seed is None and isinstance(self.fn, OverwritingFunction):
            return self._checked(self.fn.overwrite(columns), columns)
        return self(columns, positions)

    def _checked(self, result: Mapping[str, Any], columns: Columns) -> Columns:
        if not is_mapping(result):
            raise SpecError(f"expected columns by name from {self!r}, got {type(result).__name__}; return a dict")
        mapped = result if isinstance(result, Columns) else Columns(result)
        if mapped.n != columns.n:
            raise SpecError(
                f"expected {columns.n} rows from {self!r}, got {mapped.n}; use IterDataset.flat_map to change them"
            )
        return mapped

    def __repr__(self) -> str:
        return f"map({name_of(self.fn)}, seed={self.seed})"
