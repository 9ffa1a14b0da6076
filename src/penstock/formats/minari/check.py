"""Damage in the metadata of a Minari dataset. `penstock.doctor` checks the values, as of any format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from penstock.core.narrowing import is_integer
from penstock.errors import FormatError
from penstock.formats.base.checks import each_metadata
from penstock.formats.base.findings import Finding
from penstock.formats.base.source import Source
from penstock.formats.minari import ids, metadata, root
from penstock.formats.minari.arrow_source import ArrowSource
from penstock.formats.minari.hdf5_source import Hdf5Source


def findings(path: Path, open_source: Callable[..., Source], infos: str) -> Iterator[Finding]:
    """Every finding in the metadata of a dataset and of its episodes."""
    source, problems = _opened(path, open_source, infos)
    yield from problems
    if source is None:
        return
    with source:
        yield from _metadata(source)
        for e, entries in each_metadata(source):
            if isinstance(entries, FormatError):
                yield Finding("unreadable", f"episode {e}", str(entries), None, (e,), (0,))
            elif isinstance(source, (Hdf5Source, ArrowSource)):
                yield from _stated_length(source, e)


def _opened(path: Path, open_source: Callable[..., Source], infos: str) -> tuple[Source | None, list[Finding]]:
    """The source, with all columns that can be read; and what is wrong with the others."""
    problems: list[Finding] = []
    for policy in dict.fromkeys((infos, "skip")):
        try:
            return open_source(path, infos=policy, cache="refresh"), problems
        except FormatError as error:
            problems += [Finding("unreadable", str(path), str(error))] if policy == infos else []
    return None, problems


def _stated_length(source: Hdf5Source | ArrowSource, e: int) -> Iterator[Finding]:
    """The number of steps that the metadata of an episode states, where it is another."""
    steps, stated = int(source.offsets[e + 1] - source.offsets[e]), source.stored_entries(e).get("total_steps")
    if stated is not None and (not is_integer(stated) or int(stated) != steps):
        message = f"expected total_steps {steps} as in the episode, got {stated}"
        yield Finding("totals", f"episode {e}", message, None, (e,), (0,))


def _metadata(source: Source) -> Iterator[Finding]:
    if not isinstance(source, (Hdf5Source, ArrowSource)):
        return
    legacy = source.main if isinstance(source, Hdf5Source) and source.layout == "0.4" else None
    where = str(source.folder / (legacy or metadata.FILE))
    for name, stated in source.stated.items():
        if stated != source.metadata[name]:
            message = f"expected {name} {source.metadata[name]} as in the files, got {stated}"
            yield Finding("totals", where, message)
    for name in ("observation_space", "action_space"):
        if name not in source.metadata:
            yield Finding("missing-part", where, f"expected {name}, got none")
    stated = source.metadata.get("dataset_id")
    place = source.folder.parent if source.folder.name == root.DATA else source.folder
    if (
        isinstance(stated, str)
        and stated != ids.id_of(place)
        and not ids.id_of(place).endswith(stated.rsplit("/", 1)[-1])
    ):
        yield Finding("identity", where, f"expected the dataset_id {ids.id_of(place)} of its place, got {stated}")
    numbers = source.numbers
    if not np.array_equal(numbers, np.arange(len(numbers))):
        message = f"expected episodes numbered from 0 on, got {numbers[:8].tolist()}"
        yield Finding("numbering", str(source.folder), message)
