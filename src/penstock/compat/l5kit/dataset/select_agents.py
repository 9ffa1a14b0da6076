"""Which observations of agents count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.logs import Logs
from penstock.domains.driving.mask import Thresholds, agents_mask, reference_mask
from penstock.domains.driving.sampling import section

_DEFAULT = Thresholds()
TH_YAW_DEGREE, TH_EXTENT_RATIO, TH_DISTANCE_AV = _DEFAULT.yaw_degrees, _DEFAULT.extent_ratio, _DEFAULT.distance


def select_agents(
    zarr_dataset: Logs,
    th_agent_prob: float,
    th_yaw_degree: float = TH_YAW_DEGREE,
    th_extent_ratio: float = TH_EXTENT_RATIO,
    th_distance_av: float = TH_DISTANCE_AV,
) -> npt.NDArray[np.uint32]:
    """`[N, 2]` how many frames before and after each observation its track goes on; see `penstock`'s `agents_mask`.

    Hand it to a dataset as `agents_mask`; nothing is written.
    """
    return agents_mask(zarr_dataset, Thresholds(th_agent_prob, th_yaw_degree, th_extent_ratio, th_distance_av))


def stored_mask(logs: Any, cfg: Mapping[str, Any]) -> npt.NDArray[Any] | None:
    """The mask that the original left in the folder of a dataset for the configuration's probability, if it did."""
    name = section(cfg, "raster_params")["filter_agents_threshold"]
    path = Path(getattr(logs, "path", "") or "/nowhere")
    return reference_mask(path, name) if (path / "agents_mask" / str(name) / ".zarray").is_file() else None
