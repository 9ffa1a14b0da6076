"""The survey of a work plan: facts found by reading the data, which workers therefore need not read again.

It has two parts: answers of the operation itself (`Operation.survey`), and the indexes in the user's cache that were
used. A worker on another machine puts these into its own cache. An index names the state of the data that it belongs
to, so an index of other data is not believed, and the worker makes another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from penstock.errors import FormatError
from penstock.files import noted_files, write_atomic
from penstock.files.user_cache import user_cache
from penstock.jobs.operation import Operation, open_operation
from penstock.jobs.packed import pack, unpack

MOST_BYTES = 256 << 20
"""Bytes of all indexes of a survey; larger ones are left out, and each machine makes them once."""


def surveyed(name: str, arguments: Mapping[str, Any]) -> tuple[Operation, bytes]:
    """Open an operation, and return it with the survey for other processes."""
    with noted_files() as paths:
        operation = open_operation(name, arguments)
    learned = operation.survey()
    indexes = _indexes(sorted(paths))
    return operation, pack({"operation": learned, "indexes": indexes}) if learned or indexes else b""


def open_with(survey: bytes, name: str, arguments: Mapping[str, Any]) -> Operation:
    """Open an operation with the survey of another process."""
    if not survey:
        return open_operation(name, arguments)
    entries: dict[str, Any] = unpack(survey)
    for path, content in entries["indexes"]:
        _install(path, content)
    return open_operation(name, arguments, entries["operation"])


def _indexes(paths: list[str]) -> list[tuple[str, bytes]]:
    """The files in the user's cache among some files, by their place in it."""
    try:
        root = user_cache("").absolute()
    except OSError:
        return []
    indexes: list[tuple[str, bytes]] = []
    size = 0
    for path in map(Path, paths):
        if path.is_relative_to(root) and path.is_file() and size + path.stat().st_size <= MOST_BYTES:
            indexes.append((path.relative_to(root).as_posix(), path.read_bytes()))
            size += len(indexes[-1][1])
    return indexes


def _install(place: str, content: bytes) -> None:
    """Put an index into the user's cache, unless there is one. Without a folder for caches, it is made in memory."""
    relative = PurePath(place)
    if relative.is_absolute() or ".." in relative.parts:
        raise FormatError(f"expected places in the cache, got {place!r}")
    try:
        path = user_cache("") / relative
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
    except OSError:
        return  # as where the index cannot be saved: the data are read
