"""Packing streams of sequences whose lengths are not known: speed, waste and size of the state, against Grain.

Claim: ten times the sequences a second of Grain's packers, and never more packs with as many open; with 1 024 open
packs 0.2 to 0.5 % above the lower bound for a million sequences (with fewer, what is open at the end counts for more);
a state of some kB that holds no values. Grain's tree functions are slower where JAX is not installed beside it.

    python benchmarks/stream_packing.py --peer /path/to/python/with/grain

Inputs: a, log-normal lengths into 2 048 places; b, uniform 10 to 1 000 into 1 024; c, a Pareto tail into 8 192. Tokens
are int32. Rows come out with segment ids and positions. Every contender reads the same arrays, in rounds by turns; the
table has medians. Excess is packs above the lower bound of Martello and Toth ("Knapsack problems", 1990, L2).
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np

CAPACITY = {"a": 2048, "b": 1024, "c": 8192}
BINS = (64, 1024)


def lengths_of(case: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if case == "a":
        drawn = rng.lognormal(5.5, 1.0, n)
    elif case == "b":
        drawn = rng.integers(10, 1001, n)
    else:
        drawn = 100 * (1 + rng.pareto(1.4, n))
    return np.clip(drawn, 1, CAPACITY[case]).astype(np.int64)


def lower_bound(lengths: np.ndarray, capacity: int) -> int:
    """Martello and Toth's L2, over all thresholds."""
    count = np.bincount(lengths, minlength=capacity + 1)
    total = count * np.arange(capacity + 1)
    above, weight = count[::-1].cumsum()[::-1], total[::-1].cumsum()[::-1]
    best = -(-int(lengths.sum()) // capacity)
    half = capacity // 2 + 1
    for k in range(1, half):
        big = above[capacity - k + 1] if k else 0
        middle = above[half] - big
        room = middle * capacity - (weight[half] - weight[capacity - k + 1])
        small = weight[k] - weight[half]
        best = max(best, int(big + middle + max(0, -(-(small - room) // capacity))))
    return best


def penstock_run(values: Any, offsets: Any, capacity: int, bins: int) -> dict[str, float]:
    import penstock
    from penstock.core.blocks import BlockIterator
    from penstock.core.columns import Columns
    from penstock.data.iter_dataset import IterDataset

    class Walk(BlockIterator):
        def __init__(self) -> None:
            self.at = 0

        def __next__(self) -> Columns:
            if self.at + 1 >= len(offsets):
                raise StopIteration
            cut = offsets[self.at : self.at + 4097]
            self.at += len(cut) - 1
            return Columns({"tokens": penstock.columns.Ragged(values[cut[0] : cut[-1]], cut - cut[0])})

        def state_dict(self) -> dict[str, Any]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.at = state["at"]

    class Stream:
        fingerprint = "benchmark"

        def __call__(self) -> BlockIterator:
            return Walk()

    packed = IterDataset(Stream()).pack(capacity, open_bins=bins)
    next(iter(packed))  # kernels are compiled, or loaded
    iterator, packs, state, took = iter(packed), 0, "", 0.0
    start = time.perf_counter()
    for block in iterator:
        packs += len(block["tokens"])
        if packs % 512 == 0:
            before = time.perf_counter()
            state = max(state, json.dumps(iterator.state_dict()), key=len)
            took += time.perf_counter() - before
    seconds = time.perf_counter() - start - took
    return {"seconds": seconds, "packs": packs, "state_bytes": len(state)}


def grain_run(values: Any, offsets: Any, capacity: int, bins: int, packer: str) -> dict[str, float]:
    grain = importlib.import_module("grain")

    class Source:
        def __len__(self) -> int:
            return len(offsets) - 1

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"tokens": values[offsets[i] : offsets[i + 1]]}

        def __repr__(self) -> str:
            return "Source()"

    cls = getattr(grain.experimental, packer)
    parent = grain.MapDataset.source(Source()).to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    iterator = iter(cls(parent, length_struct={"tokens": capacity}, num_packing_bins=bins))
    packs, state, start = 0, b"", time.perf_counter()
    for row in iterator:
        assert set(row) == {"tokens", "tokens_segment_ids", "tokens_positions"}
        packs += 1
    seconds = time.perf_counter() - start
    state = json.dumps(iterator.get_state(), default=str)
    return {"seconds": seconds, "packs": packs, "state_bytes": len(state)}


def as_peer(folder: Path, case: str) -> None:
    values, offsets = np.load(folder / "values.npy"), np.load(folder / "offsets.npy")
    for packer in ("FirstFitPackIterDataset", "BestFitPackIterDataset"):
        for bins in BINS:
            print(json.dumps([f"grain {packer[:8]}", bins, grain_run(values, offsets, CAPACITY[case], bins, packer)]))


def ask_peer(python: str, folder: Path, case: str) -> list[Any]:
    command = [python, __file__, "--as-peer", str(folder), "--case", case]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def report(case: str, n: int, rounds: int, peer: str | None) -> None:
    lengths = lengths_of(case, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.random.default_rng(1).integers(1, 50_000, offsets[-1], dtype=np.int32)
    bound, found = lower_bound(lengths, CAPACITY[case]), dict[tuple[str, int], list[dict[str, float]]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "values.npy", values)
        np.save(folder / "offsets.npy", offsets)
        for _ in range(rounds):
            runs: list[Any] = [["penstock", bins, penstock_run(values, offsets, CAPACITY[case], bins)] for bins in BINS]
            for who, bins, run in runs + (ask_peer(peer, folder, case) if peer else []):
                found.setdefault((who, bins), []).append(run)
    ours: dict[int, float] = {}
    for (who, bins), runs in found.items():
        seconds, last = statistics.median(run["seconds"] for run in runs), runs[-1]
        ours.setdefault(bins, seconds)
        short = f"{who.split()[-1].lower()}.{case}.{bins}"
        figures.record(short, n / seconds, "/s")
        figures.record(f"{short}.above", 100 * (last["packs"] / bound - 1), "%")
        figures.record(f"{short}.state", last["state_bytes"], "B")
        figures.record(f"{short}.ratio", seconds / ours[bins], "x")
        print(
            f"{case}  {who:16} {bins:5} open {n / seconds / 1e3:8.1f} k sequences/s {offsets[-1] / seconds / 1e6:8.1f} "
            f"M tokens/s  efficiency {offsets[-1] / last['packs'] / CAPACITY[case]:.4f}  "
            f"excess {100 * (last['packs'] / bound - 1):6.3f} %  state {last['state_bytes']:6} bytes"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python with grain")
    parser.add_argument("--sequences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--as-peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=list(CAPACITY), help="one input alone")
    options = parser.parse_args()
    if options.as_peer:
        as_peer(options.as_peer, options.case)
        return
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {options.sequences} sequences")
    for case in [options.case] if options.case else CAPACITY:
        report(case, options.sequences, options.rounds, options.peer)


if __name__ == "__main__":
    main()
