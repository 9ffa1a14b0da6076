"""The four arrays of a dataset, wherever and however they are stored; rows of earlier versions become current ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.array import Missing
from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ARRAY, GROUP
from penstock.containers.zarr.rows import ZarrRows, as_bytes, as_void, from_void
from penstock.containers.zarr.stores import ZarrStore, open_store
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.boundary import json_object
from penstock.core.cache import Cache
from penstock.errors import FormatError
from penstock.files.remote import open_file, read_bytes
from penstock.formats.base.account import LeftOut, unused_files
from penstock_driving.formats.l5kit import npy
from penstock_driving.formats.l5kit.dtypes import DTYPES, FORMAT_VERSION

OLDER = {
    "traffic_light_faces_index_interval": "tl_faces_index_interval",
    "face_id": "gid",
    "traffic_light_id": "traffic_light_gid",
}
"""Names of before version 2 was released."""
ABSENT = frozenset(("traffic_light_faces_index_interval",))  # in version 1: no faces, so empty intervals


class UpgradedRows(ZarrRows):
    """The rows of `stored` with the fields of `dtype`, by rule:

    * a field of the same or an older name is taken over; numbers become wider (float32 to float64, int32 to uint64,
      where a number below zero is a `FormatError`);
    * frames without an interval of faces have none: `[0, 0)`;
    * any other field that is missing, or that is not known, is a `FormatError`.
    """

    def __init__(self, stored: ZarrRows, dtype: np.dtype[Any], name: str, path: object) -> None:
        self.stored = stored
        self.dtype = dtype
        self.shape = stored.shape
        self._place: Any = {"path": path, "where": name}
        self._from = {
            field: source_field for field in dtype.names or () if (source_field := self._source(field)) is not None
        }
        unknown = set(stored.dtype.names or ()) - set(self._from.values())
        if unknown:
            raise FormatError(f"expected fields {list(dtype.names or ())}, got also {sorted(unknown)}", **self._place)

    def _source(self, field: str) -> str | None:
        """The stored field that gives a field."""
        names = self.stored.dtype.names or ()
        source_field = field if field in names else OLDER.get(field, field)
        if source_field not in names:
            if field in ABSENT:
                return None
            raise FormatError(f"expected a field {field!r}, got {list(names)}", **self._place)
        have, want = ((d.base, d.shape) for d in (self.stored.dtype[source_field], self.dtype[field]))
        wider = np.can_cast(have[0], want[0], "safe") or (have[0].kind == "i" and want[0].kind == "u")
        if have[1] != want[1] or not wider or have[0].itemsize > want[0].itemsize:
            expected = f"{want[0]}{list(want[1])} or narrower"
            raise FormatError(f"expected {field} as {expected}, got {have[0]}{list(have[1])}", **self._place)
        return source_field

    def _upgraded(self, rows: AnyArray, out: AnyArray) -> AnyArray:
        for field in self.dtype.names or ():
            if (source_field := self._from.get(field)) is None:
                out[field] = 0
                continue
            values = rows[source_field]
            if values.dtype.kind == "i" and out[field].dtype.kind == "u" and values.size and values.min() < 0:
                raise FormatError(f"expected {field} from 0 on, got {values.min()}", **self._place)
            out[field] = values
        return out

    @override
    def present(self, start: int, stop: int) -> None:
        self.stored.present(start, stop)

    def read_into(self, start: int, stop: int, out: AnyArray) -> None:
        """The stored rows, and a copy of each field."""
        self._upgraded(self.stored.read(start, stop), out)

    @override
    def row(self, i: int) -> Any:
        return self.read(i, i + 1)[0]

    def take(self, numbers: IntArray) -> AnyArray:
        """The stored rows, and a copy of each field."""
        return self._upgraded(self.stored.take(numbers), np.empty(len(numbers), self.dtype))


def current(stored: ZarrRows, dtype: np.dtype[Any], name: str, path: object) -> ZarrRows:
    """The rows as they are if they are of the current version, upgraded otherwise."""
    if stored.ndim != 1:
        raise FormatError(f"expected one axis, got shape {list(stored.shape)}", path=path, where=name)
    return stored if stored.dtype == dtype else UpgradedRows(stored, dtype, name, path)


MASKS = "agents_mask/"  # arrays of L5Kit that say which agents are samples
FACES = "traffic_light_faces"
PART = "part.json"  # of a part of a dataset: the first row of the part in each array


@dataclass(frozen=True, eq=False)
class Tables:
    """Scenes, frames, agents and faces of traffic lights, of the current version, and what is said about all."""

    path: object
    scenes: ZarrRows
    frames: ZarrRows
    agents: ZarrRows
    tl_faces: ZarrRows
    attributes: Mapping[str, Any]
    group: ZarrGroup | None

    @property
    def format_version(self) -> int:
        """The version that is stored: 1 or 2."""
        return self.attributes.get("format_version", FORMAT_VERSION)

    def rows(self, name: str) -> ZarrRows:
        """An array by its name on disk."""
        return {"scenes": self.scenes, "frames": self.frames, "agents": self.agents, FACES: self.tl_faces}[name]

    def states(self) -> Iterator[object]:
        """What changes when something that is read does."""
        yield sorted((name, repr(value)) for name, value in self.attributes.items())
        for name in DTYPES:
            yield name, len(self.rows(name)), str(self.rows(name).dtype)
            if self.group is not None:
                yield from self.group.store.states(name)
        if self.group is None and isinstance(self.path, Path):
            yield from npy.states(self.path, DTYPES)

    def left_out(self) -> list[LeftOut]:
        """Arrays and files that are not of the format."""
        expected = f"expected the arrays {', '.join(DTYPES)}"
        if self.group is None:
            known = {*(f"{name}.npy" for name in DTYPES), npy.ATTRIBUTES, PART}
            files = {entry.name for entry in Path(str(self.path)).iterdir() if entry.is_file()}
            return unused_files(files - known, expected.removeprefix("expected "))
        arrays = [name for name in self.group.arrays("") if name not in DTYPES and not name.startswith(MASKS)]
        others = [LeftOut("array", name, "unused-array", f"{expected}, got {name}") for name in arrays]
        return [*others, *unused_files(set(self.group.other_files([""])) - {PART}, expected.removeprefix("expected "))]

    def close(self) -> None:
        """Let go of files and of what is kept."""
        if self.group is not None:
            self.group.close()


def stored_rows(rows: ZarrRows) -> ZarrRows:
    """The rows as they are stored, before any upgrade."""
    return getattr(rows, "stored", rows)


def open_tables(location: str | os.PathLike[str], cache: Cache, missing: Missing = "refuse") -> Tables:
    path = Path(location)
    return _npy_tables(path) if (path / "scenes.npy").exists() else _zarr_tables(open_store(path), cache, missing)


def _zarr_tables(store: ZarrStore, cache: Cache, missing: Missing) -> Tables:
    group = ZarrGroup(store, cache)
    version_of(group.attributes, store.name)
    tables: dict[str, ZarrRows] = {}
    for name, dtype in DTYPES.items():
        if name == FACES and FACES not in group:
            tables[name] = MemoryRows(np.zeros(0, dtype))  # of version 1
        else:
            tables[name] = current(group.array(name, missing), dtype, name, store.name)
    return _named(store.name, tables, group.attributes, group)


def _npy_tables(path: Path) -> Tables:
    attributes_file = path / npy.ATTRIBUTES
    attributes = json_object(read_bytes(attributes_file), path, npy.ATTRIBUTES) if attributes_file.is_file() else {}
    version_of(attributes, path)
    tables = {n: current(MemoryRows(npy.mapped(path / f"{n}.npy")), dtype, n, path) for n, dtype in DTYPES.items()}
    return _named(path, tables, attributes, None)


def _named(
    path: object, tables: Mapping[str, ZarrRows], attributes: Mapping[str, Any], group: ZarrGroup | None
) -> Tables:
    return Tables(path, tables["scenes"], tables["frames"], tables["agents"], tables[FACES], attributes, group)


def version_of(attributes: Mapping[str, Any], path: object) -> int:
    version = attributes.get("format_version", FORMAT_VERSION)
    if version not in (1, 2) or type(version) is not int:
        raise FormatError(f"expected format_version 1 or 2, got {version!r}", path=path, where=".zattrs")
    return version


def has_tables(path: Path) -> bool:
    """Whether a path is a dataset: a group with `scenes` or `frames` in it, or the files of the other layout."""
    try:
        if path.is_dir():
            if (path / "scenes.npy").is_file():
                return (path / "frames.npy").is_file()
            marked = (path / GROUP).is_file()
            return marked and any((path / name / ARRAY).is_file() for name in ("scenes", "frames"))
        if not path.is_file():
            return False
        with open_file(path) as file:
            if file.read(4) != b"PK\3\4":
                return False
        store = open_store(path)
        return store.has(GROUP) and any(store.has(f"{name}/{ARRAY}") for name in ("scenes", "frames"))
    except (OSError, FormatError):
        return False


class MemoryRows(ZarrRows):
    """The rows of one C-contiguous array: a memory map, or memory."""

    def __init__(self, array: AnyArray) -> None:
        self.array = np.ascontiguousarray(array)
        self.dtype, self.shape = array.dtype, array.shape
        self._raw = as_bytes(self.array)
        self._void = as_void(self.array)

    @override
    def read_into(self, start: int, stop: int, out: AnyArray) -> None:
        as_bytes(out)[:] = self._raw[start:stop]

    @override
    def row(self, i: int) -> Any:
        return self.array[i].copy()

    @override
    def take(self, numbers: IntArray) -> AnyArray:
        return from_void(self._void[numbers], self.dtype, self.shape[1:])
