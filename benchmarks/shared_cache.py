"""Hosts that read the same remote data: each for itself, and with blocks that they give to each other.

    python benchmarks/shared_cache.py [--hosts 3] [--megabytes 64] [--latency 0.02] [--bandwidth 20]

Each host reads a whole shuffled epoch of the same column store, from an empty cache. All hosts share the bandwidth of
one server, which waits before each answer. The hosts are nodes of a Ray cluster on this machine, each with a cache of
its own, so what they give to each other costs CPU time of this machine and no network.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from remote import ask, serve, write

sys.path.append(str(Path(__file__).parents[1]))

from tests.ray_cluster import LocalCluster, local_cluster


def read_epoch(cache: Any, url: str, batches: int | None) -> int:
    """Read an epoch in a task on one node; return the sum of all bytes."""
    import penstock
    from penstock.locations.block_peers import USED_PEERS

    USED_PEERS.set(cache)
    total = 0
    with penstock.open(url) as data:
        for number, batch in enumerate(penstock.Loader(data.samples().shuffle(seed=0), batch_size=64)):
            total += sum(int(array.sum(dtype="u8")) for array in batch.flat.values())
            if number == batches:
                break
    return total


def counts(port: int) -> tuple[int, int]:
    """Bytes of objects that the server has sent, and their requests."""
    return int(ask(port, "/fetched")), int(ask(port, "/requests"))


def measure(tasks: list[Any], port: int, cache: Any, name: str) -> tuple[float, int, int, list[int]]:
    """Seconds until all hosts have read an epoch; bytes and requests at the server; what each host read."""
    import ray

    before = counts(port)
    begin = time.perf_counter()
    totals = ray.get([task.remote(cache, f"http://127.0.0.1:{port}/{name}", None) for task in tasks])
    seconds = time.perf_counter() - begin
    sent, requests = (after - earlier for after, earlier in zip(counts(port), before, strict=True))
    return seconds, sent, requests, totals


def compare(cluster: LocalCluster, hosts: int, port: int) -> None:
    """Measure both, and print the table."""
    import ray

    from penstock.load.ray_cache import SharedCache

    for _ in range(hosts - 1):
        cluster.add()
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    tasks = [
        ray.remote(read_epoch).options(scheduling_strategy=affinity(node["NodeID"], soft=False)) for node in ray.nodes()
    ]
    cache = SharedCache.start()
    ray.get([task.remote(cache, f"http://127.0.0.1:{port}/warm", 1) for task in tasks])  # processes start, kernels load
    alone = measure(tasks, port, None, "alone")
    shared = measure(tasks, port, cache, "shared")
    if len({*alone[3], *shared[3]}) != 1:
        raise RuntimeError(f"expected equal bytes on all hosts, got the sums {alone[3]} and {shared[3]}")
    print(f"{'':<22}{'each for itself':>18}{'shared':>12}{'ratio':>8}")
    units = (("seconds", 1), ("MB at the server", 1e6), ("requests", 1))
    for (unit, scale), one, other in zip(units, alone, shared, strict=False):
        print(f"{unit:<22}{one / scale:>18.1f}{other / scale:>12.1f}{one / other:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--bandwidth", type=float, default=20, help="MB/s of the server")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, chosen.megabytes)
        for link in ("warm", "alone", "shared"):
            (folder / link).symlink_to(folder / "columns")
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(
            target=serve, args=(name, chosen.latency, chosen.bandwidth * 1e6, theirs), daemon=True
        )
        server.start()
        port = ours.recv()
        print(
            f"{chosen.hosts} hosts, {chosen.megabytes} MB, {chosen.latency * 1000:.0f} ms before each answer, "
            f"{chosen.bandwidth:.0f} MB/s, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
        )
        try:
            with local_cluster(own_caches=True) as cluster:
                compare(cluster, chosen.hosts, port)
        finally:
            server.terminate()
            server.join()


if __name__ == "__main__":
    main()
