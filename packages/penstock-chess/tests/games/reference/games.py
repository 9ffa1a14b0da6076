"""Replay a game from its frames, on boards of 64 squares in plain Python: the kernel in `games` must equal this.

A board is `[64]` uint8, square `8 * rank + file`, seen by the side to move: 0 empty, 1 to 6 its pawn, knight, bishop,
rook, queen and king, 7 to 12 the other side's. States and faults are those of the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock_chess.kernels.faults import FAULTS
from penstock_chess.kernels.layout import (
    BLACK,
    CASTLE,
    CLOCK,
    EN_PASSANT,
    FROM,
    INDEX,
    PROMOTES,
    SEEN,
    STATE,
    TO,
    TRANSFORM,
)


def _bit(name: str) -> int:
    return 1 << FAULTS.index(name)


_CASTLING, _BOARD, _CONTINUITY, _UNKNOWN = (_bit(name) for name in ("castling", "board", "continuity", "move_unknown"))
_ILLEGAL, _OTHER, _UNMARKED = _bit("move_illegal"), _bit("move_other"), _bit("move_unmarked")
_RIGHTS, _CLOCK, _TURN, _PASSING = _bit("rights"), _bit("clock"), _bit("turn"), _bit("en_passant")
_AGAIN, _TURNED = _bit("repetition"), _bit("transform")

# Where a record has its fields.
_PLANES, _RIGHTS_AT, _SIDE_AT, _CLOCK_AT, _INFO_AT, _VISITS_AT, _PLAYED_AT = 7440, 8272, 8276, 8277, 8278, 8340, 8344
_RAYS = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
_LEAPS = ((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1))


def format_of(row: Any) -> int:
    """The input format of a frame `[8396]` uint8; 0 where it is no small number."""
    return row[4] + 0 if row[5] == 0 and row[6] == 0 and row[7] == 0 else 0


def exchanged(piece: int) -> int:
    """The same piece, seen by the other side."""
    if piece == 0:
        return 0
    return piece + 6 if piece <= 6 else piece - 6


def read_board(row: Any, back: Any, transform: int, board: Any) -> bool:
    """Fill a board from the newest planes of a frame; `back[8, 64]` undoes transforms. Whether it is a position: a king
    a side, no square taken twice, no pawn on the first or last rank."""
    for square in range(64):
        board[square] = 0
    fine = True
    for plane in range(12):
        for rank in range(8):
            bits = row[_PLANES + 8 * plane + rank]
            if bits == 0:
                continue
            for file in range(8):
                if bits & (128 >> file):
                    square = back[transform, 8 * rank + file]
                    fine = fine and board[square] == 0
                    board[square] = plane + 1
    ours = theirs = astray = 0
    for square in range(64):
        ours += board[square] == 6
        theirs += board[square] == 12
    for file in range(8):
        astray += board[file] in (1, 7) or board[56 + file] in (1, 7)
    return fine and ours == 1 and theirs == 1 and astray == 0


def equal(board: Any, other: Any) -> bool:
    """Whether two boards are the same."""
    changed = 0
    for k in range(len(board)):
        changed += board[k] != other[k]
    return changed == 0


def find(board: Any, piece: int) -> int:
    """The first square of a piece, or -1."""
    for square in range(64):
        if board[square] == piece:
            return square
    return -1


def attacked(board: Any, square: int) -> bool:
    """Whether a piece of the other side attacks a square."""
    file, rank = square % 8, square // 8
    for x, y in _LEAPS:
        if 0 <= file + x < 8 and 0 <= rank + y < 8 and board[square + 8 * y + x] == 8:
            return True
    for x, y in _RAYS:
        to_file, to_rank, steps = file + x, rank + y, 1
        while 0 <= to_file < 8 and 0 <= to_rank < 8:
            piece = board[8 * to_rank + to_file]
            if piece != 0:
                near = steps == 1 and (piece == 12 or (piece == 7 and y == 1 and x != 0))
                if near or piece == 11 or piece == (10 if x * y == 0 else 9):
                    return True
                break
            to_file, to_rank, steps = to_file + x, to_rank + y, steps + 1
    return False


def clear(board: Any, source: int, step: int, far: int) -> bool:
    """Whether nothing stands on the squares between, `far - 1` of them."""
    pieces = 0
    for k in range(1, far):
        pieces += board[source + k * step] != 0
    return pieces == 0


def pawn_moves_so(board: Any, passing: int, source: int, to: int) -> bool:
    """Whether a pawn may move so; `passing` is the file to be taken en passant."""
    x, y, free = to % 8 - source % 8, to // 8 - source // 8, board[to] == 0
    if x == 0:
        return free and (y == 1 or (y == 2 and source // 8 == 1 and board[source + 8] == 0))
    return abs(x) == 1 and y == 1 and (not free or (to // 8 == 5 and to % 8 == passing))


def moves_so(board: Any, passing: int, source: int, to: int, promotes: int) -> bool:
    """Whether a piece may move so, but for checks and castling."""
    piece, target = board[source], board[to]
    must = piece == 1 and to // 8 == 7
    if not 1 <= piece <= 6 or 1 <= target <= 6 or target == 12 or (promotes != 0) != must:
        return False
    if piece == 1:
        return pawn_moves_so(board, passing, source, to)
    x, y = to % 8 - source % 8, to // 8 - source // 8
    far = max(abs(x), abs(y))
    if piece in (2, 6):
        return abs(x * y) == 2 if piece == 2 else far == 1
    line = (x * y == 0 and piece != 3) or (abs(x) == abs(y) and piece != 4)
    return far > 0 and line and clear(board, source, 8 * (y // far) + x // far, far)


def may_castle(board: Any, king: int, rook: int) -> bool:
    """Whether nothing stands between, and nothing attacks the king on its way; its goal is looked at afterwards."""
    king_to, rook_to = (6, 5) if rook > king else (2, 3)
    for file in range(min(king, rook, king_to, rook_to), max(king, rook, king_to, rook_to) + 1):
        if file not in (king, rook) and board[file] != 0:
            return False
    step = 1 if king_to > king else -1
    for file in range(king, king_to, step):
        if attacked(board, file):
            return False
    return not (king == king_to and attacked(board, king))


def castles(board: Any, after: Any, state: Any, side: int) -> bool:
    """Whether castling with the rook of `state[side]` makes `after`, both seen by the side that moves."""
    king, rook = find(board, 6), state[CASTLE + side]
    king_to, rook_to = (2, 3) if side == 0 else (6, 5)
    if rook < 0 or king >= 8 or after[king_to] != 6 or after[rook_to] != 4:
        return False
    free = board[rook_to] == 0 or rook_to in (king, rook)
    return free and (board[king_to] == 0 or king_to in (king, rook))


def find_move(board: Any, after: Any, state: Any) -> bool:
    """Write the move that leads from `board` to `after`, both seen by the side that moves, into the state before it."""
    state[PROMOTES] = 0
    for side in range(2):
        if castles(board, after, state, side):
            state[FROM], state[TO] = find(board, 6), state[CASTLE + side]
            return True
    left = come = 0
    for square in range(64):
        if board[square] == after[square]:
            continue
        if 1 <= after[square] <= 6:
            come, state[TO] = come + 1, square
        elif 1 <= board[square] <= 6:
            left, state[FROM] = left + 1, square
    if left != 1 or come != 1:
        state[FROM] = state[TO] = -1
        return False
    piece, becomes = board[state[FROM]], after[state[TO]]
    if piece == 1 and becomes != 1:
        state[PROMOTES] = becomes
        return 2 <= becomes <= 5
    return piece == becomes


def make_move(board: Any, state: Any, moved: Any, next_state: Any) -> None:
    """The position after the move of `state` into `moved`, seen by the side that moves, and `next_state`."""
    source, to, promotes = state[FROM], state[TO], state[PROMOTES]
    for square in range(64):
        moved[square] = board[square]
    piece = board[source]
    castling = piece == 6 and board[to] == 4
    moved[source] = 0
    if castling:
        moved[to] = 0
        moved[6 if to > source else 2], moved[5 if to > source else 3] = 6, 4
    else:
        moved[to] = piece if promotes == 0 else promotes
    if piece == 1 and source % 8 != to % 8 and board[to] == 0 and to >= 8:
        moved[to - 8] = 0
    file = to % 8
    beside = (file > 0 and board[to - 1] == 7) or (file < 7 and board[to + 1] == 7)
    follow(state, piece, board[to] != 0 and not castling, beside, next_state)


def follow(state: Any, piece: int, takes: bool, beside: bool, next_state: Any) -> None:
    """The state after the move of `state`, which a `piece` makes; `beside` says whether one of their pawns stands
    on a neighbouring square of the destination."""
    source, to = state[FROM], state[TO]
    for k in range(4):
        next_state[CASTLE + (k ^ 2)] = state[CASTLE + k]
    for side in range(2):
        if piece == 6 or source == state[CASTLE + side]:
            next_state[CASTLE + 2 + side] = -1
        if state[CASTLE + 2 + side] >= 0 and to == 56 + state[CASTLE + 2 + side]:
            next_state[CASTLE + side] = -1
    next_state[EN_PASSANT] = to % 8 if piece == 1 and to - source == 16 and beside else -1
    next_state[CLOCK] = 0 if piece == 1 or takes else state[CLOCK] + 1
    next_state[BLACK] = 1 - state[BLACK]


def rook_of(board: Any, side: int, told: int, classical: bool) -> int:
    """The file of the rook that right `side` is about: the bit of its mask, or in the classical format the outermost
    rook; -1 where the board has none that could castle."""
    rank = 0 if side < 2 else 56
    king, rook = find(board, 6 if side < 2 else 12) - rank, 4 if side < 2 else 10
    if not 0 <= king < 8:
        return -1
    for k in range(8):
        file = k if side % 2 == 0 else 7 - k
        beside = file < king if side % 2 == 0 else file > king
        if beside and board[rank + file] == rook and (classical or told == 1 << file):
            return file
    return -1


def passing_of(row: Any, board: Any, transform: int, canonical: bool) -> int:
    """Return the file that may be taken en passant: stored in canonical formats, else found in the past; or -1."""
    file = -1
    for k in range(8):
        if canonical:
            if row[_SIDE_AT] & (1 << k):
                file = 7 - k if transform & 1 else k
        else:
            here = _PLANES + 8 * 6
            gone = row[here + 13 * 8 + 6] & (255 - row[here + 6])
            came = row[here + 4] & (255 - row[here + 13 * 8 + 4])
            if gone == 128 >> k and came == gone and pawn_moved_alone(row):
                file = k
    if file >= 0 and (board[32 + file] != 7 or board[40 + file] != 0 or board[48 + file] != 0):
        return -1
    return file


def pawn_moved_alone(row: Any) -> bool:
    """Whether their pawns of the two newest positions differ in two squares."""
    squares = 0
    for rank in range(8):
        at = _PLANES + 8 * 6 + rank
        changed = row[at] ^ row[at + 13 * 8]
        for k in range(8):
            squares += 1 if changed & (1 << k) else 0
    return squares == 2


def begin(row: Any, board: Any, transform: int, form: int, state: Any) -> int:
    """The state that a frame itself tells. Gives its faults."""
    faults = 0
    for side in range(4):
        told = row[_RIGHTS_AT + side] + 0
        state[CASTLE + side] = rook_of(board, side, told, form == 1) if told else -1
        if told and state[CASTLE + side] < 0:
            faults |= _CASTLING
    state[EN_PASSANT] = passing_of(row, board, transform, form >= 3)
    if form >= 3 and state[EN_PASSANT] < 0 and row[_SIDE_AT] != 0:
        faults |= _PASSING
    state[CLOCK] = row[_CLOCK_AT]
    state[SEEN] = 0
    state[BLACK] = row[_INFO_AT] >> 7 if form >= 3 else row[_SIDE_AT] != 0
    return faults


def differs(row: Any, transform: int, form: int, state: Any, since: int) -> int:
    """The faults of a frame whose state follows from the frames before it, `since` plies of them."""
    faults = 0
    for side in range(4):
        file = state[CASTLE + side]
        wanted = 0 if file < 0 else (1 if form == 1 else 1 << file)
        if row[_RIGHTS_AT + side] != wanted:
            faults |= _RIGHTS
    if row[_CLOCK_AT] != state[CLOCK]:
        faults |= _CLOCK
    if (row[_INFO_AT] >> 7 if form >= 3 else row[_SIDE_AT] + 0) != state[BLACK]:
        faults |= _TURN
    if form >= 3:
        file = state[EN_PASSANT]
        wanted = 0 if file < 0 else (1 << (7 - file if transform & 1 else file))
        if row[_SIDE_AT] != wanted:
            faults |= _PASSING
    again = row[_PLANES + 8 * 12] != 0
    if (state[SEEN] > 0 and not again) or (again and state[SEEN] == 0 and state[CLOCK] <= since):
        faults |= _AGAIN
    return faults


def occurrences(boards: Any, states: Any, i: int, start: int) -> int:
    """How often position `i` has been before, looking back to frame `start`."""
    if states[i, CLOCK] < 4:
        return 0
    j = i - 4
    while j >= start:
        same = equal(boards[i], boards[j])
        for k in range(5):
            same = same and states[i, k] == states[j, k]
        if same:
            return states[j, SEEN] + 1
        if states[j, CLOCK] < 2:
            return 0
        j -= 2
    return 0


def later(board: Any, there: Any, transform: int, kind: int) -> int:
    """-1, 0 or 1: how the squares of a kind of piece compare with the same squares transposed, as numbers."""
    for square in range(63, -1, -1):
        other = 8 * (7 - square % 8) + 7 - square // 8
        one = of_kind(board[there[transform, square]], kind)
        two = of_kind(board[there[transform, other]], kind)
        if one != two:
            return 1 if one else -1
    return 0


def of_kind(piece: int, kind: int) -> bool:
    """Kinds: -1 any piece, 0 ours, 2 to 6 knights to kings of either side."""
    if kind < 0:
        return piece != 0
    if kind == 0:
        return 1 <= piece <= 6
    return piece != 0 and (piece - 1) % 6 + 1 == kind


def transform_for(board: Any, state: Any, back: Any) -> int:
    """The transform that canonical formats give a position; `back[8, 64]` undoes transforms."""
    for side in range(4):
        if state[CASTLE + side] >= 0:
            return 0
    king = find(board, 6)
    file, rank = king % 8, king // 8
    transform = 1 if file < 4 else 0
    for square in range(64):
        if board[square] in (1, 7):
            return transform
    file = 7 - file if file < 4 else file
    if rank >= 4:
        transform, rank = transform + 2, 7 - rank
    if rank > 7 - file:
        return transform + 4
    if rank == 7 - file:
        for kind in (-1, 0, 6, 5, 4, 2, 3):
            order = later(board, back, transform, kind)
            if order != 0:
                return transform + 4 if order > 0 else transform
    return transform


def move_index(state: Any, index: Any, turns: Any) -> int:
    """The index in the policy of the move of a state; see `trace`."""
    promotes = state[PROMOTES]
    row = 6 - promotes if promotes > 2 else 0
    return index[row, turns[state[TRANSFORM], state[FROM]], turns[state[TRANSFORM], state[TO]]]


def check_index(row: Any, policy: Any, state: Any) -> int:
    """The faults of the index of the move of a state: none, another than the frame tells, or one marked as illegal."""
    faults, told = 0, row[_PLAYED_AT] + 256 * np.int64(row[_PLAYED_AT + 1])
    visited = row[_VISITS_AT] | row[_VISITS_AT + 1] | row[_VISITS_AT + 2] | row[_VISITS_AT + 3]
    if visited != 0 and told != state[INDEX]:
        faults |= _OTHER
    if state[INDEX] < 0:
        return faults | _ILLEGAL | _UNMARKED
    return faults if policy[state[INDEX]] >= 0 or row[_INFO_AT] & 64 else faults | _UNMARKED


def legal(board: Any, state: Any, moved: Any) -> bool:
    """Whether the rules allow the move of a state, after which the board is `moved`, seen by the side that moves."""
    if board[state[FROM]] == 6 and board[state[TO]] == 4:
        fine = may_castle(board, state[FROM], state[TO])
    else:
        fine = moves_so(board, state[EN_PASSANT], state[FROM], state[TO], state[PROMOTES])
    return fine and not attacked(moved, find(moved, 6))


def play(
    row: Any, policy: Any, board: Any, next_board: Any, state: Any, next_state: Any, index: Any, turns: Any
) -> int:
    """Write the move that leads from a position to the next into its state, and what follows from it into the next
    state. Gives its faults."""
    moved, after = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    for square in range(64):
        after[square] = exchanged(next_board[square ^ 56])
    if not find_move(board, after, state):
        state[FROM] = state[TO] = -1
        return _UNKNOWN
    make_move(board, state, moved, next_state)
    state[INDEX] = move_index(state, index, turns)
    faults = check_index(row, policy, state)
    faults |= 0 if legal(board, state, moved) else _ILLEGAL
    return faults if equal(moved, after) else faults | _CONTINUITY


def read_frame(rows: Any, back: Any, boards: Any, states: Any, faults: Any, i: int) -> None:
    """Read the board of frame `i`, and forget its state."""
    states[i, :] = -1
    states[i, TRANSFORM] = rows[i, _INFO_AT] & 7 if format_of(rows[i]) >= 3 else 0
    if not read_board(rows[i], back, states[i, TRANSFORM], boards[i]):
        faults[i] |= _BOARD


def replay_frame(
    rows: Any, policy: Any, index: Any, back: Any, turns: Any, boards: Any, states: Any, faults: Any, i: int, start: int
) -> int:
    """Find the state and the move of frame `i` of a game that begins with frame `start`, once it and the next are read.
    Gives the frame with which the game of the next one begins."""
    row, state, form = rows[i], states[i], format_of(rows[i])
    if faults[i] & _BOARD:
        return i + 1
    if i == start:
        faults[i] |= begin(row, boards[i], state[TRANSFORM], form, state)
    else:
        state[SEEN] = occurrences(boards, states, i, start)
        faults[i] |= differs(row, state[TRANSFORM], form, state, i - start)
    if form >= 3 and transform_for(boards[i], state, back) != state[TRANSFORM]:
        faults[i] |= _TURNED
    if i + 1 == len(rows) or faults[i + 1] & _BOARD:
        return start
    found = play(row, policy[i], boards[i], boards[i + 1], state, states[i + 1], index, turns)
    faults[i] |= found
    return i + 1 if found & (_UNKNOWN | _CONTINUITY) else start


def inspect(rows: Any, index: Any, back: Any, turns: Any) -> tuple[Any, Any, Any]:
    """Return boards `[n, 64]`, states `[n, 13]` and faults `[n]` of frames `[n, 8396]`, without faults of values.

    Where a frame does not follow from the one before it, a new game begins there.
    """
    n, start = len(rows), 0
    boards, states, faults = np.empty((n, 64), np.uint8), np.empty((n, STATE), np.int64), np.zeros(n, np.int64)
    policy = rows.view(np.float32)[:, 2:]
    for i in range(n):
        read_frame(rows, back, boards, states, faults, i)
    for i in range(n):
        start = replay_frame(rows, policy, index, back, turns, boards, states, faults, i, start)
    return boards, states, faults
