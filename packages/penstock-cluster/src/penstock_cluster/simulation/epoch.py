"""`EpochReads`: the calls of a loader for the bytes of an epoch, and the requests of each.

1. *Calls.* The loader cuts an epoch into jobs, and asks for the bytes of several jobs in one call. Which jobs these are
   depends on sizes alone, so the loader's own rules give them (`PositionSource.samples_that_fit`,
   `load.lookahead.with_requested`). The first calls are small; later ones are alike.
2. *Requests.* The blocks of a call are found from the plan itself, for some hosts, and become requests as the client
   merges them. An epoch of few calls is enumerated. A longer one is not: its first calls are, and some others at random
   places of the epoch. A host draws samples from the `D` units of a kind of files that an epoch reads, and a sample
   reads `t` of them, so after `n` samples a unit is absent with the probability `exp(-n t / D)`. This holds for the
   epoch of a full shuffle, and for each pool of a shuffle by blocks, of which `D` and the samples of a host are counted
   likewise. So the units of these calls are thinned, in `PHASES` phases from the start of an epoch or pool, where all
   are absent, to its end. Where a pool is larger than the cache of the host, the part of it that does not fit is
   absent again. Samples in the order of the dataset, and pools of few calls, are found from consecutive calls instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.loading.position_source import AHEAD_BYTES, PositionSource, with_requested
from penstock.loading.ranks import Ranks
from penstock.locations.blocks import BLOCK
from penstock_cluster.simulation.orders import GIVEN, Order, in_order
from penstock_cluster.simulation.queueing import FetchCall
from penstock_cluster.simulation.reads import ReadMap

Requests = tuple[FloatArray, IntArray]
"""Bytes of each request of a call, and the job in the call that needs it first."""

SAMPLED_HOSTS = 4
SAMPLED_CALLS = 3  # of each sampled host
MOST_SAMPLES = 1 << 14  # of a host in a call
FIRST_CALLS = 6  # of an epoch, which are smaller than later ones
PHASES = 16  # of a pool or an epoch, each with one simulated call
CALLS_OF_A_POOL = 3  # from which on the absent part of a call is estimated
CALLS_OF_A_WALK = 1 + 2 * CALLS_OF_A_POOL  # consecutive calls, of which the first one fills the cache
CALLS_OF_A_PHASE = 4  # whose requests are made
TOUCHES = 200  # samples whose blocks are counted one by one
BLOCKS = 4  # blocks of a shuffle whose units are counted
MOST_OF_BLOCK = 1 << 13  # samples of a block that are looked at


@dataclass(frozen=True)
class SampledCall:
    """A call, and its requests on some hosts."""

    call: FetchCall
    requests: list[Requests]
    counts: float
    waits: float


class EpochReads:
    """Finds the requests of an epoch for any order and number of hosts."""

    def __init__(self, dataset: MapDataset, batch: int, cache_bytes: int, seed: int) -> None:
        self.dataset = dataset
        self._batch, self._seed = batch, seed
        self.reads = ReadMap(dataset, cache_bytes)
        self._touches = self.reads.touches(TOUCHES, seed)  # may find files of a remote dataset
        self._cache = cache_bytes // (BLOCK * self.reads.unit)

    def sample(
        self, order: Order, hosts: int, unmeasured: int, rng: np.random.Generator
    ) -> tuple[list[SampledCall], float]:
        """Return the calls of some hosts in an epoch: all of them, or the first ones and some others."""
        calls = self._calls(hosts, unmeasured)
        ordered = in_order(self.dataset, order, self._seed)
        pool = self._pool(order, len(self.dataset) / hosts, self._batch / hosts)
        chosen: list[int] = sorted(rng.choice(hosts, min(hosts, SAMPLED_HOSTS), replace=False).tolist())
        few = len(calls) <= FIRST_CALLS + PHASES and pool.kept == 1
        first = calls if few else calls[:FIRST_CALLS]
        walks = [self._walk(ordered, host, hosts, 0, first) for host in chosen]
        counted = 1.0 if few else 0.0
        sampled = [
            SampledCall(call, list(each), counted, 1.0)
            for call, each in zip(first, zip(*walks, strict=True), strict=True)
        ]
        if not few:
            sampled += self._later(ordered, order, hosts, chosen, calls, pool, rng)
        # Requests bring some bytes that no sample reads. All calls of an epoch show how many, estimated ones do not.
        return sampled, self.reads.epoch_bytes if pool.kept == 1 and not few else np.inf

    def _calls(self, hosts: int, unmeasured: int) -> list[FetchCall]:
        """The first calls of an epoch."""
        source = PositionSource(planned_samples(self.dataset), self._batch, ranks=Ranks(0, hosts))
        job_batches = source.samples_that_fit() // self._batch
        row_bytes = source.row.nbytes
        ahead = min(AHEAD_BYTES, 2 * MOST_SAMPLES * row_bytes)
        batches = -(-len(self.dataset) // self._batch)
        every = fetch_calls(batches, job_batches, self._batch / hosts * row_bytes, ahead, unmeasured)
        return list(islice(every, FIRST_CALLS + PHASES + 1))

    def _later(
        self,
        ordered: MapDataset,
        order: Order,
        hosts: int,
        chosen: list[int],
        calls: list[FetchCall],
        pool: _DrawnPool,
        rng: np.random.Generator,
    ) -> list[SampledCall]:
        """Return calls at random places of the epoch; consecutive ones if a pool has few calls."""
        usual = calls[min(FIRST_CALLS, len(calls) - 1)]
        batches = sum(usual.batches)
        many = len(self.dataset) / self._batch / batches  # calls of the epoch
        begun = sum(sum(call.batches) for call in calls[:FIRST_CALLS]) * self._batch / len(self.dataset)
        groups = pool.samples / (batches * self._batch / hosts)
        near = order == GIVEN or (order is not None and groups < CALLS_OF_A_POOL and pool.kept == 1)
        last = max(len(ordered) // self._batch - (CALLS_OF_A_WALK if near else 1) * batches, 0)
        starts = [(host, int(rng.integers(last + 1))) for host in chosen for _ in range(SAMPLED_CALLS)]
        if near:
            walk = [usual] * CALLS_OF_A_WALK
            walks = [self._walk(ordered, host, hosts, first, walk)[1:] for host, first in starts]
            sampled_calls = [(list(each), many / (CALLS_OF_A_WALK - 1)) for each in zip(*walks, strict=True)]
        else:
            sampled = [self._blocks(ordered, host, hosts, first, usual) for host, first in starts]
            sampled_calls: list[tuple[list[Requests], float]] = []
            for part, weight in pool.absent(groups):
                some: list[int] = rng.permutation(len(sampled))[:CALLS_OF_A_PHASE].tolist()
                sampled_calls.append(([self._thinned(sampled[i], part, rng) for i in some], weight * many / groups))
        return [
            SampledCall(
                replace(usual, taken=usual.taken + number * len(usual.batches)),
                requests,
                counts,
                counts * max(1 - begun, 0),
            )
            for number, (requests, counts) in enumerate(sampled_calls)
        ]

    def _walk(
        self, ordered: MapDataset, host: int, hosts: int, first: int, calls: Sequence[FetchCall]
    ) -> list[Requests]:
        """Requests of consecutive calls of a host, each without the blocks of those before."""
        fetched = self.reads.nothing_fetched()
        walk: list[Requests] = []
        for call in calls:
            blocks, need = self._blocks(ordered, host, hosts, first, call)
            walk.append(self.reads.requests(blocks, need, fetched))
            first += sum(call.batches)
        return walk

    def _blocks(
        self, ordered: MapDataset, host: int, hosts: int, first: int, call: FetchCall
    ) -> tuple[IntArray, IntArray]:
        """Blocks of a call of a host, and the job that needs each first."""
        lo, hi = host * self._batch // hosts, (host + 1) * self._batch // hosts
        blocks: list[IntArray] = []
        for batches in call.batches:
            positions = (np.arange(first, first + batches)[:, None] * self._batch + np.arange(lo, hi)).ravel()
            blocks.append(self.reads.blocks_of(ordered, positions[positions < len(ordered)]))
            first += batches
        need = np.repeat(np.arange(len(blocks)), [len(each) for each in blocks])
        every, where = np.unique(np.concatenate(blocks), return_index=True)
        return every, need[where]

    def _thinned(self, blocks: tuple[IntArray, IntArray], part: float, rng: np.random.Generator) -> Requests:
        """Requests of a call for the part of its units that is absent."""
        every, need = blocks
        units, unit = np.unique(every // self.reads.unit, return_inverse=True)
        mine = (rng.random(len(units)) < part)[unit]
        return self.reads.requests(every[mine], need[mine])

    def _pool(self, order: Order, samples: float, share: float) -> _DrawnPool:
        """Return the pool that a host draws from: all data, or the blocks that are shuffled together."""
        units = self.reads.epoch_units
        drawn = samples
        if order is not None and order != GIVEN:
            block, pool = order
            numbers: list[int] = (
                np.random.default_rng(self._seed).integers(0, max(len(self.dataset) // block, 1), BLOCKS).tolist()
            )
            step = -(-block // MOST_OF_BLOCK)
            counts = [
                self.reads.unit_counts(
                    self.reads.blocks(np.arange(number * block, min((number + 1) * block, len(self.dataset)), step))
                )
                for number in numbers
            ]
            units = np.minimum(np.mean(counts, axis=0) * pool, units)
            span = block * pool
            # A pool is shared by all hosts, or belongs to the part of a batch of one host.
            drawn = min(span * share / self._batch if span >= self._batch else min(span, share), samples)
        used = units > 0
        kept = min(self._cache / max(float(units.sum()), 1.0), 1.0)
        return _DrawnPool(units[used], self._touches[used], drawn, kept)


@dataclass(frozen=True)
class _PlannedJob:
    batches: int
    nbytes: float


def fetch_calls(
    batches: int, job_batches: int, batch_bytes: float, ahead_bytes: float, unmeasured: int
) -> Iterator[FetchCall]:
    """Yield the calls of a loader for the jobs of an epoch."""
    taken = 0

    def jobs() -> Iterator[_PlannedJob]:
        left = batches
        while left:
            many = min(job_batches if taken >= unmeasured else 1, left)
            left -= many
            yield _PlannedJob(many, many * batch_bytes)

    for _, fresh in with_requested(jobs(), ahead_bytes):
        if fresh:
            yield FetchCall(taken, tuple(job.batches for job in fresh))
        taken += 1


@dataclass(frozen=True)
class _DrawnPool:
    """Units of kinds of files that a host draws from at random, `samples` times; `kept` is what its cache keeps."""

    units: FloatArray
    touches: FloatArray
    samples: float
    kept: float

    def absent(self, calls: float) -> list[tuple[float, float]]:
        """Return phases of a pool of so many calls: the part of wanted units that is absent, and calls of each.

        Phases are short at first, when most is absent. A unit is absent at the start of call `g` of `G` with the
        probability `exp(-rate g / G)`, and a phase has the mean of its calls.
        """
        if calls <= 1:
            return [(1.0, calls / PHASES)] * PHASES
        edges = np.minimum(np.concatenate([[0.0], calls ** (np.arange(PHASES) / (PHASES - 1)) / calls]), 1.0)
        low, high = edges[:-1, None], edges[1:, None]
        rate = self.samples * self.touches / self.units
        first = -np.expm1(-rate / calls) * calls  # of the units that a call adds, times the calls
        part = (np.exp(-rate * low) - np.exp(-rate * high)) / np.maximum(first * (high - low), 1e-300)
        fresh = np.average(np.clip(part, 1 - self.kept, 1), axis=1, weights=self.units * first)
        return list(zip(fresh.tolist(), (np.diff(edges) * calls).tolist(), strict=True))
