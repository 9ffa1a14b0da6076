"""Records of other libraries as a dataset."""

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
    """Open any random-access source of dicts: a list, a map-style torch dataset, a Grain `RandomAccessDataSource`.

    A record is an episode of one step: numbers and arrays of one shape are columns of steps; arrays that differ in
    the length of their first axis, text and bytes are ragged columns aligned with episodes. See
    `penstock.formats.records.RecordSource`, also for `columns` and `fingerprint`.

    Raises `SpecError`, now or when read, for records that do not fit, with their number. Cost: the first 16 records.

    >>> data = from_records([{"x": 1.5, "text": "go"}, {"x": 2.5, "text": "left"}])
    >>> len(data), data.samples()[:]["x"].tolist(), data[1].columns["text"].strings()
    (2, [1.5, 2.5], ['left'])
    """
    return EpisodeDataset(RecordSource(source, columns, fingerprint))
