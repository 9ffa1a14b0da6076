"""Kinds of files whose arrays are read where they are: `.npy`, `.npz`, safetensors, HDF5, Zarr; gzipped `.npy`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.gunzip import gunzip, told_size
from penstock.containers.hdf5 import Dataset, File
from penstock.containers.npy import LONGEST, MAGIC, array_of, header_of, map_array
from penstock.containers.npz import MAX_BYTES, NpzArchive
from penstock.containers.zarr.group import ZarrGroup
from penstock.core.arrays import AnyArray
from penstock.core.boundary import parsing
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.files.mapping import check_mapped, map_file
from penstock.files.remote import file_state, read_bytes
from penstock.files.user_cache import SHARED_BYTES, shared_arrays
from penstock.formats.base.account import LeftOut
from penstock.formats.base.infos import plain
from penstock.formats.mapping.tree import (
    NUMBERS,
    FileContent,
    FileTree,
    Held,
    HeldTree,
    TreeContent,
    TreeLeaf,
    flattened,
)

BLOCK_BYTES = 1 << 22  # of chunks that are decoded together
TEXT = Field(np.dtype(np.uint8), kind="text")
SAFE_DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"},
}
ONLY = "values"  # name of the array of a file that has one
SAFE_HEADER = 100 << 20  # bytes, which the format allows


class NpyTree(HeldTree):
    """One array, which is called `values`. Numbers and text are mapped; objects are read as data, by their names."""

    def load(self) -> FileContent:
        with parsing(self.path):
            array = self._array()
            return flattened(array if array.ndim else array.item(), self.path.name)

    def _array(self) -> AnyArray:
        raw = map_file(self.path)
        if header_of(raw[: LONGEST + 12].tobytes(), path=self.path).dtype.hasobject:
            return array_of(raw.tobytes(), path=self.path, objects=True)
        return map_array(self.path)

    @property
    def nbytes(self) -> int:
        """Mapped rows are not counted."""
        return 1 << 10


class PackedNpyTree(NpyTree):
    """The array of a `.npy` file packed by gzip. A large one is unpacked once into the user's cache, and mapped."""

    def find(self) -> TreeContent:
        content = super().find()
        leaves = {
            name: replace(leaf, block=max(BLOCK_BYTES // max(leaf.field.row_bytes, 1), 1))
            if leaf.rows * leaf.field.row_bytes >= SHARED_BYTES
            else leaf
            for name, leaf in content.leaves.items()
        }
        return content._replace(leaves=leaves)

    def _array(self) -> AnyArray:
        packed = read_bytes(self.path)
        if told_size(packed) < SHARED_BYTES:
            return self._unpacked(packed)
        key = f"unpacked {self.path} {file_state(self.path)}"
        return shared_arrays(key, lambda: {ONLY: self._unpacked(packed)})[ONLY]

    def _unpacked(self, packed: bytes) -> AnyArray:
        raw = gunzip(packed, MAX_BYTES)
        if not raw.startswith(MAGIC):
            raise FormatError(f"expected an .npy file packed by gzip, got {raw[:8]!r}", path=self.path)
        return array_of(raw, path=self.path, objects=True)


class NpzTree(FileTree):
    """An archive of arrays: stored ones are mapped, deflated ones are inflated when they are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._archive = NpzArchive(path)
        self._objects: dict[str, Held] = {}  # arrays of objects, which are decoded while the leaves are found

    def find(self) -> TreeContent:
        leaves: dict[str, TreeLeaf] = {}
        values: dict[str, Any] = {}
        left_out: list[LeftOut] = []
        for name in self._archive:
            try:
                header = self._archive.checked_header(name)
                if header.dtype.kind in NUMBERS and header.shape:
                    native = header.dtype.newbyteorder("=")
                    leaves[name] = TreeLeaf(header.shape[0], Field(native, header.shape[1:]))
                    continue
                inside = flattened({name: self._archive.array(name)}, self.path.name)
            except FormatError as error:
                left_out.append(LeftOut.of_error("member", name, error))
                continue
            self._objects |= inside.arrays
            values |= inside.values
            left_out += inside.left_out
        leaves |= {name: TreeLeaf(len(buffer.rows), buffer.field) for name, buffer in self._objects.items()}
        return TreeContent(leaves, values, left_out)

    def read(self, name: str, start: int, stop: int) -> Array:
        _ = self.leaves  # finds the objects: an index of an earlier opening has no values
        if name in self._objects:
            return self._objects[name].rows[start:stop]
        return self._archive.array(name)[start:stop]


class SafetensorsTree(HeldTree):
    """Tensors of `safetensors`, mapped."""

    def load(self) -> FileContent:
        """Parse the header, which must describe the bytes of the file exactly."""
        raw = map_file(self.path)
        size = int.from_bytes(raw[:8].tobytes(), "little")
        if len(raw) < 8 or size > min(SAFE_HEADER, len(raw) - 8):
            raise FormatError(f"expected a header within {len(raw)} bytes, got one of {size}", path=self.path)
        with parsing(self.path):
            header: dict[str, Any] = json.loads(raw[8 : 8 + size].tobytes())
        check_mapped(raw)
        arrays: dict[str, Held] = {}
        values: dict[str, Any] = dict(header.pop("__metadata__", {}) or {})
        left_out: list[LeftOut] = []
        for name, described in header.items():
            with parsing(self.path, name):
                kind, shape = described["dtype"], tuple(int(n) for n in described["shape"])
                begin, end = (8 + size + int(n) for n in described["data_offsets"])
            if kind not in SAFE_DTYPES:
                left_out.append(LeftOut("array", name, "unsupported-dtype", f"expected numbers of NumPy, got {kind}"))
                continue
            dtype = np.dtype(SAFE_DTYPES[kind])
            if not 8 + size <= begin <= end <= len(raw) or end - begin != math.prod(shape) * dtype.itemsize:
                message = f"expected {math.prod(shape) * dtype.itemsize} bytes in the file, got {begin}:{end}"
                raise FormatError(message, path=self.path, where=name)
            array = (
                np.frombuffer(raw[begin:end].tobytes(), dtype) if begin % dtype.itemsize else raw[begin:end].view(dtype)
            )
            if shape:
                arrays[name] = Held.numbers(array.reshape(shape))
            else:
                values[name] = plain(array[0])
        return FileContent(arrays, values, left_out)


class Hdf5Tree(FileTree):
    """The datasets of an HDF5 file, by path. Contiguous ones are mapped, chunks are decoded some at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = File(path)
        self._datasets: dict[str, Dataset] = {}

    def find(self) -> TreeContent:
        leaves: dict[str, TreeLeaf] = {}
        values: dict[str, Any] = {}
        left_out: list[LeftOut] = []

        def leave_out(name: str, error: FormatError) -> None:
            left_out.append(LeftOut.of_error("array", name.strip("/"), error))

        for dataset in self._file.root.walk(leave_out):
            name = dataset.name.strip("/")
            if not dataset.shape:
                values[name] = _single(dataset)
            elif (field := _row_field(dataset)) is None:
                got = f"{dataset.kind} {dataset.dtype}"
                left_out.append(LeftOut("array", name, "unsupported-dtype", f"expected numbers or text, got {got}"))
            else:
                self._datasets[name] = dataset
                leaves[name] = TreeLeaf(dataset.shape[0], field, _rows_at_once(dataset, field))
        return TreeContent(leaves, values, left_out)

    def read(self, name: str, start: int, stop: int) -> Array:
        _ = self.leaves  # finds the datasets, where an index of an earlier opening was read
        dataset = self._datasets[name]
        if dataset.kind == "vlen":
            values, offsets = dataset.read_vlen(start, stop)
            return Ragged(values, offsets)
        if dataset.kind == "array":
            return np.ascontiguousarray(dataset.read(start, stop), dataset.dtype.newbyteorder("="))
        return Ragged.from_bytes(_texts(dataset, start, stop))

    def values_of(self, group: str) -> Mapping[str, Any]:
        """Return scalar datasets in a group, and its attributes."""
        parent: Any = self._file[group] if group else self._file.root
        attributes = {str(name): _plain_attribute(value) for name, value in parent.attrs.items()}
        return {**attributes, **super().values_of(group)}


def _row_field(dataset: Dataset) -> Field | None:
    """The field of the rows; None for datasets that are neither numbers nor text."""
    if dataset.kind in ("string", "vlen_string"):
        return TEXT if len(dataset.shape) == 1 else None
    if dataset.dtype.kind not in NUMBERS or dataset.dtype.names:
        return None
    native = dataset.dtype.newbyteorder("=")
    if dataset.kind == "vlen":
        return Field(native, kind="ragged") if len(dataset.shape) == 1 else None
    return Field(native, (*dataset.shape[1:], *dataset.datatype.inner))


def _rows_at_once(dataset: Dataset, field: Field) -> int:
    """Rows that are decoded together: of a mapped dataset all, else whole chunks of some megabytes."""
    if dataset.chunk_shape is None:
        return 0
    height = dataset.chunk_shape[0]
    return height * max(BLOCK_BYTES // max(field.row_bytes * height, 1), 1)


def _texts(dataset: Dataset, start: int, stop: int | None) -> list[bytes]:
    """Text of a fixed or a varying length, without the zeros that fill it up."""
    if dataset.kind == "vlen_string":
        return dataset.read_list(start, stop)
    return [bytes(each) for each in np.asarray(dataset.read(start, stop)).reshape(-1).tolist()]


def _single(dataset: Dataset) -> Any:
    if dataset.kind in ("string", "vlen_string"):
        return _texts(dataset, 0, None)[0].decode("utf-8", "replace")
    return plain(dataset.read()[()]) if dataset.kind == "array" else None


def _plain_attribute(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else plain(value)


class ZarrTree(FileTree):
    """The arrays of a Zarr group, by path. Chunks are decoded when they are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._group = ZarrGroup(path, Cache(0))

    def find(self) -> TreeContent:
        leaves: dict[str, TreeLeaf] = {}
        left_out: list[LeftOut] = []
        for name in self._group.arrays(""):
            array = self._group.array(name)
            if array.shape and array.dtype.kind in NUMBERS:
                field = Field(array.dtype.newbyteorder("="), array.shape[1:])
                leaves[name] = TreeLeaf(array.shape[0], field, max(BLOCK_BYTES // max(field.row_bytes, 1), 1))
            else:
                message = "expected rows of numbers, got others"
                left_out.append(LeftOut("array", name, "unsupported-dtype", message))
        return TreeContent(leaves, {}, left_out)

    def read(self, name: str, start: int, stop: int) -> Array:
        out: AnyArray = np.empty((stop - start, *self.leaves[name].field.shape), self.leaves[name].field.dtype)
        self._group.array(name).read_into(start, stop, out)
        return out

    def values_of(self, group: str) -> Mapping[str, Any]:
        return {name: plain(value) for name, value in self._group.attributes_of(group).items()}
