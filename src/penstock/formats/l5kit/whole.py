"""Folders that are there whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def whole(output: Path, make: Callable[[Path], object]) -> None:
    """The folder that `make` makes, under the name `output` once it is done. Raises `FileExistsError`.

    >>> place = Path(tempfile.mkdtemp()) / "new"
    >>> whole(place, Path.mkdir)
    >>> place.is_dir(), [path.name for path in place.parent.iterdir()]
    (True, ['new'])
    """
    if output.exists() or output.is_symlink():
        raise FileExistsError(f"expected nothing at {output}; remove it, or choose another place")
    scratch = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    try:
        make(scratch / "data")
        os.rename(scratch / "data", output)
    finally:
        shutil.rmtree(scratch)
