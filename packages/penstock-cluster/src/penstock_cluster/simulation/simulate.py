"""`simulate`: the load that an order of samples puts on a storage, for several numbers of hosts.

Host `h` of `H` reads the samples `k B + h B / H` to `k B + (h + 1) B / H` of batch `k`, as ranks of a loader do.

`epoch` finds the calls for bytes that loaders make, and their requests. `queueing.waiting` simulates the requests of
all hosts, and when their loaders have the batches; each host gets the requests of one of the sampled hosts. The first
batch is left out, because a run begins with it.

The model has merged requests, the look-ahead of the loader and the size of its jobs, connections, latencies with
stragglers, lines and limits that hosts share, processor time of requests, and the work of threads on bytes that have
arrived, if it is given or measured (`work`). It lacks other users of the storage and of the processors. `error` is the
relative standard error of the sampled calls, and of three simulations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.text import counted
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError
from penstock.flow import cores
from penstock.locations.blocks import BLOCK
from penstock.plan.base import check_ends
from penstock_cluster.simulation.epoch import EpochReads, Requests, SampledCall
from penstock_cluster.simulation.orders import Order, default_orders, in_order, order_name
from penstock_cluster.simulation.queueing import HostRequests, LoaderThreads, waiting
from penstock_cluster.simulation.storage import StorageConstants
from penstock_cluster.simulation.work import measure_work

RUNS = 3  # simulations of the waiting
MOST_REQUESTS = 1 << 18  # of a call on all hosts that are simulated one by one
LEAST_HOSTS = 16  # that are simulated one by one
MOST_SHARING = 64  # hosts that are simulated one by one where they share a line
THREADS = 8  # of a loader that chooses them, on a host of 8 cores
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
        reads: How many times all hosts together fetch the data of the epoch.
        requests: Requests a second of all hosts.
        bandwidth: Bytes a second of all hosts.
        waiting: Fraction of the time that a step waits for data.
        work: Seconds that a thread of a loader works for a sample after its bytes have arrived.
        error: Relative standard error of bytes and requests.
        waiting_error: Standard error of `waiting`.

    Example:
        >>> HostFigures(1, None, 2e9, 1e9, 1.0, 100.0, 1e6, 0.0, 0.0, 0.01, 0.0).amplification
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
    work: float
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
        threads: Threads of the loader of each host.
        nbytes: Bytes of all files, as far as columns of samples are in them.
        epoch_bytes: Bytes of these that an epoch reads. They are fewer where a mix ends before a dataset does, or where
            episodes were chosen.
        storage: Constants of the storage.

    Example:
        >>> import penstock
        >>> from penstock_cluster.simulation import OBJECT_STORE
        >>> data = penstock.from_arrays({"x": np.zeros((100_000, 8), "float32")}, lengths=[1000] * 100)
        >>> result = simulate(data.windows(16), [1, 8], batch_size=64, storage=OBJECT_STORE, orders=[None])
        >>> [figures.hosts for figures in result.figures]
        [1, 8]
    """

    figures: tuple[HostFigures, ...]
    batch_size: int
    step_seconds: float
    threads: int
    nbytes: int
    epoch_bytes: int
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

    def recommended(self, hosts: int) -> HostFigures:
        """Return the figures of the recommended order: it mixes best, and waits at most a tenth of the time.

        A full shuffle mixes best, then more blocks in a pool. If all orders wait longer, the one that waits least is
        recommended.

        Args:
            hosts: Number of hosts, which was simulated.
        """
        mine = [each for each in self.figures if each.hosts == hosts]
        good = [each for each in mine if each.waiting <= ACCEPTED]
        if not good:
            return min(mine, key=lambda each: each.waiting)
        return max(good, key=lambda each: math.inf if each.order is None else each.order[1])

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
    threads: int | None = None,
    work: float | None = 0.0,
    cache_bytes: int = CACHE,
    seed: int = 0,
) -> HostSimulation:
    """Predict what training asks of a storage. No values are read, unless work is measured.

    Args:
        dataset: Samples in the order in which they are stored: windows, packs, or a mix of such. Open it by URL to have
            the bytes of its files; else columns are taken to be stored row after row.
        hosts: Numbers of hosts, each at most `batch_size`, with one rank and so one loader each.
        batch_size: Samples of a global batch.
        storage: Constants of the storage.
        step_seconds: Seconds of a step without waiting. The default is 0.1.
        orders: Orders to compare: None is a full shuffle, `(block, pool)` a shuffle by blocks, `GIVEN` the order of
            the dataset. The default is None: a full shuffle and blocks of several sizes.
        threads: Threads of a loader, as of `Loader`, at least 1. The default is None: the loader chooses, with 8 cores,
            or with the cores of this machine if work is measured.
        work: Seconds that a thread works for a sample after its bytes have arrived, such as to decode a picture. The
            default is 0. None measures it on this machine, for each order and for the fewest and the most hosts: then
            some jobs of at most 32 MiB are loaded for each thread.
        cache_bytes: Bytes of the cache of a host. The default is 64 GiB.
        seed: Seed of places, latencies and orders. The default is 0.

    Returns:
        Figures of each order and number of hosts. Cost: 0.1 to 2 s for each, and the measured work.

    Raises:
        PlanError: The dataset has fewer samples than a batch, or no end, or a number is out of range.

    Example:
        >>> import penstock
        >>> from penstock_cluster.simulation import OBJECT_STORE
        >>> data = penstock.from_arrays({"x": np.zeros((100_000, 8), "float32")}, lengths=[1000] * 100)
        >>> simulate(data.windows(16), [1], batch_size=64, storage=OBJECT_STORE, orders=[(64, 8)]).advice()
        ['1 host: shuffle(block=64, pool=8), which waits 0%']
    """
    if not hosts or min(hosts) < 1 or max(hosts) > batch_size:
        raise PlanError(f"expected numbers of hosts within 1:{batch_size + 1}, the samples of a batch, got {hosts}")
    if step_seconds < 0 or cache_bytes < 0 or (threads is not None and threads < 1):
        given = f"{step_seconds}, {cache_bytes} and {threads}"
        raise PlanError(f"expected a step and a cache of at least 0, and at least 1 thread, got {given}")
    if work is not None and not 0 <= work < math.inf:
        raise PlanError(f"expected seconds of work for a sample, 0 or more, or None to measure it, got {work}")
    if len(dataset) == 0:
        raise PlanError(f"expected a dataset with samples, got an empty one: {dataset.plan.why_empty()}")
    check_ends(dataset.plan, "a simulation of its epoch")
    if len(dataset) < batch_size:
        raise PlanError(f"expected an epoch of at least one batch of {batch_size}, got {len(dataset)} samples")
    epoch = EpochReads(dataset, batch_size, cache_bytes, seed)
    loader = LoaderThreads(threads or (cores() if work is None else THREADS), adaptive=threads is None)
    run = _SimulationRun(epoch, batch_size, storage, step_seconds, loader)
    chosen = default_orders(len(dataset), batch_size, max(hosts)) if orders is None else orders
    figures: list[HostFigures] = []
    for order in chosen:
        works = (
            _measured_work(epoch, order, batch_size, hosts, loader.threads, seed)
            if work is None
            else [work] * len(hosts)
        )
        figures += [run.figures(order, many, each, seed) for many, each in zip(hosts, works, strict=True)]
    return HostSimulation(
        figures=tuple(figures),
        batch_size=batch_size,
        step_seconds=step_seconds,
        threads=loader.threads,
        nbytes=epoch.reads.total * BLOCK,
        epoch_bytes=epoch.reads.epoch_bytes,
        storage=storage,
    )


class _SimulationRun:
    """One dataset, storage and loader."""

    def __init__(
        self, epoch: EpochReads, batch: int, storage: StorageConstants, step: float, loader: LoaderThreads
    ) -> None:
        self._epoch = epoch
        self._batch, self._step = batch, step
        self._storage, self._loader = storage, loader
        self._sample_bytes = max(sum(_sample_bytes(epoch.dataset)), 1.0)

    def figures(self, order: Order, hosts: int, work: float, seed: int) -> HostFigures:
        """Return what so many hosts ask of the storage, with so many seconds of work for a sample."""
        loader = replace(self._loader, work=work * self._batch / hosts)
        samples = len(self._epoch.dataset)
        calls, most = self._epoch.sample(order, hosts, self._loader.unmeasured, np.random.default_rng([seed, hosts]))
        waits = np.array(
            [self._waiting(calls, hosts, loader, np.random.default_rng([seed, hosts, run])) for run in range(RUNS)]
        )
        seconds = max(samples / self._batch * self._step + float(waits.mean()), 1e-9)
        nbytes = sum(each.counts * float(np.mean([sizes.sum() for sizes, _ in each.requests])) for each in calls)
        counts = sum(each.counts * float(np.mean([len(sizes) for sizes, _ in each.requests])) for each in calls)
        fetched = min(nbytes, most)
        sizes: FloatArray = np.zeros(min(len(each.requests) for each in calls))
        for each in calls:
            sizes += [each.counts * float(own.sum()) for own, _ in each.requests[: len(sizes)]]
        return HostFigures(
            hosts=hosts,
            order=order,
            fetched=fetched,
            needed=samples / hosts * self._sample_bytes,
            reads=hosts * fetched / self._epoch.reads.epoch_bytes,
            requests=hosts * counts / seconds,
            bandwidth=hosts * fetched / seconds,
            waiting=float(waits.mean()) / seconds,
            work=work,
            error=float(np.std(sizes)) / max(float(np.mean(sizes)), 1e-9) / float(len(sizes)) ** 0.5,
            waiting_error=float(np.std(waits)) / seconds / RUNS**0.5,
        )

    def _waiting(
        self, calls: Sequence[SampledCall], hosts: int, loader: LoaderThreads, rng: np.random.Generator
    ) -> float:
        """Seconds of waiting in an epoch."""
        longest = max(len(sizes) for each in calls for sizes, _ in each.requests)
        most = MOST_REQUESTS // max(longest, 1) if self._storage.total is None else MOST_SHARING
        some = min(hosts, max(most, LEAST_HOSTS))
        simulated = [(each.call, _of_hosts(each.requests, some, rng)) for each in calls]
        waits = waiting(simulated, self._step, self._storage, loader, rng, hosts)
        return float(np.dot(waits, [each.waits for each in calls]))


def _measured_work(
    epoch: EpochReads, order: Order, batch: int, hosts: Sequence[int], threads: int, seed: int
) -> list[float]:
    """Seconds of work for a sample: measured for the fewest and the most hosts, and between them by the logarithm."""
    ordered = in_order(epoch.dataset, order, seed)
    ends = sorted({min(hosts), max(hosts)})
    works = [measure_work(ordered, batch, many, threads, seed) for many in ends]
    return np.interp(np.log(hosts), np.log(ends), works).tolist()


def _of_hosts(sampled: Sequence[Requests], hosts: int, rng: np.random.Generator) -> HostRequests:
    """Give each host the requests of one of the sampled hosts."""
    longest = max(1, *(len(nbytes) for nbytes, _ in sampled))
    nbytes, job = np.zeros((len(sampled), longest)), np.zeros((len(sampled), longest), np.int64)
    for i, (sizes, needs) in enumerate(sampled):
        nbytes[i, : len(sizes)], job[i, : len(sizes)] = sizes, needs
    chosen = np.arange(hosts) if hosts == len(sampled) else rng.integers(0, len(sampled), hosts)
    return HostRequests(nbytes[chosen], job[chosen])


def _sample_bytes(dataset: MapDataset) -> list[float]:
    """Bytes of a sample in each output: of its real rows, the mean of some samples."""
    positions = np.random.default_rng(0).integers(0, len(dataset), 256)
    selections = planned_samples(dataset).resolve(positions)
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
    best = result.recommended(hosts)
    plain = next((each for each in result.figures if each.hosts == hosts and each.order is None), None)
    name = counted(hosts, "host")
    if best.waiting <= ACCEPTED and best.order is None:
        return f"{name}: a full shuffle, which waits {best.waiting:.0%} of the time"
    lost = "" if plain is None else f", where a full shuffle waits {plain.waiting:.0%} of the time"
    if best.waiting <= ACCEPTED:
        return f"{name}: {order_name(best.order)}, which waits {best.waiting:.0%}{lost}"
    worked = best.work * result.batch_size / hosts / result.threads
    if worked > result.step_seconds:
        return (
            f"{name}: work on samples, such as decoding, takes {counted(result.threads, 'thread')} {worked:.2g} s for "
            f"a step of {result.step_seconds:g} s: {order_name(best.order)} waits least, {best.waiting:.0%}{lost}; use "
            "more threads or hosts, smaller samples, or store them decoded"
        )
    size = f"{result.epoch_bytes / 1e9:,.3g} GB"
    return (
        f"{name}: the storage is too slow for this step: {order_name(best.order)} waits least, {best.waiting:.0%}"
        f"{lost}; copy the {size} to the disks of the hosts, or use a faster storage or a larger step"
    )
