"""Random windows of a Zarr replay buffer against zarr: `python benchmarks/zarr_windows.py --peer PYTHON ...`.

Claim: penstock loads more windows for a second of CPU time than zarr 2 and zarr 3. Windows a second are shown too; on a
machine that is busy, they say little.

All read the same folder (Zarr 2, Blosc with zstd, chunks of 100 rows): images of 96 x 96 x 3, a state and an action. A
window has 16 steps of all three. The peers slice each array for each window. penstock reads the windows of a batch of
64 together, so a chunk is decoded once for all of them, and of it only the blocks that hold the rows. Its cache of 64
MiB holds a quarter of the images. Runs of all alternate, and the best of `--rounds` counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
import numpy as np

EPISODE, WINDOW, BATCH, WINDOWS = 200, 16, 64, 640
PEER = """
import json, sys, time
import zarr
group = zarr.open(sys.argv[1], mode="r")
arrays = [group["data"][key] for key in ("img", "state", "action")]
starts = json.loads(sys.argv[2])
wall, cpu = time.perf_counter(), time.process_time()
for start in starts:
    for array in arrays:
        array[start : start + 16]
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([zarr.__version__, len(starts) / wall, len(starts) / cpu]))
"""
PENSTOCK = "penstock"


def write(path: Path, steps: int) -> None:
    """Write a buffer whose images compress to about a half."""
    import penstock

    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (steps // 100, 96, 96, 3), np.uint8).repeat(100, 0)
    images[:, ::3] = rng.integers(0, 255, (steps, 1, 1, 3), np.uint8)
    columns = {
        "observations": {"img": images, "state": rng.normal(size=(steps, 5)).astype(np.float32)},
        "actions": rng.normal(size=(steps, 2)).astype(np.float32),
    }
    data = penstock.from_arrays(columns, lengths=[EPISODE] * (steps // EPISODE))
    penstock.convert(data, path, format="zarr", options={"chunk_rows": 100}, certificate=False)


def ours(path: Path, positions: list[int]) -> tuple[str, float, float]:
    """Windows a second, and windows for a second of CPU time."""
    import penstock

    with penstock.open(path, cache_bytes=64 << 20) as data:
        windows = data.windows(WINDOW)
        windows[[0]]
        wall, cpu = time.perf_counter(), time.process_time()
        for i in range(0, len(positions), BATCH):
            windows[positions[i : i + BATCH]]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return PENSTOCK, len(positions) / wall, len(positions) / cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], help="interpreter with zarr; may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    episodes = rng.integers(options.steps // EPISODE, size=WINDOWS)
    offsets = rng.integers(EPISODE - WINDOW + 1, size=WINDOWS)
    positions = (episodes * (EPISODE - WINDOW + 1) + offsets).tolist()
    starts = json.dumps((episodes * EPISODE + offsets).tolist())
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer.zarr"
        write(path, options.steps)
        for _ in range(options.rounds):
            runs = [ours(path, positions)]
            for peer in options.peer:
                command = [peer, "-c", PEER, str(path), starts]
                version, *rates = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                runs.append((f"zarr {version}", *rates))
            for name, wall, cpu in runs:
                before = best.get(name, (0.0, 0.0))
                best[name] = max(before[0], wall), max(before[1], cpu)
    mine = best[PENSTOCK]
    print(f"{'':14} {'windows/s':>10} {'for a s of CPU':>15} {'penstock is faster':>20} {'by CPU time':>12}")
    for name, (wall, cpu) in best.items():
        ratios = "" if name == PENSTOCK else f"{mine[0] / wall:18.1f} x {mine[1] / cpu:10.1f} x"
        print(f"{name:14} {wall:10,.0f} {cpu:15,.0f} {ratios}")
        if name != PENSTOCK:
            figures.record(f"less_cpu_than.{name.replace(' ', '').split('.')[0]}", mine[1] / cpu, "x")
    figures.record("windows_per_cpu_second", mine[1], "/s")


if __name__ == "__main__":
    sys.exit(main())
