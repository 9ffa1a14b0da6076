"""Compact rows of chess frames: encode, decode and check them. `docs/tensors.md` has the layout.

A plane is stored where it differs from the plane 13 before it, a policy as its legal moves and their indices, and
reserved bytes where one is set, so any 8396 bytes come back as they were. Values move as bits, never as numbers: NaN
payloads and negative zeros stay. A row is checked before its fields are used: its size follows from its header, and
moves are in order and below 1858, so a damaged row leads nowhere outside it. Loads and stores are whole words at
addresses (`lanes`); each wrapper checks the arrays that these come from. The caller owns all arrays. Reference:
`tests/games/reference/frames.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import ByteArray, IntArray, UInt64Array, read_only
from penstock.kernels.intrinsics import Address, memcpy, move4
from penstock.kernels.jit import helper, kernel
from penstock_chess.kernels.lanes import (
    differing16,
    load1,
    load2,
    load4,
    load8,
    lowest,
    ones,
    spread4,
    store4,
    store8,
)
from penstock_chess.kernels.layout import (
    DENSE,
    HEADER,
    ILLEGAL,
    LARGEST,
    LAYOUT,
    NAN,
    POLICY,
    PROBS,
    RESERVED,
    SHORT,
    SPARE,
    SPARSE_MOVES,
    STEP,
    STORED,
    TAIL,
    WIDTH,
    WORDS,
)

_ILLEGAL, _NAN = np.uint32(ILLEGAL), np.uint32(NAN)
_SEVEN, _NO_LINKS = np.uint32(7), np.uint32(2**32 - 1)
_WHOLE = ((PROBS, 4 * POLICY), (WORDS, 8 * STORED), (SPARE, WIDTH - SPARE))
_0, _1, _40, _48 = (np.uint64(k) for k in (0, 1, 40, 48))
_ALL, _HIGH = np.uint64(2**64 - 1), np.uint64(2**40 - 1)


def encode_rows(frames: ByteArray, nan: bool, places: IntArray, begin: int, out: ByteArray, offsets: IntArray) -> int:
    """Write compact rows end to end into `out`, row `i` at `offsets[i] : offsets[i + 1]`."""
    if frames.ndim != 2 or frames.shape[1] not in (WIDTH, SHORT) or len(offsets) != len(places) + 1:
        raise ValueError(f"expected frames [n, {WIDTH}] and an offset behind each place, got {list(frames.shape)}")
    if not 0 <= begin <= len(places) or offsets[begin] < 0:
        raise ValueError(f"expected to begin within 0:{len(places)}, got {begin}")
    done = _encode_rows(read_only(frames), nan, read_only(places), begin, out, offsets, np.empty(POLICY, np.uint16))
    if done < 0:
        raise ValueError(f"expected places within 0:{len(frames)}, got {places[-1 - done]}")
    return done


def decode_rows(values: ByteArray, offsets: IntArray, frames: ByteArray) -> int:
    """Write the frames of compact rows."""
    if frames.shape != (len(offsets) - 1, WIDTH):
        raise ValueError(f"expected frames [{len(offsets) - 1}, {WIDTH}], got {list(frames.shape)}")
    return _decode_rows(read_only(values), read_only(offsets), frames, np.empty(STORED, np.uint64))


def decode_field(
    values: ByteArray, offsets: IntArray, places: IntArray, byte: int, out: ByteArray, *, is_checked: bool = False
) -> int:
    """Write one field of the compact rows at `places`, the field that begins at `byte` of a frame, to the same places
    of `out`; return the first of them that is damaged, or -1.

    With `is_checked`, of rows that another call has checked, small fields are copied without a check of what follows.
    """
    width = out.shape[1]
    inside = byte + width <= PROBS or (byte, width) in _WHOLE or TAIL <= byte <= SPARE - width
    if len(out) != len(offsets) - 1 or not inside:
        raise ValueError(f"expected a field in each of {len(offsets) - 1} rows, got {list(out.shape)} at byte {byte}")
    if len(places) and read_only(places).view(np.uint64).max() >= len(out):  # negative ones are large
        raise ValueError(f"expected places within 0:{len(out)}, got {places.min()} to {places.max()}")
    arrays = read_only(values), read_only(offsets), read_only(places)
    if is_checked and (byte < PROBS or TAIL <= byte < SPARE):
        return _copy_field(*arrays, byte if byte < PROBS else byte + 24 - TAIL, out)
    return _decode_field(*arrays, byte, out, np.empty(STORED, np.uint64))


def check_rows(values: ByteArray, offsets: IntArray, forced: int) -> int:
    """Return the first row that is damaged or of an unknown input format, or -1."""
    if not len(offsets):
        raise ValueError("expected at least one offset")
    return _check_rows(read_only(values), read_only(offsets), forced)


@kernel("u1[2Cr] b1 i8[1Cr] i8 u1[1C] i8[1C] u2[1C]")
def _encode_rows(
    frames: ByteArray,
    nan: bool,
    places: IntArray,
    begin: int,
    out: ByteArray,
    offsets: IntArray,
    moves: npt.NDArray[np.uint16],
) -> int:
    base = np.int64(frames.ctypes.data)
    to = np.int64(out.ctypes.data)
    width = frames.shape[1]
    for i in range(begin, len(places)):
        start = offsets[i]
        if not 0 <= places[i] < len(frames):
            return -1 - i
        if start + LARGEST + 8 > len(out):
            return i
        offsets[i + 1] = start + _encode(base + places[i] * width, width == SHORT, nan, to + start, moves)
    return len(places)


@helper
def _encode(frame: Address, short: bool, nan: bool, row: Address, index: npt.NDArray[np.uint16]) -> Address:
    """Write one row, of a frame or of a `short` record; return its length."""
    position = row + HEADER
    low, high = _0, _0
    for p in range(STORED):
        word = load8(frame + WORDS + 8 * p)
        before = load8(frame + WORDS + 8 * (p - STEP)) if p >= STEP else _0
        store8(position, word)  # overwritten by the next where it need not be stored; `out` has room
        changed = np.uint64(word != before)
        position += 8 * np.int64(changed)
        if p < 64:
            low |= changed << np.uint64(p)
        else:
            high |= changed << np.uint64(p - 64)
    stored = (position - row - HEADER) // 8
    flags = 0
    if not short and _any_spare(frame):
        flags |= RESERVED
        memcpy(position, frame + SPARE, WIDTH - SPARE)
        position += WIDTH - SPARE
    moves = _legal(frame + PROBS, index)
    if moves > SPARSE_MOVES:
        moves, flags = POLICY, flags | DENSE
        memcpy(position, frame + PROBS, 4 * POLICY)
        position += 4 * POLICY
    else:
        for j in range(moves):
            move4(position + 4 * j, frame + PROBS + 4 * np.int64(index[j]))
        memcpy(position + 4 * moves, np.int64(index.ctypes.data), 2 * moves)
        position += 6 * moves
        store8(position, _0)
        position = row + ((position - row + 7) & -8)
    memcpy(row, frame, 8)
    store8(row + 8, low)
    store8(row + 16, high | (np.uint64(stored) << _40) | (np.uint64(moves) << _48))
    memcpy(row + 24, frame + TAIL, SHORT - TAIL)
    if short:
        _fill_in(row, nan)
    else:
        store8(row + 24 + SHORT - TAIL, load8(frame + SHORT))
    store4(row + 116, np.uint32(flags + 256 * LAYOUT))
    return position - row


@helper
def _fill_in(row: Address, nan: bool) -> None:
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
def _any_spare(frame: Address) -> bool:
    bits = _0
    for byte in range(SPARE, WIDTH, 8):
        bits |= load8(frame + byte)
    return bits != _0


@helper
def _legal(policy: Address, index: npt.NDArray[np.uint16]) -> int:
    """Write the moves whose value is not -1; return how many. The last 16 words reach into what follows."""
    n = 0
    for lo in range(0, POLICY, 16):
        mask = np.uint64(differing16(policy + 4 * lo, _ILLEGAL))
        if lo + 16 > POLICY:
            mask &= np.uint64((1 << (POLICY % 16)) - 1)
        while mask:
            index[n] = lo + lowest(mask)
            n += 1
            mask &= mask - _1
    return n


@helper
def parts(row: Address, begin: int, end: int, limit: int) -> tuple[Address, Address, int, int]:
    """Return where the reserved bytes and the policy of a row begin, its moves and its flags.

    Moves are -1 if it is no row. The row is at address `row`, bytes `begin` to `end` of an array of `limit` bytes.
    """
    size = end - begin
    if begin < 0 or end > limit or size < HEADER:
        return 0, 0, -1, 0
    low = load8(row + 8)
    high = load8(row + 16)
    head = load4(row + 116)
    stored = load1(row + 21)
    moves = load2(row + 22)
    flags = head & 255
    dense = flags & DENSE != 0
    spare = HEADER + 8 * stored
    policy = spare + (WIDTH - SPARE if flags & RESERVED else 0)
    end = policy + (4 if dense else 6) * moves
    right = head >> 8 == LAYOUT and flags <= DENSE + RESERVED and stored == ones(low) + ones(high & _HIGH)
    if not right or size != (end + 7) & -8 or (dense and moves != POLICY):
        return 0, 0, -1, 0
    if not dense:
        before = -1
        for byte in range(policy + 4 * moves, end, 2):
            move = load2(row + byte)
            if not before < move < POLICY:
                return 0, 0, -1, 0
            before = move
    for byte in range(end, size):
        if load1(row + byte) != 0:
            return 0, 0, -1, 0
    return row + spare, row + policy, moves, flags


@helper
def unpack_words(row: Address, words: UInt64Array) -> None:
    """Write the 104 stored planes of a row: each is stored, or is the plane of one position before."""
    low = load8(row + 8)
    high = load8(row + 16)
    position = row + HEADER
    for p in range(STORED):
        bit = (low >> np.uint64(p)) if p < 64 else (high >> np.uint64(p - 64))
        if bit & _1:
            words[p] = load8(position)
            position += 8
        else:
            words[p] = words[p - STEP] if p >= STEP else _0


@helper
def unpack_policy(policy: Address, moves: int, flags: int, out: Address) -> None:
    """Write the 1858 values of a row to address `out`."""
    if flags & DENSE:
        memcpy(out, policy, 4 * POLICY)
        return
    for target in range(out, out + 29 * 256, 256):
        spread4(target, _ALL, _ILLEGAL)
    for j in range(29 * 64, POLICY):
        store4(out + 4 * j, _ILLEGAL)
    for j in range(moves):
        move4(out + 4 * load2(policy + 4 * moves + 2 * j), policy + 4 * j)


@helper
def _unpack_spare(spare: Address, flags: int, out: Address) -> None:
    """Write the reserved bytes of a row to address `out`."""
    if flags & RESERVED:
        memcpy(out, spare, WIDTH - SPARE)
    else:
        for target in range(out, out + WIDTH - SPARE, 8):
            store8(target, _0)


@kernel("u1[1Cr] i8[1Cr] u1[2C] u8[1C]")
def _decode_rows(values: ByteArray, offsets: IntArray, frames: ByteArray, words: UInt64Array) -> int:
    base, out = np.int64(values.ctypes.data), np.int64(frames.ctypes.data)
    for i in range(len(offsets) - 1):
        row, frame = base + offsets[i], out + i * WIDTH
        spare, policy, moves, flags = parts(row, offsets[i], offsets[i + 1], len(values))
        if moves < 0:
            return i
        memcpy(frame, row, PROBS)
        unpack_policy(policy, moves, flags, frame + PROBS)
        unpack_words(row, words)
        memcpy(frame + WORDS, np.int64(words.ctypes.data), 8 * STORED)
        memcpy(frame + TAIL, row + 24, SPARE - TAIL)
        _unpack_spare(spare, flags, frame + SPARE)
    return -1


@kernel("u1[1Cr] i8[1Cr] i8[1Cr] i8 u1[2C] u8[1C]")
def _decode_field(
    values: ByteArray, offsets: IntArray, places: IntArray, byte: int, out: ByteArray, words: UInt64Array
) -> int:
    base, first = np.int64(values.ctypes.data), np.int64(out.ctypes.data)
    width = out.shape[1]
    for i in range(len(places)):
        place = int(places[i])
        row, to = base + offsets[place], first + place * width
        spare, policy, moves, flags = parts(row, offsets[place], offsets[place + 1], len(values))
        if moves < 0:
            return place
        if byte == PROBS:
            unpack_policy(policy, moves, flags, to)
        elif byte == WORDS:
            unpack_words(row, words)
            memcpy(to, np.int64(words.ctypes.data), width)
        elif byte == SPARE:
            _unpack_spare(spare, flags, to)
        elif byte < PROBS:
            memcpy(to, row + byte, width)
        else:
            memcpy(to, row + 24 + byte - TAIL, width)
    return -1


@kernel("u1[1Cr] i8[1Cr] i8[1Cr] i8 u1[2C]")
def _copy_field(values: ByteArray, offsets: IntArray, places: IntArray, byte: int, out: ByteArray) -> int:
    """Write the field that begins at `byte` of a row, in its header."""
    base, first = np.int64(values.ctypes.data), np.int64(out.ctypes.data)
    width = out.shape[1]
    for i in range(len(places)):
        place = int(places[i])
        begin, end = offsets[place], offsets[place + 1]
        if begin < 0 or end > len(values) or end - begin < HEADER:
            return place
        memcpy(first + place * width, base + begin + byte, width)
    return -1


@helper
def format_of(head: Address, forced: int) -> int:
    """Return the input format that a frame or a row tells, -1 where it is unknown, or the one forced."""
    kind = load4(head + 4)
    if forced != 0:
        return forced
    return kind if 1 <= kind <= 5 or 132 <= kind <= 133 else -1


@kernel("u1[1Cr] i8[1Cr] i8")
def _check_rows(values: ByteArray, offsets: IntArray, forced: int) -> int:
    base = np.int64(values.ctypes.data)
    for i in range(len(offsets) - 1):
        row = base + offsets[i]
        if parts(row, offsets[i], offsets[i + 1], len(values))[2] < 0 or format_of(row, forced) < 0:
            return i
    return -1
