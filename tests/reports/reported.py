"""Public bug reports that are tests here: `report` marks a test with the project, the number and the property.

They are here, and in files of packages whose names end in `_reports`.
`docs/reference/reports.md` lists them all; `tests/reports/test_list.py` holds the page against the tests.
"""

# pyright: basic

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])
REFERENCE = re.compile(r"[\w.-]+/[\w.-]+#\d+")


@dataclass(frozen=True)
class Report:
    """A public report: `owner/repository#number`, the property that it is about, and the test of the property."""

    reference: str
    property: str
    test: str


REPORTS: list[Report] = []


def report(reference: str, property: str) -> Callable[[Test], Test]:
    """Mark a test as the test of a public report. Several marks are several reports of one property."""
    if REFERENCE.fullmatch(reference) is None:
        raise ValueError(f"expected a reference such as 'owner/repository#12', got {reference!r}")

    def marked(test: Test) -> Test:
        REPORTS.append(Report(reference, property, f"{test.__module__.rpartition('.')[2]}.{test.__name__}"))
        return test

    return marked
