"""The data layer for learning from sequential experience: open, record, plan, fetch, resume.

Importing this package loads nothing else: each name below is fetched from its own module when it is first used.

>>> import penstock
>>> penstock.Columns({"rewards": [1.0, 2.0]})
Columns(rewards: float64[2])
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core import spaces
    from penstock.core.columns import Columns
    from penstock.core.episode import Episode
    from penstock.core.ragged import Ragged
    from penstock.core.selection import Selection
    from penstock.core.spec import Field, Spec
    from penstock.errors import (
        ChecksumError,
        DataError,
        ExpiredRowError,
        FormatError,
        LockedError,
        MissingExtraError,
        PenstockError,
        PlanError,
        SpecError,
        StateError,
        UnknownFormatError,
        UnsafeDataError,
        WorkerError,
    )
    from penstock.formats.base.format import Format
    from penstock.formats.base.source import Source
    from penstock.formats.base.writer import Writer
    from penstock.formats.memory import MemorySource

__version__ = "0.1.0"

__all__ = [
    "ChecksumError",
    "Columns",
    "DataError",
    "Episode",
    "ExpiredRowError",
    "Field",
    "Format",
    "FormatError",
    "LockedError",
    "MemorySource",
    "MissingExtraError",
    "PenstockError",
    "PlanError",
    "Ragged",
    "Selection",
    "Source",
    "Spec",
    "SpecError",
    "StateError",
    "UnknownFormatError",
    "UnsafeDataError",
    "WorkerError",
    "Writer",
    "spaces",
]

# Where each public name lives, as `pkgutil.resolve_name` reads it.
_HOME = {
    "ChecksumError": "penstock.errors:ChecksumError",
    "Columns": "penstock.core.columns:Columns",
    "DataError": "penstock.errors:DataError",
    "Episode": "penstock.core.episode:Episode",
    "ExpiredRowError": "penstock.errors:ExpiredRowError",
    "Field": "penstock.core.spec:Field",
    "Format": "penstock.formats.base.format:Format",
    "FormatError": "penstock.errors:FormatError",
    "LockedError": "penstock.errors:LockedError",
    "MemorySource": "penstock.formats.memory:MemorySource",
    "MissingExtraError": "penstock.errors:MissingExtraError",
    "PenstockError": "penstock.errors:PenstockError",
    "PlanError": "penstock.errors:PlanError",
    "Ragged": "penstock.core.ragged:Ragged",
    "Selection": "penstock.core.selection:Selection",
    "Source": "penstock.formats.base.source:Source",
    "Spec": "penstock.core.spec:Spec",
    "SpecError": "penstock.errors:SpecError",
    "StateError": "penstock.errors:StateError",
    "UnknownFormatError": "penstock.errors:UnknownFormatError",
    "UnsafeDataError": "penstock.errors:UnsafeDataError",
    "WorkerError": "penstock.errors:WorkerError",
    "Writer": "penstock.formats.base.writer:Writer",
    "spaces": "penstock.core.spaces",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = globals()[name] = pkgutil.resolve_name(_HOME[name])
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
