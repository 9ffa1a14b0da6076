"""The root directory of local datasets."""

from __future__ import annotations

from pathlib import Path

from penstock.formats.minari import ids


def get_dataset_path(dataset_id: str | None = None) -> Path:
    """Return the directory of a dataset or namespace, or the root (which is created) without an argument."""
    if dataset_id:
        return ids.inside(dataset_id)
    ids.root().mkdir(parents=True, exist_ok=True)
    return ids.root()
