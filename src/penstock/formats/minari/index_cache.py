"""Indexes kept from one opening to the next: a file of plain arrays, checked when it is read, rebuilt when in doubt.

A cache file is `MAGIC`, the length of a JSON header (8 bytes, little-endian), the header, the arrays one after the
other as the header lists them, and the SHA-256 of all that. The header names the state of the dataset it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.containers.hdf5.messages import Filter
from penstock.formats.minari.hdf5_index import Index, Part

Where = Literal["user", "beside", "off"]
Arrays = Mapping[str, npt.NDArray[Any]]

MAGIC = b"penstock index 1\n"
WORTH = 512  # datasets from which keeping an index is worth a file
LIMIT = 1 << 31  # bytes of a cache file that are read at all
BESIDE = ".penstock-index"


def place(dataset: Path, where: Where) -> Path | None:
    """The cache file of the dataset at an absolute path: below `PENSTOCK_CACHE` (default `~/.cache/penstock`),
    beside the data, or None for `"off"`."""
    if where == "off":
        return None
    if where == "beside":
        return (dataset if dataset.is_dir() else dataset.parent) / BESIDE
    told = os.environ.get("PENSTOCK_CACHE")
    folder = Path(told) if told else Path.home() / ".cache" / "penstock"
    return folder / "minari" / hashlib.sha256(os.fsencode(dataset)).hexdigest()[:32]


def save(path: Path, key: str, header: Mapping[str, Any], arrays: Arrays) -> bool:
    """Keep arrays under a key, atomically; False where the place cannot be written, which costs only time later."""
    listed = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    raw = json.dumps({"key": key, "header": header, "arrays": listed}).encode()
    parts = [MAGIC, len(raw).to_bytes(8, "little"), raw, *(np.ascontiguousarray(a).tobytes() for a in arrays.values())]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            file.writelines((*parts, digest.digest()))
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True


def load(path: Path, key: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
    """Header and arrays kept under a key; None if there are none, they are stale, or anything is wrong with them."""
    try:
        if path.stat().st_size > LIMIT:
            return None
        raw = path.read_bytes()
    except OSError:
        return None
    body, digest = raw[:-32], raw[-32:]
    if not raw.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    at = len(MAGIC) + 8
    end = at + int.from_bytes(body[len(MAGIC) : at], "little")
    found = json.loads(body[at:end])
    return (found["header"], _arrays(body, end, found["arrays"])) if found["key"] == key else None


def _arrays(body: bytes, at: int, listed: list[tuple[str, str, list[int]]]) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, dtype, shape in listed:
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, dtype, count, at).reshape(shape)
        at += arrays[name].nbytes
    return arrays


_PART_ARRAYS = tuple(f.name for f in fields(Part) if "Int" in str(f.type))


def pack(index: Index) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """An index as a header and arrays; `unpack` is the inverse."""
    arrays = {name: getattr(index, name) for name in ("number", "group", "group_file", "inline")}
    heads: list[dict[str, Any]] = []
    for i, part in enumerate(index.parts):
        filters = [[f.number, f.name, list(f.values)] for f in part.filters]
        plain = {"column": part.column, "kind": part.kind, "dtype": part.dtype.str, "shape": list(part.shape)}
        heads.append({**plain, "scalar": part.scalar, "filters": filters})
        arrays.update({f"{i}/{name}": getattr(part, name) for name in _PART_ARRAYS})
    return {"files": list(index.files), "parts": heads}, arrays


def unpack(header: Mapping[str, Any], arrays: Arrays) -> Index:
    """The index that `pack` took apart. Places are checked against the files when row maps are built on them."""
    parts: list[Part] = []
    for i, head in enumerate(header["parts"]):
        filters = tuple(Filter(number, name, tuple(values)) for number, name, values in head["filters"])
        described = (
            head["column"],
            head["kind"],
            np.dtype(head["dtype"]),
            tuple(head["shape"]),
            head["scalar"],
            filters,
        )
        parts.append(Part(*described, *(arrays[f"{i}/{name}"] for name in _PART_ARRAYS)))
    number, group, group_file, inline = (arrays[name] for name in ("number", "group", "group_file", "inline"))
    return Index(tuple(header["files"]), number, group, group_file, inline, tuple(parts))
