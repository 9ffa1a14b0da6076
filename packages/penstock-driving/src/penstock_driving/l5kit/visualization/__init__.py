"""Trajectories drawn onto rasters, and films."""

from penstock_driving.l5kit.visualization.gif import write_gif
from penstock_driving.l5kit.visualization.utils import (
    PREDICTED_POINTS_COLOR,
    REFERENCE_TRAJ_COLOR,
    TARGET_POINTS_COLOR,
    draw_reference_trajectory,
    draw_trajectory,
)
from penstock_driving.l5kit.visualization.video import write_video

__all__ = [
    "PREDICTED_POINTS_COLOR",
    "REFERENCE_TRAJ_COLOR",
    "TARGET_POINTS_COLOR",
    "draw_reference_trajectory",
    "draw_trajectory",
    "write_gif",
    "write_video",
]
