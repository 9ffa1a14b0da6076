"""`StorageConstants`: how fast a storage answers, in a few numbers, as a JSON file."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.narrowing import is_dict
from penstock.errors import FormatError, PlanError
from penstock.files import write_atomic

VERSION = 1


@dataclass(frozen=True)
class StorageConstants:
    """Constants of a storage, as one host sees it, and limits of all hosts together.

    A request takes its latency, then its bytes at the speed of a connection. Latencies are log-normal, and some
    requests are stragglers, which take several times as long.

    Args:
        latency: Median seconds until the first byte of an answer.
        spread: Standard deviation of the logarithm of the latency, 0 or more. 0.35 means that a third of the requests
            takes less than 0.7 or more than 1.4 times the median.
        connection: Bytes a second of one connection.
        host: Bytes a second of one host.
        overhead: Seconds of processor time that a request costs a host. The default is 0.
        requests: Requests a second of all hosts together. The default is None: no limit.
        total: Bytes a second of all hosts together. The default is None: no limit.
        stragglers: Fraction of requests that are stragglers. The default is 0.
        straggle: How many times the latency a straggler takes. The default is 10.
        source: Where the constants are from, for people.

    Raises:
        PlanError: A constant is out of range.

    Example:
        >>> disk = StorageConstants(latency=1e-4, spread=0.2, connection=2e9, host=5e9, source="a local disk")
        >>> StorageConstants.decode(disk.encode()) == disk
        True
    """

    latency: float
    spread: float
    connection: float
    host: float
    overhead: float = 0.0
    requests: float | None = None
    total: float | None = None
    stragglers: float = 0.0
    straggle: float = 10.0
    source: str = ""

    def __post_init__(self) -> None:
        speeds = (self.connection, self.host, *(each for each in (self.requests, self.total) if each is not None))
        times = (self.latency, self.spread, self.overhead, self.straggle)
        if not all(math.isfinite(each) for each in (*speeds, *times)):
            raise PlanError(f"expected finite constants, got {self}")
        if min(times) < 0 or min(speeds) <= 0 or self.straggle < 1:
            raise PlanError(
                f"expected a latency, a spread and an overhead of 0 or more, and speeds above 0, got {self}"
            )
        if not 0 <= self.stragglers <= 1:
            raise PlanError(f"expected a fraction of stragglers within 0:1, got {self.stragglers}")

    def latencies(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw latencies in seconds.

        Args:
            shape: Shape of the result.
            rng: Generator of random numbers.
        """
        drawn = self.latency * np.exp(self.spread * rng.standard_normal(shape))
        return drawn * np.where(rng.random(shape) < self.stragglers, self.straggle, 1.0)

    def encode(self) -> bytes:
        """Return the text of the file."""
        return (json.dumps({"penstock_storage": VERSION, **asdict(self)}, indent=1) + "\n").encode()

    @classmethod
    def decode(cls, text: bytes, path: object = None) -> StorageConstants:
        """Return the constants that `encode` wrote.

        Args:
            text: The text.
            path: The file, for messages. The default is None.

        Raises:
            FormatError: The text is something else.
        """
        try:
            entries: Any = json.loads(text)
            if not is_dict(entries) or entries.pop("penstock_storage", None) != VERSION:
                raise FormatError(f"expected storage constants of version {VERSION}, got {text[:80]!r}", path=path)
            return cls(**entries)
        except (ValueError, TypeError, RecursionError, PlanError) as error:
            if isinstance(error, FormatError):
                raise
            names = [each.name for each in fields(cls)]
            raise FormatError(f"expected storage constants {names}, got {error!r}", path=path) from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> StorageConstants:
        """Read constants from a file.

        Args:
            path: The file.

        Raises:
            FormatError: The file is something else.
        """
        return cls.decode(Path(path).read_bytes(), path)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the constants to a file, atomically. An earlier file is replaced.

        Args:
            path: The file.
        """
        write_atomic(Path(path), self.encode(), overwrite=True)


OBJECT_STORE = StorageConstants(
    latency=0.141,
    spread=0.347,
    connection=87.5e6,
    host=1.25e9,
    requests=5500,
    stragglers=0.001,
    straggle=10,
    source="Amazon S3, one prefix, as its documentation states it; a network of 10 Gbit/s and stragglers are assumed",
)
"""Constants of an object store, from the performance guidelines of Amazon S3: the first byte after 100 to 200 ms (taken
as one standard deviation around the geometric mean), 85 to 90 MB/s a connection, 5,500 GET requests a second for each
prefix. The network of a host and the stragglers are assumptions. Measure your own storage (`measure_storage`)."""
