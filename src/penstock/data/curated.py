"""`CuratedEpisodes`: leave out the episodes that a curation excludes, and add its tags and ratings to the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.data.curation import Curation
from penstock.errors import PlanError
from penstock.plan.episodes import Episodes
from penstock.plan.transform import EpisodeTransform
from penstock.plan.where import RATING, WORD_GROUPS


@dataclass(frozen=True, eq=False)
class CuratedEpisodes(EpisodeTransform):
    """Keep the episodes that a curation does not exclude. The table gets columns for its marks (`curation_columns`).

    The fingerprint depends on all marks of these episodes except notes.

    Args:
        curation: The marks. They must not change afterwards.
    """

    curation: Curation

    @override
    def choose(self, episodes: Episodes) -> Episodes:
        curation, index = self.curation, episodes.index
        marked = replace(episodes, table=partial(_table, curation, episodes))
        why = f"Curation({curation.digest(index.tolist())})"
        return marked.take(np.flatnonzero(~excluded_rows(curation, index)), why)

    @override
    def __repr__(self) -> str:
        return repr(self.curation)


def curation_columns(curation: Curation, index: IntArray) -> dict[str, AnyArray]:
    """Return the marks of episodes as columns of numbers.

    Args:
        curation: The marks.
        index: `[E]` numbers of the episodes.

    Returns:
        `rating` `[E]` float64, NaN without a rating; `tags/<tag>` and `spans/<tag>` `[E]` bool for each tag that some
        episode has.
    """
    marks = dict(curation.marks())
    numbers = np.array(sorted(marks), np.int64)
    rows = np.searchsorted(numbers, index)
    numbered = np.flatnonzero(np.append(numbers, -1)[rows] == index)
    rating = np.full(len(index), np.nan)
    columns: dict[str, AnyArray] = {RATING: rating}
    words: dict[str, list[int]] = {}
    for row in numbered.tolist():
        each = marks[int(index[row])]
        rating[row] = np.nan if each.rating is None else each.rating
        for group, tags in zip(WORD_GROUPS, (each.tags, {tag for _, _, tag in each.spans}), strict=True):
            for tag in tags:
                words.setdefault(f"{group}/{tag}", []).append(row)
    for name in sorted(words):
        columns[name] = np.zeros(len(index), np.bool_)
        columns[name][words[name]] = True
    return columns


def excluded_rows(curation: Curation, index: IntArray) -> AnyArray:
    """Return `[E]` bool: which episodes are excluded.

    Args:
        curation: The marks.
        index: `[E]` numbers of the episodes.
    """
    return np.isin(index, [episode for episode, marks in curation.marks() if marks.excluded])


def _table(curation: Curation, episodes: Episodes) -> Columns:
    """Metadata and marks of the episodes."""
    table = episodes.table()
    added = curation_columns(curation, episodes.index)
    if taken := [name for name in table.flat if name == RATING or name.split("/")[0] in WORD_GROUPS]:
        raise PlanError(f"expected metadata without the columns of a curation, got {taken}; open it without curation=")
    return Columns.of_flat({**table.flat, **added}, len(episodes))
