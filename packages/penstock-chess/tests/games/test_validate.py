"""Every fault is found where it is, and nothing in frames that the originals wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from games.reference import games as reference
from games.reference import rescoring
from penstock_chess.boards import inspect, replay, undone
from penstock_chess.formats.lc0 import FRAME
from penstock_chess.kernels.faults import FAULTS
from penstock_chess.moves import policy_index, squares
from penstock_chess.rescore import RejectedChunk, Rescorer
from penstock_chess.validate import (
    BEYOND,
    BITS,
    EVERY,
    REFERENCE,
    STRUCTURE,
    ChunkFaults,
    Fault,
    validate,
)

GAMES = [
    "gz/training.700001.gz",
    "gz/training.700027.gz",
    "tar/training-run1-test80-20240101-0042.tar",
    *(f"endings/training.{n}.gz" for n in (700060, 700162)),
    *(f"v7/training.{n}.gz" for n in (700001, 700027)),
    *(f"old/v{n}.gz" for n in (3, 4, 5)),
    *(f"formats/fmt{form}_training.{n}.gz" for form in (2, 3, 4, 5, 132, 133) for n in (700000, 700028)),
]


@pytest.mark.parametrize("name", [name for name in GAMES if not name.startswith("tar")])
def test_what_the_originals_wrote_has_no_fault(frames: Any, name: str) -> None:
    assert validate(frames(name)).counts == {}


def test_several_games_in_one_chunk_do_not_follow(frames: Any) -> None:
    report = validate(frames("gz/training.700027.gz", "gz/training.700001.gz"))
    assert report.first() == (Fault.MOVE_UNKNOWN, 54)
    assert report.counts == {Fault.MOVE_UNKNOWN: 1, Fault.HISTORY: 1}


def spoil(name: str, value: Any) -> Callable[[Any], None]:
    def change(rows: Any) -> None:
        rows[name][20] = value

    return change


def plane(number: int, value: int) -> Callable[[Any], None]:
    def change(rows: Any) -> None:
        rows["planes"][20, number] = value

    return change


def policy(index: str | int, value: float) -> Callable[[Any], None]:
    def change(rows: Any) -> None:
        rows["probabilities"][20, rows[index][20] if isinstance(index, str) else index] = value

    return change


def other_right(rows: Any) -> None:
    rows["castling_us_ooo"][20] = 1 - rows["castling_us_ooo"][20]


def swap_frames(rows: Any) -> None:
    rows[[20, 21]] = rows[[21, 20]]


def other_move(rows: Any) -> None:
    legal = np.flatnonzero(rows["probabilities"][20] >= 0)
    rows["played_idx"][20] = legal[legal != rows["played_idx"][20]][0]


def unmarked(rows: Any) -> None:
    rows["visits"][20] = 0
    share = rows["probabilities"][20, rows["played_idx"][20]]
    rows["probabilities"][20, rows["played_idx"][20]] = -1
    at = np.flatnonzero(rows["probabilities"][20] >= 0)[0]
    rows["probabilities"][20, at] += share


def teleported(rows: Any) -> None:
    """A knight goes where no knight goes: out of one corner of the board into the other, and what follows agrees."""
    rows["planes"][20:] = 0
    rows["planes"][20:, 5] = rows["planes"][20:, 11] = 0
    rows["planes"][20, [5, 11, 1]] = np.array([0x08, 0x08 << 56, 0x80], np.uint64)
    rows["planes"][21, [5, 11, 7]] = np.array([0x08, 0x08 << 56, 0x01], np.uint64)
    for name in ("castling_us_ooo", "castling_us_oo", "castling_them_ooo", "castling_them_oo"):
        rows[name][20:] = 0


FAULTY: list[tuple[Fault, Callable[[Any], None]]] = [
    (Fault.INPUT_FORMAT, spoil("input_format", 6)),
    (Fault.INPUT_FORMAT, spoil("input_format", 257)),
    (Fault.ROOT, spoil("root_q", 1.5)),
    (Fault.ROOT, spoil("root_d", np.nan)),
    (Fault.BEST, spoil("best_d", -0.1)),
    (Fault.PLAYED, spoil("played_q", -1.01)),
    (Fault.ORIG, spoil("orig_q", np.inf)),
    (Fault.ORIG, spoil("orig_d", 1.1)),
    (Fault.RESULT, spoil("result_q", 2)),
    (Fault.RESULT, spoil("result_d", np.nan)),
    (Fault.RESULT_FRACTION, spoil("result_q", 0.5)),
    (Fault.PLIES, spoil("plies_left", -1)),
    (Fault.PLIES, spoil("root_m", np.nan)),
    (Fault.PLIES, spoil("played_m", -3)),
    (Fault.PLIES, spoil("orig_m", -3)),
    (Fault.CASTLING, spoil("castling_us_oo", 2)),
    (Fault.SIDE, spoil("side_to_move_or_enpassant", 2)),
    (Fault.RULE50, spoil("rule50_count", 101)),
    (Fault.PROBABILITY, policy("best_idx", 1.5)),
    (Fault.PROBABILITY, policy(0, -0.5)),
    (Fault.PROBABILITY_SUM, policy("best_idx", 0.9)),
    (Fault.INDEX, spoil("best_idx", 1859)),
    (Fault.BEST_ILLEGAL, policy("best_idx", -1)),
    (Fault.PLAYED_ILLEGAL, policy("played_idx", -1)),
    (Fault.BOARD, plane(5, 0)),
    (Fault.BOARD, plane(5, 3)),
    (Fault.BOARD, plane(0, 1)),
    (Fault.BOARD, plane(0, 1 << 60)),
    (Fault.CONTINUITY, plane(7, 0)),
    (Fault.MOVE_UNKNOWN, swap_frames),
    (Fault.MOVE_ILLEGAL, teleported),
    (Fault.MOVE_OTHER, other_move),
    (Fault.MOVE_UNMARKED, unmarked),
    (Fault.RIGHTS, other_right),
    (Fault.CLOCK, spoil("rule50_count", 77)),
    (Fault.TURN, spoil("side_to_move_or_enpassant", 1)),
    (Fault.REPETITION, plane(12, (1 << 64) - 1)),
    (Fault.HISTORY, plane(13, 1 << 20)),
]


@pytest.mark.parametrize(("fault", "change"), FAULTY, ids=[f"{fault}-{k}" for k, (fault, _) in enumerate(FAULTY)])
def test_each_fault_is_found(frames: Any, fault: Fault, change: Callable[[Any], None]) -> None:
    chunk = frames("gz/training.700001.gz")[:30].copy()
    rows = chunk.view(FRAME)[:, 0]
    change(rows)
    report = validate(chunk)
    assert fault in report.counts
    told = Rescorer(errors=frozenset({fault}))(chunk)
    assert isinstance(told, RejectedChunk)
    if fault not in STRUCTURE and not STRUCTURE & set(report.counts):
        assert told.reason == fault
        assert not isinstance(Rescorer(errors=EVERY - set(report.counts))(chunk), RejectedChunk)


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        (Fault.EN_PASSANT, spoil("side_to_move_or_enpassant", 4)),
        (Fault.SIDE, spoil("side_to_move_or_enpassant", 5)),
        (Fault.CASTLING, spoil("castling_us_oo", 3)),
        (Fault.TRANSFORM, spoil("invariance_info", 1)),
    ],
)
def test_faults_of_canonical_formats(frames: Any, fault: Fault, change: Callable[[Any], None]) -> None:
    chunk = frames("formats/fmt3_training.700000.gz").copy()
    change(chunk.view(FRAME)[:, 0])
    assert fault in validate(chunk).counts


def test_every_fault_is_tested() -> None:
    tested = {fault for fault, _ in FAULTY} | {Fault.EN_PASSANT, Fault.TRANSFORM, Fault.EMPTY}
    assert tested == EVERY


def test_the_names_are_those_of_the_kernels() -> None:
    assert tuple(BITS) == tuple(Fault(name) for name in FAULTS)
    assert len(set(BITS.values())) == len(FAULTS) == len(EVERY) - 1
    assert REFERENCE | BEYOND == EVERY
    assert not REFERENCE & BEYOND


def test_no_frames_are_a_fault() -> None:
    assert validate(np.zeros((0, 8396), np.uint8)).first() == (Fault.EMPTY, 0)
    assert ChunkFaults(np.zeros(3, np.int64)).first() is None


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_garbage_is_refused_as_by_the_reference(garbage: Any, frames: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    game = frames("gz/training.700027.gz")[:40].copy()
    at = rng.integers(0, game.size, 300)
    game.reshape(-1)[at] = rng.integers(0, 256, len(at))
    for chunk in (garbage, game):
        assert isinstance(Rescorer()(chunk), RejectedChunk)
        anyhow = Rescorer(errors=frozenset(), new_input_format=3, dist_temp=1.5)(chunk)
        assert isinstance(anyhow, RejectedChunk) == bool(STRUCTURE & set(validate(chunk).counts))
        wanted = replay(chunk).faults.copy()
        with np.errstate(all="ignore"):
            rescoring.frame_faults(chunk, chunk.view(np.float32), wanted)
        assert np.array_equal(inspect(chunk).faults, wanted)


def test_values_change_nothing_in_what_is_replayed(frames: Any) -> None:
    rows = frames("gz/training.700027.gz")[:30].copy()
    rows.view(FRAME)["best_q"][7], rows.view(FRAME)["rule50_count"][9] = 2, 77
    one, two = inspect(rows), replay(rows)
    assert np.array_equal(one.faults ^ two.faults, np.where(np.arange(30) == 7, BITS[Fault.BEST], 0))
    assert np.array_equal(one.boards, two.boards)
    assert np.array_equal(one.states, two.states)


def spoiled(rows: Any, rng: np.random.Generator, times: int) -> Any:
    """Frames in which bits of pieces, castling rights, counts and moves are turned over."""
    chunk = rows.copy()
    for places in (range(7440, 7440 + 13 * 8), range(8272, 8279), range(8340, 8348)):
        at = rng.choice(np.array(places), times)
        chunk[rng.integers(0, len(chunk), times), at] ^= (1 << rng.integers(0, 8, times)).astype(np.uint8)
    return chunk


def moved(rows: Any, rng: np.random.Generator, times: int) -> Any:
    """Frames in which a piece stands elsewhere: boards that are possible, moves that are not."""
    chunk = rows.copy()
    planes = chunk.view(FRAME)[:, 0]["planes"]
    for i in rng.integers(0, len(chunk), times):
        plane = rng.choice(np.flatnonzero(planes[i, :12]))
        source = rng.choice([s for s in range(64) if int(planes[i, plane]) >> s & 1])
        free = [s for s in range(8, 56) if not int(np.bitwise_or.reduce(planes[i, :12])) >> s & 1]
        planes[i, plane] ^= np.uint64(1 << int(source) | 1 << int(rng.choice(free)))
    return chunk


@pytest.mark.parametrize("name", ["formats/fmt133_training.700000.gz", "gz/training.700027.gz"])
@pytest.mark.parametrize("times", [0, 1, 10])
@pytest.mark.parametrize("spoil", [spoiled, moved])
def test_replaying_is_the_same_by_the_reference(frames: Any, name: str, times: int, spoil: Callable[..., Any]) -> None:
    chunk = spoil(frames(name)[-40:], np.random.default_rng(times), times)
    game = replay(chunk)
    boards, states, faults = reference.inspect(chunk, policy_index(), undone(), squares())
    assert np.array_equal(game.boards, boards)
    assert np.array_equal(game.states, states)
    assert np.array_equal(game.faults, faults)
