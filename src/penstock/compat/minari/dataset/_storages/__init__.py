"""The storages by the name of their format."""

from __future__ import annotations

from penstock.compat.minari.dataset.minari_storage import STORAGES, MinariStorage, storage_class


def get_minari_storage(storage_type: str) -> type[MinariStorage]:
    """The storage class of a format. Raises `DataError` for an unknown one."""
    return storage_class(storage_type)


def get_storage_keys() -> list[str]:
    """The names of the formats.

    >>> get_storage_keys()
    ['arrow', 'hdf5', 'parquet']
    """
    return list(STORAGES)
