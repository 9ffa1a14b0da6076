"""Where datasets lie: this machine's root, and remote hubs."""

from penstock.compat.minari.storage.datasets_root_dir import get_dataset_path

__all__ = ["get_dataset_path"]
