"""Input formats: byte for byte what the original tool makes, from any of them to any other."""

from __future__ import annotations

from typing import Any

import chess
import numpy as np
import pytest

from games.reference import rescoring as reference
from penstock.errors import DataError, FormatError
from penstock_chess.boards import replay
from penstock_chess.convert import convert
from penstock_chess.formats.lc0 import FRAME, open_chunks
from penstock_chess.formats.lc0.records import INPUT_FORMATS
from penstock_chess.kernels.conversion import encode_planes
from penstock_chess.moves import FLIP, MOVES, TRANSPOSE, squares, turned
from penstock_chess.validate import EVERY, Fault, validate

ENDING = chess.Board("8/5k2/8/8/8/1R6/8/1K6 w - - 0 1")


@pytest.fixture(scope="module")
def original(golden: Any) -> Any:
    """`original(name, form)`: a game in an input format, as the originals wrote it."""

    def read(name: str, form: int) -> Any:
        if form > 1:
            chunks = open_chunks(golden / f"formats/fmt{form}_{name}")
            assert chunks is not None
            return chunks.load(0)
        chunks = open_chunks(golden / "tar/training-run1-test80-20240101-0042.tar")
        assert chunks is not None
        at = [i for i in range(len(chunks)) if str(chunks.name(i)).endswith(name)]
        return chunks.load(at[0])

    return read


@pytest.mark.parametrize("name", ["training.700000.gz", "training.700028.gz"])
@pytest.mark.parametrize("form", INPUT_FORMATS)
def test_any_format_becomes_any_other(original: Any, name: str, form: int) -> None:
    wanted = original(name, form)
    for source in INPUT_FORMATS:
        assert np.array_equal(convert(original(name, source), form), wanted), (source, form)


@pytest.mark.parametrize("form", [1, 2, 3, 5, 133])
def test_planes_are_those_of_the_reference(played: Any, form: int) -> None:
    rows, _, _ = played(chess.Board(chess960=True), 60, 3)
    game, transforms = replay(rows), np.arange(len(rows)) % 8
    ours, wanted = rows.copy(), rows.copy()
    encode_planes(game.boards, game.states, form, transforms, squares(), ours)
    reference.encode_planes(game.boards, game.states, form, transforms, squares(), wanted)
    assert np.array_equal(ours, wanted)


@pytest.mark.parametrize("start", [chess.Board(chess960=True), ENDING, chess.Board("8/8/3k4/8/8/8/3K4/8 b - - 0 1")])
@pytest.mark.parametrize("seed", [0, 1])
def test_there_and_back_nothing_is_lost(played: Any, start: chess.Board, seed: int) -> None:
    rows, _, _ = played(start, 120, seed)
    for form in INPUT_FORMATS:
        there = convert(rows, form)
        assert validate(there).first(EVERY - {Fault.HISTORY}) is None
        assert np.array_equal(convert(there, form), there)
        assert np.array_equal(convert(there, 1), rows)


def test_rooks_that_castle_from_anywhere_are_told(played: Any) -> None:
    rows, _, _ = played(chess.Board.from_chess960_pos(12), 12, 1)
    there = convert(rows, 3).view(FRAME)[:, 0]
    assert there["castling_us_ooo"][0].bit_count() == there["castling_us_oo"][0].bit_count() == 1
    assert (there["castling_us_ooo"][0], there["castling_us_oo"][0]) == (1 << 4, 1 << 7)
    assert np.array_equal(convert(there.view(np.uint8).reshape(-1, 8396), 1), rows)


@pytest.mark.parametrize("seed", range(4))
def test_turned_boards_have_turned_policies(played: Any, seed: int) -> None:
    rows, _, boards = played(ENDING, 100, seed)
    there = convert(rows, 4)
    old, new = rows.view(FRAME)[:, 0], there.view(FRAME)[:, 0]
    kinds = new["invariance_info"] & 7
    for i, board in enumerate(boards):
        move = MOVES[new["played_idx"][i]]
        back = {int(to): square for square, to in enumerate(squares()[kinds[i]])}
        source, to = (back[chess.parse_square(move[k : k + 2])] for k in (0, 2))
        if not board.turn:
            source, to = chess.square_mirror(source), chess.square_mirror(to)
        assert chess.Move(source, to) in board.legal_moves
        for name in ("played_idx", "best_idx"):
            assert new[name][i] == turned()[kinds[i], old[name][i]]
        at = turned()[kinds[i]]
        fine = at >= 0
        assert np.array_equal(new["probabilities"][i][at[fine]], old["probabilities"][i][fine])
        king = int.from_bytes(bytes([int(new["planes"][i, 5]).bit_length() - 1]), "little") ^ 7
        file, rank = king % 8, king // 8
        assert file >= 4
        assert rank <= 7 - file


def test_every_transform_is_there(played: Any) -> None:
    seen: set[int] = set()
    for seed in range(4):
        seen |= set((convert(played(ENDING, 100, seed)[0], 3)[:, 8278] & 7).tolist())
    assert seen == set(range(8))


def test_a_rotated_policy_is_of_the_same_planes(played: Any) -> None:
    rows, _, _ = played(ENDING, 100, 0)
    one, two = convert(rows, 3), convert(rows, 3, transposition="rotation")
    diagonal = (one[:, 8278] & TRANSPOSE) != 0
    same = np.all(one == two, axis=1)
    assert np.all(same[~diagonal])
    assert not np.any(same[diagonal])
    assert np.array_equal(one[:, 7440:8272], two[:, 7440:8272])
    assert np.array_equal(convert(two, 1, transposition="rotation"), rows)
    assert Fault.MOVE_OTHER in validate(two).counts
    assert validate(two, transposition="rotation").first() is None


def test_whose_turn_it_is_survives(played: Any) -> None:
    rows, _, _ = played(chess.Board("8/5k2/8/8/8/1R6/8/1K6 b - - 0 1"), 6, 0)
    assert replay(convert(rows, 3)).black.tolist() == [True, False] * 3
    assert np.array_equal(convert(convert(rows, 132), 2), convert(rows, 2))


def test_flipped_policies_keep_best_and_played(played: Any) -> None:
    rows, _, _ = played(ENDING, 1, 0)
    new = convert(rows, 3).view(FRAME)[0, 0]
    assert new["invariance_info"] & FLIP
    assert new["probabilities"][new["best_idx"]] == new["probabilities"].max()


def test_what_is_no_game_is_refused(garbage: Any) -> None:
    with pytest.raises(FormatError, match="at frame 0"):
        convert(garbage, 3)
    with pytest.raises(DataError, match="expected an input format"):
        convert(garbage, 7)
