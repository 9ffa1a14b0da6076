"""Storage of datasets: this machine's root directory, and remote hubs."""

from penstock.compat.minari.storage.datasets_root_dir import get_dataset_path

__all__ = ["get_dataset_path"]
