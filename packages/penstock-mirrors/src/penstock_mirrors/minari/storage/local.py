"""The datasets of this machine: list, load, delete."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from penstock.errors import FormatError
from penstock.files import sweep
from penstock.formats.minari import ids
from penstock_mirrors.minari.dataset.minari_dataset import MinariDataset
from penstock_mirrors.minari.dataset.minari_storage import MinariStorage
from penstock_mirrors.minari.dataset.versions import is_supported, latest, parse_dataset_id
from penstock_mirrors.minari.storage import hosting, root
from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path


def load_dataset(dataset_id: str, download: bool = False) -> MinariDataset:
    """Open a dataset; with `download`, fetch a missing dataset from the hub first. Nothing is executed."""
    parse_dataset_id(dataset_id)
    path = get_dataset_path(dataset_id)
    if not (path / ids.DATA).is_dir():
        sweep(path.parent)  # ends a replacement that was killed between two renames
    if not (path / ids.DATA).is_dir():
        if not download:
            raise FileNotFoundError(
                f"Dataset {dataset_id} not found locally at {path}. Use download=True to download the dataset."
            )
        hosting.download_dataset(dataset_id)
    return MinariDataset(path / ids.DATA)


def list_local_datasets(
    latest_version: bool = False, compatible_minari_version: bool = False, prefix: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return ids and raw metadata of the local datasets; `prefix` is a directory below the root. Nothing is executed.

    Datasets that cannot be read, or whose metadata has another id, are warned about and left out. Arguments:
    `latest_version` keeps the highest version of each name, `compatible_minari_version` what can be read here.
    """
    listed: dict[str, dict[str, Any]] = {}
    for dataset_id in root.datasets(get_dataset_path(), prefix):
        try:
            metadata = _checked(dataset_id)
        except (OSError, ValueError) as error:
            warnings.warn(f"Misconfigured dataset named {dataset_id}: {error}", stacklevel=2)
            continue
        if not compatible_minari_version or is_supported(metadata.get("minari_version")):
            listed[dataset_id] = metadata
    return {key: listed[key] for key in latest(list(listed))} if latest_version else listed


def _checked(dataset_id: str) -> dict[str, Any]:
    parse_dataset_id(dataset_id)
    metadata = dict(MinariStorage.read_raw_metadata(get_dataset_path(dataset_id) / ids.DATA))
    stored: Mapping[str, Any] = metadata
    if stored.get("dataset_id") != dataset_id:
        raise FormatError(f"expected the id of its directory in its metadata, got {stored.get('dataset_id')!r}")
    return metadata


def delete_dataset(dataset_id: str) -> None:
    """Delete a local dataset with all its files."""
    parse_dataset_id(dataset_id)
    root.delete_dataset(dataset_id, get_dataset_path())
    print(f"Dataset {dataset_id} deleted!")
