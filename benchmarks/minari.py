"""Reading and writing beside the installed Minari: same files, same run, as ratios.

    python benchmarks/minari.py --reference-python PATH [--scale 1.0] [--seconds 2] [--out DIR]

`PATH` is a Python that has `minari[all]==0.5.4` and Pillow; its figures come from `minari_reference.py`, run beside.
Backs the tables "Minari" of the page on benchmarks: iterating, one episode by index, many at random, random batches of
transitions and windows, images, writing, and the bytes a short episode costs. NumPy copies the same rows out of memory
maps. The fastest round counts, of ours and of the reference, because other work on the machine only adds time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
import figures
import minari_reference

import penstock
from penstock.core.spaces import Box, Discrete
from penstock.formats.base.format import named

KINDS = ("cheetah", "small", "image")


@dataclass
class Row:
    """One line of the table: ours against the peer, in `unit` a second (or bytes), the aim, and what NumPy takes for
    the same rows out of memory maps of flat files."""

    what: str
    ours: float
    peer: float | None
    unit: str
    aim: str
    numpy: float | None = None

    @property
    def beside(self) -> tuple[str, str]:
        return ("", "") if self.numpy is None else (f"{self.numpy:,.0f}", f"{self.ours / self.numpy:.2f} x")

    @property
    def ratio(self) -> str:
        return "" if not self.peer else f"{self.ours / self.peer:,.1f} x"


def named_figure(what: str) -> str:
    """The figure's name of a row: `iterate our store` of `cheetah: iterate our store` is `iterate_our_store`."""
    return "_".join(re.findall(r"\w+", what.partition(":")[2]))


class Reference:
    """A running interpreter with the reference in it, asked one task at a time."""

    def __init__(self, python: str, root: Path) -> None:
        self.root = root
        script = str(Path(minari_reference.__file__))  # -P: this folder has a minari.py of its own
        self.process = subprocess.Popen(
            [python, "-P", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"root": str(self.root), **request}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"the reference stopped while it was asked for {request}")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def record(row: Row, name: str) -> Row:
    """Record a row's figure and its ratios to Minari and NumPy; return the row."""
    unit = "B" if row.unit.startswith("bytes") else "/s"
    figures.record(name, row.ours, unit)
    if row.peer:
        figures.record(f"{name}.reference", row.peer, unit)
        figures.record(f"{name}.ratio", row.ours / row.peer, "x")
    if row.numpy:
        figures.record(f"{name}.numpy", row.ours / row.numpy, "x")
    return row


def spec_of(kind: str) -> penstock.Spec:
    if kind == "image":
        bounds = np.zeros((84, 84, 4)), np.full((84, 84, 4), 255)
        spaces = Box(*bounds, np.dtype("uint8")), Discrete(6)
    else:
        wide = np.full(17 if kind == "cheetah" else 4, np.inf)
        spaces = Box(-wide, wide, np.dtype("float64")), Box(-wide[:6], wide[:6], np.dtype("float32"))
        if kind == "small":
            spaces = spaces[0], Box(np.full(6, -np.inf), np.full(6, np.inf), np.dtype("float32"))
    observations, actions = minari_reference_row(kind)
    fields = {
        "observations": penstock.Field(observations[0], observations[1], "boundary"),
        "actions": penstock.Field(actions[0], actions[1]),
        "rewards": penstock.Field(np.dtype("f8")),
        "terminations": penstock.Field(np.dtype("?")),
        "truncations": penstock.Field(np.dtype("?")),
    }
    return penstock.Spec(fields, *spaces)


def minari_reference_row(kind: str) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    if kind == "image":
        return (np.dtype("u1"), (84, 84, 4)), (np.dtype("i8"), ())
    return (np.dtype("f8"), (17 if kind == "cheetah" else 4,)), (np.dtype("f4"), (6,))


def episodes(kind: str, scale: float) -> Iterator[penstock.Episode]:
    spec = spec_of(kind)
    for e, (observations, actions, rewards) in enumerate(minari_reference.episodes(kind, scale)):
        steps = len(rewards)
        columns = {
            "observations": observations,
            "actions": actions,
            "rewards": rewards,
            "terminations": np.zeros(steps, np.bool_),
            "truncations": np.arange(steps) == steps - 1,
        }
        yield penstock.Episode(spec, columns, e, {"seed": e})


def rate(task: Callable[[], int], seconds: float) -> float:
    task()  # warm: pages, kernels, index
    best, begun = 0.0, time.perf_counter()
    while time.perf_counter() - begun < seconds or best == 0:
        start = time.perf_counter()
        best = max(best, task() / (time.perf_counter() - start))
    return best


def iterate(data: penstock.EpisodeDataset) -> int:
    return sum(len(episode.rewards) for episode in data)


def by_index(data: penstock.EpisodeDataset, order: list[int]) -> int:
    for i in order:
        data[i]
    return len(order)


def at_random(data: penstock.EpisodeDataset, order: list[int]) -> int:
    """Read 50 episodes at a time."""
    return sum(len(list(data[order[i : i + 50]])) for i in range(0, len(order), 50))


def copied_by_numpy(store: Path, kind: str, order: list[int]) -> int:
    """The same by copies of parts of memory maps, of episodes of one length."""
    maps = mapped(store, kind)
    episodes = len(maps["observations"]) - len(maps["rewards"])  # each has one more observation
    rows = {name: len(column) // episodes for name, column in maps.items()}
    for i in range(0, len(order), 50):
        [
            {name: np.array(column[e * rows[name] : (e + 1) * rows[name]]) for name, column in maps.items()}
            for e in order[i : i + 50]
        ]
    return len(order)


def mapped(store: Path, kind: str) -> dict[str, Any]:
    folder = store / "segments" / "0"
    return {
        name: np.memmap(folder / f"{name}.values", field.dtype, "r").reshape(-1, *field.shape)
        for name, field in spec_of(kind).items()
    }


def batches(dataset: penstock.MapDataset, samples: int, steps: int, threads: int) -> int:
    done = 0
    for batch in dataset.loader(batch_size=256, threads=threads):
        done += batch.n
        if done >= samples:
            break
    return done * steps


def by_numpy(store: Path, kind: str, steps: int, batches: int) -> int:
    """Random batches by fancy indexing of memory maps, all columns and next observations where `steps` is 1."""
    maps, rng = mapped(store, kind), np.random.default_rng()
    for _ in range(batches):
        rows = rng.integers(0, len(maps["rewards"]) - steps, 256)
        index = rows if steps == 1 else rows[:, None] + np.arange(steps)
        for column in maps.values():
            column[index]
        if steps == 1:
            maps["observations"][rows + 1]
    return batches * 256 * steps


def write_ours(kind: str, scale: float, name: str, path: Path, **options: Any) -> dict[str, float]:
    held = list(episodes(kind, scale))
    metadata = {"dataset_id": f"bench/{kind}-ours-v0"} if name == "minari" else {}
    begun = time.perf_counter()
    with named(name).create(path, spec_of(kind), metadata, **options) as writer:
        writer.write_all(held)
    os.sync()
    return {"seconds": time.perf_counter() - begun, "steps": sum(len(e) for e in held), "episodes": len(held)}


def disk_bytes(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def raw_bytes(kind: str, scale: float) -> int:
    return sum(a.nbytes for e in episodes(kind, scale) for a in e.columns.values())


def measure(kind: str, reference: Reference, folder: Path, scale: float, seconds: float) -> Iterator[Row]:
    root = reference.root
    peer_write = reference.ask(act="write", kind=kind, scale=scale, data_format="hdf5")
    store, hdf5 = folder / f"{kind}-columns", folder / f"{kind}-minari"
    for name, path in (("columns", store), ("minari", hdf5)):
        ours = write_ours(kind, scale, name, path)
        yield Row(
            f"{kind}: write {name}",
            ours["steps"] / ours["seconds"],
            peer_write["steps"] / peer_write["seconds"],
            "steps/s",
            ">= 1 x",
        )
    theirs = root / f"bench/{kind}-hdf5-v0"
    raw, n = raw_bytes(kind, scale), peer_write["episodes"]
    peer_overhead = (disk_bytes(theirs) - raw) / n
    for name, path in (("columns", store), ("minari", hdf5)):
        yield Row(
            f"{kind}: overhead {name}",
            (disk_bytes(path) - raw) / n,
            peer_overhead,
            "bytes/episode",
            "<= 500" if name == "columns" else "<= 0.5 x",
        )
    opened = {"our store": penstock.open(store), "our HDF5": penstock.open(hdf5), "its HDF5": penstock.open(theirs)}
    peer = {
        task: reference.ask(act="read", kind=kind, task=task, data_format="hdf5", seconds=seconds)["rate"]
        for task in ("iterate", "episode", "transition", "window")
    }
    order = np.random.default_rng(0).integers(0, n, 200 if kind == "image" else 2000).tolist()
    samples = 1 << 14 if kind == "image" else 1 << 18
    few = (4, 2) if kind == "image" else (200, 20)
    numpy = [rate(lambda n=n, s=s: by_numpy(store, kind, s, n), seconds) for n, s in zip(few, (1, 16), strict=True)]
    for label, data in opened.items():
        yield Row(
            f"{kind}: iterate {label}",
            rate(lambda data=data: iterate(data), seconds),
            peer["iterate"],
            "steps/s",
            {"cheetah": ">= 20 M" if label == "our store" else ">= 5 x", "small": ">= 20 x", "image": ">= 5 x"}[kind],
        )
        yield Row(
            f"{kind}: one episode, {label}",
            rate(lambda data=data: by_index(data, order), seconds),
            peer["episode"],
            "episodes/s",
            "" if kind == "image" else ">= 30 k",
        )
        yield Row(
            f"{kind}: episodes at random, 50 at a time, {label}",
            rate(lambda data=data: at_random(data, order), seconds),
            peer["episode"],
            "episodes/s",
            ">= 1 x NumPy",
            rate(lambda: copied_by_numpy(store, kind, order), seconds),
        )
        flat = data.transitions().shuffle(seed=0)
        windows = data.windows(16).shuffle(seed=0)
        for threads in (1, 2):
            yield Row(
                f"{kind}: transitions x256, {label}, {threads} thr.",
                rate(lambda flat=flat, threads=threads: batches(flat, samples, 1, threads), seconds),
                peer["transition"],
                "steps/s",
                ">= 100 k" if kind == "image" else ">= 2 M",
                numpy[0],
            )
            yield Row(
                f"{kind}: windows 256x16, {label}, {threads} thr.",
                rate(lambda windows=windows, threads=threads: batches(windows, samples // 16, 16, threads), seconds),
                peer["window"],
                "steps/s",
                ">= 100 k" if kind == "image" else ">= 2 M",
                numpy[1],
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference-python", required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the episodes of each data set")
    parser.add_argument("--seconds", type=float, default=2.0, help="time given to each figure")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--out", type=Path, help="folder for the files, kept; a temporary one otherwise")
    asked = parser.parse_args()
    folder = asked.out or Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    os.environ["PENSTOCK_CACHE"] = str(folder / "cache")
    reference = Reference(asked.reference_python, folder / "reference")
    table = Table(
        "what",
        "ours",
        "reference",
        "ratio",
        "NumPy",
        "ours / NumPy",
        "unit",
        "aim",
        title="penstock beside Minari, same files, same run",
    )
    try:
        for kind in asked.kinds:
            for row in measure(kind, reference, folder, asked.scale, asked.seconds):
                peer = "" if row.peer is None else f"{row.peer:,.0f}"
                record(row, named_figure(row.what))
                table.add_row(row.what, f"{row.ours:,.0f}", peer, row.ratio, *row.beside, row.unit, row.aim)
                print(row.what, f"{row.ours:,.0f}", peer, row.ratio, *row.beside, file=sys.stderr, flush=True)
    finally:
        reference.close()
        if asked.out is None:
            shutil.rmtree(folder)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
