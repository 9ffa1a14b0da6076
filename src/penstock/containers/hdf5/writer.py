"""Appending to HDF5 files so that a crash at any moment leaves the last committed state (see the package).

A commit is durable after its second `fsync`; without `fsync` it is atomic for readers and for a killed process, but not
for a power cut.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from penstock.containers.hdf5.encode import Tail, object_header, write_all
from penstock.containers.hdf5.image import SIGNATURE, SUPERBLOCK_BYTES, UNDEFINED, Image, Superblock
from penstock.containers.hdf5.messages import ATTRIBUTE, ATTRIBUTE_INFO, BTREE_K, Link, Message, read_messages
from penstock.containers.hdf5.objects import ObjectWriter, Storage, Value
from penstock.containers.hdf5.reader import File, Group
from penstock.containers.hdf5.symbols import Root, RootPlace
from penstock.errors import DataError, LockedError
from penstock.files import sync
from penstock.files.descriptors import open_descriptor
from penstock.files.locks import lock, open_locked, unlock
from penstock.kernels.checksum import lookup3

FIRST_BYTES = 4096  # more than an empty file takes
# Small nodes: fewer bytes a commit copies, and an episode takes
LEAF_K = 4
INTERNAL_K = 4
CHUNK_K = 2
RELOAD = 1024  # commits after which a paused file is opened again, for the nodes of the root stay in memory
NEW = Superblock(1, 0, 0, UNDEFINED, LEAF_K, INTERNAL_K, CHUNK_K, UNDEFINED, 0)


class Appender:
    """Appends groups to an HDF5 file, each commit atomic and durable."""

    def __init__(self, path: str, fd: int, holder: int, *, fsync: bool) -> None:
        self.path = path
        self._lock_path, self._held = _lock_path(path), os.fstat(holder)
        self._fd = fd
        self._holder = holder
        self._fsync = fsync
        self._dirty = False
        self._closed = False
        self._commits = 0
        self._process = os.getpid()
        self._seen: tuple[int, ...] = ()
        if _is_new(fd):
            self._block = NEW
            self._tail = Tail(fd, NEW.nbytes)
            self._root = Root.empty(NEW.leaf_k, NEW.internal_k)
            self._start()
        else:
            self._block, self._root = _load(path)
            self._written = os.pread(fd, SUPERBLOCK_BYTES, 0)
            self._tail = Tail(fd, self._block.eof)

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, fsync: bool = True, wait: bool = True) -> Self:
        """Start a new file."""
        return cls._open(os.fspath(path), os.O_CREAT, fsync=fsync, wait=wait)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, fsync: bool = True, wait: bool = True) -> Self:
        """Append to an existing file; an empty one counts as new."""
        return cls._open(os.fspath(path), 0, fsync=fsync, wait=wait)

    @classmethod
    def _open(cls, path: str, flags: int, *, fsync: bool, wait: bool) -> Self:
        fd = open_descriptor(path, os.O_RDWR | flags)
        try:
            holder = lock_for_writing(path, fd, wait=wait)
            try:
                if flags and not _is_new(fd):
                    raise DataError(f"{path} already holds data; append to it with Appender.open")
                return cls(path, fd, holder, fsync=fsync)
            except BaseException:
                os.close(holder)
                raise
        except BaseException:
            os.close(fd)
            raise

    def _start(self) -> None:
        self._dirty = True
        self.commit()
        if self._fsync:
            sync(os.path.dirname(self.path) or ".")

    @property
    def nbytes(self) -> int:
        return self._tail.offset

    def __contains__(self, name: str) -> bool:
        return name in self._root

    def add_group(
        self,
        name: str,
        datasets: Mapping[str, Value] | None = None,
        attrs: Mapping[str, Any] | None = None,
        dataset_attrs: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        storage: Storage | None = None,
        replace_empty: bool = False,
    ) -> None:
        """Add the group `name` to the root, visible from the next commit on.

        `datasets`: path below the group -> array, list of `str`, `VlenBytes`, or None for an empty group; arrays may
        grow along their first axis later. `dataset_attrs`: path -> attributes. `storage`: compression and chunking, by
        default none and one chunk an array. `replace_empty`: a group of this name may be there, if it has no dataset.
        Cost: one write of the data, O(log n) for n groups in the root.
        """
        link = self._link(name)
        if link is not None and not (replace_empty and self._is_empty(name, link)):
            raise DataError(f"{name} is already in {self.path}")
        writer = ObjectWriter(self._tail, self._block, storage or Storage())
        address = writer.group(datasets or {}, attrs or {}, dataset_attrs or {})
        self._root.set(name, Link("hard", address))
        self._dirty = True

    def set_attrs(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Set attributes of the group `name` of the root, or of the root itself ("" or "/")."""
        encoded = ObjectWriter(self._tail, self._block, Storage()).attributes(attrs)
        if name in ("", "/"):
            self._root.attrs.update(encoded)
        else:
            link = self._link(name)
            if link is None:
                raise DataError(f"{name} is not in {self.path}")
            self._root.set(name, Link("hard", self._rewrite(name, link, encoded)))
        self._dirty = True

    def _rewrite(self, name: str, link: Link, encoded: dict[str, bytes]) -> int:
        if link.kind != "hard":
            raise DataError(f"{name} of {self.path} is a link to elsewhere; set its attributes there")
        self._tail.flush()
        with File(self.path, eof=self._tail.offset) as file:
            entry = file.open_object(link.address, name)
            kept = [message for message in entry.messages if message.kind not in (ATTRIBUTE, ATTRIBUTE_INFO)]
            attrs = entry.attrs.raw() | encoded
        return self._tail.put(object_header([*kept, *(Message(ATTRIBUTE, 0, body) for body in attrs.values())]))

    def _is_empty(self, name: str, link: Link) -> bool:
        """Whether a link of the root leads to a group without datasets."""
        if link.kind != "hard":
            return False
        self._tail.flush()
        with File(self.path, eof=self._tail.offset) as file:
            entry = file.open_any(link.address, name)
            return isinstance(entry, Group) and next(entry.walk(), None) is None

    def _link(self, name: str) -> Link | None:
        """What a name of the root leads to."""
        if self._closed:
            raise DataError(f"{self.path} is closed; open it again to append")
        if not name or "/" in name or "\0" in name or name == ".":
            raise DataError(f"expected the name of a group of the root, got {name!r}")
        return self._root.get(name)

    def commit(self) -> None:
        """Make everything since the last commit visible at once and, with `fsync`, durable."""
        if self._closed or not self._dirty:
            return
        place = self._root.write(self._tail, self._fd)
        self._tail.flush()
        self._sync()
        self._written = encode_superblock(self._block, self._tail.offset, place)
        write_all(self._fd, self._written, 0)
        self._sync()
        self._dirty = False
        self._commits += 1

    def pause(self) -> None:
        """Let others write, after a commit, until `resume`."""
        self._seen = _state(self._held, os.fstat(self._fd))
        unlock(self._fd)
        unlock(self._holder)

    def resume(self) -> bool:
        """Lock the file again after `pause`; False where it has to be closed and opened again.

        That is so where somebody else wrote to the file or replaced it, and in a forked process, with which its parent
        would share the lock.
        """
        if self._process != os.getpid() or self._commits >= RELOAD:
            return False
        lock(self._holder, self.path, wait=True)
        lock(self._fd, self.path, shared=True, wait=True)
        try:
            same = _state(os.stat(self._lock_path), os.stat(self.path)) == self._seen
        except FileNotFoundError:
            return False
        return same and os.pread(self._fd, len(self._written), 0) == self._written

    def _sync(self) -> None:
        if self._fsync:
            os.fsync(self._fd)

    def close(self, *, commit: bool = True) -> None:
        """Commit, unless `commit` is False, and let others write."""
        if self._closed:
            return
        try:
            if commit:
                self.commit()
        finally:
            self._closed = True
            os.close(self._fd)
            os.close(self._holder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=kind is None)


def _is_new(fd: int) -> bool:
    """Whether a file is empty, or was left before the first commit of a new file wrote the superblock."""
    if os.fstat(fd).st_size >= FIRST_BYTES:
        return False
    raw = os.pread(fd, FIRST_BYTES, 0)
    return not any(raw[: NEW.nbytes]) and SIGNATURE not in raw  # which a user block would precede


def _load(path: str) -> tuple[Superblock, Root]:
    file = File(path)  # stays mapped while nodes of the root may have to be read from it
    block = file.image.superblock
    if block.base:
        raise DataError(
            f"{path} begins with a user block of {block.base} bytes and cannot be appended to; "
            "copy it without one, as with h5unjam or penstock convert"
        )
    if block.version >= 2 and block.flags:
        raise LockedError(f"{path} is open for writing by libhdf5, or was not closed; try h5clear -s")
    if block.extension != UNDEFINED:
        block = _read_extension(file.image)
    return block, Root.load(file.image, block, file.root.attrs.raw())


def _read_extension(image: Image) -> Superblock:
    """The superblock with the node sizes that its extension names."""
    block = image.superblock
    for kind, _, body in read_messages(image, block.extension):
        if kind != BTREE_K:
            raise DataError(f"{image.path} has file options (message {kind:#x}) that cannot be kept; copy it first")
        chunk_k, internal_k, leaf_k = struct.unpack_from("<HHH", body, 1)
        block = replace(block, chunk_k=chunk_k, internal_k=internal_k, leaf_k=leaf_k)
    return block


def lock_for_writing(path: str, fd: int, *, wait: bool) -> int:
    """Take the writers' lock `.<name>.lock` next to the file, which is locked shared: libhdf5 may read only."""
    holder = open_locked(_lock_path(path), os.O_RDWR | os.O_CREAT, wait=wait, name=path, follow=True)
    try:
        lock(fd, path, shared=True, wait=wait, holder="a program that writes with libhdf5")
    except BaseException:
        os.close(holder)
        raise
    return holder


def _state(holder: os.stat_result, file: os.stat_result) -> tuple[int, ...]:
    """What changes with a commit of another writer, libhdf5 included, and with another file at a path.

    Where clocks are coarse, the superblock has to be compared as well.
    """
    return holder.st_dev, holder.st_ino, file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _lock_path(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.lock")


def encode_superblock(block: Superblock, eof: int, root: RootPlace) -> bytes:
    """Superblock like `block`, for a file of `eof` bytes with this root."""
    if block.version >= 2:
        head = SIGNATURE + struct.pack("<BBBB", block.version, 8, 8, block.flags)
        raw = head + struct.pack("<4Q", block.base, block.extension, eof, root.header)
        return raw + struct.pack("<I", lookup3(raw))
    head = SIGNATURE + struct.pack("<8B", block.version, 0, 0, 0, 0, 8, 8, 0)
    head += struct.pack("<HHI", block.leaf_k, block.internal_k, block.flags)
    if block.version == 1:
        head += struct.pack("<HH", block.chunk_k, 0)
    cached = int(root.tree != UNDEFINED)
    scratch = (root.tree, root.heap) if cached else (0, 0)
    places = struct.pack("<4Q", block.base, UNDEFINED, eof, UNDEFINED)
    return head + places + struct.pack("<QQIIQQ", 0, root.header, cached, 0, *scratch)
