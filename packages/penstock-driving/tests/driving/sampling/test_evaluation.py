"""Metrics, tables and test sets: by the formulas, there and back, and as the original writes them."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from driving.sampling.conftest import GOLDEN
from penstock.errors import DataError, FormatError
from penstock_driving import metrics
from penstock_driving.evaluation import create_chopped_dataset, ground_truth
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.formats.l5kit.tools import concat
from penstock_driving.mask import agents_mask
from penstock_driving.tables import read_gt_csv, read_pred_csv, write_gt_csv, write_pred_csv


@pytest.fixture
def drawn(rng) -> tuple[np.ndarray, ...]:
    """Ground truth, predictions, confidences and availabilities of 6 samples, 3 modes, 12 steps."""
    confidences = rng.random((6, 3))
    avails = (rng.random((6, 12)) < 0.8).astype(np.float64)
    avails[0, -1] = 0
    return (
        rng.normal(size=(6, 12, 2)),
        rng.normal(size=(6, 3, 12, 2)),
        confidences / confidences.sum(axis=1, keepdims=True),
        avails,
    )


def test_likelihoods_by_the_formula(drawn) -> None:
    truth, pred, confidences, avails = drawn
    for i in range(6):
        square = (((truth[i] - pred[i]) * avails[i][:, None]) ** 2).sum(axis=(1, 2))
        likely = confidences[i] * np.exp(-square / 2)
        one = tuple(part[i] for part in drawn)
        nll = metrics.neg_multi_log_likelihood(*one)
        np.testing.assert_allclose(nll, -np.log(likely.sum()))
        np.testing.assert_allclose(metrics.neg_multi_log_likelihood(*drawn)[i], nll)
        np.testing.assert_allclose(metrics.rmse(*drawn)[i], np.sqrt(2 * nll / 12))
        np.testing.assert_allclose(metrics.prob_true_mode(*drawn)[i], likely / likely.sum())
        far = np.linalg.norm((truth[i] - pred[i]) * avails[i][:, None], axis=-1)
        np.testing.assert_allclose(metrics.time_displace(*drawn)[i], (likely / likely.sum()) @ far)
        for mode, reduce in (("oracle", np.min), ("mean", np.mean)):
            ade = metrics.average_displacement_error(*drawn, mode)[i]
            np.testing.assert_allclose(ade, reduce(far.mean(axis=1)))
            masked = metrics.average_displacement_error(*drawn, mode, masked=True)[i]
            np.testing.assert_allclose(masked, reduce(far.sum(axis=1) / avails[i].sum()))
            np.testing.assert_allclose(metrics.final_displacement_error(*drawn, mode)[i], reduce(far[:, -1]))


def test_displacements_at_horizons_leave_out_what_is_not_there(drawn) -> None:
    truth, pred, _, avails = drawn
    told = metrics.displacement_at(*drawn, horizons=[0.5, 1.2])
    assert list(told) == ["ade@0.5s", "fde@0.5s", "ade@1.2s", "fde@1.2s"]
    far = np.linalg.norm(truth[:, None] - pred, axis=-1).min(axis=1)
    there = avails[:, -1] > 0
    np.testing.assert_allclose(told["fde@1.2s"], far[there, -1].mean())
    assert there.sum() < 6
    nothing = metrics.displacement_at(truth, pred, drawn[2], avails * 0, [1.0])
    assert np.isnan(nothing["ade@1s"])


def test_a_mode_without_confidence_and_errors_beyond_underflow() -> None:
    truth, pred = np.zeros((5, 2)), np.stack([np.full((5, 2), 1e3), np.zeros((5, 2))])
    there = np.ones(5)
    assert metrics.neg_multi_log_likelihood(truth, pred, np.array([1.0, 0.0]), there) == pytest.approx(5e6)
    assert metrics.prob_true_mode(truth, pred, np.array([1.0, 0.0]), there).tolist() == [1, 0]


@pytest.mark.parametrize("wrong", range(6))
def test_predictions_that_do_not_fit(drawn, wrong) -> None:
    truth, pred, confidences, avails = drawn
    broken = avails.copy()
    broken[2, 3] = np.inf
    bad = [
        (truth[:, :5], pred, confidences, avails),
        (truth, pred[0, 0], confidences, avails),
        (truth, pred, confidences * 2, avails),
        (truth * np.nan, pred, confidences, avails),
        (truth, pred, confidences, avails[:3]),
        (truth, pred, confidences, broken),
    ][wrong]
    for error in (DataError, AssertionError):
        with pytest.raises(error, match="expected"):
            metrics.average_displacement_error(*bad)
    with pytest.raises(ValueError, match="oracle"):
        metrics.final_displacement_error(*drawn, "best")
    with pytest.raises(ValueError, match="horizons"):
        metrics.displacement_at(*drawn, horizons=[1.3])


def by_writer(path, names, rows) -> None:
    """As the original writes: the standard library's writer of dicts."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(dict(zip(names, row, strict=True)) for row in rows)


def test_tables_there_and_back_and_byte_by_byte(tmp_path, drawn) -> None:
    truth, pred, confidences, avails = drawn
    stamps, tracks = np.arange(6) + 1571846881502692276, np.arange(6) * 3
    write_gt_csv(tmp_path / "gt.csv", stamps, tracks, truth, avails.astype(np.float32))
    told = read_gt_csv(tmp_path / "gt.csv")
    assert told.timestamps.tolist() == stamps.tolist()
    assert told.track_ids.tolist() == tracks.tolist()
    np.testing.assert_allclose(told.coords, truth, atol=5.1e-6)
    assert np.array_equal(told.avails, avails)
    names = ["timestamp", "track_id", *(f"avail_{i}" for i in range(12))]
    names += [f"coord_{axis}0{i}" for i in range(12) for axis in "xy"]
    rows = zip(stamps, tracks, avails.astype(np.float32), truth.reshape(6, -1), strict=True)
    by_writer(tmp_path / "a.csv", names, [[s, t, *a, *(f"{x:.5f}" for x in c)] for s, t, a, c in rows])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "gt.csv").read_bytes()

    write_pred_csv(
        tmp_path / "pred.csv", stamps, tracks, pred[:, :2], confidences[:, :2] / confidences[:, :2].sum(1)[:, None]
    )
    back = read_pred_csv(tmp_path / "pred.csv")
    np.testing.assert_allclose(back.coords[:, :2], pred[:, :2], atol=5.1e-6)
    assert not back.coords[:, 2].any()
    np.testing.assert_allclose(back.confs.sum(axis=1), 1)
    write_pred_csv(tmp_path / "one.csv", stamps, tracks, truth)
    assert read_pred_csv(tmp_path / "one.csv").confs.tolist() == [[1, 0, 0]] * 6


def test_tables_that_are_none(tmp_path) -> None:
    path = tmp_path / "gt.csv"
    head = "timestamp,track_id,avail_0,coord_x00,coord_y00\n"
    for text, told in (
        ("", "header"),
        ("a,b\n", "columns"),
        (head + "1,2,1.0,0.5\n", "line 2"),
        (head + "1,2,1.0,0.5,x\n", "line 2"),
        (head + "1,2,1.0,0.5,1\n99999999999999999999,2,1,1,1\n", "line 3"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=told):
            read_gt_csv(path)
    with pytest.raises(DataError, match="expected"):
        write_gt_csv(path, np.zeros(2), np.zeros(2), np.zeros((3, 4, 2)), np.zeros((2, 4)))
    for coords, confs in ((np.zeros((1, 4, 3, 2)), np.full((1, 4), 0.25)), (np.zeros((1, 2, 3, 2)), np.ones((1, 2)))):
        with pytest.raises(DataError, match="expected"):
            write_pred_csv(path, np.zeros(1), np.zeros(1), coords, confs)


def test_ground_truth_is_where_agents_were_in_the_world(source, expected) -> None:
    mask = agents_mask(source)
    rows = np.flatnonzero((mask[:, 0] >= 10) & (mask[:, 1] >= 1))[expected["agent/index"]]
    chosen = np.zeros(len(mask), np.bool_)
    chosen[rows] = True
    truth = ground_truth(source, chosen, 50)
    assert truth.timestamps.tolist() == expected["agent/timestamp"].tolist()
    ends = [source.agent_offsets[f + 10 : f + 12].tolist() for f in expected["agent/frame_index"].tolist()]
    later = [source.agents[slice(*span)] if len(span) == 2 else source.agents[0:0] for span in ends]
    for i, (row, agents) in enumerate(zip(source.agents[rows], later, strict=True)):
        there = agents["centroid"][agents["track_id"] == row["track_id"]] - row["centroid"]
        assert truth.avails[i, 9] == len(there)
        np.testing.assert_allclose(truth.coords[i, 9], there[0] if len(there) else [0, 0], atol=1e-4)


def test_a_test_set_beside_its_dataset(tmp_path) -> None:
    concat([GOLDEN / "single.zarr"] * 2, tmp_path / "two.zarr")
    folder = create_chopped_dataset(tmp_path / "two.zarr", 0.5, 50, 30, 12)
    assert folder == tmp_path / "two_chopped_50"
    assert sorted(path.name for path in folder.iterdir()) == ["gt.csv", "mask.npz", "two.zarr"]
    with np.load(folder / "mask.npz", allow_pickle=False) as file, L5KitSource(folder / "two.zarr") as short:
        mask, agents, frames = file["arr_0"], short.agents[:], short.frames[:]
    assert len(frames) == 100
    truth = read_gt_csv(folder / "gt.csv")
    assert truth.track_ids.tolist() == agents["track_id"][mask].tolist()
    assert truth.coords.shape == (mask.sum(), 30, 2)
    assert (truth.avails[:, :12] == 1).all()
    assert set(truth.timestamps.tolist()) == set(frames["timestamp"][[49, 99]].tolist())
    with pytest.raises(FileExistsError):
        create_chopped_dataset(tmp_path / "two.zarr", 0.5, 50, 30, 12)
    for wrong in (0, 249):
        with pytest.raises(DataError, match="expected"):
            create_chopped_dataset(tmp_path / "two.zarr", 0.5, wrong, 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two.zarr", "two_chopped_50"]
