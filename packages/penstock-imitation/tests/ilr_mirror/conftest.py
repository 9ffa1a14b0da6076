"""The originals' files, and configurations that lead to them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

ILR = Path(__file__).parents[4] / "tests" / "golden" / "ilr"
SHARDS, NATIVE, PAIRS = ILR / "shards", ILR / "native", ILR / "pairs"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed archives are unpacked into a folder of the test."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def env_data(tmp_path: Path) -> dict[str, Any]:
    """Processed data in the test's folder, native demonstrations as the originals wrote them."""
    return {
        "data_root": str(tmp_path),
        "magical_demo_dirs": {"MoveToRegion-Demo-v0": str(NATIVE / "magical" / "move-to-region")},
        "atari_demo_paths": {"PongNoFrameskip-v4": str(NATIVE / "atari" / "pong_synth.npz")},
        "dm_control_demo_patterns": {"reacher-easy": str(NATIVE / "dm_control" / "reacher-easy-*.pkl.gz")},
        "procgen_demo_paths": {"coinrun": str(NATIVE / "procgen" / "demo_coinrun.pickle")},
    }


@pytest.fixture
def processed(tmp_path: Path) -> Path:
    """`<root>/data/processed` with demonstrations and rollouts of three tasks of one space."""
    root = tmp_path / "data" / "processed"
    for kind, task in (("demos", "reacher-easy"), ("random", "reacher-easy"), ("demos", "finger-spin")):
        place(root / kind / "dm_control" / task)
    return root


def place(folder: Path, name: str = "A.tgz") -> None:
    """The shard `A` of the originals, put into a folder."""
    folder.mkdir(parents=True)
    shutil.copy(SHARDS / name, folder / name)


def number(observation: Any) -> int:
    """The number that is written into the first two bytes of an observation of `A`."""
    return int(observation[0, 0, 0]) + 256 * int(observation[0, 0, 1])
