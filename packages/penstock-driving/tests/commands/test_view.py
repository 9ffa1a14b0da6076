"""`penstock view`: what is drawn, where, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from penstock_driving.commands.scene import (
    CROSSWALK,
    EGO,
    LIGHTS,
    OTHER,
    PREDICTED,
    ROAD,
    TARGET,
    VEHICLE,
    Drive,
    mixed,
)
from penstock_driving.formats.l5kit import (
    AGENT_DTYPE,
    FORMAT,
    FRAME_DTYPE,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    L5KitSource,
    L5KitWriter,
)
from penstock_driving.logs import scene_logs
from penstock_driving.map import MapAPI
from penstock_driving.map.api import load_metadata, matrix_of
from penstock_driving.tables import write_pred_csv

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "l5kit"
MAP = ("--map", GOLDEN / "semantic_map.pb", "--meta", GOLDEN / "meta.json")


def lone(tmp_path: Path, frames: int = 3, label: int = 3) -> Path:
    """The ego goes 10 m east a frame; a car of 8 x 4 m stands 20 m north of where it begins."""
    rows = np.zeros(frames, FRAME_DTYPE)
    rows["timestamp"] = np.arange(frames) * 100_000_000
    rows["ego_translation"][:, 0] = np.arange(frames) * 10.0
    rows["ego_rotation"] = np.eye(3)
    rows["agent_index_interval"] = np.stack([np.arange(frames), np.arange(frames) + 1], axis=1)
    agents = np.zeros(frames, AGENT_DTYPE)
    agents["centroid"], agents["extent"], agents["track_id"] = [0, 20], [8, 4, 2], 7
    agents["label_probabilities"][:, label] = 1
    path = tmp_path / "lone.zarr"
    with L5KitWriter.create(path, compressor=None) as writer:
        for _ in range(2):
            writer.write_scene(np.zeros((), SCENE_DTYPE), rows, agents, np.zeros(0, TL_FACE_DTYPE))
    return path


def drive(path: Path, scene: int = 0, **options: Any) -> Drive:
    with L5KitSource(path) as source:
        return Drive(scene_logs(source, scene), **options)


def pixels(one: Drive, frame: int) -> np.ndarray:
    return np.asarray(one.picture(frame).image)


def near(image: np.ndarray, color: tuple[int, int, int], by: int = 30) -> np.ndarray:
    return (np.abs(image.astype(int) - color) <= by).all(axis=-1)


@pytest.mark.parametrize(("size", "meters"), [(200, 100.0), (500, 100.0), (300, 60.0)])
def test_things_are_where_they_are(tmp_path: Path, size: int, meters: float) -> None:
    one = drive(lone(tmp_path), size=size, meters=meters)
    scale = size / meters
    for frame in (0, 1, 2):
        image = pixels(one, frame)
        rows, columns = np.nonzero(near(image, EGO))
        assert abs(columns.max() - (size / 2 + 4.87 / 2 * scale)) < 3
        assert abs(np.median(rows) - size / 2) < 3
        rows, columns = np.nonzero(near(image, VEHICLE))
        assert abs(rows.mean() - (size / 2 - 20 * scale)) < 2
        assert abs(columns.mean() - (size / 2 - frame * 10 * scale)) < 2
        assert abs(len(rows) - 32 * scale**2) < 0.35 * 32 * scale**2
    ahead = pixels(one, 0)[:, int(size / 2 + 7 * scale) :]
    assert near(ahead, TARGET, 60).any()
    assert not near(pixels(one, 2)[:, int(size / 2 + 7 * scale) : -20], TARGET, 60).any()


def test_kinds_have_colors_and_captions(tmp_path: Path) -> None:
    cases = {3: "1 vehicle", 12: "1 cycle", 14: "1 pedestrian", 1: "1 other"}
    for label, said in cases.items():
        folder = tmp_path / str(label)
        folder.mkdir()
        one = drive(lone(folder, label=label))
        first, second = one.picture(1).caption
        assert first == "frame 1   0.1 s   100.0 m/s"
        assert second == said
        assert near(pixels(one, 0), VEHICLE).any() == (label == 3)
        assert near(pixels(one, 0)[:150, 100:220], mixed(OTHER, 0.5), 12).any() == (label == 1)


def test_the_map_and_its_lights() -> None:
    road = MapAPI(GOLDEN / "semantic_map.pb", matrix_of(load_metadata(GOLDEN / "meta.json"), "world_to_ecef"))
    with_map = pixels(drive(GOLDEN / "single.zarr", road=road, size=600), 71)
    without = pixels(drive(GOLDEN / "single.zarr", size=600), 71)
    for color in (ROAD, CROSSWALK, LIGHTS["RED"], LIGHTS["GREEN"], LIGHTS["YELLOW"]):
        assert near(with_map, color, 12).sum() > near(without, color, 12).sum() + 50
    assert near(with_map, VEHICLE).sum() > 0.9 * near(without, VEHICLE).sum()


def test_predictions_begin_where_the_agent_is(tmp_path: Path, call: Any) -> None:
    path, csv = lone(tmp_path), tmp_path / "pred.csv"
    way = np.stack([np.linspace(0, 30, 10), np.zeros(10)], axis=1)
    coords = np.stack([way, -way, way * [0, 1] + [0, 1]])[None]
    write_pred_csv(csv, np.array([0]), np.array([7]), coords, np.array([[0.9, 0.1, 0]]))
    plain, out = tmp_path / "plain.png", tmp_path / "a.png"
    assert call("view", path, "--frame", 0, "-o", plain).code == 0
    assert call("view", path, "--frame", 0, "--predictions", csv, "-o", out).code == 0
    images = [np.asarray(Image.open(name).convert("RGB"))[:700] for name in (plain, out)]
    strong, weak = mixed(PREDICTED, 0.35 + 0.65 * 0.9), mixed(PREDICTED, 0.35 + 0.65 * 0.1)
    assert not near(images[0], strong, 25).any()
    right, left = (np.nonzero(near(images[1], color, 25))[1] for color in (strong, weak))
    assert right.mean() > left.mean() + 100


@pytest.mark.parametrize(("options", "count"), [((), 8), (("--every", 100), 3), (("--frame", -1), 1)])
def test_a_sheet(tmp_path: Path, call: Any, options: tuple[object, ...], count: int) -> None:
    out = tmp_path / "a.png"
    told = call("view", GOLDEN / "single.zarr", *MAP, "-o", out, "--size", 96, "--json", *options).json
    assert len(told["frames"]) == count
    assert told["frames"][-1] == {8: 247, 3: 200, 1: 247}[count]
    with Image.open(out) as image:
        assert image.width == min(count, 13) * 108 - 12 + 48
        assert len(image.getcolors(1 << 20)) > 50


def test_films(tmp_path: Path, call: Any) -> None:
    path = lone(tmp_path, 5)
    gif, mp4 = tmp_path / "a.gif", tmp_path / "a.mp4"
    assert "3 of 5 frames" in call("view", path, "--scene", -1, "--every", 2, "-o", gif, "--size", 80).out
    with Image.open(gif) as film:
        assert (film.n_frames, film.info["duration"]) == (3, 200)
        first = np.asarray(film.convert("RGB"))
        film.seek(1)
        assert (first != np.asarray(film.convert("RGB"))).any()
    assert call("view", path, "-o", mp4, "--size", 81).code == 0
    with av.open(str(mp4)) as film:
        assert len(list(film.decode(video=0))) == 5
        assert film.streams.video[0].average_rate == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scene", 2), "within 0:2"),
        (("--frame", 3), "within 0:3"),
        (("--frame", 0, "--every", 2), "--frame for a picture alone"),
        (("--frame", 0, "-o", "a.gif"), "--frame for a picture alone"),
        (("-o", "a.txt"), "name of a picture"),
        (("--map", GOLDEN / "semantic_map.pb"), "--map and --meta together"),
        (("--predictions", GOLDEN / "meta.json"), "meta.json"),
    ],
)
def test_what_is_refused(tmp_path: Path, call: Any, monkeypatch: Any, options: tuple[object, ...], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    answer = call("view", lone(tmp_path), *options)
    assert answer.code == 2
    assert said in answer.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lone.zarr"]


def test_other_data_are_for_film(recording: Path, call: Any) -> None:
    answer = call("view", recording)
    assert answer.code == 2
    assert f"penstock film {recording}" in answer.err


def test_a_scene_of_no_frames(tmp_path: Path, call: Any) -> None:
    with FORMAT.create(tmp_path / "none.zarr", L5KitSource(lone(tmp_path)).spec) as writer:
        writer.write_scene(
            np.zeros((), SCENE_DTYPE), np.zeros(0, FRAME_DTYPE), np.zeros(0, AGENT_DTYPE), np.zeros(0, TL_FACE_DTYPE)
        )
    assert "one frame or more" in call("view", tmp_path / "none.zarr").err
