"""The boundary of errors: what a parser raises becomes `FormatError`, what a bad state causes `StateError`.

Parsers check what they know to be dangerous. What they did not think of ends as an `AttributeError`, a `RecursionError`
or an error of a library's own class, which a caller cannot catch by name. So every public entrance to data has one
guard around it, and the guard decides by the class of the error alone:

* errors of penstock pass; a `FormatError` without a file gets one;
* errors of the system pass (a missing file, a refused permission, a full disk): the data are not at fault;
* a missing library and a warning made an error pass;
* everything else is about the data: a `FormatError` with path and place, the original as `__cause__`.

`Source` and `Format` guard the methods of their subclasses, `BlockIterator` guards `load_state_dict`; other functions
use `parsing`, `loading_state` or `parsing_state`. No guard may be around a function of the user.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from penstock.errors import FormatError, PenstockError, StateError

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")

# What the system says to arguments that came out of data: a negative offset, a name too long, a loop of links.
_OF_DATA = {errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP, errno.EOVERFLOW, errno.EISDIR, errno.ENOTDIR}


def is_of_data(error: Exception) -> bool:
    """Whether an error speaks of the data that were parsed, and not of the system or of this program.

    >>> is_of_data(KeyError("shape")), is_of_data(FileNotFoundError(2, "gone")), is_of_data(OSError("bad magic"))
    (True, False, True)
    """
    if isinstance(error, OSError) and not isinstance(error, PenstockError):
        # Libraries (Arrow, gzip, Pillow) raise OSErrors without a number, or of a class of their own, for damaged data.
        foreign = type(error) is OSError or type(error).__module__ != "builtins"
        return error.errno in _OF_DATA or (error.errno is None and foreign)
    return not isinstance(error, PenstockError | ImportError | Warning)


def refusal(error: Exception, path: object = None, where: str | None = None) -> FormatError | None:
    """The `FormatError` to raise instead of an error; None if it is raised as it is, now with the path it lacked."""
    if is_of_data(error):
        message = f"expected data that can be read, got {_told(error)}; compare the file with its origin"
        return FormatError(message, path=path, where=where)
    if isinstance(error, FormatError):
        error.locate(path, where)
    elif isinstance(error, OSError) and error.errno is not None and error.filename is None and path is not None:
        error.filename = str(path)
    return None


def is_of_call(error: Exception, options: Iterable[str] = ()) -> bool:
    """Whether an error that a guard caught speaks of how the guarded function was called: arguments that do not fit its
    parameters, or a `TypeError` that names one of the `options` which the caller gave."""
    raised = error.__traceback__
    if raised is not None and raised.tb_next is None:  # the call itself: nothing of the function ran
        return True
    return isinstance(error, TypeError) and any(name in str(error) for name in options)


@contextmanager
def parsing(path: object = None, where: str | None = None) -> Generator[None]:
    """Guard a block, or as a decorator a function, that parses data.

    >>> with parsing("meta.json"):
    ...     {}["shape"]
    Traceback (most recent call last):
    penstock.errors.FormatError: expected data that can be read, got KeyError: 'shape'; ... - in meta.json
    """
    try:
        yield
    except Exception as error:
        if (instead := refusal(error, path, where)) is None:
            raise
        raise instead from error


@contextmanager
def parsing_state(what: str) -> Generator[None]:
    """Guard a block that takes a saved state apart: whatever a damaged one makes it raise becomes `StateError`.

    >>> with parsing_state("counter"):
    ...     int({"count": []}["count"])
    Traceback (most recent call last):
    penstock.errors.StateError: expected the state of a counter, got one that raises TypeError: int() argument must ...
    """
    try:
        yield
    except Exception as error:
        if not is_of_data(error):
            raise
        raise _state_refusal(what, error) from error


def loading_state(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Guard a method that takes a saved state, as `parsing_state` does; arguments that do not fit stay `TypeError`."""

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if is_of_call(error) or not is_of_data(error):
                raise
            raise _state_refusal(type(self).__name__.strip("_"), error) from error

    return guarded


def _state_refusal(what: str, error: Exception) -> StateError:
    return StateError(f"expected the state of a {what}, got one that raises {_told(error)}")


def _told(error: Exception) -> str:
    told = str(error)
    told = told if len(told) <= 300 else told[:300] + "..."  # a library may quote the whole input
    if isinstance(error, MemoryError):
        return f"sizes for which there is no memory ({type(error).__name__}: {told})"
    return f"{type(error).__name__}: {told}"
