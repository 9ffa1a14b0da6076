"""Batches of tensors from datasets, in the form of the original's loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.errors import PlanError, require
from penstock.loading.loader import Loader
from penstock.loading.ticket import Batch
from penstock.loading.torch_tensors import Tensors, to_torch
from penstock.plan.weights import Weight
from penstock_imitation.il_representations.data.read_dataset import Epoch, ILRDataset, InterleavedDataset, Stage
from penstock_imitation.il_representations.data.samples import Planned

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def pairs_of(batch: Batch) -> Tensors:
    """Return a batch of pairs in the original's form.

    It has tensors `context`, `target` and `extra_context` (`[]` where the pairs have none) `[n, ...]`, and
    `traj_ts_ids`, a list of two tensors `[n]`.
    """
    tensors = to_torch(batch)
    pair = {name: tensors.get(name, []) for name in ("context", "target", "extra_context")}
    return Tensors({**pair, "traj_ts_ids": list(tensors["traj_ts_ids"].unbind(1))}, tensors.ticket)


def datasets_to_loader(
    datasets: Sequence[ILRDataset],
    *,
    batch_size: int,
    nominal_length: int | Epoch,
    shuffle: bool = True,
    shuffle_buffer_size: int = 1024,
    max_workers: int = 1,
    preprocessors: Sequence[Stage | Planned] = (),
    drop_last: bool = True,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    weights: Sequence[Weight] | None = None,
    seed: int = 0,
) -> Loader[Tensors] | DataLoader[Any]:
    """Return a loader of batches from interleaved datasets, after piping `preprocessors` to each dataset.

    If the last preprocessor is a pair constructor of this package, and all others are extractors, the result is a
    `Loader`. It loads whole batches on `max_workers` threads, `shuffle` permutes all samples of each dataset, and
    `state_dict` is exact. Otherwise, or with a `collate_fn`, the result is PyTorch's `DataLoader` with `max_workers`
    processes and a shuffle buffer of `shuffle_buffer_size` samples. See `InterleavedDataset` for `nominal_length`
    (samples in an epoch) and `weights`; `seed` seeds the shuffle.
    """
    opened: list[ILRDataset] = []
    for number, dataset in enumerate(datasets):
        piped = reduce(ILRDataset.pipe, preprocessors, dataset)
        opened.append(piped.shuffle(shuffle_buffer_size, seed=seed * len(datasets) + number) if shuffle else piped)
    mixed = InterleavedDataset(opened, nominal_length, weights=weights)
    if drop_last and len(mixed) < batch_size:
        raise PlanError(f"expected a whole batch of {batch_size} in an epoch of {len(mixed)}; or drop_last=False")
    if mixed.pairs is not None and collate_fn is None:
        return mixed.pairs.loader(batch_size, output=pairs_of, drop_last=drop_last, threads=max_workers)
    loader: Any = require("torch.utils.data", "torch").DataLoader
    return loader(mixed, batch_size, num_workers=max_workers, drop_last=drop_last, collate_fn=collate_fn)
