"""`FileRegister`: records which files were taken, so that no file is taken twice under different names."""

from __future__ import annotations

import errno
import hashlib
import os
import stat as modes
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path

from penstock.files.descriptors import open_descriptor

Inode = tuple[int, int]
"""Device and inode of a file."""

HEAD = 4096  # bytes at either end of a file that tell its contents: the end of a gzip member has its checksum


@dataclass(frozen=True, slots=True)
class FoundFile:
    """Complete file to take: `path`; `name`, relative to the directory, with forward slashes; `size`; `mtime_ns`.

    `was` is the name that it was taken under before, where it was renamed since; `rewritten` says that another file of
    this name was taken before, which is gone.
    """

    path: Path
    name: str
    size: int
    mtime_ns: int
    was: str | None = None
    rewritten: bool = False


@dataclass(slots=True)
class _Known:
    size: int
    mtime_ns: int
    inode: Inode | None  # None where it is known from a state
    digest: bytes | None = None
    taken_ns: int | None = None  # its time when it was taken; None for one that never was, being a copy


class FileRegister:
    """Distinguishes new files from known ones by device, inode, size and modification time.

    Files with the name and size of another are compared by a digest of their first and last bytes. Not thread-safe.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.counts: Counter[str] = Counter()
        self._known: dict[str, _Known] = {}
        self._inodes: dict[Inode, str] = {}
        self._alike: dict[tuple[str, int], list[str]] = {}
        self._undigested: deque[str] = deque()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def same(self, name: str, stat: os.stat_result) -> bool:
        """Return whether a file is unchanged since it was taken."""
        known = self._known.get(name)
        return known is not None and self._unchanged(known, stat)

    def remember(self, name: str, size: int, mtime_ns: int) -> None:
        """Register a file that an earlier run took."""
        self._known[name] = _Known(size, mtime_ns, None, taken_ns=mtime_ns)
        self._alike.setdefault((name.rpartition("/")[2], size), []).append(name)

    @property
    def has_any(self) -> bool:
        return bool(self._known)

    def names(self) -> list[str]:
        """All known names, including copies."""
        return list(self._known)

    def forget(self, name: str) -> bool:
        """Forget a file, so that it is taken if it returns. Return whether it was taken under this name.

        Its copies, which were duplicates until now, may be taken from now on.
        """
        known = self._known.pop(name, None)
        if known is None:
            return False
        if known.inode is not None and self._inodes.get(known.inode) == name:
            del self._inodes[known.inode]
        alike = self._alike.get((name.rpartition("/")[2], known.size), [])
        if name in alike:
            alike.remove(name)
        if known.taken_ns is not None:
            for other in [each for each in alike if each in self._known and self._known[each].taken_ns is None]:
                self.forget(other)
        return known.taken_ns is not None

    def take(self, name: str, digest: bool = False) -> FoundFile | None:
        """Return the file if it exists and is new, else None. Duplicates are counted by the reason.

        Only regular files are taken: opening a pipe would wait for its writer. With `digest`, the contents are compared
        now, otherwise by `look_closer`.
        """
        path = self.root / name
        try:
            stat = path.stat()
            if not modes.S_ISREG(stat.st_mode):
                self.counts["not_a_file"] += 1
                return None
            return self._take(name, path, stat, digest)
        except OSError:
            self.counts["vanished"] += 1
            return None

    def rename(self, name: str, now: str) -> bool:
        """Register a taken file under its present name. Return whether it is the file that was taken.

        A later `take` of the present name returns None.
        """
        path = self.root / now
        try:
            stat = path.stat()
            if not self._unchanged(self._known[name], stat):
                return False
            return self._link(name, now, path, stat) is not None
        except OSError:
            return False

    def inode(self, name: str) -> Inode | None:
        """Return the device and inode of a taken file; None if unknown."""
        known = self._known.get(name)
        return None if known is None else known.inode

    def same_contents(self, name: str, path: Path, size: int, taken_ns: int) -> bool:
        """Whether a file has the contents that the one taken under a name, when its time was `taken_ns`, is known to
        have had."""
        known = self._known.get(name)
        if known is None or known.digest is None or (known.size, known.taken_ns) != (size, taken_ns):
            return False
        return known.digest == _digest(path)

    def look_closer(self, files: int) -> None:
        """Compute the digests of files that were taken without, so that their copies are recognized."""
        for _ in range(min(files, len(self._undigested))):
            name = self._undigested.popleft()
            if name in self._known:
                self._digest_of(name, self._known[name])

    def _take(self, name: str, path: Path, stat: os.stat_result, digest: bool) -> FoundFile | None:
        old, inode = self._known.get(name), (stat.st_dev, stat.st_ino)
        if old is not None and self._unchanged(old, stat):
            old.inode = inode
            self._inodes[inode] = name
            return None
        other = self._inodes.get(inode)
        if other is not None and other != name and self._unchanged(self._known[other], stat):
            return self._link(other, name, path, stat)
        known = _Known(stat.st_size, stat.st_mtime_ns, inode)
        if self._is_copy(name, path, known):
            self.counts["duplicates"] += 1
            if old is not None:
                known.taken_ns = old.taken_ns if old.digest == known.digest else None
                self._keep(name, known)
            return None
        known.taken_ns = known.mtime_ns
        self._keep(name, known)
        if digest:
            self._digest_of(name, known)
        else:
            self._undigested.append(name)
        self.counts["rewritten" if old is not None else "files"] += 1
        return FoundFile(path, name, stat.st_size, stat.st_mtime_ns, rewritten=old is not None)

    def _link(self, other: str, name: str, path: Path, stat: os.stat_result) -> FoundFile | None:
        """Register another name of a file: its new name after a rename, or a second one."""
        if (self.root / other).exists():
            self.counts["duplicates"] += 1
            return None
        self.counts["renamed"] += 1
        known = self._known.pop(other)
        self._keep(name, known)
        if known.digest is None:
            self._undigested.append(name)
        return FoundFile(path, name, stat.st_size, stat.st_mtime_ns, was=other)

    def _keep(self, name: str, known: _Known) -> None:
        self._known[name] = known
        if known.inode is not None:
            self._inodes[known.inode] = name
        alike = self._alike.setdefault((name.rpartition("/")[2], known.size), [])
        if name not in alike:
            alike.append(name)

    def _is_copy(self, name: str, path: Path, known: _Known) -> bool:
        """Return whether a file has the base name, size, first and last bytes of a known one."""
        others = self._alike.get((name.rpartition("/")[2], known.size), [])
        if not others:
            return False
        known.digest = _digest(path)
        return any(
            other in self._known and self._digest_of(other, self._known[other], other == name) == known.digest
            for other in others
        )

    def _digest_of(self, name: str, known: _Known, gone: bool = False) -> bytes | None:
        """Return the digest of a known file; None if the file cannot be read any more."""
        if known.digest is None and not gone:
            try:
                if self._unchanged(known, (self.root / name).stat()):
                    known.digest = _digest(self.root / name)
            except OSError:
                self.counts["vanished"] += 1
        return known.digest

    def _unchanged(self, known: _Known, stat: os.stat_result) -> bool:
        same = (known.size, known.mtime_ns) == (stat.st_size, stat.st_mtime_ns)
        return same and known.inode in (None, (stat.st_dev, stat.st_ino))


def _digest(path: Path) -> bytes:
    """A digest of both ends."""
    with open(open_descriptor(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not modes.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "expected a regular file", str(path))
        head = file.read(HEAD)
        file.seek(max(0, os.fstat(file.fileno()).st_size - HEAD))
        return hashlib.blake2b(head + file.read(HEAD), digest_size=16).digest()
