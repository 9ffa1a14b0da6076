"""Expand frames or compact rows into the tensors of networks: planes, policies and targets.

Each word of a plane becomes 64 elements of 1, 2 or 4 bytes by vector selects (`lanes`), so expansion is bound by
writing the output; planes beyond 8 MiB go around the cache, for they would drive out all else from it. Values move as
bits: results are equal to the last bit, NaN payloads included. Of the last 8 planes, words and the values of their set
bits depend on the input format. Rows are checked before their fields are used (`rows.parts`); the wrappers check the
arrays behind all addresses. The caller owns all arrays. Reference: `tests/games/reference/frames.py`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, UInt32Array, UInt64Array, read_only
from penstock.kernels.intrinsics import Address, memcpy, move4
from penstock.kernels.jit import helper, kernel
from penstock_chess.kernels.lanes import (
    around8,
    around16,
    fence,
    load1,
    load2,
    spread1,
    spread2,
    spread4,
    store4,
    stream1,
    stream2,
    stream4,
)
from penstock_chess.kernels.layout import (
    DENSE,
    ILLEGAL,
    NAN,
    PLANES,
    POLICY,
    PROBS,
    STORED,
    TAIL,
    TARGETS,
    WIDTH,
    WORDS,
)
from penstock_chess.kernels.rows import format_of, parts, unpack_policy, unpack_words

_ILLEGAL, _NAN = np.uint32(ILLEGAL), np.uint32(NAN)
_0 = np.uint64(0)
_56 = np.uint64(56)
_ALL = np.uint64(2**64 - 1)

_AROUND_CACHE = 1 << 23
"""Bytes of planes from which on they are written around the cache."""


def expand_frames(
    frames: ByteArray,
    table: UInt32Array,
    forced: int,
    planes: ByteArray,
    lane: int,
    fill: UInt32Array,
    policy: UInt32Array,
    targets: UInt32Array,
) -> int:
    """Fill the tensors of frames. A tensor of no rows is not wanted."""
    if frames.ndim != 2 or frames.shape[1] != WIDTH:
        raise ValueError(f"expected frames [n, {WIDTH}] uint8, got {list(frames.shape)}")
    _require_tensors(len(frames), table, planes, lane, fill, policy, targets)
    words, levels = np.empty(PLANES, np.uint64), np.empty(8, np.uint32)
    return _expand_frames(read_only(frames), table, forced, planes, lane, fill, policy, targets, words, levels)


def expand_rows(
    values: ByteArray,
    offsets: IntArray,
    table: UInt32Array,
    forced: int,
    planes: ByteArray,
    lane: int,
    fill: UInt32Array,
    policy: UInt32Array,
    targets: UInt32Array,
) -> int:
    """Fill the tensors of compact rows, as `expand_frames`."""
    _require_tensors(len(offsets) - 1, table, planes, lane, fill, policy, targets)
    words = np.empty(PLANES, np.uint64)
    levels = np.empty(8, np.uint32)
    blank = np.empty(POLICY, np.uint32)
    values, offsets = read_only(values), read_only(offsets)
    return _expand_rows(values, offsets, table, forced, planes, lane, fill, policy, targets, words, levels, blank)


def _require_tensors(
    n: int,
    table: UInt32Array,
    planes: ByteArray,
    lane: int,
    fill: UInt32Array,
    policy: UInt32Array,
    targets: UInt32Array,
) -> None:
    """Raise `ValueError` for tensors whose shapes do not fit `n` frames."""
    width = 8 * PLANES if lane == 8 else 64 * PLANES * lane
    if n < 0 or lane not in (1, 2, 4, 8) or table.shape != (3, 256):
        raise ValueError(f"expected offsets, a lane of 1, 2, 4 or 8 bytes and a table [3, 256], got {lane}")
    for tensor, columns in ((planes, width), (fill, 8), (policy, POLICY), (targets, len(TARGETS))):
        if len(tensor) and tensor.shape != (n, columns):
            raise ValueError(f"expected a tensor [{n}, {columns}], got {list(tensor.shape)}")


@helper
def _copy_around(out: Address, source: Address, size: int) -> None:
    """Copy whole words of 8 bytes without the cache, to an address that is a multiple of 8."""
    end = out + size
    if out & 8:
        around8(out, source)
        out, source = out + 8, source + 8
    while out + 16 <= end:
        around16(out, source)
        out, source = out + 16, source + 16
    if out < end:
        around8(out, source)


@helper
def _stream_policy(policy: Address, moves: int, flags: int, blank: Address, out: Address) -> None:
    """Unpack as `unpack_policy`, without the cache. `blank` is the address of a policy without moves; it stays so."""
    if flags & DENSE:
        _copy_around(out, policy, 4 * POLICY)
        return
    index = policy + 4 * moves
    for j in range(moves):
        move4(blank + 4 * load2(index + 2 * j), policy + 4 * j)
    _copy_around(out, blank, 4 * POLICY)
    for j in range(moves):
        store4(blank + 4 * load2(index + 2 * j), _ILLEGAL)


@helper
def _backwards(byte: int) -> np.uint64:
    """Return a byte with its bits the other way round, as a word."""
    out = _0
    for k in range(8):
        out |= np.uint64((byte >> k) & 1) << np.uint64(7 - k)
    return out


@helper
def _last_planes(tail: Address, kind: int, table: UInt32Array, words: UInt64Array, levels: UInt32Array) -> None:
    """Write the last 8 planes: words, and the values of their set bits."""
    side, invariance = load1(tail + 4), load1(tail + 6)
    for j in range(8):
        levels[j] = table[0, 1]
    for j in range(4):
        right = load1(tail + j)
        words[STORED + j] = _ALL if kind == 1 else _0
        if kind == 1:
            levels[j] = table[0, right]
        elif j < 2:
            words[STORED + j] = _backwards(right) | (_backwards(load1(tail + 2 + j)) << _56)
    words[108] = _backwards(side) << _56 if kind > 2 else _ALL
    if kind <= 2:
        levels[4] = table[0, side]
    words[109] = _ALL
    words[110] = _ALL if kind >= 128 and invariance >= 128 else _0
    words[111] = _ALL
    levels[5] = table[2 if kind > 3 else 1, load1(tail + 5)]


@helper
def _write_planes(
    words: UInt64Array, levels: UInt32Array, one: np.uint32, lane: int, stream: bool, out: Address
) -> None:
    """Write 112 planes to address `out`, of elements of `lane` bytes; of `lane` 8, the words."""
    if lane == 8:
        memcpy(out, np.int64(words.ctypes.data), 8 * PLANES)
        return
    size = 64 * lane
    for p in range(PLANES):
        to, value = out + p * size, one if p < STORED else levels[p - STORED]
        if stream:
            if lane == 4:
                stream4(to, words[p], value)
            elif lane == 2:
                stream2(to, words[p], value)
            else:
                stream1(to, words[p], value)
        elif lane == 4:
            spread4(to, words[p], value)
        elif lane == 2:
            spread2(to, words[p], value)
        else:
            spread1(to, words[p], value)


@helper
def _write_tensors(
    tail: Address,
    i: int,
    table: UInt32Array,
    planes: ByteArray,
    lane: int,
    stream: bool,
    fill: UInt32Array,
    targets: UInt32Array,
    words: UInt64Array,
    levels: UInt32Array,
) -> None:
    """Write the planes, their values and the targets of frame `i`, whose small fields are at address `tail`."""
    if len(planes):
        to = np.int64(planes.ctypes.data) + i * planes.shape[1]
        _write_planes(words, levels, table[0, 1], lane, stream, to)
    if len(fill):
        for k in range(8):
            fill[i, k] = levels[k]
    if len(targets):
        to = np.int64(targets.ctypes.data) + 4 * i * len(TARGETS)
        for k in range(len(TARGETS)):
            if TARGETS[k] < 0:
                store4(to + 4 * k, _NAN)
            else:
                move4(to + 4 * k, tail + TARGETS[k])


@helper
def _streams(planes: ByteArray, lane: int, policy: UInt32Array) -> bool:
    """Whether planes, and policies with them, go around the cache: many, and where such stores may go."""
    aligned = planes.ctypes.data & 15 == 0 and policy.ctypes.data & 7 == 0
    return lane < 8 and planes.size >= _AROUND_CACHE and aligned


@kernel("u1[2Cr] u4[2Cr] i8 u1[2C] i8 u4[2C] u4[2C] u4[2C] u8[1C] u4[1C]")
def _expand_frames(
    frames: ByteArray,
    table: UInt32Array,
    forced: int,
    planes: ByteArray,
    lane: int,
    fill: UInt32Array,
    policy: UInt32Array,
    targets: UInt32Array,
    words: UInt64Array,
    levels: UInt32Array,
) -> int:
    base = np.int64(frames.ctypes.data)
    stream = _streams(planes, lane, policy)
    bad = -1
    for i in range(len(frames)):
        frame = base + i * WIDTH
        kind = format_of(frame, forced)
        if kind < 0:
            bad = i
            break
        memcpy(np.int64(words.ctypes.data), frame + WORDS, 8 * STORED)
        _last_planes(frame + TAIL, kind, table, words, levels)
        _write_tensors(frame + TAIL, i, table, planes, lane, stream, fill, targets, words, levels)
        if len(policy):
            to = np.int64(policy.ctypes.data) + 4 * POLICY * i
            if stream:
                _copy_around(to, frame + PROBS, 4 * POLICY)
            else:
                memcpy(to, frame + PROBS, 4 * POLICY)
    if stream:
        fence()
    return bad


@kernel("u1[1Cr] i8[1Cr] u4[2Cr] i8 u1[2C] i8 u4[2C] u4[2C] u4[2C] u8[1C] u4[1C] u4[1C]")
def _expand_rows(
    values: ByteArray,
    offsets: IntArray,
    table: UInt32Array,
    forced: int,
    planes: ByteArray,
    lane: int,
    fill: UInt32Array,
    policy: UInt32Array,
    targets: UInt32Array,
    words: UInt64Array,
    levels: UInt32Array,
    blank: UInt32Array,
) -> int:
    base = np.int64(values.ctypes.data)
    stream = _streams(planes, lane, policy)
    for j in range(POLICY if stream else 0):
        blank[j] = _ILLEGAL
    bad = -1
    for i in range(len(offsets) - 1):
        row = base + offsets[i]
        _, moves_at, moves, flags = parts(row, offsets[i], offsets[i + 1], len(values))
        kind = format_of(row, forced) if moves >= 0 else -1
        if kind < 0:
            bad = i
            break
        unpack_words(row, words)
        _last_planes(row + 24, kind, table, words, levels)
        _write_tensors(row + 24, i, table, planes, lane, stream, fill, targets, words, levels)
        if len(policy):
            to = np.int64(policy.ctypes.data) + 4 * POLICY * i
            if stream:
                _stream_policy(moves_at, moves, flags, np.int64(blank.ctypes.data), to)
            else:
                unpack_policy(moves_at, moves, flags, to)
    if stream:
        fence()
    return bad
