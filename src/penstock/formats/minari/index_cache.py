"""Indexes of Minari datasets, kept in the user's cache folder from one opening to the next.

An index has the positions of values, so an index that comes with the data is never read: its author could make any
bytes of the files appear as any value. The key names the state of the dataset that an index belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from penstock.containers.hdf5.messages import Filter
from penstock.core.arrays import AnyArray
from penstock.files.arrays import Arrays
from penstock.files.user_cache import IndexFile
from penstock.formats.base.account import LeftOut
from penstock.formats.minari.hdf5_index import ColumnRuns, HDF5Index

Where = Literal["user", "refresh", "off"]
WHERE: tuple[Where, ...] = get_args(Where)

MAGIC = b"penstock index 4\n"
WORTH = 512  # datasets from which keeping an index is worth a file
BYTES = 8 << 30  # that all indexes together may have


def index_file(dataset: Path, where: Where) -> IndexFile | None:
    """The index of a dataset in the user's cache; None for `"off"`. `"refresh"` only writes it."""
    return None if where == "off" else IndexFile.of("minari", os.fspath(dataset), MAGIC, BYTES)


_PART_ARRAYS = tuple(f.name for f in fields(ColumnRuns) if "Int" in str(f.type))


def pack(index: HDF5Index) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """An index as a header and arrays; `unpack` is the inverse."""
    arrays = {name: getattr(index, name) for name in ("number", "group", "group_file", "inline")}
    heads: list[dict[str, Any]] = []
    for i, part in enumerate(index.parts):
        filters = [[f.number, f.name, list(f.values)] for f in part.filters]
        plain = {"column": part.column, "kind": part.kind, "dtype": part.dtype.str, "shape": list(part.shape)}
        heads.append({**plain, "scalar": part.scalar, "filters": filters, "item": part.item})
        arrays.update({f"{i}/{name}": getattr(part, name) for name in _PART_ARRAYS})
    left_out: dict[str, Any] = {"unreadable": [list(each) for each in index.unreadable]}
    left_out["left_out"] = [entry.to_json() for entry in index.left_out]
    return {"files": list(index.files), "parts": heads, **left_out}, arrays


def unpack(header: Mapping[str, Any], arrays: Arrays) -> HDF5Index:
    """The index that `pack` took apart. Places are checked against the files when row maps are built on them."""
    parts: list[ColumnRuns] = []
    for i, head in enumerate(header["parts"]):
        filters = tuple(Filter(number, name, tuple(values)) for number, name, values in head["filters"])
        described = (
            head["column"],
            head["kind"],
            np.dtype(head["dtype"]),
            tuple(head["shape"]),
            head["scalar"],
            filters,
            head["item"],
        )
        parts.append(ColumnRuns(*described, *(arrays[f"{i}/{name}"] for name in _PART_ARRAYS)))
    number, group, group_file, inline = (arrays[name] for name in ("number", "group", "group_file", "inline"))
    unreadable = tuple((column, message) for column, message in header["unreadable"])
    left_out = (unreadable, tuple(map(LeftOut.from_json, header["left_out"])))
    return HDF5Index(tuple(header["files"]), number, group, group_file, inline, tuple(parts), *left_out)
