"""`FilesOnDemand`: more files than a process may have open or mapped, each opened when it is wanted.

A process may have 65,530 maps (`vm.max_map_count`). So a dataset of 10^5 files is not opened: the state of each file is
noted, and a file is mapped at its first read, as long as it is in the state that was noted. The maps used last stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar, overload

from penstock.core.cache import Cache
from penstock.files.listing import FileStates, read_unchanged

MANY = 1 << 14
"""Files of a dataset from which on each is mapped when it is read."""
KEPT = 1 << 11
"""Maps that stay for the next read."""

T = TypeVar("T")


class FilesOnDemand(Sequence[T], Generic[T]):
    """What `read` makes of each file by its number, such as its bytes, when that is wanted. Shared by threads."""

    def __init__(
        self,
        paths: Sequence[Path],
        states: FileStates,
        read: Callable[[int], T],
        kept: int = KEPT,
    ) -> None:
        self.paths = paths
        self.states = states
        self.read = read
        self._opened = Cache(kept)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...
    def __getitem__(self, number: int | slice) -> T | list[T]:
        """Return a file, opened."""
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self._opened.get(number, lambda: (self._read(number), 1))

    def _read(self, number: int) -> T:
        return read_unchanged(self.paths[number], self.states[number], lambda _: self.read(number))
