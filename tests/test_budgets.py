"""Calls and memory of one batch of each walk, against a stored budget. Times say little on a shared machine; these say
that a change has made a batch ten frames longer. Who lowers a number on purpose lowers the budget."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import penstock

GOLDEN = Path(__file__).parent / "golden"
TEN = [7, 3, 90, 7, 12, 55, 54, 1, 0, 99]  # episodes at random
ROOM = 1.1  # other versions of Python and NumPy call a little more


class Budget(NamedTuple):
    """Calls of functions, also of those in C, and the most memory in kB that was added at a time."""

    calls: int
    kilobytes: int


def counted(walk: Callable[[], object]) -> Budget:
    """Measure the second call of a walk: the first one compiles and fills caches."""
    walk()
    calls = 0

    def profile(_frame: Any, event: str, _value: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        walk()
    finally:
        sys.setprofile(None)
    tracemalloc.start()
    try:
        walk()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return Budget(calls - 1, -(-peak // 1000))  # without the call that ends the count


def episodes() -> penstock.EpisodeDataset:
    rng = np.random.default_rng(0)
    columns = {"observations": rng.random((1100, 17)), "actions": rng.random((1000, 6)), "rewards": rng.random(1000)}
    return penstock.from_arrays(columns, lengths=[10] * 100)


def epoch(samples: penstock.MapDataset, size: int = 64) -> Callable[[], object]:
    loader = samples.loader(batch_size=size, threads=0)
    return lambda: sum(1 for _ in loader)


def opened() -> Callable[[], object]:
    def walk() -> None:
        with penstock.open(GOLDEN / "minari" / "0.5.4" / "hdf5-image-v0") as data:
            len(data)

    return walk


def replayed() -> Callable[[], object]:
    replay = penstock.Replay(None, capacity=1000)
    replay.write_all(episodes())
    return lambda: [replay.sample(64) for _ in range(20)]


def converted(folder: Path) -> Callable[[], object]:
    data, numbers = episodes(), iter(range(100))
    return lambda: penstock.convert(data, folder / str(next(numbers)), format="columns")


def stored(folder: Path) -> penstock.EpisodeDataset:
    penstock.convert(episodes(), folder / "store", format="columns")
    return penstock.open(folder / "store")


def listed(data: penstock.EpisodeDataset) -> list[penstock.Episode]:
    return list(data[TEN])


def videos() -> Callable[[], object]:
    data = penstock.open(GOLDEN / "lerobot" / "v3_video")
    return epoch(data.windows(2), 4)


class Still(gymnasium.Env[Any, Any]):
    """Episodes of twenty steps in which nothing happens."""

    observation_space = gymnasium.spaces.Box(np.array([-9.0, -np.inf], "f4"), np.array([9.0, np.inf], "f4"))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.left = 20
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}


def recorded(folder: Path, format: str) -> Callable[[], object]:
    env = penstock.record(Still(), folder / f"{format}-v0", seed=0, format=format)

    def walk() -> None:
        env.reset()
        for _ in range(20):
            env.step(1)

    return walk


def test_walks_stay_within_their_budgets(tmp_path: Path) -> None:
    walks: dict[str, tuple[Callable[[], object], Budget]] = {
        "open": (opened(), Budget(8091, 746)),
        "one episode": (partial(episodes().__getitem__, 3), Budget(117, 5)),
        "one episode of a store": (partial(stored(tmp_path).__getitem__, 3), Budget(52, 2)),
        "ten episodes": (partial(listed, episodes()), Budget(432, 36)),
        "windows, 11 batches": (epoch(episodes().windows(4).shuffle(seed=0)), Budget(1677, 251)),
        "packs, 9 batches": (epoch(episodes().sequences().shuffle(seed=0).pack(32), 4), Budget(2407, 258)),
        "replay, 20 batches": (replayed(), Budget(1402, 458)),
        "video, all batches": (videos(), Budget(19961, 159)),
        "record, an episode": (recorded(tmp_path, "columns"), Budget(330, 5)),
        "record, an episode for Minari": (recorded(tmp_path, "minari"), Budget(487, 13)),
        "convert, 100 episodes": (converted(tmp_path), Budget(36447, 508)),
    }
    measured = {name: counted(walk) for name, (walk, _) in walks.items()}
    over = {
        name: (spent, walks[name][1])
        for name, spent in measured.items()
        if any(mine > ROOM * most for mine, most in zip(spent, walks[name][1], strict=True))
    }
    assert over == {}
