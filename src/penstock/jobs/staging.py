"""`StagingFolder`: large results of jobs next to the target, until `finish` moves them there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.errors import DataError
from penstock.files import atomic_path, locked, remove_folder
from penstock.locations.location import Url, output_place

PARTS = ".parts"
SUMMARY = "summary"
"""Name of the file in the folder of a part that has its summary."""


class StagingFolder:
    """The folder `<out>.parts/<digest>`. It is on the file system of the target, so parts are moved and not copied."""

    def __init__(self, out: str, arguments: Mapping[str, Any], fingerprint: str) -> None:
        self.out = local_target(out)
        self.path = self.out.with_name(self.out.name + PARTS) / staging_digest(arguments, fingerprint)

    @property
    def place(self) -> str:
        """The target for messages and reports."""
        return str(self.out)

    def target_path(self) -> Path:
        """Return the path at which the finished target is opened."""
        return self.out

    @property
    def has_target(self) -> bool:
        """Whether something is at the target."""
        return os.path.lexists(self.out)

    @property
    def is_closed(self) -> bool:
        """Whether the target exists without this folder: the work is finished, or another work made the target."""
        return self.has_target and not self.path.exists()

    def refuse_other(self) -> None:
        """Raise `FileExistsError` if something is at the target that this operation did not begin."""
        if self.is_closed:
            raise FileExistsError(f"expected nothing at {self.place}; remove it, or choose another place")

    def make(self) -> Path:
        """Make the folder if it does not exist, and return its path."""
        self.refuse_other()
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def write_part(self, name: str, write: Callable[[Path], bytes]) -> bytes:
        """Write a part, which appears when it is complete, unless another copy of the job did so. Return
        its summary.
        """
        part = self.make() / name
        if not part.exists():
            try:
                with atomic_path(part, durable="folder") as folder:
                    folder.mkdir()
                    (folder / SUMMARY).write_bytes(write(folder))
            except FileExistsError:  # a second copy was first; else it is an error of `write`
                if not part.exists():
                    raise
        return (part / SUMMARY).read_bytes()

    def parts(self, names: Sequence[str]) -> list[Path]:
        """Return the local folders of parts, whose contents may be moved to the target."""
        return [self.path / name for name in names]

    def has_part(self, name: str) -> bool:
        """Return whether a file or folder of this folder exists, or the target."""
        return (self.path / name).exists() or self.has_target

    @contextmanager
    def merging(self) -> Generator[None]:
        """Lock the folder for the block, which moves its contents to the target; then delete it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path, holder="another process that merges the same parts"):
            yield
            self.remove()

    def remove(self) -> None:
        """Delete the folder, and what a killed process left of it."""
        remove_folder(self.path)
        with suppress(OSError):  # parts of another operation are left
            self.path.parent.rmdir()


def staging_digest(arguments: Mapping[str, Any], fingerprint: str) -> str:
    """Return the name of the staging folder of an operation."""
    text = json.dumps({**arguments, "fingerprint": fingerprint}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def local_target(out: str) -> Path:
    """Return the path of a target. Raises `DataError` for a URL."""
    place = output_place(out)
    if isinstance(place, Url):
        raise DataError(f"expected a path for a target that is written in parts, got {place}; upload it afterwards")
    return place
