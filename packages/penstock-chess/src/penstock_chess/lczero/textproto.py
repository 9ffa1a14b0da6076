"""Text of protocol buffers as a tree of fields: just what configuration files need, and nothing is looked up in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import FormatError

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v]+|\#[^\n]*)
      | (?P<line>\n)
      | (?P<text>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
      | (?P<word>-?\s*(?:[A-Za-z_][A-Za-z0-9_]*|0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?))
      | (?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
CLOSED_BY = {"{": "}", "<": ">"}
DEEP = 100  # messages within each other; more is no configuration


@dataclass(frozen=True, slots=True)
class Text:
    """A string of the text, its quotes and escapes resolved."""

    value: str


@dataclass(frozen=True, slots=True)
class Word:
    """A number, a truth value or a name, as it is written."""

    value: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A field: `value` is a message (a tuple of entries), a `Text` or a `Word`; `line` counts from 1."""

    name: str
    value: tuple[Entry, ...] | Text | Word
    line: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def parse(text: str) -> tuple[Entry, ...]:
    """Return the fields of a message in the text format, in their order; `name: [a, b]` counts as two.

    Cost: one pass.
    """
    return _Parser([*_tokens(text)]).message("", 0)


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise _wrong(
                "a field, a value or a bracket", text[position : position + 20].split("\n", maxsplit=1)[0], line
            )
        kind, word = str(match.lastgroup), match.group()
        if kind not in ("space", "line"):
            yield _Token(kind, word, line)
        line += word.count("\n")
        position = match.end()
    yield _Token("end", "the end", line)


class _Parser:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens, self._at = tokens, 0

    def message(self, closing: str, depth: int) -> tuple[Entry, ...]:
        """Return the fields up to a closing bracket, or up to the end."""
        if depth > DEEP:
            raise _wrong(f"at most {DEEP} messages within each other", "more", self._peek().line)
        entries: list[Entry] = []
        while True:
            token = self._take()
            if (token.kind == "mark" and token.text == closing) or (token.kind == "end" and not closing):
                return tuple(entries)
            if token.kind != "word" or not token.text.isidentifier():
                raise _wrong(f"a field{f' or {closing!r}' if closing else ''}", token.text, token.line)
            values = self._values(depth)
            entries += [Entry(token.text, value, line) for value, line in values]
            if self._peek().text in (",", ";") and self._peek().kind == "mark":
                self._take()

    def _values(self, depth: int) -> list[tuple[tuple[Entry, ...] | Text | Word, int]]:
        """Return the values of a field: one value, or a list of values."""
        colon = self._skip(":")
        if not self._skip("["):
            return [self._value(depth, colon)]
        values: list[tuple[tuple[Entry, ...] | Text | Word, int]] = []
        while not self._skip("]"):
            values.append(self._value(depth, colon))
            if not self._skip(",") and self._peek().text != "]":
                raise _wrong("',' or ']'", self._peek().text, self._peek().line)
        return values

    def _value(self, depth: int, colon: bool) -> tuple[tuple[Entry, ...] | Text | Word, int]:
        token = self._take()
        if token.kind == "mark" and token.text in CLOSED_BY:
            return self.message(CLOSED_BY[token.text], depth + 1), token.line
        if not colon or token.kind not in ("word", "text"):
            raise _wrong("a value after ':', or a message in brackets", token.text, token.line)
        if token.kind == "word":
            return Word("".join(token.text.split())), token.line
        parts = [_unquoted(token)]
        while self._peek().kind == "text":
            parts.append(_unquoted(self._take()))
        return Text("".join(parts)), token.line

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _skip(self, mark: str) -> bool:
        matches = self._peek().kind == "mark" and self._peek().text == mark
        if matches:
            self._take()
        return matches


def _unquoted(token: _Token) -> str:
    # The format has the escapes of Python's bytes, and `\?`; the resulting bytes are UTF-8.
    try:
        inner = token.text[1:-1].replace("\\?", "?")
        raw = ast.literal_eval(f'b"{_ascii(inner)}"')
        return raw.decode("utf-8")
    except (SyntaxError, ValueError) as error:
        raise _wrong("a string of UTF-8 with escapes as in C", token.text, token.line) from error


def _ascii(inner: str) -> str:
    """The inside of a string with other letters than ASCII, and bare quotes, as escapes."""
    escaped = re.sub(r'\\.|"', lambda match: match.group() if match.group() != '"' else '\\"', inner, flags=re.DOTALL)
    return "".join(c if c.isascii() else "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8")) for c in escaped)


def _wrong(expected: str, got: str, line: int) -> FormatError:
    return FormatError(f"expected {expected}, got {got!r}", where=f"line {line} of the configuration")
