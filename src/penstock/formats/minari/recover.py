"""Rebuild a dataset's `metadata.json` from its files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.formats.minari import ids, metadata, root
from penstock.formats.minari.arrow_source import ArrowSource
from penstock.formats.minari.format import place
from penstock.formats.minari.hdf5_source import Hdf5Source
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
    folder, main = place(Path(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the very loss that is being repaired
        source = ArrowSource(folder, "skip", "off") if main is None else Hdf5Source(folder, main, "skip", "off")
    with source:
        stored = metadata.read_json(folder / metadata.FILE) or {}
        spec = check_columns(Spec(source.spec.fields, observation_space, action_space))
        if spec.observation_space is None or spec.action_space is None:
            raise AssertionError("check_columns fills in both")
        suffix = "hdf5" if isinstance(source, Hdf5Source) else source.suffix
        directory = folder.parent if folder.name == root.DATA else folder
        base = {"dataset_id": ids.id_of(directory), "minari_version": metadata.VERSION, "data_format": suffix}
        flag = {"jpeg_encoding": bool(source.frames)}
        made = metadata.prepare(
            {**base, **flag, **stored, **(entries or {})}, spec.observation_space, spec.action_space
        )
        totals = {"total_episodes": len(source), "total_steps": source.steps}
        whole = {**made, **totals, "dataset_size": metadata.size_of(folder)}
    metadata.write_json(folder / metadata.FILE, whole)
    return whole
