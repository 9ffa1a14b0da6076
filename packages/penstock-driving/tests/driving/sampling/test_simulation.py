"""Simulated scenes: samples follow the rows as they are now, scenes do not see each other, and who is controlled."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from driving.sampling.conftest import GOLDEN, configured, made_logs
from penstock.core.columns import Columns
from penstock.errors import DataError
from penstock_driving.agent import AgentDataset
from penstock_driving.ego import EgoDataset
from penstock_driving.formats.l5kit import AGENT_DTYPE
from penstock_driving.logs import Arrays, NoSuchRowError, scene_logs
from penstock_driving.map import MapAPI
from penstock_driving.simulation import (
    CAR,
    Simulation,
    SimulationConfig,
    TrajectoryStateIndices,
    ego_states,
    sent,
    windows,
)
from penstock_driving.vectorize import Vectorizer
from penstock_driving.vectorized import EgoAgentDatasetVectorized, EgoDatasetVectorized

WIDE = {"distance_th_far": 1e9, "distance_th_close": 1e9}


def outputs(samples: Columns) -> dict[str, np.ndarray]:
    """A model: a metre ahead, to the left by where it is, and a turn."""
    positions = np.ones((samples.n, 2, 2), np.float32)
    positions[:, 0, 1] = np.sin(samples["centroid"][:, 0])
    return {"positions": positions, "yaws": np.full((samples.n, 2, 1), 0.1, np.float32)}


def driven(simulation: Simulation, steps: int) -> list[Columns]:
    """All samples of some steps."""
    seen: list[Columns] = []
    for t in range(steps):
        for samples, move in ((simulation.agents(t), simulation.move_agents), (simulation.ego(t), simulation.move_ego)):
            seen.append(samples)
            move(t + 1, samples, outputs(samples))
    return seen


@pytest.fixture
def dataset() -> EgoDataset:
    config = configured(2, 3)
    config["model_params"]["render_ego_history"] = True
    config["raster_params"]["map_type"] = "box_debug"
    return EgoDataset(config, made_logs(1, (12, 9, 15), 6))


@pytest.fixture(scope="module")
def vectorized() -> EgoDatasetVectorized:
    road = MapAPI(GOLDEN / "semantic_map.pb", json.loads((GOLDEN / "meta.json").read_text())["world_to_ecef"])
    return EgoDatasetVectorized(configured(2, 3), made_logs(2, (9, 8), 6), Vectorizer(configured(2, 3), road))


@pytest.mark.parametrize("kind", ["dataset", "vectorized"])
def test_samples_are_those_of_a_dataset_of_the_simulated_rows(kind: str, request: pytest.FixtureRequest) -> None:
    simulation = Simulation.of(request.getfixturevalue(kind), [1, 0], SimulationConfig(**WIDE))
    driven(simulation, 6)
    for t in (0, 6, len(simulation) - 1):
        ego, agents = simulation.ego(t), simulation.agents(t)
        assert agents.n > 0
        assert ego["scene_index"].tolist() == [1, 0]
        for number, logs in simulation.simulated.items():
            whole = simulation.dataset.with_logs(logs)
            for samples, tracks in ((ego, [None]), (agents, agents["track_id"][agents["scene_index"] == number])):
                rows = np.flatnonzero(samples["scene_index"] == number)
                for row, track in zip(rows, tracks, strict=True):
                    expected = whole.get_frame(0, t, track)
                    for name in expected.keys() - {"scene_index"}:
                        assert_array_equal(samples[name][row], expected[name], err_msg=name)


def test_scenes_do_not_see_each_other(dataset: EgoDataset) -> None:
    together = Simulation.of(dataset, [2, 0], SimulationConfig(num_simulation_steps=9, **WIDE))
    driven(together, 8)
    for number in (0, 2):
        alone = Simulation.of(dataset, [number], SimulationConfig(num_simulation_steps=9, **WIDE))
        driven(alone, 8)
        for name in ("frames", "agents"):
            assert_array_equal(getattr(alone.simulated[number], name), getattr(together.simulated[number], name))


def test_the_recording_and_the_dataset_stay(dataset: EgoDataset) -> None:
    simulation = Simulation.of(dataset, [0], SimulationConfig(start_frame_index=2, num_simulation_steps=5, **WIDE))
    driven(simulation, 4)
    recorded = windows([scene_logs(dataset.dataset, 0)], 2, 7)
    for name in ("scenes", "frames", "agents", "tl_faces"):
        assert_array_equal(getattr(simulation.recorded[0], name), getattr(recorded, name))
    for name in ("frames", "agents"):
        assert not np.array_equal(getattr(simulation.simulated[0], name), getattr(recorded, name))
    assert_array_equal(recorded.scenes["end_time"] - recorded.scenes["start_time"], [4 * 10**8])
    assert_array_equal(dataset.dataset.frames, made_logs(1, (12, 9, 15), 6).frames)


def test_history_begins_where_the_simulation_does(dataset: EgoDataset) -> None:
    simulation = Simulation.of(dataset, [0], SimulationConfig(start_frame_index=4, num_simulation_steps=2))
    assert simulation.ego(0)["history_availabilities"].tolist() == [[1, 0, 0]]
    assert simulation.ego(1)["frame_index"].tolist() == [1]
    assert simulation.ego(0)["target_availabilities"].tolist() == [[1, 0, 0]]


def cars(away: list[list[tuple[int, float]]]) -> Arrays:
    """One scene: for each frame the tracks of cars, and how far from the ego they are."""
    logs = made_logs(0, (len(away),), 1)
    counts = [len(here) for here in away]
    ends = np.cumsum(counts)
    logs.frames["agent_index_interval"] = np.stack([ends - counts, ends], axis=1)
    agents: Any = np.zeros(sum(counts), AGENT_DTYPE)
    frame = np.repeat(np.arange(len(away)), counts)
    flat = [one for here in away for one in here]
    agents["track_id"] = [track for track, _ in flat]
    agents["centroid"] = logs.frames["ego_translation"][frame, :2]
    agents["centroid"][:, 0] += [far for _, far in flat]
    agents["extent"], agents["label_probabilities"][:, CAR] = 2, 1
    return replace(logs, agents=agents)


def simulated(logs: Arrays, **options: Any) -> Simulation:
    return Simulation.of(EgoDataset(configured(1, 2), logs), [0], SimulationConfig(**options))


def controlled(simulation: Simulation) -> list[list[int]]:
    return [simulation.agents(t)["track_id"].tolist() for t in range(len(simulation))]


def test_a_car_is_taken_when_close_and_kept_until_it_is_far() -> None:
    away = [[(1, 14.0), (2, 16.0)], [(1, 29.0), (2, 16.0)], [(1, 31.0), (2, 10.0)], [(1, 20.0)], [(2, 16.0)]]
    assert controlled(simulated(cars(away))) == [[1], [1], [2], [], []]


def test_only_cars_above_the_threshold_are_taken() -> None:
    logs = cars([[(1, 1.0), (2, 1.0), (3, 1.0)]] * 2)
    logs.agents["label_probabilities"][::3] = 0
    logs.agents["label_probabilities"][::3, CAR + 1] = 1
    logs.agents["label_probabilities"][1::3, CAR] = 0.5
    assert controlled(simulated(logs)) == [[3], [3]]


def test_a_track_twice_in_a_frame_is_taken_once() -> None:
    simulation = simulated(cars([[(5, 9.0), (4, 1.0), (5, 2.0)], [(5, 1.0), (5, 2.0)]]))
    samples = simulation.agents(0)
    assert samples["track_id"].tolist() == [5, 4]
    simulation.move_agents(1, samples, outputs(samples))
    assert simulation.simulated[0].agents["track_id"][3:].tolist() == [5, 5, 4]
    assert samples["centroid"][0, 0] - simulation.simulated[0].frames["ego_translation"][0, 0] == pytest.approx(9)


def test_agents_that_leave_the_recording_are_added_behind_those_of_their_frame() -> None:
    simulation = simulated(cars([[(7, 1.0), (3, 2.0), (4, 3.0)], [(9, 99.0), (3, 50.0)], [(3, 99.0)]]))
    samples = simulation.agents(0)
    simulation.move_agents(1, samples, outputs(samples))
    logs = simulation.simulated[0]
    assert logs.frames["agent_index_interval"].tolist() == [[0, 3], [3, 7], [7, 8]]
    assert logs.agents["track_id"].tolist() == [7, 3, 4, 9, 3, 7, 4, 3]
    positions, yaws = sent(samples, outputs(samples))
    assert_array_equal(logs.agents["centroid"][[5, 4, 6]], positions)
    assert_array_equal(logs.agents["yaw"][[5, 4, 6]], yaws.astype(np.float32))
    assert controlled(simulation)[1] == [3, 7, 4]


@pytest.mark.parametrize("kind", ["dataset", "vectorized"])
def test_no_agent_is_an_empty_batch(kind: str, request: pytest.FixtureRequest) -> None:
    simulation = Simulation.of(request.getfixturevalue(kind), [0], SimulationConfig(distance_th_close=0))
    samples = simulation.agents(1)
    assert samples.n == 0
    before = simulation.simulated[0].agents.copy()
    simulation.move_agents(2, samples, outputs(samples))
    assert_array_equal(simulation.simulated[0].agents, before)


def test_new_agents_can_be_left_out() -> None:
    away = [[(1, 1.0), (2, 20.0)], [(2, 1.0), (3, 1.0), (1, 2.0)]]
    simulation = simulated(cars(away), disable_new_agents=True)
    assert controlled(simulation) == [[1], [1]]
    for logs in (simulation.simulated[0], simulation.recorded[0]):
        assert (logs.agents["label_probabilities"][:, 0] == -1).tolist() == [False, True, True, True, False]
        assert not logs.agents["extent"][1:4].any()


def test_states_say_where_the_ego_is() -> None:
    logs = made_logs(3, (4,))
    states = ego_states(logs.frames)
    assert_array_equal(states[:, :2], logs.frames["ego_translation"][:, :2].astype(np.float32))
    assert states[:, TrajectoryStateIndices.TIME].tolist() == np.float32([0, 0.1, 0.2, 0.3]).tolist()
    turned = np.cos(states[:, TrajectoryStateIndices.THETA])
    np.testing.assert_allclose(turned, logs.frames["ego_rotation"][:, 0, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("scenes", "options", "message"),
    [
        ([], {}, "one scene or more"),
        ([0, 0], {}, r"each scene once, got \[0, 0\]"),
        ([0, 3], {}, "within 0:3, got 3"),
        ([-1], {}, "within 0:3, got -1"),
        ([1], {"num_simulation_steps": 10}, "10 frames from frame 0 on, got one of 9"),
        ([1], {"num_simulation_steps": 0}, "0 frames from frame 0 on"),
        ([1], {"start_frame_index": 9}, "all frames from frame 9 on"),
        ([1], {"start_frame_index": -1}, "from frame -1 on"),
    ],
)
def test_what_cannot_be_simulated_is_refused(dataset: EgoDataset, scenes: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Simulation.of(dataset, scenes, SimulationConfig(**options))


def test_datasets_that_cannot_be_simulated_are_refused(
    dataset: EgoDataset, vectorized: EgoDatasetVectorized, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = dataset.dataset
    agents = AgentDataset(configured(), logs, agents_mask=np.zeros(len(logs.agents), bool))
    both = EgoAgentDatasetVectorized(vectorized.cfg, vectorized.dataset, vectorized.vectorizer)
    for wrong in (agents, both):
        with pytest.raises(DataError, match=f"got {type(wrong).__name__}"):
            Simulation.of(wrong, [0], SimulationConfig())
    monkeypatch.setattr(dataset, "perturbation", lambda poses, positions: poses)
    with pytest.raises(DataError, match="without perturbation"):
        Simulation.of(dataset, [0], SimulationConfig())


def test_logs_of_several_scenes_are_refused(dataset: EgoDataset) -> None:
    with pytest.raises(DataError, match="one scene each, got 3 as scene 4"):
        Simulation(dataset, {4: dataset.dataset}, SimulationConfig())


def test_frames_and_scenes_that_are_not_there_are_refused(dataset: EgoDataset) -> None:
    simulation = Simulation.of(dataset, [1], SimulationConfig())
    for call in (simulation.ego, simulation.agents):
        for frame in (-1, 9):
            with pytest.raises(NoSuchRowError, match=f"0:9 of the simulation, got {frame}"):
                call(frame)
    rows = np.zeros(2, AGENT_DTYPE)
    with pytest.raises(NoSuchRowError, match="0:9"):
        simulation.set_ego(9, np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(NoSuchRowError, match=r"among \[1\], got 0"):
        simulation.set_agents(0, 0, rows)
    with pytest.raises(DataError, match="each track once"):
        simulation.set_agents(0, 1, rows)
    with pytest.raises(DataError, match=r"positions \[1, 2\] and yaws \[1\] for 1 scenes, got \[2, 2\]"):
        simulation.set_ego(0, np.zeros((2, 2)), np.zeros(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"yaws": None}, r"expected yaws among the outputs of the model, got \['positions'\]"),
        ({"positions": np.zeros((3, 2))}, r"positions \[3, T, 2\] of the model for 3 samples, got \[3, 2\]"),
        ({"positions": np.zeros((3, 0, 2))}, r"got \[3, 0, 2\]"),
        ({"yaws": np.zeros((2, 1, 1))}, r"yaws \[3, T, 1\] of the model for 3 samples, got \[2, 1, 1\]"),
        ({"yaws": np.full((3, 1, 1), np.nan)}, "finite yaws"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(dataset: EgoDataset, changes: dict[str, Any], message: str) -> None:
    simulation = Simulation.of(dataset, [0, 1, 2], SimulationConfig())
    samples = simulation.ego(0)
    given = {name: values for name, values in {**outputs(samples), **changes}.items() if values is not None}
    with pytest.raises(DataError, match=message):
        simulation.move_ego(1, samples, given)
