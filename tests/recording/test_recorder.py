"""Recording without an environment, and going on with a dataset that is there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock import spaces
from penstock.errors import DataError, FormatError, SpecError, UnknownFormatError
from penstock.recording.collector import Collector
from penstock.recording.memory import MemoryWriter
from penstock.recording.vector import VectorCollector
from penstock.testing.writers import killed_after

JOINTS = spaces.Box(np.full(2, -9.0), np.full(2, 9.0), np.dtype(np.float64))
BUTTON = spaces.Discrete(3)


def recorder(target, **options):
    return penstock.Recorder(target, **{"observation_space": JOINTS, "action_space": BUTTON, **options})


def add(to, number, steps=3, **how):
    """One episode whose values say its number."""
    to.begin(np.full(2, float(number)), **how)
    for t in range(steps):
        to.step(t % 3, np.full(2, number + t / 10), reward=t)
    to.end()


def numbers(path):
    with penstock.open(path).source as source:
        return [int(source.episode(e).observations[0, 0]) for e in range(len(source))]


def test_steps_are_recorded_as_an_environment_gives_them(toy):
    env, writer = toy(), MemoryWriter()
    with recorder(writer, observation_space=env.observation_space, action_space=env.action_space) as mine:
        for seed in range(5):
            mine.begin(*env.reset(seed=seed), metadata={"seed": seed})
            while mine.is_open:
                mine.step(action := seed % 3 - 1, *env.step(action))
    other = MemoryWriter()
    with Collector(toy(), other) as env:
        for seed in range(5):
            env.reset(seed=seed)
            while not any(env.step(seed % 3 - 1)[2:4]):
                pass
    assert [e.metadata for e in writer.episodes] == [e.metadata for e in other.episodes]
    for a, b in zip(writer.episodes, other.episodes, strict=True):
        assert a.columns.keys() == b.columns.keys()
        assert all(np.array_equal(a.columns[path], b.columns[path]) for path in a.columns)


def test_an_episode_ends_as_it_is_told_to():
    with recorder(writer := MemoryWriter()) as mine:
        add(mine, 0)
        mine.begin(np.zeros(2))
        mine.step(0, np.ones(2), 1.0, terminated=True)
        mine.end()  # it has ended already
        mine.begin(np.zeros(2))
        mine.step(1, np.ones(2))
        mine.end(terminated=True)
        mine.begin(np.zeros(2))
        mine.step(1, np.ones(2))
        mine.discard()
        mine.begin(np.zeros(2))
        mine.end()  # no step: nothing to save
        mine.begin(np.zeros(2))
        mine.step(2, np.ones(2))
    ends = [(bool(e.terminations[-1]), bool(e.truncations[-1])) for e in writer.episodes]
    assert ends == [(False, True), (True, False), (True, False), (False, True)]
    assert (mine.episodes, mine.steps) == (4, 6)


def test_infos_and_extras_become_columns():
    with recorder(writer := MemoryWriter(), record_infos=True) as mine:
        mine.begin(np.zeros(2), {"t": 0}, extras={"goal": 1.5})
        mine.step(1, np.ones(2), info={"t": 1}, extras={"goal": 2.5, "force": np.ones(3)})
    episode = writer.episodes[0]
    assert episode.columns["infos/t"].tolist() == [0, 1]
    assert episode.columns["goal"].tolist() == [1.5, 2.5]
    assert episode.columns["force"].shape == (1, 3)


def test_a_failed_step_ends_the_episode_before():
    mine = recorder(writer := MemoryWriter())
    with pytest.raises(DataError, match=r"expected begin\(\)"):
        mine.step(0, np.zeros(2))
    mine.begin(np.zeros(2))
    mine.step(0, np.zeros(2))
    with pytest.raises(DataError, match="expected observations of shape"):
        mine.step(0, np.zeros(5))
    with pytest.raises(DataError, match=r"expected begin\(\)"):
        mine.step(0, np.zeros(2))
    mine.close()
    assert [len(e) for e in writer.episodes] == [1]


@pytest.mark.parametrize("format", ["columns", "minari", "webdataset"])
def test_a_dataset_is_continued_with_its_numbers(format, tmp_path):
    path = tmp_path / "arm-v0"
    infos = {"record_infos": True}
    with recorder(path, format=format, metadata={"site": "lab"}, **infos) as mine:
        mine.begin(np.zeros(2), {"grip": 1})
        mine.step(0, np.zeros(2), info={"grip": 2})
    for first in (1, 3):
        with recorder(path, mode="append", metadata={"robot": f"r{first}"}, **infos) as mine:
            for number in (first, first + 1):
                mine.begin(np.full(2, float(number)), {"grip": 3})
                mine.step(0, np.zeros(2), info={"grip": 4})
    assert numbers(path) == [0, 1, 2, 3, 4]
    source = penstock.open(path).source
    assert {"site": "lab", "robot": "r3"}.items() <= source.metadata.items()
    assert [source.episode(e).id for e in range(5)] == [0, 1, 2, 3, 4]
    assert source.episode(4).columns["infos/grip"].tolist() == [3, 4]


def test_appending_to_nothing_creates_a_dataset(tmp_path):
    with recorder(path := tmp_path / "a" / "arm", mode="append", format="webdataset") as mine:
        add(mine, 7)
    assert numbers(path) == [7]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"action_space": spaces.Discrete(4)},
            SpecError,
            r"expected the action space Discrete\(n=3",
        ),
        ({"observation_space": BUTTON}, SpecError, "expected the observation space Box"),
        ({"record_infos": False}, SpecError, "infos/grip differ; record with the same record_infos"),
        ({"record_infos": True}, SpecError, r"infos_mask/grip differ; .*record_infos='error' has no infos_mask"),
        ({"format": "minari"}, FormatError, "expected the format 'columns' to append to the dataset, got 'minari'"),
        ({"mode": "a"}, SpecError, "expected mode to be one of"),
        ({"mode": "create"}, FileExistsError, "expected nothing at .*mode='append'"),
    ],
    ids=str,
)
def test_what_differs_from_the_dataset_is_refused_at_once(change, error, message, tmp_path):
    options = {"record_infos": "error"}
    with recorder(path := tmp_path / "arm", **options) as mine:
        mine.begin(np.zeros(2), {"grip": 1})
        mine.step(0, np.zeros(2), info={"grip": 2})
    with pytest.raises(error, match=message):
        recorder(path, **{"mode": "append", **options, **change})
    assert numbers(path) == [0]


def test_infos_of_another_kind_are_refused_at_their_step(tmp_path):
    with recorder(path := tmp_path / "arm", record_infos="error") as mine:
        mine.begin(np.zeros(2), {"grip": 1})
        mine.step(0, np.zeros(2), info={"grip": 2})
    mine = recorder(path, mode="append", record_infos="error")
    with pytest.raises(DataError, match="expected a value for infos/grip"):
        mine.begin(np.zeros(2))
    with pytest.raises(DataError, match=r"columns \['infos/grip'\], got infos/other too"):
        mine.begin(np.zeros(2), {"grip": 1, "other": 2})
    with pytest.raises(DataError, match="expected infos/grip of int64, got float64"):
        mine.begin(np.zeros(2), {"grip": 1.5})


def test_extras_are_continued_and_a_collector_without_a_hook_is_refused(toy, tmp_path):
    def hook(data):
        data.extras["charge"] = 0.5
        return data

    for mode in ("create", "append"):
        with Collector(toy(), path := tmp_path / "toy", mode=mode, on_step=hook, seed=0) as env:
            env.reset()
            env.step(0)
    assert len(penstock.open(path).source) == 2
    with pytest.raises(SpecError, match="charge differ"):
        Collector(toy(), path, mode="append")


def test_collectors_append(toy, tmp_path):
    from gymnasium.vector import SyncVectorEnv

    path = tmp_path / "toy"
    for run in range(2):
        with Collector(toy(longest=1), path, mode="append", seed=run) as env:
            env.reset()
            env.step(0)
    with VectorCollector(SyncVectorEnv([lambda: toy(longest=1)] * 2), path, mode="append", seed=2) as envs:
        envs.reset()
        envs.step(np.zeros(2, np.int64))
    assert len(penstock.open(path).source) == 4


def test_a_dataset_is_replaced_when_the_first_episode_ends(tmp_path):
    with recorder(path := tmp_path / "arm") as mine:
        add(mine, 1)
    with recorder(path, mode="overwrite") as mine:
        mine.begin(np.zeros(2))
    assert numbers(path) == [1]  # no episode: the old one stays
    with recorder(path, mode="overwrite", format="minari") as mine:
        add(mine, 2)
        add(mine, 3)
    assert numbers(path) == [2, 3]
    assert [p.name for p in tmp_path.iterdir()] == ["arm"]
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(UnknownFormatError, match="no format recognises"):
        recorder(tmp_path / "letters", mode="overwrite")


def test_a_mode_needs_a_path():
    with pytest.raises(SpecError, match="expected a path for mode='append', got MemoryWriter"):
        recorder(MemoryWriter(), mode="append")


def continued(path: Path, first: int):
    """In the child: append for ever, and report each episode that is saved."""
    mine = recorder(path, mode="append")
    number = first
    while True:
        add(mine, number, steps=1 + number % 5)
        yield number
        number += 1


@pytest.mark.parametrize("format", ["columns", "minari"])
def test_a_kill_while_appending_loses_no_saved_episode(format, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", os.fspath(tmp_path / ".cache"))
    path, rng = tmp_path / "arm-v0", np.random.default_rng(1)
    with recorder(path, format=format) as mine:
        add(mine, 0, steps=1)
    known = 1
    for _ in range(3):
        saved = len(killed_after(int(rng.integers(1, 6)), lambda first=known: continued(path, first)))
        found = numbers(path)
        assert found == list(range(len(found)))
        assert known + saved <= len(found) <= known + saved + 1
        known = len(found)
