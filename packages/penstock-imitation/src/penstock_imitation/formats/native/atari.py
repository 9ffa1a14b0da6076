"""Atari demonstrations: an `.npz` or `.npy` file of one object array, a dict of lists a trajectory."""

from __future__ import annotations

import zipfile
from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.containers import npy
from penstock.containers.npy import MAGIC, array_of
from penstock.containers.npz import DAMAGED, ZIP, names_of
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_dict
from penstock.errors import DataError, FormatError, UnsafeDataError
from penstock.files.remote import path_or_file
from penstock.formats.base.account import LeftOut
from penstock.formats.base.infos import SIMPLE, plain
from penstock.formats.base.source import Source
from penstock.formats.demos.imitation import HEAD
from penstock.formats.demos.source import Kind
from penstock.formats.demos.trajectories import Track, numbers, source_of
from penstock_imitation.formats.native.states import channels_first, flags, tracks_of
from penstock_imitation.formats.native.unpack import MAX_BYTES, head_of, unpacked

NAME = "arr_0"  # of the member that `np.savez(file, array)` writes
KEYS = ("states", "actions", "dones", "rewards")
_SUFFIX = ".npz"
_PIECE = 1 << 20  # bytes that are unpacked at a time


class AtariKind(Kind):
    """`.npz` of dicts with `states`, `actions` and `dones`; see `read_atari`."""

    name: ClassVar[str] = "atari"
    description: ClassVar[str] = "Atari rollouts in .npz or .npy"
    options: ClassVar[tuple[str, ...]] = ("frames", "max_bytes")

    def recognises(self, path: Path) -> bool:
        """By the header of an object array, and the names in the pickle behind it."""
        if not isfile(path):
            return False
        head = head_of(path, _SUFFIX)
        if head.startswith(ZIP) and names_of(path) == [NAME]:
            head = member_head(path, NAME, HEAD)
        return head.startswith(MAGIC) and b"'|O'" in head[:80] and b"states" in head

    def open(self, path: Path, **options: Any) -> Source:
        return read_atari(path, **options)


def read_atari(path: Path, *, frames: str = "stack", max_bytes: int = MAX_BYTES) -> Source:
    """The trajectories of one file: `n` states, actions and dones make `n - 1` steps (see `tracks_of`).

    `observations` `[T + 1, C, H, W]` uint8, the newest frame last. A stack holds every frame as often as it is deep:
    `frames="newest"` keeps `[T + 1, 1, H, W]`, the newest frame of each alone. `rewards` are read where there are some;
    further numbers and texts in the dict of a trajectory are metadata of its episodes.

    Memory: twice the unpacked file while it is opened (three times an `.npy`), then its states.
    """
    if frames not in ("stack", "newest"):
        raise DataError(f"expected frames to be 'stack' or 'newest', got {frames!r}")
    trajectories = _trajectories(path, max_bytes)
    tracks: list[Track] = []
    left_out: dict[str, LeftOut] = {}
    count = len(trajectories)
    for i in range(count):
        value, trajectories[i] = trajectories[i], None  # given back as it goes
        tracks += _tracks(value, i, path, slice(-1, None) if frames == "newest" else slice(None), left_out)
    metadata = {"kind": AtariKind.name, "color_space": "GRAY"}
    return source_of(tracks, metadata, path=path, left_out=tuple(left_out.values()))


def _trajectories(path: Path, max_bytes: int) -> list[Any]:
    if head_of(path, _SUFFIX, 8).startswith(MAGIC):
        value = array_of(unpacked(path, max_bytes), path=path, objects=True)
    else:
        value = object_member(path, NAME, max_bytes)
    if value.dtype != np.dtype(object) or value.ndim != 1:
        message = f"expected an array of trajectories, got {value.dtype}{list(value.shape)}"
        raise FormatError(message, path=path)
    return list(value)


def _tracks(value: Any, i: int, path: Path, channels: slice, left_out: dict[str, LeftOut]) -> list[Track]:
    """The episodes of a trajectory; `left_out` takes entries of its dict that are neither columns nor metadata."""
    where = f"trajectory {i}"
    if not is_dict(value) or not {"states", "actions", "dones"} <= value.keys():
        got = list(value)[:20] if is_dict(value) else type(value).__name__
        raise FormatError(f"expected a dict with states, actions and dones, got {got}", path=path, where=where)
    states = numbers(value["states"], "states", path=path, where=where)
    columns = {"actions": numbers(value["actions"], "actions", path=path, where=where)}
    if "rewards" in value:
        columns["rewards"] = numbers(value["rewards"], "rewards", path=path, where=where)
    more = {str(name): inner for name, inner in value.items() if name not in KEYS}
    metadata = {"trajectory": i} | {name: plain(inner) for name, inner in more.items() if isinstance(inner, SIMPLE)}
    for name in sorted(more.keys() - metadata.keys()):
        message = f"expected numbers or text besides {', '.join(KEYS)}, got {type(more[name]).__name__}"
        left_out.setdefault(name, LeftOut("column", name, "unused-array", message))
    states = channels_first(states[..., channels], path=path, where=where)
    return tracks_of(
        states, columns, flags(value["dones"], path=path, where=where), metadata=metadata, path=path, where=where
    )


def member_head(path: Path, name: str, size: int) -> bytes:
    """The first bytes of a member; b"" where that fails. Never raises."""
    try:
        with zipfile.ZipFile(path_or_file(path)) as archive, archive.open(f"{name}.npy") as member:
            return member.read(size)
    except DAMAGED:
        return b""


def object_member(path: Path, name: str, max_bytes: int) -> AnyArray:
    """The object array in a member of an `.npz` file, its objects read as plain values.

    Memory: twice the unpacked member for a moment.
    """
    pieces: list[bytes] = []
    size = 0
    try:
        with zipfile.ZipFile(path_or_file(path)) as archive, archive.open(f"{name}.npy") as member:
            begin = member.read(8)
            begin += member.read(4 if begin[6:7] in npy.WIDE else 2)
            begin += member.read(min(int.from_bytes(begin[8:], "little"), npy.LONGEST))
            header = npy.header_of(begin, path=path, where=name)
            while piece := member.read(_PIECE):  # bounded pieces, because the size in the archive may be false
                size += len(piece)
                if size > max_bytes:
                    message = f"expected at most {max_bytes} bytes unpacked, got more; `max_bytes` allows them"
                    raise UnsafeDataError(message, path=path, where=name)
                pieces.append(piece)
    except FormatError:
        raise
    except DAMAGED as error:
        raise FormatError(f"expected an .npz file, got {error}", path=path, where=name) from error
    payload = b"".join(pieces)
    del pieces
    return npy.objects_of(payload, header, path=path, where=name)
