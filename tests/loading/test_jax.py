"""Batches as JAX arrays: on one device, laid out over several, and from several processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as Spec

from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, SpecError
from penstock.loading import Batch, Loader, Ticket
from penstock.loading.jax import JaxArrays, to_jax

DEVICES = """
import sys
import jax
if sys.argv[2] != "1":
    jax.distributed.initialize(sys.argv[3], num_processes=int(sys.argv[2]), process_id=int(sys.argv[1]))
from tests.loading.test_jax import check_meshes
check_meshes(sys.argv[4])
"""


def matrices() -> MapDataset:
    """60 samples; the last batch of 8 is short."""
    x = np.random.default_rng(3).integers(0, 99, (61, 4))
    columns = {"observations": {"x": x.astype("f4"), "t": np.arange(61)}, "a": np.arange(60, dtype="i4")}
    return from_arrays(columns, lengths=[60]).steps().shuffle(seed=7)


def check_meshes(folder: str) -> None:
    """Compare arrays over 8 devices with the batches of one process, from the start and from a state of it."""
    devices = np.array(jax.devices())
    halves = devices.reshape(2, 4)
    meshes = {
        "rows": Mesh(devices.reshape(8, 1), ("data", "model")),
        "rows and columns": Mesh(devices.reshape(4, 2), ("data", "model")),
        "devices of a process apart": Mesh(halves.T.reshape(8, 1), ("data", "model")),
        "random": Mesh(np.random.default_rng(5).permutation(devices).reshape(4, 2), ("data", "model")),
        "replicas in the other process": Mesh(halves.T, ("data", "model")),
    }
    for name, mesh in meshes.items():
        rows, wide, whole = (NamedSharding(mesh, spec) for spec in (Spec("data"), Spec("data", "model"), Spec()))
        for tree in (rows, {"observations": {"x": wide, "t": rows}, "a": rows}, {"observations": rows, "a": whole}):
            check_loader(Path(folder), tree, rows, whole, name)
    with pytest.raises(PlanError, match="8 equal parts"):
        matrices().loader(12, drop_last=True, output="jax", sharding=NamedSharding(meshes["rows"], Spec("data")))
    if jax.process_count() > 1:
        check_refusals(meshes["rows"])


def check_loader(folder: Path, tree: Any, rows: NamedSharding, whole: NamedSharding, name: str) -> None:
    """Every shard is the part of the batch of one process, and the loader reads no other rows than those."""
    loader = matrices().loader(8, drop_last=True, output="jax", sharding=tree)
    assert (loader.rank, loader.world) == (jax.process_index(), jax.process_count())
    needed = {row for index in addressable(rows) for row in range(8)[index[0]]}
    read = 8 / loader._cursor.source.ranks.times
    assert read == (8 if tree is not rows and tree["a"] is whole else len(needed)), name
    compare(loader, matrices().loader(8, drop_last=True, rank=0, world=1), name)
    loader.load_state_dict(json.loads((folder / "one.json").read_text()))
    compare(loader, rest_of(folder / "one.json"), name)
    loader.set_epoch(1)
    last = [batch for _, batch in zip(range(2), loader, strict=False)][-1]
    state = loader.state_dict()
    assert last.weight == 1
    assert len(loader.why(last.ticket)) == 8
    assert float(jax.jit(lambda batch: batch["observations"]["x"].sum())(last)) == expected_sum(state)
    if tree is rows and jax.process_index() == 0:
        (folder / f"{name}, {jax.process_count()}.json").write_text(json.dumps(state))
    if tree is rows:
        uses = loader.uses(0, until=8).table
        placed = sorted(rows.devices_indices_map((8,)).items(), key=lambda item: item[0].process_index)
        first = [
            next(device.process_index for device, index in placed if row in range(8)[index[0]]) for row in range(8)
        ]
        assert [first[row] for row in uses["row"]] == uses["rank"].tolist()


def addressable(sharding: NamedSharding) -> list[tuple[slice, ...]]:
    return list(sharding.addressable_devices_indices_map((8,)).values())


def rest_of(state: Path) -> Loader[Batch]:
    loader = matrices().loader(8, drop_last=True, rank=0, world=1)
    loader.load_state_dict(json.loads(state.read_text()))
    return loader


def expected_sum(state: dict[str, Any]) -> float:
    loader = matrices().loader(8, drop_last=True, rank=0, world=1)
    loader.set_epoch(1)
    batch = [batch for _, batch in zip(range(2), loader, strict=False)][-1]
    assert loader.state_dict() == state
    return float(batch["observations/x"].sum())


def compare(loader: Loader[Any], alone: Loader[Batch], name: str) -> None:
    for batch, expected in zip(loader, alone, strict=True):
        assert batch.ticket == expected.ticket
        for path, array in expected.flat.items():
            got = batch["a"] if path == "a" else batch["observations"][path[-1]]
            assert got.shape == array.shape
            for shard in got.addressable_shards:
                np.testing.assert_array_equal(shard.data, array[shard.index], err_msg=f"{name}, {path}")
    assert loader.state_dict() == alone.state_dict()


def check_refusals(mesh: Mesh) -> None:
    rows, here = NamedSharding(mesh, Spec("data")), SingleDeviceSharding(jax.local_devices()[0])
    for sharding, options in ((rows, {"rank": 0, "world": 1}), ({"observations": rows, "a": here}, {})):
        with pytest.raises(PlanError, match=r"rank and world|of this one alone"):
            matrices().loader(8, drop_last=True, output="jax", sharding=sharding, **options)
    with pytest.raises(PlanError, match="equal parts"):
        matrices().loader(8, output="jax", sharding=rows)


def dataset() -> MapDataset:
    columns = {"observations": {"x": np.arange(61, dtype="f4")}, "a": np.arange(60, dtype="i4")}
    return from_arrays(columns, lengths=[60]).steps().shuffle(seed=7)


def sharding() -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices()), "rows"), Spec("rows"))


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


def test_a_tree_of_shardings_is_nested_as_the_batch():
    one = sharding()
    data = dataset()
    tuples = list(data.loader(8, output="jax", layout=("a", "observations"), sharding=(one, {"x": one})))
    assert [x for batch in tuples for x in batch.a.tolist()] == data[:]["a"].tolist()
    assert tuples[1].observations["x"].sharding == one
    assert tuples[1].ticket.position == 8
    named = data.loader(8, output="jax", rename={"a": "actions"}, sharding={"observations": one, "actions": one})
    assert next(iter(named))["actions"].sharding == one
    for tree, what in (({"observations": one}, "'a'"), ({"observations": {"y": one}, "a": one}, "in observations")):
        with pytest.raises(SpecError, match=what):
            next(iter(data.loader(8, output="jax", sharding=tree)))
    with pytest.raises(SpecError, match="PartitionSpec"):
        data.loader(8, output="jax", sharding={"observations": None, "a": None})
    counted = data.loader(8, output="jax", layout=lambda batch: {"a": batch["a"], "longest": 3}, sharding=one)
    with pytest.raises(SpecError, match=r"int.* in longest"):
        next(iter(counted))
    with pytest.raises(PlanError, match="alone"):
        data.loader(8, sharding=one)


def test_dtypes_that_jax_does_not_have_are_refused_unless_no_value_changes():
    """Without `jax_enable_x64`, JAX makes 0 of 2 ** 40, and rounds float64, without a word."""
    assert jnp.asarray(np.array([2**40])).tolist() == [0]
    for values in (
        [2**31 - 1, -(2**31)],
        np.array([2**32 - 1], "u8"),
        [True],
        np.zeros(2, "f2"),
        jnp.zeros(2, "bfloat16"),
    ):
        array = np.asarray(values)
        got = to_jax(Columns({"x": array}))["x"]
        assert got.dtype.itemsize <= 4
        assert got.tolist() == array.tolist()
    for values, what in (
        ([2**31], "2147483648 - in x; set jax_enable_x64"),
        (np.array([2**32], "u8"), "in x"),
        ([0.1], "float64 - in x; give the loader float32=True"),
        ([1j], "complex128"),
        (["a"], "numbers for JAX, got <U1"),
        (np.zeros(1, "M8[s]"), "datetime64"),
    ):
        with pytest.raises(SpecError, match=what):
            to_jax(Columns({"x": np.asarray(values)}))
    with jax.enable_x64(True):
        whole = to_jax(Columns({"x": np.array([2**40]), "y": np.array([0.1])}))
        assert (whole["x"].tolist(), whole["y"].tolist()) == ([2**40], [0.1])
    with pytest.raises(SpecError, match="in t/values"):
        to_jax(Columns({"t": Ragged(np.array([2**40]), np.array([0, 1]))}))


def test_batches_are_converted_one_ahead_and_may_be_donated():
    """Arrays are large enough that the loader uses their memory again, and JAX may use donated ones for its results."""
    converted = []
    x = np.random.default_rng(1).normal(size=(400, 2000)).astype("f4")
    data = from_arrays({"x": x}, lengths=[400]).steps().shuffle(seed=2)
    halved = jax.jit(lambda batch: jax.tree.map(lambda array: array * 0.5, batch), donate_argnums=0)
    loader = data.loader(50, threads=2, output="jax", layout=lambda batch: converted.append(1) or dict(batch.flat))
    results = []
    for number, batch in enumerate(loader, 1):
        assert len(converted) == min(number + 1, 8)
        results.append(halved(batch)["x"])
    np.testing.assert_array_equal(np.concatenate(results), data[:]["x"] * np.float32(0.5))


def test_meshes_of_one_and_of_two_processes_have_the_batches_of_one(tmp_path):
    """8 devices of one process, and 4 of each of two. States go from one process to two, and back."""
    first = matrices().loader(8, drop_last=True)
    for _ in zip(range(3), first, strict=False):
        pass
    (tmp_path / "one.json").write_text(json.dumps(first.state_dict()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = []
    for rank, processes in ((0, 2), (1, 2), (0, 1)):
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={8 // processes}"
        command = [sys.executable, "-c", DEVICES, str(rank), str(processes), address, str(tmp_path)]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        )
    told = [process.communicate(timeout=600)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], "\n".join(told)
    saved = list(tmp_path.glob("*, [12].json"))
    assert len(saved) == 2 * 5
    epoch = matrices().loader(8, drop_last=True)
    epoch.set_epoch(1)
    expected = [batch["a"].tolist() for batch in epoch][2:]
    for state in saved:
        assert [batch["a"].tolist() for batch in rest_of(state)] == expected
