"""The calls of two of the original's notebooks, cell by cell: looking at data, and predicting the motion of agents."""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock_driving.l5kit.configs import save_config_data

LOOKING = """
from collections import Counter

import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from l5kit.configs import load_config_data
from l5kit.data import PERCEPTION_LABELS, ChunkedDataset, LocalDataManager, MapAPI
from l5kit.dataset import AgentDataset, EgoDataset
from l5kit.geometry import transform_points
from l5kit.rasterization import build_rasterizer
from l5kit.visualization import TARGET_POINTS_COLOR, draw_trajectory
from l5kit.visualization.visualizer.visualizer import visualize
from l5kit.visualization.visualizer.zarr_utils import zarr_to_visualizer_scene

cfg = load_config_data("config.yaml")
for key, value in cfg["raster_params"].items():
    print(key, value)

dm = LocalDataManager()
zarr_dataset = ChunkedDataset(dm.require(cfg["val_data_loader"]["key"]))
zarr_dataset.open()
print(zarr_dataset)

coords = np.zeros((len(zarr_dataset.frames), 2))
for at in range(len(zarr_dataset.frames)):
    coords[at] = zarr_dataset.frames[at]["ego_translation"][:2]
plt.scatter(coords[:, 0], coords[:, 1], marker=".")

labels = np.argmax(zarr_dataset.agents["label_probabilities"], axis=1)
counts = Counter(PERCEPTION_LABELS[label] for label in labels)


def shown(dataset, index):
    data = dataset[index]
    im = dataset.rasterizer.to_rgb(data["image"].transpose(1, 2, 0))
    pixels = transform_points(data["target_positions"], data["raster_from_agent"])
    draw_trajectory(im, pixels, TARGET_POINTS_COLOR, yaws=data["target_yaws"])
    plt.imshow(im)
    return im


pictures = []
for map_type, index in (("py_semantic", 50), ("py_satellite", 0)):
    cfg["raster_params"]["map_type"] = map_type
    rast = build_rasterizer(cfg, dm)
    dataset = EgoDataset(cfg, zarr_dataset, rast)
    pictures.append(shown(dataset, index))
pictures.append(shown(AgentDataset(cfg, zarr_dataset, rast), 0))

cfg["raster_params"]["map_type"] = "py_semantic"
dataset = EgoDataset(cfg, zarr_dataset, build_rasterizer(cfg, dm))
film = [Image.fromarray(shown(dataset, idx)) for idx in dataset.get_scene_indices(0)[::40]]

mapAPI = MapAPI.from_cfg(dm, cfg)
for scene_idx in range(len(zarr_dataset.scenes)):
    scene = zarr_to_visualizer_scene(zarr_dataset.get_scene_dataset(scene_idx), mapAPI)
"""

PREDICTING = """
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader

from l5kit.configs import load_config_data
from l5kit.data import ChunkedDataset, LocalDataManager
from l5kit.dataset import AgentDataset, EgoDataset
from l5kit.evaluation import compute_metrics_csv, create_chopped_dataset, read_gt_csv, write_pred_csv
from l5kit.evaluation.chop_dataset import MIN_FUTURE_STEPS
from l5kit.evaluation.metrics import neg_multi_log_likelihood, time_displace
from l5kit.geometry import transform_points
from l5kit.rasterization import build_rasterizer
from l5kit.visualization import PREDICTED_POINTS_COLOR, TARGET_POINTS_COLOR, draw_trajectory

dm = LocalDataManager(None)
cfg = load_config_data("config.yaml")
future = cfg["model_params"]["future_num_frames"]


def forward(data, model, criterion):
    there = data["target_availabilities"].unsqueeze(-1)
    outputs = model(data["image"]).reshape(data["target_positions"].shape)
    return (criterion(outputs, data["target_positions"]) * there).mean(), outputs


train_cfg = cfg["train_data_loader"]
rasterizer = build_rasterizer(cfg, dm)
train_zarr = ChunkedDataset(dm.require(train_cfg["key"])).open()
train_dataset = AgentDataset(cfg, train_zarr, rasterizer)
options = {key: train_cfg[key] for key in ("shuffle", "batch_size", "num_workers")}
train_dataloader = DataLoader(train_dataset, **options)
print(train_dataset)

channels = 3 + 2 * (cfg["model_params"]["history_num_frames"] + 1)
assert channels == rasterizer.num_channels()
model = nn.Sequential(nn.Conv2d(channels, 2, 9, stride=9), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                      nn.Linear(32, 2 * future))
optimizer = optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss(reduction="none")

tr_it = iter(train_dataloader)
losses = []
for _ in range(cfg["train_params"]["max_num_steps"]):
    loss, _ = forward(next(tr_it), model, criterion)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

eval_cfg = cfg["val_data_loader"]
eval_base_path = create_chopped_dataset(
    dm.require(eval_cfg["key"]), cfg["raster_params"]["filter_agents_threshold"], 100, future, MIN_FUTURE_STEPS
)
eval_zarr = ChunkedDataset(str(Path(eval_base_path) / Path(dm.require(eval_cfg["key"])).name)).open()
eval_mask = np.load(str(Path(eval_base_path) / "mask.npz"))["arr_0"]
eval_gt_path = str(Path(eval_base_path) / "gt.csv")
eval_dataset = AgentDataset(cfg, eval_zarr, rasterizer, agents_mask=eval_mask)
eval_dataloader = DataLoader(eval_dataset, shuffle=eval_cfg["shuffle"], batch_size=eval_cfg["batch_size"])

model.eval()
torch.set_grad_enabled(False)
coords, timestamps, agent_ids = [], [], []
for data in eval_dataloader:
    _, outputs = forward(data, model, criterion)
    centroids = data["centroid"].numpy()
    moved = transform_points(outputs.cpu().numpy(), data["world_from_agent"].numpy())
    coords.append(np.stack(moved - centroids[:, None, :2]))
    timestamps.append(data["timestamp"].numpy().copy())
    agent_ids.append(data["track_id"].numpy().copy())

pred_path = "pred.csv"
write_pred_csv(
    pred_path, timestamps=np.concatenate(timestamps), track_ids=np.concatenate(agent_ids), coords=np.concatenate(coords)
)
metrics = compute_metrics_csv(eval_gt_path, pred_path, [neg_multi_log_likelihood, time_displace])

gt_rows = {row["track_id"] + row["timestamp"]: row["coord"] for row in read_gt_csv(eval_gt_path)}
eval_ego_dataset = EgoDataset(cfg, eval_dataset.dataset, rasterizer)
drawn = []
for frame_number in range(99, len(eval_zarr.frames), 100):
    data_ego = eval_ego_dataset[frame_number]
    im_ego = rasterizer.to_rgb(data_ego["image"].transpose(1, 2, 0))
    before = im_ego.copy()
    predicted, targets = [], []
    for v_index in eval_dataset.get_frame_indices(frame_number):
        data_agent = eval_dataset[v_index]
        out_net = model(torch.from_numpy(data_agent["image"]).unsqueeze(0))
        predicted.append(transform_points(out_net[0].reshape(-1, 2).numpy(), data_agent["world_from_agent"]))
        key = str(data_agent["track_id"]) + str(data_agent["timestamp"])
        targets.append(gt_rows[key] + data_agent["centroid"][:2])
    for way, color in ((predicted, PREDICTED_POINTS_COLOR), (targets, TARGET_POINTS_COLOR)):
        draw_trajectory(im_ego, transform_points(np.concatenate(way), data_ego["raster_from_world"]), color)
    drawn.append((before, im_ego))
"""


@pytest.fixture
def run(golden: Path, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a program in a folder of its own, with the files where the original's configuration has them."""
    for name in ("aerial_map.png", "semantic_map.pb", "meta.json"):
        os.symlink(golden / name, tmp_path / name)
    shutil.copytree(golden / "single.zarr", tmp_path / "scenes" / "sample.zarr")
    config["model_params"].update(history_num_frames=0)
    loader = {"key": "scenes/sample.zarr", "batch_size": 4, "num_workers": 0}
    config["train_data_loader"], config["val_data_loader"] = {**loader, "shuffle": True}, {**loader, "shuffle": False}
    config["train_params"] = {"max_num_steps": 2}
    save_config_data(config, tmp_path / "config.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("L5KIT_DATA_FOLDER", str(tmp_path))

    def called(program: str) -> dict[str, Any]:
        (tmp_path / "program.py").write_text(program.replace("from l5kit.", "from penstock_driving.l5kit."))
        return runpy.run_path(str(tmp_path / "program.py"))

    return called


def test_looking_at_data(run: Any) -> None:
    names = run(LOOKING)
    assert names["counts"]["PERCEPTION_LABEL_CAR"] == 5749
    assert np.ptp(names["coords"], axis=0).max() > 10
    for picture in names["pictures"]:
        assert picture.shape == (224, 224, 3)
        assert (picture == names["TARGET_POINTS_COLOR"]).all(axis=-1).any()
    assert len(names["film"]) == 7
    assert len(names["scene"]) == 248


def test_predicting_the_motion_of_agents(run: Any) -> None:
    import torch

    try:
        names = run(PREDICTING)
    finally:
        torch.set_grad_enabled(True)
    assert len(names["losses"]) == 2
    assert all(np.isfinite(loss) for loss in names["losses"])
    assert len(names["eval_dataset"]) == len(names["gt_rows"]) > 0
    assert names["metrics"]["neg_multi_log_likelihood"] > 0
    assert names["metrics"]["time_displace"].shape == (50,)
    for before, after in names["drawn"]:
        for color in (names["PREDICTED_POINTS_COLOR"], names["TARGET_POINTS_COLOR"]):
            assert ((after == color).all(axis=-1) & (after != before).any(axis=-1)).any()
