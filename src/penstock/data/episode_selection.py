"""`EpisodeSelection`: chosen episodes of a source, and the transforms that chose them.

`EpisodeDataset` is what people use; conversion, splits and derived columns use these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.episode import Episode
from penstock.data.curated import CuratedEpisodes
from penstock.data.derived import DerivedSource
from penstock.data.names import source_text, step_text
from penstock.errors import StateError
from penstock.formats.base.source import Source
from penstock.plan.episodes import Episodes
from penstock.plan.transform import EpisodeTransform
from penstock.plan.where import TakeEpisodes


@dataclass(frozen=True, eq=False)
class EpisodeSelection:
    """Table of the chosen episodes, and the transforms that led to it from the first `total` episodes of the source."""

    source: Source
    episodes: Episodes
    total: int
    transforms: tuple[EpisodeTransform, ...] = ()

    @classmethod
    def of(cls, source: Source) -> EpisodeSelection:
        """Return all episodes of a source."""
        return cls(source, Episodes.of(source), len(source))

    @property
    def chain(self) -> tuple[str, ...]:
        """The source, and the transforms that chose these episodes, in order, as text."""
        return *_source_chain(self.source), *map(step_text, self.transforms)

    def choose(self, transform: EpisodeTransform) -> EpisodeSelection:
        """Return the episodes that a transform chooses."""
        transforms = (*self.transforms, transform)
        return EpisodeSelection(self.source, transform.choose(self.episodes), self.total, transforms)

    def read(self, numbers: Iterable[int]) -> Iterator[Episode]:
        """Read episodes by number, several at a time. One with excluded spans has the steps between them."""
        rows = np.fromiter(numbers, np.int64)
        index = self.episodes.index[rows]
        if self.episodes.first_step is None:
            return self.source.episodes(index.tolist())
        first, length = self.episodes.first_step[rows], self.episodes.length[rows]
        return self._parts(index, first, length)

    def _parts(self, index: IntArray, first: IntArray, length: IntArray) -> Iterator[Episode]:
        """Whole episodes, several at a time, and parts of episodes, one by one."""
        whole = length == np.diff(self.source.offsets)[index]
        for is_whole, group in groupby(range(len(index)), whole.__getitem__):
            if is_whole:
                yield from self.source.episodes(index[list(group)].tolist())
            else:
                for i in group:
                    yield self.source.part(int(index[i]), int(first[i]), int(first[i] + length[i]))

    def refreshed(self) -> EpisodeSelection:
        """Return all episodes of the source as it is now, without episodes that curations exclude."""
        self.source.refresh()
        curations = [each for each in self.transforms if isinstance(each, CuratedEpisodes)]
        return reduce(EpisodeSelection.choose, curations, EpisodeSelection.of(self.source))

    def as_of(self, episodes: int) -> EpisodeSelection | None:
        """Return the selection as it was when its source had so many episodes, chosen by the same transforms.

        None if the source does not know its earlier fingerprint. Raises `StateError` if it has fewer episodes now.
        """
        if episodes > len(self.source):
            raise StateError(
                f"expected a source of at least {episodes} episodes, got {len(self.source)}; it has shrunk"
            )
        return self._chosen_from(self.source, episodes)

    def over(self, source: Source) -> EpisodeSelection:
        """Return the same episodes of another source, which has more columns than this one, or the same."""
        selection = self._chosen_from(source, self.total)
        if selection is None:
            raise StateError(
                f"expected a source of {self.total} episodes, got one that has grown to {len(source)} and does not "
                "know its earlier fingerprint; refresh() the dataset first"
            )
        return selection

    def _chosen_from(self, source: Source, total: int) -> EpisodeSelection | None:
        """The same transforms of the first episodes of a source. None if there are no such episodes to take."""
        first = Episodes.of(source, total)
        if first is None:
            return None
        selection = EpisodeSelection(source, first, total)
        for transform in self.transforms:
            if isinstance(transform, TakeEpisodes) and transform.rows.max(initial=-1) >= len(selection.episodes):
                return None
            selection = selection.choose(transform)
        return selection


def _source_chain(source: Source) -> tuple[str, ...]:
    """The source that was opened, and the columns that were added to it."""
    if isinstance(source, DerivedSource):
        return *_source_chain(source.base), repr(source.column)
    return (source_text(source),)
