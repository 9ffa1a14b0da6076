"""Frames that the originals wrote, and games of random moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

from penstock_chess.formats.lc0 import FRAME, open_chunks
from penstock_chess.moves import MOVES

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "lc0"
INPUT_FORMATS = (1, 2, 3, 4, 5, 132, 133)

Frames = Callable[..., Any]


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of files that the originals wrote."""
    return GOLDEN


@pytest.fixture(scope="session")
def frames() -> Frames:
    """`frames("gz/training.700001.gz", ...)`: the frames of golden files, all chunks of each, in that order."""

    def read(*names: str) -> Any:
        parts: list[Any] = []
        for name in names:
            chunks = open_chunks(GOLDEN / name)
            assert chunks is not None
            parts += [chunks.load(i) for i in range(len(chunks))]
        return np.concatenate(parts)

    return read


@pytest.fixture(scope="session")
def mixed(frames: Frames) -> Any:
    """`[n, 8396]` positions of a game in all seven input formats, in turn, some 16 of each."""
    every = [frames("gz/training.700027.gz")]
    every += [frames(f"formats/fmt{number}_training.700000.gz") for number in INPUT_FORMATS[1:]]
    rows = np.stack([part[2:34:2] for part in every], axis=1).reshape(-1, 8396)
    rows.flags.writeable = False
    return rows


@pytest.fixture(scope="session")
def garbage() -> Any:
    """`[28, 8396]` random bytes, four of each input format."""
    rows = np.random.default_rng(5).integers(0, 256, (28, 8396), np.uint8)
    rows[:, 4:8].view("<u4")[:, 0] = np.repeat(INPUT_FORMATS, 4)
    rows.flags.writeable = False
    return rows


def _words(board: chess.Board, black: bool, again: bool) -> list[int]:
    """The 13 planes of a position as one side sees it, as records store them."""
    words: list[int] = []
    for ours in (True, False):
        for piece in range(1, 7):
            mask = int(board.pieces(piece, ours != black))
            words.append(chess.flip_horizontal(chess.flip_vertical(mask) if black else mask))
    return [*words, (1 << 64) - 1 if again else 0]


def _same(board: chess.Board) -> tuple[Any, ...]:
    passing = board.ep_square if board.has_pseudo_legal_en_passant() else None
    return board.board_fen(), board.turn, board.clean_castling_rights(), passing


def _text(board: chess.Board, move: chess.Move) -> str:
    """A move as policies name it."""
    squares = [chess.square_mirror(s) if not board.turn else s for s in (move.from_square, move.to_square)]
    return "".join(chess.square_name(s) for s in squares) + {2: "", None: "", 3: "b", 4: "r", 5: "q"}[move.promotion]


@pytest.fixture(scope="session")
def played() -> Frames:
    """`played(board, plies, seed)`: frames of a game of random moves, and the indices of its moves; by python-chess,
    which knows nothing of ours. Castling is in `board.chess960` style: the king takes its rook."""

    def play(board: chess.Board, plies: int, seed: int) -> Any:
        board, rng = board.copy(), np.random.default_rng(seed)
        past: list[chess.Board] = []
        seen: list[bool] = []
        moves: list[int] = []
        record = np.zeros(plies, FRAME)
        for i in range(plies):
            options = sorted(board.legal_moves, key=str)
            if not options or not board.kings or board.halfmove_clock >= 100:
                break
            since = len(past) - min(board.halfmove_clock, len(past))
            seen.append(any(_same(board) == _same(b) for b in past[since:]))
            past.append(board.copy(stack=False))
            black, row = not board.turn, record[i]
            for h, b in enumerate(reversed(past[-8:])):
                row["planes"][13 * h : 13 * h + 13] = np.array(_words(b, black, seen[i - h]), np.uint64)
            for name, side, far in (("us_ooo", 0, 0), ("us_oo", 0, 1), ("them_ooo", 1, 0), ("them_oo", 1, 1)):
                color = board.turn != bool(side)
                rights = board.has_kingside_castling_rights if far else board.has_queenside_castling_rights
                row[f"castling_{name}"] = rights(color)
            weights = rng.random(len(options), np.float32)
            row["probabilities"] = -1
            names = [MOVES.index(_text(board, move)) for move in options]
            row["probabilities"][names] = weights / weights.sum()
            passing = [
                k for k, move in enumerate(options) if board.is_en_passant(move)
            ]  # rare: taken whenever it can be
            choice = passing[0] if passing else int(rng.integers(len(options)))
            row["side_to_move_or_enpassant"], row["rule50_count"] = black, board.halfmove_clock
            row["visits"], row["played_idx"], row["best_idx"] = 100, names[choice], names[int(weights.argmax())]
            moves.append(names[choice])
            board.push(options[choice])
        record = record[: len(moves)]
        record["version"], record["input_format"], record["result_d"] = 7, 1, 1
        record["plies_left"] = np.arange(len(record), 0, -1)
        return record.view(np.uint8).reshape(-1, FRAME.itemsize), np.array(moves), past

    return play
