"""Ground truth and predictions as CSV files, as l5kit's competitions exchanged them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from typing import NamedTuple, TextIO

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.errors import FormatError
from penstock_driving.metrics import BadPredictionError

MAX_MODES = 3
_BLOCK = 4096  # lines that are put into words at a time


class GroundTruth(NamedTuple):
    """What became of `n` agents: `timestamps` `[n]` ns, `track_ids` `[n]`, `coords` `[n, T, 2]` metres from where each
    was, along the axes of the world, `avails` `[n, T]` 0 or 1."""

    timestamps: IntArray
    track_ids: IntArray
    coords: AnyArray
    avails: AnyArray


class Predictions(NamedTuple):
    """What may become of `n` agents: as `GroundTruth`, with `coords` `[n, M, T, 2]` and `confs` `[n, M]`."""

    timestamps: IntArray
    track_ids: IntArray
    coords: AnyArray
    confs: AnyArray


def write_gt_csv(
    csv_path: str | os.PathLike[str], timestamps: AnyArray, track_ids: AnyArray, coords: AnyArray, avails: AnyArray
) -> None:
    """Write ground truth, a line an agent; see `GroundTruth` for the shapes. Coordinates get five decimals."""
    n, steps = coords.shape[0], coords.shape[1] if coords.ndim == 3 else -1
    fits = coords.shape == (n, steps, 2) and timestamps.shape == track_ids.shape == (n,) and avails.shape == (n, steps)
    if not fits:
        raise BadPredictionError(
            "expected timestamps [n], track_ids [n], coords [n, T, 2] and avails [n, T], got "
            f"{timestamps.shape}, {track_ids.shape}, {coords.shape} and {avails.shape}"
        )
    _write(csv_path, _gt_names(steps), timestamps, track_ids, avails, coords.reshape(n, -1))


def write_pred_csv(
    csv_path: str | os.PathLike[str],
    timestamps: AnyArray,
    track_ids: AnyArray,
    coords: AnyArray,
    confs: AnyArray | None = None,
    max_modes: int = MAX_MODES,
) -> None:
    """Write predictions, a line an agent; see `Predictions` for the shapes. `coords` `[n, T, 2]` without `confs` are
    one mode of confidence 1. Modes up to `max_modes` are filled with zeros.
    """
    if coords.ndim == 3 and confs is None:
        coords, confs = coords[:, None], np.ones((len(coords), 1))
    if confs is None or coords.ndim != 4 or coords.shape[3] != 2 or confs.shape != coords.shape[:2]:
        raise BadPredictionError(
            "expected coords [n, T, 2] and no confs, or coords [n, M, T, 2] and confs [n, M], got "
            f"{coords.shape} and {None if confs is None else confs.shape}"
        )
    n, modes, steps, _ = coords.shape
    if not timestamps.shape == track_ids.shape == (n,) or modes > max_modes:
        raise BadPredictionError(f"expected timestamps and track_ids [{n}] and {max_modes} modes at most, got {modes}")
    if not np.allclose(confs.sum(axis=-1), 1):
        raise BadPredictionError("expected confidences that add up to 1, got others")
    all_coords = np.zeros((n, max_modes, steps, 2), coords.dtype)
    all_coords[:, :modes] = coords
    all_confs = np.zeros((n, max_modes), confs.dtype)
    all_confs[:, :modes] = confs
    names = _pred_names(steps, max_modes)
    _write(csv_path, names, timestamps, track_ids, all_confs, all_coords.reshape(n, -1))


def read_gt_csv(csv_path: str | os.PathLike[str]) -> GroundTruth:
    names, lines = _read(csv_path)
    steps = (len(names) - 2) // 3
    stamps, tracks, values = _columns(csv_path, names, _gt_names(steps), lines)
    return GroundTruth(stamps, tracks, values[:, steps:].reshape(-1, steps, 2), values[:, :steps])


def read_pred_csv(csv_path: str | os.PathLike[str], max_modes: int = MAX_MODES) -> Predictions:
    names, lines = _read(csv_path)
    steps = (len(names) - 2 - max_modes) // (2 * max_modes)
    stamps, tracks, values = _columns(csv_path, names, _pred_names(steps, max_modes), lines)
    coords = values[:, max_modes:].reshape(-1, max_modes, steps, 2)
    return Predictions(stamps, tracks, coords, values[:, :max_modes])


def _gt_names(steps: int) -> list[str]:
    return ["timestamp", "track_id", *(f"avail_{i}" for i in range(steps)), *_coord_names(steps, 0)]


def _pred_names(steps: int, modes: int) -> list[str]:
    coords = [name for mode in range(modes) for name in _coord_names(steps, mode)]
    return ["timestamp", "track_id", *(f"conf_{mode}" for mode in range(modes)), *coords]


def _coord_names(steps: int, mode: int) -> Iterator[str]:
    return (f"coord_{axis}{mode}{i}" for i in range(steps) for axis in "xy")


def _write(
    path: str | os.PathLike[str],
    names: list[str],
    timestamps: AnyArray,
    track_ids: AnyArray,
    shares: AnyArray,
    coords: AnyArray,
) -> None:
    with open(path, "w", newline="", encoding="ascii") as file:
        file.write(",".join(names) + "\r\n")
        for lo in range(0, len(coords), _BLOCK):
            part = slice(lo, lo + _BLOCK)
            heads = zip(timestamps[part].tolist(), track_ids[part].tolist(), strict=True)
            rows = zip(heads, shares[part].astype(str).tolist(), coords[part].tolist(), strict=True)
            for (stamp, track), share, metres in rows:
                file.write(",".join([str(stamp), str(track), *share, *(f"{x:.5f}" for x in metres)]) + "\r\n")


def _read(path: str | os.PathLike[str]) -> tuple[list[str], list[list[str]]]:
    with open(path, newline="", encoding="utf-8") as file:
        return _parsed(path, file)


def _parsed(path: str | os.PathLike[str], file: TextIO) -> tuple[list[str], list[list[str]]]:
    try:
        lines = list(csv.reader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise FormatError(f"expected a CSV file, got {error}", path=path) from error
    if not lines:
        raise FormatError("expected a header, got an empty file", path=path)
    return lines[0], lines[1:]


def _columns(
    path: str | os.PathLike[str], names: list[str], wanted: list[str], lines: list[list[str]]
) -> tuple[IntArray, IntArray, AnyArray]:
    """Times, tracks and the other columns, in the order wanted."""
    if sorted(names) != sorted(wanted):
        odd = sorted(set(names) ^ set(wanted))[:3]
        raise FormatError(
            f"expected {len(wanted)} columns, got {len(names)} with others: {odd}", path=path, where="header"
        )
    order = [names.index(name) for name in wanted]
    stamps, tracks = np.empty(len(lines), np.int64), np.empty(len(lines), np.int64)
    values = np.empty((len(lines), len(wanted) - 2))
    for i, line in enumerate(lines):
        try:
            fields = [line[place] for place in order] if len(line) == len(names) else []
            stamps[i], tracks[i] = int(fields[0]), int(fields[1])
            values[i] = fields[2:]
        except (ValueError, IndexError, OverflowError) as error:
            message = f"expected {len(names)} numbers, got {len(line)} fields: {error}"
            raise FormatError(message, path=path, where=f"line {i + 2}") from error
    return stamps, tracks, values
