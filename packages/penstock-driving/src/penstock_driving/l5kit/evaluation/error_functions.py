"""Distances between PyTorch tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from penstock_driving.metrics import BadPredictionError

Tensor = Any
ErrorFunction = Callable[[Tensor, Tensor], Tensor]


def l2_error(pred: Tensor, gt: Tensor) -> Tensor:
    """Return Euclidean distances `[...]` of points `[..., C]`."""
    return (pred - gt).norm(p=2, dim=-1)


def closest_angle_error(angle_a: Tensor, angle_b: Tensor) -> Tensor:
    """Return `[...]` radians between angles, the shorter way around."""
    if angle_a.shape != angle_b.shape:
        message = f"expected angles of one shape, got {list(angle_a.shape)} and {list(angle_b.shape)}"
        raise BadPredictionError(message)
    turn = (angle_b - angle_a).fmod(2 * math.pi).abs()  # symmetric, and exact for angles that are near
    return turn.minimum(2 * math.pi - turn)
