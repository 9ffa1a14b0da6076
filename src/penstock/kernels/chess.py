# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels that encode, decode and expand chess frames (numba, GIL released, cached on disk).

The definitions are in `chess_reference`; results are equal to the last bit, because values move as bits. Loads and
stores are vectors of words (`chess_lanes`). Large outputs bypass the cache. The caller owns all arrays; a row is
checked before its fields are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels import chess_reference as ref
from penstock.kernels.chess_lanes import (
    around8,
    around16,
    differing16,
    fence,
    load1,
    load2,
    load4,
    load8,
    lowest,
    ones,
    spread1,
    spread2,
    spread4,
    store4,
    store8,
    stream1,
    stream2,
    stream4,
)
from penstock.kernels.intrinsics import memcpy, move4
from penstock.kernels.jit import helper, kernel

_WIDTH, _SHORT, _POLICY = ref.WIDTH, ref.SHORT, ref.POLICY
_STORED, _PLANES, _STEP = ref.STORED, ref.PLANES, ref.STEP
_PROBS, _WORDS, _TAIL, _SPARE = ref.PROBS, ref.WORDS, ref.TAIL, ref.SPARE
_HEADER, _LAYOUT, _DENSE, _RESERVED, _LARGEST = ref.HEADER, ref.LAYOUT, ref.DENSE, ref.RESERVED, ref.LARGEST
_SPARSE_MOVES, _TARGETS = ref.SPARSE_MOVES, ref.TARGETS
_ILLEGAL, _NAN = np.uint32(ref.ILLEGAL), np.uint32(ref.NAN)
_SEVEN, _NO_LINKS = np.uint32(7), np.uint32(2**32 - 1)
_0, _1, _40, _48, _56 = (np.uint64(k) for k in (0, 1, 40, 48, 56))
_ALL, _HIGH = np.uint64(2**64 - 1), np.uint64(2**40 - 1)

_AROUND_CACHE = 1 << 23
"""Bytes of planes from which on they are written around the cache, for they would drive out all else from it."""


@kernel
def encode_chess(frames: Any, nan: bool, places: Any, begin: int, out: Any, offsets: Any) -> Any:
    """See `chess_reference.encode_chess`."""
    base, to, width = np.int64(frames.ctypes.data), np.int64(out.ctypes.data), frames.shape[1]
    index = np.empty(_POLICY, np.uint16)
    for i in range(begin, len(places)):
        at = offsets[i]
        if at + _LARGEST + 8 > len(out):
            return i
        offsets[i + 1] = at + _encode(base + places[i] * width, width == _SHORT, nan, to + at, index)
    return len(places)


@helper
def _encode(frame: int, short: bool, nan: bool, row: int, index: Any) -> Any:
    """One row, of a frame or of a `short` record; gives its length."""
    at = row + _HEADER
    low, high = _0, _0
    for p in range(_STORED):
        word = load8(frame + _WORDS + 8 * p)
        before = load8(frame + _WORDS + 8 * (p - _STEP)) if p >= _STEP else _0
        store8(at, word)  # overwritten by the next where it need not be stored; `out` has room
        changed = np.uint64(word != before)
        at += 8 * np.int64(changed)
        if p < 64:
            low |= changed << np.uint64(p)
        else:
            high |= changed << np.uint64(p - 64)
    stored = (at - row - _HEADER) // 8
    flags = 0
    if not short and _any_spare(frame):
        flags |= _RESERVED
        memcpy(at, frame + _SPARE, _WIDTH - _SPARE)
        at += _WIDTH - _SPARE
    moves = _legal(frame + _PROBS, index)
    if moves > _SPARSE_MOVES:
        moves, flags = _POLICY, flags | _DENSE
        memcpy(at, frame + _PROBS, 4 * _POLICY)
        at += 4 * _POLICY
    else:
        for j in range(moves):
            move4(at + 4 * j, frame + _PROBS + 4 * np.int64(index[j]))
        memcpy(at + 4 * moves, index.ctypes.data, 2 * moves)
        at += 6 * moves
        store8(at, _0)
        at = row + ((at - row + 7) & -8)
    memcpy(row, frame, 8)
    store8(row + 8, low)
    store8(row + 16, high | (np.uint64(stored) << _40) | (np.uint64(moves) << _48))
    memcpy(row + 24, frame + _TAIL, _SHORT - _TAIL)
    if short:
        _fill_in(row, nan)
    else:
        store8(row + 24 + _SHORT - _TAIL, load8(frame + _SHORT))
    store4(row + 116, np.uint32(flags + 256 * _LAYOUT))
    return at - row


@helper
def _fill_in(row: int, nan: bool) -> None:
    """Write the fields that version 6 lacks: in a row, `q_st` is at 104, `d_st` at 108 and the links at 112."""
    store4(row, _SEVEN)
    if not nan:
        store8(row + 108, _0)
        return
    if (load4(row + 104) << 1) & 0xFFFFFFFF == 0:  # 0 and -0
        store4(row + 104, _NAN)
    store4(row + 108, _NAN)
    store4(row + 112, _NO_LINKS)


@helper
def _any_spare(frame: int) -> Any:
    bits = _0
    for at in range(_SPARE, _WIDTH, 8):
        bits |= load8(frame + at)
    return bits != _0


@helper
def _legal(policy: int, index: Any) -> Any:
    """The indices of the moves whose value is not -1; gives how many. The last 16 words reach into what follows."""
    n = 0
    for lo in range(0, _POLICY, 16):
        mask = differing16(policy + 4 * lo, _ILLEGAL)
        if lo + 16 > _POLICY:
            mask &= (1 << (_POLICY - lo)) - 1
        while mask != 0:
            index[n] = lo + lowest(mask)
            n += 1
            mask &= mask - 1
    return n


@helper
def _parts(row: int, size: int) -> Any:
    """Where the reserved bytes and the policy of a row begin, its moves and its flags; moves are -1 if it is no row."""
    if size < _HEADER:
        return 0, 0, -1, 0
    low, high, head = load8(row + 8), load8(row + 16), load4(row + 116)
    stored, moves, flags = load1(row + 21), load2(row + 22), head & 255
    dense = flags & _DENSE != 0
    spare = _HEADER + 8 * stored
    policy = spare + (_WIDTH - _SPARE if flags & _RESERVED else 0)
    end = policy + (4 if dense else 6) * moves
    right = head >> 8 == _LAYOUT and flags <= _DENSE + _RESERVED and stored == ones(low) + ones(high & _HIGH)
    if not right or size != (end + 7) & -8 or (dense and moves != _POLICY):
        return 0, 0, -1, 0
    if not dense:
        before = -1
        for at in range(policy + 4 * moves, end, 2):
            move = load2(row + at)
            if not before < move < _POLICY:
                return 0, 0, -1, 0
            before = move
    for at in range(end, size):
        if load1(row + at) != 0:
            return 0, 0, -1, 0
    return row + spare, row + policy, moves, flags


@helper
def _unpack_words(row: int, words: Any) -> None:
    """The 104 stored planes of a row: each is written out, or as it was a position earlier in the row."""
    low, high, at = load8(row + 8), load8(row + 16), row + _HEADER
    for p in range(_STORED):
        bit = (low >> np.uint64(p)) if p < 64 else (high >> np.uint64(p - 64))
        if bit & _1:
            words[p] = load8(at)
            at += 8
        else:
            words[p] = words[p - _STEP] if p >= _STEP else _0


@helper
def _unpack_policy(policy: int, moves: int, flags: int, out: Any) -> None:
    """The 1858 values, at address `out`."""
    if flags & _DENSE:
        memcpy(out, policy, 4 * _POLICY)
        return
    for at in range(out, out + 29 * 256, 256):
        spread4(at, _ALL, _ILLEGAL)
    for j in range(29 * 64, _POLICY):
        store4(out + 4 * j, _ILLEGAL)
    for j in range(moves):
        move4(out + 4 * load2(policy + 4 * moves + 2 * j), policy + 4 * j)


@helper
def _copy_around(out: int, source: int, size: int) -> None:
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
def _stream_policy(policy: int, moves: int, flags: int, blank: int, out: int) -> None:
    """Unpack as `_unpack_policy`, without the cache. `blank` is the address of a policy without moves; it stays so."""
    if flags & _DENSE:
        _copy_around(out, policy, 4 * _POLICY)
        return
    index = policy + 4 * moves
    for j in range(moves):
        move4(blank + 4 * load2(index + 2 * j), policy + 4 * j)
    _copy_around(out, blank, 4 * _POLICY)
    for j in range(moves):
        store4(blank + 4 * load2(index + 2 * j), _ILLEGAL)


@kernel
def decode_chess(values: Any, offsets: Any, frames: Any) -> Any:
    """See `chess_reference.decode_chess`."""
    base, out = np.int64(values.ctypes.data), np.int64(frames.ctypes.data)
    words = np.empty(_STORED, np.uint64)
    for i in range(len(offsets) - 1):
        row, frame = base + offsets[i], out + i * _WIDTH
        spare, policy, moves, flags = _parts(row, offsets[i + 1] - offsets[i])
        if moves < 0:
            return i
        memcpy(frame, row, _PROBS)
        _unpack_policy(policy, moves, flags, frame + _PROBS)
        _unpack_words(row, words)
        memcpy(frame + _WORDS, np.int64(words.ctypes.data), 8 * _STORED)
        memcpy(frame + _TAIL, row + 24, _SPARE - _TAIL)
        if flags & _RESERVED:
            memcpy(frame + _SPARE, spare, _WIDTH - _SPARE)
        else:
            for at in range(_SPARE, _WIDTH, 8):
                store8(frame + at, _0)
    return -1


@helper
def _kind(head: int, forced: int) -> Any:
    """The input format that a frame or a row tells, -1 where it is unknown, or the one forced."""
    kind = load4(head + 4)
    if forced != 0:
        return forced
    return kind if 1 <= kind <= 5 or 132 <= kind <= 133 else -1


@helper
def _backwards(byte: int) -> Any:
    """A byte with its bits the other way round, as a word."""
    out = _0
    for k in range(8):
        out |= np.uint64((byte >> k) & 1) << np.uint64(7 - k)
    return out


@helper
def _flags_planes(tail: int, kind: int, table: Any, words: Any, fill: Any) -> None:
    """The last 8 planes: words, and the values of their set bits."""
    side, invariance = load1(tail + 4), load1(tail + 6)
    fill[:] = table[0, 1]
    for j in range(4):
        words[_STORED + j] = _ALL if kind == 1 else _0
        if kind == 1:
            fill[j] = table[0, load1(tail + j)]
        elif j < 2:
            words[_STORED + j] = _backwards(load1(tail + j)) | (_backwards(load1(tail + 2 + j)) << _56)
    words[108] = _backwards(side) << _56 if kind > 2 else _ALL
    if kind <= 2:
        fill[4] = table[0, side]
    words[109] = words[111] = _ALL
    fill[5] = table[2 if kind > 3 else 1, load1(tail + 5)]
    words[110] = _ALL if kind >= 128 and invariance >= 128 else _0


@helper
def _lay_planes(words: Any, fill: Any, one: Any, lane: int, stream: bool, out: int) -> None:
    """112 planes at address `out`, of elements of `lane` bytes; of `lane` 8, the words."""
    if lane == 8:
        memcpy(out, np.int64(words.ctypes.data), 8 * _PLANES)
        return
    size = 64 * lane
    for p in range(_PLANES):
        to, value = out + p * size, one if p < _STORED else fill[p - _STORED]
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
def _lay_targets(tail: int, out: int) -> None:
    """The 6 x 3 values at address `out`."""
    for k in range(len(_TARGETS)):
        if _TARGETS[k] < 0:
            store4(out + 4 * k, _NAN)
        else:
            move4(out + 4 * k, tail + _TARGETS[k])


@helper
def _streams(planes: Any, lane: int, policy: Any) -> Any:
    """Whether planes, and policies with them, go around the cache: many, and where such stores may go."""
    return lane < 8 and planes.size >= _AROUND_CACHE and planes.ctypes.data & 15 == 0 and policy.ctypes.data & 7 == 0


@kernel
def expand_chess_frames(
    frames: Any, table: Any, forced: int, planes: Any, lane: int, fill: Any, policy: Any, targets: Any
) -> Any:
    """See `chess_reference.expand_chess_frames`."""
    base, words, values = np.int64(frames.ctypes.data), np.empty(_PLANES, np.uint64), np.empty(8, np.uint32)
    stream = _streams(planes, lane, policy)
    bad = -1
    for i in range(len(frames)):
        frame = base + i * _WIDTH
        kind = _kind(frame, forced)
        if kind < 0:
            bad = i
            break
        memcpy(np.int64(words.ctypes.data), frame + _WORDS, 8 * _STORED)
        _flags_planes(frame + _TAIL, kind, table, words, values)
        if len(planes):
            _lay_planes(words, values, table[0, 1], lane, stream, np.int64(planes.ctypes.data) + i * planes.shape[1])
        if len(fill):
            fill[i] = values
        if len(policy):
            to = np.int64(policy.ctypes.data) + 4 * _POLICY * i
            if stream:
                _copy_around(to, frame + _PROBS, 4 * _POLICY)
            else:
                memcpy(to, frame + _PROBS, 4 * _POLICY)
        if len(targets):
            _lay_targets(frame + _TAIL, np.int64(targets.ctypes.data) + 72 * i)
    if stream:
        fence()
    return bad


@kernel
def expand_chess_rows(
    values: Any, offsets: Any, table: Any, forced: int, planes: Any, lane: int, fill: Any, policy: Any, targets: Any
) -> Any:
    """See `chess_reference.expand_chess_rows`."""
    base, words, levels = np.int64(values.ctypes.data), np.empty(_PLANES, np.uint64), np.empty(8, np.uint32)
    blank = np.full(_POLICY, _ILLEGAL, np.uint32)
    stream = _streams(planes, lane, policy)
    bad = -1
    for i in range(len(offsets) - 1):
        row = base + offsets[i]
        _, moves_at, moves, flags = _parts(row, offsets[i + 1] - offsets[i])
        kind = _kind(row, forced) if moves >= 0 else -1
        if kind < 0:
            bad = i
            break
        _unpack_words(row, words)
        _flags_planes(row + 24, kind, table, words, levels)
        if len(planes):
            _lay_planes(words, levels, table[0, 1], lane, stream, np.int64(planes.ctypes.data) + i * planes.shape[1])
        if len(fill):
            fill[i] = levels
        if len(policy):
            to = np.int64(policy.ctypes.data) + 4 * _POLICY * i
            if stream:
                _stream_policy(moves_at, moves, flags, np.int64(blank.ctypes.data), to)
            else:
                _unpack_policy(moves_at, moves, flags, to)
        if len(targets):
            _lay_targets(row + 24, np.int64(targets.ctypes.data) + 72 * i)
    if stream:
        fence()
    return bad


@kernel
def check_chess_rows(values: Any, offsets: Any, forced: int) -> Any:
    """See `chess_reference.check_chess_rows`."""
    base = np.int64(values.ctypes.data)
    for i in range(len(offsets) - 1):
        row = base + offsets[i]
        if _parts(row, offsets[i + 1] - offsets[i])[2] < 0 or _kind(row, forced) < 0:
            return i
    return -1
