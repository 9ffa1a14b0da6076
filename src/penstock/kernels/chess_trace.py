# pyright: reportMissingImports=false, reportCallIssue=false
"""The compiled kernel that replays chess games (numba, GIL released, cached on disk).

The loop equals its definition, `chess_trace_reference`, on other boards: 12 words of 64 bits, as frames store them, a
bit a square. A few operations on these words find and check a usual move. All other moves (castling, en passant,
promotions, turned boards, anything wrong) go to the compiled definition, on boards of 64 squares. Results are equal to
the definition's. The caller owns all arrays.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from penstock.kernels import chess_rescore_reference, chess_trace_reference
from penstock.kernels.chess_lanes import load8, lowest, ones
from penstock.kernels.chess_trace_reference import FROM, INDEX, PROMOTES, TO
from penstock.kernels.jit import helper, kernel, uncounted_helper, uncounted_kernel

# All but these make no arrays, and so need not count references to them.
_MAKE_ARRAYS = ("play", "turn_policies")
KERNELS = ("called_for", "complete", "lacks_short_term", "short_term", "deblunder", "encode_rest", "turn_policies")


def _compiled(*modules: ModuleType) -> dict[str, Any]:
    """The functions of these modules, compiled, and each calling the others as compiled."""
    scope: dict[str, Any] = {}
    for module in modules:
        scope.update(vars(module))
    for name, value in list(scope.items()):
        if isinstance(value, FunctionType) and value.__module__ in {module.__name__ for module in modules}:
            counted, uncounted = (kernel, uncounted_kernel) if name in KERNELS else (helper, uncounted_helper)
            scope[name] = (counted if name in _MAKE_ARRAYS else uncounted)(FunctionType(value.__code__, scope, name))
    return scope


DEFINED = _compiled(chess_trace_reference, chess_rescore_reference)
"""The definitions of rescoring, compiled."""

_begin, _play, _read_board = (DEFINED[name] for name in ("begin", "play", "read_board"))
_transform_for, _follow = DEFINED["transform_for"], DEFINED["follow"]
_move_index, _check_index = DEFINED["move_index"], DEFINED["check_index"]

# Squares of words count files from the other end: `s ^ 7`. How pieces move is the same both ways.
_PLANES, _PAWN, _KING = 7440, 0, 5
_0, _1, _8, _16, _32 = (np.uint64(k) for k in (0, 1, 8, 16, 32))
_BYTES, _PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_ENDS, _SECOND = np.uint64(0xFF000000000000FF), np.uint64(0xFF00)
_FIRST_FILE, _LAST_FILE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_CASTLED = np.uint64(1 << (2 ^ 7) | 1 << (6 ^ 7))


def _geometry() -> tuple[Any, Any]:
    """`[6, 64]` uint64 the squares that each piece reaches on an empty board, of pawns those they attack; `[64, 64]`
    uint64 those between two on a line."""
    reach, between = np.zeros((6, 64), np.uint64), np.zeros((64, 64), np.uint64)
    for square in range(64):
        file, rank = square % 8, square // 8
        for x, y in [(x, y) for x in range(-2, 3) for y in range(-2, 3) if x or y]:
            passed = 0
            for far in range(1, 8):
                to = 8 * (rank + far * y) + file + far * x
                if not (0 <= file + far * x < 8 and 0 <= rank + far * y < 8):
                    break
                pieces = (3, 4) if x * y == 0 else (2, 4)
                pieces += (5,) if far == 1 else ()
                pieces += (0,) if far == 1 and y == 1 and x else ()
                if max(abs(x), abs(y)) == 2:
                    pieces = (1,) if abs(x * y) == 2 and far == 1 else ()
                else:
                    between[square, to] = passed
                for piece in pieces:
                    reach[piece, square] |= np.uint64(1 << to)
                passed |= 1 << to
    return reach, between


_REACH, _BETWEEN = _geometry()


@uncounted_helper
def other_side(word: Any) -> Any:
    """A word as the other side sees it."""
    word = ((word >> _8) & _BYTES) | ((word & _BYTES) << _8)
    word = ((word >> _16) & _PAIRS) | ((word & _PAIRS) << _16)
    return (word >> _32) | (word << _32)


@uncounted_helper
def squares_of(words: Any, board: Any) -> None:
    """A board of 64 squares, of words."""
    board[:] = 0
    for k in range(12):
        word = words[k]
        while word:
            board[lowest(np.int64(word)) ^ 7] = k + 1
            word &= word - _1


@uncounted_helper
def words_of(board: Any, words: Any) -> None:
    """Words, of a board of 64 squares."""
    words[:] = _0
    for square in range(64):
        if board[square]:
            words[board[square] - 1] |= _1 << np.uint64(square ^ 7)


@helper
def _read_turned(row: Any, back: Any, transform: int, words: Any) -> Any:
    board = np.empty(64, np.uint8)
    fine = _read_board(row, back, transform, board)
    words_of(board, words)
    return fine


@uncounted_helper
def _read_words(row: Any, back: Any, transform: int, words: Any) -> Any:
    """See `chess_trace_reference.read_board`."""
    if transform:
        return _read_turned(row, back, transform, words)
    base, taken, twice = np.int64(row.ctypes.data) + _PLANES, _0, _0
    for k in range(12):
        word = load8(base + 8 * k)
        words[k] = word
        twice |= taken & word
        taken |= word
    kings = ones(words[_KING]) == 1 and ones(words[6 + _KING]) == 1
    return kings and twice == _0 and (words[_PAWN] | words[6 + _PAWN]) & _ENDS == _0


@helper
def _begin_words(row: Any, words: Any, transform: int, form: int, state: Any) -> Any:
    """See `chess_trace_reference.begin`."""
    board = np.empty(64, np.uint8)
    squares_of(words, board)
    return _begin(row, board, transform, form, state)


@helper
def _transform_of_words(words: Any, state: Any, back: Any) -> Any:
    """See `chess_trace_reference.transform_for`."""
    board = np.empty(64, np.uint8)
    squares_of(words, board)
    return _transform_for(board, state, back)


@uncounted_helper
def _attacked(square: int, here: Any, gone: Any, taken: Any) -> Any:
    """Whether one of their pieces attacks a square, when our piece has gone to where it has `taken` one of theirs."""
    occupied, left = taken, ~taken
    for k in range(12):
        occupied |= here[k] & ~gone
    near = (_REACH[0, square] & here[6]) | (_REACH[1, square] & here[7]) | (_REACH[5, square] & here[11])
    if near & left:
        return True
    far = ((_REACH[2, square] & (here[8] | here[10])) | (_REACH[3, square] & (here[9] | here[10]))) & left
    while far:
        if _BETWEEN[square, lowest(np.int64(far))] & occupied == _0:
            return True
        far &= far - _1
    return False


@uncounted_helper
def _moves_so(piece: int, gone: Any, come: Any, ours: Any, theirs: Any) -> Any:
    """Whether the piece may go from one square to another, but for checks, castling, en passant and promotion."""
    source, takes, occupied = lowest(np.int64(gone)), theirs & come != _0, ours | theirs
    if piece != _PAWN or takes:
        between = _BETWEEN[source, lowest(np.int64(come))] & occupied
        return _REACH[piece, source] & come != _0 and between == _0
    ahead = gone << _8
    return come == ahead or (come == ahead << _8 and gone & _SECOND != _0 and ahead & occupied == _0)


@uncounted_helper
def _usual_move(here: Any, there: Any, state: Any, next_state: Any) -> Any:
    """Whether one of our pieces has gone to another square, as it may, and nothing else has changed but that it took
    what stood there. Only then the states are written."""
    ours, theirs, after = _0, _0, _0
    for k in range(6):
        ours, theirs, after = ours | here[k], theirs | here[6 + k], after | there[6 + k]
    after = other_side(after)
    gone, come, piece = ours & ~after, after & ~ours, 0
    if ones(gone) != 1 or ones(come) != 1:
        return False
    for k in range(6):
        kept = here[k]
        if kept & gone:
            piece, kept = k, kept ^ gone ^ come
        if other_side(there[6 + k]) != kept or other_side(there[k]) != here[6 + k] & ~come:
            return False
    if (state[0] >= 0 or state[1] >= 0) and (piece == _KING or here[_KING] & _CASTLED):
        return False
    king = lowest(np.int64(other_side(there[6 + _KING])))
    if not _moves_so(piece, gone, come, ours, theirs) or _attacked(king, here, gone, come):
        return False
    state[FROM], state[TO] = lowest(np.int64(gone)) ^ 7, lowest(np.int64(come)) ^ 7
    state[PROMOTES] = 0
    beside = ((come & ~_LAST_FILE) << _1) | ((come & ~_FIRST_FILE) >> _1)
    _follow(state, piece + 1, theirs & come != _0, here[6] & beside != _0, next_state)
    return True


@helper
def _play_unusual(
    row: Any, policy: Any, here: Any, there: Any, state: Any, next_state: Any, index: Any, turns: Any
) -> Any:
    board, next_board = np.empty(64, np.uint8), np.empty(64, np.uint8)
    squares_of(here, board)
    squares_of(there, next_board)
    return _play(row, policy, board, next_board, state, next_state, index, turns)


@uncounted_helper
def _play_words(
    row: Any, policy: Any, here: Any, there: Any, state: Any, next_state: Any, index: Any, turns: Any
) -> Any:
    """See `chess_trace_reference.play`."""
    if not _usual_move(here, there, state, next_state):
        return _play_unusual(row, policy, here, there, state, next_state, index, turns)
    state[INDEX] = _move_index(state, index, turns)
    return _check_index(row, policy, state)


_ON_WORDS = {
    **DEFINED,
    "read_board": _read_words,
    "begin": _begin_words,
    "transform_for": _transform_of_words,
    "play": _play_words,
}
read_words: Any = uncounted_helper(FunctionType(chess_trace_reference.read_frame.__code__, _ON_WORDS, "read_frame"))
"""`chess_trace_reference.read_frame` and `replay_frame`, on boards `[n, 12]` uint64."""
replay_words: Any = uncounted_helper(
    FunctionType(chess_trace_reference.replay_frame.__code__, _ON_WORDS, "replay_frame")
)


@kernel
def trace(rows: Any, policy: Any, index: Any, back: Any, turns: Any, boards: Any, states: Any, faults: Any) -> None:
    """See `chess_trace_reference.trace`."""
    words, start = np.empty((len(rows), 12), np.uint64), 0
    for i in range(len(rows)):
        read_words(rows, back, words, states, faults, i)
        squares_of(words[i], boards[i])
    for i in range(len(rows)):
        start = replay_words(rows, policy, index, back, turns, words, states, faults, i, start)
