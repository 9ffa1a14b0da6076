"""One way to own a file: locks, atomic replacement, logs that are appended to, caches that are rebuilt when damaged.

Everything in penstock that writes to a disk goes through this package (`tests/test_architecture.py`):

* A file or folder appears under its name only when it is complete. Until then it has a hidden name next to it, which
  its writer keeps locked. What a killed writer left is removed by the next writer in that folder, if its lock is free.
* A file that is continued is looked at before anything in it changes: a file that begins otherwise is refused.
* A cache file is believed only with its magic, its key and its checksum.
"""

from penstock.files.arrays import noted_files, read_checked, write_checked
from penstock.files.locks import locked, open_locked, try_lock
from penstock.files.log import AppendLog
from penstock.files.replace import (
    atomic_file,
    atomic_path,
    move,
    remove_folder,
    replaced_path,
    scratch_folder,
    sweep,
    sync,
    write_atomic,
)

__all__ = [
    "AppendLog",
    "atomic_file",
    "atomic_path",
    "locked",
    "move",
    "noted_files",
    "open_locked",
    "read_checked",
    "remove_folder",
    "replaced_path",
    "scratch_folder",
    "sweep",
    "sync",
    "try_lock",
    "write_atomic",
    "write_checked",
]
