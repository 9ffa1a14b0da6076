"""What a loader costs: batches of tiny records and of windows, ranks, skipped ranges, resume and tickets.

Claims: on one thread, shuffled batches of tiny records come at least twice as fast as from PyTorch's DataLoader with
its best setting (one fetch a batch), and ten times as fast as with its usual one; a rank of eight reads its own rows
at the same rate; a thousand skipped ranges cost nothing that shows; resuming at any of 10^9 samples takes below
100 ms at the 99th percentile, with a state below 1 kB; asking for what is behind a ticket some milliseconds.

What two threads make of a mapped function of Python alone stands without a claim: it depends on the GIL. `--python`
measures nothing else, and needs no PyTorch, so that it runs on a free-threaded Python.

    python benchmarks/loader.py [--seconds 2] [--records 10000000] [--python]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import figures
import numpy as np
from lengths_only import LengthsOnly

import penstock

BATCH = 256


def rate(batches: Iterable[Any], rows: Callable[[Any], int], seconds: float) -> float:
    """Samples a second, for about `seconds`, after a few batches that are not counted."""
    iterator = iter(batches)
    for _ in islice(iterator, 20):
        pass
    begin, taken = time.perf_counter(), 0
    for batch in iterator:
        taken += rows(batch)
        if time.perf_counter() - begin > seconds:
            break
    return taken / (time.perf_counter() - begin)


def line(what: str, value: str, note: str = "") -> None:
    print(f"{what:<58}{value:>18}  {note}", flush=True)


def records(n: int) -> penstock.MapDataset:
    columns = {"x": np.arange(n, dtype="i4"), "y": np.arange(n, dtype="i4")}
    return penstock.from_arrays(columns, lengths=[1000] * (n // 1000)).steps().shuffle(seed=0)


def windows(steps: int) -> penstock.MapDataset:
    """16 steps of 64, 8 and 4 bytes."""
    columns = {
        "observations": np.ones((steps, 16), "f4"),
        "actions": np.ones((steps, 2), "f4"),
        "rewards": np.ones(steps, "f4"),
    }
    return penstock.from_arrays(columns, lengths=[1000] * (steps // 1000)).windows(16).shuffle(seed=0)


def throughput(seconds: float, steps: int) -> None:
    tiny, wide = records(steps), windows(steps)
    for name, data in (("tiny records, shuffled", tiny), ("windows of 16 x 3 columns, shuffled", wide)):
        for threads in (0, 1, None):
            loader = data.loader(BATCH, threads=threads)
            reached = rate(loader, lambda b: b.n, seconds)
            figures.record(f"{name.split()[0]}.{'auto' if threads is None else threads}", reached, "/s")
            line(f"{name}, threads={threads}", f"{reached:,.0f}/s")
    rank = tiny.loader(8 * BATCH, rank=3, world=8, threads=0)
    line("tiny records, one rank of eight, its own rows", f"{rate(rank, lambda b: b.n, seconds):,.0f}/s")
    skipping = tiny.loader(BATCH, threads=0)
    for i in range(1000):
        skipping.skip((i * (steps // 1100) + 1, i * (steps // 1100) + 1 + steps // 33_000))
    line("tiny records, with 1 000 ranges skipped", f"{rate(skipping, lambda b: b.n, seconds):,.0f}/s")
    print(wide.loader(BATCH).why(batches=500))
    peer(seconds)


def digits(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Add up the digits of numbers, by a loop of Python."""
    sums: list[int] = []
    for number in columns["x"].tolist():
        rest, added = number, 0
        while rest:
            added += rest % 10
            rest //= 10
        sums.append(added)
    return {"digits": np.array(sums)}


def python_functions(seconds: float, steps: int, rounds: int = 7) -> None:
    """How many more samples two threads make than one, in turns, and what a sample costs in CPU time."""
    data = records(steps).map(digits)
    gains: list[float] = []
    costs: list[float] = []
    for _ in range(rounds):
        reached: list[float] = []
        spent: list[float] = []
        for threads in (1, 2):
            begin = time.process_time()
            loader = data.loader(BATCH, threads=threads)
            reached.append(rate(loader, lambda batch: batch.n, seconds))
            spent.append((time.process_time() - begin) / loader.stats.samples)
        gains.append(reached[1] / reached[0])
        costs.append(spent[1] / spent[0])
    gil = "with" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without"
    note = f"from {min(gains):.2f} to {max(gains):.2f}; CPU time of a sample {statistics.median(costs):.2f} x"
    line(f"a mapped function of Python {gil} a GIL, 2 threads over 1", f"{statistics.median(gains):.2f} x", note)


def peer(seconds: float) -> None:
    """The same records from PyTorch's DataLoader."""
    import torch  # here: `--python` does without

    class Records:
        def __init__(self, n: int) -> None:
            self.x, self.y = torch.arange(n, dtype=torch.int32), torch.arange(n, dtype=torch.int32)

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
            return {"x": self.x[i], "y": self.y[i]}

    class Batches(Records):
        def __getitems__(self, numbers: list[int]) -> dict[str, torch.Tensor]:
            chosen = torch.tensor(numbers)
            return {"x": self.x[chosen], "y": self.y[chosen]}

    def as_it_is(batch: Any) -> Any:
        return batch

    one: Any = torch.utils.data.DataLoader(Records(1_000_000), BATCH, shuffle=True)
    many: Any = torch.utils.data.DataLoader(Batches(1_000_000), BATCH, shuffle=True, collate_fn=as_it_is)
    line("PyTorch DataLoader, tiny records", f"{rate(one, lambda b: len(b['x']), seconds):,.0f}/s")
    line("PyTorch DataLoader, one fetch a batch", f"{rate(many, lambda b: len(b['x']), seconds):,.0f}/s")


def resume() -> None:
    """10^9 samples in 10^6 episodes: seek, and the first batch."""
    data = (
        penstock.EpisodeDataset(Flat({"x": penstock.Field(np.dtype("i1"))}, np.arange(0, 10**9 + 1, 1000)))
        .steps()
        .shuffle(seed=0)
    )
    state = data.loader(BATCH).state_dict()
    times: list[float] = []
    loader = data.loader(BATCH, threads=0)
    for k in np.random.default_rng(0).integers(0, 10**10, 200).tolist():
        begin = time.perf_counter()
        loader = data.loader(BATCH, threads=0)
        loader.load_state_dict({**state, "position": k})
        next(iter(loader))
        times.append(time.perf_counter() - begin)
    figures.record("resume", float(np.quantile(times, 0.99)), "s")
    figures.record("state", len(json.dumps(loader.state_dict())), "B")
    line("resume at one of 10^9 samples and the first batch, p99", f"{np.quantile(times, 0.99) * 1e3:.2f} ms")
    line("state", f"{len(json.dumps(loader.state_dict()))} bytes")
    for i in range(36):
        loader.skip((10**9 + i * 5000, 10**9 + i * 5000 + 256))
    figures.record("state.skipped", len(json.dumps(loader.state_dict())), "B")
    line("state with 36 ranges skipped", f"{len(json.dumps(loader.state_dict()))} bytes")
    tickets = [batch.ticket for batch in islice(loader, 50)]
    begin = time.perf_counter()
    for ticket in tickets:
        loader.why(ticket)
    seconds = (time.perf_counter() - begin) / len(tickets)
    figures.record("why", seconds, "s")
    line("why, a ticket of 256 samples", f"{seconds * 1e3:.2f} ms")


class Flat(LengthsOnly):
    """Episodes whose values are all one: what is measured is the way to them."""

    def read_array(self, column: str, selection: penstock.transforms.Selection, out: np.ndarray[Any, Any]) -> None:
        out[...] = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--python", action="store_true", help="only what threads make of a function of Python")
    options = parser.parse_args()
    python_functions(options.seconds, options.records)
    if options.python:
        return
    throughput(options.seconds, options.records)
    resume()


if __name__ == "__main__":
    main()
