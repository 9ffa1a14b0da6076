"""HDF5 without libhdf5."""

from __future__ import annotations

from penstock.containers.hdf5.chunks import Tiles
from penstock.containers.hdf5.dataset import Dataset
from penstock.containers.hdf5.messages import Link
from penstock.containers.hdf5.objects import Storage, VlenBytes
from penstock.containers.hdf5.reader import File, Group
from penstock.containers.hdf5.writer import Appender

__all__ = ["Appender", "Dataset", "File", "Group", "Link", "Storage", "Tiles", "VlenBytes"]
