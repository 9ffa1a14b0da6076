"""Scenes as episodes: frames are steps, and each has its agents and faces."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.array import Missing, ZarrArray
from penstock.containers.zarr.group import CACHE_BYTES, ZarrGroup
from penstock.containers.zarr.rows import ZarrRows
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import Ragged, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.errors import DataError, FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.source import check_values
from penstock.formats.base.state import SourceState, StateSource
from penstock_driving.formats.l5kit.columns import FRAME_FIELDS, NESTED, SPEC, WIDTHS, flat
from penstock_driving.formats.l5kit.dtypes import LABELS
from penstock_driving.formats.l5kit.tables import Tables, open_tables


class Scene(NamedTuple):
    """The rows of one scene, as they are stored: intervals count in the whole dataset."""

    scene: AnyArray
    frames: AnyArray
    agents: AnyArray
    tl_faces: AnyArray


class DrivingSource(StateSource[SourceState]):
    """A driving log with the rows of L5Kit, in any layout of files.

    `scenes`, `frames`, `agents` and `tl_faces` are the four arrays: by number, slice, numbers, mask or field, as
    structured arrays. `columns` are the columns of `SPEC`. Subclasses set `path` and `_reopen`.

    Cost: opening reads the scenes; intervals of frames are read when agents or faces are first asked for.
    """

    _reopen: Callable[[], DrivingSource]

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.scenes, self.frames = tables.scenes, tables.frames
        self.agents, self.tl_faces = tables.agents, tables.tl_faces
        self._scenes = self.scenes[:]
        intervals = self._scenes["frame_index_interval"]
        offsets = offsets_in(intervals, len(self.frames), "scenes.frame_index_interval", tables.path)
        left_out = tables.left_out()
        if (unused := len(self.frames) - int(offsets[-1])) > 0:
            message = f"expected every frame in a scene, got {unused} frames at the end in none"
            left_out.append(LeftOut("rows", "frames", "unused-rows", message, unused))
        self._state = SourceState(
            spec=SPEC,
            offsets=offsets,
            digest=partial(_digest, tables),
            metadata=tables.attributes,
            account=Account(tuple(left_out)),
        )
        self._closed = False

    def __reduce__(self) -> tuple[Callable[..., DrivingSource], tuple[()]]:
        return self._reopen, ()

    @cached_property
    def agent_offsets(self) -> IntArray:
        """`[F + 1]` int64 first agent of each frame, and the end. Cost: one pass over the frames, once."""
        return self._nested_offsets("agent_index_interval", self.agents)

    @cached_property
    def face_offsets(self) -> IntArray:
        """`[F + 1]` int64 first face of each frame, and the end. Cost: one pass over the frames, once."""
        return self._nested_offsets("traffic_light_faces_index_interval", self.tl_faces)

    def _nested_offsets(self, field: str, rows: ZarrRows) -> IntArray:
        intervals = self.frames.field(field)[: self.offsets[-1]]
        return offsets_in(intervals, len(rows), f"frames.{field}", self._tables.path)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that are stored with the data; the labels of the format if none are."""
        return tuple(self._tables.attributes.get("labels", LABELS))

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Of each scene `host`, `start_time` and `end_time` (ns). Cost: nothing is read."""
        chosen = self._scenes[np.asarray(episodes, np.int64)]
        names = ("host", "start_time", "end_time")
        entries = zip(*(chosen[name].tolist() for name in names), strict=True)
        return [dict(zip(names, entry, strict=True)) for entry in entries]

    def scene(self, e: int) -> Scene:
        """The rows of scene `e`: one read of each array."""
        n = len(self)
        if not -n <= e < n:
            raise IndexError(f"expected a scene within 0:{n}, got {e}")
        first, last = (int(self.offsets[e % n + i]) for i in (0, 1))
        agents, faces = (self.nested_cuts(table, first, last)[[0, -1]].tolist() for table in NESTED)
        return Scene(
            self._scenes[e], self.frames[first:last], self.agents[slice(*agents)], self.tl_faces[slice(*faces)]
        )

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """One gather of frames, each piece of them decoded once."""
        if column not in FRAME_FIELDS:
            raise KeyError(f"expected a column among {list(FRAME_FIELDS)}, got {column!r}")
        self._check_open()
        if len(selection.length) == 1:
            start, destination, n = (int(a[0]) for a in (selection.start, selection.destination, selection.length))
            out[destination : destination + n] = self.frames.read(start, start + n)[column]
            return
        rows = ranges(selection.start, selection.length)
        out[ranges(selection.destination, selection.length)] = self.frames.take(rows)[column]

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        first, last = selection.start, selection.start + selection.length
        if not isinstance(self.frames, ZarrArray):
            return []
        if column in FRAME_FIELDS:
            return self.frames.remote_ranges(first, last - first)
        rows, offsets, _ = self._nested(column)
        first, last = offsets[first], offsets[last]
        return rows.remote_ranges(first, last - first) if isinstance(rows, ZarrArray) else []

    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        """One read of agents, or faces, for each span of frames."""
        table, rows, name = self._nested_rows(column)
        lengths = np.zeros(selection.shape[0] * selection.shape[1], np.int64)
        parts: list[AnyArray] = []
        for start, length, destination in _spans(selection):
            cuts = self.nested_cuts(table, start, start + length)
            lengths[destination : destination + length] = np.diff(cuts) * WIDTHS[column]
            parts.append(flat(rows.read(int(cuts[0]), int(cuts[-1])), name))
        values = np.concatenate([np.zeros(0, SPEC[column].dtype), *parts])
        return Ragged(values, offsets_of(lengths))

    def value_offsets(self, column: str) -> IntArray:
        """The first agent, or face, of each frame, times the values of one."""
        return self._nested(column)[1] * WIDTHS[column]

    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        """One read of agents, or faces, for each span."""
        rows, offsets, name = self._nested(column)
        width = WIDTHS[column]
        check_values(column, offsets * width, selection)
        for start, length, destination in _spans(selection):
            first, last = start // width, -(-(start + length) // width)
            values = flat(rows.read(first, last), name)
            out[destination : destination + length] = values[start - first * width :][:length]

    def nested_cuts(self, table: str, first: int, last: int) -> IntArray:
        """`[last - first + 1]` where the agents, or faces, of some frames begin, and the end."""
        return (self.agent_offsets if table == "agents" else self.face_offsets)[first : last + 1]

    def _nested(self, column: str) -> tuple[ZarrRows, IntArray, str]:
        """The array of a ragged column, where its frames begin, and the field."""
        table, rows, name = self._nested_rows(column)
        return rows, self.agent_offsets if table == "agents" else self.face_offsets, name

    def _nested_rows(self, column: str) -> tuple[str, ZarrRows, str]:
        """The table of a ragged column, its array, and the field."""
        if column not in WIDTHS:
            raise KeyError(f"expected a ragged column among {list(WIDTHS)}, got {column!r}")
        self._check_open()
        table, name = column.split("/")
        return table, self.agents if table == "agents" else self.tl_faces, name

    def _check_open(self) -> None:
        if self._closed:
            raise FormatError("expected an open source, got one that was closed; open it again", path=self._tables.path)

    def close(self) -> None:
        """Let go of files and of what is kept; arrays that were handed out stay valid."""
        self._closed = True
        self._tables.close()


class L5KitSource(DrivingSource):
    """The dataset at a path: a zarr folder, a zip archive of one, or a folder of `.npy` files.

    Rows are of the current version; older versions are upgraded as they are read (see docs/logs.md). `cache_bytes` of
    decoded rows are kept, shared by all arrays and threads. Missing chunks are an error, or with `missing="fill"` rows
    of zeros.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cache_bytes: int = CACHE_BYTES,
        missing: Missing = "refuse",
    ) -> None:
        if missing not in ("fill", "refuse") or cache_bytes < 0:
            message = "expected missing to be 'fill' or 'refuse' and cache_bytes from 0 on"
            raise DataError(f"{message}, got {missing!r} and {cache_bytes!r}")
        self.path = path
        self._reopen = partial(L5KitSource, path, cache_bytes=cache_bytes, missing=missing)
        self.cache = Cache(cache_bytes)
        super().__init__(open_tables(path, self.cache, missing))

    @property
    def format_version(self) -> int:
        """The version that is stored: 1 or 2."""
        return self._tables.format_version

    @property
    def group(self) -> ZarrGroup | None:
        """The group, for arrays other than the four (`group.array("agents_mask/0.5")`); None of `.npy` files."""
        return self._tables.group


def offsets_in(intervals: IntArray, rows: int, where: str, path: object = None) -> IntArray:
    """`[n + 1]` int64 where each of `[n, 2]` intervals begins, and the end. They are half-open, without gaps, from 0
    on; one that is empty may stand anywhere.
    """
    start, stop = intervals[:, 0].astype(np.int64), intervals[:, 1].astype(np.int64)
    # Compared before they are subtracted, because the difference of two false numbers could wrap around.
    outside = (start < 0) | (stop > rows) | (stop < start)
    if outside.any():
        i = int(outside.argmax())
        message = f"expected an interval within 0:{rows}, got {start[i]}:{stop[i]}"
        raise FormatError(message, path=path, where=f"{where}[{i}]")
    offsets = offsets_of(stop - start)
    apart = (start != offsets[:-1]) & (stop > start)
    if apart.any():
        i = int(apart.argmax())
        message = f"expected intervals one after the other, so {offsets[i]} to begin with, got {start[i]}:{stop[i]}"
        raise FormatError(message, path=path, where=f"{where}[{i}]")
    return offsets


def _digest(tables: Tables) -> str:
    """Digest of the attributes, and of name, size and time (in an archive: checksum) of every chunk."""
    return hashlib.sha256(repr(list(tables.states())).encode()).hexdigest()


def _spans(selection: Selection) -> list[tuple[int, int, int]]:
    parts = (selection.start, selection.length, selection.destination)
    return list(zip(*(a.tolist() for a in parts), strict=True))
