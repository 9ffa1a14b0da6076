"""Map-style datasets for the loaders of PyTorch: of whole batches, and of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.sample_blocks import check_batches
from penstock.errors import PlanError, require
from penstock.loading.position_source import PositionSource
from penstock.loading.ranks import check_ranks, ranks
from penstock.loading.torch_tensors import Tensors, to_torch
from penstock.plan.batched import BatchedPlan

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")


class TorchDataset(torch.utils.data.Dataset[Tensors]):
    """Map-style dataset of whole batches, for `DataLoader(TorchDataset(ds, 256), batch_size=None)`.

    Item `b` is this rank's part of batch `b` of one epoch. A `sampler` of PyTorch may reorder batches. To shuffle
    samples, shuffle the dataset.

    A `DistributedSampler`, which Lightning adds, gives each process other items. With several processes, say who splits
    the batches: `rank=0, world=1` if a sampler does, or the numbers of this process if every process reads all items.

    Args:
        dataset: The dataset.
        batch_size: Samples of a batch over all ranks, at least 1.
        drop_last: Whether to drop a short last batch. The default is False.
        epoch: Epoch whose order to use. The default is 0.
        rank: Number of this process. The default is None: 0, in a program of one process.
        world: Number of processes. The default is None: 1, in a program of one process.
        allow_empty: Whether to allow a dataset without a batch. The default is False.

    Raises:
        PlanError: An argument is impossible, the dataset has no batch, or there are several processes and no `rank`.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> batches = torch.utils.data.DataLoader(TorchDataset(data.steps(), 4), batch_size=None)
        >>> [batch["rewards"].tolist() for batch in batches]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(
        self,
        dataset: MapDataset,
        batch_size: int,
        *,
        drop_last: bool = False,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        allow_empty: bool = False,
    ) -> None:
        if epoch < 0:
            raise PlanError(f"expected epoch >= 0, got {epoch}")
        self._source = torch_source(dataset, batch_size, drop_last, rank, world)
        if rank is None and self._source.ranks.world > 1:
            ranks = self._source.ranks
            raise PlanError(
                f"expected rank and world for a TorchDataset in a program of {ranks.world} processes (found in "
                f"{ranks.origin}), got none; give rank=0, world=1 if a sampler splits the batches, as Lightning and "
                f"DistributedSampler do, or rank={ranks.rank}, world={ranks.world} if every process reads all items"
            )
        if not allow_empty:
            check_batches(dataset.plan, batch_size, drop_last=drop_last)
        self.epoch = epoch

    def __len__(self) -> int:
        return self._source.batches(self.epoch)

    def __getitem__(self, b: int) -> Tensors:
        """Load one batch.

        Args:
            b: Number of the batch.

        Raises:
            IndexError: There is no such batch.
        """
        if not 0 <= b < len(self):
            raise IndexError(f"expected a batch within 0:{len(self)}, got {b}")
        rest = self._source.rest(self._source.dataset.plan.start(self.epoch))
        return to_torch(self._source.batch(rest, rest.lo + b * self._source.step)[0])


class TorchSamples(torch.utils.data.Dataset[dict[str, Any]]):
    """Map-style dataset of samples, for trainers that use their own sampler.

    Batches are read in one call and are already `Tensors`, so there is nothing to collate:
    `DataLoader(samples, batch_size=64, sampler=..., collate_fn=samples.collate)`. With the order of the dataset,
    `TorchStream` and `loader` have exact resume and ranks instead.

    Args:
        dataset: The dataset.
        allow_empty: Whether to allow a dataset without samples. The default is False.

    Raises:
        PlanError: The dataset has no samples.

    Example:
        >>> import numpy as np, penstock
        >>> samples = TorchSamples(penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6]).steps())
        >>> batches = torch.utils.data.DataLoader(samples, batch_size=4, collate_fn=samples.collate)
        >>> [batch["rewards"].tolist() for batch in batches]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, dataset: MapDataset, *, allow_empty: bool = False) -> None:
        if not allow_empty:
            check_batches(dataset.plan, 1, drop_last=False)
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Read one sample as nested dicts.

        Args:
            i: Number of the sample.

        Raises:
            IndexError: There is no such sample.
        """
        return self.dataset[i]

    def __getitems__(self, numbers: Sequence[int]) -> Tensors:
        """Read the samples of a batch in one call."""
        return to_torch(self.dataset[list(numbers)])

    @staticmethod
    def collate(batch: Tensors) -> Tensors:
        """Return the output of `__getitems__` unchanged.

        Args:
            batch: Tensors of a batch.
        """
        return batch


def torch_source(
    dataset: MapDataset, batch_size: int, drop_last: bool, rank: int | None, world: int | None
) -> PositionSource:
    """Return this rank's source of the batches of a dataset.

    Args:
        dataset: The dataset.
        batch_size: Samples of a batch over all ranks.
        drop_last: Whether to drop a short last batch.
        rank: Number of this process, or None to detect it.
        world: Number of processes, or None to detect it.

    Returns:
        The source, which cuts the order of the dataset into batches.

    Raises:
        PlanError: An argument is impossible.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps()
        >>> torch_source(data, 2, False, 0, 1).batches(0)
        2
    """
    if batch_size < 1:
        raise PlanError(f"expected batch_size >= 1, got {batch_size}")
    if isinstance(dataset.plan, BatchedPlan):
        raise PlanError('expected a dataset without planned batches; its loader(output="torch") takes them')
    shares = ranks(rank, world)
    check_ranks(dataset.plan, batch_size, shares)
    return PositionSource(planned_samples(dataset), batch_size, drop_last, shares)
