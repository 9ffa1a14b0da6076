"""HDF5 files and groups: from names to objects.

A group keeps its links in a symbol table (old), in link messages (compact) or in a fractal heap (dense). Soft links are
resolved at most `SOFT_HOPS` times, so that a circle ends in an error. `walk` visits each group once, by address,
because hard links may form circles. External links are refused: a file must not choose which other files are opened.
Arrays keep the map alive after `close`. Reading takes no lock.

Source: HDF5 File Format Specification 3.0, III (infrastructure) and IV.A (object headers).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, ItemsView, Iterator, Mapping
from types import TracebackType
from typing import Self

import numpy as np

from penstock.containers.hdf5.btree import GROUP_NODES, leaves, read_records
from penstock.containers.hdf5.dataset import Dataset
from penstock.containers.hdf5.heap import FractalHeap, GlobalHeap, heap_name, read_local_heap
from penstock.containers.hdf5.image import MALFORMED, UNDEFINED, Image, located
from penstock.containers.hdf5.messages import (
    DATATYPE,
    GROUP_INFO,
    LAYOUT,
    LINK,
    LINK_INFO,
    SYMBOL_TABLE,
    Link,
    Message,
    parse_link,
    read_messages,
)
from penstock.containers.hdf5.values import Attributes
from penstock.core.arrays import ByteArray
from penstock.errors import DataError, FormatError

SOFT_HOPS = 16
DEPTH = 64

_GROUP_KINDS = {SYMBOL_TABLE, LINK_INFO, LINK, GROUP_INFO}
DENSE_LINKS = 5  # type of the B-tree that finds them by name
SOFT_LINK = 2  # cache type of a symbol table entry

ENTRY = struct.Struct("<QQI4xI12x")  # name in the heap, object, cache type, soft link's path in the heap
TABLE = struct.Struct("<QQ")  # B-tree and local heap


class Group(Mapping[str, "Group | Dataset"]):
    """A group: a mapping from names to groups and datasets, parsed when asked for."""

    __slots__ = ("_attrs", "_file", "_links", "address", "messages", "name")

    def __init__(self, file: File, name: str, address: int, messages: list[Message]) -> None:
        self._file, self.messages = file, messages
        self.name, self.address = name, address
        self._attrs: Attributes | None = None
        self._links: dict[str, Link] | None = None

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def where(self) -> str:
        """The place in the file, for messages."""
        return f"{self.name} (object header at byte {self.address})"

    @property
    def attrs(self) -> Attributes:
        """Attributes, decoded when asked for."""
        if self._attrs is None:
            self._attrs = Attributes(self._file.image, self._file.heap, self.messages, self.name)
        return self._attrs

    @property
    def links(self) -> dict[str, Link]:
        """What each name leads to."""
        if self._links is None:
            self._links = self._read_links()
        return self._links

    @located
    def _read_links(self) -> dict[str, Link]:
        return read_links(self._file.image, self.messages)

    def __getitem__(self, name: str) -> Group | Dataset:
        """Object at `name`, which may be a path."""
        return self._find(name, SOFT_HOPS)

    def _find(self, name: str, hops: int) -> Group | Dataset:
        here: Group | Dataset = self._file.root if name.startswith("/") else self
        for part in name.split("/"):
            if part and part != ".":
                if not isinstance(here, Group):
                    raise KeyError(f"{name} leads through the dataset {here.name}")
                here = here._step(part, hops)
        return here

    def _step(self, name: str, hops: int) -> Group | Dataset:
        link = self.links.get(name)
        if link is None:
            raise KeyError(f"{name} is not in {self.name} of {self.path}")
        place = f"{self.name.rstrip('/')}/{name}"
        if link.kind == "hard":
            return self._file.open_object(link.address, place)
        if link.kind == "external":
            message = f"leads to {link.path} of the file {link.file!r}, which is not followed; open that file"
            raise FormatError(message, path=self.path, where=place)
        if hops == 0:
            raise FormatError(f"more than {SOFT_HOPS} soft links in a row", path=self.path, where=place)
        return self._find(link.path, hops - 1)

    def __iter__(self) -> Iterator[str]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)

    def __contains__(self, name: object) -> bool:
        """Whether `name`, a single one, is in the group; its target is not read."""
        return name in self.links

    def items(self) -> ItemsView[str, Group | Dataset]:
        return ItemsView(self)

    def walk(self, unreadable: Callable[[str, FormatError], None] | None = None) -> Iterator[Dataset]:
        """Every dataset below this group that hard and soft links reach, depth first, each group once."""
        yield from self._walk({self.address}, DEPTH, unreadable)

    def _walk(
        self, seen: set[int], depth: int, unreadable: Callable[[str, FormatError], None] | None
    ) -> Iterator[Dataset]:
        if depth == 0:
            raise FormatError(f"groups are nested more than {DEPTH} deep", path=self.path, where=self.where)
        prefix = self.name.rstrip("/")
        for name, link in self.links.items():
            place = f"{prefix}/{name}"
            try:
                address = link.address if link.kind == "hard" else self._target(name)
                child = self._file.open_any(address, place) if address not in seen else None
            except FormatError as error:
                if unreadable is None:
                    raise
                unreadable(place, error)
                continue
            if isinstance(child, Dataset):
                yield child
            elif child is not None:
                seen.add(address)
                yield from child._walk(seen, depth - 1, unreadable)

    def _target(self, name: str) -> int:
        """The address of what a soft link leads to."""
        try:
            return self._step(name, SOFT_HOPS).address
        except KeyError as error:
            message = f"expected a link to something, got one to {self.links[name].path}, which is not there"
            raise FormatError(message, path=self.path, where=f"{self.name.rstrip('/')}/{name}") from error

    def __repr__(self) -> str:
        return f"Group({self.name!r}, {len(self)} links)"


class File:
    """An HDF5 file, mapped read-only; a context manager.

    `path`; `root`, its `Group`; `buffer` [size] uint8, the bytes of the whole file, to which `Dataset.flat` and
    `Tiles.offset` refer. Readers see the state at opening, even while an `Appender` goes on. Reads are thread-safe and
    may go on after a fork; pickled, it is its path. `eof`: byte at which to end, by default where the superblock says.
    """

    def __init__(self, path: str | os.PathLike[str], *, eof: int | None = None) -> None:
        self.path = os.fspath(path)
        self.where = "superblock"
        self.image = self._open(eof)
        self.heap = GlobalHeap(self.image)
        root = self.open_object(self.image.superblock.root, "/")
        if not isinstance(root, Group):
            raise FormatError("expected a group as the root, got a dataset", path=self.path, where="/")
        self.root = root

    @located
    def _open(self, eof: int | None) -> Image:
        return Image(self.path, eof)

    @property
    def buffer(self) -> ByteArray:
        """[size] uint8, the bytes of the file."""
        return self.image.buffer

    def open_object(self, address: int, name: str) -> Group | Dataset:
        """The group or dataset whose object header is at `address`."""
        entry = self.open_any(address, name)
        if entry is None:
            raise FormatError("expected a group or a dataset, got a named datatype", path=self.path, where=name)
        return entry

    def open_any(self, address: int, name: str) -> Group | Dataset | None:
        """Like `open_object`, but None for a named (committed) datatype."""
        place = f"{name} (object header at byte {address})"
        try:
            messages = read_messages(self.image, address)
        except FormatError as error:
            raise type(error)(str(error), path=self.path, where=place) from error
        except DataError:
            raise
        except MALFORMED as error:
            raise FormatError(f"malformed object header ({error})", path=self.path, where=place) from error
        kinds = {message.kind for message in messages}
        if LAYOUT in kinds:
            return Dataset(self.image, self.heap, name, address, messages)
        if kinds & _GROUP_KINDS:
            return Group(self, name, address, messages)
        if DATATYPE in kinds:
            return None
        raise FormatError("expected a group or a dataset", path=self.path, where=place)

    def __getitem__(self, name: str) -> Group | Dataset:
        return self.root[name]

    def close(self) -> None:
        self.image.data = memoryview(b"")
        self.image.size = 0
        self.image.buffer = np.empty(0, np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[File], tuple[str]]:
        return File, (self.path,)


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
