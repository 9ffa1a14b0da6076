"""Errors of chunks without positions, and their outcome in the account."""

from __future__ import annotations

from penstock.errors import DataError
from penstock.live.account import Outcome
from penstock.live.catalog import SourceGone, may_pass
from penstock.live.hooks import Rejected


class RejectedError(DataError):
    """A chunk that a function of the user's rejected."""

    def __init__(self, rejected: Rejected) -> None:
        self.reason = rejected.reason
        super().__init__(rejected.message or rejected.reason)


class EmptyError(DataError):
    """A chunk without frames."""

    reason = "empty"

    def __init__(self) -> None:
        super().__init__("expected at least one frame, got none")


class LostError(Exception):
    """A chunk that cannot be had, by `error`; nothing that a function of the user's raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def outcome_of(error: BaseException) -> Outcome:
    """What becomes of a chunk, or of a file, that cannot be read.

    >>> outcome_of(FileNotFoundError()), outcome_of(OSError()), outcome_of(EOFError())
    (<Outcome.GONE: 1>, <Outcome.UNREADABLE: 2>, <Outcome.DAMAGED: 5>)
    """
    if isinstance(error, SourceGone | FileNotFoundError):
        return Outcome.GONE
    if isinstance(error, RejectedError):
        return Outcome.REFUSED
    return Outcome.UNREADABLE if may_pass(error) else Outcome.DAMAGED
