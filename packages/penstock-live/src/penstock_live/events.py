"""Events of the sources of a live stream, in the order in which they happened.

An `Intake` passes the first four kinds to each of its streams. The pool, the catalog and the reading threads append the
others to the event log of their stream. `LiveStream` alone applies events, in their order, to its pool, its catalog and
its account: before and after each draw, and before its figures or its state are read. So no stage calls a stage above
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_live.journal import Arrival
from penstock_live.open_source import OpenSource


@dataclass(frozen=True, slots=True)
class SourcesArrived:
    """The intake opened sources, oldest first. Of a part, `Arrival` counts the chunks of the part."""

    opened: Sequence[tuple[Arrival, OpenSource]]


@dataclass(frozen=True, slots=True)
class FilesDeleted:
    """Files were deleted or rewritten; `why` is the message for their chunks."""

    names: frozenset[str]
    why: str


@dataclass(frozen=True, slots=True)
class FileFailed:
    """A new file cannot be opened."""

    name: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class IntakeFailed:
    """The thread that takes new files ended with an error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class SourcePlaced:
    """The pool numbered the chunks of a source from `lo` on."""

    lo: int
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class SourceLeft:
    """The source whose numbers start at `lo` left the window, because newer ones cover it or it is used up."""

    lo: int


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    """The pool removed a source from the window, because its file is gone."""

    lo: int
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class SourceOpened:
    """The catalog opened the source whose numbers start at `lo`; damage took `torn` of its chunks."""

    lo: int
    torn: int


@dataclass(frozen=True, slots=True)
class ChunkGone:
    """A thread that reads found the file of a chunk deleted or rewritten."""

    number: int


Event = (
    SourcesArrived
    | FilesDeleted
    | FileFailed
    | IntakeFailed
    | SourcePlaced
    | SourceLeft
    | SourceRemoved
    | SourceOpened
    | ChunkGone
)
EventLog = deque[Event]


class PipelineFailure:
    """First error of an intake, which all streams of a pipeline share: each raises it before its next draw."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def set(self, error: BaseException) -> None:
        """Keep an error, unless there is one."""
        self._error = self._error or error

    def check(self) -> None:
        if self._error is not None:
            raise self._error
