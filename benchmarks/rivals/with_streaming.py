"""Mosaic StreamingDataset: streams by proportion, its own state, as many canonical nodes from the first run on.

Docs, "Elastic Determinism" and "Fast Resumption": `num_canonical_nodes` and the global batch size are held, the global
batch must divide by every number of ranks, and StreamingDataLoader keeps the state. One real process per rank.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import common
import torch.distributed
import transformers  # noqa: F401  before the stand-in below

# torchvision serves its ready-made vision sets only, and is often built for another torch than the one installed
names = ("", ".datasets", ".transforms", ".transforms.functional")
sys.modules |= {f"torchvision{name}": ModuleType(f"torchvision{name}") for name in names}
sys.modules["torchvision.datasets"].VisionDataset = object  # type: ignore[attr-defined]
sys.modules["torchvision.transforms.functional"].to_tensor = None  # type: ignore[attr-defined]

from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402


def write(folder: Path, values: list[int]) -> None:
    with MDSWriter(out=str(folder), columns={"id": "int"}, size_limit=4096) as out:
        for value in values:
            out.write({"id": value})


def mixed(root: Path, batch: int) -> StreamingDataset:
    """`proportion` and `epoch_size`: each stream gives exactly all of its samples once."""
    streams = [Stream(local=str(root / str(d)), proportion=w) for d, w in enumerate(common.WEIGHTS)]
    return StreamingDataset(
        streams=streams,
        epoch_size=sum(common.SIZES),
        shuffle=True,
        shuffle_seed=common.SEED,
        num_canonical_nodes=1,
        batch_size=batch,
    )


def rank_leg(root: Path, batch: int, state: Any, steps: int | None) -> tuple[list[list[int]], Any, float]:
    begin = time.perf_counter()
    loader = StreamingDataLoader(mixed(root, batch), batch_size=batch, num_workers=0)
    if state is not None:
        loader.load_state_dict(state)
    batches: list[list[int]] = []
    iterator, first = iter(loader), 0.0
    while steps is None or len(batches) < steps:
        rows = next(iterator, None)
        if rows is None:
            break
        batches.append(rows["id"].tolist())
        first = first or time.perf_counter() - begin
    return batches, loader.state_dict(), first * 1e3


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def pipeline(root: Path, global_batch: int | None = None) -> common.Pipeline:
    """Rank 0's state for all: docs, "called on rank zero"."""

    def run(world: int, state: bytes | None, steps: int | None) -> common.Leg:
        batch = common.BATCH if global_batch is None else global_batch // world
        port = free_port()

        def work(rank: int) -> Any:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
            os.environ |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            if world > 1:
                torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
            try:
                return rank_leg(root, batch, None if state is None else json.loads(state), steps)
            finally:
                if world > 1:
                    torch.distributed.barrier()  # nobody leaves while another still reads the shared memory

        clean_stale_shared_memory()  # docs, "if a previous run was killed"
        legs = common.in_processes(world, work)
        saved = json.dumps(legs[0][1]).encode()
        return common.Leg(common.ranks_in_turn([b for b, _, _ in legs]), saved, legs[0][2])

    return run


def main() -> None:
    warnings.simplefilter("ignore")
    root = Path(tempfile.mkdtemp())
    for d in range(4):
        write(root / str(d), common.samples(d))
    report = common.report("mosaicml-streaming")
    report.lacks(
        "full: mix, shuffle, pack, batch; 1-8-5-12",
        "packing",
        "llm-foundry packs in its collator, whose left-over is in no state",
    )
    no_packing = "no packing of its own; proportions, num_canonical_nodes=1"
    report.scenario("mix, shuffle, batch 16 per rank; 1-8-5-12", pipeline(root), common.RESHAPE, no_packing)
    report.scenario("mix, shuffle, batch; same 8 ranks, one kill", pipeline(root), common.SAME, no_packing)
    report.scenario(
        "mix, shuffle, global batch 240; 1-8-5-12",
        pipeline(root, common.GLOBAL_BATCH),
        common.RESHAPE_CONSTANT,
        no_packing + "; as the docs ask: global batch held, divisible by every number of ranks",
    )


if __name__ == "__main__":
    main()
