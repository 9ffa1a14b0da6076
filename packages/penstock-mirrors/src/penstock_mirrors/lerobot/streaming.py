"""`StreamingLeRobotDataset`: items of a dataset in a shuffled order, from disk or behind a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ArgumentError, require
from penstock_mirrors.lerobot.arguments import RepoType, depth_unit, refuse_downloads
from penstock_mirrors.lerobot.metadata import LeRobotDatasetMetadata
from penstock_mirrors.lerobot.reading import ItemOptions, chosen_episodes, items_of, open_frames

if TYPE_CHECKING:
    import torch
    from torch.utils.data import IterableDataset

    _Iterable = IterableDataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Iterable = torch.utils.data.IterableDataset

_BLOCK = 32  # frames next to each other that are read together
_BATCH = 32  # items that are loaded at a time


class StreamingLeRobotDataset(_Iterable):
    """Items of a LeRobot dataset of version 2.0, 2.1 or 3.0, each once an epoch, loaded ahead by threads.

    Blocks of frames that are next to each other are shuffled, and then the frames of the blocks that `buffer_size`
    holds. So each part of a file is read once. In a `DataLoader`, worker processes share the items of an epoch.
    """

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        episodes: Sequence[int] | None = None,
        image_transforms: Callable[[torch.Tensor], torch.Tensor] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        streaming: bool = True,
        buffer_size: int = 1000,
        max_num_shards: int = 16,
        seed: int = 42,
        rng: np.random.Generator | None = None,
        shuffle: bool = True,
        return_uint8: bool = False,
        depth_output_unit: str = "mm",
        *,
        repo_type: RepoType = "dataset",
        token: str | bool | None = None,
    ) -> None:
        super().__init__()
        refuse_downloads(revision, force_cache_sync, token)
        if buffer_size < 1:
            raise ArgumentError(f"expected buffer_size of at least 1, got {buffer_size}")
        self.meta = LeRobotDatasetMetadata(repo_id, root, repo_type=repo_type)
        self.meta.rescale_depth_stats(depth_output_unit)
        self.repo_type = repo_type
        self.repo_id = repo_id
        self.root = self.meta.root
        self.episodes = chosen_episodes(self.meta, episodes)
        self.image_transforms = image_transforms
        self.delta_timestamps = delta_timestamps
        self.tolerance_s = tolerance_s
        self.revision = revision
        self.streaming = streaming
        self.buffer_size = buffer_size
        self.max_num_shards = max_num_shards
        self.seed = seed
        self.rng = rng
        self.shuffle = shuffle
        self._options = ItemOptions(delta_timestamps, image_transforms, return_uint8, depth_unit(depth_output_unit))
        self._epoch = 0
        self._frames = open_frames(self.meta, self.episodes, delta_timestamps, tolerance_s)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the items of an epoch. In a worker process of a `DataLoader`, the share of this worker."""
        block = min(_BLOCK, self.buffer_size)
        order = self._frames.samples.shuffle(self._next_seed(), block=block, pool=max(self.buffer_size // block, 1))
        worker = torch.utils.data.get_worker_info()
        rank, world = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for batch in order.loader(batch_size=_BATCH * world, rank=rank, world=world):
            yield from items_of(batch, self.meta, self._options)

    def _next_seed(self) -> int:
        if not self.shuffle:
            return self.seed
        if self.rng is not None:
            return int(self.rng.integers(1 << 32))
        self._epoch += 1
        return int(np.random.SeedSequence([self.seed, self._epoch]).generate_state(1)[0])

    @property
    def num_frames(self) -> int:
        """Number of frames of all episodes of the dataset."""
        return self.meta.total_frames

    @property
    def num_episodes(self) -> int:
        return self.meta.total_episodes

    @property
    def depth_output_unit(self) -> str:
        """Unit of depth in items and `meta.stats`: `"m"` or `"mm"`."""
        return self._options.depth_unit

    @property
    def fps(self) -> float:
        """Frames a second."""
        return self.meta.fps
