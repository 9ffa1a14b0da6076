"""`verify`: compare a dataset with the certificate of a conversion, in one piece or by ranges of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from penstock.conversion.certificate import Certificate
from penstock.conversion.digests import ColumnDigests, digest
from penstock.data.dataset import EpisodeDataset, selection_of
from penstock.errors import DataError
from penstock.formats.base.source import Source

Side = Literal["target", "source"]


def verify(certificate: Certificate, target: Source, source: Source | EpisodeDataset | None = None) -> Iterator[str]:
    """Yield what is no longer as the certificate says.

    Args:
        certificate: The certificate.
        target: The target, opened.
        source: The source, opened, with the episodes that were converted, in their order: a dataset that was chosen
            from or curated in the same way. The default is None: only the target is read.

    Yields:
        Messages: columns and episodes with other values.

    Raises:
        DataError: The certificate has other episodes than a dataset.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2])
        >>> target = tempfile.mkdtemp() + "/out"
        >>> _ = penstock.convert(data, target, format="columns")
        >>> list(verify(Certificate.read(target), penstock.open(target).source))
        []
    """
    sides: tuple[tuple[Side, Source | EpisodeDataset | None], ...] = (("target", target), ("source", source))
    for side, dataset in sides:
        if dataset is not None:
            opened = EpisodeDataset(dataset) if isinstance(dataset, Source) else dataset
            opened = certified_episodes(certificate, side, opened)
            digests = digests_of(certificate, side, opened, range(len(opened)))
            yield from compare_digests(certificate, side, opened, digests)


def certified_columns(certificate: Certificate, side: Side) -> dict[str, ColumnDigests]:
    return {
        path: digests
        for column in certificate.columns
        if (path := column.column if side == "target" else column.origin) is not None
        and (digests := column.target if side == "target" else column.source) is not None
    }


def digests_of(certificate: Certificate, side: Side, opened: EpisodeDataset, episodes: range) -> dict[str, bytearray]:
    """Return the digests of some episodes, one behind the other, by column, of the columns that the certificate has."""
    paths = sorted(certified_columns(certificate, side).keys() & opened.spec.keys())
    digests = {path: bytearray() for path in paths}
    for episode in selection_of(opened).read(episodes):
        for path in paths:
            digests[path] += digest(episode.columns[path])
    return digests


def certified_episodes(certificate: Certificate, side: Side, opened: EpisodeDataset) -> EpisodeDataset:
    """Return the episodes of a dataset that a certificate has: of a source, the episodes that no function left out.

    Raises `DataError` if the dataset has other episodes.
    """
    stored = certificate.target if side == "target" else certificate.source
    if len(opened) != stored["episodes"]:
        raise DataError(f"expected a {side} of {stored['episodes']} episodes, got one of {len(opened)}")
    if side == "target" or not certificate.left_out:
        return opened
    return opened[~np.isin(opened.episodes.index, certificate.left_out)]


def compare_digests(
    certificate: Certificate, side: Side, opened: EpisodeDataset, digests: Mapping[str, bytearray]
) -> Iterator[str]:
    """Yield what is no longer as the certificate says."""
    columns = certified_columns(certificate, side)
    if missing := sorted(columns.keys() - opened.spec.keys()):
        yield f"{side}: expected the columns {missing}, got none"
    for path, each in digests.items():
        stated = columns[path]
        now = ColumnDigests.joined(each, stated.episodes)
        if now.starts.shape != stated.starts.shape:
            yield f"{side}: expected {len(now.starts)} digests of {path}, got {len(stated.starts)}"
        elif now.whole != stated.whole:
            yield f"{side}: {path} has other values in {stated.difference(now)}"
