"""What compact rows of chess frames cost and save, beside memory and decompressors in the same run.

Claims: a frame of 8396 bytes takes some 420; expansion into float32 tensors is bound by writing them (about the rate of
filling the same buffers with zeros, and above it where the kernel writes around the cache); encoding frames that have
just been unpacked costs less than a fifth of unpacking them; one position of an archive costs less than a twentieth of
unpacking its game.

    python benchmarks/chess_frames.py PATH [--batch 1024] [--frames 16384] [--torch]

PATH is a file or a folder of training data of Leela Chess Zero. Each row is the fastest of some calls, and rows that
are compared run in turn, for other work on the machine comes and goes.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import re
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import figures
import numpy as np

from penstock.core.selection import Selection
from penstock.formats.columns.source import ColumnsSource
from penstock_chess.compact import decode, encode
from penstock_chess.formats.archive import ArchiveSource, ArchiveWriter
from penstock_chess.formats.lc0 import SPEC, Lc0Source, open_chunks
from penstock_chess.formats.lc0.records import FRAME
from penstock_chess.rescore import Rescorer
from penstock_chess.tensors import ChessTensors

Calls = dict[str, Callable[[], object]]


def chunks_of(path: Path, frames: int) -> list[Any]:
    """Chunks of the files at `path`, some `frames` frames in all, over again where there are fewer."""
    found: list[Any] = []
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        source = open_chunks(file) if file.is_file() else None
        found += [source.load(i) for i in range(len(source))] if source else []
    if not found:
        raise SystemExit(f"no training data at {path}")
    while sum(map(len, found)) < frames:
        found += found
    ends = np.cumsum([len(chunk) for chunk in found])
    return found[: int(np.searchsorted(ends, frames)) + 1]


def fastest(calls: Calls, repeats: int = 9) -> dict[str, float]:
    """Seconds of the fastest of some calls of each, in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def show(short: str, title: str, n: int, times: dict[str, float], base: str) -> None:
    """Rates, and each as a ratio to `base`."""
    for name, seconds in times.items():
        figures.record(f"{short}." + "_".join(re.findall(r"\w+", name)), times[base] / seconds, "x")
    print(f"\n{title}")
    for name, seconds in times.items():
        print(f"  {name:<44} {n / seconds / 1e3:9.0f} k frames/s   {times[base] / seconds:6.2f} x {base}")


def inflaters(blobs: list[bytes]) -> Calls:
    """Unpacking of the same chunks by zlib and zlib-ng, and by ISA-L and libdeflate where they are installed."""
    calls: Calls = {"inflate by zlib": lambda: [zlib.decompress(blob, 31) for blob in blobs]}
    others = {"zlib-ng": ("zlib_ng.gzip_ng", "decompress"), "ISA-L": ("isal.igzip", "decompress")}
    others["libdeflate"] = "deflate", "gzip_decompress"
    for name, (module, function) in others.items():
        try:
            unpack = getattr(importlib.import_module(module), function)
        except ImportError:
            print(f"{module} is not installed: no row for {name}")
        else:
            calls[f"inflate by {name}"] = lambda unpack=unpack: [unpack(blob) for blob in blobs]
    return calls


def of_encoding(chunks: list[Any]) -> None:
    """Chunks one after the other, as a loader unpacks them."""
    n = sum(map(len, chunks))
    blobs = [gzip.compress(chunk.tobytes(), 6) for chunk in chunks]
    rows = [encode(chunk) for chunk in chunks]
    size = sum(len(row.values) for row in rows) / n
    print(
        f"{n} frames in {len(chunks)} games: {size:.0f} bytes a compact row, {FRAME.itemsize / size:.1f} times smaller"
    )
    print(f"gzip of the same games: {sum(map(len, blobs)) / n:.0f} bytes a frame")
    figures.record("row", size, "B")
    figures.record("row.smaller", FRAME.itemsize / size, "x")
    rescorer = Rescorer()
    held, out = [np.empty_like(chunk) for chunk in chunks], max(chunks, key=len).copy()
    calls: Calls = {
        "copy of the frames": lambda: [np.copyto(out[: len(chunk)], chunk) for chunk in chunks],
        "encode": lambda: [encode(chunk) for chunk in chunks],
        "encode, frames in the cache": lambda: [encode(chunks[0]) for _ in range(n // len(chunks[0]))],
        "check and rescore": lambda: [rescorer(chunk) for chunk in chunks],
        "decode to frames": lambda: [decode(row, into) for row, into in zip(rows, held, strict=True)],
    }
    show("games", "frames and compact rows, one thread", n, fastest(calls | inflaters(blobs), 5), "inflate by zlib")


def of_expansion(frames: Any, planes: Any, batch: int) -> None:
    """Batches into buffers that are used again: four in turn, as a loader has under way."""
    wanted = ChessTensors(planes)
    lots = [np.ascontiguousarray(frames[i : i + batch]) for i in range(0, 4 * batch, batch)]
    rows, buffers = [encode(lot) for lot in lots], [wanted.buffers(batch) for _ in lots]
    other = [{name: array.copy() for name, array in into.items()} for into in buffers]
    pairs = list(zip(buffers, other, strict=True))

    def over(given: list[Any]) -> Callable[[], object]:
        return lambda: [wanted.decode(one, into) for one, into in zip(given, buffers, strict=True)]

    with ThreadPoolExecutor(2) as pool:
        calls: Calls = {
            "fill the buffers with zeros": lambda: [array.fill(0) for into in buffers for array in into.values()],
            "copy the buffers": lambda: [np.copyto(b[name], a[name]) for a, b in pairs for name in a],
            "expand compact rows": over(rows),
            "expand frames": over(lots),
            "expand compact rows, 2 threads": lambda: list(pool.map(wanted.decode, rows, buffers)),
        }
        times = fastest(calls)
    size = sum(array.nbytes for array in buffers[0].values()) // batch
    show(
        planes, f"batches of {batch}, planes of {planes}, {size} bytes a position", 4 * batch, times, next(iter(calls))
    )


def of_torch(frames: Any, batch: int) -> None:
    """The operations for devices, on the CPU: for what they are made, see the page on chess."""
    from penstock_chess.device import TorchTensors

    wanted = ChessTensors()
    rows, into, device = encode(frames[:batch]), wanted.buffers(batch), TorchTensors(wanted)
    calls: Calls = {"kernel": lambda: wanted.decode(rows, into), "torch operations": lambda: device(rows)}
    show("torch", f"a batch of {batch} by the operations for devices, on the CPU", batch, fastest(calls), "kernel")


def of_archive(path: Path) -> None:
    """One position of each game: compact rows and frames of an archive, beside the inflation of the whole game, and of
    chunks of 16 frames by zlib's fastest level, as a general compressed store would have them."""
    with tempfile.TemporaryDirectory() as folder, Lc0Source(path) as games:
        with ArchiveWriter.create(Path(folder) / "archive", SPEC) as writer:
            writer.write_all(games.episodes())
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / games.steps
        figures.record("archive.frame", size, "B")
        random = np.random.default_rng(0)
        steps = random.permutation(games.offsets[:-1] + random.integers(0, np.diff(games.offsets)))
        game = np.searchsorted(games.offsets, steps, "right") - 1
        blobs = [gzip.compress(games.frames(e).tobytes(), 6) for e in game.tolist()]
        parts = [games.frames(e)[:16].tobytes() for e in game.tolist()]
        packed = [zlib.compress(part, 1) for part in parts]
        print(
            f"\narchive: {size:.0f} bytes a frame; {sum(map(len, packed)) / sum(map(len, parts)) * 8396:.0f} in chunks"
        )
        with ArchiveSource(Path(folder) / "archive") as archive, ColumnsSource(Path(folder) / "archive") as store:
            ones, places = np.ones_like(steps), np.arange(len(steps))
            selection = Selection(np.zeros_like(steps), steps, ones, places, (len(steps), 1))
            calls: Calls = {
                "inflate the game": lambda: [zlib.decompress(blob, 31) for blob in blobs],
                "inflate 16 frames": lambda: [zlib.decompress(part) for part in packed],
                "frames of the archive": lambda: archive.frame_rows(steps),
                "compact rows of the archive": lambda: store.read_ragged("compact_row", selection),
            }
            calls |= {name.replace("inflate by", "inflate the game by"): c for name, c in inflaters(blobs).items()}
            show("archive", "one position a game", len(steps), fastest(calls), "inflate the game")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--frames", type=int, default=16384)
    parser.add_argument("--torch", action="store_true")
    args = parser.parse_args()
    chunks = chunks_of(args.path, max(args.frames, 4 * args.batch))
    of_encoding(chunks)
    of_archive(args.path)
    frames = np.concatenate(chunks)
    for planes in ("float32", "float16", "uint8", "bits"):
        of_expansion(frames, planes, args.batch)
    if args.torch:
        of_torch(frames, args.batch)


if __name__ == "__main__":
    main()
