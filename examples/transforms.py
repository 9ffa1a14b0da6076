"""Augmented pairs: transforms of images in `map`, the same for any batch size, any threads and any point of resuming.

Run it: `python examples/transforms.py`. It needs penstock and torch.

There are two ways. `CropAndFlip` is written for batches: it takes its random numbers from the keys that `map` hands
in, a key a row, and does all rows at once. `Seeded` takes any transform of one image that draws from torch's own
generator, as those of `torchvision.transforms.v2` do, and seeds that generator by the row's key:

    from torchvision.transforms import v2

    pairs.map(Seeded(v2.Compose([v2.RandomResizedCrop(84), v2.RandomHorizontalFlip()]), "context"), seed=0)

Either changes one column; context and target get draws of their own by two maps with two seeds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import penstock
from penstock_imitation.target_pairs import TargetPairs

Keys = np.ndarray[Any, np.dtype[np.uint64]]


class CropAndFlip:
    """Every image moved by up to `pad` pixels, what is left open repeated from its edge; half of them mirrored."""

    def __init__(self, pad: int, column: str) -> None:
        self.pad, self.column = pad, column

    def __repr__(self) -> str:  # part of the dataset's fingerprint
        return f"CropAndFlip({self.pad}, {self.column!r})"

    def __call__(self, columns: penstock.Columns, keys: Keys) -> penstock.Columns:
        images = torch.from_numpy(columns[self.column])  # [n, C, H, W], no copy
        height, width = images.shape[2:]
        draw = [torch.from_numpy((keys >> np.uint64(at) & np.uint64(0xFFFF)).astype(np.int64)) for at in (48, 32, 16)]
        down, right, flip = draw[0] % (2 * self.pad + 1), draw[1] % (2 * self.pad + 1), draw[2] % 2 == 1
        x = (torch.arange(width) + right[:, None] - self.pad).clamp(0, width - 1)
        x = torch.where(flip[:, None], x.flip(1), x)[:, None, :]
        y = (torch.arange(height) + down[:, None] - self.pad).clamp(0, height - 1)[:, :, None]
        moved = images[torch.arange(len(images))[:, None, None], :, y, x]  # [n, H, W, C]
        return columns.merged({self.column: moved.permute(0, 3, 1, 2).contiguous().numpy()})


class Seeded:
    """Any transform of one image `[C, H, W]` that draws from torch's generator, seeded for each row by its key.

    There is one generator in a process: the loader's threads take turns here, and a training step that draws from it
    meanwhile, for dropout say, would come between. Load with `threads=0` then, or write the transform for batches.
    """

    _turn = threading.Lock()

    def __init__(self, transform: Callable[[torch.Tensor], torch.Tensor], column: str) -> None:
        self.transform, self.column = transform, column

    def __repr__(self) -> str:  # a function's name, or what an object prints as: transforms of torchvision say all
        return f"Seeded({getattr(self.transform, '__qualname__', self.transform)}, {self.column!r})"

    def __call__(self, columns: penstock.Columns, keys: Keys) -> penstock.Columns:
        done: list[torch.Tensor] = []
        with self._turn, torch.random.fork_rng(devices=[]):
            for image, key in zip(torch.from_numpy(columns[self.column]), keys.tolist(), strict=True):
                torch.manual_seed(key)
                done.append(self.transform(image))
        return columns.merged({self.column: torch.stack(done).numpy()})


def erased(image: torch.Tensor) -> torch.Tensor:
    """A transform in torchvision's manner: a square of the image becomes black, at random."""
    top, left = torch.randint(0, 24, (2,)).tolist()
    image = image.clone()
    image[:, top : top + 8, left : left + 8] = 0
    return image


def toy(episodes: int = 20, steps: int = 30) -> penstock.EpisodeDataset:
    """A bright square that wanders over 32 x 32 pixels."""
    rng = np.random.default_rng(0)
    at = np.cumsum(rng.integers(-1, 2, (episodes * (steps + 1), 2)), axis=0) % 24
    rows = np.arange(32)
    inside = [(rows >= at[:, i, None]) & (rows < at[:, i, None] + 8) for i in (0, 1)]
    images = (inside[0][:, :, None] & inside[1][:, None, :])[:, None].astype(np.uint8) * 255
    images = np.repeat(images, 3, axis=1)
    return penstock.from_arrays(
        {"observations": images, "actions": np.zeros(episodes * steps, int)}, [steps] * episodes
    )


def main() -> None:
    pairs = toy().apply(TargetPairs("temporal", 2, last=True)).shuffle(seed=0)
    augmented = pairs.map(CropAndFlip(4, "context"), seed=1).map(CropAndFlip(4, "target"), seed=2)
    augmented = augmented.map(Seeded(erased, "context"), seed=3)
    print(augmented)

    def epoch(batch_size: int, threads: int) -> list[Any]:
        loader = augmented.loader(batch_size, threads=threads)
        batches = [batch["context"] for batch in loader]
        return np.concatenate(batches).tolist()

    for batch in augmented.loader(batch_size=64):
        print(batch["context"].shape, batch["target"].shape, batch["traj_ts_ids"][0])
        break
    print("other batches and threads, the same images:", epoch(64, 0) == epoch(50, 3))


if __name__ == "__main__":
    main()
