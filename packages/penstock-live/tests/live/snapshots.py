"""Figures of a pipeline as its endpoint gives them."""

from __future__ import annotations

from typing import Any


def snapshot(time: float, busy: float, frames: int, fill: int = 0, waited: float | None = None) -> dict[str, Any]:
    queue: dict[str, float] = {"puts": 0, "gets": 0, "drops": 0, "fill": fill, "capacity": 4, "nbytes": 0}
    queue["waited_seconds"] = 0.5 * time if waited is None else waited
    empty: dict[str, Any] = {"threads": 1, "busy": 0.1 * time, "counts": {}, "gauges": {}, "queue": {}}
    unpacker = {**empty, "threads": 2, "busy": 2 * busy, "counts": {"frames": frames, "failed.gone": 2}}
    tensors = {**empty, "counts": {"frames": frames}, "queue": queue}
    return {"time": time, "stages": {"tensor_generator": tensors, "chunk_unpacker": unpacker, "other": empty}}
