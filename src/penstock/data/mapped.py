"""`MappedSource`: a source whose episodes a function changes: columns of it are computed, and episodes left out.

It overlays another source, as `DerivedSource` does, with the results of an `EpisodeMap` for each episode. Results of
the episodes that were used last are kept, up to `MEMORY` bytes. So the columns of an episode are computed together, and
a conversion that reads again for its certificate does not compute again.

Which episodes the function leaves out is known when it was called. So the source still has all of them, and reading one
that is left out is an error. A conversion reads by `mapped` and writes the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.core.columns import Columns, under
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.data.episode_function import read_only
from penstock.data.episode_map import EpisodeMap
from penstock.errors import DataError
from penstock.files.remote import Wanted
from penstock.formats.base.pieces import RowPieces, cut, spread
from penstock.formats.base.source import Source
from penstock.formats.base.state import OverlaySource
from penstock.plan.base import chained

MEMORY = 1 << 28  # bytes of results that are kept
LEAST_BYTES = 256  # a result counts for as much at least

Results = Mapping[str, Array]


class MappedSource(OverlaySource):
    """Source with the columns of another source, and the columns that a function returns for its episodes."""

    def __init__(self, base: Source, mapping: EpisodeMap, fields: Mapping[str, Field]) -> None:
        self.mapping = mapping
        self.fields = dict(fields)
        super().__init__(base, _spec(base.spec, self.fields))
        self._kept = Cache(MEMORY)
        self._offsets: dict[str, IntArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base, self.mapping, self.fields)

    @property
    @override
    def fingerprint(self) -> str:
        return self._chained(self.base.fingerprint)

    @override
    def fingerprint_of(self, episodes: int) -> str | None:
        below = self.base.fingerprint_of(episodes)
        return None if below is None else self._chained(below)

    def _chained(self, below: str) -> str:
        fields = [(path, field.to_json()) for path, field in self.fields.items()]
        return chained(below, (self.mapping.fingerprint, fields))

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the source below. Stored statistics are of its columns, so there are none."""
        return {name: value for name, value in self.base.metadata.items() if name != "statistics"}

    @override
    def table(self) -> Columns:
        return self.base.table()

    def mapped(self, order: Iterable[int]) -> Iterator[Episode | None]:
        """Yield episodes; None for each that the function leaves out."""
        for episode in read_mapped(self.base, order):
            results = None if episode is None else self._results(episode)
            yield None if episode is None or results is None else self._extended(episode, results)

    @override
    def episode(self, e: int) -> Episode:
        episode = self.base.episode(e)
        return self._extended(episode, self._known(episode))

    @override
    def episodes(self, order: Iterable[int] | None = None) -> Iterator[Episode]:
        return (self._extended(episode, self._known(episode)) for episode in self.base.episodes(order))

    def _extended(self, episode: Episode, results: Results) -> Episode:
        columns = {**episode.columns, **results}
        return Episode.trusted(self.spec, {path: columns[path] for path in self.spec}, episode.id, episode.metadata)

    def _results(self, episode: Episode) -> Results | None:
        """The columns that the function returns for an episode, or None."""

        def computed() -> tuple[Results | None, int]:
            shown = read_only_episode(episode)
            result = self.mapping.result(shown)
            columns = None if result is None else self.mapping.columns(result, self.fields, shown)
            nbytes = LEAST_BYTES + sum(array.nbytes for array in (columns or {}).values())
            return columns, min(nbytes, MEMORY)  # so that a larger result is kept too, alone

        return self._kept.get(episode.id, computed)

    def _known(self, episode: Episode) -> Results:
        results = self._results(episode)
        if results is None:
            raise DataError(
                f"expected columns of episode {episode.id}, and {self.mapping.name} leaves it out; choose the others "
                "first, as data[numbers] or by filter(); write() leaves out such episodes"
            )
        return results

    def _column(self, e: int, column: str) -> Array:
        results: Results | None = self._kept.peek(e)
        return (self._known(self.base.episode(e)) if results is None else results)[column]

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        if column not in self.fields:
            super().read_array(column, selection, out)
            return
        for e, begin, length, place in self._pieces(column, selection):
            out[place : place + length] = self._column(e, column)[begin : begin + length]

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        if column not in self.fields:
            return super().read_ragged(column, selection)
        field = self.fields[column]
        rows = [Ragged(np.empty((0, *field.shape), field.dtype), np.zeros(1, np.int64))]
        for e, begin, length, _ in self._pieces(column, selection):
            values: Any = self._column(e, column)
            rows.append(values[begin : begin + length])
        return spread(Ragged.concatenate(rows), selection)

    def _pieces(self, column: str, selection: Selection) -> Iterator[tuple[int, int, int, int]]:
        """Episode, first row in it, rows and place of each piece of a selection."""
        first = self.rows(self.spec[column].align)
        pieces: RowPieces = cut(first, selection.start, selection.length, selection.destination)
        begins = pieces.start - first[pieces.run]
        yield from zip(*(a.tolist() for a in (pieces.run, begins, pieces.length, pieces.destination)), strict=True)

    @override
    def view_array(self, column: str, first: int, n: int) -> AnyArray | None:
        return None if column in self.fields else super().view_array(column, first, n)

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        return [] if column in self.fields else super().remote_ranges(column, selection)

    @override
    def value_offsets(self, column: str) -> IntArray:
        if column not in self.fields:
            return super().value_offsets(column)
        if column not in self._offsets:
            self._offsets[column] = Source.value_offsets(self, column)
        return self._offsets[column]

    @override
    def refresh(self) -> bool:
        self._offsets.clear()
        return super().refresh()

    @override
    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        if column in self.fields:
            Source.read_values(self, column, selection, out)
        else:
            super().read_values(column, selection, out)


def read_mapped(source: Source, order: Iterable[int]) -> Iterator[Episode | None]:
    """Yield episodes of any source; None for each that a function leaves out."""
    return source.mapped(order) if isinstance(source, MappedSource) else iter(source.episodes(order))


def mappings_of(source: Source) -> list[EpisodeMap]:
    """Return the functions that change the episodes of a source, in the order in which they are called."""
    return [*mappings_of(source.base), source.mapping] if isinstance(source, MappedSource) else []


def computed_columns(source: Source) -> dict[str, EpisodeMap]:
    """Return the columns that functions compute, each with its last function."""
    if not isinstance(source, MappedSource):
        return {}
    return computed_columns(source.base) | dict.fromkeys(source.fields, source.mapping)


def stored_source(source: Source) -> Source:
    """Return the source whose episodes functions change; a source without functions itself."""
    return stored_source(source.base) if isinstance(source, MappedSource) else source


def read_only_episode(episode: Episode) -> Episode:
    """Return an episode as a function gets it: its arrays are read-only."""
    columns = {path: read_only(array) for path, array in episode.columns.items()}
    return Episode.trusted(episode.spec, columns, episode.id, episode.metadata)


def _spec(spec: Spec, fields: Mapping[str, Field]) -> Spec:
    """The spec with other columns. A space of columns whose fields changed is unknown."""
    changed = [path for path, field in fields.items() if spec.fields.get(path) != field]
    spaces = [
        None if any(under(root, path) for path in changed) else space
        for root, space in (("observations", spec.observation_space), ("actions", spec.action_space))
    ]
    return Spec({**spec.fields, **fields}, *spaces)
