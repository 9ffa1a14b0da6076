"""Ego and agent datasets: look-ups, orders, loaders, rasters, one scene, and what is not there."""

from __future__ import annotations

import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import penstock
from driving.sampling.conftest import GOLDEN, configured, made_logs
from penstock.data.map_dataset import planned_samples
from penstock.errors import DataError, FormatError
from penstock_driving import pictures
from penstock_driving.agent import AgentDataset
from penstock_driving.ego import EgoDataset
from penstock_driving.formats.l5kit import TL_FACE_DTYPE
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.logs import Arrays, NoSuchRowError, scene_logs
from penstock_driving.mask import Thresholds
from penstock_driving.multi_agent import MultiAgentDataset
from penstock_driving.perturbation import AckermannPerturbation, Uniform
from penstock_driving.rasterize import build_rasterizer


def same(left, right) -> None:
    assert set(left) == set(right)
    for name in left:
        assert np.array_equal(left[name], right[name]), name


@pytest.fixture
def logs():
    return made_logs(5, (9, 1, 0, 14))


@pytest.fixture
def agents(logs) -> AgentDataset:
    loose = Thresholds(yaw_degrees=360, extent_ratio=9, distance=500)
    return AgentDataset(configured(2, 3), logs, None, None, 1, 1, thresholds=loose)


def test_every_sample_is_in_its_scene_and_frame(logs, agents) -> None:
    ego = EgoDataset(configured(2, 3), logs)
    for data in (ego, agents):
        assert len(data) > 5
        told = data[:]
        for scene in range(4):
            assert data.get_scene_indices(scene).tolist() == np.flatnonzero(told["scene_index"] == scene).tolist()
        begins = logs.scenes["frame_index_interval"][:, 0]
        frames = told["frame_index"] + begins[told["scene_index"]]
        for frame in range(24):
            assert data.get_frame_indices(frame).tolist() == np.flatnonzero(frames == frame).tolist()
    assert np.array_equal(ego.get_scene_indices(-1), ego.get_scene_indices(3))
    assert np.array_equal(agents[:]["track_id"].astype(np.uint64), logs.agents["track_id"][agents.agents_indices])


def test_a_frame_by_scene_and_number(logs, agents) -> None:
    ego = EgoDataset(configured(2, 3), logs)
    same(ego.get_frame(3, 4), ego[int(ego.get_scene_indices(3)[4])])
    same(ego.get_frame(-1, -1), ego[-1])
    sample = agents[3]
    found = agents.get_frame(int(sample["scene_index"]), int(sample["frame_index"]), int(sample["track_id"]))
    same(found, sample)
    same(ego.get_frame(int(sample["scene_index"]), int(sample["frame_index"]), int(sample["track_id"])), sample)


@pytest.mark.parametrize("error", [NoSuchRowError, IndexError, ValueError, AssertionError])
def test_what_is_not_there_is_an_error_of_every_kind(agents, error) -> None:
    calls = (
        lambda: agents[len(agents)],
        lambda: agents[-len(agents) - 1],
        lambda: agents.get_scene_indices(4),
        lambda: agents.get_frame_indices(-25),
        lambda: agents.get_frame(0, 9),
        lambda: agents.get_frame(0, 1, 12345),
        lambda: agents.get_frame(0, 1, -7),
        lambda: agents.get_scene_dataset(9),
    )
    for call in calls:
        with pytest.raises(error, match="expected"):
            call()


def test_one_scene_has_the_same_samples(logs, agents) -> None:
    ego = EgoDataset(configured(2, 3), logs)
    for data in (ego, agents):
        for scene in (0, 1, 2, -1):
            one = data.get_scene_dataset(scene)
            whole = data[data.get_scene_indices(scene)]
            assert len(one) == whole.n
            if whole.n:
                part = one[:]
                assert (part["scene_index"] == 0).all()
                for name in set(part) - {"scene_index"}:
                    assert np.array_equal(part[name], whole[name]), name


def test_masks_given_and_numbers_of_frames(logs) -> None:
    config = configured(2, 3)
    mask = np.zeros(len(logs.agents), np.bool_)
    mask[[4, 9]] = True
    assert AgentDataset(config, logs, agents_mask=mask).agents_indices.tolist() == [4, 9]
    few = AgentDataset(config, logs, min_frame_history=0, min_frame_future=0)
    every = AgentDataset(config, logs, min_frame_history=0, min_frame_future=0, rejected="keep")
    assert 0 < len(few) < len(every) == len(logs.agents)
    assert few[:].n == len(few)
    with pytest.raises(NoSuchRowError, match="more probable"):
        every[:]
    with pytest.raises(DataError, match="got both"):
        AgentDataset(config, logs, agents_mask=mask, cache="somewhere")
    with pytest.raises(DataError, match="leave_out"):
        AgentDataset(config, logs, rejected="no")


def test_orders_mixes_and_loaders(logs, agents) -> None:
    ego = EgoDataset(configured(2, 3), logs)
    both = penstock.mix({"ego": ego, "agents": agents}, {"ego": 1, "agents": 1})
    order = both.shuffle(seed=3)
    loader = order.loader(batch_size=5, threads=2)
    batches = list(loader)
    for name in ("track_id", "timestamp", "target_positions"):
        assert np.array_equal(np.concatenate([batch[name] for batch in batches]), order[:][name]), name
    first, half = (order.loader(batch_size=5, threads=0) for _ in range(2))
    next(iter(first))
    half.load_state_dict(first.state_dict())
    assert np.array_equal(next(iter(half))["timestamp"], batches[1]["timestamp"])
    why = loader.why(batches[1].ticket).table
    assert why["source"].tolist() == batches[1]["source"].tolist()
    one = agents.shuffle(seed=1)
    shares = [list(one.loader(19, rank=rank, world=3)) for rank in range(3)]  # some of no rows
    assert [len(batches[-1]["timestamp"]) for batches in shares] == [0, 0, 1]
    for name in ("timestamp", "host_id"):
        parts = [batches[b][name] for b in range(2) for batches in shares]
        assert np.array_equal(np.concatenate(parts), one[:][name]), name


def test_samples_reach_torch(agents) -> None:
    from torch.utils.data import DataLoader

    batch = next(iter(DataLoader(agents, batch_size=3)))
    assert batch["target_positions"].shape == (3, 3, 2)
    again = next(iter(agents.loader(3, output="torch").data_loader()))
    assert np.array_equal(again["target_positions"].numpy(), batch["target_positions"].numpy())


@pytest.fixture
def rasterizer():
    config = configured(3, 4)
    config["model_params"]["render_ego_history"] = True
    config["raster_params"]["map_type"] = "box_debug"
    return build_rasterizer(config)


def test_rasters_are_the_same_from_memory_and_from_the_rows_of_a_batch(source, rasterizer) -> None:
    for kind in (EgoDataset, AgentDataset):
        whole = kind(configured(3, 4), source, rasterizer, image_type="uint8")
        parts = kind(configured(3, 4), source, rasterizer, image_type="uint8", scene_bytes=0)
        floats = kind(configured(3, 4), source, rasterizer)
        rows = [0, 2, 60, 61, -1]
        images = whole[rows]["image"]
        assert images.shape == (5, 8, 30, 40)
        assert images.any(axis=(1, 2, 3)).all()
        assert np.array_equal(parts[rows]["image"], images)
        assert np.array_equal(floats[rows]["image"], images / np.float32(255))
        assert np.array_equal(whole[2]["image"], images[1])


def test_rasters_follow_a_perturbed_ego_and_images_that_are_held_stay(source, rasterizer) -> None:
    moved = AckermannPerturbation(Uniform((2, 0, 0.1), (2, 0, 0.1)), 1.0)
    plain, data = (EgoDataset(configured(3, 4), source, rasterizer, p, image_type="uint8") for p in (None, moved))
    rows = np.array([20, 21, 247])
    straight, turned = planned_samples(plain).at(rows), planned_samples(data).at(rows)
    held = turned["image"].copy()
    assert (straight["image"][:2] != turned["image"][:2]).any(axis=(1, 2, 3)).all()
    assert np.array_equal(straight["image"][2], turned["image"][2])  # its future is not whole: not moved
    # The frame of the picture is that of the moved car: it stands where it always stands.
    assert np.array_equal(straight["image"][:2, 4], turned["image"][:2, 4])
    planned_samples(data).at(rows + 9)
    assert np.array_equal(turned["image"], held)


def test_memory_of_large_batches_is_used_again(source, rasterizer, monkeypatch) -> None:
    """However large they are: drawing into fresh memory takes several times as long."""
    monkeypatch.setattr(pictures, "_KEPT", 1)
    data = EgoDataset(configured(3, 4), source, rasterizer)
    rows = np.arange(20, 84)
    places = set()
    held = planned_samples(data).at(rows)["image"]
    for _ in range(5):
        places.add(planned_samples(data).at(rows)["image"].ctypes.data)
    assert len(places) == 1
    assert held.ctypes.data not in places


def test_a_stub_is_black_and_no_rasterizer_no_image(source) -> None:
    config = configured(1, 1)
    config["raster_params"]["map_type"] = "stub_debug"
    black = EgoDataset(config, source, build_rasterizer(config))[[0, 1]]["image"]
    assert black.shape == (2, 3, 30, 40)
    assert black.dtype == np.float32
    assert not black.any()
    assert "image" not in EgoDataset(config, source, None)[0]
    with pytest.raises(DataError, match="float32 or uint8"):
        EgoDataset(config, source, build_rasterizer(config), image_type="float64")


def test_the_configuration_asks_for_a_raster(source) -> None:
    config = configured(1, 1)
    assert "image" not in EgoDataset(config, source)[0]
    config["model_params"]["render_ego_history"] = True
    config["raster_params"]["map_type"] = "box_debug"
    built = build_rasterizer(config)
    drawn = EgoDataset(config, source)[[30, 31]]["image"]
    assert np.array_equal(drawn, EgoDataset(config, source, built)[[30, 31]]["image"])
    for kind in (AgentDataset, MultiAgentDataset):
        assert np.array_equal(kind(config, source)[3]["image"], kind(config, source, built)[3]["image"])
    for map_type, message in {
        "box_debgu": "got 'box_debgu'; did you mean 'box_debug'",
        "py_semantic": r"build_rasterizer\(cfg, FOLDER\)",
    }.items():
        config["raster_params"]["map_type"] = map_type
        for kind in (EgoDataset, AgentDataset, MultiAgentDataset):
            with pytest.raises(DataError, match=message):
                kind(config, source)
            assert "image" not in kind(config, source, None)[0]
    with pytest.raises(DataError, match="'config' or None"):
        EgoDataset(config, source, "box_debug")


def test_misspelt_keys_are_not_ignored(source) -> None:
    config = configured(1, 1)
    config["raster_params"]["disable_trafic_light_faces"] = config["raster_params"].pop("disable_traffic_light_faces")
    with pytest.raises(DataError, match="did you mean 'disable_traffic_light_faces'"):
        EgoDataset(config, source)


def test_numbers_of_frames_beside_a_mask_of_bools_are_not_ignored(logs) -> None:
    mask = np.ones(len(logs.agents), np.bool_)
    with pytest.warns(UserWarning, match="min_frame_history=3"):
        AgentDataset(configured(2, 3), logs, agents_mask=mask, min_frame_history=3)


def test_a_scene_keeps_its_lights_where_intervals_are_empty() -> None:
    """As stored, empty intervals may stand anywhere; slices from one frame to another must have all rows between."""
    logs = made_logs(1, (3, 4))
    faces = np.zeros(6, TL_FACE_DTYPE)
    faces["face_id"] = list("abcdef")
    logs.frames["traffic_light_faces_index_interval"] = [[0, 2], [0, 0], [2, 2], [0, 0], [2, 5], [5, 6], [0, 0]]
    lit = Arrays(logs.scenes, logs.frames, logs.agents, faces)
    one = scene_logs(lit, 1)
    assert one.frames["traffic_light_faces_index_interval"].tolist() == [[0, 0], [0, 3], [3, 4], [4, 4]]
    assert one.tl_faces["face_id"].tolist() == list("cdef")
    intervals = one.frames["agent_index_interval"]
    assert (intervals[1:, 0] == intervals[:-1, 1]).all()
    assert intervals[-1, 1] == len(one.agents)


def test_fingerprints_tell_configurations_apart(source) -> None:
    base = EgoDataset(configured(2, 3), source)
    assert base.fingerprint == EgoDataset(configured(2, 3), source).fingerprint
    others = (EgoDataset(configured(2, 4), source), EgoDataset(configured(2, 3), source, velocities="masked"))
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 3


def test_datasets_travel_to_other_processes(source, rasterizer) -> None:
    moved = AckermannPerturbation(Uniform((2, 0, 0.1), (2, 0, 0.1)), 0.5)
    for data in (
        EgoDataset(configured(3, 4), source, rasterizer, moved, image_type="uint8").shuffle(seed=2),
        AgentDataset(configured(3, 4), source, velocities="masked", min_frame_future=20).shuffle(seed=2),
    ):
        again = pickle.loads(pickle.dumps(data))
        assert again.fingerprint == data.fingerprint
        left, right = data[:7], again[:7]
        for name in left:
            assert np.array_equal(left[name], right[name]), name


@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        ("agents/1", AgentDataset),
        ("agents/1", MultiAgentDataset),
        ("frames/0", EgoDataset),
        ("scenes/0", EgoDataset),
    ],
)
def test_damaged_chunks_are_named(tmp_path, chunk, kind) -> None:
    for harm in (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:40])):
        shutil.rmtree(tmp_path / "bad.zarr", ignore_errors=True)
        shutil.copytree(GOLDEN / "single.zarr", tmp_path / "bad.zarr")
        harm(tmp_path / "bad.zarr" / chunk)
        with pytest.raises(FormatError, match=f"at {chunk} in .*bad.zarr"):
            kind(configured(2, 3), L5KitSource(tmp_path / "bad.zarr"))


def test_threads_share_what_is_kept(source, rasterizer) -> None:
    options = {"image_type": "uint8", "track_bytes": 2 << 20}
    data, other = (AgentDataset(configured(3, 4), source, rasterizer, **options) for _ in range(2))
    rows = np.random.default_rng(0).integers(0, len(data), (12, 6))
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(planned_samples(data).at, rows))
    for batch, positions in zip(together, rows, strict=True):
        alone = planned_samples(other).at(positions)
        for name in alone:
            assert np.array_equal(batch[name], alone[name]), name


def test_batches_of_nothing_have_every_key(source, rasterizer) -> None:
    for kind in (EgoDataset, AgentDataset):
        data = kind(configured(3, 4), source, rasterizer)
        some, none = data[:2], data[[]]
        assert none.n == 0
        assert {n: (v.shape[1:], v.dtype) for n, v in some.flat.items()} == {
            n: (v.shape[1:], v.dtype) for n, v in none.flat.items()
        }
