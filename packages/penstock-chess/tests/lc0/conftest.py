"""Games that others wrote, and chunks made by hand."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from penstock_chess.formats.lc0 import RECORDS

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "lc0"

Raw = Callable[..., bytes]


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of files that the originals wrote."""
    return GOLDEN


@pytest.fixture(scope="session")
def raw() -> Raw:
    """`raw(n, version, first)`: n records of a version whose rule50_count counts from `first`."""

    def made(n: int = 3, version: int = 6, first: int = 0) -> bytes:
        records: npt.NDArray[np.void] = np.zeros(n, RECORDS[version])
        records["version"] = version
        records["rule50_count"] = np.arange(first, first + n)
        if version >= 5:
            records["input_format"] = 1
        return records.tobytes()

    return made


@pytest.fixture(scope="session")
def chunk(raw: Raw) -> Raw:
    """The same records as a gzip."""

    def made(n: int = 3, version: int = 6, first: int = 0) -> bytes:
        return gzip.compress(raw(n, version, first), mtime=0)

    return made
