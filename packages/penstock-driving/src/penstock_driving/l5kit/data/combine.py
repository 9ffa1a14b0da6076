"""Scenes that go on where the one before ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock_driving.formats.l5kit import combined_scenes


def get_combined_scenes(scenes: Any) -> AnyArray:
    """Join consecutive scenes of the same host, where a scene starts at the end of the scene before."""
    return combined_scenes(np.asarray(scenes))
