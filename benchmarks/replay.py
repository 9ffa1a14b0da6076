"""Replay buffers: steps added and samples drawn a second, and memory, of penstock and of other libraries in one run.

    python benchmarks/replay.py [--peer PYTHON] [--entries 100000] [--frames 20000] [--seconds 0.5]

Transitions have 17 float32 of observation and of next observation, 6 of action, a reward and two ends. Frames are
84 x 84 bytes; a sample of frames has a stack of 4 before the step and one after it. `frames_shared` has
`Transitions(shared_frames=True)`, and `frames_copy` is a limit: NumPy copies as many bytes as `frames` has, in order.
Batches have 256 samples,
sequences have 16 steps. Every library gets the same episodes of 200 steps through the fastest call that it documents
(`step` and `step_many`: step by step, of 1 and of 8 environments),
and runs in a process of its own. Speeds are in CPU seconds of the process, so that other work on the machine counts
little; they do not count the stacking of frames for libraries that take stacks. A row is the best of three rounds;
adding is measured once, with the memory that it takes from the system, which was used before. Memory is the growth of
the process while it is filled with frames. A dash is a row that the library does not have.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import figures
import numpy as np

STEPS, WIDTH, ACTIONS, BATCH, SEQUENCE, STACK, LANES = 200, 17, 6, 256, 16, 4, 8
ROWS = (
    "add",
    "step",
    "step_many",
    "uniform",
    "uniform_many",
    "prioritized",
    "update",
    "sequences",
    "frames_add",
    "frames",
    "frames_shared",
    "frames_copy",
    "frames_mb",
)
MANY = 50  # entries of `uniform_many` for one of `uniform`; left out where filling takes minutes
LIBRARIES = ("penstock", "cpprb", "stable_baselines3", "torchrl", "flashbax")
Measured = dict[str, float]


def episode(seed: int) -> dict[str, np.ndarray]:
    """Columns of an episode: T + 1 observations, and T of everything else."""
    rng = np.random.default_rng(seed)
    end = np.arange(STEPS) == STEPS - 1
    return {
        "observations": rng.random((STEPS + 1, WIDTH), np.float32),
        "actions": rng.random((STEPS, ACTIONS), np.float32),
        "rewards": rng.random(STEPS, np.float32),
        "terminations": end,
        "truncations": np.zeros(STEPS, np.bool_),
    }


def steps(n: int, alone: bool = False) -> Iterator[tuple[Any, ...]]:
    """Endless steps of `n` environments with episodes of 200 steps, as a loop has them, or of one without an axis."""
    rng = np.random.default_rng(0)
    rows = rng.random((64, n, WIDTH), np.float32)
    observations = [row[0] if alone else row for row in rows]
    actions, rewards = rng.random((n, ACTIONS), np.float32), rng.random(n, np.float32)
    goes_on, ends = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    for t in range(1 << 40):
        step = actions, observations[(t + 1) % 64], rewards, goes_on, ends if t % STEPS == STEPS - 1 else goes_on
        if alone:
            step = actions[0], step[1], 0.5, False, t % STEPS == STEPS - 1
        yield (observations[t % 64], *step)


def frame_episode(seed: int) -> dict[str, np.ndarray]:
    """The same with frames as observations, and an integer as action."""
    frames = np.random.default_rng(seed).integers(0, 256, (STEPS + 1, 84, 84), np.uint8)
    return {**episode(seed), "observations": frames, "actions": np.zeros(STEPS, np.int64)}


def stacked(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Stacks `[T + 1, 4, 84, 84]` of the frames of an episode; the first frame repeats.

    Other libraries get stacks, which a wrapper of the environment makes. That work is not measured.
    """
    frames = columns["observations"]
    if id(frames) not in _STACKS:
        places = np.maximum(np.arange(len(frames))[:, None] + np.arange(1 - STACK, 1), 0)
        _STACKS[id(frames)] = frames, frames[places]
    return _STACKS[id(frames)][1]


_STACKS: dict[int, tuple[np.ndarray, np.ndarray]] = {}


def rate(work: Callable[[], object], of: int, seconds: float) -> float:
    """Items a CPU second of the best of three rounds, where each call does `of` items."""
    work()
    best = 0.0
    for _ in range(3):
        calls, begin = 0, time.process_time()
        while (spent := time.process_time() - begin) < seconds:
            work()
            calls += 1
        best = max(best, calls * of / spent)
    return best


def memory() -> float:
    """Resident memory of this process in MB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def warm(nbytes: int) -> None:
    """Use memory once, so that a virtual machine has it: the first use of a page costs more than what is measured."""
    np.ones(nbytes, np.uint8)


def filled(add: Callable[[dict[str, np.ndarray]], object], entries: int, make: Any) -> float:
    """Add episodes until there are so many entries. Returns steps a CPU second."""
    some = [make(seed) for seed in range(4)]
    for columns in some:
        if columns["observations"].ndim == 3:
            stacked(columns)
    add(some[0])
    begin = time.process_time()
    for number in range(1, entries // STEPS):
        add(some[number % 4])
    return (entries - STEPS) / (time.process_time() - begin)


def penstock(entries: int, frames: int, seconds: float) -> Iterator[Measured]:
    import penstock as ps

    def spec(columns: dict[str, np.ndarray]) -> ps.Spec:
        align = {"observations": "boundary"}
        fields = {p: ps.Field(a.dtype, a.shape[1:], align.get(p, "step")) for p, a in columns.items()}  # type: ignore[arg-type]
        return ps.Spec(fields)

    def new(make: Any, size: int, **options: Any) -> tuple[Any, float]:
        replay, shape = ps.Replay(None, size, **options), spec(make(0))
        return replay, filled(lambda columns: replay.write(ps.Episode(shape, columns)), size, make)

    replay, added = new(episode, entries)
    yield {"add": added, "uniform": rate(lambda: replay.sample(BATCH), BATCH, seconds)}
    one, many = steps(1, alone=True), steps(LANES)
    replay = ps.Replay(None, entries)
    yield {"step": rate(lambda: replay.add(*next(one)), 1, seconds)}
    replay = ps.Replay(None, entries)
    yield {"step_many": rate(lambda: replay.add(*next(many), autoreset="Disabled"), LANES, seconds)}
    replay, _ = new(episode, MANY * entries)
    yield {"uniform_many": rate(lambda: replay.sample(BATCH), BATCH, seconds)}
    replay, _ = new(episode, entries, sampler=ps.replay.PrioritizedSampler())
    priorities = np.random.default_rng(0).random(BATCH)
    yield {"prioritized": rate(lambda: replay.sample(BATCH), BATCH, seconds)}
    yield {"update": rate(lambda: replay.update(replay.sample(BATCH).ticket, priorities), BATCH, seconds)}
    windows = ps.transforms.Windows(SEQUENCE, columns={"next_observations": ("observations", 1, SEQUENCE + 1)})
    replay, _ = new(episode, entries, samples=windows)
    yield {"sequences": rate(lambda: replay.sample(BATCH), BATCH, seconds)}
    del replay
    before = memory()
    replay, added = new(frame_episode, frames, samples=ps.replay.Transitions(stack=STACK))
    yield {"frames_mb": memory() - before, "frames_add": added}
    yield {"frames": rate(lambda: replay.sample(BATCH), BATCH, seconds)}
    replay, _ = new(frame_episode, frames, samples=ps.replay.Transitions(stack=STACK, shared_frames=True))
    yield {"frames_shared": rate(lambda: replay.sample(BATCH), BATCH, seconds)}
    rows = np.zeros((2 * BATCH * STACK * 5, 84, 84), np.uint8)  # more than caches have
    out, turns = np.empty((2 * BATCH * STACK, 84, 84), np.uint8), itertools.cycle(range(0, len(rows), len(rows) // 5))
    yield {"frames_copy": rate(lambda: np.copyto(out, rows[(at := next(turns)) : at + len(out)]), BATCH, seconds)}


def cpprb(entries: int, frames: int, seconds: float) -> Iterator[Measured]:
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    flat = {"obs": {"shape": WIDTH}, "act": {"shape": ACTIONS}, "rew": {}, "done": {}, "end": {}}

    def adder(buffer: Any, stack: bool = False) -> Callable[[dict[str, np.ndarray]], object]:
        def add(columns: dict[str, np.ndarray]) -> None:
            rows = np.moveaxis(stacked(columns), 1, -1) if stack else columns["observations"]
            names = {"act": "actions", "rew": "rewards", "done": "terminations", "end": "truncations"}
            buffer.add(obs=rows[:-1], next_obs=rows[1:], **{ours: columns[name] for ours, name in names.items()})
            buffer.on_episode_end()

        return add

    buffer = ReplayBuffer(entries, {**flat, "next_obs": {"shape": WIDTH}})
    yield {"add": filled(adder(buffer), entries, episode)}
    yield {"uniform": rate(lambda: buffer.sample(BATCH), BATCH, seconds)}

    def one(step: tuple[Any, ...]) -> None:
        obs, act, following, rew, done, end = step
        buffer.add(obs=obs, act=act, next_obs=following, rew=rew, done=done, end=end)

    for row, n in (("step", 1), ("step_many", LANES)):
        source = steps(n)
        yield {row: rate(lambda source=source: one(next(source)), n, seconds)}
    buffer = ReplayBuffer(MANY * entries, {**flat, "next_obs": {"shape": WIDTH}})
    filled(adder(buffer), MANY * entries, episode)
    yield {"uniform_many": rate(lambda: buffer.sample(BATCH), BATCH, seconds)}
    buffer = PrioritizedReplayBuffer(entries, {**flat, "next_obs": {"shape": WIDTH}})
    filled(adder(buffer), entries, episode)
    priorities = np.random.default_rng(0).random(BATCH)
    yield {"prioritized": rate(lambda: buffer.sample(BATCH), BATCH, seconds)}
    yield {
        "update": rate(lambda: buffer.update_priorities(buffer.sample(BATCH)["indexes"], priorities), BATCH, seconds)
    }
    before = memory()
    shape = {"obs": {"shape": (84, 84, STACK), "dtype": np.uint8}, "act": {}, "rew": {}, "done": {}, "end": {}}
    buffer = ReplayBuffer(frames, shape, next_of="obs", stack_compress="obs")
    added = filled(adder(buffer, stack=True), frames, frame_episode)
    yield {"frames_mb": memory() - before, "frames_add": added}
    yield {"frames": rate(lambda: buffer.sample(BATCH), BATCH, seconds)}


def stable_baselines3(entries: int, frames: int, seconds: float) -> Iterator[Measured]:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    def adder(buffer: Any, stack: bool = False) -> Callable[[dict[str, np.ndarray]], object]:
        def add(columns: dict[str, np.ndarray]) -> None:
            rows = stacked(columns) if stack else columns["observations"]
            for t in range(STEPS):
                at = slice(t, t + 1)
                action, reward, done = columns["actions"][at], columns["rewards"][at], columns["terminations"][at]
                buffer.add(rows[at], rows[t + 1 : t + 2], action, reward, done, [{}])

        return add

    def one(buffer: Any, source: Iterator[tuple[Any, ...]], infos: list[dict[str, Any]]) -> Callable[[], None]:
        def add() -> None:
            obs, act, following, rew, done, _ = next(source)
            buffer.add(obs, following, act, rew, done, infos)

        return add

    state, action = Box(-1, 1, (WIDTH,), np.float32), Box(-1, 1, (ACTIONS,), np.float32)
    buffer = ReplayBuffer(entries, state, action, device="cpu")
    yield {"add": filled(adder(buffer), entries, episode)}
    yield {"uniform": rate(lambda: buffer.sample(BATCH), BATCH, seconds)}
    for row, n in (("step", 1), ("step_many", LANES)):
        buffer = ReplayBuffer(entries, state, action, device="cpu", n_envs=n)
        yield {row: rate(one(buffer, steps(n), [{}] * n), n, seconds)}
    before = memory()
    buffer = ReplayBuffer(frames, Box(0, 255, (STACK, 84, 84), np.uint8), Discrete(2), device="cpu")
    added = filled(adder(buffer, stack=True), frames, frame_episode)
    yield {"frames_mb": memory() - before, "frames_add": added}
    yield {"frames": rate(lambda: buffer.sample(BATCH), BATCH, seconds)}


def torchrl(entries: int, frames: int, seconds: float) -> Iterator[Measured]:
    import torch

    sys.setdlopenflags(os.RTLD_LAZY)  # 0.14.1 lacks a function of PyTorch 2.13, which no sampler calls
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import SliceSampler

    def adder(buffer: Any, stack: bool = False) -> Callable[[dict[str, np.ndarray]], object]:
        number = iter(range(1 << 40))

        def add(columns: dict[str, np.ndarray]) -> None:
            rows = torch.from_numpy(stacked(columns) if stack else columns["observations"])
            done, end = (torch.from_numpy(columns[name])[:, None] for name in ("terminations", "truncations"))
            following = {"observation": rows[1:], "done": done, "terminated": done, "truncated": end}
            following["reward"] = torch.from_numpy(columns["rewards"])[:, None]
            data = {"observation": rows[:-1], "action": torch.from_numpy(columns["actions"]), "next": following}
            data["trajectory"] = torch.full((STEPS,), next(number))
            buffer.extend(TensorDict(data, [STEPS]))

        return add

    torch.set_num_threads(1)  # more threads take more CPU time, and here also more time
    buffer: Any = TensorDictReplayBuffer(storage=LazyTensorStorage(entries), batch_size=BATCH)
    yield {"add": filled(adder(buffer), entries, episode)}
    yield {"uniform": rate(buffer.sample, BATCH, seconds)}
    sampler = SliceSampler(slice_len=SEQUENCE, traj_key="trajectory", cache_values=True)
    storage = LazyTensorStorage(entries)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=BATCH * SEQUENCE)
    filled(adder(buffer), entries, episode)
    yield {"sequences": rate(buffer.sample, BATCH, seconds)}
    del buffer
    before = memory()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(frames), batch_size=BATCH)
    added = filled(adder(buffer, stack=True), frames, frame_episode)
    yield {"frames_mb": memory() - before, "frames_add": added}
    yield {"frames": rate(buffer.sample, BATCH, seconds)}
    del buffer
    storage = LazyTensorStorage(entries)
    buffer = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=storage, batch_size=BATCH)
    filled(adder(buffer), entries, episode)
    priorities = torch.rand(BATCH)

    def update() -> None:
        batch = buffer.sample()
        batch.set("td_error", priorities)
        buffer.update_tensordict_priority(batch)

    yield {"prioritized": rate(buffer.sample, BATCH, seconds), "update": rate(update, BATCH, seconds)}


def flashbax(entries: int, frames: int, seconds: float) -> Iterator[Measured]:
    import flashbax as fbx
    import jax

    def run(buffer: Any, make: Any, size: int, stack: bool = False) -> tuple[Any, Any, float]:
        def row(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            rows = stacked(columns) if stack else columns["observations"]
            names = ("actions", "rewards", "terminations", "truncations")
            return {"observations": rows[:-1], **{name: columns[name] for name in names}}

        state = buffer.init(jax.tree.map(lambda a: a[0], row(make(0))))
        add = jax.jit(buffer.add, donate_argnums=0)
        held = [state]

        def one(columns: dict[str, np.ndarray]) -> None:
            held[0] = add(held[0], jax.tree.map(lambda a: a[None], row(columns)))

        added = filled(one, size, make)
        jax.block_until_ready(held[0])
        return held[0], jax.jit(buffer.sample), added

    def rated(state: Any, sample: Any) -> float:
        keys = iter(jax.random.split(jax.random.key(0), 200_000))
        return rate(lambda: jax.block_until_ready(sample(state, next(keys))), BATCH, seconds)

    options = {"add_batch_size": 1, "sample_batch_size": BATCH, "period": 1, "min_length_time_axis": 256}
    pair = {**options, "sample_sequence_length": 2}
    state, sample, added = run(fbx.make_trajectory_buffer(max_length_time_axis=entries, **pair), episode, entries)
    yield {"add": added, "uniform": rated(state, sample)}
    ranked = fbx.make_prioritised_trajectory_buffer(
        max_length_time_axis=entries, priority_exponent=0.6, device="cpu", **pair
    )
    state, sample, _ = run(ranked, episode, entries)
    yield {"prioritized": rated(state, sample)}
    longer = {**options, "sample_sequence_length": SEQUENCE}
    state, sample, _ = run(fbx.make_trajectory_buffer(max_length_time_axis=entries, **longer), episode, entries)
    yield {"sequences": rated(state, sample)}
    before = memory()
    buffer = fbx.make_trajectory_buffer(max_length_time_axis=frames, **pair)
    state, sample, added = run(buffer, frame_episode, frames, stack=True)
    yield {"frames_mb": memory() - before, "frames_add": added}
    yield {"frames": rated(state, sample)}


def measured(library: str, python: str, words: list[str]) -> Measured:
    """Run one library in a process of its own; the rows that it finished."""
    command = [python, __file__, "--library", library, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows: Measured = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            rows.update(json.loads(line))
    if done.returncode:
        print(f"{library} ended early: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="interpreter with the other libraries")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each of three rounds")
    parser.add_argument("--only", nargs="*", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--library", choices=LIBRARIES, help="measure this one here, and print JSON")
    options = parser.parse_args()
    if options.library:
        warm(options.entries * 21_000)  # 2 GB, unless there are fewer entries than by default
        for row in globals()[options.library](options.entries, options.frames, options.seconds):
            print(json.dumps(row), flush=True)
        return
    words = ["--entries", str(options.entries), "--frames", str(options.frames), "--seconds", str(options.seconds)]
    table: dict[str, Measured] = {}
    for library in options.only:
        python = sys.executable if library == "penstock" else options.peer
        if python is not None:
            table[library] = measured(library, python, words)
    print(f"{'':14}" + "".join(f"{library:>20}" for library in table))
    for library, rows in table.items():
        for row, value in rows.items():
            figures.record(f"{library}.{row}", value, "MB" if row == "frames_mb" else "/s")
    for row, ours in table.get("penstock", {}).items():
        others = [rows[row] for library, rows in table.items() if library != "penstock" and row in rows]
        if others:
            figures.record(f"best.{row}", min(others) / ours if row == "frames_mb" else ours / max(others), "x")
    for row in ROWS:
        values = [table[library].get(row) for library in table]
        print(f"{row:14}" + "".join(f"{'-' if value is None else f'{value:,.0f}':>20}" for value in values))


if __name__ == "__main__":
    main()
