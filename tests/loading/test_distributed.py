"""Real processes that find their ranks in `torch.distributed`: together they read every batch, and others go on."""

# pyright: basic

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from tests.forking import forked


def load(folder: Path, rank: int, world: int, state: Any, batches: int) -> None:
    """Write what a rank of a group of processes loads, its state, and the positions of all ranks."""
    import torch

    meeting = f"file://{folder}/meeting-{world}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    loader = dataset().loader(70, threads=1, output="torch")
    if state is not None:
        loader.load_state_dict(state)
    rows: list[list[int]] = []
    while len(rows) < batches:
        for batch in loader:
            rows.append(batch["x"].tolist())
            if len(rows) == batches:
                break
    ranks: list[Any] = [None] * world
    torch.distributed.all_gather_object(ranks, loader.state_dict()["position"])
    torch.distributed.destroy_process_group()
    source: Any = loader._cursor.source
    answer = {"rows": rows, "state": loader.state_dict(), "positions": ranks, "found": source.ranks.origin}
    (folder / f"{rank} of {world}").write_text(json.dumps(answer))


def dataset() -> MapDataset:
    return from_arrays({"x": np.arange(1000)}, lengths=[1000]).steps().shuffle(seed=7)


def processes(folder: Path, world: int, state: Any, batches: int) -> list[Any]:
    """What each rank of a group of processes wrote."""
    started = [forked(load, folder, rank, world, state, batches) for rank in range(world)]
    for process in started:
        process.join(600)
    assert [process.exitcode for process in started] == [0] * world
    return [json.loads((folder / f"{rank} of {world}").read_text()) for rank in range(world)]


def test_three_processes_go_on_where_two_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    first = processes(tmp_path, 2, None, 9)
    assert first[0]["state"] == first[1]["state"]
    second = processes(tmp_path, 3, first[1]["state"], 11)
    together = [
        [x for answer in group for x in answer["rows"][b]]
        for group in (first, second)
        for b in range(len(group[0]["rows"]))
    ]
    straight = dataset().loader(70, rank=0, world=1, threads=0)
    expected: list[list[int]] = []
    while len(expected) < 20:
        expected += [batch["x"].tolist() for batch in straight]
    assert together == expected[:20]
    assert [len(rows) for rows in second[1]["rows"][:2]] == [23, 23]
    assert first[0]["positions"] == [630, 630]
    assert {answer["found"] for answer in first + second} == {"torch.distributed"}
