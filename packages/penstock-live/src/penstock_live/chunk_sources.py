"""`ChunkSourceLoader`: opens the newest files as sources of chunks until there are enough."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from typing_extensions import override

from penstock.errors import FormatError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import StageMetrics
from penstock.flow.ordered_map import OrderedMap
from penstock_live.account import SourceGone, may_pass, reason_of
from penstock_live.chunk_source import Opener
from penstock_live.directory import FilePathProvider
from penstock_live.identity import FoundFile
from penstock_live.journal import Arrival
from penstock_live.open_source import OpenSource


class Inlet(ABC):
    """Origin of sources of chunks: files of a directory, or episodes of a growing dataset.

    Example:
        >>> import penstock
        >>> from penstock_live import EpisodeInlet
        >>> source = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2]).source
        >>> isinstance(EpisodeInlet(source, ["rewards"]), Inlet)
        True
    """

    metrics: StageMetrics
    reads_frames_alone = False  # of any chunk, without the rest of the chunk

    @abstractmethod
    def newest(self) -> Generator[OpenSource]:
        """Yield existing sources, newest first; the caller closes the generator when it has enough. Called once."""

    def begin(self, wanted: int) -> list[OpenSource]:
        """Return the newest existing sources that together have `wanted` chunks, oldest first. Called once.

        Args:
            wanted: Number of chunks that suffice.
        """
        opened: list[OpenSource] = []
        with contextlib.closing(self.newest()) as newest:
            for each in newest:
                opened.append(each)
                wanted -= len(each)
                if wanted <= 0:
                    break
        return opened[::-1]

    @abstractmethod
    def poll(self) -> list[OpenSource]:
        """Return new sources in the order of arrival. Never waits."""

    @abstractmethod
    def open(self, arrival: Arrival) -> OpenSource:
        """Reopen an earlier source.

        Args:
            arrival: The earlier source.

        Raises:
            SourceGone: Its file is gone. Other errors say that it is damaged.
        """

    def resume(self, known: Sequence[Arrival], newest: str) -> None:
        """Resume a run that has taken `known`; `begin` then returns only sources newer than all of them.

        Args:
            known: Sources that the run has taken.
            newest: Sort key of the newest source.
        """

    def lost(self) -> list[str]:
        """Return names whose chunks have become unreadable since the last call."""
        return []

    def unopened(self) -> list[tuple[str, BaseException]]:
        """Return names and errors of new files that could not be opened since the last call."""
        return []

    def outage(self) -> str:
        """Return why files cannot be read at present; empty if they can. Any thread."""
        return ""

    @property
    def away(self) -> str:
        """Reason of the outage at the last check; empty if there was none."""
        return ""

    def wait_for_files(self, timeout: float) -> None:
        """Wait until an outage is over, or `timeout` seconds. Any thread.

        Args:
            timeout: Seconds.
        """

    def wait(self, timeout: float) -> None:
        """Wait until there may be new sources, or `timeout` seconds.

        Args:
            timeout: Seconds.
        """

    def close(self) -> None:
        """Stop watching for new sources."""


class ChunkSourceLoader(Inlet):
    """Opens the files of a `provider` with `opener`, by `threads` threads, or with 0 in the thread that asks for files.

    At the start, files are opened from the newest on until they have the wanted number of chunks; at most `threads`
    files are opened in vain. Other files are counted as `skipped`, and files that cannot be opened as
    `failed.<reason>`, by name; the run continues. Files that the system cannot open are tried again whenever the
    directory is listed. Lost chunks of a damaged file are counted as `failed.torn`. A file that was changed or deleted
    after it was taken raises `SourceGone`; a renamed file is found again.

    Args:
        provider: Finds the files.
        opener: Opens a file, called as `opener(path)`.
        threads: Number of threads that open files. 0 opens them in the thread that asks. The default is 1.
        metrics: Counts and times to update. The default None makes new ones.

    Example:
        >>> import tempfile, numpy as np
        >>> from pathlib import Path
        >>> from penstock_live.chunk_source import ChunkSource, chosen
        >>> class Whole(ChunkSource):
        ...     def __init__(self, path):
        ...         self.key, self.path = path.name, path
        ...     def __len__(self):
        ...         return 1
        ...     def load(self, i, wanted=None):
        ...         return chosen(np.fromfile(self.path, np.uint8)[:, None], wanted)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b", "a"):
        ...         _ = Path(folder, name).write_text(name)
        ...     loader = ChunkSourceLoader(FilePathProvider(folder, watch="off"), Whole)
        ...     opened = loader.begin(wanted=9)
        >>> [each.arrival.name for each in opened]
        ['a', 'b']
    """

    def __init__(
        self, provider: FilePathProvider, opener: Opener, threads: int = 1, metrics: StageMetrics | None = None
    ) -> None:
        self.provider = provider
        self._opener = opener
        self._threads = threads
        self.metrics = metrics or StageMetrics("chunk_source_loader", max(threads, 1))
        self._names: dict[str, str] = {}  # of files that were renamed, by the name they were taken under
        # The provider's register and `_names` change together: a file that a poll has just registered under its new
        # name cannot be found under its old one.
        self._renaming = threading.Lock()
        self._gone: set[str] = set()
        self._lost: list[str] = []
        self._unopened: deque[tuple[str, BaseException]] = deque()
        self._failed: set[str] = set()  # files that were counted as such
        self._newest: str | None = None
        self._latest = 0

    @override
    def newest(self) -> Generator[OpenSource]:
        names = [name for name in self.provider.scan() if self._is_news(name)]
        files = (file for name in names if (file := self.provider.take(name)) is not None)
        with OrderedMap(self._open_found, files, PrefetchLimits(self._threads, max(self._threads, 1))) as results:
            yield from (result for result in results if result is not None)

    @override
    def poll(self) -> list[OpenSource]:
        files: list[FoundFile] = []
        with self._renaming:
            for file in self.provider.poll():
                if file.was is not None:
                    self._renamed(file.was, file.name)
                    continue
                if file.rewritten:
                    self._lost.append(file.name)
                files.append(file)
            deleted = {self._taken_as(name) for name in self.provider.deleted()}
            self._lost += deleted
            for name in deleted:
                self._names.pop(name, None)
        return list(self._open_all(files))

    @override
    def open(self, arrival: Arrival) -> OpenSource:
        path = self._path(arrival.name)
        check = partial(self._check, arrival, path)
        check(path.stat())
        source = self._opener(path)
        if source is None:
            raise SourceGone("expected a file of chunks as before, got something else", path=path)
        return OpenSource(arrival, source, path, check)

    def _path(self, taken: str) -> Path:
        """Return the present path of a file that was taken under a name."""
        path = self.provider.directory / self._names.get(taken, taken)
        return path if path.exists() else self._renamed_path(taken)

    def _renamed_path(self, taken: str) -> Path:
        with self._renaming:
            name = self._names.get(taken, taken)
            path = self.provider.directory / name
            if path.exists():
                return path  # a poll or another thread found the name meanwhile, or it was away for a moment
            now = None if taken in self._gone else self.provider.find(name)
            if now is None and path.exists():
                return path
            if now is None:
                if self.provider.mode == "off" or not self.provider.outage():
                    self._gone.add(taken)  # not to list the directory for each of its chunks
                raise SourceGone("expected a file that was there before, got none", path=path)
            self._names[taken] = now
            return self.provider.directory / now

    def _check(self, arrival: Arrival, path: Path, stat: os.stat_result) -> None:
        """Raise `SourceGone` for a file that has changed since it was taken. An identical rewrite is accepted."""
        if (stat.st_size, stat.st_mtime_ns) == (arrival.size, arrival.mtime_ns):
            return
        with self._renaming:
            name = self._names.get(arrival.name, arrival.name)
            as_before = self.provider.register.same_contents(name, path, stat.st_size, arrival.mtime_ns)
        if not as_before:
            raise SourceGone("expected a file as it was before, got one that changed", path=path)

    @override
    def resume(self, known: Sequence[Arrival], newest: str) -> None:
        for arrival in known:
            self.provider.register.remember(arrival.name, arrival.size, arrival.mtime_ns)
        self._newest, self._latest = newest, max((arrival.mtime_ns for arrival in known), default=0)

    @override
    def lost(self) -> list[str]:
        names, self._lost = self._lost, []
        return names

    @override
    def unopened(self) -> list[tuple[str, BaseException]]:
        return [self._unopened.popleft() for _ in range(len(self._unopened))]

    @override
    def outage(self) -> str:
        return self.provider.outage()

    @property
    @override
    def away(self) -> str:
        return self.provider.away

    @override
    def wait_for_files(self, timeout: float) -> None:
        self.provider.wait_for_files(timeout)

    @override
    def wait(self, timeout: float) -> None:
        self.provider.wait(timeout)

    @override
    def close(self) -> None:
        self.provider.close()

    def counts(self) -> Mapping[str, int]:
        """Return the counts of the provider."""
        return dict(self.provider.counts)

    def _open_all(self, files: Iterable[FoundFile]) -> Iterator[OpenSource]:
        with OrderedMap(self._open_found, files, PrefetchLimits(self._threads, 2 * self._threads + 2)) as results:
            yield from (result for result in results if result is not None)

    def _is_news(self, name: str) -> bool:
        """Return whether a resumed run should take a file of the scan: its key or its time is later."""
        if self._newest is None:
            return True
        if name in self.provider.register:
            return False
        try:
            mtime = os.stat(self.provider.directory / name).st_mtime_ns
        except OSError:
            return False
        return self.provider.key(name) > self._newest or mtime > self._latest

    def _taken_as(self, name: str) -> str:
        """Return the name under which a renamed file was taken."""
        return next((taken for taken, now in self._names.items() if now == name), name)

    def _renamed(self, was: str, name: str) -> None:
        self._gone.clear()
        for taken, current in list(self._names.items()):
            if current == was:
                self._names[taken] = name
                return
        self._names[was] = name

    def _open_found(self, file: FoundFile) -> OpenSource | None:
        with self.metrics.work():
            return self._try_to_open(file)

    def _try_to_open(self, file: FoundFile) -> OpenSource | None:
        try:
            source = self._opener(file.path)
        except Exception as error:  # noqa: BLE001  whatever a file makes its reader do, it must not end the run
            self._fails(file.name, error)
            return None
        if source is None:
            self.metrics.add(skipped=1)
            return None
        if len(source) == 0:
            source.close()
            if source.expected:
                self._fails(file.name, FormatError(source.torn or "expected chunks, got none"))
            else:
                self.metrics.add(empty=1)
            return None
        self.metrics.add(files=1, chunks=len(source))
        if source.torn is not None:
            self.metrics.failed("torn", file.name, source.torn, source.expected - len(source))
        arrival = Arrival(file.name, source.key, len(source), file.size, file.mtime_ns)
        return OpenSource(arrival, source, file.path, partial(self._check, arrival, file.path))

    def _fails(self, name: str, error: Exception) -> None:
        """Record a file that cannot be opened."""
        if name in self._failed:
            self.metrics.add(failed_again=1)
        else:
            self._failed.add(name)
            self.metrics.failed(reason_of(error), name, str(error))
        self._unopened.append((name, error))
        if may_pass(error):
            self.provider.retry(name)
