"""Make datasets of others: join, cut, part; scene by scene, and complete before they appear."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock.files import atomic_path
from penstock_driving.formats.l5kit.columns import intervals
from penstock_driving.formats.l5kit.dtypes import SCENE_DTYPE
from penstock_driving.formats.l5kit.source import L5KitSource, Scene
from penstock_driving.formats.l5kit.writer import L5KitWriter

Path_ = str | os.PathLike[str]


def concat(inputs: Sequence[Path_], output: Path_, **options: Any) -> None:
    """All scenes of several datasets in one; intervals count again from 0, everything else stays. `options` go to
    `L5KitWriter.create`.

    Memory: one scene.
    """

    def scenes() -> Iterator[Scene]:
        for path in inputs:
            with L5KitSource(path) as source:
                yield from (source.scene(e) for e in range(len(source)))

    _written(output, scenes(), options)


def chop(path: Path_, output: Path_, frames: int, **options: Any) -> None:
    """The first `frames` frames of every scene; start and end times stay. `options` go to `L5KitWriter.create`.

    Memory: one scene.
    """
    if frames < 0:
        raise DataError(f"expected a number of frames, got {frames}")
    with L5KitSource(path) as source:
        short = np.flatnonzero(np.diff(source.offsets) < frames)
        if len(short):
            have = int(np.diff(source.offsets)[short[0]])
            raise DataError(f"expected scenes of at least {frames} frames, got {have} in scene {short[0]}")
        _written(output, (cut(source.scene(e), 0, frames) for e in range(len(source))), options)


def split(path: Path_, output: Path_, parts: Mapping[str, int], **options: Any) -> list[tuple[int, int]]:
    """Parts of a dataset below the folder `output`, which is made: `parts` says how many scenes each has, in order; the
    last may be -1, for all that are left. Returns the scenes `[a, b)` of each. `options` go to `L5KitWriter.create`.
    """
    counts = list(parts.values())
    bad = [n for n in parts if not n or Path(n).name != n]
    with L5KitSource(path) as source:
        if counts and counts[-1] == -1:
            counts[-1] = len(source) - sum(counts[:-1])
        if bad or not counts or min(counts) < 0 or sum(counts) > len(source):
            raise DataError(f"expected parts of {len(source)} scenes, by plain names, got {dict(parts)}")
        cuts = intervals(np.array(counts, np.int64)).tolist()

        def make(folder: Path) -> None:
            folder.mkdir()
            for name, (a, b) in zip(parts, cuts, strict=True):
                _written(folder / name, (source.scene(e) for e in range(a, b)), options)

        with atomic_path(output) as new_folder:
            make(new_folder)
    return [(a, b) for a, b in cuts]


def cut(scene: Scene, first: int, last: int) -> Scene:
    """Frames `first:last` of a scene (counted in it) with their agents and faces; intervals stay as they are."""
    frames = scene.frames[first:last]
    copied: list[AnyArray] = []
    fields = ("agent_index_interval", "traffic_light_faces_index_interval")
    for field, rows in zip(fields, (scene.agents, scene.tl_faces), strict=True):
        counts = scene.frames[field][:, 1] - scene.frames[field][:, 0]
        copied.append(rows[int(counts[:first].sum()) : int(counts[:last].sum())])
    return Scene(scene.scene, frames, copied[0], copied[1])


def rebased(scene: Scene) -> Scene:
    """The same rows as a dataset of one scene: intervals count from 0, and `scene` is `[1]`."""
    frames = scene.frames.copy()
    for field in ("agent_index_interval", "traffic_light_faces_index_interval"):
        frames[field] = intervals(frames[field][:, 1] - frames[field][:, 0])
    entry = np.array([scene.scene], SCENE_DTYPE)
    entry["frame_index_interval"] = [0, len(frames)]
    return Scene(entry, frames, scene.agents, scene.tl_faces)


def get_scene(source: L5KitSource, e: int) -> Scene:
    """Scene `e` as a separate dataset, in memory: `[1]` scenes, frames, agents and faces, intervals from 0.

    Cost: one read of each array.
    """
    return rebased(source.scene(e))


def combined_scenes(scenes: AnyArray) -> AnyArray:
    """Scenes of which one begins when the one before it ends, by the same host, as one."""
    continues = (scenes["start_time"][1:] == scenes["end_time"][:-1]) & (scenes["host"][1:] == scenes["host"][:-1])
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(scenes), 1), bool), ~continues]))
    combined = scenes[starts].copy()
    last = np.append(starts[1:], len(scenes))[: len(starts)] - 1
    combined["end_time"] = scenes["end_time"][last]
    combined["frame_index_interval"][:, 1] = scenes["frame_index_interval"][last, 1]
    return combined


def _written(output: Path_, scenes: Iterable[Scene], options: Mapping[str, Any]) -> None:
    def make(folder: Path) -> None:
        with L5KitWriter.create(folder, **options) as writer:
            writer.write_scenes(scenes)

    with atomic_path(output) as new_folder:
        make(new_folder)
