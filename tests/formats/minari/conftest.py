from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from penstock.core.episode import Episode
from penstock.core.spaces import Box, Dict, Discrete, Text, Tuple
from penstock.core.spec import Field, Spec
from penstock.formats.minari import metadata

GOLDEN = Path(__file__).parents[2] / "golden" / "minari"


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    """A datasets root and a cache that belong to the test alone."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def box(*shape, dtype="f4", low=-10, high=10):
    return Box(np.full(shape, low, dtype), np.full(shape, high, dtype), np.dtype(dtype))


def simple_spec(observations=None, extras=None):
    space = box(3) if observations is None else observations
    fields = {
        "observations": Field(space.dtype, space.shape, "boundary"),
        "actions": Field(np.dtype("i8")),
        "rewards": Field(np.dtype("f8")),
        "terminations": Field(np.dtype("?")),
        "truncations": Field(np.dtype("?")),
        **(extras or {}),
    }
    return Spec(fields, space, Discrete(4))


def simple_episode(spec, steps, seed=0, **entries):
    rng = np.random.default_rng(seed)
    columns = {}
    for path, field in spec.fields.items():
        rows = {"step": steps, "boundary": steps + 1, "episode": 1}[field.align]
        columns[path] = rng.integers(0, 2 if field.dtype == bool else 4, (rows, *field.shape)).astype(field.dtype)
    columns["terminations"] = np.arange(steps) == steps - 1
    columns["truncations"] = np.zeros(steps, bool)
    return Episode(spec, columns, metadata={"seed": seed, **entries})


def write_h5(folder, episodes, spaces=None, entries=None, **dataset_options):
    """A dataset as h5py writes it: `episodes` are dicts of path to array, nested by `/`."""
    data = folder / "data"
    data.mkdir(parents=True)
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for e, columns in enumerate(episodes):
            group = file.create_group(f"episode_{e}")
            group.attrs["id"] = e
            for path, values in columns.items():
                options = dataset_options if np.ndim(values) else {}
                group.create_dataset(path, data=values, **options)
    observation_space, action_space = spaces or (box(3), Discrete(4))
    stored = {
        "total_episodes": len(episodes),
        "total_steps": sum(len(columns.get("rewards", ())) for columns in episodes),
        "data_format": "hdf5",
        "dataset_id": folder.name,
        "minari_version": "0.5.4",
        "observation_space": None if observation_space is None else metadata.dumps(observation_space.to_json()),
        "action_space": None if action_space is None else metadata.dumps(action_space.to_json()),
        **(entries or {}),
    }
    metadata.write_json(data / "metadata.json", {k: v for k, v in stored.items() if v is not None})
    return folder


def raw_episode(steps, seed=0, shape=(3,), dtype="f4", **more):
    rng = np.random.default_rng(seed)
    return {
        "observations": rng.integers(0, 9, (steps + 1, *shape)).astype(dtype),
        "actions": rng.integers(0, 4, steps),
        "rewards": rng.normal(size=steps),
        "terminations": np.arange(steps) == steps - 1,
        "truncations": np.zeros(steps, bool),
        **more,
    }


NESTED = (
    Dict({"arm": Tuple((box(2), Discrete(3))), "text": Text(8)}),
    Tuple((Discrete(2), box(1))),
)
