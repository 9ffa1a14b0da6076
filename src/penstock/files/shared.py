"""Arrays that the processes of a machine share: made by one of them, kept in the user's cache, and mapped by all.

The name of the file follows from what the arrays are made of, so an array of other content has another name, and a file
is never out of date. Who comes first makes the arrays under a lock, others wait for them. Without a folder for caches,
on a full disk, or on a file system without locks, a process makes the arrays for itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.core.arrays import AnyArray
from penstock.files.arrays import Arrays, read_arrays, write_arrays
from penstock.files.locks import locked
from penstock.files.user_cache import make_room, user_cache

MAGIC = b"penstock table 1\n"
SHARED_BYTES = 16 << 20
"""Bytes from which on arrays are shared: smaller ones are made faster than they are found."""
BYTES = 16 << 30  # that all files together may have
_FOLDER = "plan-tables"
_SUFFIX = ".penstock-table"
_LOCKS = 16


def shared_arrays(key: str, make: Callable[[], Arrays]) -> Mapping[str, AnyArray]:
    """Return arrays from the user's cache, mapped and read-only; otherwise make them, and keep them there."""
    arrays: Arrays | None = None
    with suppress(OSError):  # costs only the memory of this process
        name = hashlib.sha256(key.encode()).hexdigest()
        folder = user_cache(_FOLDER)
        place = folder / f"{name[:32]}{_SUFFIX}"
        if (kept := read_arrays(place, MAGIC, key)) is not None:
            _note_use(place)
            return kept[1]
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / f"lock-{int(name[:8], 16) % _LOCKS}"
        with locked(lock, os.O_RDWR | os.O_CREAT, wait=True):
            if (kept := read_arrays(place, MAGIC, key)) is not None:
                return kept[1]
            arrays = make()
            write_arrays(place, MAGIC, key, {}, arrays)
            make_room(folder, f"*{_SUFFIX}", BYTES)
        if (kept := read_arrays(place, MAGIC, key)) is not None:
            return kept[1]
    return make() if arrays is None else arrays


def _note_use(place: Path) -> None:
    """Note that a file was used now: those not used for the longest time make room for others."""
    with suppress(OSError):  # of another user, or gone
        os.utime(place)
