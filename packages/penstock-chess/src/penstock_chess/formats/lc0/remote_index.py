"""Places of the chunks of a file, and how they are kept for archives behind URLs.

The headers of an archive are between its members, and how many frames a chunk has is said at its end. So an archive
behind a URL is fetched whole when it is opened first. Then its table is kept in the user's cache, under the state of
the object, and the archive is read by ranges.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.ragged import Ragged
from penstock.errors import PenstockError
from penstock.files.remote import is_mirrored
from penstock.files.user_cache import IndexFile
from penstock_chess.formats.lc0.descriptors import Identity

_MAGIC = b"penstock games 2\n"
_BYTES = 1 << 30  # that all tables together may have


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Places of the chunks of a file: byte positions `payload` `[n]` and `size` `[n]`, and `names` of members, none
    where the file is one chunk. `torn` says what of a damaged archive cannot be read, and `lost` how many members, at
    least, these are. `counted` `[n]` int64 is what `ChunkFile` noted of each chunk, None at first. `passed` names
    members that are no chunks, and `behind` is where other bytes begin behind the end of the archive."""

    identity: Identity
    payload: Sequence[int]
    size: Sequence[int]
    names: Sequence[bytes] = ()
    torn: str | None = None
    lost: int = 0
    counted: IntArray | None = None
    passed: tuple[str, ...] = ()
    behind: int | None = None


def load(path: Path, identity: Identity) -> ChunkTable | None:
    """Return the table that is kept of a file behind a URL, or None."""
    if not is_mirrored(path):
        return None
    with suppress(PenstockError, KeyError, TypeError, ValueError):
        file = _index_file(path)
        if file is not None and (cached := file.read(_key(identity))) is not None:
            header, arrays = cached
            places = arrays["places"]
            names = tuple(Ragged(arrays["names"], arrays["ends"]).blobs())
            if places.shape == (3, len(names)):
                payload, size, counted = places
                about = (header["torn"], int(header["lost"]), counted.copy(), tuple(header["passed"]), header["behind"])
                return ChunkTable(identity, payload, size, names, *about)  # pyright: ignore[reportArgumentType]  arrays of integers
    return None


def save(path: Path, table: ChunkTable, counted: IntArray) -> None:
    """Keep the table of an archive behind a URL. Where there is no room, it is made again."""
    names = Ragged.from_bytes(table.names)
    arrays = {
        "places": np.stack([np.asarray(each, np.int64) for each in (table.payload, table.size, counted)]),
        "names": names.values,
        "ends": names.offsets,
    }
    about = {"torn": table.torn, "lost": table.lost, "passed": list(table.passed), "behind": table.behind}
    if (file := _index_file(path)) is not None:
        file.write(_key(table.identity), about, arrays, settled=True)  # a file behind a URL has a version


def _index_file(path: Path) -> IndexFile | None:
    return IndexFile.of("game-tables", os.fspath(path.absolute()), _MAGIC, _BYTES)


def _key(identity: Identity) -> str:
    return f"{identity.size} {identity.time}"
