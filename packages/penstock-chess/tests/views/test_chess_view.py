"""The board before each move, and what becomes a curve, on the page of a game."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import chess
import pytest

import penstock
from penstock_chess.views import VIEW

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"


@pytest.mark.parametrize("name", ["gz", "v7", "old", "endings", "tar"])
def test_boards_follow_from_moves_by_the_rules_of_chess(name: str) -> None:
    with penstock.open(GOLDEN / "lc0" / name) as data:
        view = VIEW.of(data)
        assert view is not None
        for e in range(len(data)):
            game = view.contents(int(data.episodes.index[e]))
            assert len(game["boards"]) == len(game["moves"]) == data.episodes.length[e]
            board = placed(game["boards"][0], game["turns"][0])
            for i, (text, squares) in enumerate(zip(game["moves"], game["squares"], strict=True)):
                letters = "".join(piece.symbol() if (piece := board.piece_at(s)) else "." for s in chess.SQUARES)
                assert game["boards"][i] == letters, (e, i)
                assert game["turns"][i] == ("white" if board.turn else "black")
                if not text:
                    continue
                promotion = chess.PIECE_SYMBOLS.index(text[-1].lower()) if "=" in text else None
                move = next(
                    m for m in board.legal_moves if [m.from_square, m.to_square] == squares and _of(m, promotion)
                )
                assert ("x" in text) == board.is_capture(move)
                assert text.startswith("O-O") == board.is_castling(move)
                board.push(move)


def _of(move: chess.Move, promotion: int | None) -> bool:
    return move.promotion == promotion or (promotion is None and move.promotion == chess.KNIGHT)


def placed(letters: str, turn: str) -> chess.Board:
    board = chess.Board(None)
    for square, letter in enumerate(letters):
        if letter != ".":
            board.set_piece_at(square, chess.Piece.from_symbol(letter))
    board.turn = turn == "white"
    board.castling_rights = chess.BB_A1 | chess.BB_H1 | chess.BB_A8 | chess.BB_H8
    return board


def test_planes_are_no_curves_and_other_data_have_no_board() -> None:
    with penstock.open(GOLDEN / "lc0" / "gz") as data:
        view = VIEW.of(data)
        assert view is not None
        assert (view.rate, len(view.array(0))) == (2.0, 0)
        curves = {path for path, field in data.spec.items() if view.is_curve(field)}
        assert curves == {path for path, field in data.spec.items() if field.shape == ()} != set(data.spec)
    assert VIEW.of(penstock.from_arrays({"rewards": [0.0]}, lengths=[1])) is None
