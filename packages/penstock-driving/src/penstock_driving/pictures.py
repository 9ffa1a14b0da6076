"""Rasters of samples: the rows that each looks back on, handed to a rasteriser a batch at a time."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.core.recycler import Recycler
from penstock.errors import DataError
from penstock_driving.logs import Logs, Timeline
from penstock_driving.rasterize.base import Rasterizer, StubRasterizer
from penstock_driving.rasterize.scenes import Scenes, Views
from penstock_driving.sampling import SampleSubjects

ImageType = Literal["float32", "uint8"]

SCENE_BYTES = 512 << 20
"""Logs whose rows take at most this are drawn from memory; of larger ones each batch reads its own rows."""
_KEPT = 256 << 20  # bytes of rasters whose memory is used again, at least
_BATCHES = 4  # at least so many whole batches: one that is drawn, two that a loader holds ready, one in use


class BatchRasterizer:
    """Draws batches with `rasterizer`, each sample with `history` frames before the current one. Thread-safe.

    Rasters are `[n, C, H, W]`, float32 in 0..1 or uint8, in memory of earlier ones that nothing refers to. `lights`
    says whether faces of traffic lights are drawn.
    """

    def __init__(
        self,
        logs: Logs,
        timeline: Timeline,
        rasterizer: Rasterizer,
        history: int,
        lights: bool = True,
        dtype: ImageType = "float32",
        scene_bytes: int = SCENE_BYTES,
    ) -> None:
        if dtype not in ("float32", "uint8"):
            raise DataError(f"expected rasters of float32 or uint8, got {dtype!r}")
        self.logs = logs
        self.timeline = timeline
        self.rasterizer = rasterizer
        self.history = history
        self.lights = lights
        self.dtype = np.dtype(dtype)
        rows = (logs.frames, logs.agents, logs.tl_faces)
        # Beside the rows themselves, the corners of boxes and what says which there are.
        self._whole = 2 * sum(len(row) * row[0:0].dtype.itemsize for row in rows) <= scene_bytes
        self._kept = Cache(4 * scene_bytes)
        self._recycler = Recycler(_KEPT)

    def __call__(self, targets: SampleSubjects) -> AnyArray:
        """The rasters of `[n]` targets."""
        shape = (len(targets.frame), self.rasterizer.num_channels(), *self.rasterizer.context.shape)
        # Memory that is touched for the first time costs more than drawing, so whole batches must fit.
        self._recycler.raise_limit(_BATCHES * int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize)
        out = self._recycler.empty(shape, self.dtype)
        if isinstance(self.rasterizer, StubRasterizer):
            out.fill(0)
            return out
        if len(targets.frame) == 0:
            return out
        first = self.timeline.offsets[targets.scene]
        steps = targets.frame[:, None] - np.arange(self.history + 1)
        steps = np.where(steps >= first[:, None], steps, -1)
        scenes, steps = (self._kept.get("all", self._all), steps) if self._whole else self._part(targets, steps)
        position = np.concatenate([targets.pose[:, :2], scenes.frames["ego_translation"][steps[:, 0], 2:]], axis=1)
        views = Views(steps, position, np.ascontiguousarray(targets.pose[:, 2]), targets.track, targets.ego)
        return self.rasterizer.rasterize_batch(scenes, views, out)

    def padded(self, targets: SampleSubjects, places: IntArray, count: int) -> AnyArray:
        """The rasters of `[n]` targets at `places` among `count`, which are black elsewhere. Cost: another copy."""
        drawn = self(targets)
        out = self._recycler.empty((count, *drawn.shape[1:]), self.dtype)
        absent = np.ones(count, np.bool_)
        absent[places] = False
        out[places], out[absent] = drawn, 0
        return out

    def _all(self) -> tuple[Scenes, int]:
        faces = self.timeline.faces if self.lights else np.zeros_like(self.timeline.faces)
        spans = (np.stack([offsets[:-1], offsets[1:]], axis=1) for offsets in (self.timeline.agents, faces))
        rows = (self.logs.frames[: len(self.timeline)], self.logs.agents[:], self.logs.tl_faces[:])
        return Scenes(*rows, *spans), sum(row.nbytes for row in rows)

    def _part(self, targets: SampleSubjects, steps: IntArray) -> tuple[Scenes, IntArray]:
        """The frames that a batch looks at with what belongs to them, and `steps` in terms of these."""
        asked, inverse = np.unique(np.where(steps >= 0, steps, targets.frame[:, None]), return_inverse=True)
        agents, agent_spans = _rows(self.logs.agents, self.timeline.agents, asked)
        current = np.isin(asked, targets.frame) & self.lights
        faces, some = _rows(self.logs.tl_faces, self.timeline.faces, asked[current])
        face_spans = np.zeros_like(agent_spans)
        face_spans[current] = some
        scenes = Scenes(self.logs.frames[asked], agents, faces, agent_spans, face_spans)
        return scenes, np.where(steps >= 0, inverse.reshape(steps.shape), -1)


def _rows(rows: Any, offsets: IntArray, frames: IntArray) -> tuple[AnyArray, IntArray]:
    """Rows of ascending frames, in order, and the range of each frame in them."""
    counts = offsets[frames + 1] - offsets[frames]
    ends = np.cumsum(counts)
    runs = np.split(frames, np.flatnonzero(np.diff(frames) != 1) + 1) if len(frames) else []
    parts = [rows[int(offsets[run[0]]) : int(offsets[run[-1] + 1])] for run in runs]
    return np.concatenate([rows[0:0], *parts]), np.stack([ends - counts, ends], axis=1)
