"""Vector samples: the nearest agents first, the ego among them, and what evaluation looks at."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from driving.sampling.conftest import GOLDEN, configured, made_logs
from penstock.errors import DataError
from penstock_driving.logs import NoSuchRowError
from penstock_driving.map import MapAPI
from penstock_driving.mask import agents_mask
from penstock_driving.vectorize import Vectorizer
from penstock_driving.vectorized import EgoAgentDatasetVectorized, EgoDatasetVectorized


@pytest.fixture(scope="module")
def road() -> MapAPI:
    return MapAPI(GOLDEN / "semantic_map.pb", json.loads((GOLDEN / "meta.json").read_text())["world_to_ecef"])


@pytest.fixture
def vectorizer(road) -> Vectorizer:
    return Vectorizer(configured(3, 12), road)


def test_agents_around_come_nearest_first(source, vectorizer) -> None:
    sample = EgoDatasetVectorized(configured(3, 12), source, vectorizer)[::20]
    ids = sample["all_other_agents_track_ids"]
    others = 0
    for i in range(sample.n):
        agents = source.agents[slice(*source.agent_offsets[20 * i : 20 * i + 2].tolist())]
        far = np.linalg.norm(agents["centroid"] - sample["centroid"][i], axis=1)
        now = (agents["label_probabilities"][:, 3:16].sum(axis=1) > 0.5) & (far < 35)
        wanted = agents["track_id"][now][np.argsort(far[now])][:30].tolist()
        assert ids[i][: len(wanted)].tolist() == wanted  # those of the current frame before others
        assert len(set(ids[i][ids[i] > 0])) == (ids[i] > 0).sum()
        others += (ids[i] > 0).sum() - len(wanted)
    assert others > 0


def test_the_history_of_the_ego_is_cut_to_its_own_length(source, vectorizer) -> None:
    sample = EgoDatasetVectorized(configured(3, 12), source, vectorizer)[50]
    assert sample["history_availabilities"].tolist() == [True, True, False, False]
    assert sample["all_other_agents_history_positions"].shape == (30, 4, 2)


def test_the_ego_is_the_first_of_the_agents_and_the_vectorizer_stays(source, vectorizer) -> None:
    config = configured(3, 12)
    alone = EgoDatasetVectorized(config, source, vectorizer)
    for _ in range(2):
        both = EgoAgentDatasetVectorized(config, source, vectorizer)
    ego, sample = alone[40], both[40]
    assert sample["all_other_agents_track_ids"].tolist() == [-1, *ego["all_other_agents_track_ids"][:29].tolist()]
    assert np.array_equal(sample["all_other_agents_history_positions"][0], ego["history_positions"])
    assert np.array_equal(
        sample["all_other_agents_future_positions"][1:], ego["all_other_agents_future_positions"][:29]
    )
    assert np.array_equal(sample["other_agents_polyline"][0], ego["agent_trajectory_polyline"])
    assert not sample["all_other_agents_future_availability"].any()  # no history of more than 10 frames here
    assert not sample["all_valid_agents_track_ids"].any()


def test_evaluation_has_a_sample_a_scene(source, road) -> None:
    config = configured(12, 12)
    config["model_params"]["history_num_frames_ego"] = 12
    vectorizer = Vectorizer(config, road)
    data = EgoAgentDatasetVectorized(config, source, vectorizer, eval_mode=True)
    assert len(data) == 1
    sample = data[0]
    assert sample["timestamp"] == source.frames[99]["timestamp"]
    mask = agents_mask(source)
    valid = source.agents[(mask[:, 0] >= 10) & (mask[:, 1] >= 1)]["track_id"].tolist()
    wanted = list(dict.fromkeys(valid))  # of the whole scene, not of one frame
    assert len(set(source.agents[slice(*source.agent_offsets[99:101].tolist())]["track_id"]) & set(wanted)) < len(
        wanted
    )
    found = sample["all_valid_agents_track_ids"].tolist()
    assert found[: len(wanted)] == wanted
    assert not any(found[len(wanted) :])
    assert len(found) == max(50, len(wanted))
    there = sample["all_other_agents_history_availability"].sum(axis=1) > 10
    future = sample["all_other_agents_future_availability"]
    assert future[0].all()
    assert there.any()
    assert not future[~there].any()
    one = data.get_scene_dataset(0)
    assert np.array_equal(one[0]["lanes"], sample["lanes"])
    with pytest.raises(NoSuchRowError, match="more than 300 frames"):
        EgoAgentDatasetVectorized(config, source, vectorizer, eval_mode=True, eval_frame=300)
    with pytest.raises(DataError, match=f"at most 3 valid agents a scene, got {len(wanted)}"):
        EgoAgentDatasetVectorized(config, source, vectorizer, eval_mode=True, valid_agents=3)
    with pytest.raises(DataError, match="eval_mode=True"):
        EgoAgentDatasetVectorized(config, source, vectorizer, eval_frame=30)


def test_valid_agents_are_those_of_each_scene(vectorizer) -> None:
    logs = made_logs(2, (4, 3, 5))
    mask = np.zeros(len(logs.agents), np.bool_)
    mask[::2] = True
    data = EgoAgentDatasetVectorized(
        configured(3, 12), logs, vectorizer, agents_mask=mask, eval_mode=True, eval_frame=2, valid_agents=5
    )
    for scene, found in enumerate(data[:]["all_valid_agents_track_ids"].tolist()):
        frames = logs.frames[slice(*logs.scenes[scene]["frame_index_interval"])]
        rows = np.arange(frames[0]["agent_index_interval"][0], frames[-1]["agent_index_interval"][1])
        names = dict.fromkeys(logs.agents[rows[mask[rows]]]["track_id"].tolist())
        assert found == [*names, *[0] * (5 - len(names))]


def test_a_vectorizer_for_another_history_is_refused(source, vectorizer) -> None:
    with pytest.raises(DataError, match=r"history_num_frames_agents of 3.*got 4"):
        EgoDatasetVectorized(configured(4, 12), source, vectorizer)


def test_vectors_of_an_agent(source, vectorizer) -> None:
    data = EgoDatasetVectorized(configured(3, 12), source, vectorizer)
    around = data.get_frame(0, 30)
    track = int(around["all_other_agents_track_ids"][0])
    sample = data.get_frame(0, 30, track)
    assert sample["track_id"] == track
    assert sample["type"] == around["all_other_agents_types"][0]
    assert track not in sample["all_other_agents_track_ids"]
    np.testing.assert_allclose(sample["history_positions"][0], 0, atol=1e-6)
    with pytest.raises(ValueError, match="track 99999"):
        data.get_frame(0, 30, 99999)


def test_lights_that_are_switched_off_are_unknown(source, vectorizer) -> None:
    config = configured(3, 12)
    lit = EgoDatasetVectorized(config, source, vectorizer)[::25]["lanes_mid"][..., 2]
    config["raster_params"]["disable_traffic_light_faces"] = True
    dark = EgoDatasetVectorized(config, source, vectorizer)[::25]["lanes_mid"][..., 2]
    assert {1, 2, 3} & set(np.unique(lit))
    assert set(np.unique(dark)) == {0, 4}
    assert np.array_equal(lit == 4, dark == 4)


def test_scenes_far_from_the_map_and_odd_ones(vectorizer) -> None:
    logs = made_logs(1, (5, 1, 0, 3))
    sample = EgoDatasetVectorized(configured(3, 12), logs, vectorizer)[:]
    assert sample.n == 9
    assert not sample["lanes_availabilities"].any()
    assert not sample["lanes"].any()
    assert not sample["crosswalks_availabilities"].any()
    empty = made_logs(1, (0,))
    assert len(EgoDatasetVectorized(configured(3, 12), empty, vectorizer)) == 0


def test_datasets_travel_to_other_processes(source, vectorizer) -> None:
    mask = agents_mask(source)
    mask[::3] = 0
    for data in (
        EgoDatasetVectorized(configured(3, 12), source, vectorizer),
        EgoAgentDatasetVectorized(configured(3, 12), source, vectorizer, agents_mask=mask, eval_mode=True),
    ):
        before = data[:2]  # what is kept is made
        again = pickle.loads(pickle.dumps(data))
        assert (type(again), again.fingerprint) == (type(data), data.fingerprint)
        after = again[:2]
        assert all(np.array_equal(before[name], after[name]) for name in before.flat)


def test_workers_of_torch_that_are_spawned(source, vectorizer) -> None:
    from torch.utils.data import DataLoader, Subset

    data = EgoDatasetVectorized(configured(3, 12), source, vectorizer)
    loader = DataLoader(Subset(data, range(0, 12, 2)), batch_size=3, num_workers=1, multiprocessing_context="spawn")
    batches = list(loader)
    wanted = data[:12:2]
    for name in ("timestamp", "lanes", "all_other_agents_future_positions"):
        assert np.array_equal(np.concatenate([batch[name].numpy() for batch in batches]), wanted[name]), name


def test_batches_of_nothing_have_every_key(source, vectorizer) -> None:
    for kind in (EgoDatasetVectorized, EgoAgentDatasetVectorized):
        data = kind(configured(3, 12), source, vectorizer)
        some, none = data[:2], data[[]]
        assert {n: (v.shape[1:], v.dtype) for n, v in some.flat.items()} == {
            n: (v.shape[1:], v.dtype) for n, v in none.flat.items()
        }


def test_a_configuration_without_lanes(road) -> None:
    config = configured(3, 12)
    del config["data_generation_params"]["lane_params"]
    with pytest.raises(DataError, match="lane_params"):
        Vectorizer(config, road)
