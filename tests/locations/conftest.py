"""A cache of remote data for each test, retries that do not wait, a bucket of S3, and a hub."""

# pyright: basic

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from tests.locations.clock import Clock, without_waiting
from tests.locations.hub_server import TOKEN, Hub, hub_serving
from tests.locations.s3 import Bucket, Stores, bucket_on


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return without_waiting(monkeypatch)


@pytest.fixture
def bucket(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket, which the environment has the credentials of."""
    return bucket_on(stores, monkeypatch.setenv)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that the client asks, and folders of this machine that have no datasets. No uploads by Xet."""
    from huggingface_hub import HfFileSystem, constants
    from huggingface_hub.utils import disable_progress_bars

    with hub_serving() as hub:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        disable_progress_bars()
        yield hub
        HfFileSystem.clear_instance_cache()


@pytest.fixture
def toy() -> penstock.EpisodeDataset:
    """Three episodes, of more than a block."""
    pixels = np.random.default_rng(3).integers(0, 256, (60, 32, 32, 3), np.uint8)
    return penstock.from_arrays(
        {"observations": pixels, "actions": np.arange(60), "rewards": np.arange(60.0)}, lengths=[20, 30, 10]
    )
