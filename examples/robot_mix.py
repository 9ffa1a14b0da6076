"""A policy that learns from four robot datasets at once: a LeRobot video dataset behind a URL, an RLDS folder, a Minari
HDF5 dataset and a Zarr replay buffer.

    python examples/robot_mix.py --data DIR [--url URL] [--checkpoint run.pt] [--out curve.png]

`DIR` has the datasets under the names in `PLACES`; `tests/golden` of penstock is such a folder, and the default. `URL`
is where the LeRobot dataset is served; without it, the one in `DIR` is read. Windows of each dataset are packed into
rows, and rows are mixed in exact shares. A run with a checkpoint that was killed goes on from it, and ends with the
same model as a run that was not.
"""

from __future__ import annotations

import argparse
import os
import signal
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import nn

import penstock

PLACES = {  # where each dataset is, and its column of pictures
    "lerobot": ("lerobot/v3_video", "observations/images/top"),
    "rlds": ("rlds/tfrecord", "observations/image"),
    "minari": ("minari/0.5.4/hdf5-image-v0", "observations"),
    "zarr": ("zarr/pusht.zarr.zip", "observations/img"),
}
SHARES = {"lerobot": 0.4, "rlds": 0.3, "minari": 0.1, "zarr": 0.2}  # of all rows
WINDOW, ROW = 2, 8  # steps
SIDE, ACTIONS = 16, 8  # pixels of a picture; numbers of the longest action
DATA = Path(__file__).parents[1] / "tests" / "golden"


@dataclass(frozen=True)
class SmallPictures:
    """The pictures of an episode's steps at one size, every n-th pixel. They are decoded once, and then kept."""

    column: str

    def __call__(self, episode: penstock.Episode) -> np.ndarray:
        pictures = np.asarray(episode.columns[self.column])[: len(episode)]
        height, width = pictures.shape[1:3]
        return pictures[:, np.arange(SIDE) * height // SIDE][:, :, np.arange(SIDE) * width // SIDE]


def numbers(episode: penstock.Episode) -> np.ndarray:
    """`[T, n]` the numbers of an episode's actions."""
    return np.asarray(episode.columns["actions"]).reshape(len(episode), -1).astype(np.float32)


def wide_actions(episode: penstock.Episode) -> np.ndarray:
    """`[T, ACTIONS]` actions, with zeros behind."""
    taken = numbers(episode)
    return np.pad(taken, ((0, 0), (0, ACTIONS - taken.shape[1])))


def used_numbers(episode: penstock.Episode) -> np.ndarray:
    """`[T, ACTIONS]` which numbers of the actions count."""
    taken = numbers(episode)
    return np.broadcast_to(np.arange(ACTIONS) < taken.shape[1], (len(taken), ACTIONS))


def mixed(data: Path, url: str | None = None) -> penstock.MapDataset:
    """Packed windows of all datasets, in exact shares, without end."""
    parts: dict[str, penstock.MapDataset] = {}
    for seed, (name, (place, picture)) in enumerate(PLACES.items()):
        episodes = penstock.open(url if name == "lerobot" and url else data / place)
        episodes = episodes.with_column("pictures", SmallPictures(picture))
        episodes = episodes.with_column("wide_actions", wide_actions).with_column("used", used_numbers)
        windows = episodes.windows(WINDOW).select_columns("pictures", "wide_actions", "used")
        parts[name] = windows.pack(ROW, seed=0).shuffle(seed=seed)
    return penstock.mix(parts, SHARES, stop="never", label="robot")


class Policy(nn.Module):
    """Actions from a picture and the number of the robot."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten())
        self.robots = nn.Embedding(len(PLACES), 16)
        self.act = nn.Sequential(nn.Linear(16 * 9 + 16, 64), nn.ReLU(), nn.Linear(64, ACTIONS))

    def forward(self, pictures: torch.Tensor, robots: torch.Tensor) -> torch.Tensor:
        """`[n, steps, actions]`."""
        n, steps = pictures.shape[:2]
        seen = self.see(pictures.flatten(0, 1).movedim(-1, 1).float() / 255)
        known = self.robots(robots).repeat_interleave(steps, 0)
        return self.act(torch.cat([seen, known], 1)).reshape(n, steps, ACTIONS)


def loss_of(policy: Policy, batch: penstock.Columns) -> torch.Tensor:
    """Mean squared error of the actions that were taken."""
    columns = ("pictures", "robot", "wide_actions", "used", "segment_ids")
    pictures, robots, actions, used, segments = (torch.from_numpy(batch[name]) for name in columns)
    counts = used & (segments > 0)[..., None]
    return nn.functional.mse_loss(policy(pictures, robots)[counts], actions[counts])


def train(
    rows: penstock.MapDataset, updates: int, checkpoint: Path | None = None, die_at: int | None = None
) -> tuple[Policy, list[float], list[int]]:
    """Train, from a checkpoint on if there is one. Return the policy, all losses, and the rows of each robot."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums by several threads may differ in the last bit from run to run
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    losses = list[float]()
    counts = [0] * len(PLACES)
    loader = rows.loader(batch_size=20, threads=2)
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint)
        policy.load_state_dict(saved["policy"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        losses, counts = saved["losses"], saved["counts"]
    for batch in islice(loader, updates - len(losses)):
        loss = loss_of(policy, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        counts = [
            n + int(more) for n, more in zip(counts, np.bincount(batch["robot"], minlength=len(PLACES)), strict=True)
        ]
        if checkpoint:
            state = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
            torch.save({**state, "losses": losses, "counts": counts}, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)
        if len(losses) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
    return policy, losses, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the datasets")
    parser.add_argument("--url", help="where the LeRobot dataset is served")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--checkpoint", type=Path, help="file to save to, and to go on from")
    parser.add_argument("--die-at", type=int, help="the update after which the process kills itself")
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    args = parser.parse_args()
    _, losses, counts = train(mixed(args.data, args.url), args.updates, args.checkpoint, args.die_at)
    shares = ", ".join(f"{name} {n}" for name, n in zip(PLACES, counts, strict=True))
    print(f"loss {np.mean(losses[:10]):.3f} at first, {np.mean(losses[-10:]):.3f} at last; rows of {shares}")
    if args.out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        axes.plot(losses, lw=0.8)
        axes.set(xlabel="update", ylabel="squared error of actions")
        figure.savefig(args.out)


if __name__ == "__main__":
    main()
