"""Errors of chunks and files that cannot be read: their reason, whether they may pass, their outcome in the account."""

from __future__ import annotations

from penstock.errors import DataError, FormatError
from penstock_live.account import Outcome
from penstock_live.hooks import Rejected


class SourceGone(FormatError):
    """The file of a chunk was deleted or replaced."""

    reason = "gone"


class RejectedError(DataError):
    """A chunk that a function of the user's rejected."""

    def __init__(self, rejected: Rejected) -> None:
        self.reason = rejected.reason
        super().__init__(rejected.message or rejected.reason)


class LostError(Exception):
    """A chunk that cannot be had, by `error`; nothing that a function of the user's raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def may_pass(error: BaseException) -> bool:
    """Return whether reading again may help: the system failed to read, and the data are not wrong."""
    return isinstance(error, OSError) or getattr(error, "reason", None) == "io"


def outcome_of(error: BaseException) -> Outcome:
    """What becomes of a chunk, or of a file, that cannot be read."""
    if isinstance(error, SourceGone | FileNotFoundError):
        return Outcome.GONE
    if isinstance(error, RejectedError):
        return Outcome.REFUSED
    return Outcome.UNREADABLE if may_pass(error) else Outcome.DAMAGED


def reason_of(error: BaseException) -> str:
    """Return the word that counts a failure: the error's `reason`, or `missing`, `unreadable`, or its class."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and reason and not isinstance(error, UnicodeError):
        return reason
    if isinstance(error, FileNotFoundError):
        return "missing"
    return "unreadable" if isinstance(error, OSError) else type(error).__name__
