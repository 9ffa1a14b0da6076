"""A shuffled, windowed, mixed and packed stream on 1 -> 8 -> 5 -> 12 ranks, killed at random: is it still one stream?

Claim: the global order of samples does not depend on how many ranks and threads consume it, nor on when they are killed
and resumed; nothing is lost or repeated, the state is below 1 kB, and resuming is a seek, also at 10^9 planned samples.

    python benchmarks/kill_reshape_replay.py [--batches 480] [--kills 12] [--seed 0] [--rivals PYTHON]

Four datasets of four kinds (column store, Minari HDF5, Arrow and Parquet) are written to a temporary folder, filtered,
cut into windows of 16, shuffled, mixed 0.4 / 0.3 / 0.2 / 0.1, packed into rows of 64 steps and shuffled again. One
process reads the stream without interruption, as the reference. Then ranks, each a process with its own number of
threads, read it in legs; at random moments one of them is killed with SIGKILL, all stop, and the next leg resumes from
the last checkpoint: what any rank had at the batch where it was taken. Only a rank that SIGKILL ended counts as killed,
and legs go on until as many were as asked for. Every rank writes the rows it consumed to a file; put together, their
SHA-256 must be the reference's. `--rivals` runs the scripts of `benchmarks/rivals` with the given interpreter, and
nothing else. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import figures
import numpy as np

import penstock
from penstock.core.columns import Columns
from penstock.core.episode import Episode
from penstock.core.selection import Selection
from penstock.core.spaces import Box
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.formats.base.format import named
from penstock.formats.base.source import Source

KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("store", "columns", {}),
    ("hdf5", "minari", {}),
    ("arrow", "minari", {"data_format": "arrow"}),
    ("parquet", "minari", {"data_format": "parquet"}),
)
EPISODES = (420, 300, 260, 160)
WEIGHTS = {"store": 0.4, "hdf5": 0.3, "arrow": 0.2, "parquet": 0.1}
RANKS = (1, 8, 5, 12)
BATCH = 48  # packs a global batch: a multiple of 1, 8 and 12, and not of 5
CHECKPOINT = 5  # batches
IDS = Box(np.zeros(1, "i8"), np.full(1, 1 << 40), np.dtype("i8"))
WHERE = Box(np.full(2, -1, "f4"), np.ones(2, "f4"), np.dtype("f4"))
SPEC = Spec(
    {
        "observations": Field(np.dtype("f4"), (2,), "boundary"),
        "actions": Field(np.dtype("i8"), (1,)),
        "rewards": Field(np.dtype("f8")),
        "terminations": Field(np.dtype("?")),
        "truncations": Field(np.dtype("?")),
    },
    WHERE,
    IDS,
)


def write(folder: Path, seed: int) -> None:
    """Four datasets; the actions tell dataset and step."""
    for number, (name, kind, options) in enumerate(KINDS):
        rng = np.random.default_rng([seed, number])
        writer = named(kind).create(folder / name, SPEC, **options)
        step = number * 10_000_000
        with writer:
            for e in range(EPISODES[number]):
                n = int(rng.integers(1, 60))
                ends = np.zeros(n, bool)
                columns = {"observations": rng.random((n + 1, 2), "f4"), "actions": np.arange(step, step + n)[:, None],
                    "rewards": np.ones(n), "terminations": ends, "truncations": ends}  # fmt: skip
                writer.write(Episode(SPEC, columns, e, {"good": int(rng.random() < 0.8)}))
                step += n


def stream(folder: Path) -> MapDataset:
    """The whole chain, from what lies in the folder."""
    parts: dict[str, MapDataset] = {}
    for seed, (name, _, _) in enumerate(KINDS):
        data = penstock.open(folder / name).filter("good == 1")
        parts[name] = data.windows(16, stride=16, pad="zero").shuffle(seed)
    return penstock.mix(parts, WEIGHTS, label=None).pack(64).shuffle(7)


def loader(folder: Path, rank: int, world: int, threads: int) -> penstock.Loader:
    return stream(folder).loader(BATCH, rank=rank, world=world, threads=threads)


def rows_of(batch: Columns) -> bytes:
    """What was consumed, to the bit: actions, segment ids, positions, observations."""
    parts = [batch[name].reshape(batch.n, -1).astype("<i8") for name in ("actions", "segment_ids", "positions")]
    seen = batch["observations"].reshape(batch.n, -1).view("<i4").astype("<i8")
    return np.concatenate([*parts, seen], axis=1).tobytes()


def endless(held: penstock.Loader) -> Iterator[Columns]:
    while True:
        yield from held


def worker(arguments: argparse.Namespace) -> None:
    """One rank: consume batches `first : last`, one file of rows a batch, and the state every some batches."""
    held = loader(arguments.folder, arguments.rank, arguments.world, arguments.threads)
    if arguments.state != "-":
        held.load_state_dict(json.loads(Path(arguments.state).read_text()))
    out = Path(arguments.out)
    for number, batch in enumerate(endless(held), arguments.first):
        replace(out / f"{number}.{arguments.rank}", rows_of(batch))
        if (number + 1) % CHECKPOINT == 0 or number + 1 == arguments.last:
            replace(out / f"state.{number + 1}.{arguments.rank}", json.dumps(held.state_dict()).encode())
        if number + 1 == arguments.last:
            return


def replace(path: Path, data: bytes) -> None:
    held = path.with_suffix(path.suffix + ".tmp")
    held.write_bytes(data)
    held.replace(path)


def leg(
    folder: Path, out: Path, state: Path | None, first: int, last: int, world: int, rng: Any, kill: bool
) -> tuple[Path, bool]:
    """Ranks `0 : world` from `first` on; the state that they all reached (or the last one before a kill), and whether
    the rank that was to be killed was still running."""
    processes = [
        subprocess.Popen([sys.executable, __file__, "--worker", "--folder", str(folder), "--out", str(out), "--state",
            str(state or "-"), "--rank", str(rank), "--world", str(world), "--threads", str(rng.integers(4)),
            "--first", str(first), "--last", str(last)])
        for rank in range(world)
    ]  # fmt: skip
    victim = None
    if kill:
        victim = processes[int(rng.integers(world))]
        wanted = out / f"{int(rng.integers(first, last))}.{processes.index(victim)}"
        while not wanted.exists() and victim.poll() is None:
            time.sleep(0.005)
        victim.send_signal(signal.SIGKILL)
        for process in processes:
            process.kill()
    codes = [process.wait() for process in processes]
    killed = victim is not None and victim.returncode == -signal.SIGKILL
    if not kill and any(codes):
        raise SystemExit(f"a rank ended with {codes}")
    reached = [n for n in range(last, first, -1) if all((out / f"state.{n}.{r}").exists() for r in range(world))]
    if not reached:
        return state or out / "none", killed
    states = {(out / f"state.{reached[0]}.{rank}").read_bytes() for rank in range(world)}
    if len(states) > 1:
        raise SystemExit(f"ranks differ in their state at batch {reached[0]}")
    return out / f"state.{reached[0]}.0", killed


def number_of(state: Path) -> int:
    return int(state.name.split(".")[1]) if state.name.startswith("state.") else 0


def interrupted(folder: Path, out: Path, batches: int, kills: int, rng: Any) -> tuple[list[bytes], int, int]:
    """The rows of every batch, how often it was killed, and the most bytes of a state."""
    state: Path | None = None
    done = killed = 0
    shapes: dict[int, int] = {}
    while done < batches:
        world = RANKS[(done * 2 * len(RANKS) // batches) % len(RANKS)]
        last = min(done + int(rng.integers(10, 2 * batches // 8)), batches)
        kill = killed < kills and (last == batches or bool(rng.random() < 0.6))
        before = state
        state, was_killed = leg(folder, out, state, done, last, world, rng, kill)
        killed += was_killed
        if number_of(state) == batches and killed < kills:  # all were faster than the kill: this leg comes again
            state = before
        reached = 0 if state is None else number_of(state)
        state = None if reached == 0 else state
        shapes.update(dict.fromkeys(range(done, reached), world))
        done = reached
        for late in out.iterdir():  # what came after the checkpoint is consumed again
            is_state, number = late.name.startswith("state."), int(late.name.removeprefix("state.").split(".")[0])
            if number > done or (number == done and not is_state):
                late.unlink()
    rows = [b"".join((out / f"{n}.{r}").read_bytes() for r in range(shapes[n])) for n in range(batches)]
    sizes = [path.stat().st_size for path in out.glob("state.*")]
    return rows, killed, max(sizes)


class Virtual(Source):
    """Episodes of a thousand steps that lie nowhere: row `r` has the value `r`."""

    def __init__(self, episodes: int, name: str) -> None:
        self._offsets, self._name = np.arange(episodes + 1) * 1000, name

    @property
    def spec(self) -> Spec:
        return Spec({"ids": Field(np.dtype("i8"))})

    @property
    def offsets(self) -> Any:
        return self._offsets

    @property
    def fingerprint(self) -> str:
        return f"{self._name} {len(self._offsets)}"

    def read_array(self, column: str, selection: Selection, out: Any) -> None:
        rows = selection.rows().ravel()
        out[rows >= 0] = rows[rows >= 0]


def resuming(total: int, times: int, seed: int) -> tuple[int, Any]:
    """Planned samples, and `[times]` seconds from a state to the first batch after it."""
    names = list(WEIGHTS)
    sources = [EpisodeDataset(Virtual(int(total * WEIGHTS[name]) // 1000 + 1, name)) for name in names]
    parts = {name: data.windows(16).shuffle(i) for i, (name, data) in enumerate(zip(names, sources, strict=True))}
    dataset = penstock.mix(parts, WEIGHTS, label=None).pack(64).shuffle(7)
    windows = sum(len(part) for part in parts.values())
    held = dataset.loader(BATCH, rank=0, world=1, threads=0)
    state, rng, took = held.state_dict(), np.random.default_rng(seed), []
    for _ in range(times):
        state["position"] = int(rng.integers(len(dataset)))
        start = time.perf_counter()
        held.load_state_dict(state)
        next(iter(held))
        took.append(time.perf_counter() - start)
    return windows, np.array(took)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=480)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planned", type=int, default=10**9)
    parser.add_argument("--rivals", help="an interpreter with the rivals installed")
    for name in ("folder", "out", "state"):
        parser.add_argument(f"--{name}", type=str, default="-", help=argparse.SUPPRESS)
    for name in ("rank", "world", "threads", "first", "last"):
        parser.add_argument(f"--{name}", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.folder = Path(arguments.folder)
    if arguments.worker:
        worker(arguments)
        return 0
    if arguments.rivals:
        rivals(arguments.rivals)
        return 0
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory() as held:
        folder, out = Path(held) / "data", Path(held) / "out"
        folder.mkdir()
        out.mkdir()
        write(folder, arguments.seed)
        batches = islice(endless(loader(folder, 0, 1, 2)), arguments.batches)
        reference = [rows_of(batch) for batch in batches]
        print(f"{len(stream(folder))} packs an epoch; {arguments.batches} global batches of {BATCH}")
        rows, killed, size = interrupted(folder, out, arguments.batches, arguments.kills, rng)
    digests = [hashlib.sha256(b"".join(each)).hexdigest() for each in (reference, rows)]
    print(f"uninterrupted  {digests[0]}\ninterrupted    {digests[1]}")
    print(f"ranks {' -> '.join(map(str, RANKS))}, {killed} kills")
    wanted, got = ids_of(reference), ids_of(rows)
    lost, repeated = len(wanted - got), len(b"".join(rows)) - len(b"".join(reference))
    print(f"rows lost {lost}, repeated {repeated}; state at most {size} bytes")
    windows, took = resuming(arguments.planned, 200, arguments.seed)
    print(f"{windows:.2e} planned windows: from state to batch p50 {np.median(took) * 1e3:.1f} ms, "
          f"p99 {np.quantile(took, 0.99) * 1e3:.1f} ms")  # fmt: skip
    for name, value in (("kills", killed), ("lost", lost), ("repeated", repeated), ("windows", windows)):
        figures.record(name, value, "count")
    figures.record("state", size, "B")
    figures.record("resume", float(np.quantile(took, 0.99)), "s")
    return int(digests[0] != digests[1] or size >= 1000 or killed != arguments.kills)


def ids_of(rows: list[bytes]) -> set[int]:
    return set(np.unique(np.frombuffer(b"".join(rows), "<i8").reshape(-1, 5 * 64)[:, :64]).tolist())


def rivals(python: str) -> None:
    for script in sorted((Path(__file__).parent / "rivals").glob("with_*.py")):
        with tempfile.TemporaryDirectory() as held:
            subprocess.run([python, str(script), "--out", f"{held}/result.json"], check=False)
            rows = json.loads(Path(held, "result.json").read_text())
            passed = sum(row["verdict"] == "passes" for row in rows)
            figures.record(f"{script.stem.removeprefix('with_')}.passed", passed, "count")
            figures.record(f"{script.stem.removeprefix('with_')}.tried", len(rows), "count")


if __name__ == "__main__":
    sys.exit(main())
