"""When what was written is flushed to the disk itself."""

from __future__ import annotations

import os

import numpy as np
import pytest

from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.formats.base.format import named

SPEC = Spec(
    {
        "observations": Field(np.dtype("f4"), (3,), "boundary"),
        "actions": Field(np.dtype("i8")),
        "rewards": Field(np.dtype("f8")),
        "terminations": Field(np.dtype("?")),
        "truncations": Field(np.dtype("?")),
    }
)
EPISODE = Episode(
    SPEC,
    {
        "observations": np.zeros((3, 3), "f4"),
        "actions": np.zeros(2, "i8"),
        "rewards": np.zeros(2),
        "terminations": np.zeros(2, "?"),
        "truncations": np.ones(2, "?"),
    },
)


@pytest.fixture
def flushes(monkeypatch):
    counted = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (counted.append(fd), real(fd)))
    return counted


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
@pytest.mark.parametrize("sync", ["close", "episode"])
def test_flushes_come_with_each_episode_or_at_the_close(tmp_path, flushes, data_format, sync):
    minari = named("minari")
    with minari.create(tmp_path / "d", SPEC, {"dataset_id": "a/b-v0"}, data_format=data_format, sync=sync) as writer:
        flushes.clear()
        writer.write(EPISODE)
        writer.write(EPISODE)
        assert bool(flushes) == (sync == "episode")
        flushes.clear()
    assert bool(flushes) == (sync == "close")
    with minari.append(tmp_path / "d", sync=sync) as writer:
        flushes.clear()
        writer.write(EPISODE)
        assert bool(flushes) == (sync == "episode")
    assert len(minari.open(tmp_path / "d")) == 3


def test_an_unknown_sync_is_refused(tmp_path):
    with pytest.raises(TypeError, match="'sometimes'"):
        named("minari").create(tmp_path / "d", SPEC, {"dataset_id": "a/b-v0"}, sync="sometimes")
    assert not (tmp_path / "d").exists()
