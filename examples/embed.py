"""Embeddings of a camera's pictures, added to a LeRobot dataset by a network that each process loads once.

    cd examples
    penstock map DATA embed:Embed OUT --column observations/embedding \
        --drop observations/images --format lerobot --jobs 4 --resource cpus=2

`DATA` is any LeRobot dataset with the column `CAMERA`; `tests/golden/lerobot/v3_video` of penstock is one. `OUT` has
the embeddings instead of the pictures, so training from it decodes no video. With GPUs: `--runner ray --resource
gpus=1`. `python embed.py DATA OUT` does the same in one run, and compares.

The network here has random weights that follow from a seed. Load your own in `__init__`.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import nn

import penstock

CAMERA, EMBEDDING = "observations/images/top", "observations/embedding"
SIDE, SIZE, BATCH = 32, 64, 256  # pixels of a side, numbers of an embedding, pictures of a batch


class Embed:
    """A function from an episode to `[T, SIZE]` embeddings of its pictures."""

    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.network = nn.Sequential(
                nn.Conv2d(3, 16, 5, stride=3), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten()
            ).append(nn.Linear(32 * 4 * 4, SIZE))
        self.network.to(self.device).eval()

    @torch.no_grad()
    def __call__(self, episode: penstock.Episode) -> np.ndarray:
        pictures = np.asarray(episode.columns[CAMERA])
        return np.concatenate([self.embed(pictures[i : i + BATCH]) for i in range(0, len(pictures), BATCH)])

    def embed(self, pictures: np.ndarray) -> np.ndarray:
        """`[n, SIZE]` of `[n, height, width, 3]` pictures."""
        pixels = torch.tensor(pictures, device=self.device).permute(0, 3, 1, 2).float() / 255
        return self.network(nn.functional.interpolate(pixels, (SIDE, SIDE))).cpu().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out")
    places = parser.parse_args()
    mapped = penstock.open(places.data).map_episodes(Embed, column=EMBEDDING)
    report = mapped.write(places.out, format="lerobot", drop=["observations/images"])
    print(f"{report.episodes} episodes, {report.steps} steps, {report.format}")
    written, embed = penstock.open(places.out), Embed()
    steps = written.steps().loader(32, threads=0)
    print("a batch:", next(iter(steps))[EMBEDDING].shape)
    same = [
        np.array_equal(embed(before), after.columns[EMBEDDING]) for before, after in zip(mapped, written, strict=True)
    ]
    print("equal to the network:", all(same))


if __name__ == "__main__":
    main()
