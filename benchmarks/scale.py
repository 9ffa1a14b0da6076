"""Planning 10^8 to 10^10 samples from tables of lengths: time, memory of a rank, size of what is sent, time a position.

    python benchmarks/scale.py [--samples 1e8 1e9 1e10] [--sequences 1e9] [--ranks 4]
    python benchmarks/scale.py --only tables --episodes 1e7 --ranks 8
    python benchmarks/scale.py --only files --files 1e5 --ranks 4 --folder /fast/disk

Claims: 10^10 windows over 10^7 episodes are planned in less than a second, with less than 1 byte an episode in the
memory of a rank next to the offsets, which the ranks of a machine share as a mapped file; a plan that is sent to
another process has less than 100 kB, and a state less than 1 kB; a position of windows, shuffled windows, shards, mixes
and shuffles by blocks takes less than a microsecond. The packs of 10^10 sequences are 8 bytes a window of 65,536.

Tables of chosen episodes are shared by the ranks of a machine: eight ranks take less than a quarter of the memory that
they take with a table each, and with weights less than two thirds; goals need no table. A dataset of 10^5 files is
opened again in about a tenth of the CPU time of its first opening, without opening a file; its plan has
less than 100 kB. 10^5 tar shards need 1.2 GB of disk and as many Parquet files 0.4 GB, one after the other; all files
are removed.

Episodes have 515 to 1,515 steps. The offsets are a file, as an index in a cache is. Each row is another process, whose
memory is measured by the system: "private" is what no other process shares.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import figures
import numpy as np
from lengths_only import LengthsOnly

import penstock
from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock.formats.tables.source import survey_of
from penstock.plan import Plan
from penstock.plan.packing.index import PackIndex
from penstock.plan.packing.rule import Rule

MEAN = 1000  # steps of an episode
BLOCK = 4096  # positions of a call
CALLS = 30


FIELDS = {"state": Field(np.dtype("float32"), (8,)), "action": Field(np.dtype("float32"), (2,))}


def write_offsets(path: Path, episodes: int) -> None:
    """Write the offsets of episodes block by block, so that this process stays small."""
    table = np.lib.format.open_memmap(path, "w+", np.int64, (episodes + 1,))
    rng, end = np.random.default_rng(0), 0
    for first in range(0, episodes, 1 << 20):
        lengths = rng.integers(MEAN // 2 + 15, MEAN * 3 // 2 + 15, min(1 << 20, episodes - first))
        table[first + 1 : first + 1 + len(lengths)] = end + np.cumsum(lengths)
        end += int(lengths.sum())
    table.flush()


def memory() -> dict[str, int]:
    """Private and shared bytes of this process."""
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    kilobytes = {row[0].rstrip(":"): int(row[1]) for row in rows}
    private = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return {"private": 1024 * private, "all": 1024 * kilobytes["Rss"]}


def nanoseconds(plan: Plan) -> float:
    """Time of a position in calls for random blocks of consecutive positions, the median."""
    rng = np.random.default_rng(1)
    times: list[float] = []
    for _ in range(CALLS):
        first = int(rng.integers(len(plan) - BLOCK))
        begin = time.perf_counter()
        plan.resolve(np.arange(first, first + BLOCK))
        times.append((time.perf_counter() - begin) / BLOCK)
    return 1e9 * float(np.median(times))


def orders(windows: penstock.MapDataset) -> dict[str, penstock.MapDataset]:
    """The plans that are measured."""
    return {
        "windows": windows,
        "shuffle": windows.shuffle(0),
        "shuffle, shard": windows.shuffle(0).shard(3, 64),
        "block shuffle": windows.shuffle(0, block=1024, pool=16),
        "mix": penstock.mix([windows.shuffle(0), windows.shuffle(1)], [3, 1], stop="all_exhausted"),
    }


def rank(path: str, pipe: Connection, barrier: Any) -> None:
    """Plan, and report memory and times. All ranks have their plans when memory is measured."""
    LengthsOnly(FIELDS, path)  # imports come before the measurement
    small = EpisodeDataset(penstock.from_arrays({"x": np.zeros(9)}, [9]).source).windows(2).shuffle(0)
    small.plan.resolve(np.arange(2))
    before = memory()["private"]
    begin = time.perf_counter()
    windows = EpisodeDataset(LengthsOnly(FIELDS, path)).windows(16)
    seconds = time.perf_counter() - begin
    plans = orders(windows)
    report: dict[str, Any] = {"seconds": seconds, "samples": len(windows), "before": before}
    barrier.wait()
    report["memory"] = memory()["private"] - before
    report["sent"] = max(len(pickle.dumps(each.plan)) for each in plans.values())
    report["state"] = len(json.dumps(small.loader(2).state_dict()))
    barrier.wait()
    report["ns"] = {name: nanoseconds(each.plan) for name, each in plans.items()}
    pipe.send(report)


def measured(folder: Path, samples: float, ranks: int) -> list[dict[str, Any]]:
    """Reports of ranks, which plan at the same time."""
    path = folder / f"{samples:.0e}.npy"
    write_offsets(path, int(samples) // MEAN)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(ranks)
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    processes = [context.Process(target=rank, args=(str(path), theirs, barrier)) for _, theirs in pipes]
    for process in processes:
        process.start()
    reports = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    return reports


def windows(folder: Path, samples: list[float], ranks: int) -> None:
    """Print the table of windows."""
    print(f"{ranks} ranks of a machine, each with windows of 16 over the same mapped offsets\n")
    names = ("windows", "shuffle", "shuffle, shard", "block shuffle", "mix")
    print(
        f"{'samples':>16}{'planned':>10}{'private':>10}{'offsets':>10}{'sent':>9}" + "".join(f"{n:>16}" for n in names)
    )
    state = 0
    for count in samples:
        reports = measured(folder, count, ranks)
        one = max(reports, key=lambda report: report["memory"])
        offsets = 8 * int(count) // MEAN
        line = f"{one['samples']:>16,}{one['seconds']:>8.2f} s{one['memory'] / 1e6:>7.1f} MB{offsets / 1e6:>7.1f} MB"
        spent = {name: float(np.median([report["ns"][name] for report in reports])) for name in names}
        print(line + f"{one['sent'] / 1e3:>6.1f} kB" + "".join(f"{spent[name]:>13.0f} ns" for name in names))
        size = f"1e{round(np.log10(count))}"
        figures.record(f"{size}.seconds", one["seconds"], "s")
        figures.record(f"{size}.private", one["memory"], "B")
        figures.record(f"{size}.offsets", offsets, "B")
        figures.record(f"{size}.sent", one["sent"], "B")
        figures.record(f"{size}.shuffle", spent["shuffle"] * 1e-9, "s")
        state = max(state, one["state"])
    figures.record("state", state, "B")
    print(f"\na state has {state} bytes")


def packs(sequences: int) -> None:
    """Plan packs from a function for lengths, on all cores, in the memory of some windows."""
    table = np.random.default_rng(0).lognormal(5.5, 0.9, 1 << 22).clip(1, 2048).astype(np.uint16)
    before = memory()["private"]
    begin = time.perf_counter()
    index = PackIndex(
        lambda item: table[item & (len(table) - 1)], Rule((2048,)), n=sequences, keep="recompute", threads=4
    )
    many = len(index)
    seconds = time.perf_counter() - begin
    more = memory()["private"] - before
    print(f"\n{sequences:,} sequences in {many:,} packs of 2,048: planned in {seconds:.0f} s on 4 threads,")
    print(f"plan {index.nbytes / 1e6:.2f} MB, memory {more / 1e6:.0f} MB")
    figures.record("packs.seconds", seconds, "s")
    figures.record("packs.plan", index.nbytes, "B")
    figures.record("packs.memory", more, "B")
    figures.record("packs.packs", many, "count")


TABLES: dict[str, Callable[[EpisodeDataset], penstock.MapDataset]] = {
    "where": lambda data: data.filter("total_steps > 600").windows(16),
    "split": lambda data: data.split(0.9, 0.1, duplicates=True)[0].windows(16),
    "random goals": lambda data: data.steps().goals("random", column="state"),
    "weighted": lambda data: data.sequences().weighted(np.arange(len(data)) % 1000),
}


def proportional() -> int:
    """Bytes of this process, with its part of what it shares with others."""
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    return 1024 * next(int(row[1]) for row in rows if row[0] == "Pss:")


def table_rank(path: str, name: str, cache: str, pipe: Connection, barrier: Any) -> None:
    """Make a plan, and report time and memory while all ranks have theirs."""
    os.environ["PENSTOCK_CACHE"] = cache
    small = EpisodeDataset(penstock.from_arrays({"state": np.zeros(9)}, [9]).source)
    TABLES["split"](EpisodeDataset(penstock.from_arrays({"state": np.zeros(900)}, [30] * 30).source)).plan.resolve(
        np.arange(2)
    )
    small.steps().goals("random", column="state")[np.arange(2)]
    barrier.wait()
    before = proportional()
    barrier.wait()
    begin = time.perf_counter()
    samples = TABLES[name](EpisodeDataset(LengthsOnly(FIELDS, path)))
    samples.plan.resolve(np.arange(BLOCK))
    seconds = time.perf_counter() - begin
    barrier.wait()
    more = proportional() - before
    barrier.wait()
    pipe.send({"seconds": seconds, "memory": more})


def tables(folder: Path, episodes: int, ranks: int) -> None:
    """Print the memory of ranks with tables, in files of the cache and in each rank."""
    path = folder / "tables.npy"
    write_offsets(path, episodes)
    print(f"{ranks} ranks of a machine, {episodes:,} episodes; memory of all ranks, with the offsets\n")
    print(f"{'':>14}{'a table each':>18}{'shared':>12}{'planned':>10}")
    context = multiprocessing.get_context("spawn")
    for name in TABLES:
        sums: list[float] = []
        for cache in ("/proc/nothing", str(folder / "cache")):  # no folder can be made in the first one
            barrier = context.Barrier(ranks)
            pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
            arguments = [(str(path), name, cache, theirs, barrier) for _, theirs in pipes]
            processes = [context.Process(target=table_rank, args=each) for each in arguments]
            for process in processes:
                process.start()
            reports = [ours.recv() for ours, _ in pipes]
            for process in processes:
                process.join()
            sums.append(sum(report["memory"] for report in reports))
        seconds = max(report["seconds"] for report in reports)
        print(f"{name:>14}{sums[0] / 1e6:>15,.0f} MB{sums[1] / 1e6:>9,.0f} MB{seconds:>8.1f} s")


def write_tar(path: Path, number: int) -> None:
    """Write a shard of four samples."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
        for sample in range(4):
            for name, width in (("observations", 8), ("actions", 2)):
                raw = io.BytesIO()
                np.save(raw, np.full(width, number, np.float32))
                entry = tarfile.TarInfo(f"{number:06d}{sample}.{name}.npy")
                entry.size = raw.tell()
                raw.seek(0)
                shard.addfile(entry, raw)


def write_parquet(path: Path, number: int) -> None:
    """Write a file of one episode, as LeRobot's version 2 has."""
    import pyarrow as pa
    from pyarrow import parquet

    steps = 20 + number % 10
    columns = {"episode_index": np.full(steps, number), "state": np.full(steps, number, np.float32)}
    parquet.write_table(pa.table(columns), path)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


class Format(NamedTuple):
    """How a file is written, and the length of windows: a sample of a tar shard is an episode of one step."""

    write: Callable[[Path, int], None]
    window: int


FORMATS = {"tar": Format(write_tar, 1), "parquet": Format(write_parquet, 16)}
WRITERS = 4  # processes that write files
AT_ONCE = 500  # files that a process writes before it asks for more
READ = 20_000  # files that are read by one and by four threads


def write_some(folder: Path, name: str, numbers: range) -> None:
    """Write files of a dataset. Other processes write the others."""
    for number in numbers:
        FORMATS[name].write(folder / f"{number:06d}.{name}", number)


def write_files(folder: Path, name: str, count: int) -> None:
    """Write all files of a dataset with several processes."""
    folder.mkdir()
    parts = [(folder, name, range(first, min(first + AT_ONCE, count))) for first in range(0, count, AT_ONCE)]
    with multiprocessing.get_context("spawn").Pool(WRITERS) as pool:
        pool.starmap(write_some, parts, chunksize=1)


def peak() -> int:
    """Most bytes that this process had in memory so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if "VmHWM" in line)


def opening(path: str, window: int, pipe: Connection, barrier: Any) -> None:
    """Open a dataset, plan windows, and read a batch; report times and memory, which all ranks measure together."""
    with tempfile.TemporaryDirectory() as folder:  # imports come before the measurement
        for number in range(2):
            write_parquet(Path(folder) / f"{number}.parquet", number)
            write_tar(Path(folder) / f"{number}.tar", number)
        for name, each in FORMATS.items():
            small = penstock.open([Path(folder) / f"{number}.{name}" for number in range(2)])
            small.windows(each.window).shuffle(0)[np.arange(2)]
    barrier.wait()
    before, private = memory()["all"], memory()["private"]
    begin, spent = time.perf_counter(), time.process_time()
    data = penstock.open(path)
    opened, cpu = time.perf_counter(), time.process_time() - spent
    windows = data.windows(window).shuffle(0)
    report: dict[str, Any] = {"seconds": opened - begin, "cpu": cpu, "plan": time.perf_counter() - opened}
    report |= {"sent": len(pickle.dumps(windows.plan)), "peak": peak() - before}
    barrier.wait()
    report |= {"private": memory()["private"] - private, "fingerprint": data.source.fingerprint}
    barrier.wait()
    begin = time.perf_counter()
    windows[np.arange(256)]
    report["batch"] = time.perf_counter() - begin
    pipe.send(report)


def ranks_opened(path: Path, window: int, cache: Path, ranks: int) -> list[dict[str, Any]]:
    """Open a dataset in some fresh processes at the same time."""
    os.environ["PENSTOCK_CACHE"] = str(cache)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(ranks)
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    processes = [context.Process(target=opening, args=(str(path), window, theirs, barrier)) for _, theirs in pipes]
    for process in processes:
        process.start()
    for _, theirs in pipes:
        theirs.close()  # a rank that fails ends its pipe
    reports = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    return reports


def files(folder: Path, count: int, ranks: int) -> None:
    """Print how long datasets of many files take to open and to plan, and what that takes of memory."""
    print(f"datasets of {count:,} files: time (CPU time), memory above imports\n")
    figures.record("ranks", ranks, "count")
    for name, each in FORMATS.items():
        place, cache, cache_of_jobs = folder / name, folder / f"{name} cache", folder / f"{name} cache of jobs"
        begin = time.perf_counter()
        write_files(place, name, count)
        print(f"{name:>8}, {WRITERS} processes wrote the files in {time.perf_counter() - begin:.0f} s", flush=True)
        time.sleep(3)  # a file that is younger than two seconds is read again at the next opening
        reports = {
            "first": ranks_opened(place, each.window, cache, 1),
            "later": ranks_opened(place, each.window, cache, 1),
        }
        reports["ranks"] = ranks_opened(place, each.window, cache, ranks)
        os.environ["PENSTOCK_CACHE"] = str(cache_of_jobs)
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "penstock", "index", str(place), "--jobs", "2"], check=True)
        seconds = time.perf_counter() - begin
        reports["indexed"] = ranks_opened(place, each.window, cache_of_jobs, 1)
        if len({report["fingerprint"] for some in reports.values() for report in some}) > 1:
            raise SystemExit(f"datasets of {name} files have other fingerprints when they are opened again")
        for what, some in reports.items():
            print_opening(name, what, some)
        size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        print(f"{name:>8}, penstock index --jobs 2: {seconds:.1f} s; index {size / 1e6:.1f} MB\n", flush=True)
        figures.record(f"{name}.jobs", seconds, "s")
        figures.record(f"{name}.index", size, "B")
        if name == "parquet":
            threads(sorted(place.iterdir())[:READ])
        shutil.rmtree(place)


def print_opening(name: str, what: str, reports: list[dict[str, Any]]) -> None:
    """Print and record what the slowest and the largest of some processes report."""
    most = {key: max(report[key] for report in reports) for key in reports[0]}
    line = f"{name:>8}, {what:<8}{len(reports):>2} processes: {most['seconds']:.1f} s ({most['cpu']:.1f} s), peak"
    line += f" {most['peak'] / 1e6:.0f} MB, private {most['private'] / 1e6:.0f} MB; windows {most['plan'] * 1e3:.1f} ms"
    print(f"{line}, sent {most['sent'] / 1e3:.1f} kB, batch of 256 {most['batch'] * 1e3:.0f} ms")
    for key, unit in (("seconds", "s"), ("cpu", "s"), ("plan", "s"), ("peak", "B"), ("private", "B"), ("sent", "B")):
        figures.record(f"{name}.{what}.{key}", most[key], unit)


def threads(paths: list[Path]) -> None:
    """Print the CPU time and time of reading what opening learns of a file, by one thread and by four."""
    survey = survey_of(paths)
    survey.facts(range(min(64, len(paths))), threads=0)  # imports come before the measurement
    for count, name in ((0, "one"), (4, "four"), (0, "one"), (4, "four")):  # the second round is kept
        begin, spent = time.perf_counter(), time.process_time()
        survey.facts(range(len(paths)), threads=count)
        cpu, seconds = (
            (now - then) / len(paths) for now, then in ((time.process_time(), spent), (time.perf_counter(), begin))
        )
        print(f"facts of a Parquet file, {name} thread(s): {cpu * 1e6:.0f} µs of CPU time in {seconds * 1e6:.0f} µs")
        figures.record(f"facts.{name}.cpu", cpu, "s")
        figures.record(f"facts.{name}.seconds", seconds, "s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=float, nargs="+", default=[1e8, 1e9, 1e10])
    parser.add_argument("--sequences", type=float, default=1e9)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--episodes", type=float, default=1e7)
    parser.add_argument("--files", type=float, default=1e5)
    parser.add_argument(
        "--only", choices=["windows", "packs", "tables", "files"], nargs="+", default=["windows", "packs"]
    )
    parser.add_argument(
        "--folder", help="where files are written; the default is the system's folder for scratch files"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        if "windows" in chosen.only:
            windows(Path(folder), chosen.samples, chosen.ranks)
        if "packs" in chosen.only:
            packs(int(chosen.sequences))
        if "tables" in chosen.only:
            tables(Path(folder), int(chosen.episodes), chosen.ranks)
        if "files" in chosen.only:
            files(Path(folder), int(chosen.files), chosen.ranks)


if __name__ == "__main__":
    main()
