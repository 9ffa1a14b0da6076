"""Kinds of files that are decoded whole: CSV, JSON, pickles, files of PyTorch and MATLAB, tables of Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import array_of, arrow, leaves_of, one_array, values_of
from penstock.containers.gunzip import MAGIC, gunzip
from penstock.containers.hdf5 import Dataset, File, has_signature
from penstock.containers.matlab import read_matlab
from penstock.containers.npz import MAX_BYTES
from penstock.containers.pickle import load_saved, loads
from penstock.core.boundary import parsing
from penstock.core.narrowing import is_array, is_dict, is_list
from penstock.core.text import counted
from penstock.errors import FormatError, require
from penstock.files.remote import open_file, read_bytes, read_in_order
from penstock.formats.base.account import LeftOut
from penstock.formats.mapping.tree import FileContent, Held, HeldTree, flattened

MARK = b"\xef\xbb\xbf"  # of UTF-8


@dataclass(frozen=True)
class CsvOptions:
    """How text is divided into cells. docs/howto/own_data.md describes the entries."""

    separator: str | None = None
    header: bool = True
    skip_rows: int = 0
    text: tuple[str, ...] = ()


class CsvTree(HeldTree):
    """A table as text, read by PyArrow. Empty cells among numbers are NaN, and are said."""

    guesses = True

    def __init__(self, path: Path, options: CsvOptions) -> None:
        super().__init__(path)
        self._options = options

    def load(self) -> FileContent:
        csv, given = require("pyarrow.csv", "arrow"), self._options
        tabs = self.path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
        reading = csv.ReadOptions(skip_rows=given.skip_rows, autogenerate_column_names=not given.header)
        parse = csv.ParseOptions(delimiter=given.separator or ("\t" if tabs else ","), newlines_in_values=True)
        text = dict.fromkeys(given.text, arrow().string())
        convert = csv.ConvertOptions(column_types=text, null_values=["", "NA", "NaN", "nan", "null", "None"])
        with parsing(self.path), read_in_order(self.path) as file:
            table = csv.read_csv(
                _unpacked(file, self.path), read_options=reading, parse_options=parse, convert_options=convert
            )
        if len(set(table.column_names)) < len(table.column_names):
            raise FormatError(f"expected names of columns that differ, got {table.column_names}", path=self.path)
        arrays: dict[str, Held] = {}
        left_out: list[LeftOut] = []
        for name in table.column_names:
            buffer = _cells(table.column(name))
            if buffer is None:
                left_out.append(LeftOut("column", name, "unused-array", "expected values, got empty cells alone"))
                continue
            arrays[name or "_"] = buffer
            missing = table.column(name).null_count
            if missing and buffer.field.kind == "array":
                message = f"{counted(missing, 'empty cell')} among numbers, read as NaN"
                left_out.append(LeftOut("column", name, "caution", message))
        return FileContent(arrays, {}, left_out)


def _unpacked(file: Any, path: Path) -> Any:
    """The bytes of a file, which may be packed by gzip."""
    return arrow().CompressedInputStream(file, "gzip") if path.name.lower().endswith(".gz") else file


def _cells(column: Any) -> Held | None:
    """A column of text or numbers; dates and times stay text. None where all cells are empty."""
    types = arrow().types
    kind = column.type
    if types.is_null(kind):
        return None
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        number = one_array(column, len(column))
        if number.null_count:
            number = number.cast(arrow().float64())
        return Held.numbers(np.asarray(number.to_numpy(zero_copy_only=False)))
    return Held.text(["" if cell is None else cell for cell in column.cast(arrow().string()).to_pylist()])


class JsonTree(HeldTree):
    """A JSON document, or a value on each line: dicts of lists, or lists of dicts with a row each."""

    def load(self) -> FileContent:
        with parsing(self.path):
            name = self.path.name.lower()
            if name.endswith((".jsonl", ".ndjson")):
                return flattened(list(_lines(self.path)), self.path.name)
            return flattened(json.loads(read_bytes(self.path).removeprefix(MARK)), self.path.name)


def _lines(path: Path) -> Iterator[Any]:
    """The values of the lines that are not empty. Only a newline ends a line: JSON may hold other ends of lines."""
    with read_in_order(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                with parsing(path, f"line {number}"):
                    yield json.loads(line.removeprefix(MARK) if number == 1 else line)


class PickleTree(HeldTree):
    """A pickle of plain values and arrays. Nothing that it names is run."""

    def load(self) -> FileContent:
        raw = read_bytes(self.path)
        if raw.startswith(MAGIC):
            with parsing(self.path):
                raw = gunzip(raw, MAX_BYTES)
        return flattened(loads(raw, path=self.path), self.path.name)


class TextTree(HeldTree):
    """The lines of a text that are not empty, as the array `lines`."""

    def load(self) -> FileContent:
        with parsing(self.path):
            text = read_bytes(self.path).removeprefix(MARK).decode()
        return flattened({"lines": [line.strip() for line in text.split("\n") if line.strip()]}, self.path.name)


class SavedTree(HeldTree):
    """What `torch.save` saved. Nothing is run, and PyTorch is not needed."""

    def load(self) -> FileContent:
        return flattened(load_saved(read_bytes(self.path), path=self.path), self.path.name)


class TableTree(HeldTree):
    """A table of Parquet or Arrow, with a row for each step."""

    def load(self) -> FileContent:
        with parsing(self.path), open_file(self.path) as file:
            if self.path.suffix.lower() == ".parquet":
                table = require("pyarrow.parquet", "arrow").read_table(file)
            else:
                table = self._arrow(file.read())
            leaves = leaves_of(table.schema, {}, None, self.path)
            arrays: dict[str, Held] = {}
            for name, leaf in leaves.items():
                with parsing(self.path, name):
                    column = array_of(one_array(table.column(leaf.names[0]), table.num_rows), leaf)
                    arrays[name] = Held(leaf.field, values_of(column, leaf.field))
        return FileContent(arrays, {}, [])

    def _arrow(self, raw: bytes) -> Any:
        """The table of an Arrow file, or of a stream (also in a `.feather` file of version 2)."""
        ipc = arrow().ipc
        opened = ipc.open_file(raw) if raw.startswith(b"ARROW1") else ipc.open_stream(raw)
        return opened.read_all()


class MatlabTree(HeldTree):
    """A file of MATLAB, from version 5 on; 7.3 is HDF5."""

    def load(self) -> FileContent:
        """Read all variables, with the axes as MATLAB shows them."""
        if has_signature(self.path):
            with File(self.path) as file:
                return _matlab_73(file)
        with parsing(self.path):
            variables = {name: _matlab_value(value) for name, value in read_matlab(self.path).items()}
        return flattened(variables, self.path.name)


def _matlab_value(value: Any) -> Any:
    """The value with vectors as rows, at any depth."""
    if is_dict(value):
        return {name: _matlab_value(inner) for name, inner in value.items()}
    if is_list(value):
        return [_matlab_value(inner) for inner in value]
    return _matlab_rows(value) if is_array(value) else value


def _matlab_rows(value: Any) -> Any:
    """`[1, 1]` is a number, `[1, T]` a row of T numbers, as MATLAB writes vectors; else the first axis has the rows."""
    if value.shape == (1, 1):
        return value.reshape(())
    return value.reshape(-1) if value.ndim == 2 and 1 in value.shape else value


def _matlab_73(file: File) -> FileContent:
    arrays: dict[str, Held] = {}
    values: dict[str, Any] = {}
    left_out: list[LeftOut] = []
    for dataset in file.root.walk(lambda name, error: left_out.append(LeftOut.of_error("array", name, error))):
        name = dataset.name.strip("/")
        if name.startswith("#"):
            continue
        value = _matlab_variable(dataset)
        if value is None:
            kind = dataset.attrs.get("MATLAB_class", "unknown")
            message = f"expected numbers or text, got the class {kind}; save it as `-v7`, or as numbers"
            left_out.append(LeftOut("array", name, "unsupported-dtype", message))
            continue
        one = flattened({name.replace("/", "_"): value}, file.path)
        arrays |= dict.fromkeys([name], next(iter(one.arrays.values()))) if one.arrays else {}
        values |= dict.fromkeys([name], next(iter(one.values.values()))) if one.values else {}
    return FileContent(arrays, values, left_out)


def _matlab_variable(dataset: Dataset) -> Any:
    """The value of a variable, with the axes in MATLAB's order; None for cells and others."""
    kind = dataset.attrs.get("MATLAB_class")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if dataset.kind != "array" or kind in ("cell", "struct", "function_handle", "opaque", "None"):
        return None
    if dataset.attrs.get("MATLAB_empty"):
        return None
    value = dataset.read().T
    if kind == "char":
        return "".join(map(chr, value.reshape(-1).tolist()))
    if kind == "logical":
        value = value != 0
    return _matlab_rows(value) if value.ndim else value
