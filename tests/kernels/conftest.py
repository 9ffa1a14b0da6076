"""Both kernels, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.kernels.dispatch import kernels


@pytest.fixture(params=["compiled", "reference"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("PENSTOCK_KERNELS", request.param)
    kernels.cache_clear()
    yield request.param
    kernels.cache_clear()
