"""How long `import penstock`, the first help and the opening of small datasets take, each in a fresh interpreter.

Each time is the least of several runs. The times behind it are those of the processor, which depend less on the load.

    python benchmarks/import_time.py [--runs 7] [--only import]
"""

from __future__ import annotations

import argparse
import importlib
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np

import penstock

MAIN = "import sys; sys.argv[1:] = {}; from penstock.cli.main import main; main()"
OPEN = "import penstock; penstock.open('{}')"
CODES = {
    "python": "pass",
    "import": "import penstock",
    "columns": "import penstock; penstock.Columns",
    "open": "import penstock; penstock.open",
    "help": MAIN.format(["--help"]),
}


def make_data(folder: Path) -> dict[str, str]:
    """Write a small dataset of three formats. Return what opens each, and what shows statistics."""
    columns = {"observations": np.zeros((3, 2)), "actions": np.zeros((3, 1)), "rewards": np.zeros(3)}
    store, table, hdf5 = (str(folder / name) for name in ("store", "steps.parquet", "steps.hdf5"))
    penstock.convert(penstock.from_arrays({"rewards": np.zeros(3)}, lengths=[3]), store, certificate=False)
    pyarrow: Any = importlib.import_module("pyarrow")
    steps = pyarrow.table({"rewards": np.zeros(3), "episode_index": np.zeros(3, np.int64)})
    importlib.import_module("pyarrow.parquet").write_table(steps, table)
    with importlib.import_module("h5py").File(hdf5, "w") as file:
        for name, values in {**columns, "terminals": [False] * 3, "timeouts": [False, False, True]}.items():
            file[name] = values
    opened = {"open_store": store, "open_parquet": table, "open_hdf5": hdf5}
    return {name: OPEN.format(path) for name, path in opened.items()} | {"stats": MAIN.format(["stats", store])}


def seconds(code: str) -> tuple[float, float]:
    """Return the seconds of a fresh interpreter by the clock and of the processor."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begin, cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", help="one of the codes: import, columns, open, help, stats, ...")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        codes = CODES | make_data(Path(name))
        for what, code in {options.only: codes[options.only]}.items() if options.only else codes.items():
            best, cpu = (min(times) for times in zip(*(seconds(code) for _ in range(options.runs)), strict=True))
            figures.record(what, best, "s")
            shown = code.replace(name, "")
            print(f"{what:12} {1000 * best:6.0f} ms  {1000 * cpu:6.0f} ms of the processor   {shown}")


if __name__ == "__main__":
    main()
