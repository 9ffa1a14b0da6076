"""Datasets of driving logs: a plan over rows, and a stage that turns a batch of rows into samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.core.narrowing import is_mapping
from penstock.core.spec import Field, Spec
from penstock.data.map_dataset import MapDataset
from penstock.data.planned_samples import PlannedSamples
from penstock.formats.memory import MemorySource
from penstock.plan.episodes import Episodes
from penstock.plan.steps import Steps
from penstock_driving.config import Sampling
from penstock_driving.logs import Logs, NoSuchRowError, Timeline, checked, scene_logs
from penstock_driving.perturbation import Perturbation

Make = Callable[[IntArray, IntArray], Columns]


@dataclass(frozen=True, eq=False)
class Sampled:
    """The stage that makes samples of the column `row`; `described` and `perturbation` are its part of fingerprints.

    A perturbation may be changed while the dataset is used, so it is described again each time.
    """

    make: Make
    described: str
    perturbation: Perturbation | None = None

    @property
    def fingerprint(self) -> str:
        """As described, with the perturbation as it is now."""
        return self.described if self.perturbation is None else f"{self.described} moved by {self.perturbation!r}"

    def __call__(self, columns: Columns, positions: IntArray) -> Columns:
        return self.make(columns["row"], positions)

    def __repr__(self) -> str:
        return self.fingerprint


class DrivingDataset(MapDataset, ABC):
    """Samples of rows of a driving log, whose scenes are the episodes; base of the datasets of egos and agents.

    Shuffle, mix, shard, repeat and load it as any `MapDataset`; `data[5]`, `data[2:9]`, `data[positions]`.
    Numbers of scenes and frames may be negative, which counts from the end. A dataset is made of a configuration, logs,
    and the keywords that `_given` returns; so it can be made again, of one scene or in another process.

    Args:
        cfg: Configuration of l5kit.
        logs: The four arrays of a driving log.
        timeline: Frames of the scenes of the log.
        rows: `[n]` ascending rows of the log, one for each sample.
        cuts: `[scenes + 1]` the first sample of each scene, and the end.
        stage: Makes samples of rows.
    """

    def __init__(
        self, cfg: Mapping[str, Any], logs: Logs, timeline: Timeline, rows: IntArray, cuts: IntArray, stage: Sampled
    ) -> None:
        self.cfg = cfg
        self.dataset = logs
        self.timeline = timeline
        self.rows = rows
        self.cuts = cuts
        source = MemorySource(Spec({"row": Field(np.dtype(np.int64))}), {"row": rows}, cuts)
        super().__init__(PlannedSamples([source], Steps().plan(Episodes.of(source)), (stage,)))

    def __getitem__(self, index: Any) -> Any:
        """One sample, or a batch of them."""
        try:
            return cast("Any", super().__getitem__)(index)
        except NoSuchRowError:
            raise
        except IndexError as error:
            raise NoSuchRowError(str(error)) from error

    def get_frame(self, scene_index: int, state_index: int, track_id: int | None = None) -> dict[str, Any]:
        """Return the sample of the ego, or of an agent, in a frame.

        Args:
            scene_index: Number of the scene.
            state_index: Number of the frame in the scene.
            track_id: Track id of the agent. The default is None: the ego.

        Raises:
            NoSuchRowError: There is no such scene, frame or track, or the agent is below the threshold.
        """
        scene = checked(scene_index, self.timeline.scenes, "scene")
        first, last = self.timeline.offsets[scene : scene + 2].tolist()
        frame = first + checked(state_index, last - first, f"frame of scene {scene}")
        return self._one(frame, track_id).row(0)

    @abstractmethod
    def _make(self, rows: IntArray, positions: IntArray) -> Columns:
        """The samples of rows of the log, at positions of the order."""

    @abstractmethod
    def _given(self, agents: slice) -> dict[str, Any]:
        """The keywords that make the same dataset of logs that hold only some rows of the agents."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        # Caches and locks stay behind: unpickling makes new ones.
        return partial(type(self), self.cfg, self.dataset, **self._given(slice(None))), ()

    def get_scene_dataset(self, scene_index: int) -> Self:
        """Return the same dataset of one scene, read into memory, where it may be changed.

        Args:
            scene_index: Number of the scene.

        Raises:
            NoSuchRowError: There is no such scene.
        """
        scene = checked(scene_index, self.timeline.scenes, "scene")
        first, last = self.timeline.agents[self.timeline.offsets[scene : scene + 2]].tolist()
        kind: Any = type(self)
        return kind(self.cfg, self._scene(scene), **self._given(slice(first, last)))

    def _scene(self, scene: int) -> Logs:
        return scene_logs(self.dataset, scene)

    @abstractmethod
    def _one(self, frame: int, track_id: int | None) -> Columns:
        """The batch of the one sample of a frame of the dataset. Its position is the frame's number."""

    def get_scene_indices(self, scene_idx: int) -> IntArray:
        """Return the samples of a scene, `[n]` int64.

        Args:
            scene_idx: Number of the scene.

        Raises:
            NoSuchRowError: There is no such scene.
        """
        scene = checked(scene_idx, self.timeline.scenes, "scene")
        return np.arange(self.cuts[scene], self.cuts[scene + 1], dtype=np.int64)

    def get_frame_indices(self, frame_idx: int) -> IntArray:
        """Return the samples of a frame of the dataset, `[n]` int64.

        Args:
            frame_idx: Number of the frame in the dataset.

        Raises:
            NoSuchRowError: There is no such frame.
        """
        frame = checked(frame_idx, len(self.timeline), "frame")
        lo, hi = np.searchsorted(self.rows, np.array([frame, frame + 1])).tolist()
        return np.arange(lo, hi, dtype=np.int64)


class EgoSamples(DrivingDataset, ABC):
    """A dataset with one sample for every frame, the ego's; simulations make it again of logs that they change."""

    @property
    @abstractmethod
    def sampling(self) -> Sampling:
        """Contents of a sample."""

    @abstractmethod
    def agent_samples(self, rows: IntArray) -> Columns:
        """Return the samples of observations of agents.

        Args:
            rows: `[n]` int64 rows of the agents.

        Raises:
            NoSuchRowError: A row is out of range.
        """

    def with_logs(self, logs: Logs, **options: Any) -> Self:
        """Return the same dataset over other logs. Cost: reads the frames.

        Args:
            logs: The four arrays of a driving log.
            options: Keywords to replace.
        """
        kind: Any = type(self)
        return kind(self.cfg, logs, **{**self._given(slice(0, 0)), **options})


def described(logs: Logs, *parts: object) -> str:
    """Inputs of a stage's samples, as text: the data and the options."""
    known = getattr(logs, "fingerprint", None)
    rows = (len(logs.scenes), len(logs.frames), len(logs.agents), len(logs.tl_faces))
    return f"sampled({known or rows}, {', '.join(map(repr, parts))})"


def merged(sample: Columns, image: AnyArray | None) -> Columns:
    """The sample with its picture, if there is one."""
    return sample if image is None else sample.merged({"image": image})


def lights_of(cfg: Mapping[str, Any]) -> bool:
    """Whether traffic lights are drawn, as they are where a configuration does not say."""
    raster = cfg.get("raster_params")
    return not (is_mapping(raster) and raster.get("disable_traffic_light_faces", False))
