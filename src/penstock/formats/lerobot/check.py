"""Checks of a LeRobot dataset: totals, indices, timestamps, and every value."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.spec import Field
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.format import Finding
from penstock.formats.lerobot.names import path_of
from penstock.formats.lerobot.source import LeRobotSource

TOLERANCE = 1e-4  # seconds, as in LeRobot
_NAMED = 20  # episodes of one kind that are named


def findings(path: Path, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong with a dataset.

    Args:
        path: Folder of the dataset.
        options: Options of `open`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)  # each becomes a finding
        source = LeRobotSource(path, **options)
    with source:
        for each in source.state.damage:
            yield Finding("unreadable", "meta" if each.episode is None else f"episode {each.episode}", each.message)
        if options.get("split") is None:
            yield from _totals(source)
        yield from _indices(source)


def _totals(source: LeRobotSource) -> Iterator[Finding]:
    state = source.state
    left_out = {each.episode for each in state.damage if each.episode is not None}
    found = {"total_episodes": len(state.episodes) + len(left_out), "total_frames": source.steps}
    for name, count in found.items():
        told = state.info.entries.get(name)
        if told != count and not (left_out and name == "total_frames"):
            yield Finding("totals", f"meta/info.json/{name}", f"expected {count}, as the episodes have, got {told!r}")
    indices = [entry.index for entry in state.episodes]
    missing = sorted(set(range(max(indices, default=-1) + 1)) - set(indices) - left_out) if indices else []
    if missing:
        message = f"expected every episode up to {max(indices)}, got none with the index {missing[:_NAMED]}"
        yield Finding("numbering", "meta/episodes", message)


def _indices(source: LeRobotSource) -> Iterator[Finding]:
    """Yield findings about timestamps and numbers of frames, one for each kind and episode."""
    state = source.state
    if not source.steps:
        return
    step = np.arange(source.steps) - np.repeat(state.offsets[:-1], np.diff(state.offsets))
    episode = np.repeat(np.arange(len(state.offsets) - 1), np.diff(state.offsets))
    expected: dict[str, tuple[Field, AnyArray, float]] = {
        "timestamp": (Field(np.dtype(np.float64)), step / state.info.fps, TOLERANCE),
        "frame_index": (Field(np.dtype(np.int64)), step, 0),
        "episode_index": (Field(np.dtype(np.int64)), np.array([e.index for e in state.episodes])[episode], 0),
    }
    for name, (field, wanted, tolerance) in expected.items():
        if name not in state.info.features:
            continue
        try:
            found = state.data.column(field, name).rows(source.steps)
        except FormatError as error:
            yield Finding("unreadable", name, str(error), path_of(name))
            continue
        slack = tolerance + np.abs(wanted) * 2.0**-24 if tolerance else 0  # timestamps are rounded to float32
        wrong = np.flatnonzero(~(np.abs(found - wanted) <= slack))
        for row in wrong[np.unique(episode[wrong], return_index=True)[1]][:_NAMED].tolist():
            place = f"episode {state.episodes[int(episode[row])].index}"
            message = f"expected {name} {wanted[row]} at step {step[row]}, got {found[row]}"
            kind = "time-rate" if name == "timestamp" else "numbering"
            number = int(episode[row])
            yield Finding(kind, place, message, path_of(name), (number,), (int(step[row]),))
