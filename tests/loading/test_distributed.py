"""Real processes that find their ranks in `torch.distributed`: together they read every batch, and others go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset

SCRIPT = """
import json, sys
import numpy as np, torch
import penstock

rank, world, meeting, state, batches = sys.argv[1:]
torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(world))
data = penstock.from_arrays({"x": np.arange(1000)}, lengths=[1000]).steps().shuffle(seed=7)
loader = data.loader(70, threads=1, output="torch")
if state != "-":
    loader.load_state_dict(json.loads(state))
rows = []
while len(rows) < int(batches):
    for batch in loader:
        rows.append(batch["x"].tolist())
        if len(rows) == int(batches):
            break
ranks = [None] * int(world)
torch.distributed.all_gather_object(ranks, loader.state_dict()["position"])
torch.distributed.destroy_process_group()
found = loader._cursor.source.ranks.origin
print(json.dumps({"rows": rows, "state": loader.state_dict(), "positions": ranks, "found": found}))
"""


def dataset() -> MapDataset:
    return from_arrays({"x": np.arange(1000)}, lengths=[1000]).steps().shuffle(seed=7)


def processes(folder: Path, world: int, state: Any, batches: int) -> list[Any]:
    """What each rank of a group of processes printed."""
    told = "-" if state is None else json.dumps(state)
    command = [sys.executable, "-c", SCRIPT]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    started = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(folder / f"meeting-{world}"), told, str(batches)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(world)
    ]
    answers = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0] * world, answers
    return [json.loads(out.splitlines()[-1]) for out, _ in answers]


def test_three_processes_go_on_where_two_were(tmp_path):
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
