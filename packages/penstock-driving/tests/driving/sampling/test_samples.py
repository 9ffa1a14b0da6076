"""Samples against a plain loop over frames, on small logs with everything odd in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driving.sampling.conftest import checked, configured, looped, made_logs
from penstock.errors import DataError, FormatError
from penstock_driving.config import Sampling
from penstock_driving.logs import Arrays, NoSuchRowError, Timeline
from penstock_driving.sampling import Sampler

seeds = st.integers(0, 10**6)


@given(seeds, st.integers(0, 4), st.integers(0, 5))
@settings(max_examples=12, deadline=None)
def test_samples_are_those_of_a_plain_loop(seed, history, future) -> None:
    logs = made_logs(seed)
    sampler = Sampler(logs, Sampling(history, future, threshold=0.0))
    offsets = sampler.timeline.offsets
    frames = np.arange(len(logs.frames))
    ego, targets = sampler.ego(frames, frames)
    rows = np.arange(len(logs.agents))
    agents, _ = sampler.agents(rows)
    for sample, tracks in ((ego, None), (agents, logs.agents["track_id"])):
        for i in range(sample.n):
            scene = int(sample["scene_index"][i])
            edges = (int(offsets[scene]), int(offsets[scene + 1]))
            frame = edges[0] + int(sample["frame_index"][i])
            assert edges[0] <= frame < edges[1]
            track = None if tracks is None else int(tracks[i])
            assert sample["track_id"][i].astype(np.uint64) == (2**64 - 1 if track is None else track)
            checked(
                sample, i, "history", "history_extents", looped(logs, frame, track, range(0, -history - 1, -1), edges)
            )
            checked(sample, i, "target", "future_extents", looped(logs, frame, track, range(1, future + 1), edges))
            assert sample["timestamp"][i] == logs.frames["timestamp"][frame]
    assert np.array_equal(targets.frame, frames)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_where_tables_lie_and_how_batches_are_cut_makes_no_difference(seed) -> None:
    logs, sampling = made_logs(seed, (9, 4, 11)), Sampling(3, 4, threshold=0.0)
    rows = np.random.default_rng(seed).integers(0, max(len(logs.agents), 1), 40 if len(logs.agents) else 0)
    whole = Sampler(logs, sampling).agents(rows)[0]
    alone = Sampler(logs, sampling, track_bytes=0)  # each sample reads its own frames, or many those of their scene
    paged = Sampler(logs, sampling, track_bytes=600)
    for sampler, size in ((alone, 40), (alone, 3), (paged, 40), (paged, 7)):
        for lo in range(0, 40, size):
            part = sampler.agents(rows[lo : lo + size])[0]
            for name, values in part.flat.items():
                assert np.array_equal(values, whole[name][lo : lo + size]), name


def test_velocities_of_tracks_that_end_can_be_masked() -> None:
    logs = made_logs(3, (12,), tracks=2)
    rows = np.arange(len(logs.agents))
    original, masked = (
        Sampler(logs, Sampling(3, 6, threshold=0.0, velocities=kind)).agents(rows)[0] for kind in ("original", "masked")
    )
    there = original["target_availabilities"]
    both = there.copy()
    both[:, 1:] *= there[:, :-1]
    assert 0 < both.sum() < both.size
    assert np.array_equal(masked["target_velocities"], original["target_velocities"] * both[..., None])
    assert np.abs(original["target_velocities"][both == 0]).max() > 0
    assert np.array_equal(masked["target_positions"], original["target_positions"])
    past = original["history_availabilities"]
    assert np.array_equal(
        masked["history_velocities"], original["history_velocities"] * (past[:, 1:] * past[:, :-1])[..., None]
    )


def test_every_key_has_its_form_even_of_nothing() -> None:
    logs = made_logs(0, (1, 2))
    for history, future, n in ((0, 0, 3), (2, 3, 3), (2, 3, 0)):
        sample, _ = Sampler(logs, Sampling(history, future)).ego(np.arange(n), np.arange(n))
        assert ("curr_speed" in sample) == (history > 0)
        forms = {name: (values.shape, values.dtype.str) for name, values in sample.flat.items()}
        assert forms["history_positions"] == ((n, history + 1, 2), "<f4")
        assert forms["history_velocities"] == ((n, history, 2), "<f4")
        assert forms["target_yaws"] == ((n, future, 1), "<f4")
        assert forms["world_from_agent"] == ((n, 3, 3), "<f8")
        assert forms["host_id"] == ((n, 70), "|u1")
        assert forms["timestamp"] == forms["track_id"] == forms["frame_index"] == ((n,), "<i8")


def test_rows_that_are_not_there_and_agents_below_the_threshold() -> None:
    logs = made_logs(1)
    sampler = Sampler(logs, Sampling(threshold=0.5))
    for call in (lambda k: sampler.ego(k, k), sampler.agents):
        for rows in ([-1], [10**6]):
            with pytest.raises(NoSuchRowError, match=r"expected .* within 0:"):
                call(np.array(rows))
    low = np.flatnonzero(logs.agents["label_probabilities"][:, 3] < 0.3)
    with pytest.raises(IndexError, match=r"more probable than 0\.5, got 0\.25.* in row"):
        sampler.agents(low[:1])


def test_configurations_that_lack_something() -> None:
    config = configured()
    del config["model_params"]["step_time"]
    with pytest.raises(DataError, match=r"expected model_params\.step_time"):
        Sampling.of(config)
    with pytest.raises(DataError, match="expected a section raster_params"):
        Sampling.of({"model_params": config["model_params"]})
    for wrong in ({"history": -1}, {"step_time": 0}, {"velocities": "none"}, {"raster_size": (0, 4)}):
        with pytest.raises(DataError, match="expected"):
            Sampling(**wrong)


def test_frames_of_the_first_version_and_damaged_intervals_are_told() -> None:
    logs = made_logs(2)
    old = logs.frames[[name for name in logs.frames.dtype.names if not name.startswith("traffic")]]
    with pytest.raises(DataError, match="format version 1"):
        Timeline.of(Arrays(logs.scenes, old, logs.agents, logs.tl_faces))
    logs.frames["agent_index_interval"][3] = [0, 10**9]
    with pytest.raises(FormatError, match="agent_index_interval"):
        Timeline.of(logs)
