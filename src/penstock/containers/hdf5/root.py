"""The root group while it is appended to: a symbol table, or link messages if a link leaves the file.

A symbol table cannot store links to other files, so a root with such a link becomes a list of link messages. Each
commit writes its links as one block of messages that continues in the block of the commit before. A commit therefore
costs its own links, and not all links of the root. Files whose root was written in another way are read once and
rewritten as one of these two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.containers.hdf5.encode import (
    external_link,
    hard_link,
    link_info,
    message_block,
    object_header,
    soft_link,
    symbol_table,
)
from penstock.containers.hdf5.header import (
    ATTRIBUTE,
    CONTINUATION,
    GROUP_INFO,
    LINK,
    LINK_INFO,
    SYMBOL_TABLE,
    Message,
    read_messages,
)
from penstock.containers.hdf5.image import UNDEFINED, Image, Superblock
from penstock.containers.hdf5.links import read_links
from penstock.containers.hdf5.messages import Link
from penstock.containers.hdf5.symbols import SymbolTable
from penstock.containers.hdf5.tail import Tail

HEAP_BYTES = 512


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
        """A root without links."""
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
        """Write what is new."""
        attributes = [Message(ATTRIBUTE, 0, body) for body in self.attrs.values()]
        if self.table is not None:
            tree, heap = self.table.write(tail, fd)
            header = tail.put(object_header([symbol_table(tree, heap), *attributes]))
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
