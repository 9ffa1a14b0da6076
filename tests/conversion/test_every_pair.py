"""Episodes go from every format that we write to every other one and back, and are what they were.

LeRobot has one observation for each action, so the row after the last step is lost, and nothing else is.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.episode import Episode
from penstock.formats.lerobot.info import INDICES
from penstock.testing.compare import assert_same_array
from penstock.testing.examples import NESTED

TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "columns": ("columns", {}),
    "minari hdf5": ("minari", {"data_format": "hdf5"}),
    "minari arrow": ("minari", {"data_format": "arrow"}),
    "shards": ("webdataset", {}),
    "zarr": ("zarr", {"chunk_rows": 3}),
    "zarr 3": ("zarr", {"zarr_format": 3, "compressor": "gzip"}),
    "rlds": ("rlds", {}),
    "lerobot": ("lerobot", {"fps": 10}),
}
EPISODES = penstock.EpisodeDataset(penstock.MemorySource.from_episodes(NESTED.episodes()))


@pytest.fixture(scope="module")
def firsts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The episodes in every format."""
    folder = tmp_path_factory.mktemp("firsts")
    for name, (format, options) in TARGETS.items():
        penstock.convert(EPISODES, folder / name, format=format, options=options, certificate=False)
    return {name: folder / name for name in TARGETS}


@pytest.mark.parametrize(("first", "second"), list(permutations(TARGETS, 2)))
def test_round_trip(firsts: dict[str, Path], tmp_path: Path, first: str, second: str) -> None:
    format, options = TARGETS[second]
    fill = first == "lerobot" and format == "minari"  # which needs a row after the last step
    report = penstock.convert(
        firsts[first], tmp_path / "out", format=format, options=options, fill_missing=fill, certificate=False
    )
    assert {note.what for note in report.notes if note.level == "left out"} <= {"frame_index", "episode_index", "index"}
    with penstock.open(tmp_path / "out") as found:
        assert len(found) == len(EPISODES)
        for episode, expected in zip(found.source.episodes(), EPISODES.source.episodes(), strict=True):
            check(episode, expected, lerobot="lerobot" in (first, second), filled=fill)


def check(found: Episode, expected: Episode, *, lerobot: bool, filled: bool) -> None:
    """Every value and the metadata are there, but for the row that LeRobot has no place for."""
    added = {"task", *INDICES} if lerobot else set[str]()
    assert set(found.columns) - added == set(expected.columns)
    assert len(found) == len(expected)
    for path, column in expected.columns.items():
        cut = lerobot and expected.spec[path].align == "boundary"
        assert len(found.columns[path]) == len(column) - (cut and not filled), path
        rows = len(column) - cut
        assert_same_array(found.columns[path][:rows], column[:rows], path)
    assert found.metadata["seed"] == expected.metadata["seed"]
