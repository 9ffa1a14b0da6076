"""From the index of an HDF5 file to columns that can be read: a field and a reader for each.

A column is one part if all its episodes are stored alike, otherwise several, which `JoinedRows` or `JoinedRagged` put
together. The readers of parts number the rows of their part, and the joined readers number rows as the dataset does.
JPEG frames are recognised by space, shape and first bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.containers.hdf5 import File
from penstock.containers.images import JPEG_START, ImageRows, is_jpeg, read_header
from penstock.core.arrays import IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import offsets_of
from penstock.core.space_columns import leaf_columns
from penstock.core.spaces import Box, Space
from penstock.core.spec import Align, Kind, Spec
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut
from penstock.formats.base.pieces import RowReader
from penstock.formats.minari import columns
from penstock.formats.minari.columns import ColumnStorage, Infos, SpecColumn
from penstock.formats.minari.hdf5_index import ColumnRuns, HDF5Index, by_column
from penstock.formats.minari.rows import (
    DECODED,
    BlankRows,
    ColumnPart,
    FillRows,
    FilteredRows,
    JoinedRagged,
    JoinedRows,
    RaggedRows,
    RawBlobs,
    StringRows,
    VlenRows,
    mapped,
    owners_of,
)
from penstock.kernels.rows import RowMap


@dataclass(frozen=True, eq=False)
class HDF5Columns:
    """A dataset's spec, step offsets, one reader a column, and the columns that were left out."""

    spec: Spec
    offsets: IntArray
    rows: Mapping[str, RowReader]
    ragged: Mapping[str, RaggedRows]
    frames: frozenset[str] = frozenset()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, eq=False)
class _Piece:
    """One part of a column: its layout and its reader."""

    stored: ColumnStorage
    rows: RowReader | None
    ragged: RaggedRows | None


def readable(
    index: HDF5Index, files: Sequence[File], spaces: Mapping[str, Space | None], infos: Infos, path: str
) -> HDF5Columns:
    left_out = columns.unread(dict(index.unreadable), infos, path)
    assembly = _Assembly(index, files, spaces)
    stored = {column: [piece.stored for piece in pieces] for column, pieces in assembly.pieces.items()}
    episodes = len(index.number)
    if episodes == 0:
        return _empty(spaces)
    lengths = columns.steps(stored, episodes, path)
    resolved, skipped = columns.resolve(stored, lengths, infos, path)
    for space_path in assembly.leaves:
        if space_path not in stored:
            raise FormatError(f"expected the column {space_path} that the space names, got {list(stored)}", path=path)
    return replace(assembly.join(resolved, lengths), left_out=(*left_out, *skipped))


def _empty(spaces: Mapping[str, Space | None]) -> HDF5Columns:
    fields = columns.of_spaces(spaces["observations"], spaces["actions"])
    rows: dict[str, RowReader] = {p: FillRows(columns.fill_value(f)) for p, f in fields.items() if not f.ragged}
    ragged: dict[str, RaggedRows] = {p: BlankRows(f.dtype) for p, f in fields.items() if f.ragged}
    return HDF5Columns(Spec(fields, spaces["observations"], spaces["actions"]), np.zeros(1, np.int64), rows, ragged)


class _Assembly:
    def __init__(self, index: HDF5Index, files: Sequence[File], spaces: Mapping[str, Space | None]) -> None:
        self._files, self._spaces = files, spaces
        self._buffers = [*(file.buffer for file in files), index.inline]
        self._cache = Cache(DECODED)
        self.leaves = {path: leaf for root, space in spaces.items() for path, leaf in leaf_columns(root, space).items()}
        indexed = by_column(index)
        ordered = columns.in_order(indexed, self.leaves)
        self.pieces = {path: [self._piece(part) for part in indexed[path]] for path in ordered}

    def _piece(self, part: ColumnRuns) -> _Piece:
        kind: Kind = "array"
        shape = part.shape
        rows = self._plain(part) if part.kind in ("array", "string") else None
        ragged: RaggedRows | None = None
        if part.kind != "array":
            self._flat(part)
            kind = "ragged" if part.kind == "vlen" else "text"
            ragged = VlenRows(part, self._files) if rows is None else StringRows.of(part, rows)
            rows, shape = None, ()
        if (frame := self._frame(part, rows, ragged)) is not None:
            rows, shape = frame
            ragged, kind = None, "array"
        dtype = np.dtype(np.uint8) if kind == "text" else part.dtype
        return _Piece(ColumnStorage(kind, dtype, shape, part.episode, part.rows), rows, ragged)

    def _plain(self, part: ColumnRuns) -> RowReader:
        return FilteredRows(part, self._buffers, self._cache) if part.filters else mapped(part, self._buffers)

    @staticmethod
    def _flat(part: ColumnRuns) -> None:
        if part.shape and part.item < 0:
            raise FormatError(f"expected one text or list a row, got rows of {part.shape}", where=part.column)

    def _frame(
        self, part: ColumnRuns, rows: RowReader | None, ragged: RaggedRows | None
    ) -> tuple[RowReader, tuple[int, ...]] | None:
        """Reader and shape of a part whose rows are JPEG frames, recognised by space, stored shape and first bytes."""
        leaf = self.leaves.get(part.column)
        if part.dtype != np.uint8 or not part.rows.any() or (leaf is not None and not _takes_frames(leaf)):
            return None
        if isinstance(ragged, VlenRows) and part.kind == "vlen":
            blobs = ragged.blobs
        elif rows is not None and part.kind == "array" and len(part.shape) == 1 and isinstance(leaf, Box):
            if leaf.shape == part.shape or part.shape[0] < len(JPEG_START):
                return None
            blobs = RawBlobs(rows, part.shape[0]).blobs
        else:
            return None
        first = blobs(np.zeros(1, np.int64), np.ones(1, np.int64))[0]
        if not is_jpeg(first):
            return None
        shape = leaf.shape if isinstance(leaf, Box) else _squeezed(read_header(first).shape)
        return ImageRows(blobs, shape, part.column), shape

    def join(self, resolved: Sequence[SpecColumn], lengths: IntArray) -> HDF5Columns:
        offsets = offsets_of(lengths)
        masks = columns.derived(resolved)
        fields = {c.path: c.field for c in (*resolved, *masks.values())}
        rows: dict[str, RowReader] = {}
        ragged: dict[str, RaggedRows] = {}
        for column in resolved:
            first = offsets_of(_count(column.field.align, lengths))
            pieces = self.pieces[column.path]
            if column.field.ragged:
                ragged[column.path] = _join_ragged(column, pieces, first)
            else:
                rows[column.path] = _join(column, pieces, first)
            if len(column.missing):
                has = np.ones(len(lengths), np.bool_)
                has[column.missing] = False
                rows[f"{columns.PRESENT}/{column.path}"] = RowMap.of(has)
            if column.shapes is not None:
                rows[f"{columns.SHAPES}/{column.path}"] = RowMap.of(column.shapes)
        spec = Spec(fields, self._spaces["observations"], self._spaces["actions"])
        frames = {c.path for c in resolved if any(isinstance(p.rows, ImageRows) for p in self.pieces[c.path])}
        return HDF5Columns(spec, offsets, rows, ragged, frozenset(frames))


def _need(rows: RowReader | None) -> RowReader:
    if rows is None:
        raise FormatError("expected text with one value a row")
    return rows


def _takes_frames(leaf: Space) -> bool:
    return isinstance(leaf, Box) and leaf.dtype == np.uint8 and len(leaf.shape) > 0


def _squeezed(shape: tuple[int, int, int]) -> tuple[int, ...]:
    return shape[:2] if shape[2] == 1 else shape


def _count(align: Align, lengths: IntArray) -> IntArray:
    return {"step": lengths, "boundary": lengths + 1, "episode": np.ones_like(lengths)}[align]


def _in_order(pieces: Sequence[_Piece], column: SpecColumn, episodes: int) -> bool:
    """Whether one part holds every episode, in order, as the column's dtype."""
    stored = pieces[0].stored
    alike = stored.dtype == column.field.dtype and column.shapes is None
    return len(pieces) == 1 and len(stored.episode) == episodes and alike


def _join(column: SpecColumn, pieces: Sequence[_Piece], first: IntArray) -> RowReader:
    if _in_order(pieces, column, len(first) - 1):
        return _need(pieces[0].rows)
    shares = [
        ColumnPart(_need(piece.rows), piece.stored.dtype, piece.stored.shape, piece.stored.episode) for piece in pieces
    ]
    fill = columns.fill_value(column.field)
    if len(column.missing):
        shares.append(ColumnPart(FillRows(fill), column.field.dtype, column.field.shape, column.missing))
    return JoinedRows(first, tuple(shares), column.field.dtype, column.field.shape, fill)


def _join_ragged(column: SpecColumn, pieces: Sequence[_Piece], first: IntArray) -> RaggedRows:
    ragged = [(piece.ragged, piece.stored.episode) for piece in pieces if piece.ragged is not None]
    if _in_order(pieces, column, len(first) - 1):
        return ragged[0][0]
    if len(column.missing):
        ragged.append((BlankRows(column.field.dtype), column.missing))
    owner, local = owners_of(first, [episode for _, episode in ragged])
    return JoinedRagged(first, tuple(rows for rows, _ in ragged), owner, local, column.field.dtype)
