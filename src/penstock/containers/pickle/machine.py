"""The state of one reading: bytes, stack, memo, limits; and symbols, which stand for what a pickle names.

A tuple of tuples of tuples that share one another takes exponential time to hash, and keys that all have one hash make
a dict quadratic. So keys are strings, numbers or short tuples of them, and unusual ones are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.narrowing import is_scalar, is_tuple
from penstock.errors import FormatError, UnsafeDataError

WAY_OUT = 'if you trust whoever made it as you trust a program, pass trust="pickle"'
TWINS = 64  # keys of one container that may share a hash
PARTS = 16  # of a tuple that is a key
_PLAIN = (str, bytes, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one pickle may ask for; `LIMITS` are generous for experience data.

    `opcodes`, executed; `memo`, entries; `marks`, open at once; `depth`, of containers in containers; `integer`,
    bytes of one; `values` and `nbytes`, of the result, where what is shared counts as often as it is reachable.
    """

    opcodes: int = 1 << 25
    memo: int = 1 << 24
    marks: int = 1024
    depth: int = 100
    integer: int = 1024
    values: int = 1 << 26
    nbytes: int = 1 << 32


LIMITS = Limits()
SLACK = 1 << 22  # bytes that may be copied beyond a multiple of the pickle


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A name that a pickle may use, as a recipe of ours: `call` for REDUCE, `new` for NEWOBJ, `finish` for BUILD."""

    module: str
    name: str
    call: Callable[[Machine, tuple[Any, ...]], Any] | None = None
    new: Callable[[Machine, Symbol, tuple[Any, ...]], Any] | None = None
    finish: Callable[[Machine, Any, Any], Any] | None = None

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Pending:
    """An object that waits for its state; BUILD puts the finished one in its place on the stack and in the memo."""

    __slots__ = ("args", "slots", "symbol")

    def __init__(self, symbol: Symbol, args: Any = None) -> None:
        self.symbol, self.args = symbol, args
        self.slots: list[int] | None = []  # where the memo has it; None once it is finished


class Machine:
    """One reading of `data`. `place` and `path` say in errors what is read."""

    __slots__ = (
        "at", "budget", "crowds", "data", "dtype", "frame_end", "heights", "limits", "marks", "memo", "names", "path",
        "place", "size", "stack", "start", "storages",
    )  # fmt: skip

    def __init__(self, data: bytes, place: str, path: object, limits: Limits) -> None:
        self.data = data
        self.size = len(data)
        self.limits = limits
        self.place, self.path = place, path
        self.at = self.start = self.frame_end = 0  # next byte; opcode in execution; end of the current frame
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []  # the stacks below each open mark
        self.memo: dict[int, Any] = {}
        self.storages: Mapping[str, bytes] | None = None  # of a file of `torch.save`, by name
        self.names: set[Symbol] = set()  # symbols that were named
        self.budget = SLACK + 16 * len(data)  # bytes that symbols may still copy
        self.dtype: np.dtype[Any] | None = None  # of the last array or scalar, as it is stored
        self.heights: dict[int, int] = {}  # object arrays by id -> how deep object arrays nest in them
        self.crowds: dict[int, tuple[Any, Counter[int]]] = {}  # container by id -> hashes of its unusual keys

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        start = self.at
        if count > self.size - start:
            raise self.error(f"expected {count} more bytes, got {self.size - start}")
        self.at = start + count
        return self.data[start : start + count]

    def number(self, width: int) -> int:
        """The next `width` bytes as a little-endian unsigned integer."""
        return int.from_bytes(self.take(width), "little")

    def sized(self, width: int) -> bytes:
        """The next bytes, whose number is in `width` bytes before them."""
        data, begin = self.data, self.at + width
        end = begin + int.from_bytes(data[self.at : begin], "little")
        if end > self.size:
            raise self.error(f"expected {end - begin} more bytes, got {max(self.size - begin, 0)}")
        self.at = end
        return data[begin:end]

    def line(self) -> bytes:
        """The bytes up to the next newline, without it."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise self.error("expected a line, got no newline before the end")
        line, self.at = self.data[self.at : end], end + 1
        return line

    def open_mark(self) -> None:
        """Start a new stack on top of the present one."""
        if len(self.marks) >= self.limits.marks:
            raise self.error(f"more than {self.limits.marks} marks are open")
        self.marks.append(self.stack)
        self.stack = []

    def items(self) -> list[Any]:
        """Items pushed since the last mark, which it closes."""
        if not self.marks:
            raise self.error("expected a mark, got none")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def remember(self, index: int) -> None:
        """Put the top of the stack into the memo, where nothing is yet."""
        memo, value = self.memo, self.stack[-1]
        if index in memo or not 0 <= index < self.limits.memo:
            expected = f"expected an unused memo entry below {self.limits.memo}"
            raise self.error(f"{expected}, got {brief(index)}")
        memo[index] = value
        if type(value) is Pending and value.slots is not None:
            value.slots.append(index)

    def memoize(self) -> None:
        """Put the top of the stack into the next entry of the memo."""
        memo, value = self.memo, self.stack[-1]
        index = len(memo)
        if type(value) is Pending or index in memo or index >= self.limits.memo:
            self.remember(index)
        else:
            memo[index] = value

    def recall(self, index: int) -> None:
        """Push an entry of the memo."""
        try:
            self.stack.append(self.memo[index])
        except KeyError:
            raise self.error(f"expected one of {len(self.memo)} memo entries, got {brief(index)}") from None

    def charge(self, nbytes: int) -> None:
        """Account for a copy or a scan of data that may be repeated at will."""
        self.budget -= nbytes
        if self.budget < 0:
            raise self.unsafe(f"the same data is copied again and again, far beyond the {self.size} bytes there are")

    def error(self, message: str) -> FormatError:
        """That something is malformed here."""
        return FormatError(message, path=self.path, where=self._where())

    def unsafe(self, message: str) -> UnsafeDataError:
        """Error for content that is not data, or has a false size."""
        return UnsafeDataError(message, path=self.path, where=self._where())

    def _where(self) -> str:
        return f"byte {self.start} of the pickle" + (f" {self.place}" if self.place else "")


def brief(value: object) -> str:
    """A value from the data, short and in ASCII."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        text = ascii(value[:80])
        return text if len(value) <= 80 else f"{text}..."
    return ascii(value) if isinstance(value, int | float | Symbol) or value is None else type(value).__name__


def set_items(m: Machine, target: dict[Any, Any], items: list[Any]) -> None:
    """Put `items`, keys and values in turn, into `target`."""
    if len(items) % 2:
        raise m.error(f"expected keys with values, got {len(items)} objects")
    try:
        for i in range(0, len(items), 2):
            key = items[i]
            if type(key) is not str:
                _check(m, target, key)
            target[key] = items[i + 1]
    except (TypeError, ValueError) as error:
        raise _located(m, error) from None


def add_items(m: Machine, target: set[Any], items: list[Any]) -> None:
    """Put `items` into `target`."""
    try:
        for item in items:
            _check(m, target, item)
            target.add(item)
    except (TypeError, ValueError) as error:
        raise _located(m, error) from None


def _located(m: Machine, error: Exception) -> Exception:
    """NumPy's scalars and tuples of one hash cannot be compared; our own errors stay as they are."""
    return error if isinstance(error, FormatError) else m.error(f"expected keys that can be compared, got {error}")


def _check(m: Machine, container: Any, key: Any) -> None:
    kind = key.__class__
    if kind is str or kind is bytes:
        return
    plain = len(key) <= PARTS and all(map(_is_plain, key)) if kind is tuple else _is_plain(key)
    if not plain:
        raise m.error(f"expected keys that are strings, numbers or short tuples of them, got {_kind(key)}")
    if kind is tuple or (kind is int and key.bit_length() > 64):
        _count(m, container, key)


def _kind(key: Any) -> str:
    return f"a tuple of {len(key)}" if is_tuple(key) else brief(key)


def _is_plain(key: Any) -> bool:
    return key.dtype.kind in "biufSU" if is_scalar(key) else type(key) in _PLAIN


def _count(m: Machine, container: Any, key: Any) -> None:
    crowd = m.crowds.setdefault(id(container), (container, Counter()))[1]  # kept alive: its id is its name
    crowd[hash(key)] += 1
    if crowd[hash(key)] > TWINS:
        raise m.unsafe(f"more than {TWINS} keys of a container have one hash")
