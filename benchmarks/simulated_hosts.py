"""What 1 to 4,096 hosts ask of a storage: the table and the picture of the page of distributed training.

    python benchmarks/simulated_hosts.py [--picture docs/pictures/simulation.svg]

Datasets of a terabyte are simulated from tables of lengths alone. The picture has the curves of the first dataset.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from figures import record
from lengths_only import LengthsOnly

import penstock
from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock_cluster.simulation import OBJECT_STORE, HostSimulation, simulate
from penstock_cluster.simulation.drawing import draw_simulation
from penstock_cluster.simulation.orders import order_name

HOSTS = [1, 4, 16, 64, 256, 1024, 4096]
BATCH = 4096


def episodes(count: int, mean: int, **fields: Field) -> EpisodeDataset:
    """Episodes of half to one and a half times a mean length."""
    lengths = np.random.default_rng(0).integers(mean // 2, mean * 3 // 2, count)
    return EpisodeDataset(LengthsOnly(fields, np.concatenate([[0], np.cumsum(lengths)])))


def states(count: int) -> penstock.MapDataset:
    """Windows of 32 states of 128 bytes."""
    return episodes(count, 1000, state=Field(np.dtype("float32"), (32,))).windows(32)


def pictures() -> penstock.MapDataset:
    """Windows of 4 pictures of 28 kB."""
    return episodes(50_000, 1000, picture=Field(np.dtype("uint8"), (96, 96, 3))).windows(4)


def packs() -> penstock.MapDataset:
    """Packs of 4,096 tokens."""
    return episodes(10_000_000, 1000, tokens=Field(np.dtype("uint16"))).sequences().pack(4096)


CASES: dict[str, tuple[str, Callable[[], penstock.MapDataset]]] = {
    "states": ("windows of 32 states, 128 GB", lambda: states(1_000_000)),
    "pictures": ("windows of 4 pictures, 1.4 TB", pictures),
    "packs": ("packs of 4,096 tokens, 20 GB", packs),
    "mix": (
        "a mix of states, 128 GB and 13 GB, 3 to 1",
        lambda: penstock.mix([states(1_000_000), states(100_000)], [3, 1]),
    ),
}


def show(name: str, title: str, result: HostSimulation) -> None:
    """Print the table of one case, with a column for each number of hosts, and record its figures."""
    print(f"\n{title:<28}" + "".join(f"{hosts:>9,}" for hosts in HOSTS) + "  hosts")
    for order in result.orders:
        print(f"{order_name(order):<28}" + "".join(f"{each.waiting:>9.0%}" for each in result.of(order)) + "  waiting")
        print(f"{'':<28}" + "".join(f"{each.reads:>9.3g}" for each in result.of(order)) + "  times the data")
        print(f"{'':<28}" + "".join(f"{each.requests:>9,.0f}" for each in result.of(order)) + "  requests a second")
        for each in result.of(order):
            shuffle = "full" if order is None else f"{order[0]}_{order[1]}"
            record(f"{name}.{shuffle}.{each.hosts}", f"{100 * each.waiting:.0f} %", "text")
    print("\n".join(result.advice()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=Path, help="draw the curves of the first dataset to this file")
    picture = parser.parse_args().picture
    for number, (name, (title, make)) in enumerate(CASES.items()):
        result = simulate(make(), HOSTS, batch_size=BATCH, storage=OBJECT_STORE, step_seconds=0.5)
        show(name, title, result)
        if number == 0 and picture is not None:
            draw_simulation(result, picture)


if __name__ == "__main__":
    main()
