"""Scenes that go on where the one before ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.formats.l5kit import combined_scenes


def get_combined_scenes(scenes: Any) -> AnyArray:
    """Scenes of which one begins when the one before it ends, by the same host, as one."""
    return combined_scenes(np.asarray(scenes))
