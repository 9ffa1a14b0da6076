"""`WorkPlan`: a JSON file that says what is to be done, on which data, and in which parts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_dict
from penstock.data.chosen import refuse_credentials
from penstock.errors import FormatError, PlanError
from penstock.files import read_checked, write_atomic, write_checked
from penstock.jobs.operation import LEAST_BYTES, OPENED, Operation, surveyed

VERSION = 1
SURVEY = ".survey"
"""Suffix of the file next to a work plan with what its making learned about the data."""
SURVEY_MAGIC = b"penstock survey 1\n"
MOST_BYTES = 1 << 30
WANTED_JOBS = 256


class WorkRange(NamedTuple):
    """Blocks of one job.

    Attributes:
        first: The first block.
        last: The block after the last one.

    Example:
        >>> first, last = WorkRange(2, 5)
        >>> last - first
        3
    """

    first: int
    last: int


@dataclass(frozen=True)
class WorkPlan:
    """An operation, its arguments, the fingerprint of its data, and the ranges of the jobs.

    Args:
        operation: Name of the operation.
        arguments: Plain values.
        fingerprint: Fingerprint of the data.
        ranges: Blocks of each job. They cover all blocks, in order.
        survey: What making the plan learned about the data, for workers, which otherwise read it again. It is no part
            of the plan: the results are the same without it. The default is none.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> place = str(penstock.convert(data, tempfile.mkdtemp() + "/data").out)
        >>> work = WorkPlan.make("stats", {"location": place})
        >>> work.operation, work.ranges
        ('stats', (WorkRange(first=0, last=1),))
    """

    operation: str
    arguments: Mapping[str, Any]
    fingerprint: str
    ranges: tuple[WorkRange, ...]
    survey: bytes = field(default=b"", repr=False, compare=False)

    @classmethod
    def make(cls, operation: str, arguments: Mapping[str, Any], *, range_bytes: int | None = None) -> WorkPlan:
        """Open the data, and cut it into ranges.

        Args:
            operation: Name of the operation.
            arguments: Plain values.
            range_bytes: Bytes of a range. The default is None: a 256th of the data, from 16 MiB to 1 GiB.

        Raises:
            DataError: No operation has that name, or the arguments have credentials.
            PlanError: `range_bytes` is below 1.
        """
        refuse_credentials(arguments)
        opened, survey = surveyed(operation, arguments)
        with opened:
            ranges = cut_ranges(opened.weights(), range_bytes, opened.least_bytes)
            return cls(operation, dict(arguments), opened.fingerprint, ranges, survey)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the work plan, in hexadecimal digits."""
        return hashlib.sha256(self.encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.ranges)

    def encode(self) -> bytes:
        """Return the text of the file, the same for equal plans."""
        entries = {
            "penstock_work": VERSION,
            "penstock": version("penstock"),
            "operation": self.operation,
            "arguments": dict(self.arguments),
            "fingerprint": self.fingerprint,
            "ranges": [list(each) for each in self.ranges],
        }
        return (json.dumps(entries, sort_keys=True) + "\n").encode()

    @classmethod
    def decode(cls, text: bytes, path: object = None) -> WorkPlan:
        """Return the work plan that `encode` wrote.

        Args:
            text: The text.
            path: The file, for messages. The default is None.

        Raises:
            FormatError: The text is something else.
        """
        try:
            data: Any = json.loads(text)
            if not is_dict(data) or data.get("penstock_work") != VERSION:
                raise FormatError(f"expected a work plan of version {VERSION}, got {text[:80]!r}", path=path)
            if data["penstock"] != (installed := version("penstock")):
                raise FormatError(
                    f"expected a work plan of penstock {installed}, got one of {data['penstock']}, which "
                    "may cut other parts; make a new plan, or install the same version everywhere",
                    path=path,
                )
            ranges = tuple(WorkRange(int(first), int(last)) for first, last in data["ranges"])
            work = cls(str(data["operation"]), dict(data["arguments"]), str(data["fingerprint"]), ranges)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"expected a work plan, got {error!r}", path=path) from error
        ends = [0, *(each.last for each in ranges)]
        if any(first != end or last < first for (first, last), end in zip(ranges, ends[:-1], strict=True)):
            raise FormatError("expected ranges that follow each other, got gaps or overlaps", path=path)
        return work

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> WorkPlan:
        """Read a work plan.

        Args:
            path: The file.

        Raises:
            FormatError: The file is something else.
        """
        work = cls.decode(Path(path).read_bytes(), path)
        survey = read_checked(f"{os.fspath(path)}{SURVEY}", SURVEY_MAGIC, work.digest)
        return work if survey is None else replace(work, survey=bytes(survey))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the work plan to a new file, atomically, and the survey of the data next to it.

        Args:
            path: The file.

        Raises:
            FileExistsError: The path has other content, such as another work plan. The same plan is left unchanged.
        """
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not (place.is_file() and place.read_bytes() == self.encode()):
            try:
                write_atomic(place, self.encode(), overwrite=False)
            except FileExistsError as error:
                raise FileExistsError(
                    f"expected nothing at {place}, or this work plan, got {_content_of(place)}; remove it, or choose "
                    "another place"
                ) from error
        if self.survey:
            write_checked(f"{place}{SURVEY}", SURVEY_MAGIC, self.digest, self.survey)

    def opened(self) -> Operation:
        """Return the operation, which this process keeps open for further jobs.

        Raises:
            StateError: The data changed since the work plan was made.
            FormatError: The ranges do not cover the blocks of the data.
        """
        blocks = self.ranges[-1].last if self.ranges else 0
        return OPENED.get(self.digest, self.operation, self.arguments, self.fingerprint, blocks, self.survey)

    def run(self, number: int, *, threads: int = 0) -> bytes:
        """Run one job; return its result.

        Args:
            number: Number of the job, from 0.
            threads: Threads to use. The default is 0: work in the caller.

        Raises:
            PlanError: There is no job of that number.
            StateError: The data changed since the work plan was made.
        """
        if not 0 <= number < len(self):
            raise PlanError(f"expected a job within 0:{len(self)}, got {number}")
        return self.opened().run(*self.ranges[number], threads=threads)

    def place(self, number: int) -> str:
        """Return the number and the range of a job for people.

        Args:
            number: Number of the job.
        """
        return f"job {number} ({self.opened().describe(*self.ranges[number])})"


def _content_of(place: Path) -> str:
    """Describe the file or folder at a path, for a message."""
    if not place.is_file():
        return "a folder" if place.is_dir() else "a link"
    try:
        other = WorkPlan.decode(place.read_bytes(), place)
    except FormatError:
        return "another file, or a work plan of another version"
    return f"the work plan of another `{other.operation}`, or of data that changed since"


def cut_ranges(
    weights: IntArray, range_bytes: int | None = None, least_bytes: int = LEAST_BYTES
) -> tuple[WorkRange, ...]:
    """Cut blocks of `weights` bytes into ranges of about `range_bytes`: by default a 256th of all, at most 1 GiB."""
    if range_bytes is not None and range_bytes < 1:
        raise PlanError(f"expected ranges of at least 1 byte, got {range_bytes}")
    ends = np.cumsum(weights)
    total = int(ends[-1]) if len(ends) else 0
    size = max(min(total // WANTED_JOBS, MOST_BYTES), least_bytes) if range_bytes is None else range_bytes
    ranges: list[WorkRange] = []
    first = begin = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, begin + size, "right")), first + 1)
        ranges.append(WorkRange(first, last))
        first, begin = last, int(ends[last - 1])
    return tuple(ranges)
