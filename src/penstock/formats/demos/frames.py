"""A source whose observations stay in the arrays they were read as; stacks of frames are put together when read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field, Spec
from penstock.formats.base.account import Account
from penstock.formats.base.state import SourceState, StateSource
from penstock.formats.memory import MemorySource
from penstock.kernels.digest import digest_of
from penstock.kernels.rows import RowMap

SMALL = 4096  # bytes of a frame below which runs are joined: a run costs more than its copy


class FrameRows(Protocol):
    """The rows of a column, wherever they are."""

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def field(self, align: Align) -> Field: ...

    def digest(self) -> bytes:
        """A digest that changes with the values."""
        ...

    def read(self, selection: Selection, out: AnyArray) -> None: ...


class Frames:
    """Rows that are made of frames.

    `runs` are arrays `[n, *shape]` of one dtype and shape, frames in order. Without `index`, row `r` is frame `r`. With
    `index`, `[rows, k]` int64, row `r` is the frames `index[r]` side by side along `axis` (0 or -1) of a frame; -1 is a
    frame of zeros.

    Cost: the runs, which are not copied if they are C-contiguous and large, and 8 k bytes a row.
    """

    def __init__(self, runs: Sequence[AnyArray], index: IntArray | None = None, axis: int = 0) -> None:
        buffers = [np.ascontiguousarray(run) for run in runs]
        if len(buffers) > 1 and buffers[0].nbytes // max(len(buffers[0]), 1) < SMALL:
            buffers = [np.concatenate(buffers)]
        self.runs = buffers
        self.index = index
        self.axis = axis

    def __reduce__(self) -> tuple[Any, ...]:
        return Frames, (self.runs, self.index, self.axis)

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs) if self.index is None else len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        inner = list(self.runs[0].shape[1:])
        if self.index is not None:
            inner[self.axis] *= self.index.shape[1]
        return tuple(inner)

    def field(self, align: Align) -> Field:
        return Field(self.runs[0].dtype, self.shape, align)

    def digest(self) -> bytes:
        """A digest of all values. Cost: one pass over the frames."""
        parts = [*self.runs, np.array(self.axis), *([] if self.index is None else [self.index])]
        return b"".join(digest_of(part) for part in parts)

    @cached_property
    def _rows(self) -> RowMap:
        width = self.runs[0].dtype.itemsize * int(np.prod(self.runs[0].shape[1:], dtype=np.int64))
        lengths = np.array([len(run) for run in self.runs], np.int64)
        buffers = [run.reshape(-1).view(np.uint8) for run in self.runs]
        return RowMap.build(buffers, lengths, np.arange(len(buffers)), lengths * 0, width)

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Rows into the covered places of `out` `[n * L, *shape]`: one gather, and a copy where `axis` is -1."""
        if self.index is None:
            self._rows.gather(selection.start, selection.length, selection.destination, out.reshape(-1).view(np.uint8))
            return
        within = np.arange(int(selection.length.sum())) - np.repeat(offsets_of(selection.length)[:-1], selection.length)
        wanted = self.index[np.repeat(selection.start, selection.length) + within]
        places = np.repeat(selection.destination, selection.length) + within
        if self.axis == 0:
            self._stack(wanted, places, out)
            return
        m, k = wanted.shape
        *outer, channels = self.runs[0].shape[1:]
        beside = np.empty((m, *outer, k * channels), out.dtype)
        frames = np.empty((m, k, *outer, channels), out.dtype)
        self._stack(wanted, np.arange(m, dtype=np.int64), frames)
        beside.reshape(m, *outer, k, channels)[...] = np.moveaxis(frames, 1, -2)
        out.reshape(-1, *self.shape)[places] = beside

    def _stack(self, wanted: IntArray, places: IntArray, out: AnyArray) -> None:
        """Frames `wanted` `[m, k]`, one behind the other, to `places` `[m]`."""
        cells = (places[:, None] * wanted.shape[1] + np.arange(wanted.shape[1], dtype=np.int64)).ravel()
        frames, there = wanted.ravel(), wanted.ravel() >= 0
        flat = out.reshape(-1).view(np.uint8)
        if not there.all():
            flat.reshape(-1, self._rows.row_bytes)[cells[~there]] = 0
        self._rows.gather(frames[there], np.ones(int(there.sum()), np.int64), cells[there], flat)


def stack_index(lengths: Sequence[int], k: int, *, repeat: bool) -> IntArray:
    """`[rows, k]` the last `k` frames at every row, oldest first; before the first one it is repeated, or -1."""
    first = np.repeat(offsets_of(lengths)[:-1], lengths)[:, None]
    index = np.arange(len(first))[:, None] + np.arange(1 - k, 1)
    return np.maximum(index, first) if repeat else np.where(index < first, -1, index)


class FrameSource(StateSource[SourceState]):
    """Columns in memory, some of them `Frames`. Those of `spec` that are not in `frames` are in `columns`."""

    def __init__(
        self,
        spec: Spec,
        frames: Mapping[str, FrameRows],
        columns: Mapping[str, AnyArray | Ragged],
        offsets: IntArray,
        metadata: Mapping[str, Any],
        episode_metadata: Sequence[Mapping[str, Any]],
        account: Account | None = None,
    ) -> None:
        rest = Spec({path: field for path, field in spec.items() if path not in frames})
        self._rest = MemorySource(rest, columns, offsets, metadata, episode_metadata)
        self._state = replace(
            self._rest.state,
            spec=spec,
            digest=partial(_digest, spec, self._rest, dict(frames)),
            arrays={**self._rest.state.arrays, **frames},
            account=account or Account(),
        )
        self._given = (spec, dict(frames), dict(columns), offsets, metadata, episode_metadata, account)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameSource, self._given

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return self._rest.episode_metadata(episodes)


def _digest(spec: Spec, rest: MemorySource, frames: Mapping[str, FrameRows]) -> str:
    """Digest of spec and all values. Cost: one pass over the data."""
    # The space of observations follows from their fields, and its bounds would be millions of numbers.
    without = Spec(spec.fields, None, spec.action_space).fingerprint
    digest = hashlib.sha256(f"{without} {rest.fingerprint}".encode())
    for rows in frames.values():
        digest.update(rows.digest())
    return digest.hexdigest()
