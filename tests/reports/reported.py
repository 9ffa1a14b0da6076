"""Public bug reports that are tests here: `report` marks a test with the project, the number and the property.

They are here, and in files of packages whose names end in `_reports`. The site lists them (`docs/tables.py`).
"""

# pyright: basic

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])
REFERENCE = re.compile(r"[\w.-]+/[\w.-]+#\d+")


def report(reference: str, property: str) -> Callable[[Test], Test]:
    """Mark a test as the test of a public report. Several marks are several reports of one property."""
    if REFERENCE.fullmatch(reference) is None:
        raise ValueError(f"expected a reference such as 'owner/repository#12', got {reference!r}")
    return lambda test: test
