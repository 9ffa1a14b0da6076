"""Datasets under the names of the original return the values of the original, in objects of penstock."""

from __future__ import annotations

import contextlib
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.containers.zarr.writing import ArrayWriter, create_group
from penstock.errors import DataError
from penstock_driving.l5kit.data import ChunkedDataset, LocalDataManager
from penstock_driving.l5kit.dataset import (
    AgentDataset,
    BaseEgoDataset,
    EgoAgentDatasetVectorized,
    EgoDataset,
    EgoDatasetVectorized,
    select_agents,
)
from penstock_driving.l5kit.kinematic import AckermanPerturbation, Perturbation
from penstock_driving.l5kit.random import (
    GaussianRandomGenerator,
    LambdaRandomGenerator,
    ReplayRandomGenerator,
    UniformRandomGenerator,
)
from penstock_driving.l5kit.rasterization import (
    BoxRasterizer,
    RenderContext,
    SatBoxRasterizer,
    SemBoxRasterizer,
    build_rasterizer,
)
from penstock_driving.l5kit.vectorization import build_vectorizer
from penstock_driving.map.api import load_metadata, matrix_of
from penstock_driving.mask import Thresholds
from penstock_driving.rasterize.satellite import read_image

Config = dict[str, Any]


@pytest.fixture
def expected(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "samples.npz") as file:
        return dict(file)


def test_samples_are_the_originals(drive: ChunkedDataset, files: LocalDataManager, config: Config, expected) -> None:
    rasterizer = build_rasterizer(config, files)
    for name, data in {
        "ego": EgoDataset(config, drive, rasterizer),
        "agent": AgentDataset(config, drive, rasterizer),
    }.items():
        keys = [key.removeprefix(f"{name}/") for key in expected if key.startswith(f"{name}/")]
        for i, index in enumerate(expected[f"{name}/index"].tolist()):
            sample = data[index]
            assert {*keys, "image"} == {*sample, "index"}
            for key in set(keys) - {"index"}:
                assert_allclose(sample[key], expected[f"{name}/{key}"][i], rtol=1e-5, atol=1e-4, err_msg=key)


def test_images_are_the_originals(drive: ChunkedDataset, files: LocalDataManager, config: Config, golden: Path) -> None:
    with np.load(golden / "rasters.npz") as file:
        frames, images = file["ego_frame"], file["ego_py_semantic"]
    data = EgoDataset(config, drive, build_rasterizer(config, files))
    for frame, image in zip(frames.tolist(), images, strict=True):
        assert (data[frame]["image"] == image / np.float32(255)).all()


def test_all_are_of_one_family(drive: ChunkedDataset, files: LocalDataManager, config: Config) -> None:
    vectorizer = build_vectorizer(config, files)
    made: list[BaseEgoDataset] = [
        EgoDataset(config, drive, None),
        AgentDataset(config, drive, None),
        EgoDatasetVectorized(config, drive, vectorizer),
        EgoAgentDatasetVectorized(config, drive, vectorizer, eval_mode=True),
    ]
    for data in made:
        assert isinstance(data, BaseEgoDataset)
        assert data.dataset is drive
        assert str(data) == str(drive)
        assert data.cumulative_sizes.tolist() == [248]
        assert data.get_scene_indices(0).tolist() == list(range(len(data)))
        one = data.get_scene_dataset(0)
        assert type(one) is type(data)
        assert isinstance(one.dataset, ChunkedDataset)
        assert len(one) == len(data)
        last, again = data[-1], one[-1]
        assert last.keys() == again.keys()
        assert all(np.array_equal(last[key], again[key]) for key in last)
        for scene in (1, -2):
            with pytest.raises((IndexError, ValueError, AssertionError)):
                data.get_scene_dataset(scene)


def test_workers_that_are_spawned_make_the_same(drive: ChunkedDataset, files: LocalDataManager, config: Config) -> None:
    vectorizer, rasterizer = build_vectorizer(config, files), build_rasterizer(config, files)
    for data in (
        EgoDataset(config, drive, rasterizer, image_type="uint8"),
        AgentDataset(config, drive, rasterizer, min_frame_history=3),
        EgoDatasetVectorized(config, drive, vectorizer),
        EgoAgentDatasetVectorized(config, drive, vectorizer, eval_mode=True, eval_frame=7),
    ):
        before = data[-1]
        copy = pickle.loads(pickle.dumps(data))
        assert (type(copy), len(copy)) == (type(data), len(data))
        after = copy[-1]
        assert all(np.array_equal(before[key], after[key]) for key in before)


def test_agents_by_scene_and_frame(drive: ChunkedDataset, config: Config) -> None:
    data = AgentDataset(config, drive, None)
    assert data.cumulative_sizes_agents[-1] == 20802
    assert (data.mask_indices[data.agents_indices] == np.arange(len(data))).all()
    assert np.count_nonzero(data.mask_indices >= 0) == len(data)
    samples = data.get_frame_indices(60)
    assert {data[int(i)]["frame_index"] for i in samples} == {60}
    sample = data[int(samples[0])]
    assert data.get_frame(0, 60, int(sample["track_id"]))["timestamp"] == sample["timestamp"]


@pytest.mark.parametrize(("history", "future"), [(10, 1), (0, 30), (20, 5)])
def test_masks(drive: ChunkedDataset, config: Config, expected, history: int, future: int) -> None:
    mask = select_agents(drive, 0.5)
    assert (mask == expected["mask/single_0.5"]).all()
    wanted = np.flatnonzero((mask[:, 0] >= history) & (mask[:, 1] >= future))
    bools = (mask[:, 0] >= history) & (mask[:, 1] >= future)
    for data in (
        AgentDataset(config, drive, None, min_frame_history=history, min_frame_future=future),
        AgentDataset(config, drive, None, None, mask, history, future),
        AgentDataset(config, drive, None, agents_mask=bools),
    ):
        assert data.agents_indices.tolist() == wanted.tolist()
    assert (select_agents(drive, 0.5, th_distance_av=20) == expected["mask/single_0.5_dist20"]).all()


def test_a_mask_that_lies_in_the_dataset_is_used(golden: Path, config: Config, tmp_path: Path) -> None:
    path = tmp_path / "drive.zarr"
    shutil.copytree(golden / "single.zarr", path)
    mask = np.zeros((20802, 2), np.uint32)
    interest = ChunkedDataset(path).open().agents["label_probabilities"][:, 3:16].sum(axis=1) > 0.5
    mask[np.flatnonzero(interest)[::70]] = 12
    folder = path / "agents_mask" / "0.5"
    folder.parent.mkdir()
    create_group(folder.parent, {})
    with contextlib.closing(ArrayWriter.create(folder, ArrayMetadata.of(mask.dtype, mask.shape, 10_000))) as writer:
        writer.append(mask)
        writer.commit()
    data = AgentDataset(config, ChunkedDataset(path).open(), None)
    assert data.agents_indices.tolist() == np.flatnonzero(mask[:, 0]).tolist()
    assert len(AgentDataset(config, ChunkedDataset(path).open(), None, min_frame_future=13)) == 0
    assert len(AgentDataset(config, ChunkedDataset(path).open(), None, thresholds=Thresholds())) == 1127
    config["raster_params"]["filter_agents_threshold"] = 0.4
    assert len(AgentDataset(config, ChunkedDataset(path).open(), None)) == 1127


def test_perturbations(drive: ChunkedDataset, config: Config) -> None:
    away = AckermanPerturbation(UniformRandomGenerator([1, 0, 0], [1, 0, 0]), 1.0)
    sample = EgoDataset(config, drive, None, away)[20]
    straight = EgoDataset(config, drive, None)[20]
    assert_allclose(np.linalg.norm(sample["centroid"] - straight["centroid"]), 1, atol=1e-6)
    seeds = [AckermanPerturbation(GaussianRandomGenerator([0, 0, 0], [1, 1, 0.1], seed), 1.0) for seed in (0, 0, 1)]
    one, same, other = (EgoDataset(config, drive, None, each)[20]["centroid"] for each in seeds)
    assert (one == same).all()
    assert (one != other).any()
    with pytest.raises(DataError, match="ego alone"):
        AgentDataset(config, drive, None, away)
    two = AckermanPerturbation(UniformRandomGenerator([0, 0], [1, 1]), 1.0)
    with pytest.raises(DataError, match="three numbers"):
        EgoDataset(config, drive, None, two)[20]


def test_a_perturbation_may_be_changed_while_it_is_used(drive: ChunkedDataset, config: Config) -> None:
    """As programs do that look at perturbed samples: never, then always."""
    away = AckermanPerturbation(UniformRandomGenerator([1, 0, 0], [1, 0, 0]), 0)
    data, straight = EgoDataset(config, drive, None, away), EgoDataset(config, drive, None)[20]["centroid"]
    assert (data[20]["centroid"] == straight).all()
    before = data.fingerprint
    away.perturb_prob = 1
    assert_allclose(np.linalg.norm(data[20]["centroid"] - straight), 1, atol=1e-6)
    assert data.fingerprint != before
    away.random_offset_generator = UniformRandomGenerator([3, 0, 0], [3, 0, 0])
    assert_allclose(np.linalg.norm(data[20]["centroid"] - straight), 3, atol=1e-6)
    with pytest.raises(DataError, match="within 0 to 1"):
        away.perturb_prob = 1.5
    with pytest.raises(AttributeError, match="got perturb_probability"):
        away.perturb_probability = 1


class Sideways(Perturbation):
    """As the original has it: a subclass with `perturb`."""

    def __init__(self, metres: float) -> None:
        self.metres = metres

    def perturb(self, history_frames: Any, future_frames: Any) -> tuple[Any, Any]:
        history_frames["ego_translation"][0, 0] += self.metres
        return history_frames, future_frames


def test_perturbations_and_generators_of_ones_own(drive: ChunkedDataset, config: Config) -> None:
    straight = EgoDataset(config, drive, None)[20]["centroid"]
    data = EgoDataset(config, drive, None, Sideways(2))
    assert_allclose(data[20]["centroid"] - straight, [2, 0])
    assert data.fingerprint != EgoDataset(config, drive, None, Sideways(3)).fingerprint
    offsets = [[0.0, 1, 0], [0, 4, 0]]
    for generator in (LambdaRandomGenerator(iter(offsets).__next__), ReplayRandomGenerator(np.array(offsets))):
        data = EgoDataset(config, drive, None, AckermanPerturbation(generator, 1))
        for ahead in (1, 4):
            assert_allclose(np.linalg.norm(data[20]["centroid"] - straight), ahead, atol=1e-6)
    with pytest.raises(IndexError, match="the number of values"):
        data[20]


def test_rasterisers_by_name(drive: ChunkedDataset, files: LocalDataManager, config: Config, golden: Path) -> None:
    context = RenderContext((224, 224), (0.5, 0.5), (0.25, 0.5), True)
    meta = load_metadata(golden / "meta.json")
    world = matrix_of(meta, "world_to_ecef")
    aerial = matrix_of(meta, "ecef_to_aerial") @ world
    named = {
        "box_debug": BoxRasterizer(context, 0.5, 10),
        "py_semantic": SemBoxRasterizer(context, 0.5, 10, golden / "semantic_map.pb", world),
        "py_satellite": SatBoxRasterizer(context, 0.5, 10, read_image(golden / "aerial_map.png"), aerial),
    }
    with np.load(golden / "rasters.npz") as file:
        frame = int(file["satellite_frame"][0])
    for map_type, rasterizer in named.items():
        config["raster_params"]["map_type"] = map_type
        built = EgoDataset(config, drive, build_rasterizer(config, files))[frame]["image"]
        image = EgoDataset(config, drive, rasterizer)[frame]["image"]
        assert (image == built).all()
        assert image.any()
