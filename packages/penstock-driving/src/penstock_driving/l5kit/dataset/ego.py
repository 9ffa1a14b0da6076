"""Samples of the ego, with rasters or vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.arrays import AnyArray, IntArray
from penstock_driving import ego, vectorized
from penstock_driving.dataset import DrivingDataset
from penstock_driving.l5kit.data.table import printed
from penstock_driving.l5kit.data.zarr_dataset import ChunkedDataset, in_memory
from penstock_driving.l5kit.dataset.select_agents import stored_mask
from penstock_driving.perturbation import Perturbation
from penstock_driving.rasterize import Rasterizer
from penstock_driving.vectorize import Vectorizer


class BaseEgoDataset(DrivingDataset):
    """Base class of the datasets, with the original's names."""

    @property
    def cumulative_sizes(self) -> IntArray:
        """`[S]` where the frames of each scene end."""
        return self.timeline.offsets[1:]

    def __str__(self) -> str:
        return printed(self.dataset)

    def _scene(self, scene: int) -> ChunkedDataset:
        return in_memory(self.dataset, scene)


class EgoDataset(BaseEgoDataset, ego.EgoDataset):
    """As `penstock_driving.ego.EgoDataset`, whose further options it takes: a sample for every frame."""

    def __init__(
        self,
        cfg: Mapping[str, Any],
        zarr_dataset: ChunkedDataset,
        rasterizer: Rasterizer | None,
        perturbation: Perturbation | None = None,
        **options: Any,
    ) -> None:
        ego.EgoDataset.__init__(self, cfg, zarr_dataset, rasterizer, perturbation, **options)


class EgoDatasetVectorized(BaseEgoDataset, vectorized.EgoDatasetVectorized):
    """As `penstock_driving.vectorized.EgoDatasetVectorized`: a vector sample for every frame."""


class EgoAgentDatasetVectorized(BaseEgoDataset, vectorized.EgoAgentDatasetVectorized):
    """As `penstock_driving.vectorized.EgoAgentDatasetVectorized`: the ego as one of the agents.

    Without `agents_mask`, the mask in the dataset's folder is used, or one is computed.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        zarr_dataset: ChunkedDataset,
        vectorizer: Vectorizer,
        perturbation: Perturbation | None = None,
        agents_mask: AnyArray | None = None,
        eval_mode: bool = False,
        **options: Any,
    ) -> None:
        if agents_mask is None:
            agents_mask = stored_mask(zarr_dataset, cfg)
        vectorized.EgoAgentDatasetVectorized.__init__(
            self, cfg, zarr_dataset, vectorizer, perturbation, agents_mask, eval_mode, **options
        )
