"""The image task of the demo, shortened: shards, pairs, encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import penstock
from examples.demo import pictures
from examples.demo.encoder import Encoder, Lessons, Probe, interrupted, probe
from examples.demo.pictures import Pictures
from examples.demo.shards import ImageTask, looked_at, pairs, record
from penstock_imitation.envs.toy import MOVES

TASK = ImageTask().quick()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pictures:
    return pictures.learn(TASK, tmp_path_factory.mktemp("pictures"))


def test_every_check_holds(made: Pictures) -> None:
    assert list(made.checks.values()) == [True]
    assert len(made.learned.losses) == TASK.epochs * (len(pairs(made.paths)) // 128)


def test_the_shards_are_tars_of_whole_and_cut_episodes(made: Pictures) -> None:
    for player, path in made.paths.items():
        with penstock.open(path, format="webdataset") as data:
            assert data.total_steps == made.steps[player] >= TASK.steps
            assert all(e.terminations[-1] or e.truncations[-1] for e in data)


def test_other_seeds_give_other_episodes(tmp_path: Path) -> None:
    short = ImageTask(steps=60)
    folders = [tmp_path / name for name in ("first", "again", "other")]
    for folder in folders:
        folder.mkdir()
    first, again, other = (record(short, *given) for given in zip(folders, (0, 0, 5), strict=True))
    one, two, three = (penstock.open(paths["demos"])[0].observations for paths in (first, again, other))
    np.testing.assert_array_equal(one, two)
    assert one.shape != three.shape or (one != three).any()


def test_half_of_every_two_pairs_are_demonstrations(made: Pictures) -> None:
    """And the action of a pair moves the agent from the one picture to the other, unless a wall is in the way."""
    mixed = pairs(made.paths)
    batch = mixed[np.arange(200)]
    assert set(batch) >= {"context", "extra_context", "target", "traj_ts_ids"}
    demonstrated = {c.tobytes() for c in penstock.open(made.paths["demos"]).steps()[:]["observations"]}
    share = np.mean([c.tobytes() in demonstrated for c in batch["context"]])
    assert 0.35 < share < 0.65
    rests = batch["target"][:, 0] == int(np.flatnonzero(~MOVES.any(axis=1))[0])
    white = (batch["context"] > 230).all(axis=1), (batch["extra_context"] > 230).all(axis=1)
    moved = (white[0] != white[1]).any(axis=(1, 2))
    assert not moved[rests].any()
    assert moved[~rests].mean() > 0.5


def test_lessons_are_the_same_with_any_threads_and_after_a_stop(made: Pictures, tmp_path: Path) -> None:
    whole = Lessons(made.paths, len(MOVES), threads=2).learn(7)
    assert interrupted(made.paths, len(MOVES), tmp_path / "state.pt", 7) == whole.digests
    assert len(set(whole.digests)) == 7


def test_a_probe_reads_what_is_there_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    encoder = Encoder(9)
    seen = rng.integers(0, 256, (200, 3, 32, 32), np.uint8)
    with torch.no_grad():
        known = encoder(torch.from_numpy(seen)).numpy()[:, :2]
    assert probe(encoder, seen, known).r2 > 0.99
    assert probe(encoder, seen, rng.normal(size=(200, 2)).astype(np.float32)).r2 < 0.2
    assert Probe(np.ones((3, 2)), np.ones((3, 2)) + np.arange(3)[:, None]).r2 < 0


def test_what_is_looked_at_fits_the_pictures(made: Pictures) -> None:
    seen, agent, target = looked_at(made.paths)
    assert seen.shape[1:] == (3, 32, 32)
    assert len(seen) == len(agent) == len(target)
    rows, columns = np.nonzero((seen[0] > 230).all(axis=0))
    np.testing.assert_allclose([columns.mean() / 32, rows.mean() / 32], agent[0], atol=0.05)


def test_the_table(made: Pictures) -> None:
    assert pictures.table(made)
    assert made.to_json()["task"] == "toy/chase"
