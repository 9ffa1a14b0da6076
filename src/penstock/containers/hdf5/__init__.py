"""HDF5 without libhdf5."""

from __future__ import annotations

from penstock.containers.hdf5.chunks import Tiles
from penstock.containers.hdf5.dataset import Dataset
from penstock.containers.hdf5.messages import Link
from penstock.containers.hdf5.reader import File, Group

__all__ = ["Dataset", "File", "Group", "Link", "Tiles"]
