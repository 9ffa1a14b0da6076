"""Samples as a dataset of Ray Data on a cluster of two nodes: equal to the samples, in their order."""

# pyright: basic

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.ragged import Ragged
from penstock.errors import ArgumentError, PlanError, SpecError
from ray_runs.ray_cluster import LocalCluster

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray
BLOCKS = 7


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> penstock.EpisodeDataset:
    """Episodes on disk with pictures, dicts and text."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 40, 60)
    n = int(lengths.sum())
    columns = {
        "observations": {
            "image": rng.integers(0, 256, (n + 60, 8, 8, 3)).astype("u1"),
            "position": rng.standard_normal(n + 60).astype("f2"),
        },
        "actions": rng.standard_normal((n, 2)).astype("f4"),
        "rewards": rng.standard_normal(n),
        "terminations": rng.random(n) < 0.1,
        "text": Ragged.from_strings(["go", "", "left", "wait"] * (n // 4) + ["on"] * (n % 4)),
    }
    path = tmp_path_factory.mktemp("ray") / "data"
    penstock.convert(penstock.from_arrays(columns, lengths=lengths), path, certificate=False)
    return penstock.open(path)


def chains(data: penstock.EpisodeDataset) -> dict[str, penstock.MapDataset]:
    windows = data.windows(4, pad="zero").select_columns("observations", "text", "rewards")
    short = data.steps().select_columns("rewards", "actions")
    points = [np.full((count, 3), count, "f4") for count in range(1, 30)]
    memory = penstock.from_arrays({"points": Ragged.from_rows(points)}, lengths=[9, 20])
    return {
        "memory": memory.steps().shuffle(seed=5),
        "samples": data.steps().with_row_numbers().shuffle(seed=3),
        "windows": windows.shuffle(seed=1),
        "mapped": short.map(lambda batch: {"sum": batch["rewards"] + batch["actions"][:, 0]}, version=1).shuffle(
            seed=4
        ),
    }


def require_equal(rows: Any, samples: penstock.MapDataset) -> None:
    expected = samples[:]
    batches = list(rows.iter_batches(batch_size=50, batch_format="numpy"))
    assert all(set(batch) == set(expected.flat) for batch in batches)
    for path, array in expected.flat.items():
        column = np.concatenate([batch[path] for batch in batches])
        if isinstance(array, Ragged):
            assert len(column) == len(array)
            for row, value in zip(column, (array[i] for i in range(len(array))), strict=True):
                pairs = [(row, value)] if isinstance(value, np.ndarray) else zip(row, value, strict=True)
                assert all(np.array_equal(one, other) and one.dtype == other.dtype for one, other in pairs)
        else:
            assert column.dtype == array.dtype
            assert np.array_equal(column, array)


@pytest.mark.parametrize("name", ["memory", "windows", "mapped"])
def test_rows_are_the_samples_in_order(cluster: LocalCluster, data: penstock.EpisodeDataset, name: str) -> None:
    from penstock_cluster.ray_data import to_ray

    samples = chains(data)[name]
    rows = to_ray(samples, blocks=BLOCKS)
    assert rows.count() == len(samples)
    require_equal(rows, samples)


def test_workers_that_die_change_neither_rows_nor_order(
    cluster: LocalCluster, data: penstock.EpisodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of the tasks are killed in mid-range when they run for the first time."""
    module = importlib.import_module("penstock_cluster.ray_data")
    reading = module._read_blocks

    def dying(reference: Any, first: int, last: int, step: int) -> Generator[Any]:
        import os
        import signal

        yield from reading(reference, first, (first + last) // 2, step)
        if first in deadly and not (tmp_path / str(first)).exists():
            (tmp_path / str(first)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from reading(reference, (first + last) // 2, last, step)

    monkeypatch.setattr(module, "_read_blocks", dying)
    samples = chains(data)["samples"]
    deadly = [len(samples) * number // BLOCKS for number in random.Random(1).sample(range(BLOCKS), 3)]
    rows = module.to_ray(samples, blocks=BLOCKS)
    doubled = rows.map_batches(lambda batch: {**batch, "rewards": batch["rewards"] * 2}, batch_format="numpy")
    require_equal(doubled, samples.map(lambda batch: {**batch, "rewards": batch["rewards"] * 2}, version=1))
    assert len(list(tmp_path.iterdir())) == len(deadly)


def test_what_is_refused(data: penstock.EpisodeDataset) -> None:
    from penstock_cluster.ray_data import table_of, to_ray

    with pytest.raises(ArgumentError, match="make samples of its episodes first"):
        to_ray(data)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError, match=r"got 0; "):
        to_ray(data.filter("total_steps > 1000").steps())
    endless = penstock.mix([data.steps(), data.steps()], stop="never")
    with pytest.raises(PlanError, match=r"with_epoch_length\(n\) makes epochs of n samples"):
        to_ray(endless)
    with pytest.raises(SpecError, match="got rows of arrays - in points; select others"):
        table_of(penstock.Columns({"points": Ragged(np.zeros((2, 3)), np.array([0, 1, 2]), (1, 2))}))


def test_without_a_library_the_extra_is_named() -> None:
    """In another process, because this one has imported both."""
    script = """
import sys
import penstock, penstock.jobs, penstock.loading
from penstock.errors import MissingExtraError
for absent in ("pandas", "ray"):
    sys.modules[absent] = None
    sys.modules.pop("penstock_cluster.ray_data", None)
    try:
        import penstock_cluster.ray_data
    except MissingExtraError as error:
        print(error)
samples = penstock.from_arrays({"x": [1, 2]}, lengths=[2]).steps()
print(next(iter(samples.loader(batch_size=2)))["x"].tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *errors, batch = done.stdout.splitlines()
    assert [error.split(" is ")[0] for error in errors] == ["ray.data", "ray"]
    assert all(error.endswith("pip install 'penstock-cluster[ray]'") for error in errors)
    assert batch == "[1, 2]"
