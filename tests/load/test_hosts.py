"""64 ranks on 3 hosts, killed and started again with other numbers of ranks and hosts: the global order is one.

A host is a process with its ranks. It gets a saved state and nothing else, and reads nothing of other hosts, so no rank
waits for another. Each writes which samples it got. Hosts kill themselves in the middle; the one of rank 0, which saves
states, is the first.
"""

# pyright: basic

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.data import MapDataset

BATCH, STEPS, EVERY = 256, 20, 4

HOST = """
import json, os, signal, sys
from pathlib import Path
import numpy as np
import penstock
from tests.load.test_hosts import BATCH, EVERY, STEPS, samples
folder, first, last, world, killed, begin = Path(sys.argv[1]), *map(int, sys.argv[2:])
loaders = [penstock.Loader(samples(), batch_size=BATCH, threads=0, rank=r, world=world) for r in range(first, last)]
for loader in loaders:
    if begin:
        loader.load_state_dict(json.loads((folder / f"state-{begin:04d}.json").read_text()))
iterators = [iter(loader) for loader in loaders]
for step in range(begin, STEPS):
    if step == killed:
        os.kill(os.getpid(), signal.SIGKILL)
    rows = [next(iterator)["number"] for iterator in iterators]
    np.save(folder / f"step-{step:04d}-{first:04d}.npy", np.concatenate(rows))
    if first == 0 and (step + 1) % EVERY == 0:
        draft = folder / "draft"
        draft.write_text(json.dumps(loaders[0].state_dict()))
        draft.rename(folder / f"state-{step + 1:04d}.json")
"""


def samples() -> MapDataset:
    """Shuffled samples, some 16 batches an epoch, so that a run has epochs that end within a batch."""
    rng = np.random.default_rng(64)
    lengths = rng.integers(1, 40, 200)
    data = penstock.from_arrays({"number": np.arange(lengths.sum())}, lengths=lengths)
    return data.samples().shuffle(seed=3).repeat(3)


def run_hosts(folder: Path, ranks: list[int], killed: dict[int, int]) -> None:
    """Run hosts with so many ranks each, at the same time; some kill themselves before a step."""
    begin = max((int(state.stem[6:]) for state in folder.glob("state-*.json")), default=0)
    for file in folder.glob("step-*.npy"):
        if int(file.name[5:9]) >= begin:
            file.unlink()  # of steps that run again
    edges = np.concatenate([[0], np.cumsum(ranks)]).tolist()
    hosts: list[subprocess.Popen[bytes]] = []
    for host, (first, last) in enumerate(pairwise(edges)):
        arguments = (folder, first, last, edges[-1], killed.get(host, -1), begin)
        hosts.append(subprocess.Popen([sys.executable, "-c", HOST, *map(str, arguments)]))
    for host, process in enumerate(hosts):
        assert process.wait(timeout=600) == (-signal.SIGKILL if host in killed else 0)


def digest_of(rows: list[np.ndarray]) -> str:
    return hashlib.sha256(np.concatenate(rows).astype("<i8").tobytes()).hexdigest()


@pytest.mark.parametrize("restarts", [[([22, 21, 21], {0: 9, 1: 10, 2: 11}), ([24, 24], {0: 14}), ([10, 30, 24], {})]])
def test_the_global_order_is_one(tmp_path: Path, restarts: list[tuple[list[int], dict[int, int]]]) -> None:
    loader = penstock.Loader(samples(), batch_size=BATCH, threads=0, rank=0, world=1)
    alone = [batch["number"] for batch, _ in zip(loader, range(STEPS), strict=False)]
    for ranks, killed in restarts:
        run_hosts(tmp_path, ranks, killed)
    files = sorted(tmp_path.glob("step-*.npy"))
    assert digest_of([np.load(file) for file in files]) == digest_of(alone)
    assert json.loads((tmp_path / f"state-{STEPS:04d}.json").read_text())


def test_a_rank_gets_its_samples_while_no_other_rank_exists() -> None:
    """No rank waits for another one: each runs to the end alone, and all together have the order of one process."""
    alone = [
        batch["number"] for batch, _ in zip(penstock.Loader(samples(), BATCH, threads=0), range(STEPS), strict=False)
    ]
    steps: list[list[np.ndarray]] = [[] for _ in range(STEPS)]
    for rank in range(64):
        loader = penstock.Loader(samples(), batch_size=BATCH, threads=0, rank=rank, world=64)
        for step, batch in zip(range(STEPS), loader, strict=False):
            steps[step].append(batch["number"])
    assert digest_of([row for ranks in steps for row in ranks]) == digest_of(alone)
