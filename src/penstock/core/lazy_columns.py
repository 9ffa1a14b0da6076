"""`LazyColumns`: columns that are read when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from typing_extensions import override

from penstock.core.columns import Columns, under
from penstock.core.ragged import Array
from penstock.errors import suggestion


class LazyColumns(Columns):
    """Columns of which only those are read that are used. Another use of one does not read it again."""

    __slots__ = ("_names", "_read", "_values")

    def __init__(self, names: Sequence[str], n: int, read: Callable[[Sequence[str]], dict[str, Array]]) -> None:
        self._names = tuple(names)
        self._read = read
        self._values: dict[str, Array] = {}
        self.n = n

    @property
    def columns_read(self) -> tuple[str, ...]:
        """Paths that were read so far."""
        return tuple(self._values)

    @property
    def flat(self) -> dict[str, Array]:  # pyright: ignore[reportIncompatibleVariableOverride] - read at first use
        """All columns by path, which reads them."""
        return self._of(self._names)

    def _of(self, names: Sequence[str]) -> dict[str, Array]:
        if missing := [name for name in names if name not in self._values]:
            self._values.update(self._read(missing))
        return {name: self._values[name] for name in names}

    @override
    def _find(self, path: str) -> Array | Columns:
        names = [name for name in self._names if under(path, name)]
        if not names:
            raise KeyError(f"no column {path!r}{suggestion(path, self._names)}; there are {list(self._names)}")
        return Columns.of_flat(self._of(names), self.n)._find(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, path: object) -> bool:
        return any(under(str(path), name) for name in self._names)
