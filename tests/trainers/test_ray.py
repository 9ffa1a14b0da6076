"""Ray Train starts two workers, whose loaders find their ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import ray_training
from toy import samples

from tests.trainers.orders import check_epochs, check_equal, global_order, joined
from tests.trainers.ranks import trained


@pytest.fixture
def _cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "1")
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
