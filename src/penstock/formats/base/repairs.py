"""`Repair`: one change of one file that mends a finding without loss of any complete episode.

A format says which repairs its files need (`Format.repairs`). `penstock.doctor.repair` saves the bytes that a repair
changes, and applies it. Every repair is computed from the present bytes, so that a repair that was killed is continued
by running it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, eq=False)
class Repair:
    """A change of one file."""

    finding: str
    path: Path
    message: str
    content: Callable[[], bytes] | None = None
    keep: int | None = None
    where: str | None = None


def cut_repair(path: Path, keep: int, size: int, *, where: str | None = None, then: bytes = b"") -> Repair:
    """Return the repair of a torn tail: keep some bytes."""
    message = f"cut {size - keep:,} bytes off the end" if size > keep else "close the end"
    return Repair("torn-tail", path, message, lambda: then, keep, where)
