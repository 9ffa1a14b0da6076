"""Bytes of a chunk to frames: the record has the version, and all versions are converted to the newest.

Missing fields of a version are filled in by these rules; other fields are copied.

=================================  ======================================================================
version 3                          `input_format` 1; `root_q`, `best_q`, `root_d`, `best_d` 0
versions 3 and 4                   `plies_left` is the byte that counts the moves left, which becomes 0;
                                   `root_m`, `best_m` 0
versions 3 to 5                    `result_q` is the result byte, which becomes 0; `result_d` 1 for a draw;
                                   `played_*` and `orig_*` NaN, `visits` and `policy_kld` 0, `played_idx` and
                                   `best_idx` `NO_MOVE`
versions 3 to 6, `missing="zero"`  `q_st`, `d_st`, `opp_played_idx`, `next_played_idx` 0, or as stored
versions 3 to 6, `missing="nan"`   `q_st` and `d_st` NaN, the two indices `NO_MOVE`; a `q_st` other than 0 that
                                   version 6 has stored is kept
=================================  ======================================================================
"""

from __future__ import annotations

import threading
from typing import Literal, get_args

import numpy as np

from penstock.core.arrays import ByteArray, StructArray, UInt32Array
from penstock.core.lending import LentMemory
from penstock.errors import DataError
from penstock_chess.formats.lc0.errors import ChunkError, Reason
from penstock_chess.formats.lc0.records import FRAME, INPUT_FORMATS, NO_MOVE, RECORDS

LEAST, MOST = 1 << 17, 16 << 20  # bytes of what is kept: 16 to 2000 frames
WASTE = 4  # times the memory that is needed, at most


class _Spare(threading.local):
    block: LentMemory | None = None


_SPARE = _Spare()


def empty(n: int, width: int) -> ByteArray:
    """As `np.empty((n, width), np.uint8)`: fresh memory costs as much as filling it twice, as the kernel clears it page
    by page.

    Memory is used again only when no array uses what was given before, by this thread, so callers may keep arrays.
    """
    size, block = n * width, _SPARE.block
    spare_bytes = block.memory.nbytes if block else 0
    if not LEAST <= size <= MOST or spare_bytes > WASTE * size:
        return np.empty((n, width), np.uint8)
    if block is None or spare_bytes < size or not block.is_free:
        block = _SPARE.block = LentMemory(np.empty(size, np.uint8))
    return block.lend()[:size].reshape(n, width)


Missing = Literal["zero", "nan"]

WIDTH = {version: record.itemsize for version, record in RECORDS.items()}
_UNKNOWN = ("played_q", "played_d", "played_m", "orig_q", "orig_d", "orig_m")
_SHORT_TERM = ("q_st", "d_st")
_LINKS = ("opp_played_idx", "next_played_idx")


def check_missing(missing: str) -> None:
    """Raise `DataError` for a word that is none of `Missing`."""
    if missing not in get_args(Missing):
        raise DataError(f"expected missing_st to be one of {get_args(Missing)}, got {missing!r}")


def version_of(head: bytes) -> int:
    """The version that the first 4 bytes of a record tell, little-endian; 0 where there are fewer."""
    return int.from_bytes(head[:4], "little") if len(head) >= 4 else 0


def plausible(head: bytes) -> bool:
    """Whether a record may begin with these bytes, at least 8 of them: its version, and what follows it."""
    version = version_of(head)
    if version not in RECORDS or len(head) < 8:
        return False
    if version >= 5:
        return int.from_bytes(head[4:8], "little") in INPUT_FORMATS
    first = float(np.frombuffer(head, "<f4", 1, 4)[0])  # of the policy: -1, or a share of visits
    return first == -1 or 0 <= first <= 1


def frames_in(version: int, size: int) -> int:
    """How many frames `size` bytes of records of a version are."""
    if size == 0:
        raise ChunkError("expected records, got no bytes", Reason.EMPTY)
    if version not in RECORDS:
        raise ChunkError(f"expected records of the versions {sorted(RECORDS)}, got version {version}", Reason.VERSION)
    n, rest = divmod(size, WIDTH[version])
    if rest:
        message = f"expected whole records of {WIDTH[version]} bytes (version {version}), got {size} bytes"
        raise ChunkError(message, Reason.SIZE)
    return n


def upgraded(raw: bytes, missing: Missing = "zero") -> ByteArray:
    """`[n, 8396]` uint8 the records `raw` as frames, in new memory. All are of one version, 3 to 7.

    `missing` says what short-term values become that the record does not have. Cost: one copy.
    """
    rows, version = records(raw)
    return upgraded_records(rows, version, missing)


def records(raw: bytes) -> tuple[ByteArray, int]:
    """`[n, width]` uint8 the records that `raw` is, read-only and not copied, and their version. Raises as
    `upgraded`.
    """
    version = version_of(raw)
    try:
        n = frames_in(version, len(raw))
    except ChunkError as error:
        if error.reason == Reason.SIZE and _mixed(raw):
            raise several_versions() from None
        raise
    if np.any(versions(raw, WIDTH[version]) != version):
        raise several_versions()
    return np.frombuffer(raw, np.uint8).reshape(n, WIDTH[version]), version


def versions(raw: bytes, width: int) -> UInt32Array:
    """`[n]` the version that each record of `width` bytes begins with."""
    return np.ndarray(len(raw) // width, "<u4", raw, 0, (width,))


def upgraded_records(rows: ByteArray, version: int, missing: Missing) -> ByteArray:
    """`[n, 8396]` frames of records `[n, width]` of one version, in new memory. Cost: one copy."""
    out = empty(len(rows), FRAME.itemsize)
    new = out.view(FRAME)[:, 0]
    if version >= 6:
        out[:, : WIDTH[version]] = rows
        out[:, WIDTH[version] :] = 0
    else:
        out[:] = 0
        _bring(np.ascontiguousarray(rows).view(RECORDS[version])[:, 0], new, version)
    if version < 7:
        _short_term(new, missing)
        new["version"] = 7
    return out


def _short_term(new: StructArray, missing: Missing) -> None:
    """What versions before 7 do not have."""
    if missing == "nan":
        for name in _SHORT_TERM:
            new[name][new[name] == 0] = np.nan
        for name in _LINKS:
            new[name] = NO_MOVE


def _bring(old: StructArray, new: StructArray, version: int) -> None:
    """Versions 3 to 5, field by field."""
    for name in RECORDS[version].names or ():
        new[name] = old[name]
    if version < 5:
        new["input_format"] = 1
        new["plies_left"] = old["invariance_info"]
        new["invariance_info"] = 0
    result = old["dummy"].view(np.int8)
    new["result_q"], new["result_d"] = result, result == 0
    new["dummy"] = 0
    for name in _UNKNOWN:
        new[name] = np.nan
    new["played_idx"] = new["best_idx"] = NO_MOVE


def _mixed(raw: bytes) -> bool:
    """Whether whole records of several versions follow one another up to the end."""
    offset = 0
    while offset < len(raw):
        width = WIDTH.get(version_of(raw[offset : offset + 4]))
        if width is None:
            return False
        offset += width
    return offset == len(raw)


def several_versions() -> ChunkError:
    return ChunkError("expected records of one version, got several in one chunk", Reason.MIXED)
