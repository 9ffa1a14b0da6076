"""HDF5 without libhdf5: a reader that checks every byte it follows, and a writer that a crash cannot hurt.

The reader understands what libhdf5 writes for experience data; anything else is a `FormatError` that names it.
`Dataset.flat` and `Dataset.tiles` give the positions of values, so that a format indexes a file once and then gathers
rows from the map. Links to other files are shown and never followed.

`Appender` never changes a byte that a committed state shows. A commit writes new data, object headers and copied nodes
behind the end that the superblock names, and calls `fsync`. Then one small write of the superblock switches to the new
root and end, and a second `fsync` makes that last. So a reader sees the state at which it opened the file, and after a
crash the last commit. The leftovers of an unfinished commit are behind the end, where the next writer overwrites them.
"""

from __future__ import annotations

from penstock.containers.hdf5.chunks import Tiles
from penstock.containers.hdf5.dataset import Dataset
from penstock.containers.hdf5.image import has_signature
from penstock.containers.hdf5.messages import Link
from penstock.containers.hdf5.objects import Storage, VlenBytes
from penstock.containers.hdf5.reader import File, Group
from penstock.containers.hdf5.writer import Appender

__all__ = ["Appender", "Dataset", "File", "Group", "Link", "Storage", "Tiles", "VlenBytes", "has_signature"]
