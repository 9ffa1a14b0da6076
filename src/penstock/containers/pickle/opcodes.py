"""The opcodes that data needs, of protocols 0 to 5, and the loop that executes them.

What makes or names code (INST, OBJ, EXT1, PERSID, ...) is refused by name. Sizes are checked against the bytes that are
left before anything is made of them.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from penstock.containers.pickle.arrays import storage_of
from penstock.containers.pickle.machine import Machine, add_items, brief, set_items
from penstock.containers.pickle.symbols import find, finish, new_object, reduce

Operation = Callable[[Machine], None]
STOP = ord(".")
HIGHEST = 5  # protocol

_DOUBLE = struct.Struct(">d")
_INTEGER = re.compile(rb"[+-]?\d+")
_FLOAT = re.compile(rb"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|nan)")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|[\\'\"abfnrtv])|\\")
_ESCAPED = dict(zip(b"\\'\"abfnrtv", b"\\'\"\a\b\f\n\r\t\v", strict=True))
_SURROGATE = re.compile("[\ud800-\udfff]")

REFUSED = {
    b"i": "INST", b"o": "OBJ", b"\x92": "NEWOBJ_EX", b"P": "PERSID", b"Q": "BINPERSID",
    b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER",
}  # fmt: skip


def run(m: Machine, dispatch: Sequence[Operation] | None = None) -> Any:
    """Execute the pickle of `m` and return its one value, left by a STOP that is the last byte."""
    operations = dispatch or DISPATCH
    data, size = m.data, m.size
    for _ in range(m.limits.opcodes):
        start = m.at
        if start >= size:
            raise m.error("expected STOP, got the end")
        m.start, m.at = start, start + 1
        code = data[start]
        if code == STOP:
            return _stop(m)
        try:
            operations[code](m)
        except IndexError:
            raise m.error("expected more on the stack") from None
    raise m.error(f"more than {m.limits.opcodes} opcodes")


def _stop(m: Machine) -> Any:
    if m.at != m.size:
        raise m.error(f"expected the end after STOP, got {m.size - m.at} more bytes")
    if m.marks or len(m.stack) != 1 or m.at < m.frame_end:
        rest = f"{len(m.stack)} values, {len(m.marks)} open marks, {max(m.frame_end - m.at, 0)} bytes of a frame"
        raise m.error(f"expected one value at STOP, got {rest}")
    return m.stack[0]


def _refused(m: Machine) -> None:
    code = m.data[m.start : m.start + 1]
    if code in REFUSED:
        raise m.unsafe(f"opcode {REFUSED[code]} makes or names objects that are not in the data, and is never executed")
    raise m.error(f"expected an opcode, got {code!r}")


def _storage(m: Machine) -> None:
    """The storage of a tensor, in a file of `torch.save` alone."""
    if m.storages is None:
        _refused(m)
    m.stack.append(storage_of(m, m.stack.pop()))


def _proto(m: Machine) -> None:
    version = m.take(1)[0]
    if m.start or version > HIGHEST:
        raise m.error(f"expected a protocol up to {HIGHEST} at the start, got {version}")


def _frame(m: Machine) -> None:
    length = m.number(8)
    if m.start < m.frame_end or length > m.size - m.at:
        raise m.error(f"expected a frame within the {m.size - m.at} bytes that are left, got {length}")
    m.frame_end = m.at + length


def _constant(value: Any) -> Operation:
    return lambda m: m.stack.append(value)


def _fixed(width: int, *, signed: bool = False) -> Operation:
    def load(m: Machine) -> None:
        m.stack.append(int.from_bytes(m.take(width), "little", signed=signed))

    return load


def _long(width: int) -> Operation:
    def load(m: Machine) -> None:
        size = m.number(width)
        if size > m.limits.integer:
            raise m.error(f"expected an integer of at most {m.limits.integer} bytes, got {size}")
        m.stack.append(int.from_bytes(m.take(size), "little", signed=True))

    return load


def _decimal(m: Machine, line: bytes) -> int:
    """INT, LONG, GET and PUT write numbers as text."""
    if len(line) > 2 * m.limits.integer or not _INTEGER.fullmatch(line):
        raise m.error(f"expected an integer of at most {2 * m.limits.integer} digits, got {brief(line)}")
    return int(line)


def _int(m: Machine) -> None:
    line = m.line()
    m.stack.append(line == b"01" if line in (b"00", b"01") else _decimal(m, line))


def _long_text(m: Machine) -> None:
    m.stack.append(_decimal(m, m.line().removesuffix(b"L")))


def _float_text(m: Machine) -> None:
    line = m.line()
    if len(line) > 64 or not _FLOAT.fullmatch(line):
        raise m.error(f"expected a float, got {brief(line)}")
    m.stack.append(float(line))


def _float(m: Machine) -> None:
    m.stack.append(_DOUBLE.unpack(m.take(8))[0])


def _utf8(width: int) -> Operation:
    def load(m: Machine) -> None:
        raw = m.sized(width)
        try:
            m.stack.append(raw.decode())
        except UnicodeDecodeError as error:
            raise m.error(f"expected UTF-8, got {brief(raw[error.start : error.start + 4])}") from None

    return load


def _unicode_line(m: Machine) -> None:
    raw = m.line()
    try:
        text, _ = codecs.raw_unicode_escape_decode(raw)  # by name it would be imported
    except UnicodeDecodeError:
        raise m.error(f"expected Unicode with escapes, got {brief(raw)}") from None
    if _SURROGATE.search(text):
        raise m.error("expected Unicode, got a surrogate")
    m.stack.append(text)


def _bytes(width: int) -> Operation:
    return lambda m: m.stack.append(m.sized(width))


def _byte_string(width: int) -> Operation:
    """Python 2's `str` was both: ASCII becomes text, all else stays bytes."""
    return lambda m: m.stack.append(_text_or_bytes(m.sized(width)))


def _text_or_bytes(raw: bytes) -> str | bytes:
    return raw.decode() if raw.isascii() else raw


def _bytearray(m: Machine) -> None:
    m.stack.append(bytearray(m.sized(8)))


def _quoted(m: Machine) -> None:
    line = m.line()
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
        raise m.error(f"expected a string in quotes, got {brief(line)}")
    m.stack.append(_text_or_bytes(_ESCAPE.sub(lambda match: _unescape(m, match[1]), line[1:-1])))


def _unescape(m: Machine, escape: bytes | None) -> bytes:
    if escape is None:
        raise m.error("expected an escape after a backslash")
    if escape[:1] == b"x":
        return bytes([int(escape[1:], 16)])
    return bytes([int(escape, 8) & 255 if escape.isdigit() else _ESCAPED[escape[0]]])


def _put(m: Machine) -> None:
    m.remember(_decimal(m, m.line()))


def _get(m: Machine) -> None:
    m.recall(_decimal(m, m.line()))


def _pop(m: Machine) -> None:
    if m.stack:
        m.stack.pop()
    else:
        m.items()  # an empty stack above a mark: POP takes the mark


def _pop_mark(m: Machine) -> None:
    m.items()


def _dup(m: Machine) -> None:
    m.stack.append(m.stack[-1])


def _tuple_of(count: int) -> Operation:
    def make(m: Machine) -> None:
        stack = m.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]

    return make


def _marked(kind: Callable[[list[Any]], Any]) -> Operation:
    def make(m: Machine) -> None:
        items = m.items()
        m.stack.append(kind(items))

    return make


def _append(m: Machine) -> None:
    value = m.stack.pop()
    _of_kind(m, list).append(value)


def _appends(m: Machine) -> None:
    items = m.items()
    _of_kind(m, list).extend(items)


def _setitem(m: Machine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    set_items(m, _of_kind(m, dict), [key, value])


def _setitems(m: Machine) -> None:
    items = m.items()
    set_items(m, _of_kind(m, dict), items)


def _dict(m: Machine) -> None:
    mapping: dict[Any, Any] = {}
    set_items(m, mapping, m.items())
    m.stack.append(mapping)


def _add_items(m: Machine) -> None:
    items = m.items()
    add_items(m, _of_kind(m, set), items)


def _frozenset(m: Machine) -> None:
    members: set[Any] = set()
    add_items(m, members, m.items())
    m.stack.append(frozenset(members))


def _of_kind(m: Machine, kind: type[Any]) -> Any:
    """The top of the stack, if it is exactly of this kind."""
    target = m.stack[-1]
    if type(target) is not kind:
        raise m.error(f"expected a {kind.__name__} to add to, got {brief(target)}")
    return target


def _global(m: Machine) -> None:
    module, name = m.line(), m.line()
    m.stack.append(find(m, module.decode("utf-8", "replace"), name.decode("utf-8", "replace")))


def _stack_global(m: Machine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise m.error(f"expected a module and a name, got {brief(module)} and {brief(name)}")
    m.stack.append(find(m, module, name))


def _reduce(m: Machine) -> None:
    args = m.stack.pop()
    m.stack[-1] = reduce(m, m.stack[-1], args)


def _newobj(m: Machine) -> None:
    args = m.stack.pop()
    m.stack[-1] = new_object(m, m.stack[-1], args)


def _build(m: Machine) -> None:
    state = m.stack.pop()
    m.stack[-1] = finish(m, m.stack[-1], state)


_OPERATIONS: dict[bytes, Operation] = {
    b"\x80": _proto, b"\x95": _frame,
    b"N": _constant(None), b"\x88": _constant(True), b"\x89": _constant(False),
    b"I": _int, b"L": _long_text, b"F": _float_text, b"G": _float,
    b"J": _fixed(4, signed=True), b"K": _fixed(1), b"M": _fixed(2), b"\x8a": _long(1), b"\x8b": _long(4),
    b"S": _quoted, b"T": _byte_string(4), b"U": _byte_string(1), b"V": _unicode_line,
    b"X": _utf8(4), b"\x8c": _utf8(1), b"\x8d": _utf8(8),
    b"B": _bytes(4), b"C": _bytes(1), b"\x8e": _bytes(8), b"\x96": _bytearray,
    b"(": Machine.open_mark, b"0": _pop, b"1": _pop_mark, b"2": _dup,
    b"p": _put, b"q": lambda m: m.remember(m.take(1)[0]), b"r": lambda m: m.remember(m.number(4)),
    b"\x94": Machine.memoize,
    b"g": _get, b"h": lambda m: m.recall(m.take(1)[0]), b"j": lambda m: m.recall(m.number(4)),
    b")": _constant(()), b"\x85": _tuple_of(1), b"\x86": _tuple_of(2), b"\x87": _tuple_of(3), b"t": _marked(tuple),
    b"]": lambda m: m.stack.append([]), b"l": _marked(list), b"a": _append, b"e": _appends,
    b"}": lambda m: m.stack.append({}), b"d": _dict, b"s": _setitem, b"u": _setitems,
    b"\x8f": lambda m: m.stack.append(set()), b"\x90": _add_items, b"\x91": _frozenset,
    b"c": _global, b"\x93": _stack_global, b"R": _reduce, b"\x81": _newobj, b"b": _build, b"Q": _storage,
}  # fmt: skip

DISPATCH: list[Operation] = [_OPERATIONS.get(bytes([code]), _refused) for code in range(256)]
