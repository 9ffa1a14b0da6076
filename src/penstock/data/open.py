"""`open`: open a dataset by path or id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.core.boundary import parsing
from penstock.data.dataset import EpisodeDataset
from penstock.formats.base.format import named, recognise


def open(location: str | os.PathLike[str], *, format: str | None = None, **options: Any) -> EpisodeDataset:
    """Open a dataset by path or id; the format is detected from the content.

    Opening reads the index of the files and not their values.

    Args:
        location: A file, a folder, or the id of a dataset that a format knows. For example,
            `"cartpole/expert-v0"` is a Minari dataset below `MINARI_DATASETS_PATH`.
        format: Name of the format, such as `"minari"`. Default: detect the format.
        options: Keyword arguments for the `open` method of the format.

    Returns:
        All episodes of the dataset. It is a context manager; `close` releases its files.

    Raises:
        FileNotFoundError: Nothing exists at `location`, and no format knows that id.
        UnknownFormatError: No format recognises the data, or no format has the name `format`.
        FormatError: The data is damaged.
        ArgumentError: The format does not have one of the `options`.

    Example:
        >>> import penstock, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> recorded = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0, 3.0, 4.0]}, lengths=[2, 3])
        >>> report = penstock.convert(recorded, f"{folder}/demo")
        >>> data = penstock.open(f"{folder}/demo")
        >>> len(data), data.steps, data[1].rewards.tolist()
        (2, 5, [2.0, 3.0, 4.0])

        Data of an unknown format is an error:

        >>> with tempfile.TemporaryDirectory() as empty:
        ...     penstock.open(empty)
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
