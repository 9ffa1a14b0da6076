"""The moves of a policy against python-chess, which knows nothing of ours, and what turning the board does to them."""

from __future__ import annotations

import chess
import numpy as np
import pytest

from penstock.errors import DataError
from penstock_chess.moves import FLIP, MIRROR, MOVES, TRANSPOSE, policy_index, squares, turned


def test_every_move_of_queens_and_knights_and_every_promotion_has_one_place() -> None:
    expected: set[str] = set()
    for source in chess.SQUARES:
        for piece in (chess.QUEEN, chess.KNIGHT):
            board = chess.Board(None)
            board.set_piece_at(source, chess.Piece(piece, chess.WHITE))
            expected |= {chess.square_name(source) + chess.square_name(to) for to in board.attacks(source)}
    for file in range(8):
        for to in range(max(file - 1, 0), min(file + 2, 8)):
            move = chess.square_name(48 + file) + chess.square_name(56 + to)
            expected |= {move + piece for piece in "qrb"}
    assert len(MOVES) == 1858
    assert set(MOVES) == expected


@pytest.mark.parametrize(
    ("index", "move"), [(0, "a1b1"), (103, "e1h1"), (264, "c2c4"), (322, "e2e4"), (1792, "a7a8q"), (1857, "h7h8b")]
)
def test_places_are_those_of_the_original(index: int, move: str) -> None:
    assert MOVES[index] == move


def test_the_table_finds_each_move() -> None:
    table = policy_index()
    assert np.count_nonzero(table >= 0) == 1858
    assert table[0, chess.B1, chess.C3] == MOVES.index("b1c3")
    assert table[2, chess.A7, chess.B8] == MOVES.index("a7b8r")
    assert table[0, chess.A1, chess.B4] == -1


def test_a_transform_takes_files_then_ranks_then_the_diagonal() -> None:
    there = squares()
    assert there[FLIP, chess.A1] == chess.H1
    assert there[MIRROR, chess.A1] == chess.A8
    assert there[TRANSPOSE, chess.A1] == chess.H8
    assert there[TRANSPOSE, chess.H1] == chess.H1
    assert there[FLIP | TRANSPOSE, chess.A1] == chess.H1
    for transform in range(8):
        assert sorted(there[transform].tolist()) == list(range(64))
        last = np.arange(64)
        for bit in (FLIP, MIRROR, TRANSPOSE):
            last = there[bit][last] if transform & bit else last
        assert np.array_equal(last, there[transform])


def test_flips_keep_every_move_and_the_diagonal_all_but_promotions() -> None:
    for transform in range(8):
        to = turned()[transform]
        assert len(set(to[:1792].tolist()) - {-1}) == 1792
        assert np.all((to[:1792] >= 0) & (to[:1792] < 1792))
        for index in (5, 700, 1500):
            assert MOVES[to[index]][:2] == chess.square_name(
                int(squares()[transform, chess.parse_square(MOVES[index][:2])])
            )
    assert np.array_equal(turned()[FLIP][turned()[FLIP]], np.arange(1858))


def test_a_rotation_is_another_thing_only_where_there_is_a_diagonal() -> None:
    for transform in range(8):
        same = np.array_equal(squares("rotation")[transform], squares()[transform])
        assert same == (transform < TRANSPOSE)
    assert squares("rotation")[TRANSPOSE, chess.A2] == chess.H7


def test_another_word_is_refused() -> None:
    with pytest.raises(DataError, match="expected transposition"):
        squares("sideways")  # type: ignore[arg-type]
