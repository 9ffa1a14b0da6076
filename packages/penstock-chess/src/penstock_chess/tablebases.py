"""What endgame tablebases say about a game: its result, its plies left, the moves that keep a win.

Everything is asked of a `Prober`, so that tables of any origin can be asked; `Syzygy` and `Gaviota` are probers for
python-chess. A position is a board of python-chess whose side to move is white, and never may castle.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from penstock.core.arrays import BoolArray, ByteArray, StructArray
from penstock.errors import DataError, require
from penstock_chess.boards import Game, chess_board
from penstock_chess.formats.lc0.records import POLICY
from penstock_chess.moves import Transposition, policy_index, squares

_SAFE = 99  # plies within which a win cannot be lost to the rule of 50 moves, for any rounding of the tables
_LATE = 101  # from which it surely is
_ROW = {5: 1, 4: 2, 3: 3}  # rows of `policy_index` by the piece of a promotion
_ZEROING = {2: 1, 1: 101, 0: 0, -1: -101, -2: -1}


class Prober(Protocol):
    """Tables of up to `men` pieces. An answer is None where no table has the position; asked from any thread."""

    @property
    def men(self) -> int:
        """The most pieces of a position that is asked for."""
        ...

    def wdl(self, board: Any) -> int | None:
        """2 for a win of the side to move, 1 for one that the rule of 50 moves takes away, 0, -1, -2."""
        ...

    def dtz(self, board: Any) -> int | None:
        """Plies to the next capture or move of a pawn in the best line, negative for the side that loses."""
        ...


class MateProber(Protocol):
    """Tables of plies to mate, of up to `men` pieces."""

    @property
    def men(self) -> int:
        """The most pieces of a position that is asked for."""
        ...

    def dtm(self, board: Any) -> int | None:
        """Plies to mate, negative for the side that loses, 0 for a draw."""
        ...


def _folders(paths: tuple[str, ...], ending: str) -> Iterator[str]:
    for path in paths:
        if not Path(path).is_dir() or not any(Path(path).glob(f"*{ending}")):
            raise DataError(f"expected a folder with tables (*{ending}), got {path!r}; leave it out to do without")
        yield path


class Syzygy:
    """Syzygy tables in folders, by python-chess."""

    def __init__(self, *paths: str) -> None:
        folders = list(_folders(paths, ".rtbw"))
        chess: Any = require("chess.syzygy", "tablebases", "penstock-chess")
        self._tables = chess.Tablebase()
        for path in folders:
            self._tables.add_directory(path)
        self.men = max(len(name) - 1 for name in self._tables.wdl)

    def wdl(self, board: Any) -> int | None:
        """See `Prober`."""
        return self._tables.get_wdl(board)

    def dtz(self, board: Any) -> int | None:
        """See `Prober`."""
        return self._tables.get_dtz(board)

    def close(self) -> None:
        """Let go of the files."""
        self._tables.close()


class Gaviota:
    """Gaviota tables in folders, by python-chess in Python, one position at a time. Raises as `Syzygy`."""

    men = 5

    def __init__(self, *paths: str) -> None:
        folders = list(_folders(paths, ".gtb.cp4"))
        chess: Any = require("chess.gaviota", "tablebases", "penstock-chess")
        self._tables = chess.PythonTablebase()
        for path in folders:
            self._tables.add_directory(path)
        self._lock = threading.Lock()

    def dtm(self, board: Any) -> int | None:
        """See `MateProber`."""
        with self._lock:
            return self._tables.get_dtm(board)

    def close(self) -> None:
        """Let go of the files."""
        self._tables.close()


def in_reach(game: Game, men: int) -> BoolArray:
    """`[n]` which positions tables of `men` pieces can have."""
    return (game.men <= men) & ~game.castles


def _score(wdl: int) -> int:
    return 1 if wdl == 2 else -1 if wdl == -2 else 0


def _unrepeated(game: Game, i: int) -> bool:
    """Whether no position since the last capture or move of a pawn has been there before, as far as is known."""
    first = i + 1 - int(game.clock[i])
    return first >= 0 and not np.any(game.seen[first : i + 1])


def _put(rows: StructArray, places: Any, score: Any) -> None:
    rows["result_q"][places] = score
    rows["result_d"][places] = np.where(np.asarray(score) == 0, 1, 0)


def correct_results(game: Game, rows: StructArray, prober: Prober) -> int:
    """Bring `result_q` and `result_d` of a game's frames to what the tables say. Gives how many frames changed.

    A position right after a capture or a pawn's move is known for sure, and all before it back to the last such one.
    Of others, results that the tables contradict become draws, unless the plies to the next capture say that the win
    comes in time, or cannot.
    """
    reach, before = in_reach(game, prober.men), rows["result_q"].copy()
    reach[:1] = False
    done = -1
    for i in np.flatnonzero(reach & (game.clock == 0)).tolist():
        wdl = prober.wdl(chess_board(game, i))
        if wdl is not None:
            places = np.arange(i, done, -1)
            score = _score(wdl)
            _put(rows, places, np.where((i - places) % 2 == 0, score, -score))
            done = i
    for i in np.flatnonzero(reach & (game.clock != 0)).tolist():
        board = chess_board(game, i)
        wdl = prober.wdl(board)
        if wdl is not None:
            _put(rows, i, _late_score(game, i, board, _score(wdl), int(rows["result_q"][i]), prober))
    return int(np.count_nonzero(rows["result_q"] != before))


def _late_score(game: Game, i: int, board: Any, score: int, stated: int, prober: Prober) -> int:
    """The result of a position since whose last capture `clock` plies went by."""
    plies = int(game.clock[i])
    if score not in (stated, 0) and _unrepeated(game, i):
        depth = prober.dtz(board)
        if depth is not None and plies + abs(depth) < _SAFE:
            return score
    if stated != 0 and score != 0:
        depth = prober.dtz(board)
        if depth is not None and plies + abs(depth) > _LATE:
            return 0
    return score if stated == score else 0


def correct_plies_by_dtz(game: Game, rows: StructArray, prober: Prober) -> None:
    """Bring `plies_left` to the plies to the next capture, of won positions of three pieces without pawns, where these
    are the plies to mate."""
    pawns = np.any((game.boards == 1) | (game.boards == 7), axis=1)
    reach = in_reach(game, min(3, prober.men)) & ~pawns
    reach[:1] = False
    for i in np.flatnonzero(reach).tolist():
        board = chess_board(game, i)
        wdl = prober.wdl(board)
        if wdl is None or _score(wdl) == 0 or not _unrepeated(game, i):
            continue
        depth = prober.dtz(board)
        if depth is None:
            continue
        plies = int(game.clock[i])
        if plies + abs(depth) < _SAFE:
            rows["plies_left"][i] = abs(depth)
        if plies == 0:
            rows["plies_left"][:i] = abs(depth) + np.arange(i, 0, -1)


def correct_plies_by_dtm(game: Game, rows: StructArray, prober: MateProber) -> None:
    """Bring `plies_left` of decided positions of few pieces, and of those before them, to the plies to mate."""
    reach = in_reach(game, prober.men)
    reach[:1] = False
    done = 1
    for i in np.flatnonzero(reach & (rows["result_q"] != 0)).tolist():
        depth, plies = prober.dtm(chess_board(game, i)), int(game.clock[i])
        if not depth:
            continue
        depth = abs(depth)
        if (depth + plies > _SAFE and depth <= rows["plies_left"][i]) or not _unrepeated(game, i):
            continue
        places = np.arange(i, done, -1)
        rows["plies_left"][places] = depth + (i - places)
        done = i


def winning_moves(game: Game, i: int, prober: Prober, repeated: bool = True) -> list[Any]:
    """Moves of position `i` that keep its win best, by plies to the next capture; none where no move wins.

    Wins that come in time are alike unless positions were `repeated`. None either where a table is missing.
    """
    board = chess_board(game, i)
    clock = int(game.clock[i])
    ranks: dict[Any, int] = {}
    for move in list(board.legal_moves):
        zeroing = board.is_zeroing(move)
        board.push(move)
        distance = prober.wdl(board) if zeroing else prober.dtz(board)
        if distance is None:
            return []
        depth = _ZEROING[-distance] if zeroing else -distance + int(np.sign(-distance))
        depth = 1 if depth == 2 and board.is_checkmate() else depth
        board.pop()
        if depth > 0:
            ranks[move] = 1000 if depth + clock <= _SAFE and not repeated else 1000 - (depth + clock)
    return [move for move, rank in ranks.items() if rank == max(ranks.values()) and rank >= 1]


def fastest_mates(game: Game, i: int, moves: list[Any], prober: MateProber) -> list[Any]:
    """Those of `moves` after which mate comes soonest; none where no table has them."""
    board = chess_board(game, i)
    depths: dict[Any, int] = {}
    for move in moves:
        board.push(move)
        depth = 1 if board.is_checkmate() else prober.dtm(board)
        board.pop()
        if depth:
            depths[move] = 0 if board.is_checkmate() else abs(depth)
    return [move for move, depth in depths.items() if depth == min(depths.values())]


def boosts(game: Game, prober: Prober, mates: MateProber | None, transposition: Transposition) -> ByteArray:
    """`[n, 1858]` uint8 the moves of each position that a policy should favour, as its frame turns them."""
    out = np.zeros((len(game), POLICY), np.uint8)
    turns = squares(transposition)
    for i in np.flatnonzero(in_reach(game, prober.men)).tolist():
        favoured = winning_moves(game, i, prober)
        if mates is not None and game.men[i] <= mates.men:
            since = max(i - int(game.clock[i]), 0)
            safe = favoured if np.any(game.seen[since : i + 1]) else winning_moves(game, i, prober, repeated=False)
            favoured = (fastest_mates(game, i, safe, mates) if len(safe) > 1 else []) or favoured
        there = turns[game.transforms[i]]
        for move in favoured:
            index = policy_index()[_ROW.get(move.promotion, 0), there[move.from_square], there[move.to_square]]
            out[i, index] = 1
    return out
