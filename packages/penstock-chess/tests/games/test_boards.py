"""Games replayed: against python-chess on real games and on games of random moves."""

from __future__ import annotations

from typing import Any

import chess
import numpy as np
import pytest

from penstock.errors import DataError
from penstock_chess.boards import as_frames, chess_board, replay
from penstock_chess.formats.lc0 import FRAME
from penstock_chess.kernels.layout import FROM, PROMOTES, TO
from penstock_chess.moves import MOVES
from penstock_chess.validate import EVERY, validate

PROMOTING = chess.Board("8/P2k2P1/8/8/8/8/1p1K2p1/8 w - - 0 1")
PASSING = chess.Board("4k3/1p1p1p1p/8/P1P1P1P1/p1p1p1p1/8/1P1P1P1P/4K3 w - - 0 1")
SHUFFLED = (12, 518, 800)  # numbers of starting positions: 518 is the usual one

STARTS = {
    "usual": chess.Board(chess960=True),
    "promoting": PROMOTING,
    "passing": PASSING,
    "few": chess.Board("8/8/3k4/8/8/2R5/8/K7 b - - 3 30"),
    **{f"shuffled {n}": chess.Board.from_chess960_pos(n) for n in SHUFFLED},
}


def legal(row: Any) -> set[str]:
    return {MOVES[i] for i in np.flatnonzero(row["probabilities"] >= 0)}


def named(board: chess.Board, move: chess.Move) -> str:
    text = board.copy().uci(move, chess960=True)
    files = str.maketrans("12345678", "87654321") if not board.turn else {}
    return text.translate(files).removesuffix("n")


@pytest.mark.parametrize("name", ["gz/training.700001.gz", "gz/training.700027.gz", "endings/training.700162.gz"])
def test_real_games_are_what_python_chess_makes_of_their_moves(frames: Any, name: str) -> None:
    rows = frames(name)
    game, records = replay(rows), rows.view(FRAME)[:, 0]
    board = chess.Board(f"{chess_board(game, 0).board_fen()} w KQkq - 0 1")
    for i in range(len(game)):
        told = board.board_fen() if board.turn else board.mirror().board_fen()
        assert chess_board(game, i).board_fen() == told
        assert game.black[i] == (board.turn == chess.BLACK)
        assert game.clock[i] == board.halfmove_clock
        assert game.castles[i] == bool(board.castling_rights)
        assert game.seen[i] == board_repeats(board)
        assert legal(records[i]) == {named(board, move) for move in board.legal_moves}
        if i + 1 < len(game):
            wanted = {named(board, move): move for move in board.legal_moves}
            assert game.played[i] == records["played_idx"][i]
            board.push(wanted[MOVES[game.played[i]]])


def board_repeats(board: chess.Board) -> int:
    """How often the position was there before."""
    here, back, count = board._transposition_key(), board.copy(), 0
    for _ in range(board.halfmove_clock):
        back.pop()
        count += back._transposition_key() == here
    return count


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("start", STARTS)
def test_random_games_are_understood(played: Any, start: str, seed: int) -> None:
    rows, moves, boards = played(STARTS[start], 200, seed)
    if start.startswith("shuffled"):
        rows, moves, boards = until_told_apart(rows, moves, boards)
    game = replay(rows)
    assert np.array_equal(game.played[:-1], moves[:-1])
    assert validate(rows).first(EVERY) is None
    assert [chess_board(game, i).board_fen() for i in range(len(game))] == [
        b.board_fen() if b.turn else b.mirror().board_fen() for b in boards
    ]


def until_told_apart(rows: Any, moves: Any, boards: Any) -> Any:
    """Format 1 does not tell which rook may castle: up to where it is not the outermost."""
    for i, board in enumerate(boards):
        for color in chess.COLORS:
            rank = chess.BB_RANK_1 if color else chess.BB_RANK_8
            rooks = list(chess.SquareSet(board.rooks & board.occupied_co[color] & rank))
            if (
                any(
                    square not in (min(rooks, default=0), max(rooks, default=0))
                    for square in chess.SquareSet(board.castling_rights & rank)
                )
                or len(rooks) > 2
            ):
                return rows[:i], moves[:i], boards[:i]
    return rows, moves, boards


def test_the_random_games_have_what_games_can_have(played: Any) -> None:
    kinds: set[str] = set()
    for seed in range(3):
        for start in ("usual", "promoting", "passing", "few", "shuffled 12"):
            rows, _, boards = played(STARTS[start], 200, seed)
            game = replay(rows)
            kinds |= {"again"} if game.seen.any() else set()
            for i, board in enumerate(boards[:-1]):
                source, to, promotes = game.states[i, [FROM, TO, PROMOTES]].tolist()
                if not board.turn:
                    source, to = chess.square_mirror(source), chess.square_mirror(to)
                move = chess.Move(source, to, promotes or None)
                kinds |= {f"becomes {promotes}"} if promotes else set()
                kinds |= {"castling"} if board.is_castling(move) else set()
                kinds |= {"en passant"} if board.is_en_passant(move) else set()
    assert kinds == {"again", "castling", "en passant", *(f"becomes {piece}" for piece in range(2, 6))}


def test_boards_of_python_chess_have_the_same_moves(played: Any) -> None:
    rows, _, boards = played(PASSING, 60, 4)
    game = replay(rows)
    for i, board in enumerate(boards):
        ours = chess_board(game, i)
        assert {named(ours, move) for move in ours.legal_moves} == {named(board, move) for move in board.legal_moves}
        assert ours.halfmove_clock == board.halfmove_clock


def test_frames_at_odd_addresses_and_in_steps_are_the_same(frames: Any) -> None:
    rows = frames("gz/training.700027.gz")
    odd = np.zeros(rows.size + 1, np.uint8)[1:].reshape(rows.shape)
    odd[:] = rows
    wide = np.repeat(rows, 2, axis=0)[::2]
    for other in (odd, wide):
        assert as_frames(other).ctypes.data % 4 == 0
        assert np.array_equal(replay(other).states, replay(rows).states)


@pytest.mark.parametrize("wrong", [np.zeros((2, 8356), np.uint8), np.zeros(8396, np.uint8), np.zeros((2, 8396))])
def test_other_arrays_are_refused(wrong: Any) -> None:
    with pytest.raises(DataError, match="expected frames"):
        replay(wrong)


def test_no_frames_are_no_game() -> None:
    assert len(replay(np.zeros((0, 8396), np.uint8))) == 0
