"""Samples of driving logs: of the ego, and of other agents."""

from penstock_driving.l5kit.dataset.agent import AgentDataset
from penstock_driving.l5kit.dataset.ego import (
    BaseEgoDataset,
    EgoAgentDatasetVectorized,
    EgoDataset,
    EgoDatasetVectorized,
)
from penstock_driving.l5kit.dataset.select_agents import select_agents

__all__ = [
    "AgentDataset",
    "BaseEgoDataset",
    "EgoAgentDatasetVectorized",
    "EgoDataset",
    "EgoDatasetVectorized",
    "select_agents",
]
