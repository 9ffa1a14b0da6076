"""Both kernels, and frames that the originals wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.formats.lc0 import open_chunks
from penstock.kernels.dispatch import kernels

GOLDEN = Path(__file__).parents[2] / "golden" / "lc0"
INPUT_FORMATS = (1, 2, 3, 4, 5, 132, 133)

Frames = Callable[..., Any]


@pytest.fixture(params=["compiled", "reference"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("PENSTOCK_KERNELS", request.param)
    kernels.cache_clear()
    yield request.param
    kernels.cache_clear()


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of files that the originals wrote."""
    return GOLDEN


@pytest.fixture(scope="session")
def frames() -> Frames:
    """`frames("gz/training.700001.gz", ...)`: the frames of golden files, all chunks of each, in that order."""

    def read(*names: str) -> Any:
        parts: list[Any] = []
        for name in names:
            chunks = open_chunks(GOLDEN / name)
            assert chunks is not None
            parts += [chunks.load(i) for i in range(len(chunks))]
        return np.concatenate(parts)

    return read


@pytest.fixture(scope="session")
def mixed(frames: Frames) -> Any:
    """`[n, 8396]` positions of a game in all seven input formats, in turn, some 16 of each."""
    every = [frames("gz/training.700027.gz")]
    every += [frames(f"formats/fmt{number}_training.700000.gz") for number in INPUT_FORMATS[1:]]
    rows = np.stack([part[2:34:2] for part in every], axis=1).reshape(-1, 8396)
    rows.flags.writeable = False
    return rows


@pytest.fixture(scope="session")
def garbage() -> Any:
    """`[28, 8396]` random bytes, four of each input format."""
    rows = np.random.default_rng(5).integers(0, 256, (28, 8396), np.uint8)
    rows[:, 4:8].view("<u4")[:, 0] = np.repeat(INPUT_FORMATS, 4)
    rows.flags.writeable = False
    return rows
