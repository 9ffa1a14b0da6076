"""What recording costs over the bare loop, against Minari's DataCollector in the same run.

    python benchmarks/collect.py --reference-python /path/to/python/with/minari

Five variants are bounds: `seeded resets` are the bare loop with a seed for each episode, `lists` adds appending all
values to lists, which become arrays at the end of an episode, and `plain calls` are the least that any recorder of
single episodes does, see `PlainCalls`. `by hand` makes the promises of `penstock, columns` for CartPole alone, see
`WrittenByHand`. `low-level h5py` writes them as Minari's file has them.

Three variants are steps of `penstock, columns`, each with the one before: `buffers` copies values into columns of their
dtype and shape and cuts out episodes, `checks` finds values outside of their space, `statistics` describe rewards.
On a shared machine, medians of the ratios of 150 runs of 1,500 steps, each after the one of the bare loop, in CPU time:
seeded resets 1.13, lists 1.33, plain calls 1.41, by hand 1.45, buffers 1.37, checks 1.38, statistics 1.38, columns
1.63, Minari's HDF5 2.25. At the machine's fastest moments all are higher: by hand 1.52, columns 1.76.

So a recorder that writes each episode when it ends is at 1.45 to 1.52 if it is written for one environment. Most of
that is no work: callgrind counts 63,000 instructions for a step of the bare loop with its share of a reset, 75,000 by
hand (1.19 times), and 82,000 for `penstock, columns` (1.30 times). The calls of the operating system and code that is
not in the caches, since it runs once an episode, take the rest.

The cost of a step is measured where episodes never end, the cost of an episode is what remains where they do
(random actions: about 22 steps). Every round runs all variants one after the other; the table has medians.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import importlib.util
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ENDLESS = 10**9
LONGEST = 100_000  # steps of an episode that `plain calls` have room for
Runs = list[tuple[dict[str, float], dict[str, float]]]  # a round each: endless, with episodes
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def cartpole(endless: bool):
    import gymnasium

    env: Any = gymnasium.make("CartPole-v1", max_episode_steps=ENDLESS if endless else 500)
    if endless:
        env.unwrapped.x_threshold = env.unwrapped.theta_threshold_radians = np.inf
        env.unwrapped.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)  # none is outside
    return env


def cheetah(endless: bool):
    import gymnasium

    return gymnasium.make("HalfCheetah-v5", max_episode_steps=ENDLESS if endless else 1000)


ENVIRONMENTS = {"CartPole-v1": cartpole, "HalfCheetah-v5": cheetah}


def loop(env: Any, steps: int, clock: Any) -> dict[str, float]:
    """Drive with actions drawn beforehand; seconds and finished episodes."""
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(steps)]
    env.reset(seed=0)
    episodes, start = 0, clock()
    step, reset = env.step, env.reset
    for action in actions:
        *_, terminated, truncated, _ = step(action)
        if terminated or truncated:
            reset()
            episodes += 1
    return {"seconds": clock() - start, "episodes": episodes, "steps": steps}


def record_bare(env: Any, _: Path) -> Any:
    return env


def record_memory(env: Any, _: Path) -> Any:
    from penstock.recording.collector import Collector
    from penstock.recording.memory import MemoryWriter

    return Collector(env, MemoryWriter(), seed=0)


def record_part(env: Any, _: Path, *, checks: bool = False, statistics: bool = False) -> Any:
    """A collector that drops its episodes, before or after a part of what is done to them."""
    from penstock.recording.collector import Collector
    from penstock.recording.hooks import reward_statistics
    from penstock.recording.memory import MemoryWriter

    collector = Collector(env, MemoryWriter(), seed=0, episode_metadata=reward_statistics if statistics else None)
    sink: Any = collector._sink
    sink.flush = sink.pending.clear
    if not checks:
        sink.add = lambda *_: None
    return collector


def record_columns(env: Any, folder: Path) -> Any:
    from penstock.recording.collector import Collector

    return Collector(env, folder / "columns", seed=0)


def record_minari(env: Any, folder: Path) -> Any:
    from penstock.recording.collector import Collector

    return Collector(env, folder / "minari", format="minari", seed=0)


class PlainCalls:
    """The least that saves episodes one by one: rows to arrays, and per episode the calls of the operating system.

    They are those of our store: a write for each of the five columns, for a line of JSON and for an entry of the table,
    with a checksum, under a lock. Nothing is checked, and no statistics are computed.
    """

    def __init__(self, env: Any, folder: Path) -> None:
        self.env, self.action_space = env, env.action_space
        self.rows: list[Any] = [np.empty((LONGEST, 4), np.float32), *np.empty((2, LONGEST))]
        self.files = [os.open(folder / f"{i}", os.O_RDWR | os.O_CREAT) for i in range(7)]
        self.ends, self.i, self.seed = [0] * 7, 0, 0

    def reset(self, seed: int | None = None) -> Any:
        self.seed += 1
        result = self.env.reset(seed=self.seed if seed is None else seed)
        self.rows[0][0] = result[0]
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        i = self.i
        self.rows[0][i + 1], self.rows[1][i], self.rows[2][i] = result[0], action, result[1]
        self.i = i + 1
        if result[2] or result[3]:
            self.save()
        return result

    def save(self) -> None:
        n, self.i = self.i, 0
        parts = [self.rows[0][: n + 1].tobytes(), *(rows[:n].tobytes() for rows in self.rows[1:]), bytes(n), bytes(n)]
        parts += [json.dumps({"seed": self.seed, "steps": n}).encode(), bytes(48)]
        fcntl.flock(self.files[-1], fcntl.LOCK_EX)
        check = 0
        for k, (fd, part) in enumerate(zip(self.files, parts, strict=True)):
            check = zlib.crc32(part, check)
            self.ends[k] += os.pwrite(fd, part, self.ends[k])
        fcntl.flock(self.files[-1], fcntl.LOCK_UN)


class WrittenByHand:
    """What `penstock, columns` promises, for CartPole alone: every step and episode in one function, with no other call
    of Python's, no fields, no other dtypes, one writer.

    Types, dtypes and shapes are compared before a value is copied. Values are compared with their spaces, rewards are
    described, and each episode is in the five files of columns, in the lines of JSON and in the table when its last
    step returns, with the checksums of rows, line and entry, under the lock.
    """

    def __init__(self, env: Any, folder: Path) -> None:
        from penstock.kernels import bounds

        self.env, self.action_space = env, env.action_space
        self.rows = np.empty((LONGEST, 4), np.float32), np.empty(LONGEST, np.int64), np.empty(LONGEST)
        self.cells: list[Any] = [rows.reshape(-1).data for rows in self.rows]
        self.files = [os.open(folder / f"{i}", os.O_RDWR | os.O_CREAT) for i in range(7)]
        self.ends, self.i, self.seed, self.episodes = [0] * 7, 0, 0, 0
        box = env.observation_space
        finite = np.finfo(np.float32)
        self.box = np.maximum(box.low, finite.min), np.minimum(box.high, finite.max)
        self.choices = np.array([0]), np.array([1])
        self.within, self.extremes = bounds.are_within, bounds.extremes
        self.encode = json.JSONEncoder(separators=(",", ":")).encode
        self.entry, self.check = struct.Struct("<IIQQQIII"), struct.Struct("<I")

    def reset(self, seed: int | None = None) -> Any:
        self.seed += 1
        result = self.env.reset(seed=self.seed if seed is None else seed)
        self.cells[0][:4] = result[0]
        return result

    def step(self, action: Any) -> Any:
        i = self.i
        observations, actions, rewards = self.cells
        if type(action) is not np.int64:
            raise TypeError(action)
        actions[i] = action
        result = self.env.step(action)
        observation, reward, terminated, truncated, _ = result
        if type(reward) is not float or type(observation) is not np.ndarray:
            raise TypeError(result)
        rewards[i] = reward
        start = 4 * i + 4
        observations[start : start + 4] = observation  # compares dtype and shape
        self.i = i + 1
        if terminated or truncated:
            self.save(terminated, truncated)
        return result

    def save(self, terminated: bool, truncated: bool) -> None:
        n, self.i = self.i, 0
        observations, actions, rewards = (self.rows[0][: n + 1], self.rows[1][:n], self.rows[2][:n])
        low, high = self.extremes(rewards)
        if not (
            self.within(observations, *self.box)
            and self.within(actions, *self.choices)
            and -1e140 < low <= high < 1e140
        ):
            raise ValueError(self.episodes)
        total, deviation = n * high, 0.0
        if low != high:
            raise NotImplementedError  # CartPole has none
        figures = {"rewards_sum": total, "rewards_mean": total / n, "rewards_std": deviation}
        text = self.encode({"seed": self.seed, **figures, "rewards_max": high, "rewards_min": low}).encode() + b"\n"
        ends = [bytes(n - 1) + bytes([flag]) for flag in (terminated, truncated)]
        parts = [*(rows.tobytes() for rows in (observations, actions, rewards)), *ends, text]
        check = 0
        for k, part in enumerate(parts):
            check = zlib.crc32(part, check)
            self.ends[k] += os.pwrite(self.files[k], part, self.ends[k])
        self.episodes += 1
        body = self.entry.pack(0, self.episodes, self.ends[1], n, self.ends[5], len(text), 0, check)
        table = self.files[6]
        fcntl.flock(table, fcntl.LOCK_EX)
        os.pwrite(table, body + self.check.pack(zlib.crc32(body)), os.lseek(table, 0, os.SEEK_END))
        fcntl.flock(table, fcntl.LOCK_UN)


class SeededResets:
    """The bare loop, where each episode has a seed, as in a recording. The environment makes a generator of it."""

    def __init__(self, env: Any, _: Path) -> None:
        self.env, self.action_space, self.step, self.seed = env, env.action_space, env.step, 0

    def reset(self, seed: int | None = None) -> Any:
        self.seed += 1
        return self.env.reset(seed=self.seed if seed is None else seed)


class Lists(SeededResets):
    """Values of an episode in lists, and then in arrays. Nothing is copied, checked or written."""

    def __init__(self, env: Any, folder: Path) -> None:
        super().__init__(env, folder)
        self.step = self.recorded

    def reset(self, seed: int | None = None) -> Any:
        result = super().reset(seed)
        self.rows: list[list[Any]] = [[result[0]], [], [], [], []]
        return result

    def recorded(self, action: Any) -> Any:
        result = self.env.step(action)
        observations, actions, rewards, terminations, truncations = self.rows
        observations.append(result[0])
        actions.append(action)
        rewards.append(result[1])
        terminations.append(result[2])
        truncations.append(result[3])
        if result[2] or result[3]:
            self.save([np.stack(observations), *map(np.array, self.rows[1:])])
        return result

    def save(self, columns: list[Any]) -> None:
        """Take the columns of an episode."""


class LowLevelH5py(Lists):
    """The calls of h5py's low-level interface that make the group of an episode as Minari's file has it.

    All property lists, spaces and types are made once, the file is flushed to the operating system after each episode,
    and nothing protects it from a kill in the middle of that.
    """

    def __init__(self, env: Any, folder: Path) -> None:
        super().__init__(env, folder)
        h5py: Any = importlib.import_module("h5py")
        self.h5, self.file, self.episodes = h5py, h5py.h5f.create(os.fsencode(folder / "main_data.hdf5")), 0
        self.scalar = h5py.h5s.create(h5py.h5s.SCALAR)
        self.types = {name: h5py.h5t.py_create(np.dtype(name), logical=True) for name in ("?", "i8", "f4", "f8")}

    def save(self, columns: list[Any]) -> None:
        group = self.h5.h5g.create(self.file, b"episode_%d" % self.episodes)
        self.h5.h5g.create(group, b"infos")
        names = (b"observations", b"actions", b"rewards", b"terminations", b"truncations")
        for name, column in zip(names, columns, strict=True):
            column_type = self.types[column.dtype.str[1:].replace("b1", "?")]
            data = self.h5.h5d.create(group, name, column_type, self.h5.h5s.create_simple(column.shape))
            data.write(self.h5.h5s.ALL, self.h5.h5s.ALL, column)
        rewards = columns[2]
        numbers = {b"id": self.episodes, b"total_steps": len(rewards), b"seed": self.seed}
        figures = (rewards.sum(), rewards.mean(), rewards.std(), rewards.max(), rewards.min())
        numbers |= dict(
            zip((b"rewards_%s" % name for name in (b"sum", b"mean", b"std", b"max", b"min")), figures, strict=True)
        )
        for name, number in numbers.items():
            value = np.asarray(number)
            self.h5.h5a.create(group, name, self.types[value.dtype.str[1:]], self.scalar).write(value)
        self.h5.h5f.flush(self.file)
        self.episodes += 1


def record_reference(env: Any, folder: Path) -> Any:
    minari: Any = importlib.import_module("minari")
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    return minari.DataCollector(env)


PARTS = {
    "penstock, buffers": record_part,
    "penstock, checks": partial(record_part, checks=True),
    "penstock, statistics": partial(record_part, checks=True, statistics=True),
}
BOUNDS = ("seeded resets", "lists", "plain calls", "by hand", "low-level h5py", *PARTS)
VARIANTS = {
    "bare": record_bare,
    "seeded resets": SeededResets,
    "lists": Lists,
    "plain calls": PlainCalls,
    "by hand": WrittenByHand,
    "low-level h5py": LowLevelH5py,
    **PARTS,
    "penstock, memory": record_memory,
    "penstock, columns": record_columns,
    "penstock, minari hdf5": record_minari,
    "reference": record_reference,
    "reference's bare": record_bare,
}


def measure(variant: str, name: str, endless: bool, steps: int, clock: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        env = VARIANTS[variant](ENVIRONMENTS[name](endless), Path(folder))
        return loop(env, steps, CLOCKS[clock])


def measure_elsewhere(python: str, *arguments: Any) -> dict[str, float]:
    """The same in another interpreter, where the reference is installed (-P: benchmarks/minari.py is not it)."""
    command = [python, "-P", "-W", "ignore", __file__, "--worker", json.dumps(arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def rounds(name: str, options: argparse.Namespace) -> dict[str, Runs]:
    """For each variant, a pair of measurements (endless, with episodes) a round."""
    here = [variant for variant in VARIANTS if not variant.startswith("reference")]
    if name != "CartPole-v1":
        here = [variant for variant in here if variant not in BOUNDS]
    if importlib.util.find_spec("h5py") is None and "low-level h5py" in here:
        here.remove("low-level h5py")
    if not has_format("columns"):
        here.remove("penstock, columns")
    if not has_format("minari"):
        here.remove("penstock, minari hdf5")
    elsewhere = ["reference's bare", "reference"] if options.reference_python else []
    found: dict[str, Runs] = {variant: [] for variant in (*here, *elsewhere)}
    for _ in range(options.rounds):
        for variant, pairs in found.items():
            run = measure if variant in here else partial(measure_elsewhere, options.reference_python)
            endless, ending = (run(variant, name, kind, options.steps, options.clock) for kind in (True, False))
            pairs.append((endless, ending))
    return found


def has_format(name: str) -> bool:
    from penstock.formats.base.format import available

    return name in available()


def table(name: str, found: dict[str, Runs]) -> None:
    import figures  # not on top: the reference's interpreter runs this file without its folder

    print(f"\n{name}: over the bare loop of the same round")
    print(f"{'':24} {'us/step':>9} {'+ us/step':>10} {'+ us/episode':>13} {'all, ratio':>11}")
    for variant, pairs in found.items():
        bare = found["reference's bare" if variant == "reference" else "bare"]
        rows = [overhead(mine, base) for mine, base in zip(pairs, bare, strict=True)]
        total, step, episode, ratio = (statistics.median(column) for column in zip(*rows, strict=True))
        for figure, value, unit in (
            ("all", total / 1e6, "s"),
            ("step", step / 1e6, "s"),
            ("episode", episode / 1e6, "s"),
            ("ratio", ratio, "x"),
        ):
            figures.record("_".join(re.findall(r"\w+", f"{name} {variant}")) + f".{figure}", value, unit)
        print(f"{variant:24} {total:9.2f} {step:10.2f} {episode:13.1f} {ratio:10.2f}x")


def overhead(
    mine: tuple[dict[str, float], dict[str, float]], bare: tuple[dict[str, float], dict[str, float]]
) -> tuple[float, float, float, float]:
    """Microseconds a step in all, more a step, more an episode, and the ratio of loops with episodes."""
    per_step = [1e6 * run["seconds"] / run["steps"] for run in (*mine, *bare)]
    step = per_step[0] - per_step[2]
    episode = (per_step[1] - per_step[3] - step) * mine[1]["steps"] / max(mine[1]["episodes"], 1)
    return per_step[1], step, episode, per_step[1] / per_step[3]


def vector(options: argparse.Namespace, n: int = 16) -> None:
    """Sixteen CartPoles at once: more for a step of one of them."""
    import gymnasium

    from penstock.recording.memory import MemoryWriter
    from penstock.recording.vector import VectorCollector

    def run(collect: bool) -> float:
        envs = gymnasium.make_vec("CartPole-v1", n, vectorization_mode="sync")
        envs = VectorCollector(envs, MemoryWriter(), seed=0) if collect else envs
        envs.reset(seed=0)
        actions = np.random.default_rng(0).integers(0, 2, (options.steps // n, n))
        start = CLOCKS[options.clock]()
        for row in actions:
            envs.step(row)
        return 1e6 * (CLOCKS[options.clock]() - start) / actions.size

    pairs = [(run(False), run(True)) for _ in range(options.rounds)]
    bare, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    import figures

    figures.record("vector.step", (ours - bare) / 1e6, "s")
    print(f"\nCartPole-v1 x {n}, vectorised: bare {bare:.2f} us, recorded {ours:.2f} us for a step of one environment")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference-python", help="an interpreter with minari; without it only penstock is measured")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(*json.loads(options.worker))))
        return
    for name in ENVIRONMENTS:
        if name.startswith("HalfCheetah") and importlib.util.find_spec("mujoco") is None:
            print(f"\n{name}: not measured, mujoco is not installed", file=sys.stderr)
            continue
        table(name, rounds(name, options))
    vector(options)


if __name__ == "__main__":
    main()
