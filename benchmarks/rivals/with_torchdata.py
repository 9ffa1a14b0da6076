"""torchdata: StatefulDataLoader over a distributed sampler, and a graph of nodes for the mix.

States are kept per rank, as the docs show; nothing in torchdata reshards them. torchtitan, which rests on it, refuses
another number of ranks ("dataloader resharding is not supported yet"); Accelerate loads rank 0's state everywhere.
The second is tried here, as the first only refuses.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

import common
from torchdata.nodes import Batcher, Loader, Mapper, MultiNodeWeightedSampler, SamplerWrapper, StopCriteria
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

EVERYTHING = [sample for d in range(4) for sample in common.samples(d)]


def sampler(data: list[int], rank: int, world: int, seed: int) -> StatefulDistributedSampler:
    return StatefulDistributedSampler(data, num_replicas=world, rank=rank, shuffle=True, seed=seed)


def one_loader(rank: int, world: int) -> Any:
    """Docs, "Stateful DataLoader": a map-style dataset resumes best through a stateful sampler."""
    order = sampler(EVERYTHING, rank, world, common.SEED)
    return StatefulDataLoader(EVERYTHING, batch_size=common.BATCH, sampler=order, num_workers=0, collate_fn=list)


def mixed_nodes(rank: int, world: int) -> Any:
    """Docs, "torchdata.nodes: multi-dataset weighted sampling"; each sample once, so the mix may run to the end."""
    sources = {}
    for d in range(4):
        data = common.samples(d)
        sources[str(d)] = Mapper(SamplerWrapper(sampler(data, rank, world, common.SEED + d)), data.__getitem__)
    weights = {str(d): w for d, w in enumerate(common.WEIGHTS)}
    stop = StopCriteria.ALL_DATASETS_EXHAUSTED
    mix = MultiNodeWeightedSampler(sources, weights, stop, rank=rank, world_size=world, seed=common.SEED)
    return Loader(Batcher(mix, common.BATCH, drop_last=False), restart_on_stop_iteration=False)


def rank_leg(loader: Any, state: Any, steps: int | None) -> tuple[list[list[int]], Any, float]:
    begin = time.perf_counter()
    if state is not None:
        loader.load_state_dict(state)
    batches: list[list[int]] = []
    iterator, first = iter(loader), 0.0
    while steps is None or len(batches) < steps:
        batch = next(iterator, None)
        if batch is None:
            break
        batches.append(list(batch))
        first = first or time.perf_counter() - begin
    return batches, loader.state_dict(), first * 1e3


def rescaled(state: Any, old: int, new: int) -> Any:
    """By hand, over the internals: the global position, divided among the new ranks."""
    state = pickle.loads(pickle.dumps(state))  # noqa: S301  our own bytes
    inner = state["_sampler_iter_state"]
    inner["samples_yielded"] = inner["sampler_state"]["yielded"] = inner["samples_yielded"] * old // new
    state["_sampler_iter_yielded"] = -(-inner["samples_yielded"] // common.BATCH)
    state["_num_yielded"] = state["_sampler_iter_yielded"]
    return state


def sharded(build: Any, by_hand: bool = False) -> common.Pipeline:
    def run(world: int, state: bytes | None, steps: int | None) -> common.Leg:
        states = [None] * world if state is None else pickle.loads(state)  # noqa: S301  our own bytes
        if len(states) != world:
            zero = rescaled(states[0], len(states), world) if by_hand else states[0]
            states = [zero] * world
        legs = [rank_leg(build(rank, world), states[rank], steps) for rank in range(world)]
        saved = pickle.dumps([s for _, s, _ in legs])
        return common.Leg(common.ranks_in_turn([b for b, _, _ in legs]), saved, legs[0][2])

    return run


def main() -> None:
    report = common.report("torchdata")
    report.lacks(
        "full: mix, shuffle, pack, batch; 1-8-5-12",
        "packing",
        "packing is left to the user; an iterable that packs needs a state of its own",
    )
    nodes, loader = sharded(mixed_nodes), sharded(one_loader)
    no_packing = "no packing in torchdata; MultiNodeWeightedSampler, random rates"
    report.scenario("mix, shuffle, batch; 1-8-5-12", nodes, common.RESHAPE, no_packing + "; rank 0's state for all")
    report.scenario("mix, shuffle, batch; same 8 ranks, one kill", nodes, common.SAME, no_packing)
    report.scenario(
        "mix, shuffle, batch; every rank reads all and keeps its batches; 1-8-5-12",
        common.dealt(nodes),
        common.RESHAPE,
        "nothing is sharded, ranks times the work",
    )
    report.scenario(
        "one dataset, StatefulDataLoader; 1-8-5-12",
        loader,
        common.RESHAPE,
        "StatefulDistributedSampler, rank 0's state",
    )
    report.scenario("one dataset, same 8 ranks, one kill", loader, common.SAME, "StatefulDistributedSampler")
    report.scenario(
        "one dataset, position rescaled by hand; 1-8-5-12",
        sharded(one_loader, by_hand=True),
        common.RESHAPE,
        "undocumented: the user divides `yielded` among the new ranks, rounding down",
    )


if __name__ == "__main__":
    main()
