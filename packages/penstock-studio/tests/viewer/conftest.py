"""A running viewer of two datasets, one with planted mistakes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import penstock
from penstock_studio.viewer.server import ViewerServer
from tests.doctor.test_planted import PLANTS, clean, stored


@contextmanager
def serving(*locations: Path | str, **options: Any) -> Iterator[ViewerServer]:
    """A viewer that answers until the block ends, in a thread."""
    with ViewerServer([str(location) for location in locations], **options) as server:
        thread = threading.Thread(target=server.run, name="viewer")
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("viewer")
    planted = clean()
    for name in ("nan", "time-gap", "frozen-sensor", "idle-start"):
        planted = PLANTS[name][0](planted)
    return {
        "kitchen": stored(planted, folder / "kitchen", "columns"),
        "clean": stored(clean(1), folder / "clean", "minari"),
        "video": Path(__file__).parents[4] / "tests" / "golden" / "lerobot" / "v3_video",
    }


@pytest.fixture(scope="session")
def damaged_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes with pictures of which the first is none."""
    folder = tmp_path_factory.mktemp("damaged") / "pictures"
    pictures = np.random.default_rng(0).integers(0, 255, (40, 32, 32, 3), np.uint8)
    data = penstock.from_arrays({"camera": pictures, "actions": np.zeros((40, 2), np.float32)}, lengths=[20, 20])
    penstock.convert(data, folder, format="lerobot", certificate=False, options={"cameras": "image", "fps": 10})
    (file,) = folder.glob("data/**/*.parquet")
    first: bytes = pyarrow.parquet.read_table(file)["camera"][0]["bytes"].as_py()
    file.write_bytes(file.read_bytes().replace(first, b"?" + first[1:]))
    return folder


@pytest.fixture(scope="session")
def viewer(datasets: dict[str, Path]) -> Iterator[ViewerServer]:
    with serving(*datasets.values()) as server:
        yield server
