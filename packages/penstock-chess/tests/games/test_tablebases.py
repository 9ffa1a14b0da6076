"""What tablebases correct. Most tests ask a prober of their own; files are tables of one value, written here by the
format's rules, for no real ones can be shipped."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

from penstock.errors import DataError, MissingExtraError
from penstock_chess import tablebases
from penstock_chess.boards import chess_board, replay
from penstock_chess.formats.lc0 import FRAME
from penstock_chess.moves import MOVES
from penstock_chess.rescore import RejectedChunk, Rescorer
from penstock_chess.tablebases import Gaviota, Syzygy, fastest_mates, in_reach, winning_moves

QUEEN = "endings/training.700060.gz"  # a rook against nothing for its last 80 plies, white wins
PAWN = "endings/training.700162.gz"  # a pawn against nothing from frame 157, a queen for the last 2, white wins


@dataclass
class Told:
    """Answers by who has more than a king: the side to move has the piece, or not."""

    win: int = 2
    depth: int = 5
    men: int = 3
    asked: list[str] = field(default_factory=list)

    def wdl(self, board: Any) -> int | None:
        self.asked.append(board.board_fen())
        strong = bool(board.occupied_co[board.turn] & ~board.kings)
        return self.win if strong else -self.win

    def dtz(self, board: Any) -> int | None:
        return self.depth if (self.wdl(board) or 0) > 0 else -self.depth

    dtm = dtz


@dataclass
class Silent(Told):
    """No table has anything."""

    def wdl(self, board: Any) -> int | None:
        return None

    def dtz(self, board: Any) -> int | None:
        return None

    dtm = dtz


def rescored(rescorer: Rescorer, chunk: Any) -> Any:
    out = rescorer(chunk)
    assert not isinstance(out, RejectedChunk), out
    return out.view(FRAME)[:, 0]


def first_reached(chunk: Any) -> int:
    game = replay(chunk)
    return int(np.flatnonzero(in_reach(game, 3))[0])


def test_only_positions_in_reach_are_asked_for(frames: Any) -> None:
    told, chunk = Told(), frames(QUEEN)
    rescored(Rescorer(prober=told), chunk)
    assert told.asked
    assert all(len(chess.Board(f"{fen} w - - 0 1").piece_map()) == 3 for fen in told.asked)


def test_a_capture_into_the_tables_decides_all_before_it(frames: Any) -> None:
    chunk = frames(QUEEN)
    lied = chunk.copy()
    rows = lied.view(FRAME)[:, 0]
    rows["result_q"], rows["result_d"] = 0, 1
    at, true = first_reached(chunk), chunk.view(FRAME)[:, 0]
    assert rows["rule50_count"][at] == 0
    out = rescored(Rescorer(prober=Told()), lied)
    assert np.array_equal(out["result_q"][: at + 1], true["result_q"][: at + 1])
    assert not out["result_d"][: at + 1].any()


def test_wins_that_come_too_late_are_draws(frames: Any) -> None:
    chunk = frames(QUEEN)
    at = first_reached(chunk)
    late = rescored(Rescorer(prober=Told(depth=98)), chunk)
    assert np.all(late["result_q"][at + 4 :] == 0)
    assert np.all(late["result_d"][at + 4 :] == 1)
    assert np.all(late["result_q"][: at + 1] != 0)


def test_wins_that_the_rule_of_50_moves_takes_are_draws(frames: Any) -> None:
    out = rescored(Rescorer(prober=Told(win=1)), frames(QUEEN))
    assert np.all(out["result_q"] == 0)
    assert np.all(out["result_d"] == 1)


def test_results_are_won_back_only_where_no_position_was_repeated(frames: Any) -> None:
    chunk = frames(QUEEN).copy()
    rows, game, at = chunk.view(FRAME)[:, 0], replay(frames(QUEEN)), first_reached(chunk)
    true = rows["result_q"].copy()
    rows["result_q"], rows["result_d"] = -true, 0
    out = rescored(Rescorer(prober=Told(depth=1)), chunk)
    plain = np.array([not game.seen[at : i + 1].any() for i in range(len(game))])
    last = np.arange(len(game)) > at
    early = last & (game.clock + 1 < 99)
    assert np.array_equal(out["result_q"][early & plain], true[early & plain])
    assert np.all(out["result_q"][early & ~plain] == 0)


def test_plies_left_are_those_of_the_tables(frames: Any) -> None:
    chunk = frames(QUEEN)
    game, at = replay(chunk), first_reached(chunk)
    out = rescored(Rescorer(prober=Told(depth=7)), chunk)
    assert np.array_equal(out["plies_left"][: at + 1], 7 + np.arange(at, -1, -1))
    plain = np.array([i >= at and not game.seen[at : i + 1].any() and game.clock[i] + 7 < 99 for i in range(len(game))])
    assert plain.sum() > 3
    assert np.all(out["plies_left"][plain] == 7)
    rest = ~plain & (np.arange(len(game)) > at)
    assert np.array_equal(out["plies_left"][rest], chunk.view(FRAME)[:, 0]["plies_left"][rest])


def test_pawns_have_no_plies_by_captures_but_by_mates(frames: Any) -> None:
    chunk = frames(PAWN)
    at, true = first_reached(chunk), chunk.view(FRAME)[:, 0]
    dtz = rescored(Rescorer(prober=Told(depth=7)), chunk)
    queen = int(np.flatnonzero(~np.any(np.isin(replay(chunk).boards, (1, 7)), axis=1))[0])
    assert at < queen
    assert np.array_equal(dtz["plies_left"][:queen], 7 + np.arange(queen, 0, -1))
    dtm = rescored(Rescorer(prober=Told(), mates=Told(depth=3)), chunk)
    assert np.all(dtm["plies_left"][at:queen] == 3)
    assert np.array_equal(dtm["plies_left"][2 : at + 1], 3 + np.arange(at - 2, -1, -1))
    assert np.array_equal(dtm["result_q"], true["result_q"])


def test_draws_have_no_plies_to_mate(frames: Any) -> None:
    chunk = frames(QUEEN).copy()
    rows = chunk.view(FRAME)[:, 0]
    rows["result_q"], rows["result_d"] = 0, 1
    out = rescored(Rescorer(prober=Silent(), mates=Told()), chunk)
    assert np.array_equal(out["plies_left"], rows["plies_left"])


def test_tables_that_miss_everything_change_nothing(frames: Any) -> None:
    for name in (QUEEN, PAWN):
        chunk = frames(name)
        out = rescored(Rescorer(prober=Silent(), mates=Silent()), chunk)
        assert out.tobytes() == rescored(Rescorer(), chunk).tobytes()


def test_blunders_are_looked_for_up_to_the_tables(frames: Any) -> None:
    chunk = frames(QUEEN).copy()
    rows, at = chunk.view(FRAME)[:, 0], first_reached(frames(QUEEN))
    rows["played_q"] = rows["best_q"]
    rows["played_q"][at + 3] = max(-1, rows["best_q"][at + 3] - 1.5)
    deblunder = {"deblunder_threshold": 0.1, "deblunder_width": 0.0}
    without = rescored(Rescorer(**deblunder), chunk)
    assert not np.array_equal(without["plies_left"], rows["plies_left"])
    out = rescored(Rescorer(prober=Silent(), **deblunder), chunk)
    assert np.array_equal(out["plies_left"], rows["plies_left"])


class Solved(Told):
    """Mate in one is seen; every other win is far away."""

    def dtz(self, board: Any) -> int | None:
        if board.is_checkmate():
            return -1
        if board.occupied_co[board.turn] & ~board.kings:
            return 1 if any(mates(board, move) for move in list(board.legal_moves)) else 21
        return -20 if any(board.legal_moves) else 0

    dtm = dtz


def mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    mate = board.is_checkmate()
    board.pop()
    return mate


MATE_IN_ONE = chess.Board("7k/8/6K1/8/8/8/8/R7 w - - 0 1")


def test_moves_that_win_soonest_are_found(played: Any) -> None:
    game = replay(played(MATE_IN_ONE, 1, 0)[0])
    moves = winning_moves(game, 0, Solved())
    found = {move.uci() for move in moves}
    assert found == {"a1a8"}
    assert MATE_IN_ONE.fen().split()[0] == chess_board(game, 0).board_fen()
    everything = winning_moves(game, 0, Solved(), repeated=False)
    assert len(everything) > len(moves)
    assert {move.uci() for move in fastest_mates(game, 0, everything, Solved())} == found
    assert winning_moves(game, 0, Silent()) == []


@pytest.mark.parametrize("form", [1, 3])
@pytest.mark.parametrize("second", [None, Solved()])
def test_the_moves_of_the_tables_are_favoured(played: Any, form: int, second: Any) -> None:
    rows = played(MATE_IN_ONE, 1, 0)[0]
    rescorer = Rescorer(prober=Solved(), mates=second, dtz_boost=1.0)
    old = rows.view(FRAME)[0, 0]
    if form > 1:
        rows = np.asarray(Rescorer(new_input_format=form)(rows))
    new = rescored(rescorer, rows)[0]
    index = int(new["probabilities"].argmax())
    if form == 1:
        assert MOVES[index] == "a1a8"
        assert new["probabilities"][index] == pytest.approx((old["probabilities"][index] + 1) / 2, abs=1e-6)
    else:
        assert index == int((new["probabilities"] - rows.view(FRAME)[0, 0]["probabilities"]).argmax())
    assert new["probabilities"][new["probabilities"] > 0].sum() == pytest.approx(1, abs=1e-5)


def table(piece: int, ours: int, theirs: int) -> bytes:
    """A Syzygy table of one value for every position of three pieces without pawns."""
    head = struct.pack("<I", 0x5D23E871) + bytes([0x31, 0x00, 0xEE, 0x66, 0x11 * piece, 0x00])
    values = bytes([0x80, ours, 0x80, theirs])
    return (head + values).ljust(64, b"\0") + bytes(16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables that say: a rook or a queen always wins; a pawn never (no table)."""
    for name, piece in (("KRvK", 4), ("KQvK", 5)):
        (tmp_path / f"{name}.rtbw").write_bytes(table(piece, 4, 0))
    return tmp_path


def test_files_are_read_by_python_chess(frames: Any, folder: Path) -> None:
    chunk = frames(QUEEN).copy()
    tables = Syzygy(str(folder))
    assert tables.men == 3
    assert tables.wdl(chess.Board("8/8/3k4/8/8/2R5/8/K7 w - - 0 1")) == 2
    assert tables.wdl(chess.Board("8/8/3k4/8/8/2R5/8/K7 b - - 0 1")) == -2
    assert tables.wdl(chess.Board("8/8/3k4/8/8/2P5/8/K7 w - - 0 1")) is None
    assert tables.dtz(chess.Board("8/8/3k4/8/8/2R5/8/K7 w - - 0 1")) is None
    tables.close()
    at, rows = first_reached(chunk), chunk.view(FRAME)[:, 0]
    true = rows["result_q"].copy()
    rows["result_q"], rows["result_d"] = 0, 1
    out = rescored(Rescorer(syzygy=(str(folder),)), chunk)
    assert np.array_equal(out["result_q"][: at + 1], true[: at + 1])
    assert np.all(out["result_q"][at + 1 :] == 0)


def test_folders_without_tables_are_refused(tmp_path: Path) -> None:
    for kind in (Syzygy, Gaviota):
        with pytest.raises(DataError, match="expected a folder with tables"):
            kind(str(tmp_path))


def test_the_extra_is_named_where_it_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, extra: str, distribution: str) -> Any:
        raise MissingExtraError(f"{module}: {distribution}[{extra}]")

    monkeypatch.setattr(tablebases, "require", missing)
    with pytest.raises(MissingExtraError, match=r"penstock-chess\[tablebases\]"):
        Syzygy(str(folder))
