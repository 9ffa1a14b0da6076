"""A cache of blocks of remote objects on disk: bounded, shared by processes, safe when any of them is killed.

    objects/<id>/data          sparse file with the size of the object
    objects/<id>/table         uint32 checksum of each block, 0 where it is absent; then uint32 time of its last use
    objects/<id>/pins.<token>  uint16 for each block: how many readers of one process need it now
    processes/<token>          locked by that process while it lives
    lock                       locked shared to pin, and exclusively to evict

The id is a digest of URL, size and version, so a cached block never becomes wrong. Invariants:

* A block is written first and then entered in the table. So a killed process leaves blocks that are absent, or whole.
  A process compares a block with its checksum before it first uses it, so what a loss of power left is noticed.
* A reader pins blocks, then looks whether they are present, and unpins them when it has copied their bytes. Who evicts
  has the lock exclusively, and passes over blocks that a living process has pinned. So no process reads a hole.
* Pinning needs the lock for microseconds only, and no thread waits for a reader. So there is no deadlock. The price:
  pinned data stay, even if they exceed the limit. Then they leave when they are unpinned, if no process has a lock.
* Unpinning never waits: the garbage collector calls it from a finalizer, also in a thread that has the mutex. Where
  another call has the mutex, the blocks are queued, and that call unpins them when it has given up the mutex.
* A lock is given up by `unlock` and not by closing alone: a process that was forked meanwhile has a copy of the
  descriptor, and would keep the lock.

A process measures the cache when it has fetched a 16th of the limit, so the cache may exceed its limit by that much for
each process. Blocks that were not used for the longest time leave first, until 7/8 of the limit remain.
"""

from __future__ import annotations

import errno
import importlib
import os
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from penstock.core.arrays import BoolArray, IntArray
from penstock.errors import FormatError
from penstock.files.descriptors import PooledFile, open_descriptor
from penstock.files.locks import lock, open_locked, try_lock, unlock
from penstock.files.mapping import map_writable
from penstock.files.remote import deleted_cache
from penstock.files.sparse import make_full, make_sparse, punch_hole, room_of

_crc32: Callable[[bytes | memoryview], int] = importlib.import_module("zlib_ng.zlib_ng").crc32  # it has no types

BLOCK = 1 << 16
"""Bytes of a block."""

_LEAST_CHECK = 1 << 20  # bytes fetched by one process, after which it looks at the size of the cache at the earliest
_NEW = 3600.0  # seconds for which an object that no mirror names is left alone


class CachedObject:
    """The blocks of one object that are on this disk."""

    def __init__(self, cache: BlockCache, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.blocks = -(-size // BLOCK)
        self.condition = threading.Condition()
        self.fetching = np.zeros(self.blocks, np.bool_)
        self.cache = cache
        self._data = PooledFile(folder / "data", os.O_RDWR)
        status = os.stat(folder / "data")
        self.identity = self._data.identity = status.st_dev, status.st_ino
        self._checked = np.zeros(self.blocks, np.bool_)
        make_full(folder / "table", 8 * self.blocks)
        table = map_writable(folder / "table", 8 * self.blocks).view(np.uint32)
        self._sums, self._used = table[: self.blocks], table[self.blocks :]
        self._pins = self._make_pins()

    def _make_pins(self) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
        path = self.folder / f"pins.{self.cache.token}"
        make_full(path, 2 * self.blocks)
        return map_writable(path, 2 * self.blocks).view(np.uint16)

    def renew(self) -> None:
        """In a forked process: pin what the parent had pinned, under the name of this process."""
        pinned = self._pins.copy()
        self.condition = threading.Condition()
        self.fetching[:] = False
        self._pins = self._make_pins()
        self._pins[:] = pinned

    def pin(self, blocks: IntArray) -> None:
        """Keep blocks until `unpin`, also blocks that are fetched in the meantime."""
        with self.cache.sharing():
            self._pins[blocks] += 1
        self._used[blocks] = int(time.time()) & 0xFFFFFFFF

    def unpin(self, blocks: IntArray) -> None:
        """Undo one `pin`."""
        self.cache.released.append((self, blocks))
        self.cache.settle()

    def uncount(self, blocks: IntArray) -> None:
        """Count one pin less, for who has the mutex."""
        self._pins[blocks] -= 1

    def absent(self, blocks: IntArray) -> IntArray:
        """Those of the pinned blocks that have to be fetched. Compares each with its checksum once in a process."""
        unchecked = blocks[~self._checked[blocks] & (self._sums[blocks] != 0)]
        for block in unchecked.tolist():
            with self._opened() as fd:
                raw = os.pread(fd, BLOCK, block * BLOCK)
            if checksum(raw) == int(self._sums[block]):
                self._checked[block] = True
            else:
                self._sums[block] = 0
        return blocks[self._sums[blocks] == 0]

    @contextmanager
    def _opened(self) -> Generator[int]:
        """The descriptor of the data."""
        try:
            fd = self._data.__enter__()
        except FormatError:  # there is no such file, or another one
            raise deleted_cache() from None
        try:
            yield fd
        finally:
            self._data.__exit__()

    def missing(self, blocks: IntArray) -> BoolArray:
        """Which blocks are neither present nor on their way."""
        return (self._sums[blocks] == 0) & ~self.fetching[blocks]

    def write(self, begin: int, raw: bytes) -> None:
        """Enter pinned blocks from byte `begin` on, which begins a block; `raw` ends with a block or the object."""
        if begin % BLOCK or begin + len(raw) > self.size or (len(raw) % BLOCK and begin + len(raw) != self.size):
            raise ValueError(f"expected whole blocks of {BLOCK} bytes, got {len(raw)} bytes from byte {begin} on")
        with self._opened() as fd:
            done = 0
            while done < len(raw):
                done += os.pwrite(fd, memoryview(raw)[done:], begin + done)
        first = begin // BLOCK
        for i, lo in enumerate(range(0, len(raw), BLOCK)):
            self._sums[first + i] = checksum(memoryview(raw)[lo : lo + BLOCK])
            self._checked[first + i] = True


class BlockCache:
    """The cache in one folder."""

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root
        self.limit = limit
        self.released: deque[tuple[CachedObject, IntArray]] = deque()
        self.exceeded = False  # whether pinned blocks kept the last look from keeping the limit
        self._unpinned = 0  # bytes since then
        self._objects: dict[str, CachedObject] = {}
        for name in ("objects", "processes"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self._begin()

    def _begin(self) -> None:
        """Become a process of the cache: after a fork again."""
        self.pid = os.getpid()
        self.mutex = threading.Lock()
        self.token = f"{self.pid}-{secrets.token_hex(6)}"
        flags = os.O_RDWR | os.O_CREAT
        self._alive = open_locked(self.root / "processes" / self.token, flags)
        self._lock = open_descriptor(self.root / "lock", flags)
        self._fetched = 0

    @property
    def deleted(self) -> bool:
        """Whether its folder was deleted, perhaps to be made again by another process."""
        mine = os.fstat(self._lock)
        try:
            now = os.stat(self.root / "lock")
        except FileNotFoundError:
            return True
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def renew(self) -> None:
        """In a forked process: take another name, and keep what the parent had pinned."""
        self._begin()
        for cached in self._objects.values():
            cached.renew()

    @contextmanager
    def sharing(self) -> Generator[None]:
        """Keep everybody from evicting for the block, which is short."""
        try:
            with self.mutex:
                lock(self._lock, self.root, shared=True, wait=True)
                try:
                    yield
                finally:
                    unlock(self._lock)
        finally:
            self.settle()

    def settle(self) -> None:
        """Unpin what was released, unless another call has the mutex, which does so afterwards."""
        while self.released and self.mutex.acquire(blocking=False):
            try:
                while self.released:
                    cached, blocks = self.released.popleft()
                    cached.uncount(blocks)
            finally:
                self.mutex.release()

    def unpinned(self, blocks: int) -> None:
        """Note that blocks were unpinned, and evict where only their pins kept the limit from being kept.

        It never waits, so that a finalizer may call it.
        """
        if self.exceeded:
            self._unpinned += blocks * BLOCK
            if self._unpinned > self._check and self.evict(wait=False):
                self._unpinned = 0

    @property
    def _check(self) -> int:
        """Bytes that come or are unpinned between two looks at the size of the cache."""
        return max(self.limit // 16, _LEAST_CHECK)

    def data_of(self, key: str, size: int) -> Path:
        """The sparse file of an object, which is made."""
        folder = self.root / "objects" / key
        folder.mkdir(exist_ok=True)
        make_sparse(folder / "data", size)
        return folder / "data"

    def open(self, key: str, size: int) -> CachedObject:
        """The object of a key. There is one of it in a process, unless its files were deleted meanwhile."""
        folder = self.root / "objects" / key
        try:
            with self.mutex, saying_no_room(self.root):
                cached = self._objects.get(key)
                status = os.stat(folder / "data")
                if cached is None or cached.identity != (status.st_dev, status.st_ino):
                    cached = self._objects[key] = CachedObject(self, folder, size)
        except FileNotFoundError:
            raise deleted_cache() from None
        self.settle()
        return cached

    def fetched(self, size: int) -> None:
        """Note that bytes were added, and evict others when there are many."""
        self._fetched += size
        if self._fetched > self._check:
            self._fetched = 0
            self.evict()

    def evict(self, limit: int | None = None, *, wait: bool = True) -> bool:
        """Give back blocks, those used last longest ago first, if all take more than `limit` bytes.

        One process does so at a time; a second one finds enough room. Without `wait`, nothing is given back while
        another one does so, or pins; then the result is False.
        """
        limit = self.limit if limit is None else limit
        if self.deleted:
            return True
        fd = open_descriptor(self.root / "lock", os.O_RDWR | os.O_CREAT)
        try:
            folders = [Path(entry.path) for entry in os.scandir(self.root / "objects")]
            self.exceeded = sum(map(_room, folders)) > limit
            if not self.exceeded:
                return True
            if wait:
                lock(fd, self.root, wait=True)
            elif not try_lock(fd):
                return False
            excess = sum(map(_room, folders)) - limit * 7 // 8
            if excess > limit // 8:
                self._evict(folders, excess)
            self.exceeded = sum(map(_room, folders)) > limit
            return True
        finally:
            unlock(fd)
            os.close(fd)

    def _evict(self, folders: list[Path], excess: int) -> None:
        living = self._living()
        blocks: list[IntArray] = []
        stamps: list[IntArray] = []
        for number, folder in enumerate(folders):
            table = _table(folder)
            if table is None:
                _remove_unused(folder, living)
                continue
            free = (table[0] != 0) & ~_pinned(folder, living, len(table[0]))
            evictable = np.flatnonzero(free)
            blocks.append(np.stack([np.full(len(evictable), number), evictable]))
            stamps.append(table[1][evictable].astype(np.int64))
        if not blocks:
            return
        every = np.concatenate(blocks, axis=1)
        oldest = np.argsort(np.concatenate(stamps), kind="stable")[: -(-excess // BLOCK)]
        chosen = every[:, oldest]
        for number in set(map(int, chosen[0])):
            _drop(folders[number], np.sort(chosen[1, chosen[0] == number]))

    def _living(self) -> list[str]:
        """The processes that are alive; the names of others are removed."""
        living: list[str] = []
        for entry in os.scandir(self.root / "processes"):
            with suppress(FileNotFoundError):
                fd = open_descriptor(entry.path, os.O_RDWR)
                try:
                    if try_lock(fd):
                        os.unlink(entry.path)
                    else:
                        living.append(entry.name)
                finally:
                    unlock(fd)
                    os.close(fd)
        return living


@contextmanager
def saying_no_room(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "free some, set PENSTOCK_CACHE to a folder of a larger disk, or lower PENSTOCK_CACHE_BYTES"
            raise OSError(error.errno, f"no room for remote data: {advice}", str(folder)) from error
        raise


def checksum(raw: bytes | memoryview) -> int:
    """The CRC-32 of a block, but 1 for 0, which stands for an absent block."""
    return _crc32(raw) or 1


def stretches(blocks: IntArray, apart: BoolArray) -> list[tuple[int, int]]:
    """The first block of each stretch of sorted blocks, and the one behind its last. `apart[i]` ends one after
    `blocks[i]`.
    """
    cuts = np.flatnonzero(apart)
    first = blocks[np.append(0, cuts + 1)]
    last = blocks[np.append(cuts, len(blocks) - 1)]
    return [(int(lo), int(hi) + 1) for lo, hi in zip(first, last, strict=True)]


def _room(folder: Path) -> int:
    try:
        return room_of(folder / "data")
    except FileNotFoundError:
        return 0


def _remove_unused(folder: Path, living: list[str]) -> None:
    """Remove an object that no folder of a mirror names, unless a process has it open, or just made it."""
    with suppress(FileNotFoundError):
        old = time.time() - os.stat(folder).st_mtime > _NEW
        if old and not any((folder / f"pins.{token}").exists() for token in living):
            shutil.rmtree(folder, ignore_errors=True)


def _table(folder: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]] | None:
    """`[2, blocks]`, the checksums and times of an object; None for one that no folder of data names any more."""
    try:
        stat = os.stat(folder / "data")
        size = os.stat(folder / "table").st_size
    except FileNotFoundError:
        return None
    if stat.st_nlink == 1 or size != 8 * -(-stat.st_size // BLOCK):
        return None
    return map_writable(folder / "table", size).view(np.uint32).reshape(2, -1)


def _pinned(folder: Path, living: list[str], blocks: int) -> BoolArray:
    """Which blocks a living process needs. Pins of processes that are gone are removed."""
    pinned = np.zeros(blocks, np.bool_)
    for entry in list(os.scandir(folder)):
        if not entry.name.startswith("pins."):
            continue
        if entry.name[5:] not in living:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
        elif entry.stat().st_size == 2 * blocks:
            pinned |= map_writable(entry.path, 2 * blocks).view(np.uint16) != 0
    return pinned


def _drop(folder: Path, blocks: IntArray) -> None:
    """Mark blocks as absent, and give back their room."""
    table = _table(folder)
    if table is None:
        return
    fd = open_descriptor(folder / "data", os.O_RDWR)
    try:
        table[0][blocks] = 0
        for first, end in stretches(blocks, np.diff(blocks) != 1):
            if not punch_hole(fd, first * BLOCK, (end - first) * BLOCK):
                return
    finally:
        os.close(fd)
