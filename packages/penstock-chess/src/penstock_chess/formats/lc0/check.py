"""Looking for damage: with `deep` every chunk is read, frames are compared with the frames before them, values with
their ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from penstock.core.arrays import BoolArray, ByteArray, StructArray
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import folder_of
from penstock_chess.formats.lc0.accounting import bad_chunk, place_of
from penstock_chess.formats.lc0.chunks import LIMIT, ChunkFile
from penstock_chess.formats.lc0.errors import ChunkError
from penstock_chess.formats.lc0.files import files_at, opened
from penstock_chess.formats.lc0.records import FRAME, INPUT_FORMATS, NO_MOVE, POLICY

_SLACK = 1e-4  # by which sums of rounded values may be too large
_SUM_SLACK = 0.01  # by which rounded probabilities of all moves may differ from 1 together
_HISTORY = 13  # planes of a position
_PIECES = 12  # of them, that have pieces


def findings(path: Path | Sequence[Path], *, deep: bool) -> Iterator[Finding]:
    """Damage of the games at `path`, or in several files: an `error` for every file that is no file of chunks or is cut
    off. With `deep`, which reads all chunks, an `error` for every chunk that cannot be read, beginning with its reason,
    and a `warning` where a frame's history is not the frame before it, or values are outside their ranges."""
    records = 0
    for file in files_at(path):
        try:
            chunk = opened(file, "zero", LIMIT)
        except OSError as error:
            chunk = None
            yield Finding("unreadable", file.name, f"io: {error}")
        if isinstance(chunk, ChunkError):
            yield _bad(file, None, chunk)
        elif chunk is not None:
            records += len(chunk)
            yield from _file(chunk, deep=deep)
            chunk.close()
    if not records:
        yield Finding("no-episodes", str(folder_of(path)), "there are no chunks here")


def _bad(path: Path, member: str | None, error: ChunkError) -> Finding:
    """The finding of what `open` leaves out, with the name and place that it has in the account."""
    entry = bad_chunk(path, member, error)
    return Finding(entry.reason, entry.where, entry.message)


def _file(file: ChunkFile, *, deep: bool) -> Iterator[Finding]:
    if file.torn is not None:
        yield Finding("truncated", file.path.name, f"truncated: {file.torn}")
    for i in range(len(file) if deep else 0):
        where = place_of(file.path, file.name(i))
        try:
            file.count(i)
        except ChunkError as error:
            yield _bad(file.path, file.name(i), error)
            continue
        try:
            frames = file.load(i)
        except ChunkError as error:
            yield Finding("unreadable", where, f"{error.reason}: {error}")
            continue
        for name, message in [*policy_faults(frames), *(("invalid-value", odd) for odd in oddities(frames))]:
            yield Finding(name, where, message)


def oddities(frames: ByteArray) -> Iterator[str]:
    """Oddities of the frames `[n, 8396]` of a game, in words."""
    rows = frames.view(FRAME)[:, 0]
    broken = np.flatnonzero(broken_history(frames))
    if len(broken):
        yield f"{len(broken)} frames do not follow the one before them, first frame {broken[0] + 1}"
    with np.errstate(invalid="ignore"):  # NaN is no number outside a range
        for name, test in _RANGES.items():
            bad = np.flatnonzero(test(rows))
            if len(bad):
                yield f"{name} is outside its range in {len(bad)} frames, first frame {bad[0]}"


def policy_faults(frames: ByteArray) -> Iterator[tuple[str, str]]:
    """Findings of frames `[n, 8396]` whose policy cannot be learned: name and message.

    A move may be NaN where others have the probability. Frames without pieces have no moves.
    """
    rows = frames.view(FRAME)[:, 0]
    policy = rows["probabilities"]
    with np.errstate(invalid="ignore"):
        total = np.where(policy > 0, policy, 0).sum(axis=1)
    of_position = rows["planes"][:, :_PIECES].any(axis=1)
    without, has_nan = of_position & (total == 0), np.isnan(policy).any(axis=1)
    is_off = of_position & (total != 0) & (np.abs(total - 1) > _SUM_SLACK)
    for name, what, where in (
        ("nan", "probabilities are NaN and name no move", without & has_nan),
        ("invalid-value", "probabilities name no move", without & ~has_nan),
        ("invalid-value", "probabilities do not add up to 1", is_off),
    ):
        bad = np.flatnonzero(where)
        if len(bad):
            yield name, f"{what} in {len(bad)} frames, first frame {bad[0]}"


def broken_history(frames: ByteArray) -> BoolArray:
    """`[n - 1]` whether the 7 older positions of a frame differ from the 7 newest of the frame before it, seen from the
    other side: ranks turned round, which is the order of a word's bytes, and colours exchanged; repetitions stay. Only
    of input formats 1 and 2; the others turn the board and cut their history.
    """
    rows = frames.view(FRAME)[:, 0]
    planes = rows["planes"].reshape(len(rows), 8, _HISTORY)
    turned = planes.byteswap()[:, :, [*range(6, 12), *range(6), 12]]
    differs = np.any(planes[1:, 1:] != turned[:-1, :-1], axis=(1, 2))
    return differs & (rows["input_format"][1:] <= 2) & (rows["input_format"][:-1] <= 2)


def _pair(q: str, d: str) -> Callable[[StructArray], BoolArray]:
    def bad(rows: StructArray) -> BoolArray:
        least = 1 + _SLACK
        return (np.abs(rows[q]) > least) | (rows[d] < -_SLACK) | (np.abs(rows[q]) + rows[d] > least)

    return bad


def _policy(rows: StructArray) -> BoolArray:
    values = rows["probabilities"]
    return np.any((values != -1) & ((values < 0) | (values > 1 + _SLACK)), axis=1)


def _castling(rows: StructArray) -> BoolArray:
    names = ("castling_us_ooo", "castling_us_oo", "castling_them_ooo", "castling_them_oo")
    classical = rows["input_format"] == 1
    above = np.any([rows[name] > 1 for name in names], axis=0)
    return classical & (above | (rows["side_to_move_or_enpassant"] > 1))


def _index(name: str) -> Callable[[StructArray], BoolArray]:
    return lambda rows: (rows[name] >= POLICY) & (rows[name] != NO_MOVE)


_RANGES: dict[str, Callable[[StructArray], BoolArray]] = {
    "input_format": lambda rows: ~np.isin(rows["input_format"], INPUT_FORMATS),
    "probabilities": _policy,
    "castling": _castling,
    "plies_left": lambda rows: rows["plies_left"] < 0,
    **{f"{name}_q, {name}_d": _pair(f"{name}_q", f"{name}_d") for name in ("root", "best", "result", "played", "orig")},
    "q_st, d_st": _pair("q_st", "d_st"),
    **{name: _index(name) for name in ("played_idx", "best_idx", "opp_played_idx", "next_played_idx")},
}
