"""Which agents count: against a plain loop, cached under every threshold, and as l5kit left it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driving.reference import logs as reference
from driving.sampling.conftest import GOLDEN, made_logs
from penstock.errors import DataError, FormatError
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.kernels.agents import select_agents
from penstock_driving.logs import Arrays
from penstock_driving.mask import Thresholds, agents_mask, chosen, coverage, reference_mask, rejected_agents


def looped(logs: Arrays, limits: Thresholds) -> np.ndarray:
    """The rule in words, as a loop over scenes, frames and agents."""
    mask = np.zeros((len(logs.agents), 2), np.uint32)
    for first, last in logs.scenes["frame_index_interval"]:
        runs: dict[int, list[tuple[int, int]]] = {}

        def close(run: list[tuple[int, int]]) -> None:
            for place, (_, row) in enumerate(run):
                mask[row] = place, len(run) - place - 1

        for f in range(first, last):
            for i in range(*logs.frames["agent_index_interval"][f]):
                now = logs.agents[i]
                run = runs.setdefault(int(now["track_id"]), [])
                total = np.float32(0)
                for share in now["label_probabilities"][3:16]:
                    total += share
                away = np.hypot(*(logs.frames["ego_translation"][f, :2] - now["centroid"]))
                if not total > np.float32(limits.probability) or not away < limits.distance:
                    close(run)
                    run.clear()
                    continue
                if run:
                    before, was = run[-1][0], logs.agents[run[-1][1]]
                    turn = abs((float(now["yaw"] - was["yaw"]) + np.pi) % (2 * np.pi) - np.pi) * 180 / np.pi
                    areas = sorted(float(np.prod(row["extent"][:2])) for row in (now, was))
                    fits = areas[0] >= 0.01 and areas[1] / areas[0] < limits.extent_ratio
                    if f != before + 1 or not turn < limits.yaw_degrees or not fits:
                        close(run)
                        run.clear()
                run.append((f, i))
        for run in runs.values():
            close(run)
    return mask


@pytest.mark.parametrize("select", [select_agents, reference.select_agents])
@given(seed=st.integers(0, 10**6), probability=st.sampled_from([0.0, 0.5, 0.8]), degrees=st.sampled_from([4, 30, 360]))
@settings(max_examples=15, deadline=None)
def test_masks_are_those_of_a_plain_loop(select, seed, probability, degrees) -> None:
    logs = made_logs(seed, (9, 1, 0, 14), tracks=4)
    limits = Thresholds(probability, degrees, 1.2, 45)
    spans = logs.frames["agent_index_interval"].astype(np.int64)
    agents = logs.agents
    out = np.full((len(agents), 2), 9, np.uint32)
    select(
        logs.scenes["frame_index_interval"].astype(np.int64),
        spans,
        logs.frames["ego_translation"][:, :2].copy(),
        *(agents[name] for name in ("centroid", "yaw", "extent", "label_probabilities", "track_id")),
        np.array([limits.probability, limits.yaw_degrees, limits.extent_ratio, limits.distance]),
        16,
        out,
    )
    wanted = looped(logs, limits)
    assert np.array_equal(out, wanted)
    assert np.array_equal(agents_mask(logs, limits), wanted)
    assert not wanted[rejected_agents(logs, limits)].any()


def test_what_is_rejected_is_not_what_is_alone() -> None:
    logs = made_logs(4, (6,))
    rejected = rejected_agents(logs)
    mask = agents_mask(logs)
    alone = ~mask.any(axis=1)
    assert 0 < rejected.sum() < alone.sum()
    assert alone[rejected].all()


def test_a_cache_has_a_file_for_all_thresholds(source, tmp_path, monkeypatch) -> None:
    kept = [agents_mask(source, Thresholds(distance=d), cache=tmp_path / "masks") for d in (50, 20)]
    files = sorted((tmp_path / "masks").iterdir())
    assert len(files) == 2
    assert not np.array_equal(*kept)
    monkeypatch.setattr("penstock_driving.mask._computed", None)
    assert np.array_equal(agents_mask(source, Thresholds(distance=20.0), cache=tmp_path / "masks"), kept[1])


def test_data_that_cannot_be_written_are_fine(tmp_path) -> None:
    folder = tmp_path / "single.zarr"
    shutil.copytree(GOLDEN / "single.zarr", folder)
    before = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with L5KitSource(folder) as source:
        agents_mask(source, cache=tmp_path / "elsewhere")
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == before
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


def test_damaged_caches_and_logs_without_a_fingerprint(source, tmp_path) -> None:
    agents_mask(source, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    good, mask = file.read_bytes(), agents_mask(source)
    for damaged in (b"", good[:50], good[:-1] + b"?", b"\x93NUMPY" + bytes(200)):
        file.write_bytes(damaged)
        assert np.array_equal(agents_mask(source, cache=tmp_path), mask)
        assert file.read_bytes() == good
    with pytest.raises(DataError, match="fingerprint"):
        agents_mask(made_logs(0), cache=tmp_path)


def test_a_failure_leaves_nothing_behind(source, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("os.replace", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        agents_mask(source, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_mask_that_the_original_left() -> None:
    mask = reference_mask(GOLDEN / "version1.zarr", "0_12_0.5")
    assert mask.dtype == np.bool_
    with L5KitSource(GOLDEN / "version1.zarr") as source:
        assert len(chosen(mask, len(source.agents))) == mask.sum() > 0
        ours = agents_mask(source)
    # Of the first 60 frames of a scene: ours ends with them, and the original's looked on.
    assert set(chosen(ours, len(ours), 0, 12)) & set(np.flatnonzero(mask))
    with pytest.raises(FormatError, match=r"agents_mask/0\.7"):
        reference_mask(Path(GOLDEN / "version1.zarr"), 0.7)


def test_masks_of_another_form() -> None:
    for wrong in (np.zeros(3, np.bool_), np.zeros((4, 3), np.uint32), np.zeros(4, np.int64), np.zeros((4, 2))):
        with pytest.raises(DataError, match=r"expected a mask of bool\[4\]"):
            chosen(wrong, 4)
    with pytest.raises(DataError, match="expected a number as distance"):
        Thresholds(distance=float("nan"))


def test_coverage_counts(source) -> None:
    mask = agents_mask(source)
    table = coverage(mask)
    assert table[0, 0] == len(mask)
    assert table[1, 2] == ((mask[:, 0] >= 10) & (mask[:, 1] >= 30)).sum()
