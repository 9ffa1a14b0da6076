"""What there is to see of a frame: outlines and lines `xs`, `ys` `[n]` in metres of the world, and their colours."""

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
    """An agent: which track it is, what it most likely is, and how likely."""

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
    """A trajectory, the name that a legend has for it, and whose it is (-1: the ego's)."""

    xs: AnyArray
    ys: AnyArray
    color: str
    legend_label: str
    track_id: int


class FrameVisualization(NamedTuple):
    """Everything there is to see of a frame."""

    ego: EgoVisualization
    agents: list[AgentVisualization]
    lanes: list[LaneVisualization]
    crosswalks: list[CWVisualization]
    trajectories: list[TrajectoryVisualization]
