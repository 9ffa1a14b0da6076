"""Damage in the metadata of a dataset, and rebuilding `metadata.json`. The doctor checks the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.narrowing import is_integer
from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.errors import FormatError, SpecError, UnknownFormatError
from penstock.formats.base.findings import Finding, Repair
from penstock.formats.base.metadata import each_metadata
from penstock.formats.minari import ids, metadata
from penstock.formats.minari.arrow_source import ArrowSource, episode_directories
from penstock.formats.minari.columns import check_columns
from penstock.formats.minari.hdf5_index import MAIN
from penstock.formats.minari.hdf5_source import Hdf5Source

MinariSource = Hdf5Source | ArrowSource


def place(path: Path) -> tuple[Path, str | None]:
    """The folder with the data, and the HDF5 file in it (None for the other back-ends)."""
    path = Path(path)
    if path.is_file():
        return path.parent, path.name
    for folder in (path / ids.DATA, path):
        if (folder / MAIN).is_file():
            return folder, MAIN
        if (folder / metadata.FILE).is_file() or episode_directories(folder):
            return folder, None
    raise UnknownFormatError(f"expected {MAIN} or {metadata.FILE} in a data directory, got neither", path=path)


def rebuild_metadata(
    path: Path,
    observation_space: Space | None = None,
    action_space: Space | None = None,
    entries: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Replace lost metadata: totals from the files, spaces as given, or the widest boxes that the columns fit."""
    whole = _rebuilt_entries(path, observation_space, action_space, entries)
    metadata.write_json(place(Path(path))[0] / metadata.FILE, whole)
    return whole


def metadata_repairs(path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
    """Yield the repair of `metadata.json`: totals as in the files, and spaces that fit the columns."""
    try:
        whole = _rebuilt_entries(path)
    except (SpecError, FormatError):
        return  # text columns without a space, or files that cannot be read
    file = place(path)[0] / metadata.FILE
    stored = metadata.read_json(file) or {}
    names = [name for name in ("total_episodes", "total_steps") if stored.get(name) != whole[name]]
    if any(finding.name == "missing-part" for finding in findings):
        names += [name for name in whole if name not in stored]
    if names:
        kind = "totals" if any(name.startswith("total_") for name in names) else "missing-part"
        message = "set " + ", ".join(f"{name} {str(whole[name])[:40]}" for name in names)
        content = metadata.strict_dumps({**stored, **{name: whole[name] for name in names}}).encode()
        yield Repair(kind, file, message, partial(bytes, content), None, str(file))


def _rebuilt_entries(
    path: Path,
    observation_space: Space | None = None,
    action_space: Space | None = None,
    entries: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the metadata that `rebuild_metadata` writes, with its arguments and errors."""
    folder, main = place(Path(path))
    with ArrowSource(folder, "skip", "off") if main is None else Hdf5Source(folder, main, "skip", "off") as source:
        stored = metadata.read_json(folder / metadata.FILE) or {}
        spec = check_columns(Spec(source.spec.fields, observation_space, action_space))
        if spec.observation_space is None or spec.action_space is None:
            raise AssertionError("check_columns fills in both")
        suffix = "hdf5" if isinstance(source, Hdf5Source) else source.suffix
        directory = folder.parent if folder.name == ids.DATA else folder
        base = {"dataset_id": ids.id_of(directory), "minari_version": metadata.VERSION, "data_format": suffix}
        flag = {"jpeg_encoding": bool(source.frames)}
        prepared = metadata.prepare(
            {**base, **flag, **stored, **(entries or {})}, spec.observation_space, spec.action_space
        )
        totals = {"total_episodes": len(source), "total_steps": source.steps}
        return {**prepared, **totals, "dataset_size": metadata.size_of(folder)}


def metadata_findings(path: Path, open_source: Callable[..., MinariSource], infos: str) -> Iterator[Finding]:
    source, problems = _opened(path, open_source, infos)
    yield from problems
    if source is None:
        return
    with source:
        yield from _metadata(source)
        for e, entries in each_metadata(source):
            if isinstance(entries, FormatError):
                yield Finding("unreadable", f"episode {e}", str(entries), None, (e,), (0,))
            else:
                yield from _stated_length(source, e)


def _opened(
    path: Path, open_source: Callable[..., MinariSource], infos: str
) -> tuple[MinariSource | None, list[Finding]]:
    """The source, with all columns that can be read; and what is wrong with the others."""
    problems: list[Finding] = []
    for policy in dict.fromkeys((infos, "skip")):
        try:
            return open_source(path, infos=policy, cache="refresh"), problems
        except FormatError as error:
            problems += [Finding("unreadable", str(path), str(error))] if policy == infos else []
    return None, problems


def _stated_length(source: MinariSource, e: int) -> Iterator[Finding]:
    """The number of steps that the metadata of an episode states, where it is another."""
    steps, stated = int(source.offsets[e + 1] - source.offsets[e]), source.stored_entries(e).get("total_steps")
    if stated is not None and (not is_integer(stated) or int(stated) != steps):
        message = f"expected total_steps {steps} as in the episode, got {stated}"
        yield Finding("totals", f"episode {e}", message, None, (e,), (0,))


def _metadata(source: MinariSource) -> Iterator[Finding]:
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
    place = source.folder.parent if source.folder.name == ids.DATA else source.folder
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
