"""Statistics against reading the same bytes, and against NumPy: `python benchmarks/column_statistics.py`.

Claim: `penstock.statistics` takes at most a tenth of the CPU time of NumPy's mean, standard deviation, least, greatest
and five quantiles of the same arrays in memory. The goal is 70 % of the speed at which the same episodes are read. It
is missed here, where reading is a copy of memory: `docs/decisions.md` says what bounds it. Counted by cachegrind in
code for x86-64-v3, a float64 of 17 takes 8.4 instructions and a byte of pictures 3.6. Of these, 3.25 count a float64,
which is the least: its bucket is loaded, its count is loaded, added to and stored, and four share 5 of a loop.

Each dataset is a column store in the page cache. Reading copies all columns of all episodes, by ranges of 8 MB, on the
same threads, one a core. The best of five runs counts for each. Where other work takes the cores, CPU time says more
than the speed: the last columns have it for a number.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import figures
import numpy as np
from rich.console import Console
from rich.table import Table

import penstock
from penstock.core.arrays import AnyArray
from penstock.core.selection import Selection
from penstock.flow.limits import PrefetchLimits, cores
from penstock.flow.ordered_map import OrderedMap

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
BLOCK_BYTES = 1 << 23


def datasets(nbytes: int) -> dict[str, AnyArray]:
    """One column `[steps, ...]` for each kind of data, of about `nbytes`."""
    rng = np.random.default_rng(0)
    return {
        "17 float64": rng.normal(size=(nbytes // 136, 17)),
        "348 float32": rng.normal(size=(nbytes // 1392, 348)).astype("f4"),
        "84 x 84 x 3 uint8": rng.integers(0, 256, (nbytes // 21168, 84, 84, 3), dtype=np.uint8),
    }


def read(data: penstock.EpisodeDataset, path: str, threads: int) -> None:
    """Copy all rows of a column, by ranges."""
    field, steps = data.spec[path], data.total_steps
    rows = max(BLOCK_BYTES // field.row_bytes, 1)
    one = np.ones(1, np.int64)

    def copy(first: int) -> None:
        n = min(rows, steps - first)
        out = np.empty((n, *field.shape), field.dtype)
        data.source.read_array(path, Selection(one * 0, one * first, one * n, one * 0, (1, n)), out)

    with OrderedMap(copy, range(0, steps, rows), PrefetchLimits(threads)) as done:
        for _ in done:
            pass


def in_numpy(rows: AnyArray) -> None:
    """The same figures by NumPy."""
    axis = tuple(range(rows.ndim - 1)) if rows.dtype == np.uint8 else 0
    np.mean(rows, axis=axis, dtype=np.float64), np.std(rows, axis=axis, dtype=np.float64)
    np.min(rows, axis=axis), np.max(rows, axis=axis)
    np.quantile(rows, QUANTILES, axis=axis, method="inverted_cdf")


def best(run: Callable[[], object]) -> tuple[float, float]:
    """Least seconds and least CPU seconds of five runs."""
    seconds, cpu = [], []
    for _ in range(5):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        run()
        seconds.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - cpu_begun)
    return min(seconds), min(cpu)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400, help="of each dataset")
    parser.add_argument("--threads", type=int, default=cores())
    arguments = parser.parse_args()
    columns = ("dataset", "read", "statistics", "of reading", "read, CPU", "ours, CPU", "NumPy, CPU")
    table = Table(*columns, title="MB/s; CPU time in ns a number")
    for name, rows in datasets(arguments.megabytes * 1_000_000).items():
        with tempfile.TemporaryDirectory() as folder:
            lengths = np.full(-(-len(rows) // 500), 500)
            lengths[-1] -= lengths.sum() - len(rows)
            memory = penstock.from_arrays({"x": rows}, lengths.tolist())
            penstock.convert(memory, Path(folder) / "data", certificate=False)
            with penstock.open(Path(folder) / "data") as data:
                megabytes = rows.nbytes / 1e6
                reading, reading_cpu = best(lambda: read(data, "x", arguments.threads))
                counting, cpu = best(lambda: penstock.statistics(data, threads=arguments.threads, progress=False))
        part = rows[: max(len(rows) // 8, 1)]
        _, peer = best(lambda part=part: in_numpy(part))
        each = [1e9 * cpu_seconds / count for cpu_seconds, count in ((reading_cpu, rows.size), (cpu, rows.size))]
        each.append(1e9 * peer / part.size)
        short = "_".join(re.findall(r"\w+", name))
        figures.record(f"{short}.reading", reading / counting, "x")
        figures.record(f"{short}.reading_cpu", each[0] / each[1], "x")
        figures.record(f"{short}.cpu", each[1] / 1e9, "s")
        figures.record(f"{short}.numpy", each[2] / each[1], "x")
        speeds = (f"{megabytes / reading:,.0f}", f"{megabytes / counting:,.0f}", f"{100 * reading / counting:.0f} %")
        table.add_row(name, *speeds, *(f"{nanoseconds:.2f}" for nanoseconds in each))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
