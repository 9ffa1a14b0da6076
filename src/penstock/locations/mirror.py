"""Mirrors: a remote dataset as a folder of sparse local files, whose bytes are fetched when they are read.

    trees/<digest of the URL>/<digest of all names, sizes and versions>/
        mirror.json         URL without credentials, and name, size and version of each object
        <last part of the URL>[/...]    a hard link to the data of each cached object

`mirror` lists the objects of a URL and makes that folder; formats open it as any other, by the functions of
`penstock.files.remote` and `penstock.files.mapping`, which ask `fill` here for the ranges that they read. A dataset
that changed has another folder, while unchanged objects keep their blocks. A process that gets a path of a mirror from
another one reads `mirror.json`, and has the credentials of its environment alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.errors import DataError, FormatError, UnsafeDataError, set_place_names
from penstock.files.descriptors import open_descriptor
from penstock.files.locks import open_locked, try_lock, unlock
from penstock.files.remote import FOLDER, FileState, RemoteFile, RemoteFiles, Wanted, set_remote_files
from penstock.files.replace import write_atomic
from penstock.files.sparse import link_file
from penstock.files.user_cache import user_cache
from penstock.locations.blocks import BlockCache, saying_no_room
from penstock.locations.fetching import MirroredFile, begin_fetch, fill
from penstock.locations.objects import ObjectInfo, shown
from penstock.locations.proven import ProvenStore
from penstock.locations.stores import object_store

LIMIT = 64 << 30
"""Bytes of the cache of remote data; `PENSTOCK_CACHE_BYTES` sets another limit."""

MANIFEST = "mirror.json"
Listed = Mapping[str, tuple[ObjectInfo, str]]
"""Objects and their keys in the cache, by path below the folder of the mirror."""

_SIGNATURE = re.compile(
    r"(?i)(x-(amz|goog|oss|cos)-|awsaccesskeyid|googleaccessid|(key-pair-id|policy|signature|expires|sig|se|sp|sv|sr|st"
    r"|ske|skt|sks|skv|skoid|sktid|sip|spr|[a-z_]*token|[a-z_]*key|auth|jwt|hdnea|hdnts)=)"
)  # names in queries of URLs that are signed, or have a token

_DEPTH = 3  # folders from the root of the cache to a mirror: trees, URL, state


def mirror(url: str, options: Mapping[str, Any] | None = None, commits: dict[str, str] | None = None) -> Path:
    """Return a local path that stands for the object or folder at a URL. `commits` are as of `object_store`."""
    set_remote_files(MIRRORS)
    set_place_names(with_urls)
    store = object_store(url, options, commits)
    listed = store.list()
    if not listed:
        raise FileNotFoundError(f"nothing at {store.url}")
    cache = MIRRORS.cache()
    name = _last_part(url)
    place = [store.url, _plain_query(url)]
    objects = {_local_name(name, info): (info, _key(place, info)) for info in listed}
    state = [store.pinned, *(key for _, key in objects.values())]
    folder = cache.root / "trees" / _digest(url) / _digest(state)
    with saying_no_room(cache.root):
        MIRRORS.add(folder, store, objects)
    return folder / name


class Mirror:
    """The objects of one listing, by their paths below the folder."""

    def __init__(self, cache: BlockCache, store: ProvenStore, objects: Listed) -> None:
        self.cache = cache
        self.store = store
        self._objects = objects
        self._files: dict[str, MirroredFile] = {}

    def file(self, name: str) -> MirroredFile | None:
        """The file at a path below the folder."""
        file = self._files.get(name)
        if file is None and name in self._objects:
            info, key = self._objects[name]
            cached = self.cache.open(key, info.size)
            state = FileState(info.size, int(_digest([key])[:14], 16))
            file = self._files.setdefault(name, MirroredFile(self.store, info, cached, state))
        return file


class Mirrors(RemoteFiles):
    """All mirrors of this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._caches: dict[Path, BlockCache] = {}
        self._renewed: weakref.WeakSet[BlockCache] = weakref.WeakSet()  # all caches, also of folders that were deleted
        self._mirrors: dict[str, Mirror] = {}
        self._held: dict[str, int] = {}
        self.urls: dict[str, str] = {}
        """The URL of each mirrored object or folder, without credentials, by its path."""

    def renew(self) -> None:
        """In a forked process: nothing of the threads of the parent is here."""
        self._lock = threading.RLock()
        for cache in list(self._renewed):
            cache.renew()

    def cache(self, root: Path | None = None) -> BlockCache:
        """The cache of blocks in a folder. The default is the folder of the user."""
        root = user_cache(FOLDER).absolute() if root is None else root
        with self._lock:
            if root not in self._caches or self._caches[root].deleted:
                self._caches[root] = BlockCache(root, _limit())
                self._renewed.add(self._caches[root])
            return self._caches[root]

    def add(self, folder: Path, store: ProvenStore, objects: Listed) -> None:
        """Make the folder of a mirror, if there is none, and read it from this store."""
        cache = self.cache(folder.parents[_DEPTH - 1])
        self._hold(folder)
        for name, (info, key) in objects.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            link_file(cache.data_of(key, info.size), target)
        if not (folder / MANIFEST).exists():
            listed = [[name, info.name, info.size, info.version, key] for name, (info, key) in objects.items()]
            write_atomic(folder / MANIFEST, json.dumps({"url": store.pinned, "objects": listed}).encode())
        _remove_others(folder)
        with self._lock:
            self._mirrors[str(folder)] = Mirror(cache, store, objects)
            for name in objects:
                self.urls[str(folder / name.split("/", 1)[0])] = store.url

    def _hold(self, folder: Path) -> None:
        """Make a folder, and keep other processes from removing it, as long as this one lives."""
        with self._lock:
            if (fd := self._held.get(str(folder))) is not None and not os.fstat(fd).st_nlink:
                os.close(self._held.pop(str(folder)))  # somebody deleted the folder
            while str(folder) not in self._held:
                folder.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # another process removed it, and takes it for left over
                    self._held[str(folder)] = open_locked(folder, os.O_RDONLY, shared=True, wait=True)

    @override
    def find(self, path: str) -> RemoteFile | None:
        root, _, rest = path.partition(f"{os.sep}{FOLDER}{os.sep}")
        parts = rest.split(os.sep, _DEPTH)
        if parts[0] != "trees" or len(parts) <= _DEPTH or parts[_DEPTH] == MANIFEST:
            return None
        folder = os.path.join(root, FOLDER, *parts[:_DEPTH])
        mirror = self._mirrors.get(folder)
        if mirror is None:
            mirror = self._read(Path(folder))
        return None if mirror is None else mirror.file(parts[_DEPTH])

    def _read(self, folder: Path) -> Mirror | None:
        """A mirror that another process made."""
        try:
            manifest = cast("dict[str, Any]", json.loads((folder / MANIFEST).read_bytes()))
            objects = {
                str(local): (ObjectInfo(str(name), int(size), str(version)), str(key))
                for local, name, size, version, key in manifest["objects"]
            }
            store = object_store(str(manifest["url"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"expected the description of a mirror: {error}; delete it", path=folder) from error
        self.add(folder, store, objects)
        return self._mirrors[str(folder)]

    @override
    def fill(self, wanted: Sequence[Wanted]) -> Callable[[], None]:
        releases = [fill(cache, files) for cache, files in _by_cache(wanted).items()]
        return releases[0] if len(releases) == 1 else functools.partial(_call_all, releases)

    @override
    def begin_fetch(self, wanted: Sequence[Wanted], *, most: bool) -> None:
        for cache, files in _by_cache(wanted).items():
            begin_fetch(cache, files, most=most)


def _by_cache(wanted: Sequence[Wanted]) -> dict[BlockCache, list[tuple[MirroredFile, IntArray, IntArray]]]:
    """Ranges by the cache that their bytes are in."""
    by_cache: dict[BlockCache, list[tuple[MirroredFile, IntArray, IntArray]]] = {}
    for file, begin, end in wanted:
        if isinstance(file, MirroredFile):
            by_cache.setdefault(file.cached.cache, []).append((file, begin, end))
    return by_cache


def _call_all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


MIRRORS = Mirrors()
os.register_at_fork(after_in_child=MIRRORS.renew)


def with_urls(message: str) -> str:
    """Return a message in which paths below mirrors of this process are URLs without credentials."""
    if FOLDER in message:
        for root, url in list(MIRRORS.urls.items()):
            message = message.replace(root, url)
    return message


def _limit() -> int:
    given = os.environ.get("PENSTOCK_CACHE_BYTES", "")
    if given and not given.isdigit():
        raise DataError(f"expected PENSTOCK_CACHE_BYTES to be a number of bytes, got {given!r}")
    return int(given) if given else LIMIT


def _remove_others(folder: Path) -> None:
    """Remove the folders of earlier states of the same URL that no process uses."""
    for entry in os.scandir(folder.parent):
        if entry.path == str(folder):
            continue
        with suppress(OSError):
            fd = open_descriptor(entry.path, os.O_RDONLY)
            try:
                if try_lock(fd):
                    shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                unlock(fd)
                os.close(fd)


def _last_part(url: str) -> str:
    """The last name of a URL: formats look at the end of a file's name."""
    path = shown(url).split("::")[-1].split("://", 1)[-1].rstrip("/")
    return path.rpartition("/")[2] or "data"


def _local_name(root: str, info: ObjectInfo) -> str:
    parts = info.name.split("/") if info.name else []
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UnsafeDataError(f"expected names of objects below the folder, got {info.name!r}")
    return "/".join([root, *parts])


def _key(place: Sequence[str], info: ObjectInfo) -> str:
    # An object without a version may be another one at the next listing, so its blocks are not used again.
    return _digest([*place, info.name, info.size, info.version or secrets.token_hex(8)])


def _plain_query(url: str) -> str:
    """Return a query without signatures and credentials, which change while the object stays."""
    parts = [part for link in url.split("::") for part in link.partition("?")[2].partition("#")[0].split("&")]
    return "&".join(part for part in parts if part and not _SIGNATURE.match(part))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
