"""Draw the picture of the page of distributed training: `python docs/pictures/simulation.py`.

Datasets of a terabyte are simulated from tables of lengths alone. `figures` prints the tables of the page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import penstock
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.formats.base.source import Source
from penstock.simulation import OBJECT_STORE, HostSimulation, simulate
from penstock.simulation.drawing import draw_simulation
from penstock.simulation.orders import order_name

HOSTS = [1, 4, 16, 64, 256, 1024, 4096]
BATCH = 4096


class Lengths(Source):
    """A dataset of which only the lengths are known."""

    def __init__(self, fields: dict[str, Field], offsets: IntArray) -> None:
        self._spec, self._offsets = Spec(fields), offsets

    @property
    def spec(self) -> Spec:
        """The columns."""
        return self._spec

    @property
    def offsets(self) -> IntArray:
        """First step of each episode."""
        return self._offsets

    @property
    def fingerprint(self) -> str:
        """Of the lengths."""
        return f"lengths {len(self._offsets)} {self._offsets[-1]}"

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """There are no values."""
        raise NotImplementedError(f"{column} has no values: {selection.shape} {out.shape}")


def episodes(count: int, mean: int, **fields: Field) -> EpisodeDataset:
    """Episodes of half to one and a half times a mean length."""
    lengths = np.random.default_rng(0).integers(mean // 2, mean * 3 // 2, count)
    return EpisodeDataset(Lengths(fields, np.concatenate([[0], np.cumsum(lengths)])))


def states(count: int) -> penstock.MapDataset:
    """Windows of 32 states of 128 bytes."""
    return episodes(count, 1000, state=Field(np.dtype("float32"), (32,))).windows(32)


def pictures() -> penstock.MapDataset:
    """Windows of 4 pictures of 28 kB."""
    return episodes(50_000, 1000, picture=Field(np.dtype("uint8"), (96, 96, 3))).windows(4)


def packs() -> penstock.MapDataset:
    """Packs of 4,096 tokens."""
    return episodes(10_000_000, 1000, tokens=Field(np.dtype("uint16"))).sequences().pack(4096)


CASES: dict[str, Callable[[], penstock.MapDataset]] = {
    "windows of 32 states, 128 GB": lambda: states(1_000_000),
    "windows of 4 pictures, 1.4 TB": pictures,
    "packs of 4,096 tokens, 20 GB": packs,
    "a mix of states, 128 GB and 13 GB, 3 to 1": lambda: penstock.mix([states(1_000_000), states(100_000)], [3, 1]),
}


def figures(name: str, result: HostSimulation) -> None:
    """Print the table of one case, with a column for each number of hosts."""
    print(f"\n{name:<28}" + "".join(f"{hosts:>9,}" for hosts in HOSTS) + "  hosts")
    for order in result.orders:
        print(f"{order_name(order):<28}" + "".join(f"{each.waiting:>9.0%}" for each in result.of(order)) + "  waiting")
        print(f"{'':<28}" + "".join(f"{each.reads:>9.3g}" for each in result.of(order)) + "  times the data")
        print(f"{'':<28}" + "".join(f"{each.requests:>9,.0f}" for each in result.of(order)) + "  requests a second")
    print("\n".join(result.advice()))


def main() -> None:
    """Simulate all cases, print their tables, and draw the first one."""
    for number, (name, make) in enumerate(CASES.items()):
        result = simulate(make(), HOSTS, batch_size=BATCH, storage=OBJECT_STORE, step_seconds=0.5)
        figures(name, result)
        if number == 0:
            draw_simulation(result, Path(__file__).with_name("simulation.svg"))


if __name__ == "__main__":
    main()
