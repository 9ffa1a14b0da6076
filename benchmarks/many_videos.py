"""Memory, descriptors and time of reading from thousands of video files: `python benchmarks/many_videos.py`.

Claim: reading a frame of each of 8,390 files needs memory for a few decoders, where a loader that keeps a decoder for
each file needs tens of gigabytes (lerobot, pull request 3614: 8,390 decoders took 34.9 GB). The files are hard links to
four clips of 240 x 320, AV1 and H.264. *One decoder a file* is PyAV with `--few` open files, each with the frames that
it has decoded once, times the number of files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np

from penstock.containers.video import VideoFiles, VideoWriter
from penstock.containers.video.decoders import POOL

HEIGHT, WIDTH, FRAMES = 240, 320, 12
CLIPS = (("libsvtav1", 0), ("libsvtav1", 1), ("libx264", 2), ("libx264", 3))


def resident() -> float:
    """MB of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def linked(folder: Path, count: int) -> list[Path]:
    """Encode the clips, and link them `count` times."""
    clips: list[Path] = []
    for codec, seed in CLIPS:
        rng = np.random.default_rng(seed)
        base = rng.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        clips.append(folder / f"clip{seed}.mp4")
        with VideoWriter(clips[-1], 10, codec=codec) as writer:
            for i in range(FRAMES):
                writer.append(np.roll(base, i, 1))
    paths = [folder / f"{number}.mp4" for number in range(count)]
    for number, path in enumerate(paths):
        os.link(clips[number % len(clips)], path)
    return paths


def open_each(paths: list[Path]) -> float:
    """MB for each file, with a decoder that stays open."""
    import av

    kept: list[Any] = []
    before = resident()
    for path in paths:
        container = av.open(str(path))
        container.streams.video[0].thread_count = 1
        kept.append((container, [next(container.decode(video=0)) for _ in range(2)]))
    return (resident() - before) / len(kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=8390)
    parser.add_argument("--few", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_CACHE"] = str(Path(folder) / "cache")
        paths = linked(Path(folder), given.files)
        files = VideoFiles(paths)
        out = np.empty((64, HEIGHT, WIDTH, 3), np.uint8)
        order = np.random.default_rng(0).permutation(given.files)
        rng = np.random.default_rng(1)
        files.read([0, 2], [3, 3], [0, 1], out)  # libraries are loaded
        before, begin = resident(), time.perf_counter()
        most = descriptors = 0
        for number in range(0, given.files, len(out)):
            some = order[number : number + len(out)]
            files.read(some, rng.integers(0, FRAMES, len(some)), np.arange(len(some)), out)
            most = max(most, round(resident() - before))
            descriptors = max(descriptors, len(os.listdir("/proc/self/fd")))
        seconds = time.perf_counter() - begin
        again = time.perf_counter()
        for number in range(0, given.files, len(out)):
            some = order[number : number + len(out)]
            files.read(some, rng.integers(0, FRAMES, len(some)), np.arange(len(some)), out)
        again = time.perf_counter() - again
        pool = POOL.stats()
        each = open_each(paths[: given.few])
    naive = each * given.files / 1000
    print(f"{given.files} files, a random frame of each")
    print(f"{'memory, penstock':32} {most:10,.0f} MB")
    print(f"{'memory, one decoder a file':32} {1000 * naive:10,.0f} MB  ({each:.1f} MB for each of {given.few} files)")
    print(f"{'decoders that wait':32} {pool['idle']:10}")
    print(f"{'descriptors, most':32} {descriptors:10}")
    print(f"{'seconds, with indexes made':32} {seconds:10.1f}")
    print(f"{'seconds, second pass':32} {again:10.1f}")
    figures.record("memory", 1e6 * most, "B")
    figures.record("naive_memory", 1e9 * naive, "B")
    figures.record("decoders", pool["idle"], "count")
    figures.record("descriptors", descriptors, "count")
    figures.record("first_pass", seconds, "s")
    figures.record("second_pass", again, "s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
