"""`MemorySource`: episodes in memory as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.spec import Field, Spec
from penstock.errors import SpecError
from penstock.formats.base.state import GatheredColumn, RaggedColumn, SourceState, StateSource
from penstock.kernels.digest import digest_of
from penstock.kernels.rows import RowMap


class MemorySource(StateSource[SourceState]):
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

    Cost: the fingerprint is one pass over the data, at first use.

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
        each: Sequence[Mapping[str, Any]] = episode_metadata or [dict[str, Any]()] * (len(offsets) - 1)
        self._episode_metadata = [dict(m) for m in each]
        begins = np.asarray(offsets, np.int64)
        self._columns = {path: _fitting(path, spec[path], columns[path], begins) for path in spec}
        self._state = SourceState(
            spec=spec,
            offsets=begins,
            digest=partial(_digest, spec, begins, self._columns),
            metadata=dict(metadata or {}),
            arrays={p: GatheredColumn(RowMap.of(a)) for p, a in self._columns.items() if not isinstance(a, Ragged)},
            ragged={p: RaggedColumn(a) for p, a in self._columns.items() if isinstance(a, Ragged)},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # The maps hold addresses, which mean nothing in another process: they are built again there.
        return type(self), (self.spec, self._columns, self.offsets, self.metadata, self._episode_metadata)

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode], metadata: Mapping[str, Any] | None = None) -> MemorySource:
        """Copy episodes of one spec into columns.

        Args:
            episodes: At least one episode.
            metadata: Metadata of the dataset. The default is none.

        Raises:
            SpecError: Specs differ, or there is no episode.
        """
        listed = list(episodes)
        if not listed:
            raise SpecError("expected at least one episode, for their spec is the dataset's; got none")
        spec = listed[0].spec
        for e, episode in enumerate(listed):
            if episode.spec != spec:
                raise SpecError(f"expected every episode to have the columns of the first, got others - at episode {e}")
        columns = {path: _joined([episode.columns[path] for episode in listed]) for path in spec}
        lengths = [len(episode) for episode in listed]
        return cls(spec, columns, offsets_of(lengths), metadata, [e.metadata for e in listed])

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return [dict(self._episode_metadata[e]) for e in episodes]


def _digest(spec: Spec, offsets: IntArray, columns: Mapping[str, Array]) -> str:
    """Digest of spec, offsets and all values."""
    digest = hashlib.sha256(spec.fingerprint.encode() + offsets.tobytes())
    for array in columns.values():
        for part in (array.values, array.offsets) if isinstance(array, Ragged) else (array,):
            digest.update(digest_of(part))
    return digest.hexdigest()


def _fitting(path: str, field: Field, array: Array, offsets: IntArray) -> Array:
    episodes = len(offsets) - 1
    rows = {"step": int(offsets[-1]), "boundary": int(offsets[-1]) + episodes, "episode": episodes}[field.align]
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
