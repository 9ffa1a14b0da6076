"""`MemorySource`: episodes in memory as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.errors import SpecError
from penstock.formats.base.source import Source, check_values
from penstock.kernels.digest import digest_of
from penstock.kernels.rows import RowMap


class MemorySource(Source):
    """Columns in memory, cut into episodes by offsets.

    C-contiguous arrays are not copied. Do not change them while they are read.

    Args:
        spec: Columns and spaces.
        columns: Array of each column, with the number of rows that the alignment of its field requires.
        offsets: `[E + 1]` int64 first step row of each episode, and the end.
        metadata: Metadata of the dataset. The default is none.
        episode_metadata: Metadata of each episode. The default is none.

    Raises:
        SpecError: A column has a wrong number of rows, dtype or shape.

    Example:
        >>> import numpy as np
        >>> from penstock.core.spec import Field
        >>> spec = Spec({"rewards": Field(np.dtype("float64"))})
        >>> source = MemorySource(spec, {"rewards": np.arange(5.0)}, np.array([0, 2, 5]))
        >>> source.episode(1).rewards.tolist()
        [2.0, 3.0, 4.0]
    """

    parses: ClassVar[bool] = False

    def __init__(
        self,
        spec: Spec,
        columns: Mapping[str, Array],
        offsets: IntArray,
        metadata: Mapping[str, Any] | None = None,
        episode_metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._spec, self._offsets = spec, np.asarray(offsets, np.int64)
        self._metadata = dict(metadata or {})
        self._episode_metadata = [dict(m) for m in episode_metadata or [{}] * (len(offsets) - 1)]
        self._columns = {path: _fitting(self, path, columns[path]) for path in spec}
        self._maps = {p: RowMap.of(a) for p, a in self._columns.items() if not isinstance(a, Ragged)}
        self._values: dict[str, RowMap] = {}  # of ragged columns, made when first read
        self._fingerprint: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # The maps hold addresses, which mean nothing in another process: they are built again there.
        return type(self), (self._spec, self._columns, self._offsets, self._metadata, self._episode_metadata)

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode], metadata: Mapping[str, Any] | None = None) -> MemorySource:
        """Copy episodes of one spec into columns.

        Args:
            episodes: At least one episode.
            metadata: Metadata of the dataset. The default is none.

        Raises:
            SpecError: Specs differ, or there is no episode.
        """
        held = list(episodes)
        if not held:
            raise SpecError("expected at least one episode, for their spec is the dataset's; got none")
        spec = held[0].spec
        for e, episode in enumerate(held):
            if episode.spec != spec:
                raise SpecError(f"expected every episode to have the columns of the first, got others - at episode {e}")
        columns = {path: _joined([episode.columns[path] for episode in held]) for path in spec}
        lengths = [len(episode) for episode in held]
        return cls(spec, columns, offsets_of(lengths), metadata, [e.metadata for e in held])

    @property
    def spec(self) -> Spec:
        """Columns and spaces."""
        return self._spec

    @property
    def offsets(self) -> IntArray:
        """First step row of each episode, and the end, `[E + 1]` int64."""
        return self._offsets

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the dataset."""
        return self._metadata

    @property
    def fingerprint(self) -> str:
        """Digest of spec, offsets and all values. Cost: one pass over the data at first use."""
        if self._fingerprint is None:
            digest = hashlib.sha256(self._spec.fingerprint.encode() + self._offsets.tobytes())
            for array in self._columns.values():
                for part in (array.values, array.offsets) if isinstance(array, Ragged) else (array,):
                    digest.update(digest_of(part))
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Read with one gather."""
        self._maps[column].gather(selection.start, selection.length, selection.at, out.reshape(-1).view(np.uint8))

    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        """Read with one gather of values."""
        return gather_ragged(self._ragged(column), selection)

    def value_offsets(self, column: str) -> IntArray:
        """Return the offsets of the array."""
        return self._ragged(column).offsets

    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Read with one gather."""
        held = self._ragged(column)
        check_values(column, held.offsets, selection)
        values = self._values.get(column) or self._values.setdefault(
            column, RowMap.of(np.ascontiguousarray(held.values))
        )
        values.gather(selection.start, selection.length, selection.at, out.reshape(-1).view(np.uint8))

    def _ragged(self, column: str) -> Ragged:
        held = self._columns[column]
        if not isinstance(held, Ragged):
            raise KeyError(f"column {column!r} is not ragged")
        return held

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Return copies of the metadata."""
        return [dict(self._episode_metadata[e]) for e in episodes]


def gather_ragged(held: Ragged, selection: Selection) -> Ragged:
    """Gather the rows of a selection's grid from a `Ragged`.

    Args:
        held: Rows to read from.
        selection: Rows, and their places in a grid of `n` by `L`.

    Returns:
        `n * L` rows. Places without a span are empty rows.

    Example:
        >>> one = np.ones(1, np.int64)
        >>> gather_ragged(Ragged.from_strings(["a", "b"]), Selection(one * 0, one, one, one, (1, 2))).strings()
        ['', 'b']
    """
    places = selection.shape[0] * selection.shape[1]
    rows = np.repeat(selection.start - offsets_of(selection.length)[:-1], selection.length)
    rows += np.arange(len(rows))
    at = np.repeat(selection.at - offsets_of(selection.length)[:-1], selection.length) + np.arange(len(rows))
    lengths = np.zeros(places, np.int64)
    lengths[at] = held.lengths[rows]
    # Spans are ordered by place, so the values come out in the order of the grid.
    return Ragged(held.take(rows).values, offsets_of(lengths))


def _fitting(source: MemorySource, path: str, array: Array) -> Array:
    field = source.spec[path]
    rows = int(source.rows(field.align)[-1])
    shape = array.values.shape[1:] if isinstance(array, Ragged) else array.shape[1:]
    if (
        len(array) != rows
        or array.dtype != field.dtype
        or shape != field.shape
        or isinstance(array, Ragged) != field.ragged
    ):
        raise SpecError(
            f"expected {path} as {rows} {field.align} rows of {field.kind} {field.dtype}{list(field.shape)}, "
            f"got {len(array)} of {array.dtype}{list(shape)}"
        )
    return array if isinstance(array, Ragged) else np.ascontiguousarray(array)


def _joined(parts: Sequence[Array]) -> Array:
    ragged = [p for p in parts if isinstance(p, Ragged)]
    return Ragged.concatenate(ragged) if ragged else np.concatenate([np.asarray(p) for p in parts])
