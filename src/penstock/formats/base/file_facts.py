"""What opening a dataset needs to know of each of its files, learned once and kept in the user's cache.

A dataset of 10^5 files cannot be opened file by file in each rank. A `FileSurvey` says which files a dataset has and
how the facts of one are read. A `FileTable` has the facts of all: a few arrays, which every process of a machine maps.
An entry counts only while its file has the size and time that it had before it was read. A file that was written within
`SETTLED` of its reading is read again at the next opening, because two versions of it may have one time. Errors are
facts too (`FileFacts.error`), which are never kept.
"""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.files.listing import FilePaths, FileStates, file_states
from penstock.files.remote import FileState, is_mirrored, remote_errors_kept
from penstock.files.user_cache import IndexFile
from penstock.flow import OrderedMap, PrefetchLimits

MAGIC = b"penstock files 2\n"
MANY_FILES = 1024
"""Files of a dataset from which on what opening learns of them is kept."""
BYTES = 8 << 30  # that all tables together may have
AT_ONCE = 512
"""Files whose facts are Python objects at the same time."""
WAITING_READS = 16
"""Threads that read facts where reading waits for the storage. Elsewhere one is faster than several: reading a small
file is work of the interpreter, and threads that take turns in it spend more CPU time."""
_OF_FILES = ("size", "mtime_ns", "settled", "text")  # arrays of a table with an entry for each file
_PROBE = 16  # files that are read to see whether reading waits


@dataclass(frozen=True, eq=False)
class FileFacts:
    """Facts of one file."""

    values: Mapping[str, Any]
    arrays: Mapping[str, AnyArray] = field(default_factory=dict[str, AnyArray])
    error: str | None = None


@dataclass(frozen=True, eq=False)
class FileTable(Sequence[FileFacts]):
    """Facts of `F` files."""

    size: IntArray
    mtime_ns: IntArray
    settled: BoolArray
    texts: tuple[str, ...]
    text: IntArray
    arrays: Mapping[str, AnyArray]
    counts: Mapping[str, IntArray]
    errors: Mapping[int, str]

    @classmethod
    def of(cls, facts: Iterable[FileFacts], states: Iterable[FileState]) -> FileTable:
        texts: dict[str, int] = {}
        text: list[int] = []
        known: list[tuple[int, int]] = []
        settled: list[bool] = []
        parts: dict[str, list[AnyArray]] = {}
        counts: dict[str, list[int]] = {}
        errors: dict[int, str] = {}
        for number, (each, state) in enumerate(zip(facts, states, strict=True)):
            text.append(texts.setdefault(json.dumps(each.values, sort_keys=True), len(texts)))
            settled.append(each.error is None and state.is_settled)
            known.append((state.size, state.mtime_ns))
            if each.error is not None:
                errors[number] = each.error
            for name in {**parts, **each.arrays}:
                values = each.arrays.get(name)
                counts.setdefault(name, [0] * number).append(0 if values is None else len(values))
                parts.setdefault(name, []).extend([] if values is None else [values])
        arrays = {name: np.concatenate(values) for name, values in parts.items()}
        numbers = {name: np.array(values, np.int64) for name, values in counts.items()}
        size, mtime_ns = np.array(known, np.int64).reshape(-1, 2).T.copy()
        text_of = np.array(text, np.int64)
        return cls(size, mtime_ns, np.array(settled, np.bool_), tuple(texts), text_of, arrays, numbers, errors)

    @classmethod
    def concatenate(cls, tables: Sequence[FileTable]) -> FileTable:
        """Return the files of several tables, in order."""
        numbers = {text: i for i, text in enumerate(dict.fromkeys(text for table in tables for text in table.texts))}
        names = dict.fromkeys(name for table in tables for name in table.arrays)
        empty = np.zeros(0, np.int64)

        def joined(parts: Iterable[AnyArray]) -> Any:
            listed = list(parts)
            return np.concatenate(listed) if listed else empty

        def of_text(table: FileTable) -> IntArray:
            return np.array([numbers[text] for text in table.texts], np.int64)[table.text]

        first = offsets_of(np.array([len(table) for table in tables], np.int64)).tolist()
        return cls(
            joined(table.size for table in tables),
            joined(table.mtime_ns for table in tables),
            joined(table.settled for table in tables).astype(np.bool_, copy=False),
            tuple(numbers),
            joined(map(of_text, tables)),
            {name: joined(t.arrays[name] for t in tables if name in t.arrays) for name in names},
            {name: joined(t.counts.get(name, np.zeros(len(t), np.int64)) for t in tables) for name in names},
            {begin + i: error for begin, t in zip(first, tables, strict=False) for i, error in t.errors.items()},
        )

    def __len__(self) -> int:
        return len(self.size)

    @overload
    def __getitem__(self, number: int) -> FileFacts: ...
    @overload
    def __getitem__(self, number: slice) -> list[FileFacts]: ...
    def __getitem__(self, number: int | slice) -> FileFacts | list[FileFacts]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(f"expected a file within 0:{len(self)}, got {number}")
        arrays = {name: self.arrays[name][ends[number] : ends[number + 1]] for name, ends in self.ends.items()}
        return FileFacts(json.loads(self.texts[int(self.text[number])]), arrays, self.errors.get(number))

    @cached_property
    def ends(self) -> Mapping[str, IntArray]:
        """`[F + 1]` int64 first value of each file, and the end, by name of the array."""
        return {name: offsets_of(counts) for name, counts in self.counts.items()}

    @property
    def states(self) -> FileStates:
        """Size and time of each file when its facts were read."""
        unknown = np.broadcast_to(np.uint64(0), len(self))
        return FileStates(self.size, self.mtime_ns, unknown, unknown, self.settled)

    def stale(self, states: FileStates) -> IntArray:
        """Return the numbers of the files whose facts are not known, because they changed."""
        return np.flatnonzero((self.size != states.size) | (self.mtime_ns != states.mtime_ns) | ~self.settled)

    def packed(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return a header that JSON can hold, and arrays. `unpacked` is the inverse."""
        header = {"texts": list(self.texts), "errors": [[i, error] for i, error in self.errors.items()]}
        arrays: dict[str, AnyArray] = {name: getattr(self, name) for name in _OF_FILES}
        arrays |= {f"value {name}": values for name, values in self.arrays.items()}
        return header, arrays | {f"count {name}": counts for name, counts in self.counts.items()}

    @classmethod
    def unpacked(cls, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> FileTable:
        """Return the table that `packed` took apart."""
        size, mtime_ns, settled, text = (arrays[name] for name in _OF_FILES)
        values, counts = (
            {name.removeprefix(head): array for name, array in arrays.items() if name.startswith(head)}
            for head in ("value ", "count ")
        )
        errors = {int(number): str(error) for number, error in header["errors"]}
        return cls(size, mtime_ns, settled, tuple(header["texts"]), text, values, counts, errors)


class ReadFacts(NamedTuple):
    """Facts of some files of a survey, read by any processes."""

    numbers: IntArray
    table: FileTable


@dataclass(frozen=True, eq=False)
class FileSurvey:
    """The files of a dataset, and how the facts of one are read."""

    kind: str
    files: Sequence[Path]
    read: Callable[[Path], FileFacts]

    @cached_property
    def listed(self) -> FilePaths:
        return FilePaths.of(self.files)

    @cached_property
    def _name(self) -> str:
        files = self.listed
        digest = hashlib.sha256(f"{self.kind}\0{files.folder}\0".encode("utf-8", "surrogateescape"))
        digest.update(files.names)
        digest.update(files.ends.data)
        return digest.hexdigest()

    @property
    def index_file(self) -> IndexFile | None:
        """The table in the user's cache."""
        return IndexFile.of("file-tables", self._name, MAGIC, BYTES)

    def facts(self, numbers: Iterable[int], *, threads: int | None = None) -> FileTable:
        listed = list(numbers)
        tables: list[FileTable] = []
        is_waiting = bool(listed) and is_mirrored(self.files[listed[0]])
        while len(tables) * AT_ONCE < len(listed):
            chosen = listed[len(tables) * AT_ONCE :][:AT_ONCE]
            states = file_states(self.listed, chosen)
            facts: list[FileFacts] = []
            if threads is None and not is_waiting:
                waited = _waits()
                facts = [self._read_file(self.files[number]) for number in chosen[:_PROBE]]
                is_waiting = _waits() - waited >= len(facts)
            width = threads if threads is not None else WAITING_READS * is_waiting
            facts += self._read(chosen[len(facts) :], width)
            tables.append(FileTable.of(facts, states))
        return FileTable.concatenate(tables)

    def _read(self, numbers: Sequence[int], threads: int) -> list[FileFacts]:
        """The facts of files, read by some threads, or here."""
        paths = (self.files[number] for number in numbers)
        if not threads:
            return list(map(self._read_file, paths))
        with OrderedMap(self._read_file, paths, PrefetchLimits(threads), name="penstock-survey") as facts:
            return list(facts)

    def _read_file(self, path: Path) -> FileFacts:
        """The facts of one file. A server that does not answer is no fact about the file."""
        with remote_errors_kept():
            return self.read(path)

    def unknown(self, *, force: bool = False) -> IntArray:
        """Return the numbers of the files whose facts are not in the user's cache."""
        table = None if force else self.kept()
        return np.arange(len(self.files)) if table is None else table.stale(file_states(self.listed))

    def kept(self) -> FileTable | None:
        """Return the table in the user's cache, of files that may have changed since; None if there is none."""
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            cached = None if (file := self.index_file) is None else file.read(self.kind)
            table = None if cached is None else FileTable.unpacked(*cached)
            return table if table is None or len(table) == len(self.files) else None
        return None

    def keep(self, table: FileTable) -> bool:
        """Write a table to the user's cache, if there is one; it says itself which files are not settled."""
        return (file := self.index_file) is not None and file.write(self.kind, *table.packed(), settled=True)

    def with_facts(self, read: ReadFacts) -> FileTable:
        """Return the facts of all files: those just read, and those in the user's cache."""
        table = self.kept()
        if len(read.numbers) == len(self.files) or table is None:
            return read.table
        return _updated(table, read.numbers, read.table)

    def table(self) -> FileTable:
        """Return the facts of all files, from the user's cache as far as the files are as they were."""
        numbers = self.unknown()
        if not len(numbers) and (table := self.kept()) is not None:
            return table
        table = self.with_facts(ReadFacts(numbers, self.facts(numbers.tolist())))
        return (self.kept() if self.keep(table) else None) or table  # mapped, if it was kept


def _waits() -> int:
    """How often this thread waited for the storage or another thread so far; 0 where the system does not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if hasattr(resource, "RUSAGE_THREAD") else 0


def _updated(table: FileTable, numbers: IntArray, newer: FileTable) -> FileTable:
    both = FileTable.concatenate([table, newer])
    chosen = np.arange(len(table))
    chosen[numbers] = len(table) + np.arange(len(numbers))
    arrays: dict[str, AnyArray] = {}
    for name, ends in both.ends.items():
        parts = [both.arrays[name][a:b] for a, b in zip(ends[chosen].tolist(), ends[chosen + 1].tolist(), strict=True)]
        arrays[name] = np.concatenate(parts)
    counts = {name: counts[chosen] for name, counts in both.counts.items()}
    errors = {i: both.errors[c] for i, c in enumerate(chosen.tolist()) if c in both.errors}
    size, mtime_ns, settled, text = (getattr(both, name)[chosen] for name in _OF_FILES)
    return FileTable(size, mtime_ns, settled, both.texts, text, arrays, counts, errors)
