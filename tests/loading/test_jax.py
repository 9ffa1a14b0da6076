"""Batches as JAX arrays: on one device, laid out over several, and from several processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.data import MapDataset, from_arrays
from penstock.errors import PlanError, SpecError
from penstock.loading import Batch, Ticket
from penstock.loading.jax import JaxArrays, to_jax

SCRIPT = """
import json, sys
import jax, numpy as np
import penstock
from jax.sharding import Mesh, NamedSharding, PartitionSpec

rank, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
data = penstock.from_arrays({"x": np.arange(60, dtype="f4")}, lengths=[60]).steps().shuffle(seed=7)
sharding = NamedSharding(Mesh(np.array(jax.devices()), "rows"), PartitionSpec("rows"))
loader = data.loader(8, drop_last=True, threads=1, output="jax", sharding=sharding)
shapes, rows = [], []
for batch in loader:
    shapes.append(batch["x"].shape)
    rows.append(np.concatenate([shard.data for shard in batch["x"].addressable_shards]).tolist())
print(json.dumps({"shapes": shapes, "rows": rows, "found": loader._cursor.source.ranks.origin}))
"""


def dataset() -> MapDataset:
    columns = {"observations": {"x": np.arange(61, dtype="f4")}, "a": np.arange(60, dtype="i4")}
    return from_arrays(columns, lengths=[60]).steps().shuffle(seed=7)


def sharding() -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices()), "rows"), PartitionSpec("rows"))


def test_batches_are_pytrees_of_jax_arrays_with_tickets():
    batches = list(dataset().loader(8, output="jax"))
    assert isinstance(batches[0]["observations"]["x"], jax.Array)
    assert [x for batch in batches for x in batch["a"].tolist()] == dataset()[:]["a"].tolist()
    assert [batch.ticket.position for batch in batches] == list(range(0, 60, 8))
    doubled = jax.jit(lambda batch: jax.tree.map(lambda x: 2 * x, batch))(batches[0])
    assert doubled["a"].tolist() == [2 * x for x in batches[0]["a"].tolist()]
    assert isinstance(doubled, JaxArrays)
    assert jax.tree.structure(batches[0]) == jax.tree.structure(batches[1])


def test_a_new_ticket_compiles_nothing_anew():
    traced = []

    @jax.jit
    def total(batch):
        traced.append(1)
        return batch["a"].sum()

    for batch in dataset().loader(10, output="jax"):
        total(batch)
    assert len(traced) == 1


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_the_state_is_that_of_the_batch_the_consumer_has(stop):
    first, seen = dataset().loader(8, output="jax"), []
    for batch in first:
        seen += batch["a"].tolist()
        if len(seen) == 8 * stop:
            break
    second = dataset().loader(8, output="jax")
    second.load_state_dict(first.state_dict())
    second.skip((56, 58))
    expected = dataset()[:]["a"].tolist()
    assert seen + [x for batch in second for x in batch["a"].tolist()] == expected[:56] + expected[58:]
    assert len(second) == 8
    assert len(second.why(batch.ticket)) == 8


def test_batches_under_a_sharding():
    batches = list(dataset().loader(8, output="jax", sharding=sharding()))
    assert batches[0]["a"].sharding == sharding()
    assert [x for batch in batches for x in batch["a"].tolist()] == dataset()[:]["a"].tolist()


def test_ragged_columns():
    batch = Batch({"t": Ragged.from_strings(["ab", "c"])}, ticket=Ticket(0, 2, "0" * 8))
    assert to_jax(batch)["t"]["offsets"].tolist() == [0, 2, 3]
    assert to_jax(batch).ticket == batch.ticket
    assert to_jax(Columns({"x": np.arange(2)})).ticket is None
    with pytest.raises(SpecError, match="in t"):
        to_jax(batch, sharding())


def test_shares_of_unequal_size_cannot_be_sharded():
    for options in ({"batch_size": 9, "drop_last": True}, {"batch_size": 8}):
        dataset().loader(**options, rank=0, world=2, output="jax")
        with pytest.raises(PlanError, match="drop_last=True"):
            dataset().loader(**options, rank=0, world=2, output="jax", sharding=sharding())


def test_two_processes_make_global_arrays():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    command = [sys.executable, "-c", SCRIPT]
    started = [
        subprocess.Popen(
            [*command, str(rank), address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(2)
    ]
    answers = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0, 0], answers
    told = [json.loads(out.splitlines()[-1]) for out, _ in answers]
    assert told[0]["shapes"] == [[8]] * 7
    assert {answer["found"] for answer in told} == {"jax.distributed"}
    expected = dataset()[:]["a"].tolist()[:56]
    assert [x for a, b in zip(told[0]["rows"], told[1]["rows"], strict=True) for x in a + b] == expected
