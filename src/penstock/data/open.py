"""`open`: open a dataset by path, id, URL or pattern."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.core.boundary import parsing
from penstock.data.curation import Curation
from penstock.data.dataset import EpisodeDataset
from penstock.data.located import locate
from penstock.locations.location import LocationLike


def open(
    location: LocationLike,
    *,
    format: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    curation: Curation | str | os.PathLike[str] | None = None,
    allow_unfinished: bool = False,
    **options: Any,
) -> EpisodeDataset:
    """Open a dataset by path, id, URL or pattern; the format is detected from the content.

    Opening reads the index of the files and not their values.

    Args:
        location: A file, a folder, or the id of a dataset that a format knows. For example,
            `"D4RL/door/human-v2"` is a dataset of Minari and `"lerobot/pusht"` one of Hugging Face: on this machine if
            it is here, else on the hub, where it is read in place. Or a pattern such as `"data/*.tar"` or
            `"train-{000..012}.tar"`, or a list of all these. Several files that are shards in their format are one
            dataset. Other datasets are joined one after the other (`JoinedSource`).
        format: Name of the format, such as `"minari"`. Default: detect the format, or `"mapping"` where the option
            `mapping` is given.
        storage_options: Options of the stores of URLs, as fsspec calls them. The default is none.
        curation: A `Curation`, or the path of its file. Excluded episodes and spans are left out, and ratings and tags
            become columns of `table()`. The default is None.
        allow_unfinished: Whether the dataset may be the target of a conversion, a merge or a recording in parts that
            has not ended. The default is False: such a dataset is refused, because it has a part of its episodes.
        options: Keyword arguments for the `open` method of the format.

    Returns:
        All episodes of the dataset. It is a context manager; `close` releases its files.

    Raises:
        FileNotFoundError: Nothing exists at `location`, no hub has a dataset of that name, or no file matches.
        UnknownFormatError: No format recognises the data, or no format has the name `format`.
        FormatError: The data is damaged, or not all of it was written.
        RemoteError: A store or hub does not answer, or refuses access.
        ArgumentError: The format does not have one of the `options`.
        SpecError: Datasets that are joined have different columns.
        StateError: The curation is for another dataset, or the dataset changed since.

    Example:
        >>> import penstock, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> recorded = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0, 3.0, 4.0]}, lengths=[2, 3])
        >>> report = penstock.convert(recorded, f"{folder}/demo")
        >>> data = penstock.open(f"{folder}/demo")
        >>> len(data), data.total_steps, data[1].rewards.tolist()
        (2, 5, [2.0, 3.0, 4.0])

        Data of an unknown format is an error:

        >>> with tempfile.TemporaryDirectory() as empty:
        ...     penstock.open(empty)
        Traceback (most recent call last):
        penstock.errors.UnknownFormatError: ...
    """
    if format is None and "mapping" in options:
        format = "mapping"
    located = locate(location, format=format, storage_options=storage_options)
    source = located.open(allow_unfinished=allow_unfinished, **options)
    try:
        with parsing(located):
            data = EpisodeDataset(source)
        if curation is None:
            return data
        return data.apply(curation if isinstance(curation, Curation) else Curation.read(curation))
    except BaseException:
        source.close()
        raise
