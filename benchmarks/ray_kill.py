"""Commands in parts on a Ray cluster whose workers and nodes are killed, with other faults each round.

    python benchmarks/ray_kill.py [--minutes 10] [--seed 0]

Each round runs one command of `tests/jobs/cases.py` on a head and two nodes with one core each and small object stores.
Two jobs kill their workers for certain; workers and nodes are killed at random moments, and late jobs are doubled. The
result is compared, byte for byte, with a run without jobs. A failed round prints its seed and ends the program.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from penstock.jobs.coordinator import finish_work
from tests.jobs.cases import CASES, Inputs, make_inputs
from tests.jobs.test_ray import Faults, run_with_faults
from tests.ray_cluster import LocalCluster, local_cluster


def run_round(cluster: LocalCluster, inputs: Inputs, folder: Path, seed: int) -> str:
    """Run one command with faults, and compare its result; return what was done."""
    chosen = random.Random(seed)
    name = chosen.choice(list(CASES))
    plain = folder / "plain"
    plain.mkdir()
    expected = CASES[name].plain(inputs, plain)
    work = CASES[name].plan(inputs, folder)
    kills = [chosen.choice(["workers", "node"]) for _ in range(min(chosen.randint(0, 2), len(work) - 1))]
    with pytest.MonkeyPatch.context() as patch:
        run_with_faults(work, folder, Faults(cluster, work, folder / "marks", seed, kills), patch)
    if CASES[name].outcome(finish_work(work, folder / "results"), folder) != expected:
        raise RuntimeError(f"expected the bytes of a run without jobs from {name}, got others; seed {seed}")
    return f"{name}: {len(work)} jobs, killed {kills}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    seed, end = chosen.seed, time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as name, local_cluster() as cluster:
        inputs = make_inputs(Path(name))
        cluster.add()
        cluster.add()
        while time.monotonic() < end:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                print(f"seed {seed}: ", end="", flush=True)
                done = run_round(cluster, inputs, Path(folder), seed)
            print(f"{done}, equal, {time.monotonic() - begin:.0f} s", flush=True)
            seed += 1
    print(f"{seed - chosen.seed} rounds, all equal")


if __name__ == "__main__":
    main()
