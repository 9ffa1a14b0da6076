"""`simulate`: the load that an order of samples puts on a storage, for several numbers of hosts.

Host `h` of `H` reads the samples `k B + h B / H` to `k B + (h + 1) B / H` of batch `k`, as ranks of a loader do.

1. *Groups.* The loader asks for the bytes of the next batches in one call (`load/lookahead.py`). The blocks of such
   groups are found from the plan itself, for some hosts at some random places of the epoch. So requests are merged
   as the client merges them.
2. *An epoch.* One of at most `PHASES` groups is enumerated. A longer one is not: a host draws samples from the `D`
   units of a file, and a sample reads `t` of them, so after `n` samples a unit is absent with the probability
   `exp(-n t / D)`. This holds for the epoch of a full shuffle, and for each pool of a shuffle by blocks, of which `D`
   and the samples of a host are counted likewise. So the units of a group are thinned, in `PHASES` phases from the
   start of an epoch or pool, where all are absent, to its end. Where a pool is larger than the cache of the host, the
   part of it that does not fit is absent again.
3. *Waiting.* `queueing.waiting` simulates the requests of all hosts, phase by phase; each host gets the requests of one
   of the sampled groups, without the units in its cache. The first batch is left out, because a run begins with it.

The waiting is a lower bound: decoding and other users of the storage come on top. `error` is the relative standard
error of the sampled groups, and of three simulations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError
from penstock.load.lookahead import AHEAD_BYTES
from penstock.locations.blocks import BLOCK
from penstock.plan.base import check_ends
from penstock.simulation.queueing import GroupRequests, waiting
from penstock.simulation.reads import ReadMap
from penstock.simulation.storage import StorageConstants

Order = tuple[int, int] | None
"""Block and pool of `shuffle`, or None: a full shuffle."""
Requests = tuple[FloatArray, IntArray]
"""Bytes of each request of a group, and the tick that needs it first."""
GIVEN: Order = (0, 0)
"""The order that the dataset has already."""

SAMPLED_HOSTS = 4
SAMPLED_GROUPS = 3  # of each sampled host
TICKS = 16  # of a group
MOST_SAMPLES = 1 << 14  # of a group
MOST_OF_HOSTS = 1 << 18  # samples of a group of all hosts
PHASES = 16  # of a pool or an epoch, each with one simulated group
GROUPS_OF_A_POOL = 3  # from which on the absent part of a group is estimated
GROUPS_OF_A_WALK = 1 + 2 * GROUPS_OF_A_POOL  # consecutive groups, of which the first one fills the cache
GROUPS_OF_A_PHASE = 4  # whose requests are made
RUNS = 3  # simulations of the waiting
TOUCHES = 200  # samples whose blocks are counted one by one
BLOCKS = 4  # blocks of a shuffle whose units are counted
MOST_OF_BLOCK = 1 << 13  # samples of a block that are looked at
CACHE = 64 << 30  # bytes, as `PENSTOCK_CACHE_BYTES`
ACCEPTED = 0.1
"""Fraction of the time up to which waiting is accepted."""


@dataclass(frozen=True)
class HostFigures:
    """Load of one number of hosts on the storage, with one order.

    Args:
        hosts: Number of hosts.
        order: Block and pool of the shuffle, None for a full one.
        fetched: Bytes that a host fetches in the first epoch.
        needed: Bytes of the samples of a host in an epoch.
        reads: How many times all hosts together fetch the dataset.
        requests: Requests a second of all hosts.
        bandwidth: Bytes a second of all hosts.
        waiting: Fraction of the time that a step waits for data.
        error: Relative standard error of bytes and requests.
        waiting_error: Standard error of `waiting`.

    Example:
        >>> HostFigures(1, None, 2e9, 1e9, 1.0, 100.0, 1e6, 0.0, 0.01, 0.0).amplification
        2.0
    """

    hosts: int
    order: Order
    fetched: float
    needed: float
    reads: float
    requests: float
    bandwidth: float
    waiting: float
    error: float
    waiting_error: float

    @property
    def amplification(self) -> float:
        """Bytes that are fetched for each byte of a sample."""
        return self.fetched / max(self.needed, 1.0)


@dataclass(frozen=True)
class HostSimulation:
    """Figures of all numbers of hosts and orders.

    Args:
        figures: The figures, order by order.
        batch_size: Samples of a global batch.
        step_seconds: Time of a step without waiting.
        nbytes: Bytes of the dataset that samples read.
        storage: Constants of the storage.

    Example:
        >>> import penstock
        >>> from penstock.simulation import OBJECT_STORE
        >>> data = penstock.from_arrays({"x": np.zeros((100_000, 8), "float32")}, lengths=[1000] * 100)
        >>> result = simulate(data.windows(16), [1, 8], batch_size=64, storage=OBJECT_STORE, orders=[None])
        >>> [figures.hosts for figures in result.figures]
        [1, 8]
    """

    figures: tuple[HostFigures, ...]
    batch_size: int
    step_seconds: float
    nbytes: int
    storage: StorageConstants

    @property
    def orders(self) -> tuple[Order, ...]:
        """The orders, as they were given."""
        return tuple(dict.fromkeys(each.order for each in self.figures))

    def of(self, order: Order) -> list[HostFigures]:
        """Return the figures of one order, by the number of hosts.

        Args:
            order: The order.
        """
        return [each for each in self.figures if each.order == order]

    def advice(self) -> list[str]:
        """Return what to do, in sentences: up to how many hosts a full shuffle is wise, and which blocks to take."""
        return [_advice(self, hosts) for hosts in dict.fromkeys(each.hosts for each in self.figures)]


def simulate(
    dataset: MapDataset,
    hosts: Sequence[int],
    *,
    batch_size: int,
    storage: StorageConstants,
    step_seconds: float = 0.1,
    orders: Sequence[Order] | None = None,
    cache_bytes: int = CACHE,
    seed: int = 0,
) -> HostSimulation:
    """Predict what training asks of a storage. No values are read.

    Args:
        dataset: Samples in the order in which they are stored: windows, packs, or a mix of such. Open it by URL to have
            the bytes of its files; else columns are taken to be stored row after row.
        hosts: Numbers of hosts, each at most `batch_size`. The ranks of a host share its cache.
        batch_size: Samples of a global batch.
        storage: Constants of the storage.
        step_seconds: Seconds of a step without waiting. The default is 0.1.
        orders: Orders to compare: None is a full shuffle, `(block, pool)` a shuffle by blocks, `GIVEN` the order of
            the dataset. The default is None: a full shuffle and blocks of several sizes.
        cache_bytes: Bytes of the cache of a host. The default is 64 GiB.
        seed: Seed of places, latencies and orders. The default is 0.

    Returns:
        Figures of each order and number of hosts. Cost: some 0.2 s for each.

    Raises:
        PlanError: The dataset has fewer samples than a batch, or no end, or a number is out of range.

    Example:
        >>> import penstock
        >>> from penstock.simulation import OBJECT_STORE
        >>> data = penstock.from_arrays({"x": np.zeros((100_000, 8), "float32")}, lengths=[1000] * 100)
        >>> simulate(data.windows(16), [1], batch_size=64, storage=OBJECT_STORE, orders=[(64, 8)]).advice()
        ['1 host: shuffle(block=64, pool=8), which waits 0%']
    """
    if not hosts or min(hosts) < 1 or max(hosts) > batch_size:
        raise PlanError(f"expected numbers of hosts within 1:{batch_size + 1}, the samples of a batch, got {hosts}")
    if step_seconds < 0 or cache_bytes < 0:
        raise PlanError(f"expected a step and a cache of at least 0, got {step_seconds} and {cache_bytes}")
    if len(dataset) == 0:
        raise PlanError(f"expected a dataset with samples, got an empty one: {dataset.plan.why_empty()}")
    check_ends(dataset.plan, "a simulation of its epoch")
    if len(dataset) < batch_size:
        raise PlanError(f"expected an epoch of at least one batch of {batch_size}, got {len(dataset)} samples")
    run = _SimulationRun(dataset, batch_size, storage, step_seconds, cache_bytes, seed)
    chosen = default_orders(len(dataset), batch_size, max(hosts)) if orders is None else orders
    figures = [run.figures(order, many) for order in chosen for many in hosts]
    return HostSimulation(tuple(figures), batch_size, step_seconds, run.reads.total * BLOCK, storage)


def default_orders(samples: int, batch_size: int, hosts: int) -> list[Order]:
    """Return a full shuffle, and shuffles by blocks that fit an epoch.

    Args:
        samples: Samples of an epoch.
        batch_size: Samples of a batch.
        hosts: The most hosts.

    Returns:
        The orders.

    Example:
        >>> default_orders(100_000, 256, 16)
        [None, (64, 256), (256, 64), (1024, 16), (4096, 8), (16, 1)]
    """
    pooled = [(64, 256), (256, 64), (1024, 16), (4096, 8)]
    single = sorted({max(batch_size // many, 1) for many in (hosts, max(hosts // 8, 1)) if batch_size // many >= 8})
    return [None, *(each for each in pooled if each[0] * each[1] < samples), *((size, 1) for size in single[:1])]


def order_name(order: Order) -> str:
    """Return the call that makes an order.

    Args:
        order: The order.

    Returns:
        The text.

    Example:
        >>> order_name(None), order_name((64, 16))
        ('shuffle()', 'shuffle(block=64, pool=16)')
    """
    if order is None:
        return "shuffle()"
    return "as it is" if order == GIVEN else f"shuffle(block={order[0]}, pool={order[1]})"


class _SimulationRun:
    """One dataset and storage."""

    def __init__(
        self, dataset: MapDataset, batch: int, storage: StorageConstants, step: float, cache_bytes: int, seed: int
    ) -> None:
        self.dataset, self.storage = dataset, storage
        self._batch, self._step = batch, step
        self._seed = seed
        self.reads = ReadMap(dataset, cache_bytes)
        self._touches = self.reads.touches(TOUCHES, seed)  # may find files of a remote dataset
        self._cache = cache_bytes // (BLOCK * self.reads.unit)
        self._sample_bytes = max(sum(_sample_bytes(dataset)), 1.0)

    def figures(self, order: Order, hosts: int) -> HostFigures:
        """Return what so many hosts ask of the storage."""
        rng = np.random.default_rng([self._seed, hosts])
        share = self._batch / hosts  # samples of a batch of one host
        batches = self._batches_of_a_group(share)
        samples = len(self.dataset) / hosts
        pool = self._pool(order, samples, share)
        phases = self._phases(order, hosts, batches, pool, rng)
        waits = np.array([self._waiting(phases, hosts, batches, run) for run in range(RUNS)])
        seconds = max(samples / share * self._step + float(waits.mean()), 1e-9)
        nbytes = sum(phase.groups * float(np.mean([each.sum() for each, _ in phase.requests])) for phase in phases)
        counts = sum(phase.groups * float(np.mean([len(each) for each, _ in phase.requests])) for phase in phases)
        dataset_bytes = self.reads.total * BLOCK
        fetched = min(nbytes, dataset_bytes) if pool.kept == 1 else nbytes
        sizes: FloatArray = np.zeros(min(len(phase.requests) for phase in phases))
        for phase in phases:
            sizes += [float(each.sum()) for each, _ in phase.requests[: len(sizes)]]
        return HostFigures(
            hosts=hosts,
            order=order,
            fetched=fetched,
            needed=samples * self._sample_bytes,
            reads=hosts * fetched / dataset_bytes,
            requests=hosts * counts / seconds,
            bandwidth=hosts * nbytes / seconds,
            waiting=float(waits.mean()) / seconds,
            error=float(np.std(sizes)) / max(float(np.mean(sizes)), 1e-9) / float(len(sizes)) ** 0.5,
            waiting_error=float(np.std(waits)) / seconds / RUNS**0.5,
        )

    def _phases(
        self, order: Order, hosts: int, batches: int, pool: _DrawnPool, rng: np.random.Generator
    ) -> list[_EpochPhase]:
        """Return groups of some hosts at some times of the epoch.

        All groups of an epoch if there are few and nothing is evicted; else consecutive groups at random places if a
        pool has few groups; else random groups, without a part of their units.
        """
        ordered = self._ordered(order)
        chosen = rng.choice(hosts, min(hosts, SAMPLED_HOSTS), replace=False).tolist()
        group = batches * self._batch  # samples of all hosts
        many = len(self.dataset) / group
        if many <= PHASES and pool.kept == 1:
            walks = [self._walk(ordered, host, hosts, 0, batches, int(np.ceil(many))) for host in chosen]
            return [_EpochPhase(list(each), 1) for each in zip(*walks, strict=True)]
        groups = pool.samples / (group / hosts)
        near = order not in (None, GIVEN) and groups < GROUPS_OF_A_POOL and pool.kept == 1
        last = max(len(ordered) // self._batch - (GROUPS_OF_A_WALK if near else 1) * batches, 0)
        starts = [(host, int(rng.integers(last + 1))) for host in chosen for _ in range(SAMPLED_GROUPS)]
        if near:
            walks = [self._walk(ordered, host, hosts, first, batches, GROUPS_OF_A_WALK)[1:] for host, first in starts]
            return [_EpochPhase(list(each), many / (GROUPS_OF_A_WALK - 1)) for each in zip(*walks, strict=True)]
        sampled = [self._group(ordered, host, hosts, first, batches) for host, first in starts]
        phases: list[_EpochPhase] = []
        for part, weight in pool.absent(groups):
            some: list[int] = rng.permutation(len(sampled))[:GROUPS_OF_A_PHASE].tolist()
            requests = [self._requests(sampled[i], part, rng) for i in some]
            phases.append(_EpochPhase(requests, weight * many / groups))
        return phases

    def _walk(
        self, ordered: MapDataset, host: int, hosts: int, first: int, batches: int, groups: int
    ) -> list[Requests]:
        """Requests of consecutive groups of a host, each without the units of those before."""
        known = np.zeros(0, np.int64)
        walk: list[Requests] = []
        for number in range(groups):
            blocks, need = self._group(ordered, host, hosts, first + number * batches, batches)
            unit = blocks // self.reads.unit
            fresh = ~np.isin(unit, known)
            known = np.union1d(known, unit)
            walk.append(self.reads.requests(blocks[fresh], need[fresh]))
        return walk

    def _ordered(self, order: Order) -> MapDataset:
        if order is None:
            return self.dataset.shuffle(self._seed)
        return self.dataset if order == GIVEN else self.dataset.shuffle(self._seed, block=order[0], pool=order[1])

    def _batches_of_a_group(self, share: float) -> int:
        """Batches whose bytes are asked for in one call: half of what may be ahead, because half is left."""
        samples = min(AHEAD_BYTES / 2 / self._sample_bytes, MOST_SAMPLES, MOST_OF_HOSTS * share / self._batch)
        most = max(len(self.dataset) // self._batch, 1)
        return int(min(max(samples / share, 1), most))

    def _group(self, ordered: MapDataset, host: int, hosts: int, first: int, batches: int) -> tuple[IntArray, IntArray]:
        """Blocks of some batches of a host, and the tick that needs each first."""
        lo, hi = host * self._batch // hosts, (host + 1) * self._batch // hosts
        blocks: list[IntArray] = []
        for tick in np.array_split(np.arange(first, first + batches), min(TICKS, batches)):
            positions = (tick[:, None] * self._batch + np.arange(lo, hi)).ravel()
            blocks.append(self.reads.blocks_of(ordered, positions[positions < len(ordered)]))
        need = np.repeat(np.arange(len(blocks)), [len(each) for each in blocks])
        every, where = np.unique(np.concatenate(blocks), return_index=True)
        return every, need[where]

    def _requests(self, group: tuple[IntArray, IntArray], part: float, rng: np.random.Generator) -> Requests:
        """Requests of a group for the part of its units that is absent."""
        blocks, need = group
        units, unit = np.unique(blocks // self.reads.unit, return_inverse=True)
        mine = (rng.random(len(units)) < part)[unit]
        return self.reads.requests(blocks[mine], need[mine])

    def _waiting(self, phases: Sequence[_EpochPhase], hosts: int, batches: int, run: int) -> float:
        """Seconds of waiting in an epoch."""
        rng = np.random.default_rng([self._seed, hosts, run])
        ticks = min(TICKS, batches)
        groups = [_of_hosts(phase.requests, hosts, ticks, rng) for phase in phases]
        repeated = phases[0].groups > 1  # pools follow each other; a run begins with an empty pipeline
        groups = [groups[-1], *groups] if repeated else groups
        waits = waiting(groups, ticks, batches / ticks * self._step, self.storage, rng).reshape(len(groups), ticks)
        waits[0, 0] = 0
        return float(np.dot(waits[int(repeated) :].sum(axis=1), [phase.groups for phase in phases]))

    def _pool(self, order: Order, samples: float, share: float) -> _DrawnPool:
        """Return the pool that a host draws from: all data, or the blocks that are shuffled together."""
        units = np.ceil(self.reads.file_blocks / self.reads.unit)
        drawn = samples
        if order is not None and order != GIVEN:
            block, pool = order
            rng = np.random.default_rng(self._seed)
            counts = np.zeros(len(units))
            numbers: list[int] = rng.integers(0, max(len(self.dataset) // block, 1), BLOCKS).tolist()
            for number in numbers:
                step = -(-block // MOST_OF_BLOCK)
                positions = np.arange(number * block, min((number + 1) * block, len(self.dataset)), step)
                touched = self.reads.units(self.reads.blocks(positions))
                counts += np.bincount(self.reads.file_of(touched * self.reads.unit), minlength=len(units))[: len(units)]
            units = np.minimum(counts / BLOCKS * pool, units)
            span = block * pool
            # A pool is shared by all hosts, or belongs to the part of a batch of one host.
            drawn = min(span * share / self._batch if span >= self._batch else min(span, share), samples)
        used = units > 0
        kept = min(self._cache / max(float(units.sum()), 1.0), 1.0)
        return _DrawnPool(units[used], self._touches[used], drawn, kept, order == GIVEN)


@dataclass(frozen=True)
class _EpochPhase:
    """Requests of a group of some hosts, and how many groups of the epoch it stands for."""

    requests: list[Requests]
    groups: float


@dataclass(frozen=True)
class _DrawnPool:
    """Units of files from which a host draws samples at random, `samples` times; `kept` is what its cache keeps."""

    units: FloatArray
    touches: FloatArray
    samples: float
    kept: float
    in_order: bool

    def absent(self, groups: float) -> list[tuple[float, float]]:
        """Return phases of a pool of so many groups: the part of wanted units that is absent, and groups of each.

        Phases are short at first, when most is absent. A unit is absent at the start of group `g` of `G` with the
        probability `exp(-rate g / G)`, and a phase has the mean of its groups.
        """
        if self.in_order or groups <= 1:
            return [(1.0, groups / PHASES)] * PHASES
        edges = np.minimum(np.concatenate([[0.0], groups ** (np.arange(PHASES) / (PHASES - 1)) / groups]), 1.0)
        low, high = edges[:-1, None], edges[1:, None]
        rate = self.samples * self.touches / self.units
        first = -np.expm1(-rate / groups) * groups  # of the units that a group adds, times the groups
        part = (np.exp(-rate * low) - np.exp(-rate * high)) / np.maximum(first * (high - low), 1e-300)
        fresh = np.average(np.clip(part, 1 - self.kept, 1), axis=1, weights=self.units * first)
        return list(zip(fresh.tolist(), (np.diff(edges) * groups).tolist(), strict=True))


def _of_hosts(phase: Sequence[Requests], hosts: int, ticks: int, rng: np.random.Generator) -> GroupRequests:
    """Give each host the requests of one of the sampled groups."""
    longest = max(1, *(len(nbytes) for nbytes, _ in phase))
    nbytes, tick = np.zeros((len(phase), longest)), np.full((len(phase), longest), ticks - 1)
    for i, (sizes, needs) in enumerate(phase):
        nbytes[i, : len(sizes)], tick[i, : len(sizes)] = sizes, needs
    chosen = rng.integers(0, len(phase), hosts)
    return GroupRequests(nbytes[chosen], tick[chosen])


def _sample_bytes(dataset: MapDataset) -> list[float]:
    """Bytes of a sample in each output: of its real rows, the mean of some samples."""
    positions = np.random.default_rng(0).integers(0, len(dataset), 256)
    selections = dataset.resolve(positions)
    sizes: list[float] = []
    for read in dataset.plan.reads:
        for source, spans in selections[read.view].by_source():
            column = read.of(source)
            if column is not None:
                field = dataset.sources[source].spec[column]
                sizes.append(float(spans.length.sum()) * field.row_bytes / len(positions))
    return sizes


def _advice(result: HostSimulation, hosts: int) -> str:
    """What to do with one number of hosts."""
    mine = [each for each in result.figures if each.hosts == hosts]
    plain = next((each for each in mine if each.order is None), None)
    name = f"{hosts:,} host{'s' * (hosts != 1)}"
    if plain is not None and plain.waiting <= ACCEPTED:
        return f"{name}: a full shuffle, which waits {plain.waiting:.0%} of the time"
    mixing = sorted((each for each in mine if each.order is not None), key=lambda each: -_mixed(each.order))
    good = next((each for each in mixing if each.waiting <= ACCEPTED), None)
    lost = "" if plain is None else f", where a full shuffle waits {plain.waiting:.0%} of the time"
    if good is not None:
        return f"{name}: {order_name(good.order)}, which waits {good.waiting:.0%}{lost}"
    best = min(mine, key=lambda each: each.waiting)
    size = f"{result.nbytes / 1e9:,.1f} GB"
    return (
        f"{name}: the storage is too slow for this step: {order_name(best.order)} waits least, {best.waiting:.0%}"
        f"{lost}; copy the {size} to the disks of the hosts, or use a faster storage or a larger step"
    )


def _mixed(order: Order) -> float:
    """Blocks that are mixed with each other: more are better."""
    return np.inf if order is None else order[1]
