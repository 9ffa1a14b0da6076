"""`Operation`: what jobs do, and the operations by name.

An operation divides a dataset into *blocks*, which do not depend on the number of jobs or workers. A job works on
consecutive blocks and returns bytes. `finish` takes the bytes of all jobs in order. The result of an operation is
correct if `finish` gives the same for every partition of the blocks, and `run` is a pure function.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.core.arrays import IntArray
from penstock.errors import DataError, suggestion

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

    runs_user_code = False
    """Whether jobs run code that may end or block its process, which therefore must not be the coordinator."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        self.arguments = dict(arguments)

    def survey(self) -> bytes:
        """Return what opening learned by reading the data, so that other processes open without reading it again."""
        return b""

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
    """Open the dataset of an operation."""
    if name not in OPERATIONS:
        raise DataError(f"expected an operation among {list(OPERATIONS)}, got {name!r}{suggestion(name, OPERATIONS)}")
    return pkgutil.resolve_name(OPERATIONS[name])(arguments, survey)
