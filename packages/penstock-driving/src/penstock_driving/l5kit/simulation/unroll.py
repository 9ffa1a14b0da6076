"""Closed-loop simulation: models drive the ego and other cars through scenes. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.progress import track

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns
from penstock.errors import DataError, require
from penstock.loading.torch import to_torch
from penstock_driving.dataset import EgoSamples
from penstock_driving.l5kit.dataset.utils import move_to_numpy
from penstock_driving.l5kit.simulation.dataset import SimulationConfig, SimulationDataset
from penstock_driving.l5kit.simulation.utils import chunked
from penstock_driving.simulation import TrajectoryStateIndices, ego_states

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")

__all__ = [
    "ClosedLoopSimulator",
    "ClosedLoopSimulatorModes",
    "SimulationConfig",
    "SimulationDataset",
    "SimulationOutput",
    "SimulationOutputCLE",
    "TrajectoryStateIndices",
    "UnrollInputOutput",
]

_REQUIRED = ("track_id", "scene_index")


class UnrollInputOutput(NamedTuple):
    """Inputs and outputs of a model for the ego (track id -1) or an agent in one frame."""

    track_id: int
    inputs: dict[str, AnyArray]
    outputs: dict[str, AnyArray]


class ClosedLoopSimulatorModes(IntEnum):
    """Mode of a simulator: unrolls with models, or steps of a Gym environment without models."""

    L5KIT = 0
    GYM = 1


class SimulationOutputCLE:
    """Result of a simulated scene, for metrics.

    `simulated_ego` and `recorded_ego` are rows of frames, `simulated_agents` and `recorded_agents` rows of agents,
    `simulated_ego_states` and `recorded_ego_states` tensors `[T, 7]` by `TrajectoryStateIndices`. `ego_ins_outs` has
    one `UnrollInputOutput` for each frame, `agents_ins_outs` one list for each frame; both are empty without a
    simulated ego or simulated agents.
    """

    def __init__(
        self,
        scene_id: int,
        sim_dataset: SimulationDataset,
        ego_ins_outs: Mapping[int, list[UnrollInputOutput]],
        agents_ins_outs: Mapping[int, list[list[UnrollInputOutput]]],
    ) -> None:
        simulation = sim_dataset.simulation
        if scene_id not in simulation.simulated:
            raise DataError(f"expected a scene among {list(simulation.simulated)}, got {scene_id}")
        self.scene_id = scene_id
        simulated, recorded = simulation.simulated[scene_id], simulation.recorded[scene_id]
        self.simulated_agents, self.recorded_agents = simulated.agents, recorded.agents
        self.simulated_ego, self.recorded_ego = simulated.frames, recorded.frames
        self.simulated_ego_states = self.build_trajectory_states(self.simulated_ego)
        self.recorded_ego_states = self.build_trajectory_states(self.recorded_ego)
        self.ego_ins_outs = ego_ins_outs.get(scene_id, [])
        self.agents_ins_outs = agents_ins_outs.get(scene_id, [])

    def get_scene_id(self) -> int:
        return self.scene_id

    @staticmethod
    def build_trajectory_states(frames: AnyArray) -> torch.Tensor:
        """Return `[T, 7]` float32 where the ego is in frames, by `TrajectoryStateIndices`."""
        return torch.as_tensor(ego_states(frames))


class SimulationOutput(SimulationOutputCLE):
    """Result of a simulated scene, with the datasets `simulated_dataset` and `recorded_dataset` for pictures."""

    def __init__(
        self,
        scene_id: int,
        sim_dataset: SimulationDataset,
        ego_ins_outs: Mapping[int, list[UnrollInputOutput]],
        agents_ins_outs: Mapping[int, list[list[UnrollInputOutput]]],
    ) -> None:
        super().__init__(scene_id, sim_dataset, ego_ins_outs, agents_ins_outs)
        simulation = sim_dataset.simulation
        self.recorded_dataset, self.simulated_dataset = (
            sim_dataset.dataset.with_logs(chunked(scenes[scene_id]))
            for scenes in (simulation.recorded, simulation.simulated)
        )


class ClosedLoopSimulator:
    """Simulator of several scenes: models get a batch of the egos of all scenes, and a batch of all
    controlled agents.
    """

    def __init__(
        self,
        sim_cfg: SimulationConfig,
        dataset: EgoSamples,
        device: torch.device,
        model_ego: torch.nn.Module | None = None,
        model_agents: torch.nn.Module | None = None,
        keys_to_exclude: Collection[str] = ("image",),
        mode: int = ClosedLoopSimulatorModes.L5KIT,
    ) -> None:
        if mode == ClosedLoopSimulatorModes.L5KIT:
            parts = (("ego", sim_cfg.use_ego_gt, model_ego), ("agents", sim_cfg.use_agents_gt, model_agents))
            for name, recorded, model in parts:
                if not recorded and model is None:
                    raise DataError(f"expected model_{name} to simulate, got None; or set use_{name}_gt=True")
        elif sim_cfg.use_ego_gt:
            raise DataError("expected use_ego_gt=False with the mode GYM, whose agent drives the ego")
        self.sim_cfg = sim_cfg
        self.dataset = dataset
        self.device = device
        self.model_ego, self.model_agents = (
            (torch.nn.Sequential() if model is None else model).to(device) for model in (model_ego, model_agents)
        )
        self.keys_to_exclude = set(keys_to_exclude)

    def unroll(self, scene_indices: Sequence[int]) -> list[SimulationOutput]:
        """Simulate scenes of the dataset together, without gradients."""
        scenes = [int(scene) for scene in scene_indices]
        dataset = SimulationDataset.from_dataset_indices(self.dataset, scenes, self.sim_cfg)
        ego: dict[int, list[UnrollInputOutput]] = {scene: [] for scene in scenes}
        agents: dict[int, list[list[UnrollInputOutput]]] = {scene: [] for scene in scenes}
        for frame in track(range(len(dataset)), "simulating", disable=not self.sim_cfg.show_info, transient=True):
            last = frame + 1 == len(dataset)
            if not self.sim_cfg.use_agents_gt:
                inputs, outputs = self._run(self.model_agents, dataset.simulation.agents(frame))
                if not last and outputs:
                    self.update_agents(dataset, frame + 1, inputs, outputs)
                kept = self.get_agents_in_out(inputs, outputs, self.keys_to_exclude)
                for scene in scenes:
                    agents[scene].append(kept.get(scene, []))
            if not self.sim_cfg.use_ego_gt:
                inputs, outputs = self._run(self.model_ego, dataset.simulation.ego(frame))
                if not last:
                    self.update_ego(dataset, frame + 1, inputs, outputs)
                for scene, each in self.get_ego_in_out(inputs, outputs, self.keys_to_exclude).items():
                    ego[scene].append(each)
        return [SimulationOutput(scene, dataset, ego, agents) for scene in scenes]

    def _run(self, model: torch.nn.Module, samples: Columns) -> tuple[dict[str, AnyArray], dict[str, AnyArray]]:
        """Inputs and outputs of a model as arrays; no outputs without a sample."""
        inputs = {name: np.asarray(samples[name]) for name in samples}
        if not len(inputs["track_id"]):
            return inputs, {}
        with torch.no_grad():
            return inputs, move_to_numpy(model(dict(to_torch(samples, self.device))))

    @staticmethod
    def update_agents(
        dataset: SimulationDataset,
        frame_idx: int,
        input_dict: Mapping[str, AnyArray],
        output_dict: Mapping[str, AnyArray],
    ) -> None:
        """Put agents into a frame, at the first step of the outputs of a model."""
        dataset.simulation.move_agents(frame_idx, Columns(input_dict), output_dict)

    @staticmethod
    def update_ego(
        dataset: SimulationDataset,
        frame_idx: int,
        input_dict: Mapping[str, AnyArray],
        output_dict: Mapping[str, AnyArray],
    ) -> None:
        """Put the ego of all scenes into a frame, at the first step of the outputs of a model."""
        dataset.simulation.move_ego(frame_idx, Columns(input_dict), output_dict)

    @staticmethod
    def get_agents_in_out(
        input_dict: Mapping[str, AnyArray],
        output_dict: Mapping[str, AnyArray],
        keys_to_exclude: Collection[str] | None = None,
    ) -> dict[int, list[UnrollInputOutput]]:
        """Return inputs and outputs of each agent by scene; scenes without one are left out."""
        kept: dict[int, list[UnrollInputOutput]] = {}
        for scene, each in _in_out(input_dict, output_dict, keys_to_exclude):
            kept.setdefault(scene, []).append(each)
        return kept

    @staticmethod
    def get_ego_in_out(
        input_dict: Mapping[str, AnyArray],
        output_dict: Mapping[str, AnyArray],
        keys_to_exclude: Collection[str] | None = None,
    ) -> dict[int, UnrollInputOutput]:
        each = _in_out(input_dict, output_dict, keys_to_exclude)
        kept = dict(each)
        if len(kept) != len(each):
            raise DataError(f"expected each scene once for the ego, got {[scene for scene, _ in each]}")
        return kept


def _in_out(
    inputs: Mapping[str, AnyArray], outputs: Mapping[str, AnyArray], excluded: Collection[str] | None
) -> list[tuple[int, UnrollInputOutput]]:
    """The scene of each sample, its inputs and outputs."""
    excluded = excluded or ()
    wrong = [name for name in _REQUIRED if name not in inputs or name in excluded]
    if wrong:
        raise DataError(f"expected {wrong[0]} among the inputs and not in keys_to_exclude, got {sorted(inputs)}")
    sides = [{name: values for name, values in side.items() if name not in excluded} for side in (inputs, outputs)]
    return [
        (
            int(inputs["scene_index"][i]),
            UnrollInputOutput(inputs["track_id"][i], *({name: side[name][i] for name in side} for side in sides)),
        )
        for i in range(len(inputs["track_id"]))
    ]
