"""Damage in the metadata of a Minari dataset. `penstock.doctor` checks the values, as of any format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from penstock.core.damage import collected_damage
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
            elif entries.get("id", e) != e:
                message = f"expected the id {e}, got {entries['id']}"
                yield Finding("numbering", f"episode {e}", message, None, (e,), (0,))


def _opened(path: Path, open_source: Callable[..., Source], infos: str) -> tuple[Source | None, list[Finding]]:
    """The source, with all columns that can be read; and what is wrong with the others, and left out."""
    source: Source | None = None
    problems: list[Finding] = []
    with collected_damage() as messages:
        for policy in dict.fromkeys((infos, "skip")):
            try:
                source = open_source(path, infos=policy, cache="refresh")
                break
            except FormatError as error:
                problems += [Finding("unreadable", str(path), str(error))] if policy == infos else []
    return source, problems + [Finding("damaged-part", str(path), message) for message in dict.fromkeys(messages)]


def _metadata(source: Source) -> Iterator[Finding]:
    if not isinstance(source, (Hdf5Source, ArrowSource)):
        return
    where = str(source.folder / metadata.FILE)
    stored = metadata.read_json(source.folder / metadata.FILE) or {}
    for name in ("total_episodes", "total_steps"):
        if name in stored and stored[name] != source.metadata[name]:
            yield Finding(
                "totals", where, f"expected {name} {source.metadata[name]} as in the files, got {stored[name]}"
            )
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
