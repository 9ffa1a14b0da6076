"""JSON files and writes at a position, without surprises: no links, no pipes, no short writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.boundary import json_object
from penstock.errors import UnsafeDataError
from penstock.files import write_atomic
from penstock.files.descriptors import opened

_LARGEST_JSON = 1 << 28


def write_at(fd: int, data: Any, position: int) -> None:
    """Write all of a contiguous buffer at a byte position. Raises `OSError` if the disk is full."""
    size = len(data)
    done = os.pwrite(fd, data, position)
    if done < size:
        left = memoryview(data)
        while done < size:
            done += os.pwrite(fd, left[done:], position + done)


def read_at(fd: int, start: int, stop: int) -> bytes:
    """Return the bytes from `start` to `stop`, fewer if the file is shorter."""
    parts: list[bytes] = []
    while start < stop and (part := os.pread(fd, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `FormatError` for anything else."""
    with opened(path) as fd:
        if (size := os.fstat(fd).st_size) > _LARGEST_JSON:
            raise UnsafeDataError(f"expected at most {_LARGEST_JSON} bytes of JSON, got {size}", path=path)
        text = read_at(fd, 0, size)
    return json_object(text, path)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file atomically: a reader, or the disk after a power loss, has the old one or the new one."""
    write_atomic(path, json.dumps(data, indent=1).encode(), durable="folder")
