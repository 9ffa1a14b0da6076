"""Storage of datasets: this machine's root directory, and remote hubs."""

from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path

__all__ = ["get_dataset_path"]
