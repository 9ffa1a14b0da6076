"""Small functions under the original's names give what the original's give; what only looks at PyTorch and files."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from l5kit_mirror.outputs import outputs
from penstock.errors import DataError
from penstock_driving.l5kit.data import ChunkedDataset, LocalDataManager, MapAPI
from penstock_driving.l5kit.dataset import EgoDataset, EgoDatasetVectorized
from penstock_driving.l5kit.dataset.utils import convert_str_to_fixed_length_tensor, move_to_device, move_to_numpy
from penstock_driving.l5kit.evaluation.error_functions import closest_angle_error, l2_error
from penstock_driving.l5kit.evaluation.extract_metrics import validate_dicts
from penstock_driving.l5kit.evaluation.metrics import distance_to_reference_trajectory
from penstock_driving.l5kit.kinematic import AckermanPerturbation
from penstock_driving.l5kit.random import UniformRandomGenerator
from penstock_driving.l5kit.rasterization import (
    BoxRasterizer,
    RenderContext,
    SatBoxRasterizer,
    SatelliteRasterizer,
    SemanticRasterizer,
    SemBoxRasterizer,
    StubRasterizer,
    build_rasterizer,
    get_sat_image_crop,
    get_sat_image_crop_scaled,
    get_sat_image_crop_scaled_from_ecef,
)
from penstock_driving.l5kit.sampling.agent_sampling import compute_agent_velocity, generate_agent_sample
from penstock_driving.l5kit.sampling.agent_sampling_vectorized import generate_agent_sample_vectorized
from penstock_driving.l5kit.sampling.slicing import get_future_slice, get_history_slice
from penstock_driving.l5kit.vectorization import build_vectorizer
from penstock_driving.l5kit.visualization import write_gif, write_video
from penstock_driving.l5kit.visualization.visualizer.visualizer import visualize
from penstock_driving.l5kit.visualization.visualizer.zarr_utils import (
    episode_out_to_visualizer_scene_gym_cle,
    simulation_out_to_visualizer_scene,
    zarr_to_visualizer_scene,
)

Config = dict[str, Any]


def test_functions_give_what_the_originals_give(golden: Path) -> None:
    with np.load(golden / "functions.npz") as file:
        expected = dict(file)
    found = outputs(lambda name: importlib.import_module(f"penstock_driving.l5kit.{name}"), golden)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        # Releases of OpenCV turn a cut by a hair differently, and scipy's solver of the original stops early.
        off = {"rectangle": 3, "exact": 1e-4, "moved_one": 1e-4, "moved_two": 1e-4}.get(name, 1e-5)
        assert found[name].shape == values.shape
        assert_allclose(found[name].astype(float), values.astype(float), atol=off, rtol=1e-6, err_msg=name)


def test_one_sample_is_that_of_the_dataset(drive: ChunkedDataset, files: LocalDataManager, config: Config) -> None:
    rasterizer, vectorizer = build_rasterizer(config, files), build_vectorizer(config, files)
    context = RenderContext((224, 224), (0.5, 0.5), (0.25, 0.5), True)
    rows = (drive.frames[:], drive.agents, drive.tl_faces)
    data, vectors = EgoDataset(config, drive, rasterizer), EgoDatasetVectorized(config, drive, vectorizer)
    track = int(vectors[60]["all_other_agents_track_ids"][0])
    for frame, chosen in ((60, None), (2, None), (60, track)):
        found = generate_agent_sample(frame, *rows, chosen, context, 10, 50, 0.1, 0.5, rasterizer)
        wanted = data.get_frame(0, frame, chosen)
        assert {*found, "scene_index", "host_id", "timestamp", "track_id"} == set(wanted)
        found["image"] = found["image"].transpose(2, 0, 1)
        _equal(found, wanted)
        found = generate_agent_sample_vectorized(frame, *rows, chosen, 1, 10, 50, 0.1, 0.5, vectorizer)
        _equal(found, vectors.get_frame(0, frame, chosen))
    with pytest.raises(IndexError, match="track 99999"):
        generate_agent_sample(2, *rows, 99999, context, 10, 50, 0.1, 0.5, rasterizer)
    with pytest.raises(DataError, match="history of 1 and 10"):
        generate_agent_sample_vectorized(2, *rows, None, 1, 3, 50, 0.1, 0.5, vectorizer)
    moved = AckermanPerturbation(UniformRandomGenerator([2, 0, 0], [2, 0, 0]), 1)
    for frame, off in ((60, 2), (230, 0)):  # the second has no whole future
        found = generate_agent_sample(frame, *rows, None, context, 0, 50, 0.1, 0.5, rasterizer, moved)
        away = found["centroid"] - data[frame]["centroid"]
        assert_allclose(np.linalg.norm(away), off, atol=1e-6)


def _equal(found: Any, wanted: Any) -> None:
    for name in found:
        assert_allclose(found[name], wanted[name], rtol=1e-6, atol=1e-5, err_msg=name)


def test_what_is_wrong_is_told() -> None:
    for wrong in (lambda: get_history_slice(3, 1, 0), lambda: get_future_slice(3, 1, -1)):
        with pytest.raises(IndexError, match="1 frame or more"):
            wrong()
    with pytest.raises(DataError, match="more than 0 s"):
        compute_agent_velocity(np.zeros((1, 2)), np.zeros((1, 2)), 0)
    with pytest.raises(IndexError, match="within an image of"):
        get_sat_image_crop(np.zeros((9, 9, 3)), (8, 8), np.array([2, 2]))
    with pytest.raises(AssertionError, match="one shape"):
        closest_angle_error(torch.zeros(2), torch.zeros(3))
    for text in ("x" * 71, "\u00e9", "a\0b"):
        with pytest.raises(DataError, match="at most 70 ASCII"):
            convert_str_to_fixed_length_tensor(text)
    with pytest.raises(DataError, match="INTER_LINEAR"):
        SatelliteRasterizer(RenderContext((9, 9), (1, 1), (0.5, 0.5)), np.zeros((9, 9, 3), np.uint8), np.eye(4), 2)


def test_tensors() -> None:
    left, right = torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0]])
    assert l2_error(left, right).tolist() == [5]
    near = closest_angle_error(torch.tensor([3.0, 0.1]), torch.tensor([-3.0, 0.4]))
    assert_allclose(near.numpy(), [2 * np.pi - 6, 0.3], atol=1e-6)
    away = distance_to_reference_trajectory(left, torch.tensor([[[0.0, 0.0], [0.0, 2.0]]]))
    assert isinstance(away, torch.Tensor)
    assert away.tolist() == [1]
    text = convert_str_to_fixed_length_tensor("host", 6)
    assert (text.dtype, text.tolist()) == (torch.uint8, [*b"host", 0, 0])
    moved = move_to_numpy(move_to_device({"text": text}, torch.device("cpu")))
    assert isinstance(moved["text"], np.ndarray)


def test_dicts_that_differ_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate_dicts({"1": 0}, {"1": 5})
    assert not validate_dicts({"1": 0, "2": 0}, {"1": 5, "3": 5})
    assert capsys.readouterr().out.splitlines() == ["no prediction for 2", "no ground truth for 3"]


def test_crops_from_the_globe() -> None:
    image = np.random.default_rng(0).integers(0, 255, (60, 60, 3)).astype(np.uint8)
    matrix = np.eye(4)
    matrix[:2, 3] = 30
    crop = get_sat_image_crop_scaled_from_ecef(image, (8, 8), np.array([1.0, 2, 3]), matrix, yaw=0.2)
    assert np.array_equal(crop, get_sat_image_crop_scaled(image, (8, 8), np.array([31.0, 32, 3]), 0.2))


def test_rasterizers_are_those_that_the_original_has(files: LocalDataManager, config: Config, golden: Path) -> None:
    kinds = {
        "py_semantic": SemBoxRasterizer,
        "py_satellite": SatBoxRasterizer,
        "semantic_debug": SemanticRasterizer,
        "satellite_debug": SatelliteRasterizer,
        "box_debug": BoxRasterizer,
        "stub_debug": StubRasterizer,
    }
    for map_type, kind in kinds.items():
        config["raster_params"]["map_type"] = map_type
        made = build_rasterizer(config, files)
        assert type(made) is kind
        assert made.raster_size.tolist() == [224, 224]
        assert (made.pixel_size * made.raster_size).tolist() == [112, 112]
        assert made.ego_center.tolist() == [0.25, 0.5]
        assert made.render_context.set_origin_to_bottom
        if map_type == "py_semantic":
            assert made.box_rast.num_channels() + made.sem_rast.num_channels() == made.num_channels()
            assert len(made.sem_rast.mapAPI) > 100
            assert made.sem_rast.world_to_ecef.shape == (4, 4)
        if map_type == "py_satellite":
            assert isinstance(made.sat_rast, SatelliteRasterizer)
            assert isinstance(made.box_rast, BoxRasterizer)


def test_films(tmp_path: Path) -> None:
    import cv2
    from PIL import Image

    shown = [np.full((3, 8, 12), value, np.uint8) for value in (0, 120, 250)]
    write_gif(tmp_path / "film.gif", shown, (24, 16), fps=10)
    with Image.open(tmp_path / "film.gif") as film:
        assert (film.size, film.n_frames, film.info["duration"], film.info["loop"]) == ((24, 16), 3, 100, 0)
    write_video(tmp_path / "film.avi", [image.transpose(1, 2, 0) for image in shown], (24, 16), fps=10, codec="MJPG")
    film = cv2.VideoCapture(str(tmp_path / "film.avi"))
    found = [film.read()[1] for _ in range(3)]
    assert not film.read()[0]
    assert [round(float(image.mean()) / 10) for image in found] == [0, 12, 25]
    with pytest.raises(DataError, match="OpenCV writes"):
        write_video(tmp_path / "missing" / "film.avi", shown, (24, 16))
    with pytest.raises(DataError, match="one image or more"):
        write_gif(tmp_path / "none.gif", [], (24, 16))


@pytest.fixture
def seen(drive: ChunkedDataset, files: LocalDataManager, config: Config) -> list[Any]:
    short = drive.get_scene_dataset(0)
    short.frames = short.frames[:6]
    return zarr_to_visualizer_scene(short, MapAPI.from_cfg(files, config))


def test_a_scene_taken_apart(drive: ChunkedDataset, seen: list[Any], files: LocalDataManager, config: Config) -> None:
    first, frame = seen[0], drive.frames[0]
    assert len(seen) == 6
    assert (first.ego.center_x, first.ego.center_y) == tuple(frame["ego_translation"][:2])
    rows = drive.agents[slice(*frame["agent_index_interval"])]
    likely = rows[rows["label_probabilities"][:, 3:16].sum(axis=1) > 0.1]
    assert [agent.track_id for agent in first.agents] == likely["track_id"].tolist()
    assert {lane.color for each in seen for lane in each.lanes} > {"gray"}
    assert first.crosswalks
    ego = first.trajectories[-1]
    assert (ego.legend_label, ego.track_id, len(ego.xs)) == ("ego_trajectory", -1, 6)
    assert len(first.trajectories) == len(first.agents) + 1
    two = ChunkedDataset("")
    with pytest.raises(DataError, match="one scene, got 0"):
        zarr_to_visualizer_scene(two, MapAPI.from_cfg(files, config))


def test_simulations_taken_apart(drive: ChunkedDataset, files: LocalDataManager, config: Config) -> None:
    from types import SimpleNamespace as Simple

    short = drive.get_scene_dataset(0)
    inputs = {
        "target_positions": np.array([[1.0, 0], [2, 0], [0, 0]]),
        "target_availabilities": np.array([1, 1, 0]),
        "world_from_agent": np.array([[1.0, 0, 5], [0, 1, 6], [0, 0, 1]]),
        "track_id": 7,
    }
    sent = Simple(inputs=inputs, outputs={"positions": np.array([[0.0, 1], [0, 2], [0, 3]])})
    out = Simple(
        simulated_ego=short.frames[:5],
        simulated_agents=short.agents,
        tls_frames=short.tl_faces,
        agents_th=0.5,
        ego_ins_outs=[sent] * 5,
        agents_ins_outs=[[sent]] * 5,
        simulated_dataset=Simple(cfg=config, dataset=short),
    )
    road = MapAPI.from_cfg(files, config)
    found = simulation_out_to_visualizer_scene(out, road)
    assert len(found) == 5
    labels = ["ego_replay", "ego_simulated", "agent_replay", "agent_simulated"]
    assert [way.legend_label for way in found[0].trajectories] == labels
    assert found[0].trajectories[0].xs.tolist() == [6, 7]
    assert found[0].trajectories[3].ys.tolist() == [7, 8, 9]
    steps = episode_out_to_visualizer_scene_gym_cle(out, road)
    assert len(steps) == 3
    ego = steps[0].ego
    assert_allclose(steps[0].trajectories[0].xs, [ego.center_x, ego.center_x + 10 * (5 - ego.center_x)])


def test_a_scene_in_a_browser(seen: list[Any], tmp_path: Path) -> None:
    from bokeh.plotting import output_file, save

    layout = visualize(3, seen)
    slider = layout.children[1]
    assert (slider.start, slider.end) == (0, 5)
    output_file(tmp_path / "scene.html")
    assert "Scene 3" in Path(save(layout)).read_text()
    assert len(visualize(3, seen[:1]).children) == 1


def test_no_frame_is_no_scene_and_a_missing_bokeh_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="one frame or more"):
        visualize(0, [])
    monkeypatch.setitem(sys.modules, "bokeh.models", None)
    with pytest.raises(ImportError, match=r"penstock-driving\[bokeh\]"):
        visualize(0, [])
