"""Files of `torch.save`: a ZIP file with a pickle and the bytes of storages, read as data."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from typing import Any

from penstock.containers.pickle.machine import LIMITS, Limits, Machine
from penstock.containers.pickle.opcodes import run
from penstock.containers.pickle.vet import vet
from penstock.errors import FormatError, UnsafeDataError

_MOST = 1 << 16  # members
_STORAGE = re.compile(r"data/(\d{1,12})")
_OTHERS = frozenset(
    ("data.pkl", "version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id")
)


def load_saved(data: bytes, *, where: str = "", path: object = None, limits: Limits = LIMITS) -> Any:
    """Return what `torch.save` saved, with tensors as read-only arrays. Nothing is run, and PyTorch is not needed."""
    place: dict[str, Any] = {"path": path, "where": where or None}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > _MOST or sum(member.file_size for member in members) > 2 * len(data):
                raise UnsafeDataError("expected a file of stored values, got more than there are bytes", **place)
            root = next((m.filename.removesuffix("data.pkl") for m in members if m.filename.endswith("/data.pkl")), "")
            storages: dict[str, bytes] = {}
            for member in members:
                name = member.filename.removeprefix(root)
                if (storage := _STORAGE.fullmatch(name)) is not None:
                    storages[storage[1]] = archive.read(member)
                elif name not in _OTHERS or not root:
                    raise UnsafeDataError(f"expected values and tensors, got a member {member.filename!r}", **place)
            if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
                raise FormatError("expected values in little-endian order, got others", **place)
            pickled = archive.read(f"{root}data.pkl")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, KeyError) as error:
        raise FormatError(f"expected a file of torch.save, of PyTorch 1.6 or later: {error}", **place) from error
    m = Machine(pickled, where, path, limits)
    m.storages = storages
    m.budget += 16 * sum(map(len, storages.values()))
    return vet(m, run(m))
