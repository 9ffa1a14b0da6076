"""The root group while it is appended to: a symbol table, or link messages if a link leaves the file.

A symbol table is a B-tree of names with links at its leaves. Adding a name copies the nodes from its leaf to the root
to the end of the file, so a reader of an earlier state sees the earlier table. Nodes have no pointers to their
siblings, which would have to be copied too, and which libhdf5 does not need for reading. Names go to a local heap that
all states share, behind the names of earlier states, which do not read there.

A symbol table cannot store links to other files. A root with such a link becomes a list of link messages, of which each
commit writes its own as a block that continues in the block of the commit before.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from penstock.containers.hdf5.encode import (
    KEPT,
    Tail,
    external_link,
    hard_link,
    link_info,
    message_block,
    object_header,
    pad,
    soft_link,
    symbol_table,
    write_all,
)
from penstock.containers.hdf5.image import UNDEFINED, Image, Superblock
from penstock.containers.hdf5.messages import (
    ATTRIBUTE,
    CONTINUATION,
    GROUP_INFO,
    LINK,
    LINK_INFO,
    SYMBOL_TABLE,
    Link,
    Message,
    read_messages,
)
from penstock.containers.hdf5.reader import ENTRY, SOFT_LINK, TABLE, read_links, read_symbol_node
from penstock.errors import FormatError

NO_FREE_BLOCK = 1  # says that libhdf5 has no free block to fill in a local heap
LEAF = -1  # level of a symbol table node; B-tree nodes count from 0
MAX_LEVEL = 32

_CHILD = struct.Struct("<QQ24x")  # entry of a hard link
Key = tuple[bytes, int]  # a name, and its position in the heap
HEAP_BYTES = 512


@dataclass(slots=True)
class Names:
    """A local heap.  Its segment is shared by all states of the table: names are only added in its free tail,
    which earlier states do not read, so that adding one writes one name; a full segment is replaced by a larger."""

    segment: bytearray
    capacity: int
    address: int | None = None  # of the header, None until it is written
    data: int = 0
    written: int = 0

    @classmethod
    def empty(cls, capacity: int) -> Names:
        """A heap with the empty name only, and room for `capacity` bytes."""
        return cls(bytearray(8), max(capacity, 8))

    @classmethod
    def load(cls, image: Image, address: int) -> Names:
        head = image.signed(address, 32, b"HEAP\0", "local heap")
        size, free, data = struct.unpack_from("<QQQ", head, 8)
        raw = image.take(data, size, "data of the local heap")
        used = size  # where libhdf5 keeps a list of free blocks, nothing is touched
        if free == NO_FREE_BLOCK:
            used = min(size, (len(raw.rstrip(b"\0")) + 8) // 8 * 8)
        segment = bytearray(raw[: max(used, 8)])
        return cls(segment, size, address, data, len(segment))

    def get(self, offset: int) -> bytes:
        """The name at `offset`."""
        if offset >= len(self.segment):
            raise FormatError(f"name at {offset} is outside its local heap of {len(self.segment)} bytes")
        end = self.segment.find(b"\0", offset)
        return bytes(self.segment[offset : end if end >= 0 else None])

    def add(self, name: bytes) -> int:
        offset = len(self.segment)
        self.segment += pad(name + b"\0")
        if len(self.segment) > self.capacity:
            self.capacity = max(2 * self.capacity, len(self.segment))
            self.address = None
        return offset

    def write(self, tail: Tail, fd: int | None) -> int:
        """Address of the header, after the names that are new have been written."""
        if self.address is None or fd is None:
            address = tail.next
            self.data = address + 32
            head = struct.pack("<4sB3xQQQ", b"HEAP", 0, self.capacity, NO_FREE_BLOCK, self.data)
            self.address = tail.put(head + bytes(self.segment).ljust(self.capacity, b"\0"))
        elif self.written < len(self.segment):
            write_all(fd, bytes(self.segment[self.written :]), self.data + self.written)
        self.written = len(self.segment)
        return self.address


@dataclass(slots=True)
class GroupNode:
    """A node: the largest key of each child and it (B-tree), or its address, or each key and its entry, which begins
    with the heap offset of the key (leaf)."""

    level: int
    left: int  # heap offset of the key just below this node
    keys: list[Key] = field(default_factory=list[Key])
    items: list[bytes | GroupNode | int] = field(default_factory=list["bytes | GroupNode | int"])
    address: int | None = None  # None: to be written

    def find(self, name: bytes) -> int:
        """Index of the first key that is not below `name`."""
        return bisect_left(self.keys, (name,))  # below the key with this name and any offset


class SymbolTable:
    """Names -> links of an old-style group.  `set` costs one path of nodes, written by `write`."""

    def __init__(self, names: Names, root: GroupNode, capacities: tuple[int, int], image: Image | None = None) -> None:
        self._names = names
        self._root = root
        self._image = image
        self._leaf, self._branch = capacities

    @classmethod
    def empty(cls, leaf_k: int, internal_k: int, heap_bytes: int) -> SymbolTable:
        return cls(Names.empty(heap_bytes), GroupNode(0, 0), (2 * leaf_k, 2 * internal_k))

    @classmethod
    def load(cls, image: Image, block: Superblock, message: bytes) -> SymbolTable:
        """The table that a symbol table message names; nodes are read when they are needed."""
        tree, heap = TABLE.unpack_from(message)
        table = cls(Names.load(image, heap), GroupNode(0, 0), (2 * block.leaf_k, 2 * block.internal_k), image)
        table._root = table._load(tree, None)
        return table

    def _load(self, address: int, level: int | None) -> GroupNode:
        if self._image is None:
            raise FormatError(f"symbol table node at byte {address} is not in the file")
        if level == LEAF:
            raw = read_symbol_node(self._image, address)
            keys = [(self._names.get(offset), offset) for offset, *_ in ENTRY.iter_unpack(raw)]
            return GroupNode(LEAF, 0, keys, [raw[i : i + 40] for i in range(0, len(raw), 40)], address)
        head = self._image.signed(address, 24, b"TREE\0", "B-tree node")
        version, count = head[5], int.from_bytes(head[6:8], "little")
        if version != (version if level is None else level) or version > MAX_LEVEL:
            raise FormatError(f"expected a B-tree node of level {level} at byte {address}, got {version}")
        raw = self._image.take(address + 24, 16 * count + 8, "B-tree entries")
        words = struct.unpack(f"<{2 * count + 1}Q", raw)
        keys = [(self._names.get(offset), offset) for offset in words[2::2]]
        return GroupNode(version, words[0], keys, list(words[1::2]), address)

    def _child(self, node: GroupNode, i: int) -> GroupNode:
        item = node.items[i]
        if isinstance(item, int):
            item = node.items[i] = self._load(item, node.level - 1)
        if isinstance(item, bytes):
            raise FormatError("a symbol table entry stands in the place of a node")
        return item

    def get(self, name: str) -> Link | None:
        """Target of the link `name`, None if missing."""
        raw, node = name.encode(), self._root
        while True:
            i = node.find(raw)
            if i == len(node.keys):
                return None
            if node.level == LEAF:
                return self._link(node.items[i]) if node.keys[i][0] == raw else None
            child = node.items[i]
            node = child if isinstance(child, GroupNode) else self._child(node, i)

    def _link(self, item: bytes | GroupNode | int) -> Link:
        if not isinstance(item, bytes):
            raise FormatError("a node stands in the place of a symbol table entry")
        address, cache, soft = struct.unpack_from("<QI4xI", item, 8)
        return Link("soft", path=self._names.get(soft).decode()) if cache == SOFT_LINK else Link("hard", address)

    def set(self, name: str, link: Link) -> None:
        """Add a hard or soft link, or let an existing name lead elsewhere."""
        raw = name.encode()
        if link.kind == "soft":
            entry = struct.pack("<QI4xI12x", UNDEFINED, SOFT_LINK, self._names.add(link.path.encode()))
        else:
            entry = struct.pack("<QI4xI12x", link.address, 0, 0)
        right = self._insert(self._root, raw, entry)
        if right is not None:
            left = self._root
            self._root = GroupNode(left.level + 1, 0, [left.keys[-1], right.keys[-1]], [left, right])

    def _insert(self, node: GroupNode, name: bytes, entry: bytes) -> GroupNode | None:
        """Insert below `node`; the new right half if it had to be split."""
        node.address = None
        i = node.find(name)
        if node.level == LEAF:
            if i < len(node.keys) and node.keys[i][0] == name:
                node.items[i] = node.keys[i][1].to_bytes(8, "little") + entry
                return None
            offset = self._names.add(name)
            node.keys.insert(i, (name, offset))
            node.items.insert(i, offset.to_bytes(8, "little") + entry)
            return self._split(node, self._leaf)
        if not node.keys:
            node.items.append(GroupNode(LEAF, 0))
            node.keys.append((b"", 0))
        i = min(i, len(node.keys) - 1)
        child = self._child(node, i)
        right = self._insert(child, name, entry)
        if name > node.keys[i][0]:
            node.keys[i] = (right or child).keys[-1]
        if right is not None:
            node.keys.insert(i, child.keys[-1])
            node.items.insert(i + 1, right)
        return self._split(node, self._branch)

    @staticmethod
    def _split(node: GroupNode, capacity: int) -> GroupNode | None:
        if len(node.keys) <= capacity:
            return None
        half = (len(node.keys) + 1) // 2
        right = GroupNode(node.level, node.keys[half - 1][1], node.keys[half:], node.items[half:])
        del node.keys[half:], node.items[half:]
        return right

    def write(self, tail: Tail, fd: int | None) -> tuple[int, int]:
        """Write what is new; addresses of the B-tree and of the heap."""
        return self._write(self._root, tail), self._names.write(tail, fd)

    def _write(self, node: GroupNode, tail: Tail) -> int:
        if node.address is not None:
            return node.address
        count = len(node.keys)
        if node.level == LEAF:
            items: list[Any] = node.items
            raw = struct.pack("<4sBxH", b"SNOD", 1, count) + b"".join(items).ljust(40 * self._leaf, b"\0")
        else:
            words = [node.left]
            for key, item in zip(node.keys, node.items, strict=True):
                if isinstance(item, GroupNode):
                    words.append(self._write(item, tail) if item.address is None else item.address)
                else:
                    words.append(int(item))
                words.append(key[1])
            rest = 16 * (self._branch - count)
            shape = f"<4sBBHQQ{len(words)}Q{rest}x"
            raw = struct.pack(shape, b"TREE", 0, node.level, count, UNDEFINED, UNDEFINED, *words)
        node.address = tail.put(raw)
        return node.address


def build_table(entries: dict[str, int], leaf_k: int, internal_k: int, tail: Tail) -> tuple[int, int]:
    """Write the table of a new group of hard links; addresses of the B-tree and of the heap."""
    keys, segment = _sorted_names(tuple(entries))
    items: list[Any] = [_CHILD.pack(offset, entries[name.decode()]) for name, offset in keys]
    level, size = LEAF, 2 * leaf_k
    while level <= 0 or len(items) > 1:
        nodes = [
            GroupNode(level, keys[i - 1][1] if i else 0, keys[i : i + size], items[i : i + size])
            for i in range(0, len(items), size)
        ]
        keys, items = [node.keys[-1] for node in nodes], nodes
        level, size = level + 1, 2 * internal_k
    root = items[0] if items else GroupNode(0, 0)
    return SymbolTable(Names(bytearray(segment), len(segment)), root, (2 * leaf_k, 2 * internal_k)).write(tail, None)


@lru_cache(KEPT)
def _sorted_names(names: tuple[str, ...]) -> tuple[list[Key], bytes]:
    """Names in their order, with their positions in a heap that holds them; that heap."""
    heap = Names.empty(0)
    keys = sorted((raw, heap.add(raw)) for raw in (name.encode() for name in names))
    return keys, bytes(heap.segment)


@dataclass(frozen=True, slots=True)
class RootPlace:
    """Position of the root group: its object header, and its B-tree and heap if it is a symbol table."""

    header: int
    tree: int = UNDEFINED
    heap: int = UNDEFINED


@dataclass(slots=True)
class _Chain:
    """Link messages in blocks, each of which continues in the one that was written before it."""

    links: dict[str, Link]
    pending: dict[str, Link]
    newest: tuple[int, int, int] | None = None  # address, bytes, messages from there on


@dataclass(slots=True)
class Root:
    """Links and attributes of the root group; `write` puts what changed at the end of the file."""

    table: SymbolTable | None
    chain: _Chain | None = None
    attrs: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @classmethod
    def empty(cls, leaf_k: int, internal_k: int) -> Root:
        return cls(SymbolTable.empty(leaf_k, internal_k, HEAP_BYTES))

    @classmethod
    def load(cls, image: Image, block: Superblock, attrs: dict[str, bytes]) -> Root:
        """The root that `image` shows.  One of the new style becomes a symbol table if it has no external links."""
        messages = read_messages(image, image.superblock.root)
        for kind, _, body in messages:
            if kind == SYMBOL_TABLE:
                return cls(SymbolTable.load(image, block, body), None, attrs)
        links = read_links(image, messages)
        if any(link.kind == "external" for link in links.values()):
            newest = _find_chain(image, messages)
            return cls(None, _Chain(links, {} if newest else dict(links), newest), attrs)
        root = cls.empty(block.leaf_k, block.internal_k)
        root.attrs = attrs
        for name, link in links.items():
            root.set(name, link)
        return root

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Link | None:
        """What `name` leads to."""
        if self.chain is not None:
            return self.chain.links.get(name)
        return self.table.get(name) if self.table is not None else None

    def set(self, name: str, link: Link) -> None:
        """Add a link, or let an existing name lead elsewhere."""
        if self.table is not None:
            self.table.set(name, link)
        elif self.chain is not None:
            if name in self.chain.links and name not in self.chain.pending:
                self.chain.pending, self.chain.newest = dict(self.chain.links), None
            self.chain.links[name] = self.chain.pending[name] = link

    def write(self, tail: Tail, fd: int) -> RootPlace:
        attributes = [Message(ATTRIBUTE, 0, body) for body in self.attrs.values()]
        if self.table is not None:
            tree, heap = self.table.write(tail, fd)
            header = tail.put(object_header(attributes, first=symbol_table(tree, heap)))
            return RootPlace(header, tree, heap)
        newest = self._write_chain(tail)
        return RootPlace(tail.put(object_header([*link_info(), *attributes], newest)))

    def _write_chain(self, tail: Tail) -> tuple[int, int, int] | None:
        chain = self.chain
        if chain is None or not chain.pending:
            return chain.newest if chain else None
        messages = [_link_message(name, link) for name, link in chain.pending.items()]
        older = 0
        if chain.newest is not None:
            address, nbytes, older = chain.newest
            where = address.to_bytes(8, "little") + nbytes.to_bytes(8, "little")
            messages.append(Message(CONTINUATION, 0, where))
        raw, count = message_block(messages)
        chain.newest, chain.pending = (tail.put(raw), len(raw), count + older), {}
        return chain.newest


def _link_message(name: str, link: Link) -> Message:
    if link.kind == "hard":
        return hard_link(name, link.address)
    if link.kind == "soft":
        return soft_link(name, link.path)
    return external_link(name, link.file, link.path)


def _find_chain(image: Image, messages: list[Message]) -> tuple[int, int, int] | None:
    """The chain of blocks below a root that `Root.write` wrote, None for any other root."""
    links = sum(message.kind == LINK for message in messages)
    rest = [message for message in messages if message.kind != LINK]
    kinds = [message.kind for message in rest]
    if kinds[:2] != [LINK_INFO, GROUP_INFO] or any(kind != ATTRIBUTE for kind in kinds[2:]):
        return None
    head = object_header(rest)
    raw = image.take(image.superblock.root, len(head) + 24, "object header")
    if raw[16 : len(head)] != head[16:] or raw[len(head) : len(head) + 2] != b"\x10\0":
        return None
    address, nbytes = (int.from_bytes(raw[len(head) + i : len(head) + i + 8], "little") for i in (8, 16))
    total = int.from_bytes(raw[2:4], "little") - len(rest) - 1
    return (address, nbytes, total) if total >= links else None
