"""webdataset: shards split over ranks, a shuffle buffer, RandomMix; there is no state to save.

Its own advice is to resample shards with replacement and to count steps instead of epochs (`ResampledShards`): then no
sample is promised at all. Here an epoch is split by node, and each leg runs for exactly as many steps as remain.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import webdataset as wds

SHARDS = 48  # a dataset; at least as many as ranks
LEFT = 18  # steps of the last leg: without a state, only the trainer knows
RESHAPE = (*common.RESHAPE[:-1], (12, LEFT))
SAME = (*common.SAME[:-1], (8, 25))


def write(folder: Path, values: list[int]) -> None:
    folder.mkdir(parents=True)
    for shard in range(SHARDS):
        with wds.TarWriter(str(folder / f"{shard:03d}.tar")) as out:
            for value in values[shard::SHARDS]:
                out.write({"__key__": str(value), "id": str(value)})


def source(folder: Path, seed: int) -> Any:
    """`detshuffle` for the same order in every run."""
    urls = sorted(map(str, folder.glob("*.tar")))
    return wds.DataPipeline(
        wds.SimpleShardList(urls),
        wds.detshuffle(bufsize=SHARDS, initial=SHARDS, seed=seed),
        wds.split_by_node,
        wds.tarfile_to_samples(),
        wds.detshuffle(bufsize=256, initial=256, seed=seed),
        wds.map(lambda sample: int(sample["id"])),
    )


def rank_leg(build: Callable[[], Any], steps: int | None) -> tuple[list[list[int]], float]:
    begin = time.perf_counter()
    batches: list[list[int]] = []
    batch: list[int] = []
    first = 0.0
    for sample in build():
        batch.append(sample)
        if len(batch) == common.BATCH:
            batches.append(batch)
            batch = []
            first = first or time.perf_counter() - begin
            if len(batches) == steps:
                break
    return batches, first * 1e3


def pipeline(build: Callable[[], Any]) -> common.Pipeline:
    def run(world: int, _: bytes | None, steps: int | None) -> common.Leg:
        legs = []
        for rank in range(world):
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
            common.random.seed(common.SEED)  # what RandomMix draws from
            legs.append(rank_leg(build, steps))
        return common.Leg(common.ranks_in_turn([b for b, _ in legs]), b"", legs[0][1])

    return run


def main() -> None:
    warnings.simplefilter("ignore")
    root = Path(tempfile.mkdtemp())
    for d in range(4):
        write(root / str(d), common.samples(d))
    parts = [root / str(d) for d in range(4)]
    report = common.report("webdataset")
    report.lacks("full: mix, shuffle, pack, batch; 1-8-5-12", "packing", "packing is left to the user")

    def mix() -> Any:
        sources = [source(part, common.SEED + d) for d, part in enumerate(parts)]
        return wds.RandomMix(sources, list(common.WEIGHTS), longest=True)

    note = "no state and no packing; every restart begins the epoch again"
    report.scenario("mix, shuffle, batch; 1-8-5-12", pipeline(mix), RESHAPE, note)
    report.scenario("mix, shuffle, batch; same 8 ranks, one kill", pipeline(mix), SAME, note)
    report.scenario(
        "one dataset, same 8 ranks, one kill",
        pipeline(lambda: source(parts[0], common.SEED)),
        ((8, 4), (8, 6), (8, 8)),
        note,
    )


if __name__ == "__main__":
    main()
