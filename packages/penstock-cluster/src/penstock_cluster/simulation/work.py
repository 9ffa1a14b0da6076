"""`measure_work`: how long a thread of a loader works for a sample once its bytes have arrived, such as to decode it.

The time depends on the order: a group of pictures of a video, or a compressed chunk, is decoded once for all samples
of a job that need it. So jobs are measured that are made as a loader makes them. It also depends on the other threads
of the loader, which share cores, caches and the interpreter. So all threads work at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from penstock.core.arrays import IntArray
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.files.remote import filled
from penstock.flow import map_on_threads
from penstock.loading.position_source import PositionSource
from penstock.loading.ranks import Ranks

ROUNDS = 4  # the first one opens files and decoders; the mean of the others counts
ENOUGH = 2.0  # seconds of a round after which no other one begins


def measure_work(dataset: MapDataset, batch_size: int, hosts: int, threads: int, seed: int = 0) -> float:
    """Measure the work for a sample on this machine, by loading jobs of one host. Bytes behind URLs are
    fetched before.
    """
    rng = np.random.default_rng(seed)
    source = PositionSource(planned_samples(dataset), batch_size, ranks=Ranks(int(rng.integers(hosts)), hosts))
    batches = len(dataset) // batch_size
    many = min(source.samples_that_fit() // batch_size, batches)
    rounds: list[float] = []
    for _ in range(ROUNDS):
        starts: list[int] = rng.integers(0, batches - many + 1, threads).tolist()
        jobs = [source.shares((start + np.arange(many + 1)) * batch_size)[0] for start in starts]
        rounds.append(_work_at_once(source, jobs))
        if rounds[-1] * sum(map(len, jobs)) / threads > ENOUGH:
            break
    return float(np.mean(rounds[1:] or rounds))


def _work_at_once(source: PositionSource, jobs: Sequence[IntArray]) -> float:
    """Seconds of a thread for a sample, while a thread works on each job."""
    samples = source.dataset

    def work(positions: IntArray) -> float:
        before = time.perf_counter()
        samples.mapped(samples.read(samples.resolve(positions), source.recycler.empty), positions)
        return time.perf_counter() - before

    with ExitStack() as stack:
        for positions in jobs:
            if wanted := samples.remote_ranges(samples.resolve(positions)):
                stack.enter_context(filled(wanted))
        seconds = map_on_threads(work, jobs, len(jobs), name="penstock-measure")
    return sum(seconds) / max(sum(map(len, jobs)), 1)
