"""Groups, datasets and attributes to bytes at the end of a file.

Objects are written bottom-up, so each refers only to bytes that were written before it. Messages have the oldest
versions that can express them, so that every HDF5 library reads the file. A dataset is one chunk unless it is
compressed, has checksums or exceeds `MAX_CHUNK`, so that a reader can map it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

import numpy as np

from penstock.containers.hdf5.encode import (
    KEPT,
    VLEN_BYTES,
    VLEN_STRING,
    Block,
    Tail,
    attribute,
    chunked_layout,
    contiguous_layout,
    dataset_block,
    datatype,
    filter_pipeline,
    little,
    message_block,
    object_header,
    symbol_table,
)
from penstock.containers.hdf5.filters import fletcher32
from penstock.containers.hdf5.image import UNDEFINED, Superblock
from penstock.containers.hdf5.messages import ATTRIBUTE, Message
from penstock.containers.hdf5.symbols import build_table
from penstock.core.arrays import AnyArray
from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_dict, is_listed
from penstock.errors import DataError

REFERENCE_BYTES = 16
MAX_CHUNK = 1 << 30  # libhdf5 takes chunks below 4 GiB
MAX_DIM = 0xFFFFFFFF


class VlenBytes(list[bytes]):
    """Byte strings of different lengths, stored as variable-length uint8."""


Value = AnyArray | Sequence[str] | VlenBytes | None


@dataclass(frozen=True, slots=True)
class Storage:
    """How arrays are stored: `compression` with `level` 0 to 9, in chunks of about `chunk_bytes`.

    `checksum` adds Fletcher-32 to each chunk, which our reader and libhdf5 verify when they read it. With neither, an
    array is one chunk, so that it is in one piece in the file; values of variable length have no checksum.
    """

    compression: Literal["gzip"] | None = None
    level: int = 4
    chunk_bytes: int = 0
    checksum: bool = False

    def __post_init__(self) -> None:
        if self.compression not in (None, "gzip") or not 0 <= self.level <= 9:
            raise DataError(f"expected gzip of level 0 to 9 or None, got {self.compression} of level {self.level}")
        if not self.chunk_bytes:
            set_fields(self, chunk_bytes=1 << 20 if self.compression or self.checksum else MAX_CHUNK)
        if not 0 < self.chunk_bytes <= MAX_CHUNK:
            raise DataError(f"expected chunks of 1 to {MAX_CHUNK} bytes, got {self.chunk_bytes}")


PLAIN = Storage()
TEMPLATE_BYTES = 8192  # of values at most: more values take more time to write than the objects around them
TEMPLATES = 1024


class ObjectWriter:
    """Writes objects bottom-up, each after what it refers to."""

    def __init__(self, tail: Tail, block: Superblock, storage: Storage) -> None:
        self._tail = tail
        self._block = block
        self._storage = storage

    def group(
        self,
        datasets: Mapping[str, Value],
        attrs: Mapping[str, Any],
        dataset_attrs: Mapping[str, Mapping[str, Any]],
    ) -> int:
        """Write a group with everything below it; address of its object header."""
        encoded = _numbers(attrs) or message_block(_messages(self.attributes(attrs)))
        template = None if dataset_attrs else self._template(datasets)
        if template is not None:
            return self._group(template.write(datasets, self._tail), encoded)
        tree = _nest(datasets)
        missing = [path for path in dataset_attrs if not any(f"{name}/".startswith(f"{path}/") for name in datasets)]
        if missing:
            raise DataError(f"attributes are given for {missing[0]}, which is not among the datasets")
        return self._group(self.table(tree, "", dataset_attrs), encoded)

    def _group(self, table: tuple[int, int], attrs: Block) -> int:
        raw, count = symbol_table(*table)
        return self._tail.put(object_header((), first=(raw + attrs[0], count + attrs[1])))

    def _template(self, datasets: Mapping[str, Value]) -> Template | None:
        """The template of a group of a few small arrays; None for other groups."""
        if self._storage != PLAIN:
            return None
        shapes: list[tuple[str, np.dtype[Any] | None, tuple[int, ...]]] = []
        nbytes = 0
        for path, value in datasets.items():
            if value is None:
                shapes.append((path, None, ()))
            elif isinstance(value, np.ndarray) and value.nbytes and value.shape and value.dtype.isnative:
                shapes.append((path, value.dtype, value.shape))
                nbytes += value.nbytes
            else:
                return None
        return _template(tuple(shapes), self._block) if nbytes <= TEMPLATE_BYTES else None

    def table(
        self, tree: dict[str, Any], prefix: str, dataset_attrs: Mapping[str, Mapping[str, Any]]
    ) -> tuple[int, int]:
        """Write what is below a group; addresses of its B-tree and heap."""
        links: dict[str, int] = {}
        for name, child in tree.items():
            path = prefix + name
            below = self.attributes(dataset_attrs.get(path, {}))
            if is_dict(child):
                table = self.table(child, f"{path}/", dataset_attrs)
                links[name] = self._group(table, message_block(_messages(below)))
            else:
                links[name] = self._dataset(path, child, below)
        return build_table(links, self._block.leaf_k, self._block.internal_k, self._tail)

    def _header(self, messages: list[Message], attrs: dict[str, bytes], first: Block) -> int:
        return self._tail.put(object_header([*messages, *_messages(attrs)], first=first))

    def _dataset(self, path: str, value: Any, attrs: dict[str, bytes]) -> int:
        kind, array = self._encode(path, value)
        if not array.shape:
            address = self._tail.put(array.tobytes())
            return self._header([contiguous_layout(address, array.nbytes)], attrs, dataset_block(kind, ()))
        if len(array.shape) > 31 or max(array.shape[1:], default=0) > MAX_DIM:
            raise DataError(f"{path} of shape {array.shape} has too many or too large dimensions")
        return self._header(self._chunks(array), attrs, dataset_block(kind, array.shape, growing=True))

    def _encode(self, path: str, value: Any) -> tuple[bytes, AnyArray]:
        """Datatype message and array of what is stored, references in the place of variable-length values."""
        try:
            if isinstance(value, VlenBytes):
                return VLEN_BYTES, self._references(list(value), (len(value),))
            if isinstance(value, np.ndarray | np.generic | int | float):
                return self._plain(np.asarray(value))
            if is_listed(value) and all(isinstance(item, str) for item in value):
                return VLEN_STRING, self._references([encode_text(item) for item in value], (len(value),))
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        raise DataError(f"{path}: expected an array, a list of str or VlenBytes, got {type(value).__name__}")

    def _references(self, values: list[bytes], shape: tuple[int, ...]) -> AnyArray:
        return np.frombuffer(self._tail.put_values(values), f"V{REFERENCE_BYTES}").reshape(shape)

    @staticmethod
    def _plain(array: AnyArray) -> tuple[bytes, AnyArray]:
        return datatype(array.dtype), little(array)

    def _chunks(self, array: AnyArray) -> list[Message]:
        """Write the values; layout and filter messages."""
        plain = array.dtype.kind != "V"
        compress, checksum = plain and self._storage.compression is not None, plain and self._storage.checksum
        row = max(array.nbytes // max(array.shape[0], 1), 1)
        if row > 0xFFFFFFFF:
            raise DataError(f"a row of {row} bytes is too large; expected less than 4 GiB")
        rows = max(min(array.shape[0], self._storage.chunk_bytes // row), 1)
        chunk = (rows, *(max(dim, 1) for dim in array.shape[1:]))
        entries = [
            self._chunk(array[i : i + rows], rows, i, compress=compress, checksum=checksum)
            for i in range(0, len(array), rows)
        ]
        tree = self._index(entries if array.nbytes else [], len(chunk), rows * len(entries))
        filters = filter_pipeline(array.itemsize, self._storage.level if compress else None, checksum=checksum)
        return [chunked_layout(tree, chunk, array.itemsize), *filters]

    def _chunk(self, part: AnyArray, rows: int, start: int, *, compress: bool, checksum: bool) -> tuple[int, int, int]:
        """Write one chunk, filled up with zeros; first row, stored bytes and address."""
        if len(part) < rows:
            part = np.concatenate([part, np.zeros((rows - len(part), *part.shape[1:]), part.dtype)])
        raw = part.reshape(-1).view(np.uint8).data if part.nbytes else memoryview(b"")
        if compress:
            planes = np.frombuffer(raw, np.uint8).reshape(-1, part.itemsize).T
            raw = memoryview(zlib.compress(planes.tobytes(), self._storage.level))
        if checksum:
            raw = memoryview(bytes(raw) + fletcher32(raw).to_bytes(4, "little"))
        return start, len(raw), self._tail.put(raw)

    def _index(self, entries: list[tuple[int, int, int]], rank: int, stop: int) -> int:
        """Write the version 1 B-tree over chunks `(first row, bytes, address)` up to row `stop`; its address."""
        level, children = 0, entries
        while entries:
            size = 2 * self._block.chunk_k
            groups = [children[i : i + size] for i in range(0, len(children), size)]
            ends = [*(group[0][0] for group in groups[1:]), stop]
            children = [
                (group[0][0], group[0][1], self._index_node(group, level, rank, end))
                for group, end in zip(groups, ends, strict=True)
            ]
            if len(children) == 1:
                return children[0][2]
            level += 1
        return UNDEFINED

    def _index_node(self, group: list[tuple[int, int, int]], level: int, rank: int, end: int) -> int:
        words: list[int] = []  # a key is the bytes of a chunk (and no skipped filter), its first row, and zeros
        for start, nbytes, address in group:
            words += (nbytes, start, *(0,) * rank, address)
        words += (0, end, *(0,) * rank)
        rest = (2 * self._block.chunk_k - len(group)) * 8 * (rank + 3)
        shape = f"<4sBBHQQ{len(words)}Q{rest}x"
        return self._tail.put(struct.pack(shape, b"TREE", 1, level, len(group), UNDEFINED, UNDEFINED, *words))

    def attributes(self, attrs: Mapping[str, Any]) -> dict[str, bytes]:
        out: dict[str, bytes] = {}
        for name, value in attrs.items():
            if not name or "\0" in name:
                raise DataError(f"expected a name for an attribute, got {name!r}")
            try:
                kind, array = self._attribute(value)
            except (DataError, OverflowError) as error:
                raise DataError(f"attribute {name!r}: {error}") from error
            out[name] = attribute(name, kind, array.shape, array.tobytes())
        return out

    def _attribute(self, value: Any) -> tuple[bytes, AnyArray]:
        if isinstance(value, bytes):
            return self._plain(np.array(value or b"\0", dtype=f"S{max(len(value), 1)}"))
        array = np.asarray(value)
        if array.dtype.kind in "UT" or (array.dtype.kind == "O" and all(isinstance(v, str) for v in array.flat)):
            return VLEN_STRING, self._references([encode_text(str(v)) for v in array.flat], array.shape)
        return self._plain(array)


@dataclass(frozen=True, slots=True)
class Template:
    """The bytes of everything below a group, for arrays of certain shapes: what differs are values and addresses."""

    layout: struct.Struct
    parts: tuple[Any, ...]  # what `layout` packs, with an address from the start, and None for values
    addresses: tuple[int, ...]  # the parts that are addresses
    values: tuple[tuple[str, int], ...]  # and those that are the values of an array
    table: tuple[int, int]

    @classmethod
    def of(
        cls, raw: bytes, addresses: Sequence[int], places: Sequence[tuple[str, int, int]], table: tuple[int, int]
    ) -> Template:
        """The template of bytes with addresses at these positions, and values at these places."""
        parts = list[Any]()
        shape, end = "<", 0
        numbers, values = list[int](), list[tuple[str, int]]()
        for begin, stop, path in sorted(
            [*((i, i + 8, "") for i in addresses), *((i, j, path) for path, i, j in places)]
        ):
            parts += (raw[end:begin], None if path else int.from_bytes(raw[begin:stop], "little"))
            shape += f"{begin - end}s{stop - begin}s" if path else f"{begin - end}sQ"
            if path:
                values.append((path, len(parts) - 1))
            else:
                numbers.append(len(parts) - 1)
            end = stop
        layout = struct.Struct(f"{shape}{len(raw) - end}s")
        return cls(layout, (*parts, raw[end:]), tuple(numbers), tuple(values), table)

    def write(self, datasets: Mapping[str, Any], tail: Tail) -> tuple[int, int]:
        """Write values of these shapes; addresses of the B-tree and of the heap."""
        parts, start = list(self.parts), tail.next
        for i in self.addresses:
            parts[i] += start
        for path, i in self.values:
            parts[i] = datasets[path].tobytes()
        tail.put(self.layout.pack(*parts))
        return start + self.table[0], start + self.table[1]


class _PlacedWriter(ObjectWriter):
    """Knows where the values of each array are, of which each is one chunk."""

    def __init__(self, start: int, block: Superblock) -> None:
        self.tail = Tail(-1, start)
        self.places: list[tuple[str, int, int]] = []
        super().__init__(self.tail, block, PLAIN)

    def _dataset(self, path: str, value: Any, attrs: dict[str, bytes]) -> int:
        self.places.append((path, self.tail.next, self.tail.next + value.nbytes))
        return super()._dataset(path, value, attrs)


@lru_cache(TEMPLATES)
def _template(shapes: tuple[tuple[str, np.dtype[Any] | None, tuple[int, ...]], ...], block: Superblock) -> Template:
    """Write zeros at two places: bytes that differ are of addresses, since the places differ in every byte."""
    arrays = {path: None if dtype is None else np.zeros(shape, dtype) for path, dtype, shape in shapes}
    here, there = _PlacedWriter(0, block), _PlacedWriter(0x0808080808080808, block)
    table, _ = (writer.table(_nest(arrays), "", {}) for writer in (here, there))
    raw = here.tail.take()
    differing = np.flatnonzero(np.frombuffer(raw, np.uint8) != np.frombuffer(there.tail.take(), np.uint8))
    return Template.of(raw, differing[::8].tolist(), here.places, table)


def _messages(attrs: Mapping[str, bytes]) -> list[Message]:
    return [Message(ATTRIBUTE, 0, body) for body in attrs.values()]


def _numbers(attrs: Mapping[str, Any]) -> Block | None:
    """Attributes as messages, if all are numbers of 64 bits, as in most episodes; else None."""
    kinds: list[type[Any]] = [*map(type, attrs.values())]
    layout = _number_layout(tuple(attrs), tuple(kinds))
    if layout is None:
        return None
    try:
        return layout[0].pack(*chain.from_iterable(zip(layout[1], attrs.values(), strict=True))), len(attrs)
    except struct.error:  # an integer of more than 63 bits
        return None


@lru_cache(KEPT)
def _number_layout(names: tuple[str, ...], kinds: tuple[type[Any], ...]) -> tuple[struct.Struct, list[bytes]] | None:
    """How to pack such attributes, and what stands before each of the numbers."""
    shape, heads = "<", list[bytes]()
    for name, kind in zip(names, kinds, strict=True):
        code = _NUMBERS.get(kind)
        if code is None or not name or "\0" in name:
            return None
        raw, _ = message_block([Message(ATTRIBUTE, 0, attribute(name, datatype(np.dtype(kind)), (), bytes(8)))])
        size = len(attribute(name, datatype(np.dtype(kind)), (), b"")) + 8  # what message_block puts before it
        heads.append(raw[:size])
        shape += f"{size}s{code}{len(raw) - size - 8}x"
    return struct.Struct(shape), heads


_NUMBERS = {float: "d", np.float64: "d", int: "q", np.int64: "q", np.uint64: "Q"}


def encode_text(text: str) -> bytes:
    if "\0" in text:
        raise DataError("texts with a zero character cannot be stored")
    return text.encode("utf-8", "surrogateescape")


def _nest(datasets: Mapping[str, Value]) -> dict[str, Any]:
    """Paths -> tree of dicts; None stands for an empty group."""
    tree: dict[str, Any] = {}
    for path, value in datasets.items():
        here = tree
        *parents, name = path.split("/")
        for part in parents:
            below: Any = here.setdefault(part, {})
            if not is_dict(below):
                raise DataError(f"{path} is below a dataset")
            here = below
        if not all(part and part != "." and "\0" not in part for part in (*parents, name)):
            raise DataError(f"expected a path such as 'observations/camera', got {path!r}")
        if value is None:
            if not isinstance(here.setdefault(name, {}), dict):
                raise DataError(f"{path} is both a dataset and a group")
        elif name in here:
            raise DataError(f"{path} is both a dataset and a group")
        else:
            here[name] = value
    return tree
