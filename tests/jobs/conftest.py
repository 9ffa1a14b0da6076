"""Datasets with episodes of very different lengths, in small ranges, that all runners work on."""

# pyright: basic

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import penstock
from tests.jobs.cases import CASES, Inputs, make_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """What the commands of `CASES` read."""
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="session")
def expected(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, bytes]]:
    """Return a function that gives the result of a command without jobs."""
    return cache(lambda name: CASES[name].plain(inputs, tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(17)
    lengths = np.concatenate([rng.integers(1, 60, 50), [4200], rng.integers(1, 60, 40)])
    n, episodes = int(lengths.sum()), len(lengths)
    columns = {
        "observations": rng.standard_normal((n + episodes, 8)).astype("f4"),
        "pixels": rng.integers(0, 256, (n, 32, 32, 3)).astype("u1"),
        "rewards": rng.standard_normal(n),
        "terminations": np.zeros(n, bool),
        "task": rng.integers(0, 3, episodes),
    }
    columns["rewards"][[3, 4200]] = np.nan
    data = penstock.from_arrays(columns, lengths=lengths.tolist())
    path = tmp_path_factory.mktemp("jobs") / "recording"
    penstock.convert(data, path, certificate=False)
    return path
