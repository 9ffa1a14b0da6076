"""Looking for damage: which chunks are stored, and with `deep`, whether each can be decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.errors import FormatError
from penstock.formats.base.format import Finding
from penstock.formats.base.metadata import each_metadata
from penstock.formats.zarr.source import ZarrSource

_MOST = 10  # chunks of an array that are reported as damaged
_MOST_MISSING = 1 << 16  # chunks that are not stored, after which an array of a false length is not searched further


def findings(path: Path, *, deep: bool) -> Iterator[Finding]:
    """A finding for the chunks of an array that are not stored; with `deep`, for each chunk and each episode's metadata
    that cannot be read."""
    with ZarrSource(path, cache_bytes=0, missing="fill") as source:
        for stored in source.layout.columns.values():
            for name in stored.names():
                yield from _array(source, name, deep=deep)
        for e, entries in each_metadata(source) if deep else ():
            if isinstance(entries, FormatError):
                yield Finding("unreadable", entries.where or f"episode {e}", str(entries))


def _array(source: ZarrSource, name: str, *, deep: bool) -> Iterator[Finding]:
    array = source.array(name)
    damaged = missing = 0
    size = array.metadata.chunk_rows
    for start in range(0, len(array), size):
        stored = array.is_stored(start)
        missing += not stored
        try:
            if stored and deep:
                array.read(start, min(start + size, len(array)))
        except FormatError as error:
            damaged += 1
            yield Finding("unreadable", error.where or name, str(error))
        if damaged == _MOST:
            yield Finding("unreadable", name, f"the first {_MOST} chunks that cannot be read; others were not read")
            break
        if missing == _MOST_MISSING:
            break
    if missing:
        least = "at least " if missing == _MOST_MISSING else ""
        yield Finding("not-stored", name, f"{least}{missing:,} chunks are not stored, and read as the fill value")
