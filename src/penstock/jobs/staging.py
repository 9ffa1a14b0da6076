"""`StagingFolder`: large results of jobs next to the target, until `finish` moves them there."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import DataError
from penstock.locations.location import Url, output_place

PARTS = ".parts"


class StagingFolder:
    """The folder `<out>.parts/<digest>`. It is on the file system of the target, so parts are moved and not copied.

    Args:
        out: The target, in a folder that all jobs reach.
        arguments: Arguments of the operation.
        fingerprint: Digest of its data. Another operation with the same target has another folder.

    Raises:
        DataError: The target is a URL.
    """

    def __init__(self, out: str, arguments: Mapping[str, Any], fingerprint: str) -> None:
        text = json.dumps({**arguments, "fingerprint": fingerprint}, sort_keys=True, default=str)
        self.out = local_target(out)
        self.path = self.out.with_name(self.out.name + PARTS) / hashlib.sha256(text.encode()).hexdigest()[:16]

    def refuse_other(self) -> None:
        """Raise `FileExistsError` if something is at the target that this operation did not begin."""
        if (self.out.exists() or self.out.is_symlink()) and not self.path.exists():
            raise FileExistsError(f"expected nothing at {self.out}; remove it, or choose another place")

    def make(self) -> Path:
        """Make the folder if it does not exist, and return its path."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # parts of another operation are left
            self.path.parent.rmdir()


def local_target(out: str) -> Path:
    """Return the path of a target. Raises `DataError` for a URL."""
    place = output_place(out)
    if isinstance(place, Url):
        raise DataError(f"expected a path for a target that is written in parts, got {place}; upload it afterwards")
    return place
