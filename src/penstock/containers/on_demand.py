"""`FilesOnDemand`: memory maps of more files than a process may have mapped, each made when it is wanted.

A process may have 65,530 maps (`vm.max_map_count`). So a dataset of 10^5 files is not opened: the state of each file is
noted, and a file is mapped at its first read, as long as it is in the state that was noted. The maps used last stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

from penstock.containers.cache import Cache
from penstock.core.arrays import ByteArray
from penstock.files.listing import FileStates, read_unchanged

MANY = 1 << 14
"""Files of a dataset from which on each is mapped when it is read."""
KEPT = 1 << 11
"""Maps that stay for the next read."""


class FilesOnDemand(Sequence[ByteArray]):
    """The bytes of files, mapped when they are wanted. Shared by threads."""

    def __init__(
        self,
        paths: Sequence[Path],
        states: FileStates,
        read: Callable[[Path], ByteArray],
        kept: int = KEPT,
    ) -> None:
        self.paths = paths
        self.states = states
        self.read = read
        self._maps = Cache(kept)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, number: int) -> ByteArray: ...
    @overload
    def __getitem__(self, number: slice) -> list[ByteArray]: ...
    def __getitem__(self, number: int | slice) -> ByteArray | list[ByteArray]:
        """Return the bytes of a file, mapped."""
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self._maps.get(number, lambda: (self._mapped(number), 1))

    def _mapped(self, number: int) -> ByteArray:
        return read_unchanged(self.paths[number], self.states[number], self.read)
