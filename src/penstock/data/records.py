"""`from_records`: records of other libraries as a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock.formats.records import RandomAccess, RecordSource


def from_records(
    source: RandomAccess,
    *,
    columns: Sequence[str] | Mapping[str, Field] | None = None,
    fingerprint: str | None = None,
) -> EpisodeDataset:
    """Read records of another library in place, as a dataset with one episode of one step for each record.

    A record is a dict. It may be nested, and a tuple counts as a dict with the keys "0", "1", and so on. Numbers and
    arrays of one shape become step columns. Text, bytes and arrays of varying length become ragged episode columns.

    Only the first 16 records are read when the dataset is opened. `source` is called from several threads.

    Args:
        source: Any object with `__len__` and `__getitem__`: a list, a map-style PyTorch dataset, or a Grain
            `RandomAccessDataSource`.
        columns: Names of the columns to read, or a mapping from names to `Field`. Give a `Field` where the first 16
            records do not show the dtype or shape. Default: every column of these records.
        fingerprint: Text that identifies the data. Change it whenever the data changes. Default: made from the `repr`
            and the length of `source`.

    Returns:
        A dataset with `len(source)` episodes.

    Raises:
        SpecError: A record does not fit the columns, when opened or when read. The message has its number.

    Example:
        >>> data = from_records([{"x": 1.5, "text": "go"}, {"x": 2.5, "text": "left"}])
        >>> len(data), data.steps()[:]["x"].tolist(), data[1].columns["text"].strings()
        (2, [1.5, 2.5], ['left'])
    """
    return EpisodeDataset(RecordSource(source, columns, fingerprint))
