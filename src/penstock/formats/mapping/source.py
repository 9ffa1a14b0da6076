"""`FilesSource`: files of any kind as a dataset, in place, as a mapping says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.core.arrays import AnyArray
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged
from penstock.core.selection import Selection
from penstock.errors import ArgumentError
from penstock.files.listing import read_unchanged
from penstock.files.remote import FileState, file_state
from penstock.formats.base.state import StateSource
from penstock.formats.mapping.columns import FilesColumn
from penstock.formats.mapping.index import WHERE, FolderListing, MappingIndex, Where
from penstock.formats.mapping.kinds import tree_of
from penstock.formats.mapping.reading import MappingReading, MappingState
from penstock.formats.mapping.rules import EpisodeMapping, Pattern
from penstock.formats.mapping.tree import FileTree

CACHE_BYTES = 256 << 20


class FilesSource(StateSource[MappingState]):
    """Files of any kind as episodes, from their headers, text files whole, or the index of an earlier opening."""

    def __init__(
        self, path: Path, mapping: EpisodeMapping, *, cache_bytes: int = CACHE_BYTES, cache: Where = "user"
    ) -> None:
        if cache not in WHERE:
            raise ArgumentError(f"expected cache among {list(WHERE)}, got {cache!r}")
        self._path, self._mapping = path.absolute(), mapping
        kept: Where = "user" if cache == "refresh" else cache
        self._reopen = partial(FilesSource, self._path, mapping, cache_bytes=cache_bytes, cache=kept)
        self._trees, self._blocks = Cache(cache_bytes), Cache(cache_bytes)
        self._opened: dict[Path, FileState] = {}
        listing = FolderListing.of(self._path)
        index = MappingIndex.of(listing, mapping, cache)
        state = None if index is None or cache == "refresh" else index.load()
        if state is None:
            state = MappingReading(self._path, mapping, self._tree).state()
            if index is not None:
                index.save(state)
        else:
            self._opened = listing.opened(state.units)
        self._state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen, ()

    def _tree(self, pattern: str, files: tuple[Path, ...]) -> FileTree:
        """Return the arrays of the files of a pattern; the first is as it was when it was first opened."""

        def opened() -> tuple[FileTree, int]:
            path = files[0]
            state = self._opened.setdefault(path, file_state(path))
            return read_unchanged(path, state, lambda _: self._with_headers(pattern, files))

        return self._trees.get((pattern, files[0], len(files)), opened)

    def _with_headers(self, pattern: str, files: tuple[Path, ...]) -> tuple[FileTree, int]:
        """The arrays after their headers were read, or the file whole, and their bytes."""
        names = Pattern(pattern or self._mapping.files or "").names
        tree = tree_of(files, self._mapping.csv, are_rows=self._mapping.rows in names)
        _ = tree.leaves
        return tree, tree.nbytes

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        units = {name: column.rule.unit for name, column in self.state.columns.items() if column.rule.unit}
        steps_a_second = self._mapping.steps_a_second
        rate = {} if steps_a_second is None else {"fps": steps_a_second}
        return {**rate, **({"units": units} if units else {}), "mapping": self._mapping.to_json()}

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        state = self.state
        entries = [dict(state.entries[int(state.unit_of[e])]) for e in episodes]
        if state.starts is None:
            return entries
        return [{**entry, "start_ns": int(state.starts[e])} for entry, e in zip(entries, episodes, strict=True)]

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        state = self.state
        if (mapped := state.columns.get(column)) is None:
            super().read_array(column, selection, out)
            return
        mapped.rows.read_array(lambda block: self._decoded(state, mapped, block), selection, out)

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        state = self.state
        mapped = state.columns[column]
        return mapped.rows.read_ragged(lambda block: self._decoded(state, mapped, block), mapped.field, selection)

    def _decoded(self, state: MappingState, column: FilesColumn, block: int) -> Array:
        """Return the rows of a block, decoded or from the cache."""

        if (blank := column.blank(block)) is not None:
            return blank

        def decoded() -> tuple[Array, int]:
            unit = state.units[int(column.unit[block])]
            pattern = column.rule.files or ""
            tree = self._tree(pattern, unit.files[pattern])
            prefix = f"{unit.group}/" if unit.group and column.rule.files is None else ""
            rows = column.decoded(block, tree, prefix)
            nbytes = rows.nbytes if isinstance(rows, Ragged) or rows.base is None else 64  # views are not counted again
            return rows, nbytes

        return self._blocks.get((column.name, block), decoded)
