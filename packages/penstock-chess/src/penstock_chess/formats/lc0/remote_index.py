"""Places of the chunks of a file, and how they are kept for archives behind URLs.

The headers of an archive are between its members, and how many frames a chunk has is said at its end. So an archive
behind a URL is fetched whole when it is opened first. Then its table is kept in the user's cache, under the state of
the object, and the archive is read by ranges.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.ragged import Ragged
from penstock.errors import PenstockError
from penstock.files.arrays import read_arrays, write_arrays
from penstock.files.remote import is_mirrored
from penstock.files.user_cache import make_room, user_cache
from penstock_chess.formats.lc0.descriptors import Identity

_MAGIC = b"penstock games 2\n"
_SUFFIX = ".penstock-games"
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
    with suppress(PenstockError, OSError, KeyError, TypeError, ValueError):
        cached = read_arrays(_place(path), _MAGIC, _key(identity))
        if cached is not None:
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
    with suppress(OSError):
        about = {"torn": table.torn, "lost": table.lost, "passed": list(table.passed), "behind": table.behind}
        write_arrays(_place(path), _MAGIC, _key(table.identity), about, arrays)
        make_room(_place(path).parent, f"*{_SUFFIX}", _BYTES)


def _place(path: Path) -> Path:
    return user_cache("game-tables") / f"{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]}{_SUFFIX}"


def _key(identity: Identity) -> str:
    return f"{identity.size} {identity.time}"
