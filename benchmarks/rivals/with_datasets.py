"""Hugging Face datasets: IterableDataset with `state_dict`, interleaved, packed by a batched map.

Docs, "Stream": `state_dict` and `load_state_dict` resume; what a shuffle buffer holds is not in the state, even of one
example. "Without buffer" is the kindest: `Dataset.shuffle` beforehand, no shuffle in the stream.
Ranks: `split_dataset_by_node`. Packing: a batched map, as in TRL's `pack_dataset`.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import common
import datasets
import numpy as np
from datasets.distributed import split_dataset_by_node

SHARDS = 120  # "num_shards % world_size == 0" for 1, 8, 5 and 12 ranks
BUFFER = 256


def read(shards: list[list[int]]) -> Iterator[dict[str, int]]:
    for shard in shards:
        for sample in shard:
            yield {"id": sample}


def shuffled(values: list[int], seed: int, buffer: int) -> Any:
    """Without a buffer the values are in the order that `Dataset.shuffle` would write."""
    order = np.random.default_rng(seed).permutation(values) if buffer == 0 else np.array(values)
    shards = [[int(v) for v in part] for part in np.array_split(order, SHARDS)]
    stream = datasets.IterableDataset.from_generator(read, gen_kwargs={"shards": shards})
    return stream.shuffle(seed=seed, buffer_size=buffer) if buffer else stream


def mixed(buffer: int) -> Any:
    return datasets.interleave_datasets(
        [shuffled(common.samples(d), common.SEED + d, buffer) for d in range(4)],
        probabilities=list(common.WEIGHTS),
        seed=common.SEED,
        stopping_strategy="all_exhausted_without_replacement",
    )


def one_dataset(buffer: int) -> Any:
    return shuffled([s for d in range(4) for s in common.samples(d)], common.SEED, buffer)


def pack(rows: dict[str, list[int]]) -> dict[str, list[list[int]]]:
    packs: list[list[int]] = []
    room = 0
    for sample in rows["id"]:
        if common.length(sample) > room:
            packs.append([])
            room = common.CAPACITY
        packs[-1].append(sample)
        room -= common.length(sample)
    return {"ids": packs}


def packed(dataset: Any) -> Any:
    return dataset.map(pack, batched=True, batch_size=256, remove_columns=["id"])


def rank_leg(dataset: Any, state: Any, steps: int | None) -> tuple[list[list[int]], Any, float]:
    begin = time.perf_counter()
    if state is not None:
        dataset.load_state_dict(state)
    batches: list[list[int]] = []
    rows, first = iter(dataset), 0.0
    while steps is None or len(batches) < steps:
        batch = list(islice(rows, common.BATCH))
        if not batch:
            break
        batches.append([sample for row in batch for sample in row.get("ids", [row.get("id")])])
        first = first or time.perf_counter() - begin
    return batches, dataset.state_dict(), first * 1e3


def pipeline(build: Callable[[], Any], then: Callable[[Any], Any] = lambda dataset: dataset) -> common.Pipeline:
    """A state per rank; rank 0's for ranks that the state does not know."""

    def run(world: int, state: bytes | None, steps: int | None) -> common.Leg:
        states = [None] * world if state is None else json.loads(state)
        states = [states[rank if len(states) == world else 0] for rank in range(world)]
        legs = []
        for rank in range(world):
            dataset = build() if world == 1 else split_dataset_by_node(build(), rank=rank, world_size=world)
            legs.append(rank_leg(then(dataset), states[rank], steps))
        saved = json.dumps([s for _, s, _ in legs]).encode()
        return common.Leg(common.ranks_in_turn([b for b, _, _ in legs]), saved, legs[0][2])

    return run


def main() -> None:
    warnings.simplefilter("ignore")
    datasets.disable_progress_bars()
    logging.disable(logging.WARNING)
    report = common.report("datasets")
    buffered, exact = partial(mixed, BUFFER), partial(mixed, 0)
    full = pipeline(exact, packed)
    report.scenario(
        "full: mix, shuffle buffer, pack, batch; 1-8-5-12", pipeline(buffered, packed), common.RESHAPE, "buffer of 256"
    )
    report.scenario(
        "full, same 8 ranks, one kill",
        pipeline(buffered, packed),
        common.SAME,
        "the buffer's content is not in the state",
    )
    report.scenario("full without buffer; 1-8-5-12", full, common.RESHAPE, "values shuffled beforehand")
    report.scenario("full without buffer, same 8 ranks, one kill", full, common.SAME, "as above")
    report.scenario(
        "full without buffer, every rank reads all and keeps its batches; 1-8-5-12",
        common.dealt(full),
        common.RESHAPE,
        "nothing is sharded, ranks times the work",
    )
    report.scenario(
        "no packing, no buffer, same 8 ranks, one kill", pipeline(exact), common.SAME, "interleave_datasets only"
    )
    one = pipeline(partial(one_dataset, 0))
    report.scenario("one dataset, no buffer; 1-8-5-12", one, common.RESHAPE, "largest part: no mix, no packing")
    report.scenario("one dataset, no buffer, same 8 ranks, one kill", one, common.SAME, "values shuffled beforehand")


if __name__ == "__main__":
    main()
