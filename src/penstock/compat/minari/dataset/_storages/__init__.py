"""The storages by the name of their format."""

from __future__ import annotations

from penstock.compat.minari.dataset.minari_storage import STORAGES, MinariStorage, storage_class


def get_minari_storage(storage_type: str) -> type[MinariStorage]:
    """Return the storage class of a format. Raises `DataError` for an unknown format."""
    return storage_class(storage_type)


def get_storage_keys() -> list[str]:
    """Return the names of the formats.

    >>> get_storage_keys()
    ['arrow', 'hdf5', 'parquet']
    """
    return list(STORAGES)
