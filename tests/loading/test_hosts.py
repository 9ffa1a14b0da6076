"""64 ranks on 3 hosts, killed and started again with other numbers of ranks and hosts: the global order is one.

A host is a process with its ranks, whose loaders prefetch from a stored dataset. It gets a saved state and nothing
else, and reads nothing of other hosts, so no rank waits for another: some hosts run to the end after rank 0 died.
Each writes which samples it got, with random numbers of their augmentation. Hosts kill themselves in the middle; the
one of rank 0, which saves states, is the first. All that any host has written is compared, also steps that run again
after a restart: they are its part of the global batch. A saved state is shared by all: the ranks of a host have equal
ones, and each is the state of one process that has loaded as many batches.
"""

# pyright: basic

from __future__ import annotations

import hashlib
import json
import os
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.data.map_dataset import MapDataset
from tests.forking import forked

BATCH, STEPS, EVERY = 256, 20, 4


def run_host(folder: Path, first: int, last: int, world: int, killed: int, begin: int) -> None:
    """Write what some ranks get at each step; be killed before a step, or never for -1."""
    data = penstock.open(folder / "data")
    loaders = [samples(data).loader(BATCH, threads=1, rank=rank, world=world) for rank in range(first, last)]
    for loader in loaders:
        if begin:
            loader.load_state_dict(json.loads((folder / f"state-{begin:04d}.json").read_text()))
    iterators = [iter(loader) for loader in loaders]
    for step in range(begin, STEPS):
        if step == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        batches = [next(iterator) for iterator in iterators]
        rows = np.concatenate([np.stack([batch["number"], batch["noise"]], axis=1) for batch in batches])
        np.save(folder / f"step-{step:04d}-{first:04d}.npy", rows)
        assert all(loader.state_dict() == loaders[0].state_dict() for loader in loaders)
        if first == 0 and (step + 1) % EVERY == 0:
            draft = folder / "draft"
            draft.write_text(json.dumps(loaders[0].state_dict()))
            draft.rename(folder / f"state-{step + 1:04d}.json")


def stored() -> penstock.EpisodeDataset:
    """Some 4,000 numbered steps."""
    lengths = np.random.default_rng(64).integers(1, 40, 200)
    return penstock.from_arrays({"number": np.arange(lengths.sum())}, lengths=lengths)


def samples(data: penstock.EpisodeDataset) -> MapDataset:
    """Shuffled samples, some 16 batches an epoch, so that a run has epochs that end within a batch."""
    return data.steps().shuffle(seed=3).repeat(3).map(with_noise, seed=5)


def with_noise(columns: dict[str, np.ndarray], keys: np.ndarray) -> dict[str, np.ndarray]:
    """A random augmentation, whose numbers belong to the sample and not to the rank."""
    return {**columns, "noise": (keys >> np.uint64(1)).astype(np.int64)}


def random_restarts(seed: int) -> list[tuple[list[int], dict[int, int]]]:
    """Restarts on random numbers of ranks and hosts; the host of rank 0 dies after it saved a later state."""
    rng = np.random.default_rng(seed)
    restarts: list[tuple[list[int], dict[int, int]]] = []
    saved = 0
    while True:
        hosts = int(rng.integers(2, 4))
        ranks = rng.multinomial(int(rng.choice([24, 40, 64])) - hosts, np.ones(hosts) / hosts) + 1
        death = saved + int(rng.integers(EVERY + 1, 3 * EVERY))
        if death >= STEPS:
            return [*restarts, (ranks.tolist(), {})]
        others = {host: death + int(rng.integers(3)) for host in range(1, hosts) if rng.random() < 0.5}
        restarts.append((ranks.tolist(), {0: death, **{host: at for host, at in others.items() if at < STEPS}}))
        saved = death // EVERY * EVERY


def run_hosts(folder: Path, ranks: list[int], killed: dict[int, int], alone: list[np.ndarray]) -> None:
    """Run hosts with so many ranks each, at the same time; some kill themselves before a step.

    What they write is their part of the batches of one process, up to their end.
    """
    begin = max((int(state.stem[6:]) for state in folder.glob("state-*.json")), default=0)
    for file in folder.glob("step-*.npy"):
        if int(file.name[5:9]) >= begin:
            file.unlink()  # of steps that run again
    edges = np.concatenate([[0], np.cumsum(ranks)]).tolist()
    hosts = [
        forked(run_host, folder, first, last, edges[-1], killed.get(host, -1), begin)
        for host, (first, last) in enumerate(pairwise(edges))
    ]
    for host, process in enumerate(hosts):
        process.join(600)
        assert process.exitcode == (-signal.SIGKILL if host in killed else 0)
    for host, (first, last) in enumerate(pairwise(edges)):
        written = sorted(folder.glob(f"step-*-{first:04d}.npy"))[-(killed.get(host, STEPS) - begin) :]
        assert [int(file.name[5:9]) for file in written] == list(range(begin, killed.get(host, STEPS)))
        for file, whole in zip(written, alone[begin:], strict=False):
            share = slice(len(whole) * first // edges[-1], len(whole) * last // edges[-1])
            np.testing.assert_array_equal(np.load(file), whole[share])


def digest_of(rows: list[np.ndarray]) -> str:
    return hashlib.sha256(np.concatenate(rows).astype("<i8").tobytes()).hexdigest()


@pytest.mark.parametrize(
    "restarts",
    [[([22, 21, 21], {0: 9, 1: 10, 2: 11}), ([24, 24], {0: 14}), ([10, 30, 24], {})], random_restarts(17)],
    ids=["64, 48 and 64 ranks", "random numbers of ranks"],
)
def test_the_global_order_is_one(tmp_path: Path, restarts: list[tuple[list[int], dict[int, int]]]) -> None:
    penstock.convert(stored(), tmp_path / "data")
    data = penstock.open(tmp_path / "data")
    loader = samples(data).loader(batch_size=BATCH, threads=0, rank=0, world=1)
    alone, states = [], {}
    for batch, step in zip(loader, range(1, STEPS + 1), strict=False):
        alone.append(np.stack([batch["number"], batch["noise"]], axis=1))
        states[step] = loader.state_dict()
    for ranks, killed in restarts:
        run_hosts(tmp_path, ranks, killed, alone)
    files = sorted(tmp_path.glob("step-*.npy"))
    assert digest_of([np.load(file) for file in files]) == digest_of(alone)
    saved = {int(file.stem[6:]): file.read_text() for file in tmp_path.glob("state-*.json")}
    assert sorted(saved) == list(range(EVERY, STEPS + 1, EVERY))
    assert {step: json.loads(text) for step, text in saved.items()} == {step: states[step] for step in saved}
    assert max(map(len, saved.values())) < 1000


def test_a_rank_gets_its_samples_while_no_other_rank_exists() -> None:
    """No rank waits for another one: each runs to the end alone, and all together have the order of one process."""
    alone = [
        batch["number"] for batch, _ in zip(samples(stored()).loader(BATCH, threads=0), range(STEPS), strict=False)
    ]
    steps: list[list[np.ndarray]] = [[] for _ in range(STEPS)]
    for rank in range(64):
        loader = samples(stored()).loader(batch_size=BATCH, threads=0, rank=rank, world=64)
        for step, batch in zip(range(STEPS), loader, strict=False):
            steps[step].append(batch["number"])
    assert digest_of([row for ranks in steps for row in ranks]) == digest_of(alone)
