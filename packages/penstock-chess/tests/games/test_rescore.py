"""The rescorer against what the original gives, bit for bit."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from games.reference import rescoring as reference
from penstock.errors import DataError
from penstock_chess.convert import convert
from penstock_chess.formats.lc0 import FRAME, NO_MOVE
from penstock_chess.kernels.rescoring import sharpen
from penstock_chess.rescore import RejectedChunk, Rescorer
from penstock_chess.tensors import ChessTensors
from penstock_chess.validate import Fault

NAMES = ("gz/training.700001.gz", "gz/training.700027.gz")


def rescored(rescorer: Rescorer, chunk: Any) -> Any:
    out = rescorer(chunk)
    assert not isinstance(out, RejectedChunk), out
    return out


@pytest.mark.parametrize(
    ("expected", "rescorer"),
    [
        ("gz_rescore_default", Rescorer()),
        ("v7_raw", Rescorer()),
        ("gz_rescore_deblunder_010_006", Rescorer(deblunder_threshold=0.10, deblunder_width=0.06)),
        ("gz_rescore_temp12_off001", Rescorer(dist_temp=1.2, dist_offset=0.01)),
    ],
)
def test_tensors_are_those_of_the_original(frames: Any, golden: Any, expected: str, rescorer: Rescorer) -> None:
    rows = np.concatenate([rescored(rescorer, frames(name)) for name in NAMES])
    ours = ChessTensors().decode(rows)
    with np.load(golden / f"expected/{expected}.npz", allow_pickle=False) as theirs:
        for name, key in (("probabilities", "loader_probs"), ("values", "loader_values")):
            if key in theirs.files:
                assert np.array_equal(np.asarray(ours[name]), theirs[key], equal_nan=True), name
        assert np.array_equal(np.asarray(ours["values"]), theirs["loader_values"], equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_those_of_the_original_and_stay(frames: Any, name: str) -> None:
    chunk = frames(name)
    before = chunk.copy()
    out = rescored(Rescorer(), chunk)
    assert np.array_equal(chunk, before)
    assert np.array_equal(out, frames(name.replace("gz/", "v7/")))
    assert np.array_equal(rescored(Rescorer(theta=0.5), out), out)


@pytest.mark.parametrize("name", ["endings/training.700060.gz", "endings/training.700162.gz"])
def test_games_that_end_with_three_pieces_are_rescored_without_tables(frames: Any, name: str) -> None:
    chunk = frames(name)
    out = rescored(Rescorer(dtz_boost=0.2, deblunder_threshold=0.1, deblunder_width=0.06), chunk)
    assert np.array_equal(out.view(FRAME)["probabilities"], chunk.view(FRAME)["probabilities"])


def test_formats_are_converted_before_moves_are_linked(frames: Any) -> None:
    chunk = frames("endings/training.700060.gz")
    out = rescored(Rescorer(new_input_format=3), chunk).view(FRAME)[:, 0]
    assert np.array_equal(out["opp_played_idx"][:-1], out["played_idx"][1:])
    assert np.any(out["invariance_info"] & 7)
    assert np.array_equal(out["planes"], convert(chunk, 3).view(FRAME)[:, 0]["planes"])


@pytest.mark.parametrize("version", [3, 4, 5])
def test_old_records_get_the_moves_that_were_played(frames: Any, version: int) -> None:
    chunk = frames(f"old/v{version}.gz")
    out = rescored(Rescorer(deblunder_threshold=0.1, deblunder_width=0.06), chunk).view(FRAME)[:, 0]
    assert np.all(chunk.view(FRAME)["played_idx"] == NO_MOVE)
    assert np.all(out["played_idx"][:-1] < 1858)
    assert out["played_idx"][-1] == NO_MOVE
    legal = out["probabilities"][np.arange(len(out) - 1), out["played_idx"][:-1]]
    assert np.all(legal >= 0)
    assert np.array_equal(out["next_played_idx"][:-2], out["played_idx"][2:])


def test_plies_that_nobody_told_are_the_rest_of_the_game(frames: Any) -> None:
    chunk = frames(NAMES[0]).copy()
    rows = chunk.view(FRAME)[:, 0]
    rows["plies_left"][::2] = 0
    out = rescored(Rescorer(), chunk).view(FRAME)[:, 0]
    assert np.array_equal(out["plies_left"][::2], np.arange(len(rows), 0, -1)[::2])
    assert np.array_equal(out["plies_left"][1::2], rows["plies_left"][1::2])


@pytest.mark.parametrize("seed", [0, 1])
def test_blunders_change_what_was_before_them(frames: Any, seed: int) -> None:
    chunk = frames(NAMES[seed]).copy()
    rows = chunk.view(FRAME)[:, 0]
    rows["played_q"] = rows["best_q"]
    rows["played_q"][10] = rows["best_q"][10] - 0.5
    out = rescored(Rescorer(deblunder_threshold=0.2, deblunder_width=0), chunk).view(FRAME)[:, 0]
    sign = np.where(np.arange(11) % 2 == 0, 1, -1)
    assert np.array_equal(out["result_q"][:11], sign * rows["best_q"][10])
    assert np.all(out["result_d"][:11] == rows["best_d"][10])
    assert out["plies_left"][0] == pytest.approx(rows["best_m"][10] + 10, abs=1e-4)
    for name in ("result_q", "result_d", "plies_left"):
        assert np.array_equal(out[name][11:], rows[name][11:])


def test_a_policy_with_nothing_left_is_refused(frames: Any) -> None:
    told = Rescorer(dist_offset=-1.0)(frames(NAMES[0])[:10])
    assert told == RejectedChunk(Fault.PROBABILITY_SUM)


@pytest.mark.parametrize("temp", [0.5, 1.0, 3.0])
def test_policies_are_those_of_the_reference(frames: Any, temp: float) -> None:
    ours, wanted = (frames(NAMES[0])[:20].copy().view(np.float32) for _ in range(2))
    boosted = np.random.default_rng(1).integers(0, 2, (20, 1858), np.uint8)
    boost = np.linspace(0, 0.1, 20).astype(np.float32)
    options = np.float32(-0.01), np.float32(temp), boosted, boost
    assert sharpen(ours, *options) == reference.sharpen(wanted, *options)
    np.testing.assert_allclose(ours[:, 2:1860], wanted[:, 2:1860], rtol=1e-6)


@pytest.mark.parametrize("temp", [0.5, 1.0, 3.0])
def test_policies_keep_their_sum_and_order(frames: Any, temp: float) -> None:
    chunk = frames(NAMES[0])
    old = chunk.view(FRAME)[:, 0]["probabilities"]
    new = rescored(Rescorer(dist_temp=temp, dist_offset=0.02), chunk).view(FRAME)[:, 0]["probabilities"]
    assert np.array_equal(new < 0, old < 0)
    assert np.allclose(np.where(new > 0, new, 0).sum(axis=1), 1, atol=1e-5)
    assert np.all(old[np.arange(len(old)), new.argmax(axis=1)] == old.max(axis=1))


def test_threads_change_nothing(frames: Any) -> None:
    rescorer = Rescorer(deblunder_threshold=0.1, deblunder_width=0.06, new_input_format=5)
    chunks = [frames(name) for name in NAMES] * 8
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(rescorer, chunks))
    assert all(np.array_equal(one, rescored(rescorer, chunk)) for one, chunk in zip(found, chunks, strict=True))


def test_settings_of_one_rescorer_are_its_own(frames: Any) -> None:
    chunk = frames(NAMES[0])
    before = rescored(Rescorer(), chunk)
    rescored(Rescorer(deblunder_threshold=0.0, deblunder_width=0.5), chunk)
    assert np.array_equal(rescored(Rescorer(), chunk), before)


def test_it_is_a_value() -> None:
    rescorer = Rescorer(theta=0.5, errors=frozenset({Fault.CLOCK}))
    assert pickle.loads(pickle.dumps(rescorer)) == rescorer
    assert "theta=0.5" in repr(rescorer)
    with pytest.raises(FrozenInstanceError):
        rescorer.theta = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"theta": 1.5}, "theta within 0:1"),
        ({"theta": float("nan")}, "theta within 0:1"),
        ({"dist_temp": 0.0}, "dist_temp above 0"),
        ({"dist_offset": 2.0}, "dist_offset within -1:1"),
        ({"dtz_boost": -0.1}, "dtz_boost within 0:1"),
        ({"deblunder_width": 0.1}, "both of"),
        ({"deblunder_width": 0.1, "deblunder_threshold": 3.0}, "deblunder_threshold within"),
        ({"new_input_format": 6}, "input format"),
        ({"syzygy": ("/nowhere",)}, "folder with tables"),
        ({"gaviota": ("/nowhere",)}, "folder with tables"),
        ({"transposition": "none"}, "transposition"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        Rescorer(**settings)
