"""Many files: their paths and states in arrays, some 40 bytes a file, and the check that a file is as it was.

A `Path` takes 400 bytes with its text and parts, so 10^5 of them take 40 MB in each rank of a machine. `FilePaths`
makes each one when it is asked for. All readers that open a file again do so in `read_unchanged`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, overload

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.order import in_natural_order
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError
from penstock.files.descriptors import open_descriptor
from penstock.files.remote import FOLDER, FileState, file_state, filled, is_mirrored, local_state, remote_file

T = TypeVar("T")
SPREAD = 64  # files of a dataset that are looked at where the first does not tell its format


@dataclass(frozen=True, eq=False)
class FilePaths(Sequence[Path]):
    """Paths of many files below a folder."""

    folder: Path
    names: bytes
    ends: IntArray

    @classmethod
    def within(cls, folder: Path, names: Iterable[str]) -> FilePaths:
        encoded = [os.fsencode(name) for name in names]
        return cls(folder, b"".join(encoded), offsets_of(np.array([len(name) for name in encoded], np.int64)))

    @classmethod
    def of(cls, paths: Sequence[Path]) -> FilePaths:
        if isinstance(paths, FilePaths):
            return paths if paths.folder.is_absolute() else cls(paths.folder.absolute(), paths.names, paths.ends)
        return cls.within(Path(os.sep), (os.fspath(path.absolute()).lstrip(os.sep) for path in paths))

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, number: int) -> Path: ...
    @overload
    def __getitem__(self, number: slice) -> list[Path]: ...
    def __getitem__(self, number: int | slice) -> Path | list[Path]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return Path(self.text(number))

    def name(self, number: int) -> str:
        """Return the path of a file in the folder. A negative number counts from the end."""
        place = number + len(self) if number < 0 else number
        if not 0 <= place < len(self):
            raise IndexError(f"expected a file within 0:{len(self)}, got {number}")
        return os.fsdecode(self.names[self.ends[place] : self.ends[place + 1]])

    def text(self, number: int) -> str:
        """Return the path of a file as text, in a quarter of the time of a `Path`."""
        return os.path.join(self.folder, self.name(number))


@dataclass(frozen=True, eq=False)
class FileStates(Sequence[FileState]):
    """States of many files."""

    size: IntArray
    mtime_ns: IntArray
    device: AnyArray
    inode: AnyArray
    settled: BoolArray

    def __len__(self) -> int:
        return len(self.size)

    @overload
    def __getitem__(self, number: int) -> FileState: ...
    @overload
    def __getitem__(self, number: slice) -> list[FileState]: ...
    def __getitem__(self, number: int | slice) -> FileState | list[FileState]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        columns = (self.size, self.mtime_ns, self.device, self.inode)
        known = (int(column[number]) for column in columns)
        return FileState(*known, is_settled=bool(self.settled[number]))


def list_files(folder: Path, is_wanted: Callable[[str], bool]) -> FilePaths:
    """Return the files of a folder in natural order of their names. Folders are left out."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if is_wanted(entry.name) and entry.is_file()]
    return FilePaths.within(folder, in_natural_order(names))


def spread(files: Sequence[T], most: int = SPREAD) -> Iterator[T]:
    """Yield files that tell about all: the first, the last, then files between them."""
    seen: set[int] = set()
    step = max(len(files) - 1, 1)
    while len(seen) < min(len(files), most):
        numbers = [number for number in range(0, len(files), step) if number not in seen]
        yield from (files[number] for number in numbers)
        seen.update(numbers)
        step = max(step // 2, 1)


def file_states(paths: Sequence[Path], numbers: Iterable[int] | None = None) -> FileStates:
    """Return the states of files now; links are followed."""
    listed = FilePaths.of(paths)
    chosen = range(len(listed)) if numbers is None else list(numbers)
    signed, unsigned = np.empty((2, len(chosen)), np.int64), np.empty((2, len(chosen)), np.uint64)
    settled = np.empty(len(chosen), np.bool_)
    look = file_state if is_mirrored(listed.folder) or os.fsencode(FOLDER) in listed.names else local_state
    for i, number in enumerate(chosen):
        state = look(listed.text(number))
        signed[:, i] = state.size, state.mtime_ns
        unsigned[:, i] = state.device, state.inode
        settled[i] = state.is_settled
    return FileStates(*signed, *unsigned, settled=settled)


def digest_of_files(paths: Sequence[Path], numbers: Iterable[int] | None = None) -> str:
    """Return a digest of the paths, sizes and times of files."""
    listed = FilePaths.of(paths)
    chosen = range(len(listed)) if numbers is None else list(numbers)
    states = file_states(listed, chosen)
    digest = hashlib.sha256(b"\0".join(os.fsencode(listed.text(number)) for number in chosen))
    for part in (states.size, states.mtime_ns):
        digest.update(part.data)
    return digest.hexdigest()


def read_unchanged(path: Path, opened: FileState, read: Callable[[Path], T]) -> T:
    """Read a file that is in the state in which a dataset was opened, before and after it is read."""
    try:
        _require_state(path, opened, file_state(path))
        result = read(path)
        _require_state(path, opened, file_state(path))
    except FileNotFoundError as error:
        raise _lost(path) from error
    return result


def read_descriptor(path: Path, opened: FileState, places: IntArray, read: Callable[[int], T]) -> T:
    """Call `read` with a descriptor of a file, as `read_unchanged`, after bytes of a remote file were fetched.

    Range `i` is bytes `places[i, 0] : places[i, 1]`. Cost: a quarter of looking at the path before and after.
    """
    remote = remote_file(path)
    with nullcontext() if remote is None else filled([(remote, *places.T)]):
        try:
            fd = open_descriptor(path, os.O_RDONLY, fetch=False)
        except FileNotFoundError as error:
            raise _lost(path) from error
        try:
            if remote is not None:
                remote.check_opened(fd)
                _require_state(path, opened, remote.state)
                return read(fd)
            _require_opened(path, opened, fd)
            result = read(fd)
            _require_opened(path, opened, fd)
            return result
        finally:
            os.close(fd)


def _lost(path: Path) -> FormatError:
    return FormatError("expected the file that was opened, got none; restore it", path=path)


def _require_state(path: Path, opened: FileState, now: FileState) -> None:
    if opened.inode == 0:
        now = FileState(now.size, now.mtime_ns)
    if now != opened:
        raise _changed(path)


def _require_opened(path: Path, opened: FileState, fd: int) -> None:
    """Do what `_require_state` does, of an open file, in a third of the time: a batch has rows of many files."""
    now = os.fstat(fd)
    same_inode = not opened.inode or (now.st_ino == opened.inode and now.st_dev == opened.device)
    if now.st_size != opened.size or now.st_mtime_ns != opened.mtime_ns or not same_inode:
        raise _changed(path)


def _changed(path: Path) -> FormatError:
    return FormatError("expected the file that was opened, got a changed one; open the dataset again", path=path)
