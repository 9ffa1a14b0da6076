"""Large results of jobs next to the target, on a disk or at a URL, until `finish` moves them there."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.core.boundary import parsing
from penstock.errors import DataError, FormatError
from penstock.files import atomic_path, locked, remove_folder, scratch_folder
from penstock.files.user_cache import user_cache
from penstock.flow import map_on_threads
from penstock.locations.location import MARKER, Location, Url, output_place
from penstock.locations.objects import ObjectStore, joined
from penstock.locations.stores import object_store
from penstock.locations.upload import upload_path, uploading

PARTS = ".parts"
SUMMARY = "summary"
"""Name of the file in the folder of a part that has its summary."""
AT_ONCE = 4  # parts that are fetched at a time
CHECKSUM = hashlib.sha256().digest_size
AGAIN = "run the same command or task again, which makes it again"


class StagingFolder:
    """The folder `<out>.parts/<digest>`. It is on the file system of the target, so parts are moved and not copied."""

    def __init__(self, out: str, arguments: Mapping[str, Any], fingerprint: str) -> None:
        self.out = local_target(out)
        self.path = self.out.with_name(self.out.name + PARTS) / staging_digest(arguments, fingerprint)

    @property
    def place(self) -> str:
        """The target for messages and reports."""
        return str(self.out)

    def target_path(self) -> Path:
        """Return the path at which the finished target is opened."""
        return self.out

    @property
    def has_target(self) -> bool:
        return os.path.lexists(self.out)

    @property
    def is_closed(self) -> bool:
        """Whether the target exists without this folder: the work is finished, or another work made the target."""
        return self.has_target and not self.path.exists()

    def refuse_other(self) -> None:
        """Raise `FileExistsError` if something is at the target that this operation did not begin."""
        if self.is_closed:
            raise FileExistsError(f"expected nothing at {self.place}; remove it, or choose another place")

    def make(self) -> Path:
        """Make the folder if it does not exist, and return its path."""
        self.refuse_other()
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def write_part(self, name: str, write: Callable[[Path], bytes]) -> bytes:
        """Write a part, which appears when it is complete, unless another copy of the job did so. Return
        its summary.
        """
        part = self.make() / name
        if not part.exists():
            try:
                with atomic_path(part, durable="folder") as folder:
                    folder.mkdir()
                    (folder / SUMMARY).write_bytes(write(folder))
            except FileExistsError:  # a second copy was first; else it is an error of `write`
                if not part.exists():
                    raise
        return (part / SUMMARY).read_bytes()

    def parts(self, names: Sequence[str]) -> list[Path]:
        """Return the local folders of parts, whose contents may be moved to the target."""
        return [self.path / name for name in names]

    def has_part(self, name: str) -> bool:
        """Return whether a file or folder of this folder exists, or the target."""
        return (self.path / name).exists() or self.has_target

    @contextmanager
    def merging(self) -> Generator[None]:
        """Lock the folder for the block, which moves its contents to the target; then delete it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path, holder="another process that merges the same parts"):
            yield
            self.remove()

    def remove(self) -> None:
        """Delete the folder, and what a killed process left of it."""
        remove_folder(self.path)
        with suppress(OSError):  # parts of another operation are left
            self.path.parent.rmdir()


def staging_digest(arguments: Mapping[str, Any], fingerprint: str) -> str:
    """Return the name of the staging folder of an operation."""
    text = json.dumps({**arguments, "fingerprint": fingerprint}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def local_target(out: str) -> Path:
    place = output_place(out)
    if isinstance(place, Url):
        raise DataError(f"expected a path for a target that is written in parts, got {place}; upload it afterwards")
    return place


class RemoteStaging(StagingFolder):
    """Parts of a dataset at a URL, for jobs that have nothing but the object store in common. `out` and `path` are in
    the user's cache of this machine.

    A job writes its part in the user's cache of its machine, and compares it there. The part becomes one object,
    `<url>.parts/<digest>/<first>-<last>`. Stores replace whole objects, so a part is either complete or missing, and a
    second copy of the job finds it, or replaces it by an equal part. The object is a tar archive of the folder, whose
    first member is the summary, and the SHA-256 of the archive behind it.

    `finish` fetches all parts, compares their checksums, joins them in the user's cache as parts on a disk are joined,
    and uploads the dataset, which can be opened only when it is complete (`locations.upload`). Then the objects of the
    parts are deleted. The parts stay until the dataset is complete, so any machine can repeat a finish that was killed.
    """

    def __init__(self, url: Url, options: Mapping[str, Any], arguments: Mapping[str, Any], fingerprint: str) -> None:
        digest = staging_digest(arguments, fingerprint)
        self.out = upload_path(url)
        self.path = self.out.parent.with_name(self.out.parent.name + PARTS) / digest
        self._url, self._options = url, dict(options)
        self._target = object_store(url.full, self._options)
        self._objects = object_store(f"{url.full.rstrip('/')}{PARTS}/{digest}", self._options)
        self._known: set[str] = set()  # parts that were there when they were listed

    @property
    @override
    def place(self) -> str:
        return str(self._url)

    @override
    def target_path(self) -> Path:
        (path,) = Location.of(self._url.full, self._options).paths()
        return path

    @property
    @override
    def has_target(self) -> bool:
        """Whether a complete dataset, or a single object, is at the URL."""
        names = _names(self._target)
        return bool(names) and MARKER not in names

    @property
    @override
    def is_closed(self) -> bool:
        """Whether the target is complete, or the URL has other objects while this operation has no parts."""
        names = _names(self._target)
        return bool(names) and (MARKER not in names or not _names(self._objects))

    @override
    def write_part(self, name: str, write: Callable[[Path], bytes]) -> bytes:
        if (summary := self._summary(name)) is not None:
            return summary
        self.refuse_other()
        cache = user_cache("uploads")
        cache.mkdir(parents=True, exist_ok=True)
        with scratch_folder(cache / name) as scratch:
            folder = scratch / name
            folder.mkdir()
            summary = write(folder)
            (folder / SUMMARY).write_bytes(summary)
            self._objects.put(name, _archive(folder))
        if self.has_target:  # the other copy of this job was fast enough for a merge, which removed the parts
            self._delete(name)
        return summary

    def _summary(self, name: str) -> bytes | None:
        """Read the first member of the object of a part; None if there is no object, or a damaged one."""
        try:
            if self._objects.stat(name).size < tarfile.BLOCKSIZE:
                return None
            head = self._read(name, 0, tarfile.BLOCKSIZE)
            member = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
        except (FileNotFoundError, tarfile.HeaderError):
            return None
        return self._read(name, tarfile.BLOCKSIZE, tarfile.BLOCKSIZE + member.size)

    def _read(self, name: str, begin: int, end: int) -> bytes:
        return self._objects.read(name, [(begin, end)])[0]

    @override
    def has_part(self, name: str) -> bool:
        if name not in self._known:
            self._known = _names(self._objects)
        return name in self._known or self.has_target

    @override
    def parts(self, names: Sequence[str]) -> list[Path]:
        """Fetch parts, and compare their checksums, unless an earlier call on this machine did."""
        self.path.mkdir(parents=True, exist_ok=True)
        return map_on_threads(self._fetched, names, AT_ONCE, name="penstock-fetch")

    def _fetched(self, name: str) -> Path:
        folder = self.path / name
        if folder.exists():
            return folder
        try:
            with atomic_path(folder) as part:
                part.mkdir()
                archive = part.with_name("archive")
                self._fetch(name, archive)
                with parsing(joined(self._objects.url, name)), tarfile.open(archive) as members:
                    members.extractall(part, filter="data")
        except FormatError:
            self._delete(name)
            raise
        return folder

    def _fetch(self, name: str, archive: Path) -> None:
        """Fetch the archive of a part, without the checksum at its end."""
        place = joined(self._objects.url, name)
        try:
            info = self._objects.stat(name)
            with archive.open("wb") as file:

                def write(begin: int, data: bytes) -> None:
                    file.seek(begin)
                    file.write(data)

                self._objects.read_all(name, info.size, info.version, write)
        except FileNotFoundError:
            self._known.discard(name)
            raise DataError(f"expected the part {place}, got nothing; {AGAIN}") from None
        with archive.open("rb+") as file:
            size = max(info.size - CHECKSUM, 0)
            file.seek(size)
            checksum = file.read()
            file.truncate(size)
            file.seek(0)
            if hashlib.file_digest(file, "sha256").digest() != checksum:
                raise FormatError(
                    f"expected the bytes that a job wrote, got others, which were deleted; {AGAIN}", path=place
                )

    @override
    @contextmanager
    def merging(self) -> Generator[None]:
        """Upload what the block puts at `out`; then delete the parts."""
        with uploading(self._url, self._options):
            yield
        self.remove()

    @override
    def remove(self) -> None:
        for name in _names(self._objects):
            self._delete(name)
        for folder in (self.path, self.out.parent):
            if folder.exists():
                remove_folder(folder)
        with suppress(OSError):  # parts of another operation are left
            self.path.parent.rmdir()

    def _delete(self, name: str) -> None:
        self._known.discard(name)
        with suppress(FileNotFoundError):  # another process was first
            self._objects.delete(name)


def _archive(folder: Path) -> Path:
    """Write the files of a part, the summary first, and the checksum behind them, to a file next to the folder."""
    path = folder.with_name("archive")
    names = sorted(os.listdir(folder), key=lambda name: (name != SUMMARY, name))
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            archive.add(folder / name, name)
    with path.open("rb+") as file:
        checksum = hashlib.file_digest(file, "sha256").digest()
        file.seek(0, os.SEEK_END)
        file.write(checksum)
    return path


def _names(store: ObjectStore) -> set[str]:
    """Return the names of all objects of a store; none if it leads to nothing."""
    try:
        return {info.name for info in store.list()}
    except FileNotFoundError:
        return set()
