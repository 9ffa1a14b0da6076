"""Ray Train starts two workers, whose loaders find their ranks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
import ray_training
import torch
from ray.train import TrainingFailedError
from toy import samples

from tests.trainers.orders import check_epochs, check_equal, global_order, joined
from tests.trainers.ranks import trained


@pytest.fixture
def _cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "1")
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.1")  # a report waits for the next one
    ray_training.start()
    yield
    ray.shutdown()


@pytest.mark.usefixtures("_cluster")
def test_two_workers_train_as_one_process_does_and_resume(tmp_path: Path) -> None:
    plain, order = trained("plain")
    state, first = ray_training.train(tmp_path, stop=22)
    assert state["loader"]["position"] == len(samples()) + 5 * 16
    state, rest = ray_training.train(tmp_path)
    both = [one + other for one, other in zip(first, rest, strict=True)]
    check_epochs(global_order(both), len(samples()))
    assert global_order(both) == joined(order)
    check_equal({name: value.numpy() for name, value in state["model"].items()}, plain, exact=False)


@pytest.mark.usefixtures("_cluster")
def test_a_run_that_lost_a_worker_resumes_on_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(ray_training.__file__).parents[1]))
    example = importlib.import_module("ray_train")
    ray.cloudpickle.register_pickle_by_value(example)  # workers cannot import it
    example.record(tmp_path / "pendulum", 2)
    with pytest.raises(TrainingFailedError):
        example.launch(2, tmp_path, "killed", 25, die_at=13)
    resumed = example.launch(1, tmp_path, "killed", 25)
    assert resumed["starts"] == [(0, 2), (10, 1)]
    assert len(resumed["losses"]) == 25
    expected = example.samples(tmp_path / "pendulum", 25)[:]
    rows = torch.from_numpy(np.stack([expected["episodes"], expected["timesteps"]], 1))
    assert example.digest(resumed["rows"]) == example.digest([rows])
