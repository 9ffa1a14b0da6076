"""Episodes go from every format that we write to every other one and back, and are what they were."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.testing.compare import assert_same_array
from penstock.testing.examples import NESTED

TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "columns": ("columns", {}),
    "minari hdf5": ("minari", {"data_format": "hdf5"}),
    "minari arrow": ("minari", {"data_format": "arrow"}),
    "shards": ("webdataset", {}),
    "zarr": ("zarr", {"chunk_rows": 3}),
    "zarr 3": ("zarr", {"zarr_format": 3, "compressor": "gzip"}),
}


@pytest.mark.parametrize(("first", "second"), list(permutations(TARGETS, 2)))
def test_round_trip(tmp_path: Path, first: str, second: str) -> None:
    data = penstock.EpisodeDataset(penstock.MemorySource.from_episodes(NESTED.episodes()))
    before = data
    for place, name in (("a", first), ("b", second)):
        format, options = TARGETS[name]
        report = penstock.convert(before, tmp_path / place, format=format, options=options)
        assert [note for note in report.notes if note.level == "left out"] == []
        before = penstock.open(tmp_path / place)
    assert set(before.spec) == set(data.spec)
    for found, episode in zip(before.source.episodes(), data.source.episodes(), strict=True):
        for path, column in episode.columns.items():
            assert_same_array(found.columns[path], column, path)
        assert found.metadata["seed"] == episode.metadata["seed"]
    assert np.array_equal(before.source.offsets, data.source.offsets)
