"""What a check keeps of many episodes is bounded, and blocks and scratch files change no result."""

# pyright: basic

from __future__ import annotations

import numpy as np
import pytest

import penstock
from penstock.doctor import examine, measures
from penstock.doctor.block import Hits
from penstock.doctor.measures import NEIGHBOURS, FeatureScale, near_duplicates
from penstock.files import arrays


def near_by_definition(features: np.ndarray, chosen: np.ndarray, lengths: np.ndarray, share: float) -> list[bool]:
    finite = np.where(np.isfinite(features[chosen]), features[chosen], 0)
    spread = finite.std(axis=0)
    rows = np.where(spread > 0, (finite - finite.mean(axis=0)) / np.where(spread > 0, spread, 1), 0)
    projected = rows @ np.random.default_rng(0).standard_normal(rows.shape[1])
    order = sorted(range(len(chosen)), key=lambda i: (lengths[chosen[i]], projected[i]))
    near = [False] * len(features)
    for i, one in enumerate(order):
        for other in order[i + 1 : i + 1 + NEIGHBOURS]:
            same_length = lengths[chosen[one]] == lengths[chosen[other]]
            if same_length and np.abs(rows[one] - rows[other]).max() <= share:
                near[chosen[max(one, other)]] = True
    return near


@pytest.mark.parametrize("seed", range(8))
def test_near_duplicates_equal_their_definition_for_blocks_of_any_size(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(measures, "BLOCK_VALUES", int(rng.integers(1, 200)))
    monkeypatch.setattr(arrays, "SPILLED", 0 if seed % 2 else 1 << 30)
    count, width = int(rng.integers(3, 90)), int(rng.integers(1, 6))
    features = rng.normal(size=(count, width))
    features[:, 0] = 0.1  # does not vary
    copied = rng.integers(0, count, (2, 12))
    features[copied[0]] = features[copied[1]] + rng.normal(size=(12, width)) * 1e-4
    features[rng.integers(0, count, 2), rng.integers(0, width, 2)] = rng.choice([np.nan, np.inf, -np.inf], 2)
    chosen = np.flatnonzero(rng.random(count) < 0.9)
    lengths = rng.integers(4, 6, count)
    near = near_duplicates(features, chosen, lengths, 0.01)
    assert near.tolist() == near_by_definition(features, chosen, lengths, 0.01)


def test_a_feature_that_does_not_vary_has_no_spread() -> None:
    features = np.full((1000, 1), 0.1)
    assert FeatureScale.of(features, np.arange(1000)).spread.tolist() == [0.0]


@pytest.mark.parametrize("seed", range(6))
def test_a_finding_names_the_episodes_with_most_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    shown = int(rng.integers(1, 20))
    monkeypatch.setattr(examine, "SHOWN", shown)
    total, every = examine._Total(), []
    for block in range(int(rng.integers(1, 9))):
        episodes = np.flatnonzero(rng.random(30) < 0.4)
        if len(episodes):
            places, counts = rng.integers(0, 50, len(episodes)), rng.integers(1, 4, len(episodes))
            total.add(Hits("nan", "actions", episodes + 30 * block, places, counts))
            every += zip((episodes + 30 * block).tolist(), places.tolist(), counts.tolist(), strict=True)
    finding = total.finding("nan", "actions")
    worst = sorted(every, key=lambda entry: -entry[2])[:shown]
    assert finding.episodes == tuple(entry[0] for entry in worst)
    assert finding.rows == tuple(entry[1] for entry in worst)
    assert finding.where == f"episode {every[0][0]}/actions row {every[0][1]}"
    assert f"{sum(entry[2] for entry in every)} rows" in finding.message
    assert f"{len(every)} episodes" in finding.message


@pytest.mark.parametrize("block", [1, 100, 1 << 20])
def test_stillness_of_short_episodes_is_the_same_in_any_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "BLOCK_BYTES", block)
    columns = {"observations": np.zeros((6, 1), "f4"), "actions": np.zeros((6, 1), "f4"), "rewards": np.zeros(6)}
    report = penstock.check(penstock.from_arrays(columns, lengths=[1, 2, 0, 1, 2]), deep=True)
    assert report.measures["stillness"].tolist() == [0, 1, 0, 0, 1]


def test_spilled_measures_equal_those_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 9, 50)
    steps = int(lengths.sum())
    columns = {"observations": rng.normal(size=(steps + 50, 2)), "actions": rng.normal(size=(steps, 1))}
    data = penstock.from_arrays(columns, lengths=lengths)
    expected = penstock.check(data, deep=True)
    monkeypatch.setattr(arrays, "SPILLED", 0)
    monkeypatch.setattr(measures, "BLOCK_VALUES", 7)
    spilled = penstock.check(data, deep=True)
    assert spilled.findings == expected.findings
    assert spilled.digests.tobytes() == expected.digests.tobytes()
    for name, values in expected.measures.items():
        np.testing.assert_allclose(spilled.measures[name], values, rtol=1e-12 if name == "novelty" else 0)
