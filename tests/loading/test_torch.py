from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import planned_samples
from penstock.errors import StateError
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.torch import Staging, Tensors, to_torch

N = 1000


def dataset(seed: int = 0):
    return from_arrays({"observations": {"x": np.arange(N + 1.0)}, "a": np.arange(N)}, [N]).steps().shuffle(seed=seed)


EXPECTED = dataset()[:]["a"].tolist()


def rows(batches) -> list[int]:
    return [x for batch in batches for x in batch["a"].tolist()]


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "f2", "f4", "f8", "?", "u2", "u4", "u8", "c8"])
def test_tensors_keep_dtype_and_share_memory(dtype):
    array = np.ones((3, 2), dtype)
    tensor = to_torch(Columns({"x": array}))["x"]
    assert tensor.numpy().dtype == array.dtype
    array[0, 0] = 0
    assert not tensor[0, 0]


def test_ragged_and_read_only_columns():
    fixed = np.arange(2.0)
    fixed.setflags(write=False)
    tensors = to_torch(Columns({"t": Ragged.from_strings(["ab", "c"]), "x": fixed}))
    assert bytes(tensors["t"]["values"].numpy()) == b"abc"
    assert tensors["t"]["offsets"].tolist() == [0, 2, 3]
    assert tensors["x"].tolist() == [0.0, 1.0]


def test_the_torch_loader_is_the_loader():
    loader = dataset().loader(64, output="torch", device="cpu")
    assert len(loader) == 16
    assert rows(loader) == EXPECTED
    assert rows(loader) == planned_samples(dataset()).at(np.arange(N, 2 * N))["a"].tolist()


@pytest.mark.parametrize("stop", [1, 5, 15])
def test_the_torch_loader_resumes_at_the_batch_the_consumer_has(stop):
    first = dataset().loader(64, output="torch")
    seen = []
    for number, batch in enumerate(first, start=1):
        seen += batch["a"].tolist()
        if number == stop:
            break
    assert first.state_dict()["position"] == 64 * stop
    second = dataset().loader(64, threads=0, output="torch")
    second.load_state_dict(first.state_dict())
    assert seen + rows(second) == EXPECTED
    assert rows(first) == planned_samples(dataset()).at(np.arange(N, 2 * N))["a"].tolist()
    with pytest.raises(StateError):
        dataset(1).loader(64, output="torch").load_state_dict(first.state_dict())


def test_batches_of_tensors_carry_tickets_through_workers():
    loader = dataset().loader(64, output="torch")
    tickets = [batch.ticket for batch in loader]
    assert [t.position for t in tickets] == list(range(0, N, 64))
    assert loader.why(tickets[3]).table["position"].tolist() == list(range(192, 256))
    through = [batch.ticket for batch in dataset().loader(64, output="torch").data_loader(num_workers=1)]
    assert through == tickets
    copied = pickle.loads(pickle.dumps(Tensors({"a": torch.ones(1)}, tickets[0])))
    assert (copied.ticket, copied["a"].item()) == (tickets[0], 1.0)
    blocks = penstock.IterDataset.of(dataset(), 64).loader(output="torch")
    assert next(iter(blocks)).ticket is None


def test_the_torch_loader_skips_and_explains():
    loader = dataset().loader(64, output="torch")
    seen = []
    for batch in loader:
        seen += batch["a"].tolist()
        if len(seen) == 128:
            loader.skip((200, 900))
    assert seen == EXPECTED[:200] + EXPECTED[900:]
    assert "hand over" in str(loader.why(batches=4))
    assert loader.stats.samples == len(seen)


@pytest.mark.parametrize("slots", [1, 2])
def test_staging_buffers_are_used_again_and_copies_are_not(slots):
    # On the CPU the path is the same but for page-locked memory and events, which need a device.
    staging = Staging(torch.device("cpu"), pin=False, slots=slots)
    kept, addresses = [], set()
    for i in range(5):
        batch = {
            "x": torch.full((4 - i % 2, 3), float(i)),
            "y/t": torch.arange(i, dtype=torch.int16),
            "b": torch.ones(0),
        }
        kept.append((batch, staging.copied(batch)))
        addresses |= {slot._held["x"].data_ptr() for slot in staging._slots if slot._held}
    assert len(addresses) == slots
    for batch, copy in kept:
        assert all(torch.equal(copy[name], batch[name]) and copy[name].dtype == batch[name].dtype for name in batch)


def test_a_buffer_waits_for_the_copy_that_was_made_of_it_and_for_no_other(monkeypatch):
    """Copies of two batches go on while a third one is staged. Without a device, events and its memory stand in."""
    log: list[tuple[str, int]] = []

    class Event:
        def __init__(self) -> None:
            self.number = sum(word == "copied" for word, _ in log)

        def record(self, _: object) -> None:
            log.append(("copied", self.number))

        def synchronize(self) -> None:
            log.append(("awaited", self.number))

    empty_like = torch.empty_like
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: device)
    monkeypatch.setattr(torch, "empty_like", lambda tensor, **_: empty_like(tensor))
    staging = Staging(torch.device("cuda"), pin=False)
    for i in range(6):
        assert staging.copied({"x": torch.full((3,), i)})["x"].tolist() == [i] * 3
    copies = [("copied", i) for i in range(3)]
    assert log == copies + [step for i in range(3) for step in (("awaited", i), ("copied", 3 + i))]


def test_batches_keep_ticket_and_weight_where_a_data_loader_locks_their_pages(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone())
    batch = next(iter(dataset().loader(64, output="torch", rank=1, world=3)))
    locked = torch.utils.data._utils.pin_memory.pin_memory(batch)
    assert type(locked) is type(batch)
    assert (locked.ticket, locked.weight) == (batch.ticket, batch.weight)
    assert torch.equal(locked["a"], batch["a"])
    assert locked["a"].data_ptr() != batch["a"].data_ptr()
    batch = next(iter(dataset().loader(64, output="torch", rank=1, world=3, layout=("a", "observations/x"))))
    locked = torch.utils.data._utils.pin_memory.pin_memory(batch)
    assert type(locked) is type(batch)
    assert (locked.ticket, locked.weight) == (batch.ticket, batch.weight)
    assert locked.weight != 1
    assert all(
        torch.equal(one, other) and one.data_ptr() != other.data_ptr() for one, other in zip(locked, batch, strict=True)
    )


def test_tensors_of_odd_arrays():
    backwards = np.arange(4.0)[::-1]
    batch = Batch({"x": backwards}, ticket=Ticket(0, 4, "0" * 8))
    tensors = to_torch(batch)
    assert tensors["x"].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert tensors.ticket == batch.ticket


def test_names_that_a_dict_of_tensors_lacks_say_where_they_are() -> None:
    data = penstock.from_arrays({"rewards": np.zeros(4, np.float32)}, lengths=[4])
    batch: Any = next(iter(data.steps().loader(batch_size=3, output="torch")))
    for name, hint in (
        ("rewards", r"; it is the item batch\['rewards'\]$"),
        ("n", "; batch.ticket.count"),
        ("x", "$"),
    ):
        with pytest.raises(AttributeError, match=f"'Tensors' object has no attribute '{name}'.*{hint}"):
            getattr(batch, name)
    assert batch.ticket.count == 3
    assert deepcopy(batch).weight == pickle.loads(pickle.dumps(batch)).weight == 1
