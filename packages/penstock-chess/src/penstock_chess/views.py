"""The view of games of chess: the board before each move, as white sees it, and the moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.formats.base.source import Source
from penstock_chess.boards import Game, replay
from penstock_chess.formats.lc0.records import FRAME, UNUSED
from penstock_chess.kernels.layout import FROM, PROMOTES, TO

MOST_PLIES = 2_000  # of one game: the longest game of chess under the rules of FIDE is longer, no game of training is
LETTERS = ".PNBRQKpnbrqk"
_NEEDED = tuple(name for name in FRAME.names or () if name not in ("version", *UNUSED))


class ChessView:
    """Boards and moves of the games of a dataset."""

    rate: float | None = 2.0  # positions a second

    def __init__(self, data: EpisodeDataset) -> None:
        self._source = data.source

    def contents(self, number: int) -> Mapping[str, Any]:
        """The first 2,000 positions of a game: `boards` of 64 letters, moves as text and squares, whose turn it is."""
        return game_of(self._source, number)

    def array(self, number: int) -> AnyArray:
        """Nothing: all is in `contents`."""
        return np.zeros(0, np.float32)

    def is_curve(self, field: Field) -> bool:
        """Planes and policies say nothing as curves."""
        return field.shape == ()

    def record(self, recording: Any, number: int) -> None:
        """The boards, as text."""
        boards = [_ranks(letters) for letters in self.contents(number)["boards"]]
        recording.send("board", 0, len(boards), recording.rerun.TextDocument.columns(text=boards))


class ChessViews:
    """Makes the views of training games of Leela Chess Zero."""

    name = "chess"
    options: tuple[str, ...] = ()
    folder = Path(__file__).parent / "view"

    def of(self, data: EpisodeDataset, **options: str) -> ChessView | None:
        """The view of a dataset with the columns of such games, else None."""
        return ChessView(data) if is_chess(data.spec) else None


VIEW = ChessViews()


def is_chess(spec: Spec) -> bool:
    """Return whether the columns belong to training games of Leela Chess Zero."""
    return all(
        name in spec and spec[name].align == "step" and (spec[name].dtype, spec[name].shape) == _kind(name)
        for name in _NEEDED
    )


def game_of(source: Source, episode: int) -> dict[str, Any]:
    """Return the first 2,000 positions of a game."""
    first, end = source.episode_rows("step", episode)
    count = min(end - first, MOST_PLIES)
    frames = np.zeros(count, FRAME)
    frames["version"] = 7
    columns = source.read(list(_NEEDED), Selection.consecutive(first, first + count))
    for name in _NEEDED:
        frames[name] = np.asarray(columns[name])[0]
    game = replay(frames.view(np.uint8).reshape(count, FRAME.itemsize))
    boards = [_seen_by_white(game, i) for i in range(count)]
    moves = [_move(game, boards, i) for i in range(count)]
    return {
        "boards": ["".join(LETTERS[piece] for piece in board.tolist()) for board in boards],
        "moves": [text for text, _ in moves],
        "squares": [squares for _, squares in moves],
        "turns": ["black" if black else "white" for black in game.black.tolist()],
        "cut": end - first > count,
    }


def _kind(name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    field = FRAME[name]
    return field.base, field.shape


def _seen_by_white(game: Game, i: int) -> ByteArray:
    """`[64]` position `i`: 1 to 6 are the pieces of white."""
    board = game.boards[i]
    if not game.black[i]:
        return board
    turned: AnyArray = board.reshape(8, 8)[::-1].reshape(64)
    return np.where(turned == 0, 0, np.where(turned <= 6, turned + 6, turned - 6)).astype(np.uint8)


def _move(game: Game, boards: list[ByteArray], i: int) -> tuple[str, list[int]]:
    """Text and squares of the move from position `i`; castling is stored as the king taking its own rook."""
    start, end = (int(game.states[i, column]) for column in (FROM, TO))
    if start < 0:
        return "", []
    turn = 56 if game.black[i] else 0
    start, end = start ^ turn, end ^ turn
    board = boards[i]
    mover, taken = int(board[start]), int(board[end])
    kind = LETTERS[(mover - 1) % 6 + 1] if mover else "?"
    if kind == "K" and taken and (taken <= 6) == (mover <= 6):
        return ("O-O" if end > start else "O-O-O"), [start, start + (2 if end > start else -2)]
    promotes = int(game.states[i, PROMOTES])
    text = ("" if kind == "P" else kind) + _name(start) + ("x" if taken or _en_passant(kind, start, end) else "-")
    return text + _name(end) + (f"={LETTERS[promotes]}" if promotes > 1 else ""), [start, end]


def _en_passant(kind: str, start: int, end: int) -> bool:
    return kind == "P" and start % 8 != end % 8


def _name(square: int) -> str:
    return "abcdefgh"[square % 8] + str(square // 8 + 1)


def _ranks(letters: str) -> str:
    """Eight lines of letters, the last rank first."""
    return "\n".join(" ".join(letters[8 * rank : 8 * rank + 8]) for rank in range(7, -1, -1))
