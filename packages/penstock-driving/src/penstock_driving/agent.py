"""Samples of other road users: one for every observation that a mask lets through."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.columns import Columns
from penstock.errors import DataError
from penstock_driving.config import Sampling, Velocities
from penstock_driving.ego import RasterChoice, RasterDataset
from penstock_driving.logs import TRACK_BYTES, Logs, Timeline, checked
from penstock_driving.mask import MIN_FUTURE, MIN_HISTORY, Thresholds, chosen, rejected_agents
from penstock_driving.mask import agents_mask as computed_mask
from penstock_driving.pictures import SCENE_BYTES, ImageType

Rejected = Literal["leave_out", "keep"]


class AgentDataset(RasterDataset):
    """One sample for each observation of an agent on a long enough track: its past and future, and a raster.

    Cost: one call of `agents_mask` if no mask is passed.

    Args:
        cfg: Configuration of l5kit with `model_params` and `raster_params`.
        logs: The four arrays of a driving log, with `N` observations of agents.
        rasterizer: Draws `image`, as in `EgoDataset`. The default is `"config"`.
        agents_mask: `[N, 2]` integers, frames before and after each observation; or `[N]` bool, to which the two
            numbers of frames do not apply (a warning says so if they are set). The default is None: computed from
            `thresholds`.
        min_frame_history: Frames before an observation that its track must have. The default is 10.
        min_frame_future: Frames after an observation that its track must have. The default is 1.
        thresholds: Limits for the computed mask; the configuration sets its `probability`. The default is
            `Thresholds()`.
        cache: Folder that keeps the computed mask. The default is None: it is not stored.
        rejected: `"leave_out"` (the default) or `"keep"`: whether rejected observations are samples if both numbers of
            frames are 0. l5kit keeps them; the sample of an agent below the threshold is then an error.
        velocities: `"original"` (the default) or `"masked"`, as in `Sampling`.
        image_type: Dtype of `image`: `"float32"` in 0 to 1 (the default), or `"uint8"`.
        track_bytes: Bytes of memory for tables of tracks. The default is 512 MiB.
        scene_bytes: Bytes of rows up to which the log stays in memory for rasters. The default is 512 MiB.

    Raises:
        DataError: The mask has another shape or dtype, or comes with `thresholds` or `cache`, and as for `EgoDataset`.
        FormatError: Intervals of scenes, frames and agents do not fit together.

    Example:
        >>> from penstock_driving.logs import Arrays
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
        >>> rows = {1: SCENE_DTYPE, 3: FRAME_DTYPE}, {3: AGENT_DTYPE, 0: TL_FACE_DTYPE}
        >>> logs = Arrays(*(np.zeros(n, dtype) for part in rows for n, dtype in part.items()))
        >>> logs.scenes["frame_index_interval"] = [0, 3]
        >>> logs.frames["agent_index_interval"] = [[0, 1], [1, 2], [2, 3]]
        >>> logs.agents["extent"], logs.agents["label_probabilities"][:, 3] = 1, 1
        >>> raster = {"raster_size": (9, 9), "pixel_size": (1, 1), "ego_center": (0.5, 0.5)}
        >>> raster |= {"filter_agents_threshold": 0.5, "set_origin_to_bottom": True}
        >>> model = {"history_num_frames": 1, "future_num_frames": 2, "step_time": 0.1}
        >>> cfg = {"raster_params": raster, "model_params": model}
        >>> data = AgentDataset(cfg, logs, min_frame_history=1, min_frame_future=1)
        >>> data.agents_indices.tolist(), data[0]["history_availabilities"].tolist()
        ([1], [1.0, 1.0])
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        logs: Logs,
        rasterizer: RasterChoice = "config",
        agents_mask: AnyArray | None = None,
        min_frame_history: int = MIN_HISTORY,
        min_frame_future: int = MIN_FUTURE,
        *,
        thresholds: Thresholds | None = None,
        cache: str | os.PathLike[str] | None = None,
        rejected: Rejected = "leave_out",
        velocities: Velocities = "original",
        image_type: ImageType = "float32",
        track_bytes: int = TRACK_BYTES,
        scene_bytes: int = SCENE_BYTES,
    ) -> None:
        timeline = Timeline.of(logs)
        least = Least(min_frame_history, min_frame_future, rejected)
        self.agents_mask, rows = masked(cfg, logs, timeline, agents_mask, least, thresholds, cache)
        options = {
            "velocities": velocities,
            "image_type": image_type,
            "track_bytes": track_bytes,
            "scene_bytes": scene_bytes,
        }
        cuts = np.searchsorted(rows, timeline.agents[timeline.offsets])
        super().__init__(cfg, logs, timeline, rows, cuts, rasterizer, None, options)

    @property
    def agents_indices(self) -> IntArray:
        """`[n]` int64: the row of the agents of each sample."""
        return self.rows

    def _given(self, agents: slice) -> dict[str, Any]:
        mask = mask_of(self.rows, len(self.dataset.agents))
        return {"rasterizer": self.rasterizer, "agents_mask": mask[agents], **self.options}

    def _make(self, rows: IntArray, positions: IntArray) -> Columns:
        return self._pictured(*self.sampler.agents(rows))

    @override
    def get_frame_indices(self, frame_idx: int) -> IntArray:
        frame = checked(frame_idx, len(self.timeline), "frame")
        lo, hi = np.searchsorted(self.rows, self.timeline.agents[frame : frame + 2]).tolist()
        return np.arange(lo, hi, dtype=np.int64)


@dataclass(frozen=True)
class Least:
    """Frames that a track must have before and after an observation."""

    history: int = MIN_HISTORY
    future: int = MIN_FUTURE
    rejected: Rejected = "leave_out"

    def __post_init__(self) -> None:
        if self.rejected not in ("leave_out", "keep"):
            raise DataError(f"expected rejected to be 'leave_out' or 'keep', got {self.rejected!r}")


def masked(
    cfg: Mapping[str, Any],
    logs: Logs,
    timeline: Timeline,
    agents_mask: AnyArray | None,
    least: Least,
    thresholds: Thresholds | None,
    cache: str | os.PathLike[str] | None,
) -> tuple[AnyArray, IntArray]:
    """Return the mask of a dataset of agents, and the rows of the agents that it selects."""
    if agents_mask is not None and (thresholds is not None or cache is not None):
        raise DataError("expected a mask, or the thresholds and the cache of one, got both")
    thresholds = replace(thresholds or Thresholds(), probability=Sampling.of(cfg).threshold)
    computed = agents_mask is None
    mask = computed_mask(logs, thresholds, cache=cache, timeline=timeline) if agents_mask is None else agents_mask
    rows = chosen(mask, len(logs.agents), least.history, least.future)
    if np.asarray(mask).ndim == 1 and (least.history, least.future) != (MIN_HISTORY, MIN_FUTURE):
        warnings.warn(
            f"min_frame_history={least.history} and min_frame_future={least.future} do not apply to a mask of bool[N], "
            "which says by itself which agents there are; hand in the mask of uint32[N, 2]",
            stacklevel=3,
        )
    if computed and least.rejected == "leave_out" and least.history <= 0 and least.future <= 0:
        rows = rows[~rejected_agents(logs, thresholds, timeline=timeline)[rows]]
    return mask, rows[rows < timeline.agents[-1]]


def mask_of(rows: IntArray, count: int) -> BoolArray:
    """Return a mask, `[count]` bool, of row numbers."""
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask
