"""A cache of remote data for each test, retries that do not wait, and a bucket of S3."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import pytest

from tests.locations.clock import Clock, without_waiting
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
