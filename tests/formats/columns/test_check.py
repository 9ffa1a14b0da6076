"""A check of many episodes finds the same damage as a check of each episode alone."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import named
from penstock.formats.columns import FORMAT
from penstock.formats.columns import format as columns_format
from penstock.formats.columns.snapshot import Snapshot


def store(path: Path, rng: np.random.Generator) -> Path:
    """A store of two segments, with episodes of 0 to 5 steps and columns of each alignment."""
    for part in range(2):
        lengths = rng.integers(0, 6, 40)
        steps = int(lengths.sum())
        columns = {
            "observations": rng.normal(size=(steps + 40, 3)).astype("f4"),
            "actions": rng.integers(0, 9, steps),
            "empty": np.zeros((steps, 0), "f4"),
        }
        data = penstock.from_arrays(columns, lengths=lengths)
        if part:
            with named("columns").append(path) as writer:
                writer.write_all(data.source.episode(e) for e in range(40))
        else:
            penstock.convert(data, path, certificate=False)
    return path


@pytest.mark.parametrize("seed", range(6))
def test_damage_is_found_as_in_each_episode_alone(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(columns_format, "EPISODES_TOGETHER", int(rng.integers(1, 100)))
    monkeypatch.setattr(columns_format, "STEPS_TOGETHER", int(rng.integers(1, 300)))
    path = store(tmp_path / "data", rng)
    assert not list(FORMAT.check(path, deep=True))
    snapshot = Snapshot.open(path)
    files = [file for file, size in snapshot.files() if size]
    for _ in range(seed):
        file = files[int(rng.integers(len(files)))]
        content = bytearray(file.read_bytes())
        content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        file.write_bytes(content)
    alone: list[Finding] = [each for e in range(80) for each in columns_format._episode(Snapshot.open(path), e)]
    found = [each for each in FORMAT.check(path, deep=True) if each.where.startswith("episode ")]
    assert found == alone
    assert bool(found) == bool(seed)
