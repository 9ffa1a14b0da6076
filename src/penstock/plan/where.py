"""`Where`: the episodes whose metadata meet a condition."""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import BoolArray, IntArray
from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged
from penstock.errors import PlanError, suggestion
from penstock.plan.episodes import Episodes
from penstock.plan.transform import EpisodeTransform


@dataclass(frozen=True)
class Where(EpisodeTransform):
    """Keep the episodes whose metadata meet a condition, in their order.

    The result is a dense table, so its length is exact. Cost: the metadata of every episode is read once.

    Args:
        condition: An expression over the metadata, such as `"return >= 100 and operator == 'kim'"`, and over the stored
            columns with a row for each episode, such as `"success and task == 'pick'"`. `return` is the sum of the
            rewards of the stored episode, unless metadata have that name; rewards are read for it. It may have
            comparisons, `and`, `or`, `not`, numbers, column names, and `+ - * / %` (in float64). Text may be compared
            with `==` and `!=`. A comparison with a missing value is False. With a curation, `'good' in tags`,
            `'slip' not in spans` and `rating >= 4` ask for its tags, tags of spans and ratings. Or a function from
            these `Columns` to `[E]` bool; the chosen episodes are then the fingerprint. A stored column is read only
            if it is used.

    Raises:
        PlanError: The expression has an unknown column or operation, or the result is not boolean.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.zeros(9)}, lengths=[2, 3, 4])
        >>> data.apply(Where("total_steps > 2 and id % 2 == 0")).episodes.index.tolist()
        [2]
    """

    condition: str | Callable[[Columns], Any]

    def __post_init__(self) -> None:
        if isinstance(self.condition, str):
            _parse(self.condition)
        elif not callable(self.condition):
            raise PlanError(f"expected Where to have an expression or a function, got {self.condition!r}")

    def choose(self, episodes: Episodes) -> Episodes:
        """Return the episodes that meet the condition."""
        table = episodes.described(names_in(self.condition) if isinstance(self.condition, str) else ())
        if isinstance(self.condition, str):
            chosen, why = evaluate(self.condition, table), repr(self)
            hint = "compare with something"
            chosen = np.broadcast_to(chosen, len(episodes)) if chosen.shape == () else chosen
        else:
            hint = "it gets the columns of all episodes, as in filter(lambda table: table['total_steps'] > 10)"
            try:
                chosen, why = np.asarray(self.condition(table)), "Where(function)"
            except AttributeError as error:
                if error.obj is not table:
                    raise
                raise PlanError(f"expected a column among {list(table)}, got .{error.name}; {hint}") from error
        if chosen.dtype != np.bool_ or chosen.shape != (len(episodes),):
            raise PlanError(
                f"expected {why} to give one boolean an episode ({len(episodes)}), "
                f"got {chosen.dtype}{list(chosen.shape)}; {hint}"
            )
        return episodes.take(np.flatnonzero(chosen), why)


RATING = "rating"  # column that every curated table has
WORD_GROUPS = ("tags", "spans")  # groups of bool columns, one for each word that some episode has

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.Mod: np.mod,
}


# Words that no expression of Python has, such as `return`, may be names of columns. `ast` parses them behind a letter
# that no column begins with.
_LETTER = "\u01c3"
_STATEMENTS = frozenset(keyword.kwlist) - frozenset(
    ("False", "None", "True", "and", "async", "await", "else", "for", "if", "in", "is", "lambda", "not", "or", "yield")
)
_WORD = re.compile(r"""'[^']*'|"[^"]*"|[^\W\d]\w*""")

_ATTEMPTS = 100  # to parse an expression while other threads parse theirs


def _parse(text: str) -> ast.expr:
    def named(word: re.Match[str]) -> str:
        return _LETTER + word[0] if word[0] in _STATEMENTS else word[0]

    try:
        return _tree(_WORD.sub(named, text.strip()))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        hint = "; == compares" if re.search(r"[^=<>!]=[^=]", text) else ""
        raise PlanError(f"expected an expression over metadata columns, got {text!r}{hint}") from error


def _tree(text: str) -> ast.expr:
    """Parse an expression, again after a `SystemError`.

    Before Python 3.13, `ast` has one counter of its depth for all threads, so it fails by chance while another thread
    parses in any library, which no lock here can prevent.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(SystemError):
            return ast.parse(text, mode="eval").body
    return ast.parse(text, mode="eval").body


def names_in(text: str) -> list[str]:
    """Names of columns in a condition, each once."""
    names = (node.id.removeprefix(_LETTER) for node in ast.walk(_parse(text)) if isinstance(node, ast.Name))
    return list(dict.fromkeys(names))


def evaluate(text: str, table: Columns) -> BoolArray:
    try:
        with np.errstate(all="ignore"):
            return np.asarray(_value(_parse(text), table))
    except (OverflowError, RecursionError) as error:
        raise PlanError(
            f"expected an expression of modest depth with numbers that fit a float64, got {text!r}"
        ) from error


def _value(node: ast.expr, table: Columns) -> Any:  # noqa: PLR0911 - one return a kind of node
    """The value of an expression: `[E]` or scalar. The only syntax that is known is what stands here."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return np.asarray(value if -(2**63) <= value < 2**63 else float(value))
        case ast.Name(id=name):
            return _column(name.removeprefix(_LETTER), table)
        case ast.Compare(
            left=ast.Constant(value=str() as word), ops=[ast.In() | ast.NotIn() as op], comparators=[ast.Name(id=group)]
        ):
            has = _has_word(word, group, table)
            return has if isinstance(op, ast.In) else ~has
        case (
            ast.Compare(
                left=ast.Name(id=name),
                ops=[ast.Eq() | ast.NotEq() as op],
                comparators=[ast.Constant(value=str() as text)],
            )
            | ast.Compare(
                left=ast.Constant(value=str() as text),
                ops=[ast.Eq() | ast.NotEq() as op],
                comparators=[ast.Name(id=name)],
            )
        ):
            same = _is_text(text, name.removeprefix(_LETTER), table)
            return same if isinstance(op, ast.Eq) else ~same
        case ast.Compare():
            sides = [_number(side, table) for side in (node.left, *node.comparators)]
            return reduce(np.logical_and, map(_compare, node.ops, sides[:-1], sides[1:]))
        case ast.BoolOp(op=op, values=values):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return reduce(join, [_truth(value, table) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_truth(operand, table)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, table)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            sides = [np.asarray(_number(side, table), np.float64) for side in (left, right)]
            return _ARITHMETIC[type(op)](*sides)
        case _:
            raise PlanError(
                "expected comparisons, and, or, not, numbers, column names, + - * / % and 'word' in tags, got "
                f"{ast.unparse(node).replace(_LETTER, '')!r}"
            )


def _column(name: str, table: Columns) -> Any:
    column = _known(name, table)
    if isinstance(column, Ragged):
        raise PlanError(f"expected a column of numbers, got {name!r} with rows of varying length; compare text with ==")
    return column


def _known(name: str, table: Columns) -> Array:
    if name not in list(table):
        hint = suggestion(name, table) or "; text in the metadata has a name too, if an episode has it"
        raise PlanError(f"expected a column among {list(table)}, got {name!r}{hint}")
    column: Any = table[name]
    return column


def _is_text(text: str, name: str, table: Columns) -> BoolArray:
    """`[E]` whether the text of an episode is this one."""
    column = _known(name, table)
    if isinstance(column, Ragged):
        if column.values.dtype != np.uint8 or column.values.ndim != 1:
            raise PlanError(
                f"expected a column of text to compare with {text!r}, got {name!r} of {column.values.dtype}"
            )
        return np.array([each == text for each in column.strings()], np.bool_)
    if column.dtype.kind not in "US" or column.ndim != 1:
        raise PlanError(f"expected a column of text to compare with {text!r}, got {name!r} of {column.dtype}")
    return column == (text.encode() if column.dtype.kind == "S" else text)


def _has_word(word: str, group: str, table: Columns) -> BoolArray:
    """`[E]` whether an episode has the word. Nobody has a word without a column."""
    if group not in WORD_GROUPS:
        raise PlanError(f"expected 'word' in one of {list(WORD_GROUPS)}, got {group!r}")
    if RATING not in table:
        raise PlanError(f"expected a dataset opened with curation= to look for {word!r} in {group}")
    path = f"{group}/{word}"
    return np.asarray(table[path], np.bool_) if path in table else np.zeros(table.n, np.bool_)


def _truth(node: ast.expr, table: Columns) -> BoolArray:
    value = _value(node, table)
    if value.dtype != np.bool_:
        raise PlanError(f"expected a condition on either side of and, or, not, got {ast.unparse(node)!r}")
    return value


def _number(node: ast.expr, table: Columns) -> Any:
    """Value to compare or calculate with. Booleans count as 0 and 1."""
    value = _value(node, table)
    return value.astype(np.int64) if value.dtype == np.bool_ else value


def _compare(op: ast.cmpop, left: Any, right: Any) -> BoolArray:
    if type(op) not in _COMPARISONS:
        raise PlanError(f"expected one of == != < <= > >=, got {type(op).__name__}")
    known = ~(np.isnan(left) | np.isnan(right))
    return known & _COMPARISONS[type(op)](left, right)


@dataclass(frozen=True, eq=False)
class TakeEpisodes(EpisodeTransform):
    """Take rows of the episode table, in the given order."""

    rows: IntArray

    @override
    def choose(self, episodes: Episodes) -> Episodes:
        return episodes.take(self.rows, "take")
