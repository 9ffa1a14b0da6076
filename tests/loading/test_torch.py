from __future__ import annotations

import multiprocessing
import pickle
import sys
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import penstock
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.data import from_arrays
from penstock.data.map_dataset import planned_samples
from penstock.errors import PlanError, StateError
from penstock.files.shared_log import SharedLog
from penstock.loading.cursor import CursorPlace
from penstock.loading.staging import Staging
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.torch import (
    Tensors,
    TorchDataset,
    TorchSamples,
    TorchStream,
    stream_state,
    to_torch,
)
from penstock.loading.worker_epochs import WorkerEpochs

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own use of PyTorch

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


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_over_batches(workers):
    batches = DataLoader(TorchDataset(dataset(), 64), batch_size=None, num_workers=workers)
    assert rows(batches) == EXPECTED
    assert next(iter(batches))["observations"]["x"].dtype == torch.float64
    later = TorchDataset(dataset(), 64, epoch=1)
    assert rows(later[b] for b in range(len(later))) == planned_samples(dataset()).at(np.arange(N, 2 * N))["a"].tolist()
    with pytest.raises(IndexError):
        later[16]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams_keep_the_order_for_any_number_of_workers(workers):
    assert rows(DataLoader(TorchStream(dataset(), 64), batch_size=None, num_workers=workers)) == EXPECTED


def test_a_stream_resumes_through_its_iterator():
    iterator = iter(TorchStream(dataset(), 64))
    seen = rows([next(iterator) for _ in range(6)])
    again = iter(TorchStream(dataset(), 64))
    again.load_state_dict(iterator.state_dict())
    assert seen + rows(again) == EXPECTED
    with pytest.raises(StateError, match="fingerprint"):
        iter(TorchStream(dataset(1), 64)).load_state_dict(iterator.state_dict())


def test_epochs_of_a_stream_count_on_and_can_be_set():
    stream = TorchStream(dataset(), 64)
    second, third = (planned_samples(dataset()).at(np.arange(e * N, (e + 1) * N))["a"].tolist() for e in (1, 2))
    assert [rows(stream), rows(stream)] == [EXPECTED, second]
    stream.set_epoch(2)
    assert rows(stream) == third
    assert len(stream) == 16


def epoch(number: int) -> list[int]:
    return planned_samples(dataset()).at(np.arange(number * N, (number + 1) * N))["a"].tolist()


@pytest.mark.parametrize("kept", [False, True])
def test_workers_count_epochs_together_whether_they_are_kept_or_started_anew(kept):
    stream = TorchStream(dataset(), 64)
    batches = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=kept)
    assert rows(batches) == epoch(0)
    assert rows(islice(batches, 1)) == epoch(1)[:64]
    torch.manual_seed(0)
    assert rows(batches) == epoch(2)
    stream.set_epoch(5)
    torch.manual_seed(0)  # a program that seeds every epoch: the workers have the seeds of those before
    assert rows(batches) == epoch(5)
    assert stream.state_dict()["position"] == 6 * N
    assert len(stream) == 16
    stream.load_state_dict({**stream.state_dict(), "position": 3 * N + 640})
    if kept:
        with pytest.raises(StateError, match="make a new DataLoader after loading"):
            rows(batches)
        return
    stream.set_epoch(3)
    assert [rows(batches), rows(batches)] == [epoch(3)[640:], epoch(4)]


@pytest.mark.parametrize("late", ["first", "second"])
def test_of_two_iterators_at_the_same_time_the_one_that_begins_first_has_the_first_epoch(late, monkeypatch):
    begin = WorkerEpochs.begin
    fork = multiprocessing.get_context("fork")
    other_begun = fork.Event()

    def begin_in_turn(epochs: WorkerEpochs, seed: int, *loaded: int) -> CursorPlace:
        assert started != late or other_begun.wait(60)
        place = begin(epochs, seed, *loaded)
        other_begun.set()
        return place

    monkeypatch.setattr(WorkerEpochs, "begin", begin_in_turn)
    batches = DataLoader(TorchStream(dataset(), 64), batch_size=None, num_workers=2, multiprocessing_context=fork)
    started = "first"  # workers keep the value of the time at which they are forked
    first = iter(batches)
    started = "second"
    second = iter(batches)
    pairs = list(zip(first, second, strict=True))
    found = {"first": rows([a for a, _ in pairs]), "second": rows([b for _, b in pairs])}
    assert found.pop(late) == epoch(1)
    assert list(found.values()) == [epoch(0)]


def test_a_process_that_is_spawned_shares_the_log_and_other_copies_have_their_own():
    log = SharedLog(2)
    log.append(1, 2)
    process = multiprocessing.get_context("spawn").Process(target=log.append, args=(3, 4))
    process.start()
    process.join()
    assert log.read(0) == [(1, 2), (3, 4)]
    assert pickle.loads(pickle.dumps(log)).read(0) == []


class DispatchedByAccelerate:
    """Calls of `DataLoaderDispatcher.__iter__` and `DataLoaderShard.__iter__` of Accelerate 1.15.0 on their dataset."""

    def __init__(self, dataset: Any, loader: DataLoader[Any]) -> None:
        self.dataset, self.loader, self.iteration = dataset, loader, 0

    def set_epoch(self, epoch: int) -> None:
        self.iteration = epoch
        self.loader.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        sys.modules["accelerate.state"].active.append(self)
        self.set_epoch(self.iteration)
        yield from iter(self.loader)
        self.iteration += 1


@pytest.fixture
def accelerate(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The state that Accelerate 1.15.0 has of the DataLoader in use (`accelerate/state.py::GradientState`)."""
    active: list[Any] = [None]
    state = lambda: SimpleNamespace(active_dataloader=active[-1])  # noqa: E731
    monkeypatch.setitem(sys.modules, "accelerate.state", SimpleNamespace(GradientState=state, active=active))
    return active


@pytest.mark.parametrize("nested", [False, True])  # True: IterableDatasetShard, of dispatch_batches=False
def test_accelerate_does_not_split_the_share_of_a_rank_again(accelerate, nested):
    shared = TorchStream(dataset(), 64, rank=0, world=2)
    loader = DataLoader(shared, batch_size=None)
    prepared = DispatchedByAccelerate(SimpleNamespace(dataset=shared) if nested else shared, loader)
    assert len(rows(loader)) == N // 2  # not prepared
    with pytest.raises(PlanError, match=r"rank 0 of 2.*without prepare\(\), or give the TorchStream rank=0, world=1"):
        next(iter(prepared))
    with pytest.raises(PlanError, match="rank 0 of 2"):
        next(iter(loader))
    whole = TorchStream(dataset(), 64, rank=0, world=1)
    assert rows(DispatchedByAccelerate(whole, DataLoader(whole, batch_size=None))) == EXPECTED


def test_accelerate_that_counts_from_0_does_not_throw_a_restored_epoch_away(accelerate):
    first = TorchStream(dataset(), 64)
    rows(first)
    rows(islice(first, 5))
    stream = TorchStream(dataset(), 64)
    prepared = DispatchedByAccelerate(stream, DataLoader(stream, batch_size=None))
    stream.load_state_dict(first.state_dict())
    with pytest.raises(StateError, match=r"expected set_epoch\(1\).*of the DataLoader that Accelerate prepared"):
        next(iter(prepared))
    prepared.set_epoch(1)
    assert [rows(prepared), rows(prepared)] == [epoch(1)[320:], epoch(2)]


@pytest.mark.parametrize(("taken", "following"), [(5, 1), (16, 2)])
def test_stateful_data_loader_refuses_an_epoch_that_its_state_does_not_have(taken, following):
    first = stateful(TorchStream(dataset(), 64), 0)
    rows(first)
    iterator = iter(first)
    rows(islice(iterator, taken))
    again = TorchStream(dataset(), 64)
    loader = stateful(again, 0)
    loader.load_state_dict(first.state_dict())
    again.set_epoch(0)  # as Accelerate 1.15.0 does within `iter()` in a new process, before the state is used
    with pytest.raises(StateError, match=r"expected a state of epoch 0.*set_epoch\(1\) of the DataLoader"):
        iter(loader)
    resumed = TorchStream(dataset(), 64)
    loader = stateful(resumed, 0)
    loader.load_state_dict(first.state_dict())
    resumed.set_epoch(following)  # of the end of an epoch: a trainer that counts steps begins the next one
    rest = epoch(1)[64 * taken :] if following == 1 else epoch(2)
    assert [rows(loader), rows(loader)] == [rest, epoch(following + 1)]


def test_map_style_batches_are_not_split_twice_in_silence(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PlanError, match="rank=0, world=1 if a sampler"):
        TorchDataset(dataset(), 64)
    assert len(TorchDataset(dataset(), 64, rank=0, world=1)[0]["a"]) == 64


def test_a_stream_is_pickled_where_it_stands():
    stream = TorchStream(dataset(), 64)
    stream.set_epoch(3)
    again = pickle.loads(pickle.dumps(stream))
    assert again.state_dict() == stream.state_dict()
    assert rows(again) == rows(stream)


def test_a_stream_takes_the_state_of_a_loader_and_the_loader_its():
    loader = dataset().loader(64, threads=0)
    loader.skip((70, 90))
    seen = [batch["a"].tolist() for _, batch in zip(range(5), loader, strict=False)]
    stream = TorchStream(dataset(), 64, drop_last=True)
    stream.load_state_dict(loader.state_dict())
    iterator = iter(stream)
    after = next(iterator)
    assert after.ticket.position == 64 * 5 + 20
    back = dataset().loader(64, threads=0)
    back.load_state_dict(stream_state(iterator.state_dict()))
    rest = EXPECTED[:70] + EXPECTED[90:]
    assert [x for part in seen for x in part] + rows([after]) + rows(back) == rest


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("stop", [0, 1, 7, 15, 16])
def test_stateful_data_loader_resumes_bit_for_bit(workers, stop):
    first = stateful(TorchStream(dataset(), 64), workers)
    iterator = iter(first)
    seen = rows([next(iterator) for _ in range(stop)])
    second = stateful(TorchStream(dataset(), 64), workers)
    second.load_state_dict(first.state_dict())
    assert seen + rows(second) == EXPECTED


@pytest.mark.parametrize(
    ("before", "after", "stop"), [(2, 3, 1), (2, 3, 14), (3, 0, 7), (0, 2, 7), (3, 2, 7), (3, 2, 14)]
)
def test_stateful_data_loader_goes_on_with_other_workers_and_ranks(before, after, stop):
    seen: list[list[int]] = []
    first = stateful(TorchStream(dataset(), 64), before)
    iterator = iter(first)
    seen = rows([next(iterator) for _ in range(stop)])
    state = stream_state(first.state_dict())
    assert state["position"] == 64 * stop
    shares = []
    for rank in range(2):
        stream = TorchStream(dataset(), 50, rank=rank, world=2)
        stream.load_state_dict(state)
        shares.append([batch["a"].tolist() for batch in stateful(stream, after)])
    assert seen + [x for parts in zip(*shares, strict=True) for part in parts for x in part] == EXPECTED


def test_other_workers_under_the_old_state_are_an_error_that_names_the_way():
    first = stateful(TorchStream(dataset(), 64), 2)
    next(iter(first))
    states = list(_iterator_states(first.state_dict()))
    assert len(states) == 2
    with pytest.raises(StateError, match="stream_state"):
        iter(TorchStream(dataset(), 64)).load_state_dict(states[0])
    late = stateful(TorchStream(dataset(), 64), 2, snapshot_every_n_steps=4)
    iterator = iter(late)
    for _ in range(6):
        next(iterator)
    with pytest.raises(StateError, match="snapshot_every_n_steps=1"):
        stream_state(late.state_dict())
    with pytest.raises(StateError, match="none of its workers"):
        stream_state({"epoch": 1})


def _iterator_states(saved):
    for value in saved.values():
        if isinstance(value, dict):
            yield from [value] if "workers" in value else _iterator_states(value)


def stateful(stream: TorchStream, workers: int, **options):
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(stream, batch_size=None, num_workers=workers, **options)


def test_ranks_share_the_batches_of_datasets_and_streams():
    for kind in (TorchDataset, TorchStream):
        parts = [list(DataLoader(kind(dataset(), 64, rank=rank, world=3), batch_size=None)) for rank in range(3)]
        assert [x for shares in zip(*parts, strict=True) for x in rows(shares)] == EXPECTED
        assert parts[1][0].ticket.position == 64 // 3
    with pytest.raises(PlanError, match="at least 1 for each"):
        TorchStream(dataset(), 2, rank=0, world=3)


def test_batches_of_tensors_carry_tickets_through_workers():
    loader = dataset().loader(64, output="torch")
    tickets = [batch.ticket for batch in loader]
    assert [t.position for t in tickets] == list(range(0, N, 64))
    assert loader.why(tickets[3]).table["position"].tolist() == list(range(192, 256))
    through = [batch.ticket for batch in DataLoader(TorchStream(dataset(), 64), batch_size=None, num_workers=1)]
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


def test_tensors_of_odd_arrays():
    backwards = np.arange(4.0)[::-1]
    batch = Batch({"x": backwards}, ticket=Ticket(0, 4, "0" * 8))
    tensors = to_torch(batch)
    assert tensors["x"].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert tensors.ticket == batch.ticket


def test_samples_for_samplers_of_others():
    samples = TorchSamples(dataset())
    order = list(range(N - 1, -1, -1))
    loader = DataLoader(samples, batch_size=100, sampler=order, collate_fn=samples.collate)
    assert rows(loader) == EXPECTED[::-1]
    assert len(samples) == N
    assert samples[3]["a"] == EXPECTED[3]


def test_bad_arguments():
    for make in (
        lambda: TorchDataset(dataset(), 0),
        lambda: TorchDataset(dataset(), 4, epoch=-1),
        lambda: TorchStream(dataset(), 0),
    ):
        with pytest.raises(PlanError):
            make()
