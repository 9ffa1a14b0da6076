"""How a group keeps its links: symbol table (old), link messages (compact) or fractal heap (dense)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from penstock.containers.hdf5.btree import GROUP_NODES, leaves, read_records
from penstock.containers.hdf5.header import LINK, LINK_INFO, SYMBOL_TABLE, Message
from penstock.containers.hdf5.heap import FractalHeap, heap_name, read_local_heap
from penstock.containers.hdf5.image import UNDEFINED, Image
from penstock.containers.hdf5.messages import Link, parse_link
from penstock.errors import FormatError

DENSE_LINKS = 5  # type of the B-tree that finds them by name
SOFT_LINK = 2  # cache type of a symbol table entry

ENTRY = struct.Struct("<QQI4xI12x")  # name in the heap, object, cache type, soft link's path in the heap
TABLE = struct.Struct("<QQ")  # B-tree and local heap


def read_links(image: Image, messages: list[Message]) -> dict[str, Link]:
    """Links of the group with these header messages: in creation order where it is kept, else by name."""
    links: list[tuple[str, int, Link]] = []
    for kind, _, body in messages:
        if kind == SYMBOL_TABLE:
            return dict(_symbols(image, *TABLE.unpack_from(body)))
        if kind == LINK:
            links.append(parse_link(body))
        elif kind == LINK_INFO:
            links.extend(parse_link(link) for link in _dense(image, body))
    links.sort(key=lambda link: (link[1], link[0].encode()))
    return {name: link for name, _, link in links}


def _symbols(image: Image, tree: int, heap: int) -> Iterator[tuple[str, Link]]:
    segment = read_local_heap(image, heap)
    for raw, count in leaves(image, tree, GROUP_NODES, 8):
        for i in range(count):
            address = int.from_bytes(raw[16 * i + 8 : 16 * i + 16], "little")
            for name, target, cache, soft in ENTRY.iter_unpack(read_symbol_node(image, address)):
                if cache == SOFT_LINK:
                    yield heap_name(segment, name), Link("soft", path=heap_name(segment, soft))
                else:
                    yield heap_name(segment, name), Link("hard", target)


def read_symbol_node(image: Image, address: int) -> bytes:
    """Entries of the symbol table node at `address`, 40 bytes each."""
    head = image.signed(address, 8, b"SNOD\x01", "symbol table node")
    return image.take(address + 8, int.from_bytes(head[6:8], "little") * ENTRY.size, "symbol table entries")


def _dense(image: Image, info: bytes) -> Iterator[bytes]:
    if info[0]:
        raise FormatError(f"link info of version {info[0]} is unknown")
    address, index = struct.unpack_from("<QQ", info, 10 if info[1] & 1 else 2)
    if address == UNDEFINED:
        return
    heap = FractalHeap(image, address)
    for record in read_records(image, index, DENSE_LINKS):
        yield heap.get(record[4:])
