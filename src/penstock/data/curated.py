"""`CuratedEpisodes`: leave out what a curation excludes, and add its tags and ratings to the table.

An excluded span cuts its episode: each range of steps before, between and after spans becomes a row of the table of
episodes (`Episodes.parts`). So every way to cut samples honours spans without knowing about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    """Keep the episodes, and the parts of episodes, that a curation does not exclude.

    The table gets columns for the marks (`curation_columns`). A part has the marks of its episode.

    The fingerprint depends on all marks of these episodes except notes.
    """

    curation: Curation

    @override
    def choose(self, episodes: Episodes) -> Episodes:
        curation, index = self.curation, episodes.index
        marked = episodes.with_table(partial(_table, curation, episodes))
        why = f"Curation({curation.digest(index.tolist())})"
        return _without_spans(marked.take(np.flatnonzero(~excluded_rows(curation, index)), why), curation)

    @override
    def __repr__(self) -> str:
        return repr(self.curation)


def curation_columns(curation: Curation, index: IntArray, most: int | None = None) -> dict[str, AnyArray]:
    """Return the marks of episodes as columns of numbers."""
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
    groups = [[name for name in words if name.startswith(f"{group}/")] for group in WORD_GROUPS]
    chosen = [sorted(names, key=lambda name: (-len(words[name]), name))[:most] for names in groups]
    for name in sorted(name for names in chosen for name in names):
        columns[name] = np.zeros(len(index), np.bool_)
        columns[name][words[name]] = True
    return columns


def excluded_rows(curation: Curation, index: IntArray) -> AnyArray:
    """Return `[E]` bool: which episodes are excluded."""
    return np.isin(index, [episode for episode, marks in curation.marks() if marks.excluded])


def excluded_steps(curation: Curation, index: IntArray) -> IntArray:
    """Return `[E]` int64: how many steps the excluded spans of each episode have."""
    counts = {e: sum(last + 1 - first for first, last in marks.excluded_spans) for e, marks in curation.marks()}
    steps = np.zeros(len(index), np.int64)
    for row in np.flatnonzero(np.isin(index, list(counts))).tolist():
        steps[row] = counts[int(index[row])]
    return steps


def _without_spans(episodes: Episodes, curation: Curation) -> Episodes:
    """The episodes, and instead of those with excluded spans their other steps."""
    spans = {episode: marks.excluded_spans for episode, marks in curation.marks() if marks.excluded_spans}
    cut = np.flatnonzero(np.isin(episodes.index, list(spans)))
    if not len(cut):
        return episodes
    count = np.ones(len(episodes), np.int64)
    kept: list[tuple[int, int]] = []
    for row in cut.tolist():
        begin = 0 if episodes.first_step is None else int(episodes.first_step[row])
        parts = kept_ranges(spans[int(episodes.index[row])], begin, begin + int(episodes.length[row]))
        kept += [(first - begin, last - first) for first, last in parts]
        count[row] = len(parts)
    rows = np.repeat(np.arange(len(episodes)), count)
    first, length = np.zeros_like(rows), episodes.length[rows]
    changed = np.isin(rows, cut)
    first[changed], length[changed] = np.array(kept, np.int64).reshape(-1, 2).T
    return episodes.parts(rows, first, length, "excluded spans")


def kept_ranges(spans: Sequence[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    edges = [begin, *(edge for first, last in spans for edge in (first, last + 1)), end]
    clipped = np.clip(edges, begin, end).reshape(-1, 2).tolist()
    return [(first, last) for first, last in clipped if first < last]


def _table(curation: Curation, episodes: Episodes) -> Columns:
    """Metadata and marks of the episodes."""
    table = episodes.table()
    added = curation_columns(curation, episodes.index)
    if taken := [name for name in table.flat if name == RATING or name.split("/")[0] in WORD_GROUPS]:
        raise PlanError(f"expected metadata without the columns of a curation, got {taken}; open it without curation=")
    return Columns.of_flat({**table.flat, **added}, len(episodes))
