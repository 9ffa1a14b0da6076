"""The live loader of training games: speed, first batch, memory, beside memory copies, zlib and the original loader.

Claims, whole pipeline to NumPy arrays on two cores: several times the original's frames a second at every setting, and
1 M shuffled positions in at most 1 GB.

    python benchmarks/lc0.py DIRECTORY [--seconds 8] [--runs 3]
        [--peer PYTHON --peer-module FOLDER_OF__lczero_training.so]

DIRECTORY has files of chunks. Every case runs in a process of its own, ours and the original's in turn; medians. The
rates of zlib (one core, all chunks) and of copying memory are measured in between, and speeds are given as ratios to
them as well: absolute figures of a shared machine say little. Rescoring leaves out games that reach three men without
pawns, which end the original's process.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import figures
import numpy as np

import penstock

FRAME = 8356  # bytes of a record of version 6
CASES: dict[str, dict[str, Any]] = {
    "every position": {"rate": 1, "reservoir": 10_000, "batch_size": 1024},
    "3 % of each game": {"rate": 0.03, "reservoir": 1_000, "batch_size": 1024},
    "one position a game": {"count": 1, "reservoir": 0, "batch_size": 256},
    "one position a game, of an archive": {"count": 1, "reservoir": 0, "batch_size": 256, "of_archive": True},
    "one position a game, long games first": {"count": 1, "reservoir": 0, "batch_size": 256, "hanse": True},
    "one position a game, positions kept": {"count": 1, "reservoir": 0, "batch_size": 256, "ahead": 60},
    "one position a game, rescored and kept": {
        **{"count": 1, "reservoir": 0, "batch_size": 256, "ahead": 60},
        "rescore": True,
    },
    "every position, rescored": {"rate": 1, "reservoir": 10_000, "batch_size": 1024, "rescore": True},
    "one position a game, rescored": {"count": 1, "reservoir": 0, "batch_size": 256, "rescore": True},
}


def chunks_of(directory: Path) -> list[bytes]:
    """The stored bytes of all chunks."""
    from penstock_chess.formats.lc0 import open_chunks

    stored: list[bytes] = []
    for path in sorted(directory.rglob("*")):
        chunks = open_chunks(path) if path.is_file() else None
        stored += [] if chunks is None else [chunks.stored(i) for i in range(len(chunks))]
    return stored


def yardsticks(stored: list[bytes]) -> dict[str, float]:
    """Bytes a second: zlib on one core, and copying memory; the fastest of some rounds."""
    source, target = np.ones(1 << 28, np.uint8), np.empty(1 << 28, np.uint8)
    best = {"zlib": 0.0, "copy": 0.0}
    for _ in range(8):
        begun = time.perf_counter()
        done = sum(len(zlib.decompress(chunk, 31)) for chunk in stored[:64])
        middle = time.perf_counter()
        target[:] = source
        best["zlib"] = max(best["zlib"], done / (middle - begun))
        best["copy"] = max(best["copy"], source.nbytes / (time.perf_counter() - middle))
    return best


def without_small_endings(stored: list[bytes], folder: Path) -> None:
    """A tar of the games that keep pawns or more than three men."""
    from penstock_chess.formats.lc0 import FRAME as RECORD
    from penstock_chess.formats.lc0 import upgraded

    with tarfile.open(folder / "games.tar", "w") as archive:
        for i, chunk in enumerate(stored):
            planes = upgraded(zlib.decompress(chunk, 31)).view(RECORD)["planes"][:, 0, :12]
            men = np.bitwise_count(planes).astype(int)
            if np.any((men.sum(axis=1) <= 3) & (men[:, 0] + men[:, 6] == 0)):
                continue
            member = tarfile.TarInfo(f"training.{i}.gz")
            member.size = len(chunk)
            archive.addfile(member, io.BytesIO(chunk))


def ours(directory: str, seconds: float, case: dict[str, Any]) -> dict[str, float]:
    """In a process of its own."""
    from penstock_chess.live import chess_pipeline
    from penstock_chess.rescore import Rescorer

    named = {"hanse": ("hanse_gamma", 1.0), "rescore": ("rescorer", Rescorer())}
    case.pop("of_archive", None)
    options: dict[str, Any] = dict(named.get(name, (name, value)) for name, value in case.items())
    begun = time.perf_counter()
    with chess_pipeline(directory, **options) as batches:
        next(batches)
        first = time.perf_counter() - begun
        # Once more, as kernels compile or load at their first use.
        warmed = time.perf_counter()
        while time.perf_counter() - warmed < min(2, seconds):
            next(batches)
        cpu, begun, frames = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            frames += len(next(batches)["planes"])
        spent = time.perf_counter() - begun
        busy = time.process_time() - cpu
    return {"frames_per_s": frames / spent, "first_s": first, "cpu_us": busy / frames * 1e6}


def memory(directory: str) -> dict[str, float]:
    """In a process of its own: what 1 M positions in the reservoir take, beside the same pipeline with 1 k."""
    from penstock_chess.live import chess_pipeline

    peaks: list[float] = []
    begun = time.perf_counter()
    for reservoir in (1_000, 1_000_000):
        with chess_pipeline(directory, reservoir=reservoir) as batches:
            next(batches)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    return {"with_1k_gb": peaks[0], "with_1m_gb": peaks[1], "seconds": time.perf_counter() - begun}


def start(stored: list[bytes], folder: Path) -> None:
    """The first batch of 200 k games in 20 archives, warm, with all of them in the window and with 1 k."""
    from penstock_chess.formats.lc0 import packed_chunk, upgraded

    chunk = packed_chunk(upgraded(zlib.decompress(stored[0], 31))[:1])
    padded = chunk.ljust(-(-len(chunk) // 512) * 512, bytes(1))
    for archive in range(20):
        with open(folder / f"games.{archive:02d}.tar", "wb") as file:
            for game in range(10_000):
                member = tarfile.TarInfo(f"training.{archive * 10_000 + game:06d}.gz")
                member.size = len(chunk)
                file.write(member.tobuf() + padded)
            file.write(bytes(1024))
    case = {"count": 1, "reservoir": 0, "batch_size": 256, "settle": 0}
    for window in (200_000, 1_000):
        arguments = (str(folder), "--seconds", "1", "--case", json.dumps({**case, "window": window}))
        runs = [run for _ in range(3) if (run := child(sys.executable, __file__, *arguments)) is not None]
        first = statistics.median(run["first_s"] for run in runs)
        figures.record(f"start.{window}", first, "s")
        print(f"200 k games in 20 archives, a window of {window:,}: first batch after {first:.2f} s", flush=True)


def child(*arguments: str) -> dict[str, float] | None:
    """The JSON that another process prints; None where it failed."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        print(f"  failed with {done.returncode}: {done.stderr.strip()[-300:]}", flush=True)
        return None
    return json.loads(lines[-1])


def compare(name: str, case: dict[str, Any], directory: str, args: argparse.Namespace, stored: list[bytes]) -> None:
    # Positions that are kept need a graph of their own there, and archives are ours; these are timed without.
    has_peers = args.peer and "ahead" not in case and "of_archive" not in case
    peers = {"original": case, "original, tuned": {**case, "tuned": True}} if has_peers else {}
    found: dict[str, list[dict[str, float]]] = {}
    yards: list[dict[str, float]] = []
    rival = str(Path(__file__).parent / "rivals" / "lczero_original.py")
    for _ in range(args.runs):
        yards.append(yardsticks(stored))
        mine = child(sys.executable, __file__, directory, "--case", json.dumps(case), "--seconds", str(args.seconds))
        runs = {"penstock": mine}
        for who, settings in peers.items():
            command = (args.peer, rival, args.peer_module, directory, str(args.seconds), json.dumps(settings))
            runs[who] = child(*command)
        for who, run in runs.items():
            if run is not None:
                found.setdefault(who, []).append(run)
    yard = {key: statistics.median(one[key] for one in yards) for key in yards[0]}
    speeds = {who: statistics.median(run["frames_per_s"] for run in runs) for who, runs in found.items()}
    print(f"{name}  (zlib {yard['zlib'] / 1e9:.2f} GB/s, copy {yard['copy'] / 1e9:.2f} GB/s)")
    if "penstock" in speeds:
        short = re.sub(r"\W+", "_", name)
        figures.record(short, speeds["penstock"], "/s")
        figures.record(f"{short}.cpu", statistics.median(run["cpu_us"] for run in found["penstock"]) / 1e6, "s")
        figures.record(f"{short}.zlib", speeds["penstock"] * FRAME / yard["zlib"], "x")
    for who, speed in speeds.items():
        first = statistics.median(run["first_s"] for run in found[who])
        cpu = statistics.median(run["cpu_us"] for run in found[who])
        spread = [run["frames_per_s"] for run in found[who]]
        times = (
            "" if who == "penstock" or "penstock" not in speeds else f"; ours {speeds['penstock'] / speed:.1f} times"
        )
        rate = f"{speed:10,.0f} frames/s ({min(spread):,.0f} to {max(spread):,.0f})"
        print(f"  {who:16} {rate}, {cpu:7.1f} us CPU a frame, first batch {first:.2f} s", end="; ")
        print(f"{speed * FRAME / yard['zlib']:.2f} of zlib's rate{times}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", help="a part of the name of the cases to run")
    parser.add_argument("--peer", help="a Python that the original's module is built for")
    parser.add_argument("--peer-module", help="the folder of that module")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        case = json.loads(args.case)
        print(json.dumps(memory(args.directory) if case == "memory" else ours(args.directory, args.seconds, case)))
        return
    stored = chunks_of(Path(args.directory))
    figures.record("games", len(stored), "count")
    with tempfile.TemporaryDirectory() as folder:
        without_small_endings(stored, Path(folder))
        for name, case in CASES.items():
            if args.only is None or args.only in name:
                directory = folder if "rescore" in case else args.directory
                if "of_archive" in case:
                    directory = f"{folder}/archive"
                    penstock.convert(args.directory, directory, format="lc0-archive", certificate=False)
                compare(name, case, directory, args, stored)
        if args.only is None or args.only in "start":
            (Path(folder) / "start").mkdir()
            start(stored, Path(folder) / "start")
    if args.only is None or args.only in "memory":
        found = child(sys.executable, __file__, args.directory, "--case", '"memory"')
        if found is not None:
            figures.record("memory", found["with_1m_gb"] * 1e9, "B")
        print(f"1 M shuffled positions: {found}")


if __name__ == "__main__":
    main()
