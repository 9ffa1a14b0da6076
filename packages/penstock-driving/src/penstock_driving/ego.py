"""Samples of the car that records: one for every frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.errors import DataError
from penstock_driving.config import Sampling, Velocities
from penstock_driving.dataset import DrivingDataset, EgoSamples, Sampled, described, lights_of, merged
from penstock_driving.logs import TRACK_BYTES, Logs, Timeline
from penstock_driving.perturbation import Perturbation
from penstock_driving.pictures import SCENE_BYTES, BatchRasterizer, ImageType
from penstock_driving.rasterize.base import Rasterizer
from penstock_driving.rasterize.build import rasterizer_of
from penstock_driving.sampling import Sampler, SampleSubjects

RasterChoice = Rasterizer | Literal["config"] | None


class RasterDataset(DrivingDataset):
    """Base of datasets whose samples have a raster.

    Args:
        cfg: Configuration of l5kit with `model_params` and `raster_params`.
        logs: The four arrays of a driving log.
        timeline: Frames of the scenes of the log.
        rows: `[n]` ascending rows of the log, one for each sample.
        cuts: `[scenes + 1]` the first sample of each scene, and the end.
        rasterizer: Draws `image`. `"config"` builds the one that `raster_params.map_type` names, if it needs no files.
            None leaves out `image`.
        perturbation: Moves the ego in random samples, None in none. The draws depend on the position in the order, so
            they differ between epochs.
        options: The keywords `velocities`, `image_type`, `track_bytes` and `scene_bytes` of `EgoDataset`.
        parts: More parts of the fingerprint.

    Raises:
        DataError: The configuration lacks an entry, names a rasterizer that needs files, or an option is unknown.

    Example:
        >>> issubclass(EgoDataset, RasterDataset)
        True
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        logs: Logs,
        timeline: Timeline,
        rows: IntArray,
        cuts: IntArray,
        rasterizer: RasterChoice,
        perturbation: Perturbation | None,
        options: Mapping[str, Any],
        *parts: object,
    ) -> None:
        sampling = Sampling.of(cfg, options["velocities"])
        if isinstance(rasterizer, str):
            if rasterizer != "config":
                raise DataError(f"expected a rasterizer, 'config' or None, got {rasterizer!r}")
            rasterizer = rasterizer_of(cfg)
        self.rasterizer = rasterizer
        self.perturbation = perturbation
        self.options = dict(options)
        self.sampler = Sampler(logs, sampling, perturbation, timeline=timeline, track_bytes=options["track_bytes"])
        self.pictures = None
        if rasterizer is not None:
            lights = lights_of(cfg)
            kind, room = options["image_type"], options["scene_bytes"]
            self.pictures = BatchRasterizer(logs, timeline, rasterizer, sampling.history, lights, kind, room)
        described_parts = (type(self).__name__, sampling, type(rasterizer).__name__, dict(cfg), *parts)
        super().__init__(
            cfg, logs, timeline, rows, cuts, Sampled(self._make, described(logs, *described_parts), perturbation)
        )

    def _pictured(self, sample: Columns, targets: SampleSubjects) -> Columns:
        return merged(sample, None if self.pictures is None else self.pictures(targets))

    def _one(self, frame: int, track_id: int | None) -> Columns:
        if track_id is None or track_id == -1:
            return self._pictured(*self.sampler.ego(np.array([frame]), np.array([frame])))
        return self._pictured(*self.sampler.agents(np.array([self.sampler.find(frame, track_id)])))


class EgoDataset(RasterDataset, EgoSamples):
    """One sample for each frame: past and future of the ego, and a raster around it.

    `penstock_driving.sampling` lists the keys of a sample. Cost: reads the frames once; a sample without a
    raster takes some microseconds.

    Args:
        cfg: Configuration of l5kit with `model_params` and `raster_params`.
        logs: The four arrays of a driving log, such as an `L5KitSource`.
        rasterizer: Draws `image`. `"config"` (the default) builds the rasterizer that `raster_params.map_type` names:
            `box_debug` or `stub_debug`. A kind that needs files is an error that says how to build it. Without a
            `map_type`, or with None, samples have no `image`.
        perturbation: Moves the ego in random samples. The draws depend on the position in the order, so they differ
            between epochs. The default is None.
        velocities: `"original"` (the default) or `"masked"`, as in `Sampling`.
        image_type: Dtype of `image`: `"float32"` in 0 to 1 (the default), or `"uint8"`.
        track_bytes: Bytes of memory for tables of tracks. The default is 512 MiB.
        scene_bytes: Bytes of rows up to which the log stays in memory for rasters. The default is 512 MiB.

    Raises:
        DataError: The configuration lacks an entry, names a rasterizer that needs files, or an option is unknown.
        FormatError: Intervals of scenes, frames and agents do not fit together.

    Example:
        >>> from penstock_driving.logs import Arrays
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
        >>> rows = {1: SCENE_DTYPE, 3: FRAME_DTYPE}, {3: AGENT_DTYPE, 0: TL_FACE_DTYPE}
        >>> logs = Arrays(*(np.zeros(n, dtype) for part in rows for n, dtype in part.items()))
        >>> logs.scenes["frame_index_interval"] = [0, 3]
        >>> raster = {"raster_size": (9, 9), "pixel_size": (1, 1), "ego_center": (0.5, 0.5)}
        >>> raster |= {"filter_agents_threshold": 0.5, "set_origin_to_bottom": True}
        >>> model = {"history_num_frames": 1, "future_num_frames": 2, "step_time": 0.1}
        >>> data = EgoDataset({"raster_params": raster, "model_params": model}, logs)
        >>> data[[0, 1]]["target_availabilities"].tolist()
        [[1.0, 1.0], [1.0, 0.0]]
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        logs: Logs,
        rasterizer: RasterChoice = "config",
        perturbation: Perturbation | None = None,
        *,
        velocities: Velocities = "original",
        image_type: ImageType = "float32",
        track_bytes: int = TRACK_BYTES,
        scene_bytes: int = SCENE_BYTES,
    ) -> None:
        timeline = Timeline.of(logs)
        options = {
            "velocities": velocities,
            "image_type": image_type,
            "track_bytes": track_bytes,
            "scene_bytes": scene_bytes,
        }
        rows = np.arange(len(timeline))
        super().__init__(cfg, logs, timeline, rows, timeline.offsets, rasterizer, perturbation, options)

    @property
    @override
    def sampling(self) -> Sampling:
        return self.sampler.sampling

    @override
    def agent_samples(self, rows: IntArray) -> Columns:
        return self._pictured(*self.sampler.agents(rows))

    def _make(self, rows: IntArray, positions: IntArray) -> Columns:
        return self._pictured(*self.sampler.ego(rows, positions))

    def _given(self, agents: slice) -> dict[str, Any]:
        return {"rasterizer": self.rasterizer, "perturbation": self.perturbation, **self.options}
