# pyright: basic

from __future__ import annotations

import numpy as np
import pytest

from penstock_cluster.kernels.queueing import fetch_requests
from simulation.reference import queueing as reference


@pytest.mark.parametrize("seed", range(6))
def test_requests_equal_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hosts, many, ticks, connections = (int(rng.integers(1, high)) for high in (9, 60, 5, 6))
    shared = np.inf if seed % 2 else 2e6
    states = [
        (np.zeros((hosts, connections)), np.zeros(hosts), np.zeros(hosts), np.zeros(1), np.zeros((hosts, ticks)))
        for _ in range(2)
    ]
    for begin in (0.0, 3.0):
        nbytes = rng.integers(0, 3, (hosts, many)) * 1e6
        tick = np.sort(rng.integers(0, ticks, (hosts, many)), axis=1)
        latency = rng.random((hosts, many))
        asked = begin + rng.random(hosts)
        speeds = np.array([0.01 * seed, 0.02 * seed, 0.4, 1e6, 4e6, shared])
        for run, (*state, ready) in zip((fetch_requests, reference.fetch_requests), states, strict=True):
            scratch = np.zeros(hosts), np.zeros(hosts, np.int64)
            run(nbytes, tick, latency, asked, *state, speeds, *scratch, ready)
        for mine, wanted in zip(*states, strict=True):
            np.testing.assert_array_equal(mine, wanted)
