"""HDF5 without libhdf5: a reader that checks every byte it follows, and a writer that a crash cannot hurt.

**Reading.**  `File` maps a file; groups, attributes and datasets are parsed when they are asked for, straight
from the map.  All that libhdf5 writes for experience data is understood: superblocks 0 to 3, both kinds of
object headers, groups and chunk indexes, variable-length values, deflate, shuffle, fletcher32 and lzf.  Anything
else (opaque types, virtual datasets, other filters) is a `FormatError` that names it.  `Dataset.flat` and
`Dataset.tiles` give the positions of values in the file, so that a format can index a file once and then gather rows
from the map.  Links to other files are shown and never followed.

**Appending.**  `Appender` never changes a byte that a committed state shows.  A commit is

1. new data, object headers and copies of the nodes of the root group that lead to them, all written behind
   the end of the file that the superblock names; only names go into the unused tail of the root's local heap,
   where no committed state looks;
2. `fsync`;
3. one write of the superblock (at most 100 bytes, in one sector): its root and its end of file now belong to
   the new state;
4. `fsync`.

So a reader, ours or libhdf5, sees the state at which it opened the file; one that opens it at any moment sees the last
commit; and so does every reader after a crash: leftovers of an unfinished commit are behind the end and are overwritten
by the next writer.  The price is the space of the copied nodes, about 0.5 to 1 kB a commit.

The files are ordinary ones.  New files have superblock version 1 with small B-tree nodes; datasets are one
chunk each and may grow; libhdf5 reads them and appends to them, and `Appender` appends to what it wrote.
A root of the new style (`track_order`, `libver="latest"`) becomes a symbol table at the first append, ordered by
name; if a link leads to another file it becomes a list of link messages instead, each commit's in a block that
continues in the block of the commit before.

>>> import os, tempfile
>>> import numpy as np
>>> path = os.path.join(tempfile.mkdtemp(), "main_data.hdf5")
>>> with Appender.create(path) as writer:
...     writer.add_group("episode_0", {"rewards": np.array([0.0, 1.0])}, {"id": 0})
>>> with File(path) as file:
...     file["episode_0/rewards"].read(), int(file["episode_0"].attrs["id"])
(array([0., 1.]), 0)
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
