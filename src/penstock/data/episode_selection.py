"""`EpisodeSelection`: chosen episodes of a source, and the transforms that chose them.

`EpisodeDataset` is what people use; conversion, splits and derived columns use these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.episode import Episode
from penstock.data.curated import CuratedEpisodes
from penstock.data.derived import DerivedSource
from penstock.data.mapped import MappedSource, read_mapped
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
        return cls(source, Episodes.of(source), len(source))

    @property
    def chain(self) -> tuple[str, ...]:
        """The source, and the transforms that chose these episodes, in order, as text."""
        return *_source_chain(self.source), *map(step_text, self.transforms)

    def choose(self, transform: EpisodeTransform) -> EpisodeSelection:
        transforms = (*self.transforms, transform)
        return EpisodeSelection(self.source, transform.choose(self.episodes), self.total, transforms)

    def episode(self, number: int) -> Episode:
        """Read one episode by number."""
        if self.episodes.first_step is not None:
            return next(self.read([number]))
        return self.source.episode(int(self.episodes.index[number]))

    def read(self, numbers: Iterable[int]) -> Iterator[Episode]:
        """Read episodes by number, several at a time. One with excluded spans has the steps between them."""
        rows = np.fromiter(numbers, np.int64)
        if self.episodes.first_step is None:
            return self.source.episodes(self.episodes.index[rows].tolist())
        return (episode for episode in self._parts(rows, self.source.episodes) if episode is not None)

    def read_mapped(self, numbers: Iterable[int]) -> Iterator[Episode | None]:
        """Read episodes as `read` does; None for each that the function of a mapped source leaves out."""
        rows, read = np.fromiter(numbers, np.int64), partial(read_mapped, self.source)
        if self.episodes.first_step is None:
            return read(self.episodes.index[rows].tolist())
        return self._parts(rows, read, lambda e: next(read([e])) is not None)

    def _parts(
        self,
        rows: IntArray,
        read: Callable[[list[int]], Iterator[Episode | None]],
        keeps: Callable[[int], bool] | None = None,
    ) -> Iterator[Episode | None]:
        """Whole episodes, several at a time, and parts of episodes, one by one; None for what is left out."""
        index, length = self.episodes.index[rows], self.episodes.length[rows]
        first = self.episodes.first_step
        begin = np.zeros_like(rows) if first is None else first[rows]
        whole = length == np.diff(self.source.offsets)[index]
        for is_whole, group in groupby(range(len(index)), whole.__getitem__):
            if is_whole:
                yield from read(index[list(group)].tolist())
            else:
                for i in group:
                    part = int(index[i]), int(begin[i]), int(begin[i] + length[i])
                    yield self.source.part(*part) if keeps is None or keeps(part[0]) else None

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

    def settled(self) -> EpisodeSelection:
        """Return the same episodes, chosen by number, so that another source is not asked the conditions again."""
        if all(isinstance(each, (CuratedEpisodes, TakeEpisodes)) for each in self.transforms):
            return self
        curations = [each for each in self.transforms if isinstance(each, CuratedEpisodes)]
        every = EpisodeSelection(self.source, Episodes.of(self.source), self.total)
        kept = reduce(EpisodeSelection.choose, curations, every)
        places = {place: row for row, place in enumerate(_places(kept.episodes))}
        rows = np.array([places[place] for place in _places(self.episodes)], np.int64)
        return kept.choose(TakeEpisodes(rows))

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


def _places(episodes: Episodes) -> Iterator[tuple[int, int]]:
    """The number of each episode, and its first step, which tells parts of an episode apart."""
    first = np.zeros_like(episodes.index) if episodes.first_step is None else episodes.first_step
    return zip(episodes.index.tolist(), first.tolist(), strict=True)


def _source_chain(source: Source) -> tuple[str, ...]:
    """The source that was opened, and the columns that were added to it."""
    if isinstance(source, DerivedSource):
        return *_source_chain(source.base), repr(source.column)
    if isinstance(source, MappedSource):
        return *_source_chain(source.base), repr(source.mapping)
    return (source_text(source),)
