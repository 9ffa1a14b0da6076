from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.data import from_arrays
from penstock.errors import PlanError, StateError
from penstock.load import Loader
from penstock.load.torch import TorchDataset, TorchLoader, TorchStream, to_torch

N = 1000


def dataset(seed: int = 0):
    return from_arrays({"observations": {"x": np.arange(N + 1.0)}, "a": np.arange(N)}, [N]).samples().shuffle(seed=seed)


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
    loader = TorchLoader(Loader(dataset(), 64), device="cpu")
    assert len(loader) == 16
    assert rows(loader) == EXPECTED
    assert rows(loader) == dataset().batch(np.arange(N, 2 * N))["a"].tolist()


@pytest.mark.parametrize("stop", [1, 5, 15])
def test_the_torch_loader_resumes_at_the_batch_the_consumer_has(stop):
    first = TorchLoader(Loader(dataset(), 64))
    seen = []
    for number, batch in enumerate(first, start=1):
        seen += batch["a"].tolist()
        if number == stop:
            break
    assert first.state_dict()["position"] == 64 * stop
    second = TorchLoader(Loader(dataset(), 64, threads=0))
    second.load_state_dict(first.state_dict())
    assert seen + rows(second) == EXPECTED
    assert seen + rows(first) == EXPECTED
    with pytest.raises(StateError):
        TorchLoader(Loader(dataset(1), 64)).load_state_dict(first.state_dict())


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_over_batches(workers):
    batches = DataLoader(TorchDataset(dataset(), 64), batch_size=None, num_workers=workers)
    assert rows(batches) == EXPECTED
    assert next(iter(batches))["observations"]["x"].dtype == torch.float64
    later = TorchDataset(dataset(), 64, epoch=1)
    assert rows(later[b] for b in range(len(later))) == dataset().batch(np.arange(N, 2 * N))["a"].tolist()
    with pytest.raises(IndexError):
        later[16]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # PyTorch counts the cores of the machine
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


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own use of PyTorch
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 7])
def test_stateful_data_loader_resumes_bit_for_bit(workers, stop):
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make() -> StatefulDataLoader:
        return StatefulDataLoader(TorchStream(dataset(), 64), batch_size=None, num_workers=workers)

    first = make()
    iterator = iter(first)
    seen = rows([next(iterator) for _ in range(stop)])
    second = make()
    second.load_state_dict(first.state_dict())
    assert seen + rows(second) == EXPECTED


def test_bad_arguments():
    for make in (
        lambda: TorchDataset(dataset(), 0),
        lambda: TorchDataset(dataset(), 4, epoch=-1),
        lambda: TorchStream(dataset(), 0),
    ):
        with pytest.raises(PlanError):
            make()
