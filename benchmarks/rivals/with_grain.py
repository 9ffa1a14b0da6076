"""Grain: MapDataset mix and shuffle, packing as an IterDataset, and the ElasticIterator."""

from __future__ import annotations

import json
import time
from typing import Any

import common
import grain.python as pygrain
import numpy as np
from grain import experimental

READ = pygrain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # fastest for tiny elements; the order is the same


def mixed() -> Any:
    """Each source shuffled by its own seed, then mixed: docs, "Dataset advanced tutorial", "Mixing datasets"."""
    parts = [pygrain.MapDataset.source(common.samples(d)).shuffle(seed=common.SEED + d) for d in range(4)]
    return pygrain.MapDataset.mix(parts, common.WEIGHTS)


def one_dataset() -> Any:
    return pygrain.MapDataset.source([s for d in range(4) for s in common.samples(d)]).shuffle(seed=common.SEED)


def token_record(sample: int) -> dict[str, Any]:
    return {"tokens": np.full(common.length(sample), sample, np.int32)}


def packed(shard: Any) -> Any:
    return experimental.FirstFitPackIterDataset(
        shard.map(token_record).to_iter_dataset(READ),
        length_struct={"tokens": common.CAPACITY},
        num_packing_bins=64,
        shuffle_bins=False,
    )


def samples_of(rows: Any) -> list[int]:
    """Out of packed rows: each segment is one sample."""
    found: list[int] = []
    for tokens, segments in zip(rows["tokens"], rows["tokens_segment_ids"], strict=True):
        firsts = [int(tokens[segments == s][0]) for s in range(1, int(segments.max()) + 1)]
        found += firsts
    return found


def rank_leg(iterator: Any, state: Any, steps: int | None, read: Any) -> tuple[list[list[int]], Any, float]:
    begin = time.perf_counter()
    if state is not None:
        iterator.set_state(state)
    batches: list[list[int]] = []
    first = 0.0
    while steps is None or len(batches) < steps:
        try:
            batches.append(read(next(iterator)))
        except StopIteration:
            break
        first = first or time.perf_counter() - begin
    return batches, iterator.get_state(), first * 1e3


def sharded(build: Any, read: Any) -> common.Pipeline:
    """Every rank slices the source by stride (docs: `ds[shard_index::shard_count]`) and keeps its own state."""

    def run(world: int, state: bytes | None, steps: int | None) -> common.Leg:
        states = [None] * world if state is None else [json.loads(s) for s in json.loads(state)]
        states = [states[rank % len(states)] for rank in range(world)]  # a rank the state has none for takes another's
        legs = [rank_leg(iter(build(rank, world)), states[rank], steps, read) for rank in range(world)]
        saved = json.dumps([json.dumps(s) if not isinstance(s, bytes) else s.decode() for _, s, _ in legs]).encode()
        return common.Leg(common.ranks_in_turn([b for b, _, _ in legs]), saved, legs[0][2])

    return run


def elastic(dataset: Any, global_batch: int | None = None, read: Any = list) -> common.Pipeline:
    """`ElasticIterator`: the state of any shard restores all, after changes in sharding and global batch size."""

    def run(world: int, state: bytes | None, steps: int | None) -> common.Leg:
        legs = []
        for rank in range(world):
            options = pygrain.ShardOptions(shard_index=rank, shard_count=world)
            iterator = experimental.ElasticIterator(dataset(), global_batch or common.BATCH * world, options)
            legs.append(rank_leg(iter(iterator), None if state is None else json.loads(state), steps, read))
        saved = json.dumps(legs[0][1]).encode()
        return common.Leg(common.ranks_in_turn([b for b, _, _ in legs]), saved, legs[0][2])

    return run


def full(rank: int, world: int) -> Any:
    return packed(mixed()[rank::world]).batch(common.BATCH)


def map_only(rank: int, world: int) -> Any:
    return mixed()[rank::world].batch(common.BATCH).to_iter_dataset(READ)


def ints(batch: Any) -> list[int]:
    return [int(sample) for sample in batch]


def main() -> None:
    report = common.report("grain")
    report.scenario(
        "full: mix, shuffle, pack, batch; 1-8-5-12",
        sharded(full, samples_of),
        common.RESHAPE,
        "MapDataset.mix, FirstFit packing per rank, state per rank",
    )
    report.scenario(
        "full, same 8 ranks, one kill",
        sharded(full, samples_of),
        common.SAME,
        "as above",
    )
    report.scenario(
        "full, every rank reads all and keeps its batches; 1-8-5-12",
        common.dealt(sharded(full, samples_of)),
        common.RESHAPE,
        "nothing is sharded: each rank reads, shuffles and packs the whole stream, ranks times the work",
    )
    report.scenario(
        "full with ElasticIterator; 1-8-5-12",
        elastic(lambda: packed(mixed()), read=samples_of),
        common.RESHAPE,
        "packing makes an IterDataset, which ElasticIterator does not take",
    )
    report.scenario(
        "no packing, state per rank; 1-8-5-12",
        sharded(map_only, ints),
        common.RESHAPE,
        "MapDataset.mix, no ElasticIterator",
    )
    report.scenario(
        "no packing, ElasticIterator; 1-8-5-12",
        elastic(mixed, read=ints),
        common.RESHAPE,
        "largest part: MapDataset mix and shuffle; batch of 16 per rank",
    )
    report.scenario(
        "no packing, ElasticIterator, global batch 240; 1-8-5-12",
        elastic(mixed, common.GLOBAL_BATCH, ints),
        common.RESHAPE_CONSTANT,
        "global batch held constant",
    )
    report.scenario(
        "one dataset, ElasticIterator; 1-8-5-12", elastic(one_dataset, read=ints), common.RESHAPE, "no mix, no packing"
    )


if __name__ == "__main__":
    main()
