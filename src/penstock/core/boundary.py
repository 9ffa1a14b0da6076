"""Boundary of errors: unexpected errors of a parser become `FormatError`, and of a saved state `StateError`.

Parsers check for known dangers. An unexpected kind of damage causes an `AttributeError`, a `RecursionError` or an error
class of a library, which a caller cannot catch by name. So every public function that reads data has one guard. The
guard decides by the class of the error:

* Errors of penstock pass. A `FormatError` without a file gets one.
* Errors of the system pass (a missing file, a refused permission, a full disk), because the data is not the cause.
* Missing libraries, and warnings raised as errors, pass.
* Where the cause of an error is a `RemoteError`, the `RemoteError` is raised: the data is not the cause.
* All other errors are about the data: they become a `FormatError` with path and place, and the original is
  `__cause__`.

`Source` and `Format` guard the methods of their subclasses, and `BlockIterator` guards `load_state_dict`. Other
functions use `parsing`, `loading_state` or `parsing_state`. Do not guard functions of users.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.core.narrowing import is_dict, is_mapping
from penstock.errors import FormatError, PenstockError, RemoteError, StateError

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")

# Errors of the system for arguments that came out of data: a negative offset, a name too long, a loop of links.
_OF_DATA = {errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP, errno.EOVERFLOW, errno.EISDIR, errno.ENOTDIR}


def json_object(raw: bytes | str, path: object = None, where: str | None = None) -> dict[str, Any]:
    """Return the JSON object that is all of a text."""
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected a JSON object, got {raw[:40]!r}: {error}", path=path, where=where) from error
    if not is_dict(value):
        raise FormatError(f"expected a JSON object, got {raw[:40]!r}", path=path, where=where)
    return value


def is_of_data(error: Exception) -> bool:
    """Return whether an error is about parsed data, and not about the system or this program."""
    if isinstance(error, OSError) and not isinstance(error, PenstockError):
        # Libraries (Arrow, gzip, Pillow) raise OSErrors without a number, or of private classes, for damaged data.
        foreign = type(error) is OSError or type(error).__module__ != "builtins"
        return error.errno in _OF_DATA or (error.errno is None and foreign)
    return not isinstance(error, PenstockError | ImportError | Warning)


def refusal(error: Exception, path: object = None, where: str | None = None) -> FormatError | None:
    """Return the `FormatError` to raise instead of an error, or None to keep the error.

    A `FormatError` without a path gets the path.
    """
    if not isinstance(error, RemoteError) and (cause := _remote_cause(error)) is not None:
        raise cause from None
    if is_of_data(error):
        message = f"expected data that can be read, got {_message(error)}; compare the file with its origin"
        return FormatError(message, path=path, where=where)
    if isinstance(error, FormatError):
        error.locate(path, where)
    elif isinstance(error, OSError) and error.errno is not None and error.filename is None and path is not None:
        error.filename = str(path)
    return None


def _remote_cause(error: BaseException) -> RemoteError | None:
    """The error of an object store while which another one was raised, at any distance."""
    seen: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in seen:
        if isinstance(below, RemoteError):
            return below
        seen.add(id(below))
        below = below.__cause__ or below.__context__
    return None


def is_of_call(error: Exception, options: Iterable[str] = ()) -> bool:
    """Return whether an error is about the call of a guarded function.

    Such an error is about arguments that do not fit the parameters, or is a `TypeError` that names one of the options.
    """
    raised = error.__traceback__
    if raised is not None and raised.tb_next is None:  # the call itself: nothing of the function ran
        return True
    return isinstance(error, TypeError) and any(name in str(error) for name in options)


@contextmanager
def parsing(path: object = None, where: str | None = None) -> Generator[None]:
    """Guard a block, or as a decorator a function, that parses data."""
    try:
        yield
    except Exception as error:
        if (instead := refusal(error, path, where)) is None:
            raise
        raise instead from error


@contextmanager
def parsing_state(what: str) -> Generator[None]:
    """Guard a block that parses a saved state."""
    try:
        yield
    except Exception as error:
        if not is_of_data(error):
            raise
        raise _state_refusal(what, error) from error


def loading_state(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Guard a method that loads a saved state, like `parsing_state`. Wrong arguments stay a `TypeError`."""

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if is_of_call(error) or not is_of_data(error):
                raise
            raise _state_refusal(type(self).__name__.strip("_"), error, args[:1]) from error

    return guarded


def _state_refusal(what: str, error: Exception, given: Sequence[object] = ()) -> StateError:
    if given and not is_mapping(given[0]):
        return StateError(f"expected the dict of state_dict() of a {what}, got {repr(given[0])[:60]}")
    return StateError(f"expected the state of a {what}, got one that raises {_message(error)}")


def _message(error: Exception) -> str:
    text = str(error)
    text = text if len(text) <= 300 else text[:300] + "..."  # a library may quote the whole input
    if isinstance(error, MemoryError):
        return f"sizes for which there is no memory ({type(error).__name__}: {text})"
    return f"{type(error).__name__}: {text}"
