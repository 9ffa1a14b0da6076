"""Rebuild a dataset's `metadata.json` from its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.errors import FormatError, SpecError
from penstock.formats.base.findings import Finding
from penstock.formats.base.repairs import Repair
from penstock.formats.minari import ids, metadata, root
from penstock.formats.minari.arrow_source import ArrowSource
from penstock.formats.minari.hdf5_source import Hdf5Source
from penstock.formats.minari.place import place
from penstock.formats.minari.spaces import check_columns


def rebuild_metadata(
    path: Path,
    observation_space: Space | None = None,
    action_space: Space | None = None,
    entries: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Replace lost metadata: totals from the files, spaces as given, or the widest boxes that the columns fit.

    `entries` are further ones (env_spec, author, ...). Returns what was written. Raises `SpecError` for text columns
    without a space, `FormatError` for damaged files.
    """
    whole = rebuilt_entries(path, observation_space, action_space, entries)
    metadata.write_json(place(Path(path))[0] / metadata.FILE, whole)
    return whole


def metadata_repairs(path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
    """Yield the repair of `metadata.json`: totals as in the files, and spaces that fit the columns."""
    try:
        whole = rebuilt_entries(path)
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


def rebuilt_entries(
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
        directory = folder.parent if folder.name == root.DATA else folder
        base = {"dataset_id": ids.id_of(directory), "minari_version": metadata.VERSION, "data_format": suffix}
        flag = {"jpeg_encoding": bool(source.frames)}
        prepared = metadata.prepare(
            {**base, **flag, **stored, **(entries or {})}, spec.observation_space, spec.action_space
        )
        totals = {"total_episodes": len(source), "total_steps": source.steps}
        return {**prepared, **totals, "dataset_size": metadata.size_of(folder)}
