"""Which observations of agents make samples: those on a track without breaks, for long enough before and after."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.zarr.group import ZarrGroup
from penstock.core.arrays import AnyArray, BoolArray, IntArray, UInt32Array
from penstock.core.frozen import set_fields
from penstock.errors import DataError, FormatError
from penstock.files.arrays import read_arrays, write_arrays
from penstock_driving.kernels.agents import select_agents
from penstock_driving.logs import Logs, Timeline, interest_of

MIN_HISTORY, MIN_FUTURE = 10, 1
"""Frames that an agent must be there before and after, unless one says otherwise."""
_BLOCK = 1 << 18  # observations that are read at a time
_MAGIC = b"penstock agents mask 1\n"
_VERSION = 1  # of what a cached mask means


@dataclass(frozen=True)
class Thresholds:
    """Limits that an observation of an agent must keep, and that join two observations to a track.

    Args:
        probability: An agent takes part in traffic if its labels of interest have a probability above this. The default
            is 0.5.
        yaw_degrees: From a frame to the next, an agent turns by less than this. The default is 30.
        extent_ratio: From a frame to the next, the larger footprint (length times width) is less than this many times
            the smaller one. The default is 1.1.
        distance: An agent is less than this many metres from the ego. The default is 50.

    Raises:
        DataError: A limit is NaN.

    Example:
        >>> Thresholds(distance=20)
        Thresholds(probability=0.5, yaw_degrees=30.0, extent_ratio=1.1, distance=20.0)
    """

    probability: float = 0.5
    yaw_degrees: float = 30.0
    extent_ratio: float = 1.1
    distance: float = 50.0

    def __post_init__(self) -> None:
        for name in ("probability", "yaw_degrees", "extent_ratio", "distance"):
            value = float(getattr(self, name))
            if np.isnan(value):
                raise DataError(f"expected a number as {name}, got {value}")
            set_fields(self, **{name: value})  # 50 and 50.0 are one key


def agents_mask(
    logs: Logs,
    thresholds: Thresholds = Thresholds(),
    *,
    cache: str | os.PathLike[str] | None = None,
    timeline: Timeline | None = None,
) -> UInt32Array:
    """Count the frames before and after each observation in which its track continues without a break.

    With `cache`, the mask is read from a file of that folder if it exists, else computed and written to it. The name of
    the file comes from the fingerprint of the data and from all thresholds; several processes may write at once. A
    damaged file is replaced. Cost: one pass over the agents, about 0.1 us an observation.

    Args:
        logs: The four arrays of a driving log, with `N` observations.
        thresholds: Limits of observations and tracks. The default is `Thresholds()`.
        cache: Folder of the cache. The default is None: nothing is written.
        timeline: Frames of the scenes, if they are known already. The default is None: computed.

    Returns:
        `[N, 2]` uint32: frames before, frames after.

    Raises:
        DataError: `cache` is set, and the logs have no fingerprint.
        OSError: The folder cannot be written.

    Example:
        >>> from penstock_driving.logs import Arrays
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
        >>> rows = {1: SCENE_DTYPE, 3: FRAME_DTYPE}, {3: AGENT_DTYPE, 0: TL_FACE_DTYPE}
        >>> logs = Arrays(*(np.zeros(n, dtype) for part in rows for n, dtype in part.items()))
        >>> logs.scenes["frame_index_interval"] = [0, 3]
        >>> logs.frames["agent_index_interval"] = [[0, 1], [1, 2], [2, 3]]
        >>> logs.agents["extent"], logs.agents["label_probabilities"][:, 3] = 1, 1
        >>> agents_mask(logs).tolist()
        [[0, 2], [1, 1], [2, 0]]
    """
    if cache is None:
        return _computed(logs, thresholds, Timeline.of(logs) if timeline is None else timeline)
    key = _key(logs, thresholds)
    path = Path(cache) / f"agents-mask-{key}"
    cached = read_arrays(path, _MAGIC, key)
    if cached is not None and cached[1]["mask"].shape == (len(logs.agents), 2):
        return cached[1]["mask"]
    mask = _computed(logs, thresholds, Timeline.of(logs) if timeline is None else timeline)
    write_arrays(path, _MAGIC, key, {}, {"mask": mask})
    return mask


def _key(logs: Logs, thresholds: Thresholds) -> str:
    fingerprint = getattr(logs, "fingerprint", None)
    if not isinstance(fingerprint, str):
        raise DataError(
            f"expected logs with a fingerprint to cache their mask, got {type(logs).__name__}; use no cache"
        )
    return hashlib.sha256(f"{_VERSION} {fingerprint} {thresholds!r}".encode()).hexdigest()[:32]


def _computed(logs: Logs, thresholds: Thresholds, timeline: Timeline) -> UInt32Array:
    mask = np.zeros((len(logs.agents), 2), np.uint32)
    begins = timeline.agents[timeline.offsets]  # the first observation of each scene
    limits = np.array([thresholds.probability, thresholds.yaw_degrees, thresholds.extent_ratio, thresholds.distance])
    scene = 0
    while scene < timeline.scenes:
        last = max(int(np.searchsorted(begins, int(begins[scene]) + _BLOCK, side="right")) - 1, scene + 1)
        lo, hi = int(begins[scene]), int(begins[last])
        frames = slice(int(timeline.offsets[scene]), int(timeline.offsets[last]))
        agents = logs.agents[lo:hi]
        most = int(np.diff(begins[scene : last + 1]).max(initial=1))
        select_agents(
            np.stack([timeline.offsets[scene:last], timeline.offsets[scene + 1 : last + 1]], axis=1) - frames.start,
            timeline.intervals[frames] - lo,
            np.ascontiguousarray(timeline.ego[frames, :2]),
            agents["centroid"],
            agents["yaw"],
            agents["extent"],
            agents["label_probabilities"],
            agents["track_id"],
            limits,
            1 << (2 * most).bit_length(),
            mask[lo:hi],
        )
        scene = last
    return mask


def rejected_agents(
    logs: Logs,
    thresholds: Thresholds = Thresholds(),
    *,
    timeline: Timeline | None = None,
) -> BoolArray:
    """Find the observations that a threshold rejects, unlike observations on a track of one frame.

    Both have zeros in a mask.

    Cost: one pass over the agents.
    """
    timeline = Timeline.of(logs) if timeline is None else timeline
    rejected = np.ones(len(logs.agents), np.bool_)
    end = int(timeline.agents[-1])
    for lo in range(0, end, _BLOCK):
        rows = np.arange(lo, min(lo + _BLOCK, end))
        agents: Any = logs.agents[lo : lo + len(rows)]
        away = timeline.ego[timeline.frame_of(rows), :2] - agents["centroid"]
        near = np.sqrt((away * away).sum(axis=1)) < thresholds.distance
        rejected[rows] = ~(near & (interest_of(agents["label_probabilities"]) > np.float32(thresholds.probability)))
    return rejected


def reference_mask(path: str | os.PathLike[str], name: str | float = 0.5) -> UInt32Array | BoolArray:
    """Read the mask that l5kit stored in the folder of a dataset.

    l5kit names masks by the probability alone; the caller must know that the other thresholds are the wanted ones.
    """
    group = ZarrGroup(path)
    mask = group.array(f"agents_mask/{name}")[:]
    group.close()
    if not (mask.dtype == np.bool_ and mask.ndim == 1) and not (mask.dtype == np.uint32 and mask.shape[1:] == (2,)):
        raise FormatError(
            f"expected a mask of uint32[N, 2] or bool[N], got {mask.dtype}{list(mask.shape)}",
            path=path,
            where=f"agents_mask/{name}",
        )
    return mask


def chosen(mask: AnyArray, rows: int, history: int = MIN_HISTORY, future: int = MIN_FUTURE) -> IntArray:
    """Return the rows, ascending, that a mask selects: `[N]` bool, or `[N, 2]` frames before and after."""
    mask = np.asarray(mask)
    if mask.shape not in ((rows,), (rows, 2)) or (mask.ndim == 1 and mask.dtype != np.bool_) or mask.dtype.kind == "f":
        raise DataError(
            f"expected a mask of bool[{rows}] or uint32[{rows}, 2], a row for each of the agents, got "
            f"{mask.dtype}{list(mask.shape)}"
        )
    return np.flatnonzero(mask if mask.ndim == 1 else (mask[:, 0] >= history) & (mask[:, 1] >= future))


def coverage(mask: UInt32Array, steps: tuple[int, ...] = (0, 10, 30, 50)) -> IntArray:
    """Count the observations, `[S, S]`, with at least `S` numbers of frames before (rows) and after (columns)."""
    return np.array([[len(chosen(mask, len(mask), past, ahead)) for ahead in steps] for past in steps])
