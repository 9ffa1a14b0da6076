"""Memory of a long read does not grow with the dataset, but for 4 bytes a text, tensor and image."""

# pyright: basic

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

import penstock

GOLDEN = Path(__file__).parents[2] / "golden/rlds/tfrecord/toy_arm/1.0.0"
COLUMNS = ["actions", "truncations", "tag", "language_instruction", "observations/depth", "observations/lidar"]
RECORDS, STEPS, BLOBS = 9, 52, 2  # of the golden split; columns of texts and tensors
BATCH = 64
OF_RECORD = 256  # bytes of tables; the decoded numbers of a record have 8 KB


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def repeated(path: Path, repeats: int) -> Path:
    """Write the golden records several times, as one shard."""
    path.mkdir(parents=True)
    raw = b"".join(file.read_bytes() for file in sorted(GOLDEN.glob("*-train.*")))
    (path / "toy_arm-train.tfrecord-00000-of-00001").write_bytes(raw * repeats)
    info = json.loads((GOLDEN / "dataset_info.json").read_text())
    lengths = {"shardLengths": [str(RECORDS * repeats)], "numBytes": str(len(raw) * repeats)}
    info["splits"] = [{**info["splits"][0], **lengths}]
    (path / "dataset_info.json").write_text(json.dumps(info))
    shutil.copy(GOLDEN / "features.json", path)
    return path


def growth(path: Path) -> int:
    """Most bytes that reading all steps in random order takes, above those of the open dataset."""
    data = penstock.open(path, cache_bytes=1 << 16, columns=COLUMNS)
    samples = data.steps().shuffle(seed=0)
    tracemalloc.start()
    try:
        for begin in range(0, len(samples), BATCH):
            samples[begin : begin + BATCH]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_a_long_read_is_bounded(tmp_path: Path) -> None:
    growth(repeated(tmp_path / "first/1.0.0", 1))  # what is made once for a process
    few = growth(repeated(tmp_path / "few/1.0.0", 4))
    many = growth(repeated(tmp_path / "many/1.0.0", 20))
    assert many - few < (20 - 4) * (STEPS * BLOBS * 4 + RECORDS * OF_RECORD)
