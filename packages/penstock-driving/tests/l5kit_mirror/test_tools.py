"""Tools, filters, geometry, configurations and evaluation under the original's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from penstock.errors import DataError, FormatError
from penstock_driving.l5kit import data, evaluation, geometry
from penstock_driving.l5kit.configs import load_config_data, save_config_data
from penstock_driving.l5kit.data import ChunkedDataset, LocalDataManager
from penstock_driving.l5kit.data.filter import get_other_agents_ids
from penstock_driving.l5kit.dataset import EgoDataset
from penstock_driving.l5kit.evaluation import metrics
from penstock_driving.l5kit.rasterization import build_rasterizer
from penstock_driving.l5kit.visualization import TARGET_POINTS_COLOR, draw_trajectory


def test_concat_and_chop_make_what_the_original_makes(golden: Path, tmp_path: Path) -> None:
    three, short = tmp_path / "three.zarr", tmp_path / "short.zarr"
    data.zarr_concat([golden / "single.zarr"] * 3, three)
    data.zarr_scenes_chop(three, short, 50)
    for path, name in ((three, "zu_concat3.npz"), (short, "zu_chop50.npz")):
        made = ChunkedDataset(path).open()
        with np.load(golden / name) as expected:
            for array in ("scenes", "frames", "tl_faces"):
                assert getattr(made, array)[:].tobytes() == expected[array].tobytes()
    assert len(data.get_combined_scenes(ChunkedDataset(three).open().scenes)) == 3


def test_split(golden: Path, tmp_path: Path) -> None:
    ten = tmp_path / "ten.zarr"
    data.zarr_concat([golden / "version1.zarr"] * 10, ten)
    size = sum(file.stat().st_size for file in ten.rglob("*") if file.is_file()) / (1 << 30)
    (tmp_path / "out").mkdir()
    parts = [{"name": "a.zarr", "split_size_GB": 0.35 * size}, {"name": "b.zarr", "split_size_GB": -1}]
    assert data.zarr_split(ten, tmp_path / "out", parts) == [(0, 3), (3, 10)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.zarr", "b.zarr"]
    first, rest = (ChunkedDataset(tmp_path / "out" / name).open() for name in ("a.zarr", "b.zarr"))
    assert (len(first.scenes), len(rest.scenes)) == (3, 7)
    assert rest.frames[0]["agent_index_interval"][0] == 0
    with pytest.raises(FileExistsError):
        data.zarr_split(ten, tmp_path / "out", parts)
    for wrong in (
        [],
        parts[:1],
        [{"name": "x", "split_size_GB": 2 * size}, parts[1]],
        [{**parts[0], "name": "b.zarr"}, parts[1]],
    ):
        with pytest.raises(DataError):
            data.zarr_split(ten, tmp_path / "other", wrong)
    assert not (tmp_path / "other").exists()


def test_filters(drive: ChunkedDataset) -> None:
    frames, agents, faces = drive.frames[10:12], drive.agents[:], drive.tl_faces[:]
    first, second = data.filter_agents_by_frames(frames, agents)
    cut = data.get_agents_slice_from_frames(*frames)
    assert len(first) + len(second) == cut.stop - cut.start
    assert len(data.filter_agents_by_frames(frames[0], drive.agents)[0]) == len(first)
    assert sum(map(len, data.filter_tl_faces_by_frames(drive.frames[:], faces))) == len(faces)
    assert data.get_frames_slice_from_scenes(*drive.scenes[[0, -1]]) == slice(0, 248)
    probable = first["label_probabilities"][:, 3:16].sum(axis=1)
    for threshold in (-1.0, 0.5, 1.0):
        assert len(data.filter_agents_by_labels(first, threshold)) == np.count_nonzero(probable > threshold)
    ego = frames[0]["ego_translation"][:2]
    near = data.filter_agents_by_distance(first, ego, 30)
    away = np.linalg.norm(near["centroid"] - ego, axis=1)
    assert 0 < len(near) < len(first)
    assert (np.diff(away) >= 0).all()
    assert away.max() < 30
    track = int(first["track_id"][3])
    assert set(data.filter_agents_by_track_id(agents, track)["track_id"].tolist()) == {track}
    active = data.filter_tl_faces_by_status(faces, "ACTIVE")
    assert len(active) == np.count_nonzero(faces["traffic_light_face_status"][:, 0] > 0)
    with pytest.raises(DataError, match="expected a status"):
        data.filter_tl_faces_by_status(faces, "ON")
    assert get_other_agents_ids(np.array([5, 1, 2, 5]), np.array([2, 9]), 9, 3) == [2, 5, 1]
    assert get_other_agents_ids(np.array([5, 1]), np.array([], int), None, 1) == [5]


def test_angles(rng: np.random.Generator) -> None:
    for _ in range(20):
        one, two = rng.normal(size=(2, 2))
        angle = geometry.angle_between_vectors(one, two)
        assert_allclose(np.cos(angle), one @ two / np.linalg.norm(one) / np.linalg.norm(two), atol=1e-12)
        assert_allclose(geometry.compute_yaw_around_north_from_direction(one), abs(np.arctan2(*one)), atol=1e-12)
    pose = geometry.compute_agent_pose(np.array([1.0, 2.0]), 0.3)
    assert_allclose(geometry.transform_point(np.zeros(2), pose), [1, 2])


def test_files_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Path) -> None:
    monkeypatch.delenv("L5KIT_DATA_FOLDER", raising=False)
    with pytest.raises(ValueError, match="L5KIT_DATA_FOLDER"):
        LocalDataManager()
    monkeypatch.setenv("L5KIT_DATA_FOLDER", str(golden))
    assert LocalDataManager().require("meta.json") == str(golden / "meta.json")
    assert LocalDataManager(tmp_path).root_folder == tmp_path
    with pytest.raises(FileNotFoundError, match=r"no\.png"):
        LocalDataManager().require("no.png")


def test_configurations(tmp_path: Path, config: dict[str, Any]) -> None:
    path = tmp_path / "config.yaml"
    save_config_data(config, path)
    assert load_config_data(path) == config
    with pytest.raises(DataError, match="lists of arrays"):
        save_config_data({"a": np.zeros(2)}, path)
    assert load_config_data(path) == config
    for text in ("- 1", "a: [", "a: !!python/object/apply:os.getcwd []"):
        path.write_text(text)
        with pytest.raises(FormatError):
            load_config_data(path)


def test_from_a_test_set_to_metrics(golden: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    data.zarr_concat([golden / "single.zarr"] * 2, tmp_path / "two.zarr")
    folder = evaluation.create_chopped_dataset(str(tmp_path / "two.zarr"), 0.5, 100, 50, 10)
    assert folder == str(tmp_path / "two_chopped_100")
    with np.load(tmp_path / "two_chopped_100" / "mask.npz") as file:
        mask = file["arr_0"]
    truth = list(evaluation.read_gt_csv(f"{folder}/gt.csv"))
    assert len(truth) == np.count_nonzero(mask) > 5
    assert truth[0]["coord"].shape == (50, 2)
    stamps = np.array([int(line["timestamp"]) for line in truth])
    tracks = np.array([int(line["track_id"]) for line in truth])
    coords = np.stack([line["coord"] for line in truth])
    off = np.array([3.0, 4.0])
    both = np.stack([coords + off, coords + 2 * off, coords + 3 * off], axis=1)
    keep = np.unique(np.stack([stamps, tracks], axis=1), axis=0, return_index=True)[1]  # the same scene twice
    confs = np.tile([0.5, 0.25, 0.25], (len(keep), 1))
    evaluation.write_pred_csv(tmp_path / "pred.csv", stamps[keep], tracks[keep], both[keep], confs)
    avails = np.stack([line["avail"] for line in truth])
    found = evaluation.compute_metrics_csv(
        f"{folder}/gt.csv", tmp_path / "pred.csv",
        [metrics.average_displacement_error_oracle, metrics.final_displacement_error_mean, metrics.time_displace],
    )  # fmt: skip
    share = avails[keep].mean(axis=0)
    assert_allclose(found["average_displacement_error_oracle"], 5 * share.mean(), rtol=1e-4)
    assert_allclose(found["final_displacement_error_mean"], 10 * share[-1], rtol=1e-4)
    assert found["time_displace"].shape == (50,)
    evaluation.write_pred_csv(tmp_path / "few.csv", stamps[keep[1:]], tracks[keep[1:]], both[keep[1:]], confs[1:])
    with pytest.raises(DataError, match="no prediction for track"):
        evaluation.compute_metrics_csv(f"{folder}/gt.csv", tmp_path / "few.csv", [metrics.rmse])
    with pytest.raises(DataError, match="one metric"):
        evaluation.compute_metrics_csv(f"{folder}/gt.csv", tmp_path / "pred.csv", [])


def test_ground_truth_of_a_mask(drive: ChunkedDataset, tmp_path: Path, rng: np.random.Generator) -> None:
    evaluation.export_zarr_to_csv(drive, tmp_path / "all.csv", 5, 0.5)
    every = list(evaluation.read_gt_csv(tmp_path / "all.csv"))
    assert len(every) == 1127
    interest = drive.agents["label_probabilities"][:, 3:16].sum(axis=1) > 0.5
    mask = np.zeros(len(drive.agents), bool)
    mask[rng.choice(np.flatnonzero(interest), 7, replace=False)] = True
    evaluation.export_zarr_to_csv(drive, tmp_path / "some.csv", 5, 0.5, agents_mask=mask)
    found = [int(line["track_id"]) for line in evaluation.read_gt_csv(tmp_path / "some.csv")]
    assert found == drive.agents[mask]["track_id"].tolist()


def test_trajectories_on_a_raster(drive: ChunkedDataset, files: LocalDataManager, config: dict[str, Any]) -> None:
    rasterizer = build_rasterizer(config, files)
    sample = EgoDataset(config, drive, rasterizer)[60]
    image = rasterizer.to_rgb(sample["image"].transpose(1, 2, 0))
    there = geometry.transform_points(sample["target_positions"], sample["raster_from_agent"])
    before = image.copy()
    draw_trajectory(image, there, TARGET_POINTS_COLOR)
    inside = there[(there >= 0).all(axis=1) & (there < 224).all(axis=1)].astype(int)
    assert len(inside) > 10
    assert (image[inside[:, 1], inside[:, 0]] == TARGET_POINTS_COLOR).all()
    rows = np.nonzero((image != before).any(axis=-1))[0]
    assert rows.min() >= inside[:, 1].min() - 2
    arrows = before.copy()
    draw_trajectory(arrows, there, TARGET_POINTS_COLOR, yaws=-sample["target_yaws"])
    assert (arrows != before).any()
    with pytest.raises(DataError, match="a yaw for each"):
        draw_trajectory(arrows, there, TARGET_POINTS_COLOR, yaws=np.zeros(3))
