"""MAGICAL's demonstrations: a gzipped pickle a trajectory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.containers.pickle import loads
from penstock.core.arrays import AnyArray, BoolArray
from penstock.core.narrowing import is_dict
from penstock.core.spaces import Discrete
from penstock.errors import FormatError
from penstock.formats.base.format import folder_of
from penstock.formats.base.infos import plain
from penstock.formats.base.source import Source
from penstock.formats.demos.imitation import opening
from penstock.formats.demos.source import Kind
from penstock.formats.demos.trajectories import Track, source_of, unpickled
from penstock_imitation.formats.native.magical_preproc import SIDE, Preprocessor, preprocessor_named, shrunken
from penstock_imitation.formats.native.unpack import MAX_BYTES, head_of, other_files, some_files, unpacked

SUFFIX = ".pkl.gz"
ACTIONS = 18  # of every MAGICAL environment
NULL = 0  # the action that does nothing
_KEYS = ("trajectory", "score", "env_name")
_CLASSES = (b"MILBenchTrajectory", b"MAGICALTrajectory", b"imitation.util.rollout")


class MagicalKind(Kind):
    """A `.pkl.gz` a trajectory, one or a folder of them; see `read_magical`."""

    name: ClassVar[str] = "magical"
    several: ClassVar[bool] = True
    description: ClassVar[str] = "MAGICAL trajectories in .pkl.gz"
    options: ClassVar[tuple[str, ...]] = ("preprocessor", "remove_null_actions", "max_bytes")

    def recognises(self, path: Path) -> bool:
        """By the first words of the first pickle: a dict with one of our keys, and the name of a class."""
        head = head_of(path, SUFFIX, gzipped=True)
        first = opening(head, 2)
        named = any(name in head for name in _CLASSES)
        return len(first) == 2 and first[0] == "EMPTY_DICT" and first[1] in _KEYS and named

    def open(self, path: Path | Sequence[Path], **options: Any) -> Source:
        return read_magical(path, **options)


def read_magical(
    path: Path | Sequence[Path],
    *,
    preprocessor: str | None = None,
    remove_null_actions: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Source:
    """The trajectories of a file, of all files `*.pkl.gz` of a folder, or of several files.

    Without `preprocessor`: `observations/ego` and `observations/allo`, `[T + 1, 384, 384, 3]` uint8 as stored. With
    `"LoRes4E"`, `"LoRes4A"`, `"LoRes3EA"`: `observations` `[T + 1, 96, 96, 12]`; `"LoResCHW4E"`: `[T + 1, 12, 96, 96]`;
    `"LoResStack"`: `observations/ego` and `observations/allo` `[T + 1, 96, 96, 12]`. Stacks are made when read.

    `remove_null_actions` drops steps that do nothing, each with the observation that it began with, its reward and its
    infos; the last observation and the end of the episode stay, with what only the last infos say. Stacks hold the
    frames as they were seen, frames of dropped steps included.

    Memory: 0.9 MB a step as stored, 28 kB a step and view with a preprocessor; and one file unpacked twice.
    """
    chosen = None if preprocessor is None else preprocessor_named(preprocessor)
    tracks: list[Track] = []
    small: dict[str, list[AnyArray]] = {} if chosen is None else {view: [] for view in chosen.views}
    keep: list[BoolArray] = []
    names: dict[Any, str] = {}
    for file in some_files(path, SUFFIX):
        track, name = _track(file, max_bytes)
        names.setdefault(name, file.name)
        if len(names) > 1:
            message = f"expected one environment, got {dict(list(names.items())[:4])}; open their files by themselves"
            raise FormatError(message, path=folder_of(path))
        if chosen is not None:
            for view in chosen.views:
                small[view].append(_small(track, view, chosen, file))
            track = replace(track, observations={})
        actions = track.actions[""]
        keep.append(np.append(actions != NULL if remove_null_actions else actions >= NULL, True))
        tracks.append(track if keep[-1].all() else _without(track, keep[-1]))
    frames = None if chosen is None else chosen.frames(small, np.flatnonzero(np.concatenate(keep)))
    return source_of(
        tracks,
        _metadata_of(names, preprocessor),
        path=folder_of(path),
        frames=frames,
        action_space=Discrete(ACTIONS),
        left_out=other_files(path, SUFFIX),
    )


def _metadata_of(names: Mapping[Any, str], preprocessor: str | None) -> dict[str, Any]:
    metadata = {
        "kind": MagicalKind.name,
        "env_name": next(iter(names)),
        "color_space": "RGB",
        "preprocessor": preprocessor,
    }
    return {name: value for name, value in metadata.items() if value is not None}


def _track(file: Path, max_bytes: int) -> tuple[Track, str | None]:
    """The trajectory of a file, and the name of its environment."""
    value = loads(unpacked(file, max_bytes), path=file)
    if not is_dict(value) or "trajectory" not in value:
        got = list(value)[:20] if is_dict(value) else type(value).__name__
        raise FormatError(f"expected a dict with trajectory, score and env_name, got {got}", path=file)
    name = value.pop("env_name", None)
    if not isinstance(name, str | None):
        raise FormatError(f"expected the name of an environment, got {type(name).__name__}", path=file)
    trajectory = value.pop("trajectory")
    track = unpickled(trajectory, path=file, where="trajectory", metadata={"file": file.name, **plain(value)})
    actions = track.actions[""]
    if actions.dtype.kind not in "iu" or actions.ndim != 1 or not ((actions >= 0) & (actions < ACTIONS)).all():
        message = f"expected actions from 0 to {ACTIONS - 1}, got {actions.dtype}{list(actions.shape)}"
        raise FormatError(message, path=file, where="trajectory")
    if "" in track.observations:
        raise FormatError("expected observations as dicts of views, got arrays", path=file, where="trajectory")
    return track, name


def _small(track: Track, view: str, chosen: Preprocessor, file: Path) -> AnyArray:
    """`[T + 1, ...]` the shrunken frames of one view."""
    shape = (SIDE, SIDE, 3)
    frames = track.observations.get(view, [])
    for t, frame in enumerate(frames):
        if frame.shape[1:] != shape or frame.dtype != np.uint8:
            message = f"expected {view} as uint8{list(shape)}, got {frame.dtype}{list(frame.shape[1:])}"
            raise FormatError(message, path=file, where=f"observation {t}")
    if not frames:
        keys = sorted(track.observations)
        raise FormatError(f"expected observations of {view}, got {keys}", path=file, where="trajectory")
    small = np.stack([shrunken(frame[0]) for frame in frames])
    return np.ascontiguousarray(small.transpose(0, 3, 1, 2)) if chosen.channels_first else small


def _without(track: Track, keep: BoolArray) -> Track:
    """The steps, and the observations they begin with, that are kept; the last observation is."""
    steps = keep[:-1]
    seen = {
        p: [run for run, kept in zip(runs, keep.tolist(), strict=True) if kept]
        for p, runs in track.observations.items()
    }
    rewards = None if track.rewards is None else track.rewards[steps]
    infos = None
    if track.infos is not None:
        infos = [dict(track.infos[i]) for i in np.flatnonzero(steps).tolist()]
        if infos:
            infos[-1] = dict(track.infos[-1]) | infos[-1]
    return replace(track, observations=seen, actions={"": track.actions[""][steps]}, rewards=rewards, infos=infos)
