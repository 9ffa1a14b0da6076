"""Every error that penstock raises on purpose.

    PenstockError
    +-- FormatError     (ValueError)        data on disk does not follow its format
    |   +-- UnknownFormatError              no format recognises the data at a path
    |   +-- UnsafeDataError                 data names code to run, has paths outside its folder, or claims a false size
    |   +-- UnsupportedDtypeError           values have a type that penstock does not read
    |   +-- ChecksumError                   bytes differ from the checksum written with them
    +-- SpecError       (TypeError)         columns, dtypes, shapes or spaces do not fit together
    +-- ArgumentError   (TypeError)         an argument has a type that does not fit, or there is no such option
    +-- DataError       (ValueError)        a value cannot be recorded or stored
    +-- PlanError       (ValueError)        transforms in a wrong order, or impossible parameters
    +-- StateError      (ValueError)        a saved state belongs to another dataset, plan or version
    +-- ExpiredRowError (IndexError)        a growing source dropped a row before it was read
    +-- LockedError     (OSError)           another process or object uses a file that needs exclusive access
    +-- RemoteError     (OSError)           an object store does not answer or refuses
    |   +-- ChangedObjectError              a remote object changed since it was opened
    +-- MissingExtraError (ImportError)     an optional library is missing; the message names the extra
    +-- WorkerError     (RuntimeError)      a loader thread failed (the cause is chained), or a forked process has none

Each error is also a subclass of the builtin in parentheses. A message gives the expected value, the actual value, the
place, and what to do.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from types import ModuleType

__all__ = [
    "ArgumentError",
    "ChangedObjectError",
    "ChecksumError",
    "DamageWarning",
    "DataError",
    "ExpiredRowError",
    "FingerprintWarning",
    "FormatError",
    "LockedError",
    "MissingExtraError",
    "PenstockError",
    "PlanError",
    "RemoteError",
    "RemoteWarning",
    "SpecError",
    "StateError",
    "UnknownFormatError",
    "UnsafeDataError",
    "UnsupportedDtypeError",
    "WorkerError",
]


class PenstockError(Exception):
    """Base class of all errors that penstock raises on purpose."""


class FormatError(PenstockError, ValueError):
    """Data on disk does not follow its format.

    Args:
        message: The expected and the actual content, and what to do.
        path: The file. The default is None: unknown.
        where: Place in the file, such as an object name or a byte offset. The default is None: unknown.

    Example:
        >>> print(FormatError("expected 101 rows, got 100", path="main_data.hdf5", where="episode_17/observations"))
        expected 101 rows, got 100 - at episode_17/observations in main_data.hdf5
    """

    def __init__(self, message: str, *, path: object = None, where: str | None = None) -> None:
        self.path = path
        self.where = where
        self._message = message
        super().__init__(_named(message + _place(path, where)))

    def locate(self, path: object, where: str | None = None) -> None:
        """Add the file and the place in it, if the error does not name a file yet.

        Args:
            path: The file, or None.
            where: Place in the file. The default is None: unknown.
        """
        if self.path is None and path is not None:
            self.path, self.where = path, self.where or where
            self.args = (_named(self._message + _place(self.path, self.where)), *self.args[1:])


class UnknownFormatError(FormatError):
    """No format recognises the data at a path."""


class UnsafeDataError(FormatError):
    """Data names code to run, has paths outside its folder, or claims a false size."""


class UnsupportedDtypeError(FormatError):
    """Values have a type that penstock does not read."""


class ChecksumError(FormatError):
    """Bytes differ from the checksum that was written with them."""


class SpecError(PenstockError, TypeError):
    """Columns, dtypes, shapes or spaces do not fit together."""


class ArgumentError(PenstockError, TypeError):
    """An argument has a type that does not fit, or there is no such option."""


class DataError(PenstockError, ValueError):
    """A value cannot be recorded or stored."""


class PlanError(PenstockError, ValueError):
    """Transforms are in a wrong order, or parameters are impossible."""


class StateError(PenstockError, ValueError):
    """A saved state belongs to another dataset, plan or version."""


class ExpiredRowError(PenstockError, IndexError):
    """A growing source dropped a row before it was read."""


class LockedError(PenstockError, OSError):
    """Another process or object uses a file that needs exclusive access."""


class RemoteError(PenstockError, OSError):
    """An object store does not answer, or refuses what was asked for. The message has no credentials."""


class ChangedObjectError(RemoteError):
    """A remote object is not the one that was opened.

    Args:
        place: URL of the object, without credentials.
    """

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} changed since it was opened; open the dataset again")


class MissingExtraError(PenstockError, ImportError):
    """An optional library is missing. The message names the extra that installs it."""


class WorkerError(PenstockError, RuntimeError):
    """A loader thread failed, or a forked process used an iterator without its threads.

    `__cause__` is the error of the thread.
    """


class DamageWarning(UserWarning):
    """The data that was read is complete, but the file is damaged at its end or has skipped parts.

    Args:
        message: The warning.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_named(message))


class RemoteWarning(UserWarning):
    """An object store fails for now: requests are repeated, so reading takes longer."""


class FingerprintWarning(UserWarning):
    """A function refers to a value that its fingerprint cannot cover.

    A state would not notice a change of that value.
    """


def require(module: str, extra: str, distribution: str = "penstock") -> ModuleType:
    """Import an optional module.

    Args:
        module: Name of the module.
        extra: Extra that installs the module.
        distribution: The distribution that has the extra.

    Returns:
        The imported module.

    Raises:
        MissingExtraError: The module is not installed. The message has the command that installs it.

    Example:
        >>> require("json", "minari").__name__
        'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed; install it with: pip install '{distribution}[{extra}]'"
        ) from error


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar known name, or None. Upper and lower case are equal."""
    names = list(known)
    folded = {each.rsplit("/", 1)[-1].lower(): each for each in reversed(names)}
    folded |= {each.lower(): each for each in names}
    matches = difflib.get_close_matches(name.lower(), folded, 1, cutoff)
    return folded[matches[0]] if matches else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` with the most similar known name, or an empty string.

    Without a similar name, it is the only name that begins with the unknown one, of three letters or more.
    """
    names = list(known)
    similar = closest(name, names)
    if similar is None and len(name) >= 3:
        longer = [each for each in names if each.lower().startswith(name.lower())]
        similar = longer[0] if len(longer) == 1 else None
    return "" if similar is None else f"; did you mean {similar!r}?"


_names: list[Callable[[str], str]] = []


def set_place_names(function: Callable[[str], str]) -> None:
    """Let a function replace the paths in messages by the names that people gave, such as URLs."""
    _names[:] = [function]


def _named(message: str) -> str:
    for function in _names:
        message = function(message)
    return message


def _place(path: object, where: str | None) -> str:
    if path is None and where is None:
        return ""
    if path is None:
        return f" - at {where}"
    return f" - in {path}" if where is None else f" - at {where} in {path}"
