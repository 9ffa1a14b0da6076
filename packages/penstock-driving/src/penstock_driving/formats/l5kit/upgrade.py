"""Rows of earlier versions as rows of the current one, made as they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.rows import ZarrRows
from penstock.core.arrays import AnyArray, IntArray
from penstock.errors import FormatError

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
