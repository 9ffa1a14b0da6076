"""The simulation against enumerated epochs: bytes, requests and times that can be computed otherwise."""

# pyright: basic

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.data.map_dataset import planned_samples
from penstock.errors import DataError, FormatError, PlanError
from penstock.loading import position_source
from penstock.loading.ranks import Ranks
from penstock.locations.blocks import BLOCK
from penstock_cluster.simulation import OBJECT_STORE, StorageConstants, epoch, measure_storage, simulate
from penstock_cluster.simulation.orders import GIVEN, Order, in_order, order_name
from penstock_cluster.simulation.queueing import CONNECTIONS, FetchCall, HostRequests, LoaderThreads, waiting
from penstock_cluster.simulation.reads import ReadMap
from penstock_cluster.simulation.simulate import CACHE
from penstock_cluster.simulation.work import measure_work

FAST = StorageConstants(latency=1e-6, spread=0, connection=1e12, host=1e12)


def stored(steps: int, row: int, episodes: int = 10) -> penstock.EpisodeDataset:
    lengths = [steps // episodes] * episodes
    return penstock.from_arrays({"x": np.zeros((steps, row), np.uint8)}, lengths, align={"x": "step"})


def enumerated(data: penstock.MapDataset, order: Order, hosts: int, batch: int, unit: int) -> float:
    """Units that a host reads in an epoch, the mean of all hosts, by looking at every sample."""
    ordered = in_order(data, order, 0)
    reads = ReadMap(data, 1 << 40)
    counts = []
    for host in range(hosts):
        positions = np.arange(len(data))
        place = positions % batch
        mine = positions[(place >= host * batch // hosts) & (place < (host + 1) * batch // hosts)]
        counts.append(len(np.unique(reads.blocks_of(ordered, mine) // unit)))
    return float(np.mean(counts))


def small_jobs(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Make jobs of so many bytes, and look twice as far ahead."""
    monkeypatch.setattr(position_source, "JOB_BYTES", nbytes)
    monkeypatch.setattr(epoch, "AHEAD_BYTES", 2 * nbytes)


@pytest.mark.parametrize("order", [None, (64, 4), (256, 2), (16, 1)], ids=order_name)
@pytest.mark.parametrize("hosts", [1, 16])
@pytest.mark.parametrize("phases", [16, 2])
def test_bytes_of_an_epoch_are_those_of_all_samples(
    order: Order, hosts: int, phases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = stored(20_000, 3000).windows(4)
    small_jobs(monkeypatch, 1 << 21)  # an epoch has many
    monkeypatch.setattr(epoch, "PHASES", phases)  # an epoch of more calls is estimated
    result = simulate(data, [hosts], batch_size=64, storage=FAST, orders=[order])
    unit = ReadMap(data, CACHE).unit
    wanted = enumerated(data, order, hosts, 64, unit) * unit * BLOCK
    fetched = result.figures[0].fetched
    assert 0.85 * wanted <= fetched <= 1.25 * wanted, "merged requests bring up to a quarter more"
    assert result.figures[0].reads == pytest.approx(hosts * fetched / result.nbytes)


def test_a_small_cache_fetches_again(monkeypatch: pytest.MonkeyPatch) -> None:
    small_jobs(monkeypatch, 1 << 19)  # a call is small next to the cache
    data = stored(40_000, 3000).windows(4)
    plenty, little = (
        simulate(data, [1], batch_size=64, storage=FAST, orders=[None], cache_bytes=size).figures[0]
        for size in (1 << 40, 20 << 20)
    )
    assert plenty.reads == pytest.approx(1, rel=0.1)
    touches = ReadMap(data, 20 << 20).touches(500, 1).sum() * len(data) * BLOCK
    part = 1 - (20 << 20) / (ReadMap(data, 0).total * BLOCK)
    assert little.fetched == pytest.approx(touches * part, rel=0.15)


def test_blocks_are_those_that_the_rows_are_in() -> None:
    data = stored(10_000, 1000).windows(3)
    reads = ReadMap(data, 0)
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(data), 50).tolist():
        start = int(planned_samples(data).resolve(np.array([position]))[0].start[0]) * 1000
        wanted = np.arange(start // BLOCK, (start + 2999) // BLOCK + 1)
        np.testing.assert_array_equal(reads.blocks(np.array([position])), wanted)


def test_ragged_columns_mixes_and_packs_are_simulated() -> None:
    words = penstock.Ragged(np.zeros(60_000, np.int32), np.arange(0, 60_001, 20))
    texts = penstock.from_arrays({"words": words}, [1] * 3000, align={"words": "episode"})
    packed = texts.sequences().pack(64)
    mixed = penstock.mix([stored(9000, 100).windows(2), stored(3000, 100).windows(2)], [3, 1], union=True)
    for data in (packed, mixed):
        result = simulate(data, [1, 4], batch_size=16, storage=FAST, orders=[None, (16, 4), GIVEN])
        assert all(0 < each.fetched <= result.nbytes for each in result.figures)
        assert all(each.waiting < 0.01 for each in result.figures)
        assert len(result.advice()) == 2


def steady(calls: int, jobs: int, requests: HostRequests) -> list[tuple[FetchCall, HostRequests]]:
    """Calls of some jobs of one batch each, asked for when the first of them is taken."""
    return [(FetchCall(number * jobs, (1,) * jobs), requests) for number in range(calls)]


def test_waiting_follows_from_bandwidth_latency_and_requests() -> None:
    hosts, many, jobs = 3, 64, 4
    one = HostRequests(np.full((hosts, many), 1e6), np.tile(np.repeat(np.arange(jobs), many // jobs), (hosts, 1)))
    slow = [
        StorageConstants(latency=0, spread=0, connection=1e12, host=1e6),
        StorageConstants(latency=CONNECTIONS, spread=0, connection=1e12, host=1e12),
        StorageConstants(latency=0, spread=0, connection=1e12, host=1e12, requests=3),
        StorageConstants(latency=0, spread=0, connection=1e12, host=1e12, total=3e6),
        StorageConstants(latency=0, spread=0, connection=1e6 / CONNECTIONS, host=1e12),
        StorageConstants(latency=0, spread=0, connection=1e12, host=1e12, overhead=1),
    ]
    loader, rng = LoaderThreads(jobs, adaptive=False), np.random.default_rng(0)
    for storage in slow:  # each allows a host one request a second, and a batch needs 16
        waits = waiting(steady(6, jobs, one), 1.0, storage, loader, rng)
        assert waits[2:].mean() / jobs == pytest.approx(many / jobs - 1, rel=0.1)
    assert waiting(steady(4, jobs, one), 1.0, FAST, loader, rng).max() < 1e-3


def test_all_batches_of_a_job_wait_for_its_last_byte() -> None:
    storage = StorageConstants(latency=0, spread=0, connection=1e12, host=1e6)
    first = HostRequests(np.full((1, 1), 1e6), np.zeros((1, 1), np.int64))
    later = HostRequests(np.full((1, 10), 1e6), np.zeros((1, 10), np.int64))
    calls = [(FetchCall(0, (1,)), first), (FetchCall(1, (5,)), later), (FetchCall(2, (5,)), later)]
    waits = waiting(calls, 1.0, storage, LoaderThreads(2, adaptive=False), np.random.default_rng(0))
    # The bytes are there after 1, 11 and 21 s. The second job's first batch is wanted at 2 s, the third's at 16 s.
    assert waits.tolist() == pytest.approx([0, 9, 5])


def test_jobs_ahead_are_bounded_and_adapt() -> None:
    storage = StorageConstants(latency=10, spread=0, connection=1e12, host=1e12)
    one = HostRequests(np.full((1, 1), 1.0), np.zeros((1, 1), np.int64))
    rng = np.random.default_rng(0)
    bounded, adaptive = (
        waiting(steady(9, 1, one), 1.0, storage, LoaderThreads(2, adaptive=adapts), rng) for adapts in (False, True)
    )
    # Two threads take two jobs every 10 s, and both batches take 1 s. An adaptive loader takes the second one at
    # once too, because the consumer waits for the first.
    assert bounded.tolist() == pytest.approx([0, 0, 8, 0, 8, 0, 8, 0, 8], abs=2)
    assert adaptive.tolist() == pytest.approx(bounded.tolist(), abs=2)


def test_stragglers_count_more_with_more_hosts() -> None:
    storage = StorageConstants(latency=0.01, spread=0, connection=1e9, host=1e9, stragglers=0.01, straggle=200)
    waits = []
    for hosts in (1, 100):
        one = HostRequests(np.full((hosts, 8), 1e3), np.tile(np.arange(8), (hosts, 1)))
        calls = steady(20, 8, one)
        waits.append(waiting(calls, 0.1, storage, LoaderThreads(2, adaptive=False), np.random.default_rng(0)).sum())
    assert waits[1] > 4 * waits[0]


def test_equal_seeds_give_equal_figures() -> None:
    data = stored(20_000, 300).windows(4)
    options = {"batch_size": 64, "storage": OBJECT_STORE, "orders": [None, (64, 4)]}
    assert simulate(data, [1, 8], seed=3, **options) == simulate(data, [1, 8], seed=3, **options)


def test_wrong_numbers_are_refused() -> None:
    data = stored(1000, 10).windows(4)
    for hosts, batch in (([], 8), ([0], 8), ([9], 8), ([1], 2000)):
        with pytest.raises(PlanError, match="expected"):
            simulate(data, hosts, batch_size=batch, storage=FAST)
    with pytest.raises(PlanError, match="step"):
        simulate(data, [1], batch_size=8, storage=FAST, step_seconds=-1)
    with pytest.raises(PlanError, match="speeds"):
        replace(FAST, host=0)
    with pytest.raises(PlanError, match="finite"):
        replace(FAST, latency=float("nan"))
    with pytest.raises(PlanError, match="thread"):
        simulate(data, [1], batch_size=8, storage=FAST, threads=0)
    with pytest.raises(PlanError, match="stragglers"):
        replace(FAST, stragglers=2)


def test_constants_are_kept_in_files(tmp_path: Path) -> None:
    OBJECT_STORE.write(tmp_path / "storage.json")
    assert StorageConstants.read(tmp_path / "storage.json") == OBJECT_STORE
    for text in (b"", b"[]", b'{"penstock_storage": 1}', b'{"penstock_storage": 2}', b'{"latency": 1}'):
        with pytest.raises(FormatError, match="expected storage constants"):
            StorageConstants.decode(text)


def test_a_folder_is_measured(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(3 << 20))
    measured = measure_storage(tmp_path, reads=16)
    assert min(measured.latency, measured.connection, measured.host) > 0
    assert 0 <= measured.stragglers <= 1
    assert (measured.requests, measured.total) == (None, None), "one host does not know the limits of all"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="expected files of at least"):
        measure_storage(tmp_path / "empty")


def test_waiting_has_the_work_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    small_jobs(monkeypatch, 1 << 21)  # an epoch has many
    data = stored(20_000, 3000).windows(4)
    options = {"batch_size": 64, "storage": FAST, "orders": [None], "threads": 2, "step_seconds": 0.1}
    for hosts, seconds in ((1, 0.005), (1, 0.002), (4, 0.02)):  # two threads work 0.16, 0.064 and 0.16 s for a step
        result = simulate(data, [hosts], work=seconds, **options)
        busy = 64 / hosts * seconds / 2
        assert result.figures[0].work == seconds
        assert result.figures[0].waiting == pytest.approx(max(1 - 0.1 / busy, 0), abs=0.06)
        assert ("takes 2 threads" in result.advice()[0]) == (busy > 0.1)
    with pytest.raises(PlanError, match="seconds of work"):
        simulate(data, [1], work=-1, **options)


def test_the_order_that_mixes_best_without_waiting_long_is_recommended() -> None:
    result = simulate(stored(20_000, 300).windows(4), [1], batch_size=64, storage=FAST, orders=[None])
    model = result.figures[0]
    orders: list[Order] = [None, (64, 16), (256, 4), GIVEN]
    for waits, best in (
        ([0.05, 0.0, 0.0, 0.0], None),
        ([0.3, 0.09, 0.0, 0.0], (64, 16)),
        ([0.3, 0.2, 0.1, 0.0], (256, 4)),
        ([0.3, 0.2, 0.2, 0.0], GIVEN),
        ([0.5, 0.4, 0.3, 0.35], (256, 4)),
    ):
        figures = tuple(replace(model, order=order, waiting=part) for order, part in zip(orders, waits, strict=True))
        chosen = replace(result, figures=figures)
        assert chosen.recommended(1).order == best
        assert ("too slow" in chosen.advice()[0]) == (min(waits) > 0.1)
        assert best is None or order_name(best) in chosen.advice()[0]


def test_work_is_measured_for_each_order_and_for_the_fewest_and_most_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, int, int]] = []

    def fake(ordered: penstock.MapDataset, batch_size: int, hosts: int, threads: int, seed: int = 0) -> float:
        measured.append((planned_samples(ordered).chain[-1], batch_size, hosts))
        return 0.001 * hosts

    monkeypatch.setattr(importlib.import_module("penstock_cluster.simulation.simulate"), "measure_work", fake)
    data = stored(20_000, 300).windows(4)
    result = simulate(data, [1, 4, 16], batch_size=64, storage=FAST, orders=[None, (64, 4)], work=None)
    assert [each.work for each in result.of((64, 4))] == pytest.approx([0.001, 0.0085, 0.016])
    chains = [planned_samples(in_order(data, order, 0)).chain[-1] for order in (None, (64, 4))]
    assert measured == [(chain, 64, hosts) for chain in chains for hosts in (1, 16)]


def test_measured_jobs_are_those_of_a_loader() -> None:
    seen: list[np.ndarray] = []

    def noted(columns: dict[str, np.ndarray], keys: np.ndarray) -> dict[str, np.ndarray]:
        seen.append(keys)
        return columns

    data = stored(20_000, 3000).windows(4).map(noted, seed=0)
    assert measure_work(data, 64, hosts=2, threads=3) > 0
    job = position_source.PositionSource(planned_samples(data), 64, ranks=Ranks(0, 2)).samples_that_fit() // 2
    assert {len(keys) for keys in seen} == {job}, "the samples of one of two hosts in a whole job"
    assert len(seen) % 3 == 0, "each of three threads has a job"


def test_local_files_say_how_large_values_are_stored(tmp_path: Path) -> None:
    steps = 4000
    data = penstock.from_arrays({"x": np.zeros((steps, 3000), np.uint8)}, [400] * 10, align={"x": "step"})
    penstock.convert(data, tmp_path / "plain")
    penstock.convert(data, tmp_path / "packed", format="zarr")
    plain, packed = (ReadMap(penstock.open(tmp_path / name).windows(4), CACHE) for name in ("plain", "packed"))
    assert plain.total == pytest.approx(steps * 3000 / BLOCK, abs=2)
    assert packed.total <= 2, "zeros that are compressed to some kB"
    joined = penstock.open([tmp_path / "plain", tmp_path / "plain"])
    assert ReadMap(joined.windows(4), CACHE).total == pytest.approx(2 * plain.total, abs=2)
