"""Samples of other agents, with rasters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.errors import DataError
from penstock_driving import agent
from penstock_driving.l5kit.data.zarr_dataset import ChunkedDataset
from penstock_driving.l5kit.dataset.ego import BaseEgoDataset
from penstock_driving.l5kit.dataset.select_agents import stored_mask
from penstock_driving.l5kit.dataset.utils import AGENT_MIN_FRAME_FUTURE, AGENT_MIN_FRAME_HISTORY
from penstock_driving.perturbation import Perturbation
from penstock_driving.rasterize import Rasterizer


class AgentDataset(BaseEgoDataset, agent.AgentDataset):
    """Dataset with one sample for every agent observation that the mask selects.

    It takes all options of `penstock_driving.agent.AgentDataset`. Without `agents_mask`, it uses the mask in the
    dataset's folder, or computes one. A mask `[N]` bool selects agents. For a mask `[N, 2]` (frames before and after),
    and for a mask that is not given, agents need `min_frame_history` and `min_frame_future` frames.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        zarr_dataset: ChunkedDataset,
        rasterizer: Rasterizer | None,
        perturbation: Perturbation | None = None,
        agents_mask: AnyArray | None = None,
        min_frame_history: int = AGENT_MIN_FRAME_HISTORY,
        min_frame_future: int = AGENT_MIN_FRAME_FUTURE,
        **options: Any,
    ) -> None:
        if perturbation is not None:
            raise DataError("expected no perturbation, which is for the ego alone; use EgoDataset")
        if agents_mask is None and not {"thresholds", "cache"} & options.keys():
            agents_mask = stored_mask(zarr_dataset, cfg)
        agent.AgentDataset.__init__(
            self, cfg, zarr_dataset, rasterizer, agents_mask, min_frame_history, min_frame_future, **options
        )

    @property
    def cumulative_sizes_agents(self) -> IntArray:
        """`[F]` where the agents of each frame end."""
        return self.timeline.agents[1:]

    @property
    def mask_indices(self) -> IntArray:
        """`[N]` the sample of each of the agents, -1 where there is none."""
        sample_of_agent = np.full(len(self.dataset.agents), -1, np.int64)
        sample_of_agent[self.agents_indices] = np.arange(len(self))
        return sample_of_agent
