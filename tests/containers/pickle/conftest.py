"""The canary of the hostile pickles: who touches it, imports, opens or runs anything during a reading, is heard."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.containers.pickle import loads
from penstock.errors import FormatError

NAME = "canary_of_penstock"
SONG: list[str] = []
LISTENING: list[bool] = []
EVENTS = ("import", "os.", "subprocess", "exec", "compile", "pickle", "open", "ctypes")


def _hear(event: str, _: tuple[object, ...]) -> None:
    if LISTENING and event.startswith(EVENTS):
        SONG.append(event)


sys.addaudithook(_hear)


class Canary:
    """Stands in `sys.modules`; its functions can be found and called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        SONG.append(name)
        return lambda *_: SONG.append("called")


@pytest.fixture
def song(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the canary sang; it has to be silent when a test is over."""
    SONG.clear()
    monkeypatch.setitem(sys.modules, NAME, Canary())  # type: ignore[arg-type]
    yield SONG
    assert SONG == []


def _read(data: bytes, **options: Any) -> FormatError | None:
    LISTENING.append(True)
    try:
        loads(data, where="member.pickle", **options)
    except FormatError as error:
        return error
    finally:
        LISTENING.clear()
    return None


@pytest.fixture
def refuse(song: list[str]) -> Callable[..., str]:
    """`refuse(data, kind, **options)`: the message of exactly this error, which came quickly and silently."""

    def refuse(data: bytes, kind: type[FormatError] = FormatError, **options: Any) -> str:
        begin = time.process_time()
        error = _read(data, **options)
        assert time.process_time() - begin < 10
        assert song == []
        assert type(error) is kind, error
        assert (error.where or "").endswith("of the pickle member.pickle")
        assert str(error).isascii()
        assert len(str(error)) < 1000
        return str(error)

    return refuse


@pytest.fixture
def allowed(song: list[str]) -> Callable[[bytes], bool]:
    """`allowed(data)`: whether it is a value; if not, a `FormatError`, silently."""

    def allowed(data: bytes) -> bool:
        error = _read(data)
        assert song == []
        return error is None

    return allowed
