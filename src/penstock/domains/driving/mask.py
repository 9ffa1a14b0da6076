"""Which observations of agents make samples: those on a track without breaks, for long enough before and after."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.zarr import ZarrGroup
from penstock.core.arrays import AnyArray, BoolArray, IntArray, UInt32Array
from penstock.core.frozen import set_fields
from penstock.domains.driving.kernels.agents import select_agents
from penstock.domains.driving.logs import Logs, Timeline, interest_of
from penstock.errors import DataError, FormatError
from penstock.files.arrays import read_arrays, write_arrays

MIN_HISTORY, MIN_FUTURE = 10, 1
"""Frames that an agent must be there before and after, unless one says otherwise."""
_BLOCK = 1 << 18  # observations that are read at a time
_MAGIC = b"penstock agents mask 1\n"
_VERSION = 1  # of what a cached mask means


@dataclass(frozen=True)
class Thresholds:
    """What makes an observation count, and two of them a track.

    An agent takes part in traffic with more than `probability`, and is less than `distance` metres from the ego. From a
    frame to the next it turns by less than `yaw_degrees`, and the larger of its footprints (length times width) is less
    than `extent_ratio` times the smaller.

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
    """`[N, 2]` uint32: how many frames before and after each observation its track goes on without a break.

    Nothing is written, unless `cache` names a folder: a file there is then used, or made whole at once (concurrent
    writers are safe), under a name made of the data's fingerprint and of every threshold. A damaged file is made again.

    Raises `DataError` for a cache and logs without a fingerprint; `OSError` if the folder cannot be written.
    Cost: one pass over the agents, some 0.1 us an observation.

    >>> from penstock.domains.driving.logs import Arrays
    >>> from penstock.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
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
    found = read_arrays(path, _MAGIC, key)
    if found is not None and found[1]["mask"].shape == (len(logs.agents), 2):
        return found[1]["mask"]
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
    """`[N]` bool: the observations that a mask has as 0, 0 because they do not count, and not for being alone.

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
    """The mask that l5kit left in a dataset's folder: `[N, 2]` uint32 under a probability, such as `0.5`; `[N]` bool
    under the names of its first versions, such as `"10_50_0.5"` (history, future, probability).

    l5kit names them by the probability alone, so who reads one vouches for the other thresholds. Raises `FormatError`.
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
    """The rows of the agents that a mask lets through: `[N]` bool, or `[N, 2]` with at least so many frames before and
    after. Raises `DataError` for a mask of another number of rows, or of another form.

    >>> chosen(np.array([[0, 9], [10, 1], [12, 0]], np.uint32), 3).tolist()
    [1]
    """
    mask = np.asarray(mask)
    if mask.shape not in ((rows,), (rows, 2)) or (mask.ndim == 1 and mask.dtype != np.bool_) or mask.dtype.kind == "f":
        raise DataError(
            f"expected a mask of bool[{rows}] or uint32[{rows}, 2], a row for each of the agents, got "
            f"{mask.dtype}{list(mask.shape)}"
        )
    return np.flatnonzero(mask if mask.ndim == 1 else (mask[:, 0] >= history) & (mask[:, 1] >= future))


def coverage(mask: UInt32Array, steps: tuple[int, ...] = (0, 10, 30, 50)) -> IntArray:
    """`[P, F]` how many observations have at least so many frames before (rows) and after (columns).

    >>> coverage(np.array([[0, 1], [1, 0]], np.uint32), (0, 1)).tolist()
    [[2, 1], [1, 0]]
    """
    return np.array([[len(chosen(mask, len(mask), past, ahead)) for ahead in steps] for past in steps])
