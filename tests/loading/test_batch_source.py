"""What functions make of samples counts for how many are made ahead; empty shares have everybody's columns."""

from __future__ import annotations

import numpy as np

import penstock
from penstock.data.map_dataset import planned_samples
from penstock.loading.position_source import PositionSource


def numbers(n: int, start: int = 0) -> penstock.EpisodeDataset:
    return penstock.from_arrays({"rewards": np.arange(start, start + n, dtype=np.float64)}, lengths=[n])


def test_jobs_of_samples_that_a_function_enlarges_stay_small() -> None:
    small = numbers(60_000).steps()
    large = small.map(lambda c: {"picture": np.zeros((c.n, 1 << 17), np.uint8)})
    counted = {}
    for name, dataset in (("small", small), ("large", large)):
        source = PositionSource(planned_samples(dataset), 32)
        jobs = source.jobs(source.start())
        next(jobs).run()
        counted[name] = len(next(jobs).run())
    assert counted["large"] * 32 << 17 <= 1 << 30
    assert counted["small"] > 4 * counted["large"]


def test_an_empty_share_of_a_mix_has_the_columns_that_functions_give() -> None:
    parts = [numbers(9, 10 * k).steps().map(lambda c: {"doubled": 2 * c["rewards"]}) for k in range(2)]
    mixed = penstock.mix(parts, [1, 1])
    empty = planned_samples(mixed).at(np.zeros(0, np.int64))
    assert sorted(empty) == sorted(mixed[:])
    assert empty.n == 0
