"""`FilePathProvider`: the files of a directory that grows, each once, and only when it is whole."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from penstock.errors import FormatError, MissingExtraError, PlanError, require
from penstock.live.identity import FileRegister, FoundFile

Watch = Literal["auto", "native", "poll", "off"]
EVENTS = 1 << 16  # more that wait are forgotten, and the directory is listed instead
AT_ONCE = 256  # files whose contents are looked at between two polls


class FilePathProvider:
    """Finds the files below `directory`: `scan` those that are there, `poll` those that came since.

    Names that begin with a dot are skipped, and folders of such names. A file is taken once it is whole: when it was
    closed by its writer or moved in, or when its size and time of change are the same at two looks `settle` seconds
    apart; at the scan, when it did not change for so long. None is taken twice: see `FileRegister`.

    `watch`: `"native"` has the system tell of changes (needs the extra `watch`); the directory is listed all the same
    every `rescan` seconds, and whenever events were lost. `"poll"` lists it every `interval` seconds, as network disks
    need. `"auto"` is native where that works and else polls, which `mode` tells. `"off"` is for a directory that is
    finished: every file is taken as it is, and none after the scan.

    `clock` gives seconds; `key` the key that sorts a path by age. Not thread-safe.

    Cost: the scan lists names, `take` looks at one file. Raises `FormatError` where there is no such directory.

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
        self._settle, self._interval, self._rescan, self._clock, self._key = settle, interval, rescan, clock, key
        self.register = FileRegister(self.directory)
        self._passed_over: dict[str, tuple[int, int] | None] = {}  # not taken; size and time once seen
        self._looks: dict[str, tuple[int, int, float]] = {}  # size, time of change, when it was seen so first
        self._events: deque[tuple[str, str, bool]] = deque()
        self._woken, self._lost = threading.Event(), False
        self._observer: Any = None
        self._listed_at = 0.0

    @property
    def counts(self) -> Counter[str]:
        """`files`, `duplicates`, `rewritten`, `renamed`, `vanished`, `rescans`, `lost_events`."""
        return self.register.counts

    def key(self, name: str) -> str:
        """The key that sorts a file by age."""
        return self._key(PurePosixPath(name))

    def scan(self) -> list[str]:
        """Names of all files that are there, the newest first; from now on changes are watched. Takes none of them."""
        if self.mode in ("auto", "native"):
            self._watch()
        self._listed_at = self._clock()
        names = sorted(self._list(), key=lambda name: (self.key(name), name), reverse=True)
        self._passed_over.update((name, None) for name in names if name not in self.register)
        return names

    def take(self, name: str) -> FoundFile | None:
        """A file of the scan; None where it is gone, known, or not yet whole, in which case `poll` will give it."""
        if self.mode != "off" and not self._rests(name):
            return None
        self._passed_over.pop(name, None)
        return self.register.take(name)

    def find(self, name: str) -> str | None:
        """The name that a file which was taken has now; None where it is gone. Any thread. Cost: names are listed."""
        inode = self.register.inode(name)
        for other in self._list() if inode is not None else ():
            try:
                stat = (self.directory / other).stat()
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) == inode:
                return other
        return None

    def poll(self) -> list[FoundFile]:
        """Whole files that came since the last call, those that a writer closed first; never waits."""
        if self.mode == "off":
            return []
        self._woken.clear()
        whole = self._drain()
        now = self._clock()
        if self._observer is not None and not self._observer.is_alive():
            self._fall_back("the thread that watches ended")
        if self._lost or now - self._listed_at >= (self._rescan if self._observer is not None else self._interval):
            self._relist(now)
        settled = [name for name in self._looks if name not in whole and self._settled(name, now)]
        ready = [*whole, *sorted(settled, key=lambda name: (self.key(name), name))]
        for name in ready:
            self._looks.pop(name, None)
            self._passed_over.pop(name, None)
        found = [file for name in ready if (file := self.register.take(name, digest=True)) is not None]
        self.register.look_closer(AT_ONCE)
        return found

    def wait(self, timeout: float) -> None:
        """Wait until something may have come, or for so many seconds."""
        self._woken.wait(min(timeout, self._interval if self._observer is None else timeout))

    def close(self) -> None:
        """Stop watching."""
        self._woken.set()
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.join()
        self.mode = "off"

    def _list(self) -> Iterator[str]:
        """Names of the files below the directory, in no order. Folders that vanish meanwhile are passed over."""
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

    def _relist(self, now: float) -> None:
        """Look at every file: what is new, or not as it was, is to be looked at once more."""
        self._listed_at, self._lost = now, False
        self.counts["rescans"] += 1
        for name in self._list():
            self._candidate(name, now)
        self._looks = {name: look for name, look in self._looks.items() if (self.directory / name).exists()}

    def _candidate(self, name: str, now: float) -> None:
        try:
            stat = (self.directory / name).stat()
        except OSError:
            return
        as_now = (stat.st_size, stat.st_mtime_ns)
        if name in self._passed_over and self._passed_over[name] in (None, as_now):
            self._passed_over[name] = as_now  # older than what was wanted at the scan, and still the same
        elif not self.register.same(name, stat) and self._looks.get(name, (0, 0, 0.0))[:2] != as_now:
            self._looks[name] = (*as_now, now)

    def _settled(self, name: str, now: float) -> bool:
        """Whether a file is as it was at an earlier look, long enough ago."""
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
        """Whether a file of the scan did not change lately; else it is looked at later."""
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
            events, observers = require("watchdog.events", "watch"), require("watchdog.observers", "watch")
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

    def _fall_back(self, why: str) -> None:
        self._observer, self.mode, self.why, self._lost = None, "poll", why, True

    def _heard(self, event: Any) -> None:
        """An event of the system; called by its thread."""
        if event.event_type not in ("closed", "moved", "created", "deleted"):
            return
        if len(self._events) >= EVENTS:
            self._lost = True
        else:
            path = event.dest_path if event.event_type == "moved" else event.src_path
            self._events.append((event.event_type, os.fsdecode(path), event.is_directory))
        self._woken.set()

    def _drain(self) -> list[str]:
        """Names of files that events say are whole, in the order of the events."""
        whole: dict[str, None] = {}
        now = self._clock()
        if self._lost:
            self.counts["lost_events"] += 1
        for _ in range(len(self._events)):
            kind, path, is_folder = self._events.popleft()
            name = self._name(path)
            if name is None or (is_folder and kind == "deleted"):
                continue
            if is_folder:
                self._lost = True  # what it held before it was watched is found by a look at all
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
