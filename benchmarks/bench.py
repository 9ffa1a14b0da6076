"""Twelve things that people wait for, of penstock, NumPy and another library on the same files: about three minutes.

    python benchmarks/bench.py [--rounds 3] [--seconds 0.5] [--only ROW ...] [--against CHECKOUT]

Data are made first: 200 episodes of 1,000 steps (17 float64, 6 float32, a reward), as our store, as Minari's HDF5 and
as flat `.npy` files, which NumPy maps. Every cell is measured in a process of its own and the best of the rounds
counts, by the clock; sides of a row take turns, so that other work on the machine meets all of them. Memory is the most
that the process of penstock had, files that it maps included. `--against` measures another checkout of penstock beside
this one: a ratio below 1 is slower than there, and below 0.9 the exit code is 1. Claim: none but that.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import figures
import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
EPISODES, STEPS, BATCH, WINDOW, PACK = 200, 1000, 256, 16, 2048
WIDTHS = {"observations": (17, "f8"), "actions": (6, "f4"), "rewards": (0, "f8")}
SLOWER = 0.9  # of a row of `--against`: more than noise


def flat(folder: Path) -> dict[str, Any]:
    """The columns as NumPy maps them: `[EPISODES * STEPS, ...]`."""
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in WIDTHS}


def make(folder: Path) -> None:
    """Write the data of all rows."""
    import penstock

    rng, total = np.random.default_rng(0), EPISODES * STEPS
    columns: dict[str, Any] = {
        name: rng.random((total, width) if width else total).astype(dtype) for name, (width, dtype) in WIDTHS.items()
    }
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column)
    lengths = [STEPS] * EPISODES
    penstock.convert(penstock.from_arrays(columns, lengths=lengths), folder / "store", format="columns")
    # Minari's files need ends, and a last observation beyond the steps: the first one once more.
    columns["terminations"] = np.zeros(total, np.bool_)
    columns["truncations"] = np.arange(total) % STEPS == STEPS - 1
    rows = columns["observations"].reshape(EPISODES, STEPS, -1)
    columns["observations"] = np.concatenate([rows, rows[:, :1]], 1).reshape(-1, rows.shape[2])
    penstock.convert(penstock.from_arrays(columns, lengths=lengths), folder / "minari-v0", format="minari")


@dataclass(frozen=True)
class Measurement:
    """How long a side works after a first call, which opens, compiles and warms."""

    seconds: float

    def rate(self, work: Callable[[], int]) -> float:
        """Items a second of `work`, which returns how many it did."""
        work()
        done, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < self.seconds:
            done += work()
        return done / spent

    def batches(self, batches: Any, of: int = BATCH) -> float:
        """Samples a second of an endless iterable of batches."""
        drawn = iter(batches)

        def some() -> int:
            for _ in range(10):
                next(drawn)
            return 10 * of

        return self.rate(some)


def seconds_of(*words: str) -> float:
    """Runs a second of a command in a process of its own."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return 1 / (time.perf_counter() - begin)


def info_penstock(folder: Path, _: Measurement) -> float:
    return seconds_of("-m", "penstock", "info", str(folder / "minari-v0"))


def info_numpy(_: Path, __: Measurement) -> float:
    return seconds_of("-c", "import numpy")


def info_h5py(folder: Path, _: Measurement) -> float:
    return seconds_of("-c", f"import h5py; print(list(h5py.File({str(folder / 'minari-v0/data/main_data.hdf5')!r})))")


def first_penstock(folder: Path, _: Measurement) -> float:
    samples = f"penstock.open({str(folder / 'store')!r}).windows({WINDOW}).shuffle(seed=0)"
    return seconds_of("-c", f"import penstock; next(iter({samples}.loader(batch_size={BATCH})))")


def first_numpy(folder: Path, _: Measurement) -> float:
    rows = f"np.random.default_rng(0).permutation({EPISODES * STEPS - WINDOW})[:{BATCH}, None] + np.arange({WINDOW})"
    return seconds_of("-c", f"import numpy as np; {mapped(folder)}[{rows}]")


def first_torch(folder: Path, _: Measurement) -> float:
    batches = f"DataLoader({mapped(folder)}.copy(), batch_size={BATCH}, shuffle=True)"
    return seconds_of("-c", f"import numpy as np; from torch.utils.data import DataLoader; next(iter({batches}))")


def mapped(folder: Path) -> str:
    return f"np.load({str(folder / 'observations.npy')!r}, mmap_mode='r')"


def loader(samples: Any, size: int = BATCH) -> Any:
    return samples.shuffle(seed=0).repeat().loader(batch_size=size, threads=2)


def transitions_penstock(folder: Path, measure: Measurement) -> float:
    import penstock

    return measure.batches(loader(penstock.open(folder / "store").steps()))


def transitions_numpy(folder: Path, measure: Measurement) -> float:
    return measure.batches(fancy(flat(folder), np.zeros(1, np.int64)))


def fancy(columns: dict[str, Any], offsets: Any) -> Any:
    """Endless shuffled batches by fancy indexing: of rows, or of windows where `offsets` are many."""
    rng = np.random.default_rng(0)
    starts = np.flatnonzero(np.arange(EPISODES * STEPS) % STEPS <= STEPS - len(offsets))
    while True:
        order = rng.permutation(starts)
        for lo in range(0, len(order) - BATCH, BATCH):
            rows = (order[lo : lo + BATCH, None] + offsets).squeeze()  # `[BATCH]` or `[BATCH, window]`
            yield {name: column[rows] for name, column in columns.items()}


def in_torch(folder: Path, width: int) -> Any:
    """A DataLoader with two workers over the maps, as a tutorial writes it."""
    import torch

    columns = flat(folder)

    class Rows(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return EPISODES * STEPS - width + 1

        def __getitem__(self, i: int) -> Any:
            rows = i if width == 1 else slice(i, i + width)
            return {name: np.array(column[rows]) for name, column in columns.items()}

    return torch.utils.data.DataLoader(Rows(), BATCH, shuffle=True, num_workers=2)


def transitions_torch(folder: Path, measure: Measurement) -> float:
    return measure.batches(in_torch(folder, 1))


def minari_penstock(folder: Path, measure: Measurement) -> float:
    import penstock

    return measure.batches(loader(penstock.open(folder / "minari-v0").steps().select_columns(*WIDTHS)))


def minari_h5py(folder: Path, measure: Measurement) -> float:
    """A transition is a read of a row of each dataset."""
    import h5py

    file: Any = h5py.File(folder / "minari-v0" / "data" / "main_data.hdf5")
    rng = np.random.default_rng(0)

    def some() -> int:
        for _ in range(BATCH):
            episode, row = file[f"episode_{rng.integers(EPISODES)}"], rng.integers(STEPS)
            for name in WIDTHS:
                episode[name][row]
        return BATCH

    return measure.rate(some)


def windows_penstock(folder: Path, measure: Measurement) -> float:
    import penstock

    return measure.batches(loader(penstock.open(folder / "store").windows(WINDOW)))


def windows_numpy(folder: Path, measure: Measurement) -> float:
    return measure.batches(fancy(flat(folder), np.arange(WINDOW)))


def windows_torch(folder: Path, measure: Measurement) -> float:
    return measure.batches(in_torch(folder, WINDOW))


def episodes(read: Callable[[int], object]) -> Callable[[], int]:
    order = np.random.default_rng(0).integers(0, EPISODES, 50).tolist()

    def some() -> int:
        for e in order:
            read(e)
        return len(order)

    return some


def episodes_penstock(folder: Path, measure: Measurement) -> float:
    import penstock

    data = penstock.open(folder / "store")
    return measure.rate(episodes(lambda e: data[e]))


def episodes_of_minari(folder: Path, measure: Measurement) -> float:
    import penstock

    data = penstock.open(folder / "minari-v0")
    return measure.rate(episodes(lambda e: data[e]))


def many_penstock(folder: Path, measure: Measurement) -> float:
    import penstock

    data = penstock.open(folder / "minari-v0")
    order = np.random.default_rng(0).integers(0, EPISODES, 50)

    def some() -> int:
        return len(list(data[order]))

    return measure.rate(some)


def many_numpy(folder: Path, measure: Measurement) -> float:
    """Copies of parts of flat arrays, kept until all are there."""
    columns = flat(folder)
    order = np.random.default_rng(0).integers(0, EPISODES, 50).tolist()

    def some() -> int:
        parts = [slice(e * STEPS, (e + 1) * STEPS) for e in order]
        return len([{name: np.array(column[part]) for name, column in columns.items()} for part in parts])

    return measure.rate(some)


def episodes_numpy(folder: Path, measure: Measurement) -> float:
    columns = flat(folder)
    return measure.rate(
        episodes(lambda e: {name: np.array(column[e * STEPS : (e + 1) * STEPS]) for name, column in columns.items()})
    )


def episodes_h5py(folder: Path, measure: Measurement) -> float:
    import h5py

    file: Any = h5py.File(folder / "minari-v0" / "data" / "main_data.hdf5")
    return measure.rate(episodes(lambda e: {name: file[f"episode_{e}"][name][:] for name in WIDTHS}))


def sequences() -> tuple[Any, list[int]]:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(250), 1.0, 20_000), 1, PACK).astype(np.int64)
    return np.arange(lengths.sum(), dtype=np.int32), lengths.tolist()


def packs_penstock(_: Path, measure: Measurement) -> float:
    import penstock

    tokens, lengths = sequences()
    data = penstock.from_arrays({"tokens": tokens}, lengths=lengths).sequences()
    return measure.batches(data.shuffle(seed=0).pack(PACK).repeat().loader(batch_size=8, threads=2), 8)


def packs_numpy(_: Path, measure: Measurement) -> float:
    """Sequences in a random order, one after the other into rows of tokens, segments and positions: a plain loop."""
    tokens, lengths = sequences()
    starts, rng = np.concatenate([[0], np.cumsum(lengths)]).tolist(), np.random.default_rng(0)

    def some() -> int:
        order: list[int] = rng.permutation(len(lengths))[:2000].tolist()
        rows, filled = [np.zeros((3, PACK), np.int32)], 0
        for e in order:
            n = lengths[e]
            if filled + n > PACK:
                rows.append(np.zeros((3, PACK), np.int32))
                filled = 0
            place = slice(filled, filled + n)
            rows[-1][0, place] = tokens[starts[e] : starts[e] + n]
            rows[-1][1, place] = e + 1
            rows[-1][2, place] = np.arange(n)
            filled += n
        np.stack(rows)
        return len(rows)

    return measure.rate(some)


def steps() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"observations": rng.random((STEPS + 1, 17), np.float32), "actions": rng.random((STEPS, 6), np.float32)}


def replay_penstock(_: Path, measure: Measurement) -> float:
    import penstock

    columns = {name: np.concatenate([column] * 100) for name, column in steps().items()}
    end = np.arange(100 * STEPS) % STEPS == STEPS - 1
    columns |= {"rewards": np.zeros(len(end), np.float32), "terminations": end, "truncations": ~end & False}
    replay = penstock.Replay(None, capacity=len(end))
    replay.write_all(penstock.from_arrays(columns, lengths=[STEPS] * 100))
    return measure.batches(replay.sample(BATCH) for _ in iter(int, 1))


def replay_sb3(_: Path, measure: Measurement) -> float:
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import ReplayBuffer

    columns = steps()
    buffer = ReplayBuffer(100 * STEPS, Box(0, 1, (17,), np.float32), Box(0, 1, (6,), np.float32), "cpu")
    for _e in range(100):
        for t in range(STEPS):
            observation, following = columns["observations"][t : t + 2]
            buffer.add(observation, following, columns["actions"][t], np.zeros(1), np.zeros(1), [{}])
    return measure.batches(buffer.sample(BATCH) for _ in iter(int, 1))


def cartpole(env: Any, measure: Measurement) -> float:
    """Steps a second of random actions."""
    actions = np.random.default_rng(0).integers(0, 2, 1000).tolist()
    env.reset(seed=0)

    def some() -> int:
        for action in actions:
            *_, terminated, truncated, _info = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return measure.rate(some)


def recording_penstock(folder: Path, measure: Measurement) -> float:
    import gymnasium

    import penstock

    path = tempfile.mkdtemp(dir=folder)
    env: Any = penstock.record(gymnasium.make("CartPole-v1"), Path(path) / "recorded", seed=0)
    rate = cartpole(env, measure)
    env.close()
    return rate


def recording_bare(_: Path, measure: Measurement) -> float:
    import gymnasium

    return cartpole(gymnasium.make("CartPole-v1"), measure)


def statistics_penstock(folder: Path, measure: Measurement) -> float:
    import penstock

    data = penstock.open(folder / "store")

    def all_rows() -> int:
        penstock.statistics(data)
        return EPISODES * STEPS

    return measure.rate(all_rows)


def statistics_numpy(folder: Path, measure: Measurement) -> float:
    columns = flat(folder)

    def all_rows() -> int:
        for column in columns.values():
            for figure in (np.mean, np.std, np.min, np.max):
                figure(column, axis=0)
            np.quantile(column, (0.01, 0.1, 0.5, 0.9, 0.99), axis=0)
        return EPISODES * STEPS

    return measure.rate(all_rows)


Side = Callable[[Path, Measurement], float]


@dataclass(frozen=True)
class Row:
    """A line of the table: the work of penstock, of NumPy, and of a library that must be installed."""

    what: str
    unit: str
    penstock: Side
    numpy: Side | None = None
    other: Side | None = None
    library: str = ""

    def sides(self) -> dict[str, Side]:
        """Sides that can run here by their names."""
        sides = {"penstock": self.penstock, "NumPy": self.numpy, self.library: self.other}
        return {name: side for name, side in sides.items() if side and installed(name)}


def installed(name: str) -> bool:
    return find_spec({"NumPy": "numpy", "bare loop": "gymnasium", "PyTorch": "torch"}.get(name, name)) is not None


ROWS = {
    "info": Row("`penstock info` of a dataset, process and all", "s", info_penstock, info_numpy, info_h5py, "h5py"),
    "first": Row("first batch of windows, process and all", "s", first_penstock, first_numpy, first_torch, "PyTorch"),
    "transitions": Row(
        "random transitions, our store", "/s", transitions_penstock, transitions_numpy, transitions_torch, "PyTorch"
    ),
    "minari": Row("random transitions, Minari's HDF5", "/s", minari_penstock, transitions_numpy, minari_h5py, "h5py"),
    "windows": Row("random windows of 16", "/s", windows_penstock, windows_numpy, windows_torch, "PyTorch"),
    "episodes": Row("whole episodes at random", "/s", episodes_penstock, episodes_numpy, episodes_h5py, "h5py"),
    "minari_episodes": Row(
        "whole episodes at random, Minari's HDF5", "/s", episodes_of_minari, episodes_numpy, episodes_h5py, "h5py"
    ),
    "many": Row("50 whole episodes at a time, Minari's HDF5", "/s", many_penstock, many_numpy, episodes_h5py, "h5py"),
    "packs": Row("packed rows of 2,048 tokens", "/s", packs_penstock, packs_numpy),
    "replay": Row("transitions from replay", "/s", replay_penstock, other=replay_sb3, library="stable_baselines3"),
    "recording": Row(
        "steps of CartPole, recorded", "/s", recording_penstock, other=recording_bare, library="bare loop"
    ),
    "statistics": Row("statistics, steps", "/s", statistics_penstock, statistics_numpy),
}


def measured(row: str, side: str, folder: Path, seconds: float, checkout: Path = ROOT) -> tuple[float, float]:
    """Measure a side of a row in a process of its own: its rate, and its most memory in MB."""
    paths = [str(path) for path in (checkout / "src", *sorted((checkout / "packages").glob("*/src")))]
    words = [sys.executable, __file__, "--measure", row, side, str(folder), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    rate, megabytes = json.loads(done.stdout.splitlines()[-1])
    return rate, megabytes


def shown(rate: float, unit: str) -> str:
    return figures.shown(figures.Figure(1 / rate if unit == "s" else rate, unit, ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each cell is measured a round")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="a checkout to compare with")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        row, side, folder, seconds = options.measure
        rate = ROWS[row].sides()[side](Path(folder), Measurement(float(seconds)))
        who = resource.RUSAGE_CHILDREN if ROWS[row].unit == "s" else resource.RUSAGE_SELF
        print(json.dumps([rate, resource.getrusage(who).ru_maxrss / 1024]))
        return 0
    zlib, memcpy = figures.yardsticks()
    print(f"{figures.machine()}; zlib unpacks {zlib:.0f} MB/s, one thread copies {memcpy:.1f} GB/s")
    table = Table("", *("penstock", "memory", "NumPy", "ratio", "other", "", "ratio"))
    if options.against:
        table.add_column("other checkout")
    slower = False
    with tempfile.TemporaryDirectory() as temporary, Console(stderr=True).status("making data") as status:
        folder = Path(temporary)
        make(folder)
        for name in options.only:
            row = ROWS[name]
            cells = {side: (side, ROOT) for side in row.sides()}
            if options.against:
                cells["before"] = "penstock", options.against.resolve()
            best, memory = dict.fromkeys(cells, 0.0), 0.0
            for _ in range(options.rounds):
                for side, (measures, checkout) in cells.items():
                    status.update(f"{row.what}: {side}")
                    rate, megabytes = measured(name, measures, folder, options.seconds, checkout)
                    best[side] = max(best[side], rate)
                    memory = max(memory, megabytes * (side == "penstock"))
            keep(name, row, best, memory)
            table.add_row(*texts(row, best, memory))
            slower |= best["penstock"] < SLOWER * best.get("before", 0)
    Console(width=150).print(table)
    return int(slower)


def keep(name: str, row: Row, best: dict[str, float], memory: float) -> None:
    """Record the figures of a row: of penstock, its memory, and the ratio to each other side."""
    ours = best["penstock"]
    figures.record(name, 1 / ours if row.unit == "s" else ours, row.unit)
    figures.record(f"{name}.memory", memory * 1e6, "B")
    for side in best.keys() - {"penstock", "before"}:
        figures.record(f"{name}.{side.replace(' ', '_')}", ours / best[side], "x")


def texts(row: Row, best: dict[str, float], memory: float) -> list[str]:
    """The cells of a row of the table."""
    ours = best["penstock"]
    cells = [row.what, shown(ours, row.unit), f"{memory:,.0f} MB"]
    for side in ("NumPy", row.library):
        if side == row.library:
            cells.append(side)
        if side in best:
            cells += [shown(best[side], row.unit), f"{ours / best[side]:,.2f} x"]
        else:
            cells += ["not installed" if side and side == row.library else "", ""]
    return [*cells, f"{ours / best['before']:.2f} x"] if "before" in best else cells


if __name__ == "__main__":
    raise SystemExit(main())
