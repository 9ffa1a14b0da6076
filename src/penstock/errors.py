"""Every error that penstock raises on purpose.

    PenstockError
    +-- FormatError     (ValueError)        what lies on disk is not what its format says
    |   +-- UnknownFormatError              no format recognises what lies at a path
    |   +-- UnsafeDataError                 data that names code, leaves its folder, or lies about its size
    |   +-- ChecksumError                   bytes differ from the checksum written with them
    +-- SpecError       (TypeError)         columns, dtypes, shapes or spaces do not fit together
    +-- DataError       (ValueError)        a value that was handed in cannot be recorded or stored
    +-- PlanError       (ValueError)        transforms in a wrong order, or parameters that no plan can meet
    +-- StateError      (ValueError)        a saved state belongs to another dataset, plan or version
    +-- ExpiredRowError (IndexError)        a row left the extent of a growing source before it was read
    +-- LockedError     (OSError)           somebody else holds what is needed exclusively
    +-- MissingExtraError (ImportError)     an optional library is needed; the message names the extra
    +-- WorkerError     (RuntimeError)      a loader thread failed (the cause is chained), or a forked process has none

Each is also a subclass of the builtin that a caller would expect to catch. A message says what was
expected, what was found, where, and what to do about it.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class PenstockError(Exception):
    """Base of all errors that penstock raises on purpose."""


class FormatError(PenstockError, ValueError):
    """What lies on disk is not what its format says.

    Arguments: `message`; `path`, the file; `where`, the place inside it (object name, byte offset).

    >>> print(FormatError("expected 101 rows, got 100", path="main_data.hdf5", where="episode_17/observations"))
    expected 101 rows, got 100 - at episode_17/observations in main_data.hdf5
    """

    def __init__(self, message: str, *, path: object = None, where: str | None = None) -> None:
        self.path = path
        self.where = where
        self._message = message
        super().__init__(message + _place(path, where))

    def locate(self, path: object, where: str | None = None) -> None:
        """Name the file and the place in it, if the error names no file yet."""
        if self.path is None and path is not None:
            self.path, self.where = path, self.where or where
            self.args = (self._message + _place(self.path, self.where), *self.args[1:])


class UnknownFormatError(FormatError):
    """No format recognises what lies at a path."""


class UnsafeDataError(FormatError):
    """Data that names code to run, leaves its own folder, or lies about its size."""


class ChecksumError(FormatError):
    """Bytes differ from the checksum that was written with them."""


class SpecError(PenstockError, TypeError):
    """Columns, dtypes, shapes or spaces that do not fit together."""


class DataError(PenstockError, ValueError):
    """A value that was handed in cannot be recorded or stored."""


class PlanError(PenstockError, ValueError):
    """Transforms in a wrong order, or parameters that no plan can meet."""


class StateError(PenstockError, ValueError):
    """A saved state that belongs to another dataset, plan or version."""


class ExpiredRowError(PenstockError, IndexError):
    """A row left the extent of a growing source before it was read."""


class LockedError(PenstockError, OSError):
    """Somebody else holds what is needed exclusively."""


class MissingExtraError(PenstockError, ImportError):
    """An optional library is needed; the message names the extra that installs it."""


class WorkerError(PenstockError, RuntimeError):
    """A loader thread failed (the cause is chained as `__cause__`), or a forked process went on with an iterator whose
    threads it does not have."""


class DamageWarning(UserWarning):
    """What is read is whole, but what lies on disk is not: something at its end is missing, or was left out."""


class FingerprintWarning(UserWarning):
    """A function refers to something that no fingerprint can cover: a state would not notice a change of it."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional `module`, or say which extra of penstock installs it.

    Raises `MissingExtraError` if the module is not there.

    >>> require("json", "minari").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed; install it with: pip install 'penstock[{extra}]'"
        ) from error


def suggestion(name: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the most similar of the `known` names, or nothing.

    >>> suggestion("task", ["benchmark_name", "task_name"])
    "; did you mean 'task_name'?"
    """
    folded = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), folded, 1)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""


def _place(path: object, where: str | None) -> str:
    if path is None and where is None:
        return ""
    if path is None:
        return f" - at {where}"
    return f" - in {path}" if where is None else f" - at {where} in {path}"
