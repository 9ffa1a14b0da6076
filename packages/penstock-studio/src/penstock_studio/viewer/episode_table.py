"""`EpisodeTable`: the episodes of a dataset as a table for pages: filtered, sorted, counted and cut.

Conditions have the language and the names of `EpisodeDataset.filter`, and may also use measures of the check and marks
of people. Stored columns of episodes, and returns before the check is done, are read when a page asks for them. The
order by each column is computed once, so that listing 10^6 episodes takes some milliseconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, Int32Array, IntArray
from penstock.core.columns import LazyColumns
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.dataset_facts import histogram_of
from penstock.errors import ArgumentError, PlanError, suggestion
from penstock.formats.base.returns import RETURN
from penstock.plan.where import RATING, evaluate

MOST_ROWS = 1000  # of one answer
SHOWN = 9  # columns that a page shows unless it asks for others
LISTED_TEXTS = 12  # different texts of a column that are counted
LONGEST = 200  # characters of a text
QUICK = 20_000_000  # steps whose rewards are read for the first page
ABOUT = {
    "id": "number of the episode",
    "total_steps": "steps of the episode",
    RETURN: "sum of the rewards",
    "stillness": "share of the steps in which nothing that is observed changes",
    "jerk": "mean second difference of the actions over the first one: 0 is a straight line, noise is near 2",
    "novelty": "how far the means of the episode are from those of all episodes, in standard deviations",
    "findings": "findings of the check that name the episode",
    "rating": "rating by people, 1 to 5",
    "excluded": "whether people left the episode out",
    "excluded_steps": "steps that people left out",
}


@dataclass(frozen=True)
class Asked:
    """Which episodes a page asks for, and in which order."""

    where: str = ""
    sort: str = ""
    descending: bool = False
    finding: str = ""
    seed: int | None = None


EVERY = Asked()


class EpisodeTable:
    """The table of one dataset. It does not change: marks and measures make another one, which shares what was read."""

    def __init__(self, data: EpisodeDataset) -> None:
        self._data = data
        table = data.table()
        self._described = data.episodes.described(table=table)
        self._metadata = [name for name, values in table.flat.items() if _is_vector(values)]
        self._stored = [name for name in self._described if name not in self._metadata and _is_one(data.spec, name)]
        self._measures: dict[str, AnyArray] = {}
        self._marks: dict[str, AnyArray] = {}
        self._findings: dict[str, IntArray] = {}
        self._orders: dict[str, tuple[Int32Array, int]] = {}  # by column, see `_ranked`

    @property
    def measured(self) -> bool:
        """Whether the measures of the check are columns."""
        return "findings" in self._measures

    def with_measures(self, measures: Mapping[str, AnyArray], findings: Mapping[str, IntArray]) -> EpisodeTable:
        """Return the table with the measures of the check and the episodes of each finding.

        Columns of the dataset keep their names.
        """
        listed = np.concatenate([np.zeros(0, np.int64), *map(np.unique, findings.values())]).astype(np.int64)
        counts = np.bincount(listed, minlength=len(self._data.source))[self._data.episodes.index]
        whole = {name: values for name, values in measures.items() if name != RETURN or not np.isnan(values).any()}
        shown = {name: v for name, v in {**whole, "findings": counts}.items() if name not in self._metadata}
        table = copy(self)
        table._orders = self._orders | {name: _ranked(values) for name, values in shown.items()}
        table._findings = dict(findings)
        table._measures = shown
        return table

    def with_marks(self, marks: Mapping[str, AnyArray]) -> EpisodeTable:
        """Return the table with other columns of marks. A column of metadata with the name of a mark stays."""
        table = copy(self)
        gone = set(self._marks) | set(marks)
        table._orders = {name: order for name, order in self._orders.items() if name not in gone}
        table._marks = {name: values for name, values in marks.items() if name not in self._metadata}
        return table

    def names(self) -> list[str]:
        """Names of all columns."""
        return list(dict.fromkeys((*self._metadata, *self._stored, *self._measures, *self._marks)))

    def described(self) -> list[dict[str, Any]]:
        """Return each column for a page: its meaning, whether Python's `filter` has it, and whether it has text."""
        return [self._about(name) for name in self.names()]

    def _about(self, name: str) -> dict[str, Any]:
        group, _, word = name.partition("/")
        stored = {"tags": f"whether people gave the tag {word}", "spans": f"whether it has a span {word}"}.get(group)
        known = ABOUT.get(name) or stored or ("metadata" if name in self._metadata else "stored column of episodes")
        in_python = name in self._described or name == RATING or stored is not None
        field = self._data.spec.fields.get(name)
        is_text = name not in self._metadata and field is not None and _is_text(field)
        return {"name": name, "about": known, "python": in_python, "text": is_text, "condition": _condition(name)}

    def shown(self) -> list[str]:
        """Columns that a page shows unless it asks for others: columns that are known or quick to read, marks last."""
        is_quick = RETURN in self._measures or self._data.total_steps <= QUICK
        returns = [RETURN] if RETURN in self.names() and is_quick else []
        measures = [name for name in self._measures if name != RETURN]
        first = dict.fromkeys(("id", "total_steps", *returns, *measures))
        room = max(SHOWN - len(first), 2)
        others = [name for name in self._metadata if name not in first]
        marks = [name for name, values in self._marks.items() if np.any(values > 0)]
        return [*first, *others[:room], *marks[:SHOWN]]

    def page(self, asked: Asked, *, columns: Sequence[str] = (), offset: int = 0, limit: int = 100) -> dict[str, Any]:
        """Return a part of the table, with the columns that are asked for; the number of the episode is first."""
        shown = list(dict.fromkeys(("id", *(columns or self.shown()))))
        numbers = self.numbers(asked)
        rows = numbers[max(offset, 0) : max(offset, 0) + min(max(limit, 0), MOST_ROWS)]
        values = [self._listed(name, rows) for name in shown]
        return {
            "total": len(numbers),
            "columns": shown,
            "rows": [list(row) for row in zip(*values, strict=True)],
            "measured": self.measured,
        }

    def numbers(self, asked: Asked) -> IntArray | Int32Array:
        """`[n]` episodes that are asked for, in their order."""
        order = self._order(asked)
        if asked.where:
            order = order[self._mask(asked.where)[order]]
        if asked.finding:
            if asked.finding not in self._findings:
                known = list(self._findings)
                raise ArgumentError(
                    f"no finding {asked.finding!r}{suggestion(asked.finding, known)}; there are {known}"
                )
            order = order[np.isin(self._data.episodes.index[order], self._findings[asked.finding])]
        return order

    def _order(self, asked: Asked) -> IntArray | Int32Array:
        """`[E]` episodes by a column, or drawn with a seed. Missing values are last."""
        if asked.seed is not None:
            return np.random.default_rng(asked.seed).permutation(len(self._data))
        if not asked.sort or asked.sort == "id":
            every = np.arange(len(self._data))
            return every[::-1] if asked.descending and asked.sort else every
        if asked.sort not in self._orders:
            values = self._values(asked.sort)
            self._orders[asked.sort] = _ranked(_strings(values) if isinstance(values, Ragged) else values)
        ranked, known = self._orders[asked.sort]
        return np.concatenate([ranked[:known][::-1], ranked[known:]]) if asked.descending else ranked

    def histograms(self, columns: Sequence[str], asked: Asked, bins: int = 24) -> dict[str, dict[str, Any]]:
        """Return by column `edges` `[bins + 1]` and `counts` `[bins]`, at most about so many; or `texts` and counts."""
        chosen = self.numbers(asked) if asked.where or asked.finding else slice(None)
        return {name: _counts(self._values(name)[chosen], bins) for name in columns}

    def _values(self, name: str) -> Array:
        for known in (self._measures, self._marks):
            if name in known:
                return known[name]
        if name not in self.names():
            raise ArgumentError(f"no column {name!r}{suggestion(name, self.names())}; there are {self.names()}")
        values: Array = self._described[name]
        return values

    def _listed(self, name: str, rows: IntArray | Int32Array) -> list[Any]:
        values = self._values(name)[rows]
        if isinstance(values, Ragged):
            return [text[:LONGEST] for text in values.strings()]
        return [_plain(value) for value in np.asarray(values).tolist()]

    def _mask(self, where: str) -> BoolArray:
        """`[E]` bool."""
        table = LazyColumns(self.names(), len(self._data), lambda names: {name: self._values(name) for name in names})
        mask = np.asarray(evaluate(where, table))
        if mask.dtype != np.bool_:
            raise PlanError(f"expected a condition, got {where!r}; compare with something")
        return np.broadcast_to(mask, len(self._data))

    def in_python(self, asked: Asked) -> bool:
        """Whether `filter` of Python can choose these episodes: without findings, and what the check measured."""
        used = set(re.findall(r"[^\W\d]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", "", asked.where)))
        return not asked.finding and all(each["python"] for each in self.described() if each["name"] in used)


def _is_vector(values: Array) -> bool:
    return not isinstance(values, Ragged) and values.ndim == 1


def _is_one(spec: Spec, name: str) -> bool:
    """Whether a column has one value or text an episode, and for returns, whether a step has one reward."""
    field = spec.fields.get("rewards" if name == RETURN and name not in spec else name)
    return field is not None and not field.shape and (field.kind == "array" or _is_text(field))


def _is_text(field: Field) -> bool:
    """Whether conditions may compare a column with text: arrays in memory have no other kind than bytes for it."""
    return field.kind == "text" or (field.kind == "ragged" and field.dtype == np.uint8)


def _condition(name: str) -> str:
    """How conditions name a column; an empty text if they cannot."""
    group, _, word = name.partition("/")
    if group in ("tags", "spans") and word:
        return f"{word!r} in {group}"
    return name if name.isidentifier() else ""


def _counts(values: Array, bins: int) -> dict[str, Any]:
    if isinstance(values, Ragged) or values.dtype.kind in "US":
        words: list[str] = _strings(values).tolist()
        counts = Counter(words).most_common(LISTED_TEXTS)
        return {"texts": [[text[:LONGEST], count] for text, count in counts]}
    edges, counted = histogram_of(values, min(max(bins, 1), 200))
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    ends = [_plain(end.item()) for end in (known.min(), known.max())] if len(known) else []
    whole = values.dtype.kind in "iu"
    return {"edges": edges.tolist(), "counts": counted.tolist(), "ends": ends, "whole": whole}


def _strings(values: Array) -> AnyArray:
    texts: Iterable[str] = values.strings() if isinstance(values, Ragged) else values.astype(str).tolist()
    return np.array(list(texts), np.str_)


def _ranked(values: AnyArray) -> tuple[Int32Array, int]:
    """`[E]` episodes by their values, missing values last, and how many are not missing. Cost: a sort."""
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)
    ranked = np.argsort(values, kind="stable").astype(np.int32)  # NaN is sorted last
    return ranked, len(values) - int(np.count_nonzero(missing))


def _plain(value: Any) -> Any:
    """A value for JSON: None in place of NaN and infinity."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if not isinstance(value, float) or np.isfinite(value) else None
