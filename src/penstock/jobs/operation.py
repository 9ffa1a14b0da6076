"""`Operation`: what jobs do, and the operations by name.

An operation divides a dataset into *blocks*, which do not depend on the number of jobs or workers. A job works on
consecutive blocks and returns bytes. `finish` takes the bytes of all jobs in order. The result of an operation is
correct if `finish` gives the same for every partition of the blocks, and `run` is a pure function.

The *survey* of a work plan has facts found by reading the data, which workers therefore need not read again: answers of
the operation itself (`Operation.survey`), and the indexes in the user's cache that were used. A worker on another
machine puts these into its own cache. An index names the state of the data that it belongs to, so an index of other
data is not believed, and the worker makes another one.

Results are bytes (`pack`): plain values as JSON, and arrays as raw bytes behind it. The format is a length of 8 bytes,
the JSON text of that length, then the arrays. In the JSON text, an array is an object with its dtype, shape and offset.
Nothing in it is executed when it is read.
"""

from __future__ import annotations

import json
import pkgutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.errors import DataError, FormatError, StateError, suggestion
from penstock.files import noted_files, write_atomic
from penstock.files.user_cache import user_cache

OPERATIONS = {
    "stats": "penstock.jobs.operations.stats:StatisticsOperation",
    "check": "penstock.jobs.operations.check:CheckOperation",
    "verify": "penstock.jobs.operations.verify:VerifyOperation",
    "convert": "penstock.jobs.operations.convert:ConvertOperation",
    "reshard": "penstock.jobs.operations.reshard:ReshardOperation",
    "index": "penstock.jobs.operations.index:IndexOperation",
    "cache": "penstock.jobs.operations.cache:CacheOperation",
    "pack": "penstock.jobs.operations.pack:PackOperation",
    "record": "penstock.jobs.operations.record:RecordOperation",
}

LEAST_BYTES = 16 << 20
INDEX_BYTES = 256 << 20
"""Bytes of all indexes of a survey; larger ones are left out, and each machine makes them once."""
_ARRAY = "__array__"


class Operation(ABC):
    """One kind of work on one dataset, opened in this process.

    Args:
        arguments: Plain values, which a work plan stores.
        survey: What `survey` of another process returned for the same arguments and data. The default is none: the data
            are read.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> arguments = {"location": str(penstock.convert(data, tempfile.mkdtemp() + "/data").out)}
        >>> with open_operation("stats", arguments) as operation:
        ...     result = operation.finish([operation.run(0, len(operation.weights()), threads=0)])
        >>> result == penstock.statistics(data)
        True
    """

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        self.arguments = dict(arguments)

    def survey(self) -> bytes:
        """Return what opening learned by reading the data, so that other processes open without reading it again."""
        return b""

    @property
    def runs_user_code(self) -> bool:
        """Whether jobs run code that may end or block its process, which therefore must not be the coordinator."""
        return False

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Digest of the data that the operation reads."""

    @abstractmethod
    def weights(self) -> IntArray:
        """Return `[B]` int64 bytes of each block. A block is never divided."""

    @property
    def least_bytes(self) -> int:
        """Bytes from which on the work of a job exceeds what it costs to begin and to merge one."""
        return LEAST_BYTES

    @abstractmethod
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        """Return the result of blocks `first` to `last - 1`, a pure function of the arguments and the data.

        Args:
            first: The first block.
            last: The block after the last one.
            threads: Threads to use; 0 works in the caller.
        """

    @abstractmethod
    def finish(self, results: Iterable[bytes]) -> Any:
        """Return the result of the whole operation.

        Args:
            results: Results of `run` of consecutive ranges, which cover all blocks, in order.
        """

    def has_part(self, result: bytes) -> bool:
        """Return whether the files that a result names exist, or were moved by `finish`. If not, the job runs again.

        Args:
            result: A result of `run`.
        """
        return True

    def finished(self) -> Any:
        """Return the result if `finish` completed the target before, perhaps in another process; otherwise None.

        Only an operation with a target on disk can tell.

        Raises:
            FileExistsError: Something else is at the target.
        """
        return None

    @abstractmethod
    def describe(self, first: int, last: int) -> str:
        """Return the place of some blocks for people, such as `"episodes 0 to 99"`.

        Args:
            first: The first block.
            last: The block after the last one.
        """

    def close(self) -> None:
        """Close the dataset."""

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_operation(name: str, arguments: Mapping[str, Any], survey: bytes = b"") -> Operation:
    if name not in OPERATIONS:
        raise DataError(f"expected an operation among {list(OPERATIONS)}, got {name!r}{suggestion(name, OPERATIONS)}")
    return pkgutil.resolve_name(OPERATIONS[name])(arguments, survey)


def surveyed(name: str, arguments: Mapping[str, Any]) -> tuple[Operation, bytes]:
    """Open an operation, and return it with the survey for other processes."""
    with noted_files() as paths:
        operation = open_operation(name, arguments)
    learned = operation.survey()
    indexes = _indexes(sorted(paths))
    return operation, pack({"operation": learned, "indexes": indexes}) if learned or indexes else b""


def open_with(survey: bytes, name: str, arguments: Mapping[str, Any]) -> Operation:
    """Open an operation with the survey of another process."""
    if not survey:
        return open_operation(name, arguments)
    entries: dict[str, Any] = unpack(survey)
    for path, content in entries["indexes"]:
        _install(path, content)
    return open_operation(name, arguments, entries["operation"])


def _indexes(paths: list[str]) -> list[tuple[str, bytes]]:
    """The files in the user's cache among some files, by their place in it."""
    try:
        root = user_cache("").absolute()
    except OSError:
        return []
    indexes: list[tuple[str, bytes]] = []
    size = 0
    for path in map(Path, paths):
        if path.is_relative_to(root) and path.is_file() and size + path.stat().st_size <= INDEX_BYTES:
            indexes.append((path.relative_to(root).as_posix(), path.read_bytes()))
            size += len(indexes[-1][1])
    return indexes


def _install(place: str, content: bytes) -> None:
    """Put an index into the user's cache, unless there is one. Without a folder for caches, it is made in memory."""
    relative = PurePath(place)
    if relative.is_absolute() or ".." in relative.parts:
        raise FormatError(f"expected places in the cache, got {place!r}")
    try:
        path = user_cache("") / relative
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
    except OSError:
        return  # as where the index cannot be saved: the data are read


class OpenedOperation:
    """The operation that this process opened last. Jobs of one work plan share it, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digest = ""
        self._operation: Operation | None = None

    def get(
        self, digest: str, name: str, arguments: Mapping[str, Any], fingerprint: str, blocks: int, survey: bytes = b""
    ) -> Operation:
        """Return the operation of a work plan, opened at its first job."""
        with self._lock:
            if self._operation is not None and self._digest == digest:
                return self._operation
            opened = open_with(survey, name, arguments)
            try:
                if opened.fingerprint != fingerprint:
                    raise StateError(
                        "expected the data and the function of the work plan, got what changed since; make a new plan"
                    )
                if (count := len(opened.weights())) != blocks:
                    raise FormatError(f"expected ranges over {count} blocks, got {blocks}; make a new plan")
            except BaseException:
                opened.close()
                raise
            if self._operation is not None:
                self._operation.close()
            self._digest, self._operation = digest, opened
            return opened

    def close(self) -> None:
        with self._lock:
            if self._operation is not None:
                self._operation.close()
            self._digest, self._operation = "", None


OPENED = OpenedOperation()


def pack(value: Any) -> bytes:
    """Return plain values with arrays in them as bytes."""
    arrays: list[bytes] = []
    size = 0

    def plain(item: Any) -> dict[str, tuple[Any, ...]]:
        if isinstance(item, bytes):
            return {_ARRAY: ("bytes", (), *store(item))}
        array = np.ascontiguousarray(item)
        return {_ARRAY: (array.dtype.str, np.shape(item), *store(array.tobytes()))}

    def store(data: bytes) -> tuple[int, int]:
        nonlocal size
        arrays.append(data)
        size += len(data)
        return size - len(data), len(data)

    text = json.dumps(value, default=plain).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *arrays])


def unpack(data: bytes | memoryview) -> Any:
    """Return the values of `pack`. Arrays are read-only views of `data`."""
    raw = memoryview(data)
    end = 8 + int.from_bytes(raw[:8], "little")

    def restored(item: dict[str, Any]) -> Any:
        if item.keys() != {_ARRAY}:
            return item
        dtype, shape, offset, size = item[_ARRAY]
        part = raw[end + offset : end + offset + size]
        return bytes(part) if dtype == "bytes" else np.frombuffer(part, np.dtype(dtype)).reshape(shape)

    try:
        return json.loads(bytes(raw[8:end]), object_hook=restored)
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"expected the result of a job, got {error!r}") from error
