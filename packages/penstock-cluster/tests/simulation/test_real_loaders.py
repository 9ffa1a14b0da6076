"""The simulation against loaders that read behind a URL: bytes and requests that a server counts."""

# pyright: basic

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.loading import position_source
from penstock.locations import fetching
from penstock.locations import mirror as mirrors
from penstock_cluster.simulation import StorageConstants, epoch, reads, simulate
from penstock_cluster.simulation.orders import GIVEN, Order, in_order, order_name
from tests.locations.clock import without_waiting
from tests.locations.server import Site, serving

FAST = StorageConstants(latency=1e-6, spread=0, connection=1e12, host=1e12)
BATCH = 64


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A long and a short column store."""
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(0)
    for name, steps in (("long", 12_000), ("short", 1_000)):
        rows = rng.integers(0, 256, (steps, 6000), np.uint8)
        data = penstock.from_arrays({"x": rows}, [200] * (steps // 200), align={"x": "step"})
        penstock.convert(data, folder / name)
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with serving(files) as site:
        yield site


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    without_waiting(monkeypatch)


def mixed(url: str) -> penstock.MapDataset:
    """A mix that ends when its short dataset is used up, after a quarter of the long one."""
    return penstock.mix([penstock.open(f"{url}/{name}").windows(2) for name in ("long", "short")], [3, 1])


def chosen(url: str) -> penstock.MapDataset:
    """Every third episode."""
    return penstock.open(f"{url}/long")[:60:3].windows(2)


def wait_for_requests() -> None:
    """Wait until no request ahead is under way: requests for the gaps of regions are not waited for by a read."""
    barrier = threading.Barrier(fetching.THREADS)
    for waiting in [fetching.pool(ahead=True).submit(barrier.wait, 60) for _ in range(fetching.THREADS)]:
        waiting.result()


@pytest.mark.parametrize("samples", [mixed, chosen])
@pytest.mark.parametrize("order", [None, (256, 2), GIVEN], ids=order_name)
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("estimated", [False, True])
def test_bytes_and_requests_are_those_of_a_loader(
    samples: Callable[[str], penstock.MapDataset],
    order: Order,
    world: int,
    estimated: bool,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = samples(site.url)
    if estimated:  # an epoch has many calls, and few of them are looked at
        monkeypatch.setattr(position_source, "JOB_BYTES", 1 << 19)
        monkeypatch.setattr(position_source, "AHEAD_BYTES", 1 << 20)
        monkeypatch.setattr(epoch, "AHEAD_BYTES", 1 << 20)
        monkeypatch.setattr(epoch, "PHASES", 8)
        monkeypatch.setattr(reads, "COUNTED_SAMPLES", 1 << 10)
        monkeypatch.setattr(reads, "STRETCH_SAMPLES", 1 << 8)
    result = simulate(data, [world], batch_size=BATCH, storage=FAST, orders=[order], threads=1, step_seconds=1)
    nbytes = requests = loaded = 0
    for rank in range(world):
        mirrors.MIRRORS.cache().evict(0)
        site.seen.clear()
        loader = in_order(data, order, 0).loader(BATCH, threads=0, rank=rank, world=world)
        loaded += sum(batch.n for batch in loader)
        wait_for_requests()
        nbytes += sum(request.end + 1 - request.begin for request in site.gets())
        requests += len(site.gets())
    assert loaded == len(data)
    told = result.figures[0]
    seconds = len(data) / BATCH / (1 - told.waiting)
    told_requests = told.requests * seconds
    if estimated:
        assert world * told.fetched == pytest.approx(nbytes, rel=0.15)
        assert told.reads == pytest.approx(nbytes / result.epoch_bytes, rel=0.15)
    else:  # the order is the same, and so is each request; the last block of a file is shorter
        assert told_requests == pytest.approx(requests, abs=0.01)
        assert world * told.fetched == pytest.approx(nbytes, rel=0.01)


def test_an_epoch_reads_the_part_of_a_mix_before_its_end(site: Site) -> None:
    data = mixed(site.url)
    result = simulate(data, [1], batch_size=BATCH, storage=FAST, orders=[GIVEN], step_seconds=1)
    sizes = [len(penstock.open(f"{site.url}/{name}").windows(2)) * 6000 for name in ("long", "short")]
    assert len(data) * 6000 == pytest.approx(4 * sizes[1], rel=0.01)
    assert result.nbytes == pytest.approx(sum(sizes), rel=0.02)
    assert result.epoch_bytes == pytest.approx(4 * sizes[1], rel=0.05)
    assert result.figures[0].reads == pytest.approx(1, rel=0.05)
