"""Closed-loop simulation: models drive the ego and cars around it through recorded scenes, many scenes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array, FloatArray, IntArray, UInt64Array
from penstock.core.columns import Columns
from penstock.data.map_dataset import planned_samples
from penstock.errors import DataError
from penstock_driving.dataset import DrivingDataset, EgoSamples
from penstock_driving.ego import RasterDataset
from penstock_driving.formats.l5kit.columns import intervals
from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE
from penstock_driving.geometry import rotation33_as_yaw, transform_points, yaw_as_rotation33
from penstock_driving.logs import EGO_LABEL, Arrays, Logs, NoSuchRowError, scene_logs
from penstock_driving.vectorized import EgoAgentDatasetVectorized

CAR = EGO_LABEL
STEP_SECONDS = 0.1  # from frame to frame, as in the original
_FIELDS = {"agents": "agent_index_interval", "tl_faces": "traffic_light_faces_index_interval"}


class TrajectoryStateIndices(IntEnum):
    """Columns of the states of the ego, in metres, radians and seconds.

    Example:
        >>> TrajectoryStateIndices.SPEED.value
        3
    """

    X = 0
    Y = 1
    THETA = 2
    SPEED = 3
    ACCELERATION = 4
    CURVATURE = 5
    TIME = 6


@dataclass
class SimulationConfig:
    """Parameters of a simulation.

    Args:
        use_ego_gt: Whether the ego drives as recorded, not as a model says.
        use_agents_gt: Whether agents move as recorded, not as a model says.
        disable_new_agents: Whether agents that are not controlled in the first frame are removed from all frames.
        distance_th_far: A controlled car remains controlled while it is nearer to the ego than this, in metres.
        distance_th_close: A car becomes controlled when it is nearer to the ego than this, in metres.
        start_frame_index: First frame of each scene to simulate. Samples do not see the frames before it.
        num_simulation_steps: Frames to simulate; None is all up to the end of the shortest scene.
        show_info: Whether a bar on the terminal shows the progress.

    Example:
        >>> SimulationConfig(num_simulation_steps=50).distance_th_close
        15.0
    """

    use_ego_gt: bool = False
    use_agents_gt: bool = False
    disable_new_agents: bool = False
    distance_th_far: float = 30.0
    distance_th_close: float = 15.0
    start_frame_index: int = 0
    num_simulation_steps: int | None = None
    show_info: bool = False


class Simulation:
    """Scenes that are simulated together, frame by frame.

    `ego(t)` and `agents(t)` make the samples of frame `t` of all scenes, one batch each, from the simulated rows; a
    model turns them into `positions` `[n, T, 2]` and `yaws` `[n, T, 1]`, as seen from each sample. `move_ego` and
    `move_agents` put the first of these steps into the next frame. `simulated` and `recorded` have the rows of each
    scene, by its number.

    Args:
        dataset: Says how samples are made: an `EgoDataset` or `EgoDatasetVectorized` without perturbation.
        scenes: Logs of one scene each, by number.
        config: Parameters of the simulation.

    Raises:
        DataError: There is no scene, logs have another number of scenes than one, a scene is too short, or the dataset
            cannot be simulated.

    Cost: a call of `ego` or `agents` copies the frames that its samples look at, and sorts their agents by track:
    a few milliseconds a scene.

    Example:
        >>> from penstock_driving.ego import EgoDataset
        >>> from penstock_driving.formats.l5kit.dtypes import FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
        >>> rows = {1: SCENE_DTYPE, 4: FRAME_DTYPE}, {1: AGENT_DTYPE, 0: TL_FACE_DTYPE}
        >>> logs = Arrays(*(np.zeros(n, dtype) for part in rows for n, dtype in part.items()))
        >>> logs.scenes["frame_index_interval"], logs.frames["ego_rotation"] = [0, 4], np.eye(3)
        >>> logs.frames["agent_index_interval"] = [[0, 1], [1, 1], [1, 1], [1, 1]]
        >>> logs.agents["label_probabilities"][:, CAR], logs.agents["centroid"] = 1, [8, 0]
        >>> raster = {"raster_size": (9, 9), "pixel_size": (1, 1), "ego_center": (0.5, 0.5)}
        >>> raster |= {"filter_agents_threshold": 0.5, "set_origin_to_bottom": True}
        >>> model = {"history_num_frames": 1, "future_num_frames": 2, "step_time": 0.1}
        >>> dataset = EgoDataset({"raster_params": raster, "model_params": model}, logs)
        >>> simulation = Simulation.of(dataset, [0], SimulationConfig())
        >>> for t in range(len(simulation) - 1):
        ...     for samples, move in (
        ...         (simulation.agents(t), simulation.move_agents),
        ...         (simulation.ego(t), simulation.move_ego),
        ...     ):
        ...         ahead = np.tile([[2.0, 0.0]], (samples.n, 1, 1))
        ...         move(t + 1, samples, {"positions": ahead, "yaws": np.zeros((samples.n, 1, 1))})
        >>> simulation.simulated[0].frames["ego_translation"][:, 0].tolist()
        [0.0, 2.0, 4.0, 6.0]
        >>> simulation.simulated[0].agents["centroid"][:, 0].tolist()
        [8.0, 10.0, 12.0, 14.0]
    """

    def __init__(self, dataset: DrivingDataset, scenes: Mapping[int, Logs], config: SimulationConfig) -> None:
        if isinstance(dataset, EgoAgentDatasetVectorized) or not isinstance(dataset, EgoSamples):
            kind = type(dataset).__name__
            raise DataError(f"expected an EgoDataset or EgoDatasetVectorized to simulate, got {kind}")
        if getattr(dataset, "perturbation", None) is not None:
            raise DataError("expected a dataset without perturbation to simulate; make it again without one")
        if not scenes:
            raise DataError("expected one scene or more to simulate, got none")
        several = [number for number, logs in scenes.items() if len(logs.scenes) != 1]
        if several:
            number = several[0]
            raise DataError(f"expected logs of one scene each, got {len(scenes[number].scenes)} as scene {number}")
        self.dataset, self.config = dataset, config
        # Few samples are drawn of each frame, so rasters prepare nothing for others.
        self._options = {"scene_bytes": 0} if isinstance(dataset, RasterDataset) else {}
        whole = {number: scene_logs(logs, 0) for number, logs in scenes.items()}
        first, last = _range(config, min(len(logs.frames) for logs in whole.values()))
        self.simulated = {number: windows([logs], first, last) for number, logs in whole.items()}
        self._controlled = {number: np.zeros(0, np.uint64) for number in whole}
        if config.disable_new_agents:
            for number, logs in self.simulated.items():
                hide_others(logs.agents, logs.agents["track_id"][self._near(number, 0)])
        self.recorded = {
            number: Arrays(logs.scenes.copy(), logs.frames.copy(), logs.agents.copy(), logs.tl_faces.copy())
            for number, logs in self.simulated.items()
        }

    @classmethod
    def of(cls, dataset: DrivingDataset, scenes: Sequence[int], config: SimulationConfig) -> Simulation:
        """Simulate scenes of a dataset.

        Args:
            dataset: Makes the samples, as in `Simulation`.
            scenes: Numbers of the scenes.
            config: Parameters of the simulation.

        Raises:
            DataError: A scene is repeated or does not exist, and as for `Simulation`.
        """
        numbers, count = [int(number) for number in scenes], dataset.timeline.scenes
        if len(set(numbers)) != len(numbers):
            raise DataError(f"expected each scene once, got {numbers}")
        absent = [number for number in numbers if not 0 <= number < count]
        if absent:
            raise DataError(f"expected scenes within 0:{count}, got {absent[0]}")
        return cls(dataset, {number: scene_logs(dataset.dataset, number) for number in numbers}, config)

    def __len__(self) -> int:
        return len(next(iter(self.simulated.values())).frames)

    def ego(self, frame: int) -> Columns:
        """Return the samples of the ego in a frame, one for each scene in the order of `simulated`.

        `scene_index` and `frame_index` are numbers of the simulation.

        Args:
            frame: Frame of the simulation, from 0.

        Raises:
            NoSuchRowError: The frame is out of range.
        """
        dataset, begin = self._around(frame)
        rows = dataset.timeline.offsets[:-1] + (frame - begin)
        return self._numbered(planned_samples(dataset).at(rows), np.array(list(self.simulated)), begin)

    def agents(self, frame: int) -> Columns:
        """Return the samples of the controlled agents in a frame, scene by scene; there may be none.

        They are cars near the ego, by the two distances of the configuration. A car of the previous call for its scene
        counts as controlled.

        Args:
            frame: Frame of the simulation, from 0.

        Raises:
            NoSuchRowError: The frame is out of range.
        """
        dataset, begin = self._around(frame)
        first = dataset.timeline.agents[dataset.timeline.offsets[:-1] + (frame - begin)]
        near = [self._near(number, frame) for number in self.simulated]
        for (number, logs), rows in zip(self.simulated.items(), near, strict=True):
            self._controlled[number] = logs.agents["track_id"][rows]
        in_frame = [
            start + rows - int(logs.frames["agent_index_interval"][frame, 0])
            for start, rows, logs in zip(first.tolist(), near, self.simulated.values(), strict=True)
        ]
        scene = np.repeat(list(self.simulated), [len(rows) for rows in near])
        return self._numbered(dataset.agent_samples(np.concatenate(in_frame)), scene, begin)

    def move_ego(self, frame: int, samples: Columns, outputs: Mapping[str, AnyArray]) -> None:
        """Move the ego of each scene to the first step of a model's outputs.

        Args:
            frame: Frame of the simulation to write.
            samples: Samples of the ego that the model saw.
            outputs: `positions` `[S, T, 2]` metres and `yaws` `[S, T, 1]` radians, seen from each sample.

        Raises:
            DataError: Outputs are missing, have other shapes, or are not finite.
            NoSuchRowError: The frame is out of range.
        """
        self.set_ego(frame, *sent(samples, outputs))

    def move_agents(self, frame: int, samples: Columns, outputs: Mapping[str, AnyArray]) -> None:
        """Move agents to the first step of a model's outputs.

        Args:
            frame: Frame of the simulation to write.
            samples: Samples of `n` agents that the model saw.
            outputs: `positions` `[n, T, 2]` metres and `yaws` `[n, T, 1]` radians, seen from each sample.

        Raises:
            DataError: Outputs are missing, have other shapes, or are not finite.
            NoSuchRowError: The frame is out of range.
        """
        rows, scene = agent_rows(samples, outputs), np.asarray(samples["scene_index"])
        for number in np.unique(scene).tolist():
            self.set_agents(frame, number, rows[scene == number])

    def set_ego(self, frame: int, positions: FloatArray, yaws: FloatArray) -> None:
        """Set the pose of the ego of each of the `S` scenes. Its height stays.

        Args:
            frame: Frame of the simulation to write.
            positions: `[S, 2]` metres in the world.
            yaws: `[S]` radians in the world.

        Raises:
            DataError: Positions or yaws have another shape.
            NoSuchRowError: The frame is out of range.
        """
        self._check(frame)
        count = len(self.simulated)
        if np.shape(positions) != (count, 2) or np.shape(yaws) != (count,):
            got = f"{list(np.shape(positions))} and {list(np.shape(yaws))}"
            raise DataError(f"expected positions [{count}, 2] and yaws [{count}] for {count} scenes, got {got}")
        for logs, position, yaw in zip(self.simulated.values(), positions, yaws, strict=True):
            logs.frames["ego_translation"][frame, :2] = position
            logs.frames["ego_rotation"][frame] = yaw_as_rotation33(yaw)

    def set_agents(self, frame: int, scene: int, agents: AnyArray) -> None:
        """Set agents in a frame of a scene. Rows of existing tracks are replaced, others are added.

        Args:
            frame: Frame of the simulation to write.
            scene: Number of the scene.
            agents: Rows of the agents' dtype, each of another track.

        Raises:
            DataError: A track is repeated.
            NoSuchRowError: The scene or frame does not exist.
        """
        self._check(frame)
        if scene not in self.simulated:
            raise NoSuchRowError(f"expected a scene among {list(self.simulated)}, got {scene}")
        self.simulated[scene] = with_agents(self.simulated[scene], frame, agents)

    def _check(self, frame: int) -> None:
        if not 0 <= frame < len(self):
            raise NoSuchRowError(f"expected a frame within 0:{len(self)} of the simulation, got {frame}")

    def _around(self, frame: int) -> tuple[EgoSamples, int]:
        """The dataset of the frames that samples of a frame look at, in all scenes, and the first of these frames."""
        self._check(frame)
        sampling = self.dataset.sampling
        begin, end = max(frame - sampling.history, 0), min(frame + sampling.future + 1, len(self))
        return self.dataset.with_logs(windows(list(self.simulated.values()), begin, end), **self._options), begin

    def _numbered(self, samples: Columns, scene: IntArray, begin: int) -> Columns:
        """Samples whose scenes and frames are numbered as in the simulation."""
        numbers = {"scene_index": scene.astype(np.int64)}
        if "frame_index" in samples:
            numbers["frame_index"] = np.asarray(samples["frame_index"]) + begin
        return samples.merged(numbers)

    def _near(self, scene: int, frame: int) -> IntArray:
        """The rows of the agents of a frame that are controlled; of a track twice in the frame the first counts."""
        logs, config = self.simulated[scene], self.config
        first, last = logs.frames["agent_index_interval"][frame].tolist()
        agents = logs.agents[first:last]
        away = np.linalg.norm(agents["centroid"] - logs.frames["ego_translation"][frame, :2], axis=1)
        known = np.isin(agents["track_id"], self._controlled[scene])
        near = away < np.where(known, config.distance_th_far, config.distance_th_close)
        near &= agents["label_probabilities"][:, CAR] > self.dataset.sampling.threshold
        rows = np.flatnonzero(near)
        return first + rows[np.sort(np.unique(agents["track_id"][rows], return_index=True)[1])]


def sent(samples: Columns, outputs: Mapping[str, AnyArray]) -> tuple[FloatArray, FloatArray]:
    """Return the places `[n, 2]` and yaws `[n]` to which the first step of outputs `[n, T, ...]` moves samples."""
    n = samples.n
    for name, axes in (("positions", 2), ("yaws", 1)):
        if name not in outputs:
            raise DataError(f"expected {name} among the outputs of the model, got {sorted(outputs)}")
        shape = outputs[name].shape
        if len(shape) != 3 or shape[0] != n or shape[1] < 1 or shape[2] != axes:
            raise DataError(f"expected {name} [{n}, T, {axes}] of the model for {n} samples, got {list(shape)}")
        if not np.isfinite(outputs[name][:, 0]).all():
            raise DataError(f"expected finite {name} of the model, got others")
    positions: Any = transform_points(outputs["positions"][:, :1], np.asarray(samples["world_from_agent"]))[:, 0]
    return positions, samples["yaw"] + outputs["yaws"][:, 0, 0]


def agent_rows(samples: Columns, outputs: Mapping[str, AnyArray]) -> AnyArray:
    """Return rows of agents to which a model moves samples: cars of the same track and size."""
    positions, yaws = sent(samples, outputs)
    rows = np.zeros(len(yaws), AGENT_DTYPE)
    rows["centroid"], rows["yaw"] = positions, yaws
    rows["track_id"], rows["extent"] = samples["track_id"], samples["extent"]
    rows["label_probabilities"][:, CAR] = 1
    return rows


def windows(scenes: Sequence[Arrays], first: int, last: int) -> Arrays:
    """Return frames `first : last` of each scene as one dataset: copies, with intervals that count from 0."""
    frames = np.concatenate([logs.frames[first:last] for logs in scenes])
    rows: dict[str, AnyArray] = {}
    for name, field in _FIELDS.items():
        spans = [(logs, *logs.frames[field][[first, last - 1], [0, 1]].tolist()) for logs in scenes]
        rows[name] = np.concatenate([getattr(logs, name)[begin:end] for logs, begin, end in spans])
        frames[field] = intervals(frames[field][:, 1] - frames[field][:, 0])
    heads = np.concatenate([logs.scenes for logs in scenes])
    heads["frame_index_interval"] = intervals(np.full(len(scenes), last - first))
    heads["start_time"] = frames["timestamp"][:: last - first]
    heads["end_time"] = frames["timestamp"][last - first - 1 :: last - first]
    return Arrays(heads, frames, rows["agents"], rows["tl_faces"])


def with_agents(logs: Arrays, frame: int, agents: AnyArray) -> Arrays:
    """Put agents into a frame of a scene. Known tracks change in place; new ones are added at the end of the frame."""
    names = agents["track_id"]
    if len(np.unique(names)) != len(names):
        raise DataError(f"expected each track once to put into frame {frame}, got {names.tolist()}")
    first, last = logs.frames["agent_index_interval"][frame].tolist()
    known, here, given = np.intersect1d(logs.agents["track_id"][first:last], names, return_indices=True)
    logs.agents[first + here] = agents[given]
    added = agents[~np.isin(names, known)]
    if not len(added):
        return logs
    logs.frames["agent_index_interval"][frame, 1] += len(added)
    logs.frames["agent_index_interval"][frame + 1 :] += len(added)
    return replace(logs, agents=np.concatenate([logs.agents[:last], added, logs.agents[last:]]))


def ego_states(frames: AnyArray) -> Float32Array:
    """Return the states `[T, 7]` of the ego, numbered by `TrajectoryStateIndices`; what frames do not have is 0."""
    states = np.zeros((len(frames), len(TrajectoryStateIndices)), np.float32)
    states[:, : TrajectoryStateIndices.THETA] = frames["ego_translation"][:, :2]
    states[:, TrajectoryStateIndices.THETA] = rotation33_as_yaw(frames["ego_rotation"])
    states[:, TrajectoryStateIndices.TIME] = STEP_SECONDS * np.arange(len(frames))
    return states


def hide_others(agents: AnyArray, kept: UInt64Array) -> None:
    """Make agents invisible in place: at the origin and without size, as l5kit does."""
    hidden = ~np.isin(agents["track_id"], kept)
    for field in ("centroid", "yaw", "extent"):
        agents[field][hidden] = 0
    agents["label_probabilities"][hidden] = -1


def _range(config: SimulationConfig, length: int) -> tuple[int, int]:
    """The first frame that is simulated, and the one behind the last, of scenes of `length` frames or more."""
    first, steps = config.start_frame_index, config.num_simulation_steps
    last = length if steps is None else first + steps
    if not 0 <= first < last <= length:
        wanted = "all frames" if steps is None else f"{steps} frames"
        raise DataError(f"expected scenes with {wanted} from frame {first} on, got one of {length} frames")
    return first, last
