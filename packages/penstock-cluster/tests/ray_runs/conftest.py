"""One Ray cluster of two nodes for these tests: each process that starts costs seconds, and works until it ends."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from ray_runs.ray_cluster import LocalCluster, local_cluster, time_limit
from tests.jobs import collecting


@pytest.fixture(autouse=True)
def limit() -> Generator[None]:
    with time_limit(600):
        yield


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where environments of type `Counted` leave files."""
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="package")
def cluster(built: Path) -> Generator[LocalCluster]:
    modules = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])  # of these tests
    with local_cluster(variables={collecting.BUILT: str(built), "PYTHONPATH": modules}) as made:
        made.add()
        yield made
