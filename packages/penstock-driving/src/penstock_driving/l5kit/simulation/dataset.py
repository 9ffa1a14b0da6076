"""Scenes that are simulated together, under the original's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_driving.dataset import EgoSamples
from penstock_driving.l5kit.simulation.utils import chunked
from penstock_driving.logs import Arrays
from penstock_driving.simulation import Simulation, SimulationConfig

__all__ = ["SimulationConfig", "SimulationDataset"]


class SimulationDataset:
    """Scenes that are simulated together, frame by frame; a thin layer over `Simulation`, which is `simulation`."""

    def __init__(self, scene_dataset_batch: Mapping[int, EgoSamples], sim_cfg: SimulationConfig) -> None:
        if not scene_dataset_batch:
            raise DataError("expected one scene or more to simulate, got none")
        first, *others = scene_dataset_batch.values()
        if any(type(other) is not type(first) or other.cfg != first.cfg for other in others):
            raise DataError("expected datasets of one kind with one configuration, got different ones")
        logs = {number: dataset.dataset for number, dataset in scene_dataset_batch.items()}
        self.dataset, self.simulation = first, Simulation(first, logs, sim_cfg)

    @staticmethod
    def from_dataset_indices(
        dataset: EgoSamples, scene_indices: Sequence[int], sim_cfg: SimulationConfig
    ) -> SimulationDataset:
        simulated = SimulationDataset.__new__(SimulationDataset)
        simulated.dataset, simulated.simulation = dataset, Simulation.of(dataset, scene_indices, sim_cfg)
        return simulated

    @property
    def sim_cfg(self) -> SimulationConfig:
        return self.simulation.config

    @property
    def scene_dataset_batch(self) -> dict[int, EgoSamples]:
        """Datasets of the scenes as they are simulated now, made when asked for; they share the simulation's rows."""
        return self._datasets(self.simulation.simulated)

    @property
    def recorded_scene_dataset_batch(self) -> dict[int, EgoSamples]:
        """Datasets of the scenes as they were when the simulation began, made when asked for."""
        return self._datasets(self.simulation.recorded)

    def _datasets(self, scenes: Mapping[int, Arrays]) -> dict[int, EgoSamples]:
        return {number: self.dataset.with_logs(chunked(logs)) for number, logs in scenes.items()}

    def get_min_len(self) -> int:
        """Return the number of frames that are simulated."""
        return len(self.simulation)

    def __len__(self) -> int:
        return len(self.simulation)

    def rasterise_frame_batch(self, state_index: int) -> list[dict[str, Any]]:
        """Return the ego's samples of a frame, one a scene."""
        samples = self.simulation.ego(state_index)
        return [samples.row(i) for i in range(len(self.simulation.simulated))]

    def rasterise_agents_frame_batch(self, state_index: int) -> dict[tuple[int, int], dict[str, Any]]:
        """Return the samples of controlled agents of a frame by scene and track id."""
        samples = self.simulation.agents(state_index)
        rows = (samples.row(i) for i in range(len(samples["track_id"])))
        return {(int(row["scene_index"]), int(row["track_id"])): row for row in rows}

    def set_ego(self, state_index: int, output_index: int, ego_translations: AnyArray, ego_yaws: AnyArray) -> None:
        """Set the ego of all scenes in a frame, from step `output_index` of `[S, T, 2]` metres and `[S, T]` radians."""
        if np.ndim(ego_translations) != 3 or np.ndim(ego_yaws) != 2:
            got = f"{list(np.shape(ego_translations))} and {list(np.shape(ego_yaws))}"
            raise DataError(f"expected translations [S, T, 2] and yaws [S, T], got {got}")
        self.simulation.set_ego(state_index, ego_translations[:, output_index], ego_yaws[:, output_index])

    def set_agents(self, state_index: int, agents_infos: Mapping[tuple[int, int], AnyArray]) -> None:
        """Set agents in a frame: rows `[1]` by scene and track id."""
        scenes: dict[int, list[AnyArray]] = {}
        for (scene, _), row in agents_infos.items():
            scenes.setdefault(int(scene), []).append(row)
        for scene, rows in scenes.items():
            self.simulation.set_agents(state_index, scene, np.concatenate(rows))
