"""`FilesSource`: files of any kind as a dataset, in place, as a mapping says; and its state in the user's cache.

The key of a kept state is the mapping, and the names, sizes and times of all files. It has the places of rows, the ends
of episodes, metadata and the account, and no values of columns. It never comes with the data.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, PenstockError
from penstock.files.listing import FileStates, file_states, read_unchanged
from penstock.files.remote import FileState, file_state
from penstock.files.user_cache import IndexFile
from penstock.formats.base.account import Account
from penstock.formats.base.pieces import BlockRows
from penstock.formats.base.state import GatheredColumn, StateSource
from penstock.formats.mapping.clocks import RowsOfSteps
from penstock.formats.mapping.columns import FilesColumn
from penstock.formats.mapping.kinds import tree_of
from penstock.formats.mapping.reading import MappingReading, MappingState, files_of
from penstock.formats.mapping.rules import ColumnRule, EpisodeMapping, Pattern, rule_entries
from penstock.formats.mapping.tree import FileTree
from penstock.formats.mapping.units import Unit, names_below
from penstock.kernels.rows import RowMap

Where = Literal["user", "refresh", "off"]
WHERE: tuple[Where, ...] = get_args(Where)
MAGIC = b"penstock mapping index 1\n"
WORTH_FILES = 16  # from which on an index is kept
WORTH_BYTES = 1 << 20  # of all files, likewise
BYTES = 4 << 30  # that all indexes together may have


@dataclass(frozen=True, eq=False)
class FolderListing:
    """All files of a folder, or one file, and their states."""

    root: Path
    paths: Sequence[Path]
    states: FileStates

    @classmethod
    def of(cls, root: Path) -> FolderListing:
        """List a folder, and look at the state of each file."""
        is_one = root.is_file() or root.suffix.lower() == ".zarr"
        tops = [root] if is_one else [root / name for name in names_below(root)]
        paths = [path for top in tops for path in files_of(top)]
        return cls(root, paths, file_states(paths))

    @cached_property
    def digest(self) -> str:
        """Digest of names, sizes and times."""
        digest = hashlib.sha256(b"\0".join(os.fsencode(path) for path in self.paths))
        for part in (self.states.size, self.states.mtime_ns, self.states.inode):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @property
    def is_worth_it(self) -> bool:
        """Whether reading the files again takes longer than reading an index."""
        return len(self.paths) >= WORTH_FILES or int(self.states.size.sum()) >= WORTH_BYTES

    def opened(self, units: Sequence[Unit]) -> dict[Path, FileState]:
        """Return the state of the first file of each pattern of each unit."""
        number = {path: i for i, path in enumerate(self.paths)}
        firsts = {files[0] for unit in units for files in unit.files.values()}
        return {path: self.states[number[path]] for path in firsts if path in number}


@dataclass(frozen=True)
class MappingIndex:
    """The file of an index, and its key."""

    file: IndexFile
    key: str
    listing: FolderListing

    @classmethod
    def of(cls, listing: FolderListing, mapping: EpisodeMapping, where: Where) -> MappingIndex | None:
        """Return where the index of a folder and a mapping is; None if there is none."""
        if where == "off" or not listing.is_worth_it:
            return None
        file = IndexFile.of("mappings", f"{mapping.digest} {listing.root}", MAGIC, BYTES)
        return None if file is None else cls(file, f"{mapping.digest} {listing.digest}", listing)

    def load(self) -> MappingState | None:
        """Return the state that was kept; None if there is none of this key, or it cannot be read."""
        if (read := self.file.read(self.key)) is None:
            return None
        try:
            return _unpacked(*read, self.listing.root)
        except (KeyError, IndexError, TypeError, ValueError, PenstockError):
            return None  # of another version

    def save(self, state: MappingState) -> None:
        """Keep a state, unless JSON cannot hold its metadata."""
        header, arrays = _packed(state, self.listing.root)
        with suppress(TypeError):
            json.dumps(header)
            self.file.write(self.key, header, arrays, settled=bool(self.listing.states.settled.all()))


def _packed(state: MappingState, root: Path) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    arrays: dict[str, AnyArray] = {"offsets": state.offsets, "unit of": state.unit_of}
    if state.starts is not None:
        arrays["starts"] = state.starts
    computed = [name for name in state.spec if name not in state.columns]
    for name in computed:
        field, rows = state.spec[name], int(state.offsets[-1])
        arrays[f"computed {name}"] = out = np.empty((rows, *field.shape), field.dtype)
        whole = np.array([0]), np.array([rows]), np.array([0])
        reader: Any = state.arrays[name]
        reader.rows.gather(*whole, out.reshape(-1).view(np.uint8))
    columns: list[dict[str, Any]] = []
    for name, column in state.columns.items():
        different = list(dict.fromkeys(column.names))
        number = {names: i for i, names in enumerate(different)}
        arrays[f"{name} names"] = np.array([number[names] for names in column.names], np.int64)
        arrays |= {f"{name} {part}": getattr(column.rows, part) for part in ("first", "block", "skip")}
        arrays |= {f"{name} {part}": getattr(column, part) for part in ("unit", "start", "stop")}
        arrays |= _packed_lines(name, column.lines)
        rule = column.rule if column.rule.arrays else replace(column.rule, arrays=different[0])
        columns.append({"name": name, "rule": rule_entries(rule), "names": [list(each) for each in different]})
    units = [
        {
            "texts": dict(unit.texts),
            "files": {key: [path.relative_to(root).as_posix() for path in files] for key, files in unit.files.items()},
            "group": unit.group,
        }
        for unit in state.units
    ]
    header: dict[str, Any] = {"spec": state.spec.to_json(), "digest": state.fingerprint, "columns": columns}
    header |= {"units": units, "entries": [dict(entry) for entry in state.entries], "computed": computed}
    return {**header, "account": state.account.to_json()}, arrays


def _packed_lines(name: str, lines: Sequence[RowsOfSteps] | None) -> dict[str, AnyArray]:
    """Rows between others, of all units one after another."""
    if lines is None:
        return {}
    arrays: dict[str, AnyArray] = {f"{name} line lengths": np.array([len(line.low) for line in lines], np.int64)}
    for part in ("low", "high", "weight"):
        parts = [each for line in lines if (each := getattr(line, part)) is not None]
        if parts and len(parts) == len(lines):
            arrays[f"{name} line {part}"] = np.concatenate(parts)
    return arrays


def _unpacked(header: Mapping[str, Any], arrays: Mapping[str, AnyArray], root: Path) -> MappingState:
    spec = Spec.from_json(header["spec"])
    units: list[Unit] = []
    for each in header["units"]:
        files = {key: tuple(root / name for name in names) for key, names in each["files"].items()}
        units.append(Unit(each["texts"], files, each["group"]))
    columns: dict[str, FilesColumn] = {}
    for each in header["columns"]:
        name = str(each["name"])
        different: list[tuple[str, ...]] = [tuple(map(str, names)) for names in each["names"]]
        rows = BlockRows(*(arrays[f"{name} {part}"] for part in ("first", "block", "skip")))
        places = [arrays[f"{name} {part}"] for part in ("unit", "start", "stop")]
        names: list[tuple[str, ...]] = [different[int(i)] for i in arrays[f"{name} names"]]
        rule, field = ColumnRule.of(name, each["rule"]), spec[name]
        columns[name] = FilesColumn(name, field, rule, names, rows, *places, lines=_unpacked_lines(name, arrays))
    return MappingState(
        spec=spec,
        offsets=arrays["offsets"],
        digest=header["digest"],
        arrays={name: GatheredColumn(RowMap.of(arrays[f"computed {name}"])) for name in header["computed"]},
        account=Account.from_json(header["account"]),
        units=units,
        columns=columns,
        unit_of=arrays["unit of"],
        entries=header["entries"],
        starts=arrays.get("starts"),
    )


def _unpacked_lines(name: str, arrays: Mapping[str, AnyArray]) -> list[RowsOfSteps] | None:
    lengths: IntArray | None = arrays.get(f"{name} line lengths")
    if lengths is None:
        return None
    ends = offsets_of(lengths).tolist()
    parts = {part: arrays.get(f"{name} line {part}") for part in ("low", "high", "weight")}
    lines: list[RowsOfSteps] = []
    for a, b in pairwise(ends):
        low, high, weight = (None if part is None else part[a:b] for part in parts.values())
        lines.append(RowsOfSteps(np.zeros(0, np.int64) if low is None else low, 0, high, weight))
    return lines


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
