"""The storages by the name of their format."""

from penstock_mirrors.minari.dataset.minari_storage import get_minari_storage, get_storage_keys

__all__ = ["get_minari_storage", "get_storage_keys"]
