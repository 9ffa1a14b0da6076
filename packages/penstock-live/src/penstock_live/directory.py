"""`FilePathProvider`: finds each file of a growing directory once, when it is complete."""

from __future__ import annotations

import logging
import os
import stat as modes
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from penstock.errors import FormatError, MissingExtraError, PlanError, require
from penstock_live.identity import FileRegister, FoundFile, Inode

Watch = Literal["auto", "native", "poll", "off"]
EVENTS = 1 << 16  # more that wait are forgotten, and the directory is listed instead
LISTINGS = 8  # that look for a renamed file; more than two only while others are renamed or arrive
AT_ONCE = 256  # files whose contents are looked at between two polls
LOG = logging.getLogger("penstock_live")


class FilePathProvider:
    """Finds the files below `directory`: `scan` returns existing files and `poll` returns new ones.

    Files and folders whose name starts with a dot are skipped. A file is taken once it is complete: when its writer
    closed it or it was moved in, or when its size and modification time are equal at two checks `settle` seconds apart.
    The scan takes files that have not changed for `settle` seconds. No file is taken twice: see `FileRegister`. Pipes,
    sockets and other special files are skipped and never opened. `deleted` names files that were taken and have been
    deleted; if they return, they are taken again.

    An outage is not a deletion: no file counts as deleted while the directory is missing, cannot be listed, or is empty
    although files were taken (such as the mount point of an unmounted disk). `outage` describes the outage; after it,
    the next `poll` watches and lists the directory again.

    `watch="native"` uses change events of the system (needs `penstock-live[watch]`), and also lists the directory every
    `rescan` seconds and after lost events. `"poll"` lists it every `interval` seconds, for network disks. `"auto"` is
    native where that works and otherwise polls; `mode` says which. `"off"` is for a finished directory: every file is
    taken as it is at the scan, and none later.

    `clock` returns seconds; `key` the key that sorts a path by age. Not thread-safe.

    Cost: the scan lists names, `take` checks one file.

    Args:
        directory: The folder, which must exist.
        watch: `"auto"`, `"native"`, `"poll"` or `"off"`. The default is `"auto"`.
        settle: Seconds without a change after which a file is complete. The default is 2.
        interval: Seconds between two listings with `watch="poll"`. The default is 5.
        rescan: Seconds between two listings with native watching. The default is 60.
        clock: Returns the time in seconds.
        key: Returns the key that sorts a path by age. The default is the path.

    Raises:
        FormatError: The directory does not exist.
        PlanError: `watch` is unknown, or a time is negative.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b.gz", "a.gz", ".c.gz.partial"):
        ...         _ = Path(folder, name).write_bytes(name.encode())
        ...     provider = FilePathProvider(folder, watch="off")
        ...     names = provider.scan()
        ...     sizes = [provider.take(name).size for name in names]
        >>> names, sizes
        (['b.gz', 'a.gz'], [4, 4])
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        watch: Watch = "auto",
        settle: float = 2.0,
        interval: float = 5.0,
        rescan: float = 60.0,
        clock: Callable[[], float] = time.time,
        key: Callable[[PurePosixPath], str] = lambda path: path.name,
    ) -> None:
        self.directory = Path(directory)
        if watch not in get_args(Watch) or min(settle, interval, rescan) < 0:
            raise PlanError(f"expected watch to be one of {get_args(Watch)} and times of zero or more, got {watch!r}")
        if not self.directory.is_dir():
            raise FormatError("expected a directory of chunk files, got none; create it or correct it", path=directory)
        self.mode, self.why = watch, ""
        self._settle = settle
        self._interval = interval
        self._rescan = rescan
        self._clock = clock
        self._key = key
        self.register = FileRegister(self.directory)
        self._passed_over: dict[str, tuple[int, int] | None] = {}  # not taken; size and time once seen
        self._looks: dict[str, tuple[int, int, float]] = {}  # size, time of change, when it was seen so first
        self._events: deque[tuple[str, str, bool]] = deque()
        self._woken, self._lost = threading.Event(), False
        self._observer: Any = None
        self._listed_at = 0.0
        self._deleted: list[str] = []
        self._again: deque[str] = deque()  # files that could not be opened
        self._look_soon = False
        self._away = ""
        self._was_away = False
        self._available = threading.Event()
        self._available.set()

    @property
    def counts(self) -> Counter[str]:
        """`files`, `duplicates`, `rewritten`, `renamed`, `deleted`, `vanished`, `not_a_file`, `rescans`,
        `lost_events`."""
        return self.register.counts

    def key(self, name: str) -> str:
        """Return the key that sorts a file by age.

        Args:
            name: Path of the file below the directory.
        """
        return self._key(PurePosixPath(name))

    def scan(self) -> list[str]:
        """Return the names of all existing files, newest first, and start watching for changes. Takes no file."""
        if self.mode in ("auto", "native"):
            self._watch()
        self._listed_at = self._clock()
        names = sorted(self._list(), key=lambda name: (self.key(name), name), reverse=True)
        self._passed_over.update((name, None) for name in names if name not in self.register)
        return names

    def take(self, name: str) -> FoundFile | None:
        """Return a file of the scan; None if it is deleted, known, or incomplete: then `poll` returns it later.

        Args:
            name: Path of the file below the directory.
        """
        if self.mode != "off" and not self._rests(name):
            return None
        self._passed_over.pop(name, None)
        return self.register.take(name)

    def find(self, name: str) -> str | None:
        """Return the present name of a taken file, which is known under it from then on; None if it was deleted.

        Cost: lists the names, at least twice if the file is not among them.

        Args:
            name: Name under which the file is known.
        """
        inode = self.register.inode(name)
        if inode is None:
            return None
        for _ in range(LISTINGS):
            now = self._locate({inode}).get(inode)
            if now is None or self.register.rename(name, now):
                return now
            if (self.directory / now).exists():
                return None  # changed as well, or at both names
        return None

    def poll(self) -> list[FoundFile]:
        """Return complete files that are new since the last call, files closed by a writer first. Never waits."""
        if self.mode == "off":
            return []
        self._woken.clear()
        now = self._clock()
        if (self._away or self._is_listing_due(now)) and self.outage():
            return []
        if self._was_away:
            self._was_away, self._listed_at = False, float("-inf")
            self._watch_again()
        while self._again:
            self.register.forget(self._again.popleft())
            self._look_soon = True
        whole = self._drain()
        if self._observer is not None and not self._observer.is_alive():
            self._fall_back("the thread that watches ended")
        if self._is_listing_due(now):
            self._relist(now)
        settled = [name for name in self._looks if name not in whole and self._settled(name, now)]
        ready = [*whole, *sorted(settled, key=lambda name: (self.key(name), name))]
        for name in ready:
            self._looks.pop(name, None)
            self._passed_over.pop(name, None)
        files = [file for name in ready if (file := self.register.take(name, digest=True)) is not None]
        self.register.look_closer(AT_ONCE)
        return files

    def deleted(self) -> list[str]:
        """Return names of taken files that a `poll` found missing since the last call."""
        names, self._deleted = self._deleted, []
        return names

    def retry(self, name: str) -> None:
        """Retry a file that the system could not read, at the next listing of the directory. Any thread.

        Args:
            name: Path of the file below the directory.
        """
        self._again.append(name)

    def outage(self) -> str:
        """Return why the directory cannot be read; empty if it can. Any thread. Cost: reads its first entry."""
        try:
            with os.scandir(self.directory) as entries:
                is_empty = all(entry.name.startswith(".") for entry in entries)
            away = "it is empty" if is_empty and self.register.has_any else ""
        except OSError as error:
            away = error.strerror or str(error)
        before, self._away = self._away, away
        if away and not before:
            self._was_away = True
            self._available.clear()
            LOG.warning("%s: no files can be read (%s); waiting until they are back", self.directory, away)
        elif before and not away:
            LOG.info("%s: files are back", self.directory)
        if not away:
            self._available.set()
        return away

    @property
    def away(self) -> str:
        """Reason of the outage at the last check; empty if there was none."""
        return self._away

    def wait_for_files(self, timeout: float) -> None:
        """Wait until an outage is over, or `timeout` seconds. Any thread.

        Args:
            timeout: Seconds.
        """
        self._available.wait(timeout)

    def wait(self, timeout: float) -> None:
        """Wait until there may be new files, or `timeout` seconds.

        Args:
            timeout: Seconds.
        """
        self._woken.wait(min(timeout, self._interval if self._observer is None else timeout))

    def close(self) -> None:
        """Stop watching."""
        self._woken.set()
        self._available.set()
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.join()
        self.mode = "off"

    def _list(self, unread: list[str] | None = None) -> Iterator[str]:
        """Names of the files below the directory, in no order. Folders that cannot be read are passed over, and put
        into `unread`."""
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(self.directory / folder) as entries:
                    for entry in entries:
                        if entry.name.startswith("."):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(f"{folder}{entry.name}/")
                        elif entry.is_file():
                            yield folder + entry.name
            except OSError:
                self.counts["vanished"] += 1
                if unread is not None:
                    unread.append(folder)

    def _locate(self, inodes: set[Inode], before: set[str] | None = None) -> dict[Inode, str]:
        """Return the present names of taken files that are not at the names they were taken under.

        A listing may miss a file that is renamed while it runs, under both names. A file counts as missing only when
        two listings in a row, the first of which may be `before`, have the same names.
        """
        located: dict[Inode, str] = {}
        for _ in range(LISTINGS):
            names = set(self._list())
            for name in names:
                if name in self.register:
                    continue
                try:
                    stat = (self.directory / name).stat()
                except OSError:
                    continue  # renamed since: the next listing has other names
                if (inode := (stat.st_dev, stat.st_ino)) in inodes:
                    located[inode] = name
            if len(located) == len(inodes) or names == before:
                break
            before = names
        return located

    def _is_listing_due(self, now: float) -> bool:
        """Return whether it is time to list the directory: earlier after a deletion, but once for many deletions."""
        soon = self._observer is None or self._look_soon
        return self._lost or now - self._listed_at >= (self._interval if soon else self._rescan)

    def _relist(self, now: float) -> None:
        """List all files, and schedule a second check of new and changed files."""
        self._listed_at = now
        self._lost = False
        self._look_soon = False
        self.counts["rescans"] += 1
        unread = list[str]()
        names = set[str]()
        inodes = set[Inode]()
        for name in self._list(unread):
            names.add(name)
            stat = self._candidate(name, now)
            if stat is not None and name not in self.register:
                inodes.add((stat.st_dev, stat.st_ino))
        self._looks = {name: look for name, look in self._looks.items() if (self.directory / name).exists()}
        missing = [n for n in self.register.names() if n not in names and not n.startswith(tuple(unread))]
        missing = [name for name in missing if self._is_deleted(name, inodes)]
        if missing:
            inodes = set(self._locate({inode for name in missing if (inode := self.register.inode(name))}, names))
        deleted = [name for name in missing if self.register.inode(name) not in inodes and self.register.forget(name)]
        self._deleted += deleted
        if deleted:
            self.counts["deleted"] += len(deleted)

    def _is_deleted(self, name: str, inodes: set[Inode]) -> bool:
        """Whether a file that is not listed is gone: it may have come since, or have another name that is not taken
        yet."""
        try:
            (self.directory / name).stat()
        except FileNotFoundError:
            return self.register.inode(name) not in inodes
        except OSError:
            return False
        return False

    def _candidate(self, name: str, now: float) -> os.stat_result | None:
        """Schedule a check of a file that is new or changed, and return its present status."""
        try:
            stat = (self.directory / name).stat()
        except OSError:
            return None
        if not modes.S_ISREG(stat.st_mode):
            self.counts["not_a_file"] += 1
            return None
        as_now = (stat.st_size, stat.st_mtime_ns)
        if name in self._passed_over and self._passed_over[name] in (None, as_now):
            self._passed_over[name] = as_now  # older than what was wanted at the scan, and still the same
        elif not self.register.same(name, stat) and self._looks.get(name, (0, 0, 0.0))[:2] != as_now:
            self._looks[name] = (*as_now, now)
        return stat

    def _settled(self, name: str, now: float) -> bool:
        """Return whether a file is unchanged since an earlier check, long enough ago."""
        size, mtime, since = self._looks[name]
        try:
            stat = (self.directory / name).stat()
        except OSError:
            return True  # gone: to be counted when it is taken
        if (stat.st_size, stat.st_mtime_ns) != (size, mtime):
            self._looks[name] = (stat.st_size, stat.st_mtime_ns, now)
            return False
        return now > since and now - since >= self._settle

    def _rests(self, name: str) -> bool:
        """Return whether a file of the scan has not changed recently; else schedule a later check."""
        now = self._clock()
        try:
            stat = (self.directory / name).stat()
        except OSError:
            return True
        if now - stat.st_mtime >= self._settle:
            return True
        self._passed_over.pop(name, None)
        self._looks[name] = (stat.st_size, stat.st_mtime_ns, now)
        return False

    def _watch(self) -> None:
        try:
            events: Any = require("watchdog.events", "watch", "penstock-live")
            observers: Any = require("watchdog.observers", "watch", "penstock-live")
            handler = events.FileSystemEventHandler()
            handler.on_any_event = self._heard
            self._observer = observers.Observer()
            self._observer.schedule(handler, str(self.directory), recursive=True)
            self._observer.start()
        except (MissingExtraError, OSError) as error:
            self._observer = None
            if self.mode == "native":
                raise
            self._fall_back(str(error))
        else:
            self.mode = "native"

    def _watch_again(self) -> None:
        """Watch a directory that was away: it may be another one now, of which the old watch tells nothing."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
            self._observer = None
            self._watch()

    def _fall_back(self, why: str) -> None:
        self._observer = None
        self.mode = "poll"
        self.why = why
        self._lost = True

    def _heard(self, event: Any) -> None:
        """Handle an event of the system; called by its thread."""
        if event.event_type not in ("closed", "moved", "created", "deleted"):
            return
        if len(self._events) >= EVENTS:
            self._lost = True
        else:
            path = event.dest_path if event.event_type == "moved" else event.src_path
            self._events.append((event.event_type, os.fsdecode(path), event.is_directory))
        self._woken.set()

    def _drain(self) -> list[str]:
        """Return names of files that are complete according to events, in the order of the events."""
        whole: dict[str, None] = {}
        now = self._clock()
        if self._lost:
            self.counts["lost_events"] += 1
        for _ in range(len(self._events)):
            kind, path, is_folder = self._events.popleft()
            name = self._name(path)
            if name is None:
                continue
            self._look_soon = self._look_soon or kind == "deleted"
            if is_folder and kind == "deleted":
                continue
            if is_folder:
                self._lost = True  # its earlier contents are found by listing all files
            elif kind == "deleted":
                self._looks.pop(name, None)
                whole.pop(name, None)
            elif kind == "created":
                self._passed_over.pop(name, None)
                self._candidate(name, now)
            else:
                whole[name] = None
        return [name for name in whole if (self.directory / name).is_file()]

    def _name(self, path: str) -> str | None:
        """The relative name; None for what is elsewhere, or skipped."""
        try:
            parts = Path(path).relative_to(self.directory).parts
        except ValueError:
            return None
        return None if not parts or any(part.startswith(".") for part in parts) else "/".join(parts)
