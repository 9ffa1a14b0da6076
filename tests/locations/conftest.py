"""A cache of remote data for each test, and retries that do not wait."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.locations import mirror as mirrors
from penstock.locations.retry import Retry


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mirrors.MIRRORS, "retry", Retry(wait=lambda _: None))
    return tmp_path / "cache"
