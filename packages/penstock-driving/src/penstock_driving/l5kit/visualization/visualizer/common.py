"""Visible elements of a frame: outlines and lines `xs`, `ys` `[n]` in world metres, and their colours."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.arrays import AnyArray


class LaneVisualization(NamedTuple):
    """A lane."""

    xs: AnyArray
    ys: AnyArray
    color: str


class CWVisualization(NamedTuple):
    """A crosswalk."""

    xs: AnyArray
    ys: AnyArray
    color: str


class AgentVisualization(NamedTuple):
    """An agent: its track, its most likely type, and the probability of that type."""

    xs: AnyArray
    ys: AnyArray
    color: str
    track_id: int
    agent_type: str
    prob: float


class EgoVisualization(NamedTuple):
    """The ego, and its middle."""

    xs: AnyArray
    ys: AnyArray
    color: str
    center_x: float
    center_y: float


class TrajectoryVisualization(NamedTuple):
    """A trajectory, its legend label, and its track id (-1 is the ego)."""

    xs: AnyArray
    ys: AnyArray
    color: str
    legend_label: str
    track_id: int


class FrameVisualization(NamedTuple):
    """All visible elements of a frame."""

    ego: EgoVisualization
    agents: list[AgentVisualization]
    lanes: list[LaneVisualization]
    crosswalks: list[CWVisualization]
    trajectories: list[TrajectoryVisualization]
