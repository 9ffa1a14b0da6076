"""SQLite files, for reading."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from penstock.files.remote import whole_for_block


@contextmanager
def database(path: Path) -> Generator[sqlite3.Connection]:
    """Open a database for reading, with all its bytes on this machine. It makes, locks and changes no file."""
    place = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with whole_for_block(path), closing(sqlite3.connect(place, uri=True, check_same_thread=False)) as connection:
        yield connection
