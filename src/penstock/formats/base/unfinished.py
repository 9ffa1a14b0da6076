"""The mark of a dataset whose writing has not ended: a hidden file that exists from before the first episode to after
the last change.

Formats do not know the mark, so one kind serves all of them: the file `MARK` in a folder, and the file
`.<name>.penstock-unfinished` next to a single file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.core.boundary import json_object
from penstock.core.narrowing import is_integer
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.files import write_atomic
from penstock.files.remote import read_bytes
from penstock.formats.base.account import LeftOut

MARK = ".penstock-unfinished"
CONVERSION = "penstock_conversion"
"""Entry of the metadata by which a conversion knows its own target again."""


@dataclass(frozen=True)
class UnfinishedWork:
    """Work that writes a dataset and has not ended: it still runs, or it was interrupted."""

    work: str
    episodes: int

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any], episodes: int) -> UnfinishedWork | None:
        """Return the conversion that a target has in its metadata, if it has fewer episodes than that was to write.

        The mark of such a target was lost, or an earlier version of penstock wrote the target, or somebody removed
        episodes from it.
        """
        try:
            total: Any = json.loads(metadata.get(CONVERSION) or "{}").get("total")
        except (AttributeError, ValueError, TypeError, RecursionError):
            return None
        return cls("conversion", int(total)) if is_integer(total) and total > episodes else None

    @classmethod
    def at(cls, path: Path) -> UnfinishedWork | None:
        """Return the unfinished work on the dataset at a path; None if there is none."""
        places = (*_places(path), f"{os.path.dirname(os.path.abspath(path))}/{MARK}")
        mark = next((file for file in places if os.path.isfile(file)), None)
        if mark is None:
            return None
        entries = json_object(read_bytes(mark), mark)
        try:
            return cls(str(entries["work"]), int(entries["episodes"]))
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"expected the mark of unfinished work, got {entries}", path=mark) from error

    def begin(self, out: Path) -> None:
        """Mark a dataset before an episode is written."""
        inside, beside = _places(out)
        write_atomic(inside if out.is_dir() else beside, json.dumps(asdict(self)).encode())

    def left_out(self, where: str, episodes: int | None) -> LeftOut:
        """Return the entry of the account."""
        done = 0 if episodes is None else episodes
        stopped = f"before the end of its {counted(self.episodes, 'episode')}"
        if episodes is not None:
            stopped = f"at {episodes:,} of {counted(self.episodes, 'episode')}"
        message = f"the {self.work} stopped {stopped}, or still runs: run the same command again"
        return LeftOut("episode", where, "unfinished", message, max(self.episodes - done, 1))


def remove_mark(out: Path) -> None:
    """Remove the mark, which is the last change of the work."""
    for mark in _places(out):
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(mark)


def _places(out: Path) -> tuple[str, str]:
    """The mark in a folder, and next to a file."""
    folder, name = os.path.split(os.path.abspath(out))
    return f"{folder}/{name}/{MARK}", f"{folder}/.{name}{MARK}"
