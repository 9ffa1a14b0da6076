"""Whole episodes as samples."""

from __future__ import annotations

import numpy as np
import pytest

import penstock
from penstock.core.selection import Selection
from penstock.data.dataset import EpisodeDataset
from penstock.errors import ExpiredRowError
from penstock.formats.memory import MemorySource
from penstock.plan import Episodes, Plan, Sequences
from penstock.testing.examples import two_columns
from penstock.testing.plans import PlanContract, episodes_of


class TestSequences(PlanContract):
    def episodes(self) -> Episodes:
        return episodes_of([3, 0, 8, 1])

    def plan(self, episodes: Episodes) -> Plan:
        return Sequences().plan(episodes)


class TestWithTheLastObservation(TestSequences):
    def plan(self, episodes: Episodes) -> Plan:
        return Sequences(final=True).plan(episodes)


def data() -> EpisodeDataset:
    return penstock.from_arrays({"observations": np.arange(12), "actions": np.arange(9) * 10}, lengths=[4, 0, 5])


def test_every_episode_is_one_sample_padded_to_the_longest():
    batch = data().sequences()[:]
    assert batch["actions"].tolist() == [[0, 10, 20, 30, 0], [0] * 5, [40, 50, 60, 70, 80]]
    assert batch["observations"].tolist() == [[0, 1, 2, 3, 0], [0] * 5, [6, 7, 8, 9, 10]]
    assert batch["mask"].sum(axis=1).tolist() == [4, 0, 5]
    assert list(batch) == ["observations", "actions", "mask"]


def test_final_reads_the_observation_after_the_last_step():
    batch = data().sequences(final=True)[:]
    assert batch["observations"].tolist() == [[0, 1, 2, 3, 4, 0], [5, 0, 0, 0, 0, 0], [6, 7, 8, 9, 10, 11]]
    assert batch["mask"].shape == (3, 6)
    assert batch["actions_mask"].sum(axis=1).tolist() == [4, 0, 5]


def test_ragged_columns_have_an_axis_of_their_own():
    batch = EpisodeDataset(two_columns([(3, 1), (0, 2), (2, 4)])).sequences()[[2, 0, 1]]
    assert batch["inputs"].tolist() == [[4, 5, 0], [1, 2, 3], [0, 0, 0]]
    assert batch["targets"].tolist() == [[1004, 1005, 1006, 1007], [1001, 0, 0, 0], [1002, 1003, 0, 0]]
    assert batch["inputs_mask"].sum(axis=1).tolist() == [2, 3, 0]
    assert batch["targets_mask"].sum(axis=1).tolist() == [4, 1, 2]
    assert batch["name"].strings() == ["r2", "r0", "r1"]
    assert batch["weight"].tolist() == [2, 0, 1]


def test_chosen_episodes_keep_their_values():
    chosen = EpisodeDataset(two_columns([(3, 1), (0, 2), (2, 4)]))[[2, 0]].sequences()
    assert chosen[:]["inputs"].tolist() == [[4, 5, 0], [1, 2, 3]]
    assert [rows.tolist() for rows in chosen.plan.lengths(np.arange(2))][:2] == [[2, 3], [4, 1]]


def test_lengths_are_those_of_the_spans():
    plan = data().sequences(final=True).plan
    k = np.array([2, 0, 1, 5])
    spans = [np.bincount(s.destination // s.shape[1], s.length, len(k)).tolist() for s in plan.resolve(k)]
    assert [rows.tolist() for rows in plan.lengths(k)] == spans
    assert plan.rows() == 9 + 12


def test_values_are_read_in_place_or_by_rows():
    source = two_columns([(3, 1), (0, 2), (2, 4)])
    start, length = np.array([1, 4]), np.array([3, 1])
    selection = Selection(start * 0, start, length, np.array([0, 4]), (1, 6))

    def read(reader) -> list[int]:
        out = np.zeros(6, "i4")
        reader("inputs", selection, out)
        return out.tolist()

    assert read(source.read_values) == [2, 3, 4, 0, 5, 0]
    by_rows = super(MemorySource, source)
    assert read(by_rows.read_values) == [2, 3, 4, 0, 5, 0]
    assert by_rows.value_offsets("targets").tolist() == [0, 1, 3, 7]
    outside = Selection(start * 0, start, length + 2, np.array([0, 10]), (1, 20))
    for reader in (source.read_values, by_rows.read_values):
        with pytest.raises(ExpiredRowError, match="values of inputs within 0:5, got 1:7"):
            reader("inputs", outside, np.zeros(20, "i4"))
