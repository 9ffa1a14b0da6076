"""LitData: StreamingDataset alone may change its ranks; CombinedStreamingDataset mixes.

README, "Pause, resume data streaming": the same seed and shuffle; for a StreamingDataset `num_workers` and `world_size`
may change, and the global batch size should stay; combined datasets resume only in the same shape.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = tempfile.mkdtemp()
os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache

CHUNK = 64
CANONICAL = 8
COMBINED_WORKERS = 1  # with 0 it is wrong after a second resume, with 2 after the first, even on one rank
SINGLE_WORKERS = 0  # with more it is wrong when resumed in the same shape after an elastic resume


def write(folder: Path, values: list[int]) -> None:
    """What `litdata.optimize` writes, without its worker processes."""
    folder.mkdir(parents=True)
    cache = Cache(str(folder), chunk_size=CHUNK)
    for i, value in enumerate(values):
        cache._add_item(i, value)
    cache.done()
    cache.merge()


def single(root: Path) -> Any:
    """`num_canonical_nodes` as in the README's example of elastic resume."""
    return StreamingDataset(
        str(root / "all"), shuffle=True, seed=common.SEED, drop_last=False, num_canonical_nodes=CANONICAL
    )


def combined(root: Path, weights: tuple[float, ...] | None = None) -> Any:
    """Over all samples by their lengths, which are as 0.4/0.3/0.2/0.1; with weights, until one has no more."""
    parts = [StreamingDataset(str(root / str(d)), shuffle=True, seed=common.SEED, drop_last=False) for d in range(4)]
    return CombinedStreamingDataset(parts, seed=common.SEED, weights=weights, iterate_over_all=weights is None)


def rank_leg(
    dataset: Any, workers: int, batch: int, state: Any, steps: int | None
) -> tuple[list[list[int]], Any, float]:
    begin = time.perf_counter()
    loader = StreamingDataLoader(dataset, batch_size=batch, num_workers=workers)
    if state is not None:
        loader.load_state_dict(state)
    batches: list[list[int]] = []
    iterator, first = iter(loader), 0.0
    while steps is None or len(batches) < steps:
        values = next(iterator, None)
        if values is None:
            break
        batches.append([int(value) for value in values])
        first = first or time.perf_counter() - begin
    return batches, loader.state_dict(), first * 1e3


def pipeline(build: Callable[[], Any], workers: int, global_batch: int | None = None) -> common.Pipeline:
    """The state of rank 0 for all, as the README's example saves one."""

    def run(world: int, state: bytes | None, steps: int | None) -> common.Leg:
        batch = common.BATCH if global_batch is None else global_batch // world
        states = [None] * world if state is None else [json.loads(s, object_hook=keys) for s in json.loads(state)]
        states = [states[rank if len(states) == world else 0] for rank in range(world)]

        def work(rank: int) -> Any:
            os.environ |= {"WORLD_SIZE": str(world), "GLOBAL_RANK": str(rank), "NNODES": "1"}
            return rank_leg(build(), workers, batch, states[rank], steps)

        legs = common.in_processes(world, work)
        saved = json.dumps([json.dumps(s) for _, s, _ in legs]).encode()
        return common.Leg(common.ranks_in_turn([b for b, _, _ in legs]), saved, legs[0][2])

    return run


def keys(found: dict[str, Any]) -> dict[Any, Any]:
    """Worker numbers are integer keys, which JSON makes strings."""
    if "num_samples_yielded" in found and isinstance(found["num_samples_yielded"], dict):
        found["num_samples_yielded"] = {int(k): v for k, v in found["num_samples_yielded"].items()}
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # it advises drop_last for collectives, once a rank
    root = Path(tempfile.mkdtemp())
    for d in range(4):
        write(root / str(d), common.samples(d))
    write(root / "all", [sample for d in range(4) for sample in common.samples(d)])
    report = common.report("litdata")
    report.lacks("full: mix, shuffle, pack, batch; 1-8-5-12", "packing", "blocks of tokens only (TokensLoader)")
    mix, one = pipeline(lambda: combined(root), COMBINED_WORKERS), pipeline(lambda: single(root), SINGLE_WORKERS)
    held = pipeline(lambda: single(root), SINGLE_WORKERS, common.GLOBAL_BATCH)
    no_packing = "packs blocks of tokens only; CombinedStreamingDataset, random rates"
    report.scenario("mix, shuffle, batch; 1-8-5-12", mix, common.RESHAPE, no_packing)
    report.scenario("mix, shuffle, batch; same 8 ranks, one kill", mix, common.SAME, no_packing)
    report.scenario(
        "mix by weights, shuffle, batch; same 8 ranks, one kill",
        pipeline(lambda: combined(root, common.WEIGHTS), COMBINED_WORKERS),
        common.SAME,
        "ends with the first dataset that has no more",
    )
    report.scenario(
        "mix, shuffle, batch; every rank reads all and keeps its batches; 1-8-5-12",
        common.dealt(mix),
        common.RESHAPE,
        "nothing is sharded, ranks times the work",
    )
    report.scenario("one dataset, batch 16 per rank; 1-8-5-12", one, common.RESHAPE, "StreamingDataset, elastic resume")
    report.scenario(
        "one dataset, global batch 240; 1-8-5-12",
        held,
        common.RESHAPE_CONSTANT,
        "as the README asks: global batch held",
    )
    short = ((1, 2), (8, 6), (5, 6), (12, None))  # one rank must not have taken more than a later rank's share
    report.scenario("one dataset, global batch 240, short first leg; 1-8-5-12", held, short, "the kill upsets it")
    report.scenario("one dataset, global batch 240, short first leg, no kill", held, short, "largest part", kill=False)
    report.scenario("one dataset, same 8 ranks, one kill", one, common.SAME, "StreamingDataset")


if __name__ == "__main__":
    main()
