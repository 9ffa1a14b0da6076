"""Superblocks as an `Appender` writes them: the one small write that switches to a new state."""

from __future__ import annotations

import struct

from penstock.containers.hdf5.image import SIGNATURE, UNDEFINED, Superblock
from penstock.containers.hdf5.root import RootPlace
from penstock.kernels.checksum import lookup3

# Small nodes: fewer bytes a commit copies, and an episode takes
LEAF_K = 4
INTERNAL_K = 4
CHUNK_K = 2
NEW = Superblock(1, 0, 0, UNDEFINED, LEAF_K, INTERNAL_K, CHUNK_K, UNDEFINED, 0)


def encode_superblock(block: Superblock, eof: int, root: RootPlace) -> bytes:
    """Superblock like `block`, for a file of `eof` bytes with this root."""
    if block.version >= 2:
        head = SIGNATURE + struct.pack("<BBBB", block.version, 8, 8, block.flags)
        raw = head + struct.pack("<4Q", block.base, block.extension, eof, root.header)
        return raw + struct.pack("<I", lookup3(raw))
    head = SIGNATURE + struct.pack("<8B", block.version, 0, 0, 0, 0, 8, 8, 0)
    head += struct.pack("<HHI", block.leaf_k, block.internal_k, block.flags)
    if block.version == 1:
        head += struct.pack("<HH", block.chunk_k, 0)
    cached = int(root.tree != UNDEFINED)
    scratch = (root.tree, root.heap) if cached else (0, 0)
    places = struct.pack("<4Q", block.base, UNDEFINED, eof, UNDEFINED)
    return head + places + struct.pack("<QQIIQQ", 0, root.header, cached, 0, *scratch)
