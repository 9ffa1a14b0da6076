"""Open whatever lies at a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.core.boundary import parsing
from penstock.data.dataset import EpisodeDataset
from penstock.formats.base.format import named, recognise


def open(location: str | os.PathLike[str], *, format: str | None = None, **options: Any) -> EpisodeDataset:
    """Open a dataset by path, or by an id that a format knows (`"cartpole/expert-v0"` below `MINARI_DATASETS_PATH`).

    The format is told by content; `format` names it where that is not wanted. `options` go to the format.

    Raises `FileNotFoundError` if there is nothing, `UnknownFormatError` if no format recognises it, `FormatError` for
    damaged data, `TypeError` for an option the format does not have. Cost: the index of the files, not their values.

    >>> import penstock, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     penstock.open(folder)
    Traceback (most recent call last):
    penstock.errors.UnknownFormatError: ...
    """
    if format is None:
        found, path = recognise(location)
    else:
        found = named(format)
        path = Path(location) if Path(location).exists() else (found.locate(os.fspath(location)) or Path(location))
    source = found.open(path, **options)
    with parsing(path):
        return EpisodeDataset(source)
