"""Compact rows and tensors of chess frames in NumPy: the kernels in `rows` and `planes` must equal these.

Values are moved as bits, never as numbers, so NaN payloads and negative zeros stay.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import ByteArray, IntArray, UInt32Array, UInt64Array
from penstock_chess.kernels.layout import (
    DENSE,
    HEADER,
    ILLEGAL,
    LARGEST,
    LAYOUT,
    NAN,
    NUMBERED,
    PLANES,
    POLICY,
    PROBS,
    RESERVED,
    SHORT,
    SPARE,
    SPARSE_MOVES,
    STEP,
    STORED,
    TAIL,
    TARGETS,
    WIDTH,
    WORDS,
)


def encode_rows(frames: ByteArray, nan: bool, places: IntArray, begin: int, out: ByteArray, offsets: IntArray) -> int:
    """Compact rows of the frames `places[begin:]` of `frames` `[n, 8396]`, laid end to end in `out`, row `i` at
    `offsets[i] : offsets[i + 1]`.

    Records `[n, 8356]` of version 6 give the rows of version 7. The short-term values and links that they have not are
    0; with `nan`, the values are NaN, also a `q_st` of 0, and the links 65535.

    Returns the number of rows written. It is smaller than the number of frames if `out` has fewer than `LARGEST + 8`
    bytes left.
    """
    for i in range(begin, len(places)):
        at = int(offsets[i])
        if at + LARGEST + 8 > len(out):
            return i
        frame = frames[places[i]]
        row = np.frombuffer(_row(frame if len(frame) == WIDTH else _upgraded(frame, nan)), np.uint8)
        out[at : at + len(row)] = row
        offsets[i + 1] = at + len(row)
    return len(places)


def _upgraded(record: ByteArray, nan: bool) -> ByteArray:
    """A record of version 6 as a frame."""
    frame = np.zeros(WIDTH, np.uint8)
    frame[:SHORT], frame[:4] = record, np.array([7], "<u4").view(np.uint8)
    if nan:
        values = frame[SHORT - 4 : SHORT + 4].view("<u4")
        values[values << 1 == 0] = NAN  # 0 and -0
        frame[SHORT + 4 : SPARE] = 0xFF
    return frame


def _row(frame: ByteArray) -> bytes:
    policy, words = frame[PROBS:WORDS].view("<u4"), frame[WORDS:TAIL].view("<u8")
    before = np.concatenate([np.zeros(STEP, np.uint64), words[:-STEP]])
    changed = words != before
    legal = np.flatnonzero(policy != ILLEGAL)
    dense = len(legal) > SPARSE_MOVES
    spare = frame[SPARE:].tobytes() if frame[SPARE:].any() else b""
    flags = DENSE * dense + RESERVED * bool(spare)
    moves = POLICY if dense else len(legal)
    head = [
        frame[:PROBS].tobytes(),
        np.packbits(changed, bitorder="little").tobytes(),
        bytes([int(changed.sum())]),
        moves.to_bytes(2, "little"),
        frame[TAIL:SPARE].tobytes(),
        bytes([flags, LAYOUT, 0, 0]),
    ]
    values = policy.tobytes() if dense else policy[legal].tobytes() + legal.astype("<u2").tobytes()
    row = b"".join([*head, words[changed].tobytes(), spare, values])
    return row + bytes(-len(row) % 8)


def decode_rows(values: ByteArray, offsets: IntArray, frames: ByteArray) -> int:
    """The frames of compact rows, into `frames` `[n, 8396]`. Gives -1, or the first row that is none."""
    for i in range(len(offsets) - 1):
        if not _frame(values[offsets[i] : offsets[i + 1]], frames[i]):
            return i
    return -1


def _frame(row: ByteArray, frame: ByteArray) -> bool:
    """Fill in the frame of a row; return False if it is not a compact row."""
    if len(row) < HEADER:
        return False
    stored, moves, flags = int(row[21]), int(row[22]) + 256 * int(row[23]), int(row[116])
    changed = np.unpackbits(row[8:21], bitorder="little").astype(bool)
    dense = bool(flags & DENSE)
    spare = HEADER + 8 * stored
    policy = spare + (32 if flags & RESERVED else 0)
    end = policy + (4 if dense else 6) * moves
    whole = len(row) == end + -end % 8 and stored == int(changed.sum())
    if not whole or flags > DENSE + RESERVED or row[117:120].tolist() != [LAYOUT, 0, 0] or (dense and moves != POLICY):
        return False
    index = np.arange(POLICY) if dense else np.frombuffer(row[policy + 4 * moves : end].tobytes(), "<u2")
    if np.any(index >= POLICY) or np.any(index[1:] <= index[:-1]) or row[end:].any():
        return False
    words = np.zeros(STORED, np.uint64)
    words[changed] = np.frombuffer(row[HEADER:spare].tobytes(), "<u8")
    for p in np.flatnonzero(~changed[STEP:]) + STEP:
        words[p] = words[p - STEP]
    probs = np.full(POLICY, ILLEGAL, "<u4")
    probs[index] = np.frombuffer(row[policy : policy + 4 * moves].tobytes(), "<u4")
    frame[:PROBS], frame[PROBS:WORDS] = row[:8], probs.view(np.uint8)
    frame[WORDS:TAIL], frame[TAIL:SPARE] = words.view(np.uint8), row[24:116]
    frame[SPARE:] = row[spare:policy] if flags & RESERVED else 0
    return True


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
    """The tensors of `frames` `[n, 8396]`, each into its buffer; one of no rows is not wanted.

    `planes` `[n, 7168 * lane]` bytes get the planes as elements of `lane` bytes, 1, 2 or 4; of `lane` 8, `[n, 896]`,
    the 112 words they are made from, in which square `s` is bit `s ^ 7`, and `fill` `[n, 8]` gets the value of the
    set bits of the last 8. `policy` `[n, 1858]` and `targets` `[n, 18]` get bits of float32. `table` `[3, 256]` has the
    bits of a byte as a number, by 99 and by 100. `forced` is the input format of all frames, 0 where each tells its
    own. Gives -1, or the first frame whose input format is unknown.
    """
    known = expand_known(frames, forced)
    if not known.all():
        return int(np.argmin(known))
    words, values = tensor_words(frames, table, forced)
    if len(planes) and lane == 8:
        planes[:] = words.view(np.uint8)
    elif len(planes):
        squares = np.unpackbits(words.view(np.uint8), axis=1).reshape(-1, PLANES, 64).astype(f"u{lane}")
        squares[:, :STORED] *= table[0, 1].astype(squares.dtype)
        squares[:, STORED:] *= values[:, :, None].astype(squares.dtype)
        planes[:] = squares.reshape(len(frames), -1).view(np.uint8)
    if len(fill):
        fill[:] = values
    if len(policy):
        policy[:] = np.ascontiguousarray(frames[:, PROBS:WORDS]).view("<u4")
    if len(targets):
        tail = np.ascontiguousarray(frames[:, TAIL:]).view("<u4")
        for column, at in enumerate(TARGETS):
            targets[:, column] = NAN if at < 0 else tail[:, at // 4]
    return -1


def expand_known(frames: ByteArray, forced: int) -> npt.NDArray[np.bool_]:
    """Return `[n]` whether the input format of each frame is known; true for all frames if `forced` is set."""
    formats = np.ascontiguousarray(frames[:, 4:8]).view("<u4")[:, 0]
    return np.isin(formats, (1, 2, 3, 4, 5, 132, 133)) | (forced != 0)


def tensor_words(frames: ByteArray, table: UInt32Array, forced: int) -> tuple[UInt64Array, UInt32Array]:
    """`[n, 112]` words of the planes and `[n, 8]` bits of the values that the last 8 have where a bit is set."""
    n = len(frames)
    words, fill = np.zeros((n, PLANES), np.uint64), np.full((n, 8), table[0, 1], np.uint32)
    words[:, :STORED] = np.ascontiguousarray(frames[:, WORDS:TAIL]).view("<u8")
    formats = np.ascontiguousarray(frames[:, 4:8]).view("<u4")[:, 0]
    kind = np.full(n, forced, np.uint32) if forced else formats
    byte = frames[:, TAIL : TAIL + 7]
    plain, canonical = kind == NUMBERED, kind > 2
    reversed_ = np.packbits(np.unpackbits(byte, axis=1, bitorder="little"), axis=1).astype(np.uint64)
    ones, last_rank = np.uint64(2**64 - 1), np.uint64(56)
    for side in range(2):
        rooks = reversed_[:, side] | (reversed_[:, side + 2] << last_rank)
        words[:, STORED + side] = np.where(plain, ones, rooks)
    words[:, 106:108] = np.where(plain[:, None], ones, np.uint64(0))
    words[:, 108] = np.where(canonical, reversed_[:, 4] << last_rank, ones)
    words[:, 109] = words[:, 111] = ones
    words[:, 110] = np.where((kind >= 128) & (byte[:, 6] >= 128), ones, np.uint64(0))
    fill[:, :4] = np.where(plain[:, None], table[0, byte[:, :4]], table[0, 1])
    fill[:, 4] = np.where(canonical, table[0, 1], table[0, byte[:, 4]])
    fill[:, 5] = np.where(kind > 3, table[2, byte[:, 5]], table[1, byte[:, 5]])
    return words, fill


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
    """As `expand_frames`, of compact rows. Gives -1, or the first row that is none or whose format is unknown."""
    frames = np.zeros((len(offsets) - 1, WIDTH), np.uint8)
    bad = decode_rows(values, offsets, frames)
    known = expand_known(frames[: bad if bad >= 0 else len(frames)], forced)
    if not known.all():
        return int(np.argmin(known))
    return bad if bad >= 0 else expand_frames(frames, table, forced, planes, lane, fill, policy, targets)


def check_rows(values: ByteArray, offsets: IntArray, forced: int) -> int:
    """The first row that `expand_rows` would not take, or -1."""
    none = np.zeros((0, POLICY), np.uint32)
    table = np.zeros((3, 256), np.uint32)
    return expand_rows(values, offsets, table, forced, none.view(np.uint8), 0, none, none, none)
