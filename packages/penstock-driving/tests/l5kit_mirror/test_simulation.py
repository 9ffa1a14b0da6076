"""Closed loops against the original's, what models see and do, and what is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from l5kit_mirror.simulation_outputs import CONFIG, simulation_outputs, two_scenes
from penstock.errors import DataError
from penstock.loading.torch import to_torch
from penstock_driving.l5kit.cle.closed_loop_evaluator import ClosedLoopEvaluator, EvaluationPlan
from penstock_driving.l5kit.cle.metrics import DisplacementErrorL2Metric
from penstock_driving.l5kit.data import AGENT_DTYPE, ChunkedDataset, LocalDataManager, MapAPI
from penstock_driving.l5kit.dataset import EgoDataset, EgoDatasetVectorized
from penstock_driving.l5kit.simulation.dataset import SimulationConfig, SimulationDataset
from penstock_driving.l5kit.simulation.unroll import (
    ClosedLoopSimulator,
    ClosedLoopSimulatorModes,
    SimulationOutput,
)
from penstock_driving.l5kit.simulation.utils import disable_agents, get_frames_subset, insert_agent
from penstock_driving.l5kit.vectorization import build_vectorizer
from penstock_driving.l5kit.visualization.visualizer.zarr_utils import simulation_out_to_visualizer_scene

CPU = torch.device("cpu")


def module(name: str) -> Any:
    return importlib.import_module(f"penstock_driving.l5kit.{name}")


@pytest.fixture
def logs(golden: Path) -> ChunkedDataset:
    return two_scenes(module, golden)


@pytest.fixture
def dataset(logs: ChunkedDataset) -> EgoDataset:
    return EgoDataset(CONFIG, logs, None)


class Ahead(torch.nn.Module):
    """Goes a metre ahead, and keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.metres = torch.nn.Parameter(torch.ones(1))
        self.seen: list[Any] = []

    def forward(self, x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.seen.append(x)
        n = len(x["yaw"])
        positions = torch.stack([self.metres.expand(n), torch.zeros(n)], dim=1)[:, None]
        return {"positions": positions, "yaws": torch.zeros(n, 1, 1)}


def test_closed_loops_are_the_originals(golden: Path) -> None:
    with np.load(golden / "simulation.npz") as file:
        expected = dict(file)
    found = simulation_outputs(module, golden)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].shape == values.shape, name
        assert found[name].dtype == values.dtype, name
        assert_allclose(found[name], values, rtol=1e-6, atol=1e-5, err_msg=name)


def test_models_see_all_scenes_in_one_batch_of_tensors(dataset: EgoDataset) -> None:
    config, model = SimulationConfig(use_agents_gt=True, num_simulation_steps=3), Ahead()
    outputs = ClosedLoopSimulator(config, dataset, CPU, model).unroll([1, 0])
    assert [x["scene_index"].tolist() for x in model.seen] == [[1, 0]] * 3
    assert model.seen[0]["target_positions"].dtype == torch.float32
    assert model.seen[0].keys() == dict(to_torch(dataset[:1])).keys()
    for output in outputs:
        moved = np.diff(output.simulated_ego["ego_translation"][:, :2], axis=0)
        assert_allclose(np.linalg.norm(moved, axis=1), 1)
        assert len(output.ego_ins_outs) == 3
        assert output.agents_ins_outs == []
        assert_array_equal(output.simulated_dataset.dataset.frames, output.simulated_ego)
        assert_array_equal(output.simulated_dataset[1]["centroid"], output.simulated_ego["ego_translation"][1, :2])
        assert_array_equal(output.recorded_dataset.dataset.frames, output.recorded_ego)


def test_frames_without_an_agent_have_an_empty_list(dataset: EgoDataset) -> None:
    config = SimulationConfig(use_ego_gt=True, num_simulation_steps=2, distance_th_close=0.0)
    model = Ahead()
    (output,) = ClosedLoopSimulator(config, dataset, CPU, model_agents=model).unroll([0])
    assert output.agents_ins_outs == [[], []]
    assert output.ego_ins_outs == model.seen == []


def test_a_simulation_is_evaluated_and_drawn(dataset: EgoDataset, files: LocalDataManager, config: Any) -> None:
    settings = SimulationConfig(num_simulation_steps=2, show_info=True)
    outputs = ClosedLoopSimulator(settings, dataset, CPU, Ahead(), Ahead()).unroll([0, 1])
    evaluator = ClosedLoopEvaluator(EvaluationPlan([DisplacementErrorL2Metric()]))
    evaluator.evaluate(outputs)
    assert list(evaluator.metric_results()) == [0, 1]
    far = evaluator.metric_results()[1]["displacement_error_l2"]
    assert far[0] == 0 < far[1]
    frames = simulation_out_to_visualizer_scene(outputs[1], MapAPI.from_cfg(files, config))
    assert [way.legend_label for way in frames[0].trajectories[:2]] == ["ego_replay", "ego_simulated"]
    assert len(frames[0].trajectories) == 2 + 2 * len(outputs[1].agents_ins_outs[0]) > 2


def test_vector_samples_are_simulated(logs: ChunkedDataset, config: dict[str, Any], files: LocalDataManager) -> None:
    dataset = EgoDatasetVectorized(config, logs, build_vectorizer(config, files))
    settings, model = SimulationConfig(num_simulation_steps=2), Ahead()
    (output,) = ClosedLoopSimulator(settings, dataset, CPU, model, model).unroll([1])
    agents, ego = model.seen[:2]
    assert agents["track_id"].tolist() == [each.track_id for each in output.agents_ins_outs[0]]
    assert ego["type"].tolist() == [3]
    assert agents["lanes"].shape[0] == len(agents["track_id"]) > 0


def test_the_dataset_by_scenes_is_the_one_by_numbers(dataset: EgoDataset) -> None:
    config = SimulationConfig(start_frame_index=1, num_simulation_steps=4)
    scenes = {number: dataset.get_scene_dataset(number) for number in (1, 0)}
    one, other = SimulationDataset(scenes, config), SimulationDataset.from_dataset_indices(dataset, [1, 0], config)
    assert one.sim_cfg is config
    assert len(one) == one.get_min_len() == 4
    assert list(one.scene_dataset_batch) == [1, 0]
    for frame in range(2):
        pairs = zip(one.rasterise_frame_batch(frame), other.rasterise_frame_batch(frame), strict=True)
        for left, right in pairs:
            assert left.keys() == right.keys()
            assert all(np.array_equal(left[name], right[name]) for name in left)
        agents = one.rasterise_agents_frame_batch(frame)
        assert agents.keys() == other.rasterise_agents_frame_batch(frame).keys()
        assert all(row["track_id"] == track for (_, track), row in agents.items())


def test_ego_and_agents_are_set(dataset: EgoDataset) -> None:
    simulation = SimulationDataset.from_dataset_indices(dataset, [0, 1], SimulationConfig())
    rows = {(1, track): np.zeros(1, AGENT_DTYPE) for track in (10**6, 10**6 + 1)}
    for (_, track), row in rows.items():
        row["track_id"], row["centroid"] = track, [track, 5]
    count = len(simulation.scene_dataset_batch[1].dataset.agents)
    simulation.set_agents(2, rows)
    simulation.set_agents(2, rows)
    simulation.set_ego(2, 1, np.arange(8.0).reshape(2, 2, 2), np.array([[0, 1], [0, 2.0]]))
    now = simulation.scene_dataset_batch
    assert len(now[1].dataset.agents) == count + 2
    assert now[1].get_frame(0, 2)["centroid"].tolist() == [6, 7]
    assert now[0].get_frame(0, 2)["yaw"] == pytest.approx(1)
    assert len(simulation.recorded_scene_dataset_batch[1].dataset.agents) == count


def test_datasets_in_memory_are_changed(dataset: EgoDataset) -> None:
    one = get_frames_subset(dataset.dataset.get_scene_dataset(0), 2, 5)
    assert (len(one.frames), one.frames["agent_index_interval"][0, 0]) == (3, 0)
    assert one.scenes["end_time"] == one.frames["timestamp"][-1]
    agent = one.agents[:1].copy()
    agent["centroid"] = 7
    count = len(one.agents)
    insert_agent(agent, 0, one)
    assert len(one.agents) == count
    assert one.agents["centroid"][0].tolist() == [7, 7]
    agent["track_id"] = 10**6
    insert_agent(agent, 1, one)
    assert one.agents[one.frames["agent_index_interval"][1, 1] - 1] == agent[0]
    disable_agents(one, np.array([10**6]))
    assert np.count_nonzero(one.agents["label_probabilities"][:, 0] != -1) == 1


def test_samples_of_the_ego_and_agents_by_scene() -> None:
    inputs = {"scene_index": np.array([0, 0, 2]), "track_id": np.array([4, 5, 4]), "image": np.zeros(3)}
    outputs = {"yaws": np.arange(3), "blob": np.zeros(3)}
    kept = ClosedLoopSimulator.get_agents_in_out(inputs, outputs, {"image", "blob"})
    assert [(each.track_id, each.outputs) for each in kept[0]] == [(4, {"yaws": 0}), (5, {"yaws": 1})]
    assert kept[2][0].inputs == {"scene_index": 2, "track_id": 4}
    with pytest.raises(DataError, match=r"each scene once for the ego, got \[0, 0, 2\]"):
        ClosedLoopSimulator.get_ego_in_out(inputs, outputs)
    with pytest.raises(DataError, match="expected track_id among the inputs"):
        ClosedLoopSimulator.get_agents_in_out({"scene_index": np.zeros(1)}, outputs)
    with pytest.raises(DataError, match="expected scene_index among the inputs and not in keys_to_exclude"):
        ClosedLoopSimulator.get_agents_in_out(inputs, outputs, ["scene_index"])


def test_models_may_be_missing_where_they_are_not_needed(dataset: EgoDataset) -> None:
    gym = ClosedLoopSimulatorModes.GYM
    for options, name in (({"use_agents_gt": True}, "ego"), ({"use_ego_gt": True}, "agents")):
        with pytest.raises(DataError, match=f"expected model_{name} to simulate"):
            ClosedLoopSimulator(SimulationConfig(**options), dataset, CPU)
    with pytest.raises(DataError, match="use_ego_gt=False with the mode GYM"):
        ClosedLoopSimulator(SimulationConfig(use_ego_gt=True), dataset, CPU, mode=gym)
    simulator = ClosedLoopSimulator(SimulationConfig(), dataset, CPU, mode=gym)
    assert isinstance(simulator.model_ego, torch.nn.Sequential)
    assert isinstance(simulator.model_agents, torch.nn.Sequential)
    both = SimulationConfig(use_ego_gt=True, use_agents_gt=True, num_simulation_steps=2)
    (output,) = ClosedLoopSimulator(both, dataset, CPU).unroll([1])
    assert_array_equal(output.simulated_ego, output.recorded_ego)
    assert (output.get_scene_id(), output.ego_ins_outs, output.agents_ins_outs) == (1, [], [])


def test_what_makes_no_sense_is_refused(dataset: EgoDataset, drive: ChunkedDataset) -> None:
    config = SimulationConfig()
    one, other = dataset.get_scene_dataset(0), EgoDataset({**CONFIG, "more": 1}, drive, None).get_scene_dataset(0)
    simulation = SimulationDataset({3: one}, config)
    agent, memory = np.zeros(1, AGENT_DTYPE), dataset.dataset.get_scene_dataset(0)
    calls: list[tuple[Any, str]] = [
        (lambda: SimulationDataset({}, config), "one scene or more"),
        (lambda: SimulationDataset({0: one, 1: other}, config), "one configuration"),
        (lambda: simulation.set_ego(0, 0, np.zeros((1, 2)), np.zeros((1, 1))), r"\[S, T, 2\]"),
        (lambda: SimulationOutput(0, simulation, {}, {}), r"among \[3\], got 0"),
        (lambda: insert_agent(agent, 0, dataset.dataset), "one scene, got 2"),
        (lambda: insert_agent(agent, 0, drive), "in memory, got one on disk"),
        (lambda: insert_agent(agent, 30, memory), "within 0:30, got 30"),
        (lambda: disable_agents(memory, np.zeros((1, 1))), r"shape \[1, 1\]"),
        (lambda: get_frames_subset(memory, 5, 5), "within 0:30, got 5:5"),
        (lambda: get_frames_subset(memory, 5, 31), "within 0:30, got 5:31"),
    ]
    for call, message in calls:
        with pytest.raises(DataError, match=message):
            call()
