"""Excluded spans: no sample of any kind reads their steps, and everything else is read."""

# pyright: basic

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.conversion.certificate import Certificate
from penstock.conversion.verify import verify
from penstock.curation import Curation, EpisodeMarks
from penstock.errors import ArgumentError, StateError
from penstock.testing.plans import PlanContract

LENGTHS = [1, 2, 3, 7, 12]
AFTER = 1000  # numbers of boundary rows


def recorded() -> penstock.EpisodeDataset:
    """Values are the numbers of the rows."""
    steps = sum(LENGTHS)
    columns = {
        "rewards": np.arange(float(steps)),
        "actions": np.arange(steps),
        "observations": AFTER + np.arange(steps + len(LENGTHS)),
    }
    return penstock.from_arrays(columns, lengths=LENGTHS)


@st.composite
def exclusions(draw: Any) -> dict[int, list[tuple[int, int]]]:
    chosen: dict[int, list[tuple[int, int]]] = {}
    for e, length in enumerate(LENGTHS):
        step = st.integers(0, length - 1)
        spans = draw(st.lists(st.tuples(step, step).map(lambda span: (min(span), max(span))), max_size=3))
        if spans:
            chosen[e] = spans
    return chosen


def curation_of(data: penstock.EpisodeDataset, excluded: dict[int, list[tuple[int, int]]]) -> Curation:
    curation = Curation.of(data.source)
    for e, spans in excluded.items():
        curation[e] = EpisodeMarks(excluded_spans=spans)
    return curation


def model_of(excluded: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int, int]]:
    """Episode, first step and end of each part, step by step."""
    parts: list[tuple[int, int, int]] = []
    for e, length in enumerate(LENGTHS):
        kept = [not any(a <= t <= b for a, b in excluded.get(e, ())) for t in range(length)]
        for t in range(length):
            if kept[t] and (t == 0 or not kept[t - 1]):
                parts.append((e, t, next((end for end in range(t, length) if not kept[end]), length)))
    return parts


@given(exclusions())
@settings(max_examples=60, deadline=None)
def test_every_way_to_cut_samples_reads_what_is_left(excluded: dict[int, list[tuple[int, int]]]) -> None:
    data = recorded()
    curated = data.apply(curation_of(data, excluded))
    parts = model_of(excluded)
    offset = np.cumsum([0, *LENGTHS])
    steps = [[int(offset[e]) + t for t in range(a, b)] for e, a, b in parts]
    assert curated.table()["id"].tolist() == [e for e, _, _ in parts]
    assert curated.table()["total_steps"].tolist() == [b - a for _, a, b in parts]
    assert [episode.rewards.tolist() for episode in curated] == steps
    assert [curated[i].rewards.tolist() for i in range(len(parts))] == steps
    seen = [AFTER + offset[e] + e + np.arange(a, b + 1) for e, a, b in parts]
    for episode, expected in zip(curated, seen, strict=True):
        np.testing.assert_array_equal(episode.observations, expected)
    if not parts:
        return
    assert curated.steps()[:]["rewards"].tolist() == [row for rows in steps for row in rows]
    windows = [rows[t : t + 3] for rows in steps for t in range(len(rows) - 2)]
    assert not windows or curated.windows(3)[:]["rewards"].tolist() == windows
    pairs = [rows[t : t + 2] for rows in steps for t in range(len(rows) - 1)]
    assert not pairs or curated.pairs()[:]["rewards"].tolist() == pairs
    padded = curated.windows(3, pad="zero")[:]
    assert padded["rewards"][padded["mask"]].tolist() == [
        r for rows in steps for t in range(len(rows)) for r in rows[t : t + 3]
    ]
    packed = curated.sequences().pack(16)[:]
    assert sorted(packed["rewards"][packed["segment_ids"] > 0].tolist()) == [row for rows in steps for row in rows]
    following = curated.transitions()[:]["next_observations"].tolist()
    assert following == [AFTER + int(offset[e]) + e + t + 1 for e, a, b in parts for t in range(a, b)]
    if excluded:
        assert curated.episodes.fingerprint != data.apply(Curation.of(data.source)).episodes.fingerprint


class TestPlanOfParts(PlanContract):
    """Windows over parts keep the promises of plans."""

    def plan(self) -> Any:
        data = recorded()
        return data.apply(curation_of(data, {3: [(2, 3)], 4: [(0, 0), (5, 6)]})).windows(2).plan


def test_statistics_goals_splits_and_curations_of_curations() -> None:
    data = recorded()
    excluded = {3: [(2, 3)], 4: [(0, 0), (5, 6)]}
    curated = data.apply(curation_of(data, excluded))
    kept = [row for episode in curated for row in episode.rewards]
    assert penstock.statistics(curated)["rewards"].mean == pytest.approx(np.mean(kept))
    for seed in range(20):
        parts = curated.split(0.5, 0.5, seed=seed)
        shared = set(parts[0].episodes.index.tolist()) & set(parts[1].episodes.index.tolist())
        assert not shared  # parts of one stored episode stay together
        assert sum(len(part) for part in parts) == len(curated)
    again = curated.apply(curation_of(data, {4: [(8, 9)]}))
    assert again.episodes.length[again.episodes.index == 4].tolist() == [4, 1, 2]
    assert curated.filter("total_steps == 4").table()["id"].tolist() == [4]
    returns = curated.with_column("returns", penstock.columns.returns_to_go(1.0)).filter("id == 3")
    assert returns[0].columns["returns"][0] == data[3].rewards.sum()  # of the stored episode


@pytest.mark.parametrize("format", ["columns", "minari", "webdataset"])
def test_conversion_writes_parts_as_episodes_and_says_so(tmp_path: Path, format: str) -> None:
    data = recorded()
    curated = data.apply(curation_of(data, {3: [(2, 3)], 4: [(0, 11)]}))
    report = penstock.convert(curated, tmp_path / "out", format=format, fill_missing=True)
    assert any("cut 1 episode of the source into 2 episodes" in note.message for note in report.notes)
    assert report.certificate is not None
    assert any("cut 1 episode" in note.message for note in report.certificate.notes)
    with penstock.open(tmp_path / "out") as written:
        assert [len(episode) for episode in written] == [1, 2, 3, 2, 3]
        for ours, theirs in zip(written, curated, strict=True):
            np.testing.assert_array_equal(ours.rewards, theirs.rewards)
            np.testing.assert_array_equal(ours.observations, theirs.observations)
        stored = Certificate.read(tmp_path / "out")
        assert list(verify(stored, written.source, curated)) == []
        other = data.apply(curation_of(data, {3: [(3, 4)], 4: [(0, 11)]}))
        assert any("rewards has other values" in each for each in verify(stored, written.source, other))
    assert penstock.convert(curated, tmp_path / "out", format=format, fill_missing=True).status == "complete"
    with pytest.raises(StateError, match="other episodes"):
        penstock.convert(data, tmp_path / "out", format=format, fill_missing=True)


def test_marks_of_spans_are_checked_joined_and_merged() -> None:
    marks = EpisodeMarks(excluded_spans=[(5, 6), (1, 2), (3, 3), (6, 9)])
    assert marks.excluded_spans == ((1, 3), (5, 9))
    assert EpisodeMarks.from_json(marks.to_json()) == marks
    for wrong in ([(2, 1)], [(-1, 2)], [(1,)], [(1, 2, "tag")], [("a", 2)], [True]):
        with pytest.raises(ArgumentError):
            EpisodeMarks(excluded_spans=wrong)  # type: ignore[arg-type]
    data = recorded()
    merged, conflicts = Curation.merge(
        [curation_of(data, {4: [(0, 2)]}), curation_of(data, {4: [(2, 5)], 3: [(0, 0)]})]
    )
    assert (merged[4].excluded_spans, merged[3].excluded_spans, conflicts) == (((0, 5),), ((0, 0),), ())
    with pytest.raises(StateError, match="within the 2 steps of episode 1"):
        data.apply(curation_of(data, {1: [(0, 2)]}))
