"""Tar shards in il-representations' layout: written, opened, read as temporal pairs, against the webdataset library.

Two datasets of 20 000 frames 3 x 84 x 84 (7 pickles a frame) in 4 archives each; pairs of an observation and the next,
shuffled (ours over all pairs, theirs in a buffer of 1 024), the datasets interleaved, batches of 256.

Claims: 50 k pairs/s from plain tars in one process, warm; 20 k frames/s for the first opening, which walks the headers
and compares observations; 10 k frames/s written; 8 k pairs/s from gzip in the first epoch, unpacking included.

    python benchmarks/shards.py [--small | --frames 20000] [--peer PYTHON_WITH_WEBDATASET_AND_TORCH]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import numpy as np

if TYPE_CHECKING:
    from penstock import Episode

STEPS = 100  # of an episode
BATCH = 256
SHARDS = 4


def episodes(frames: int, seed: int) -> Iterator[Episode]:
    from penstock import Episode, Field, Spec

    flag = Field(np.dtype("bool"))
    spec = Spec(
        {
            "observations": Field(np.dtype("u1"), (3, 84, 84), "boundary"),
            "actions": Field(np.dtype("i8")),
            "rewards": Field(np.dtype("f8")),
            "terminations": flag,
            "truncations": flag,
        }
    )
    rng = np.random.default_rng(seed)
    last = np.arange(STEPS) == STEPS - 1
    tile = np.ones((7, 7), np.uint8)  # pictures that gzip makes some nine times smaller
    for _ in range(frames // STEPS):
        columns = {
            "observations": np.kron(rng.integers(256, size=(STEPS + 1, 3, 12, 12), dtype=np.uint8), tile),
            "actions": rng.integers(18, size=STEPS),
            "rewards": rng.normal(size=STEPS),
            "terminations": last,
            "truncations": last & False,
        }
        yield Episode(spec, columns)


def write(folder: Path, frames: int, seed: int, compression: str | None = None) -> float:
    from penstock.formats.webdataset import FORMAT

    held = list(episodes(frames, seed))
    begin = time.perf_counter()
    options: dict[str, Any] = {
        "layout": "seed",
        "shard_episodes": frames // SHARDS,
        "shard_bytes": frames // SHARDS * 60_000,
    }
    with FORMAT.create(
        folder, held[0].spec, {"env_cfg": {"benchmark_name": "none"}}, compression=compression, **options
    ) as w:
        w.write_all(held)
    return frames / (time.perf_counter() - begin)


def pairs(paths: list[Path], **options: object) -> tuple[float, float, float]:
    """Seconds to open, pairs/s in the first epoch with the opening, and in later ones."""
    import penstock

    begin = time.perf_counter()
    data = [
        penstock.open(path, format="webdataset", **options).windows(2).select_columns("observations").shuffle(seed=i)
        for i, path in enumerate(paths)
    ]
    opened = time.perf_counter() - begin
    mixed = penstock.mix(data)
    rates = []
    for _ in range(3):
        count = 0
        for batch in mixed.loader(batch_size=BATCH, threads=2):
            count += len(batch["observations"])
        rates.append(count / (time.perf_counter() - begin))
        begin = time.perf_counter()
    return opened, rates[0], max(rates[1:])


def peer(interpreter: str, script: str, *words: object) -> float:
    """What the library's side of a measurement prints: a rate."""
    command = [interpreter, str(Path(__file__).with_name("rivals") / script), *map(str, words)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def say(name: str, what: str, rate: float, unit: str, theirs: float | None = None) -> None:
    figures.record(name, rate, "/s")
    if theirs is not None:
        figures.record(f"{name}.ratio", rate / theirs, "x")
    ratio = "" if theirs is None else f"{rate / theirs:>8.1f} x of {theirs:,.0f}"
    print(f"{what:<44}{rate:>12,.0f} {unit}{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20_000, help="of a dataset")
    parser.add_argument("--small", action="store_const", const=4_000, dest="frames", help="4 000 frames a dataset")
    parser.add_argument("--peer", help="an interpreter that has webdataset and torch")
    arguments = parser.parse_args()
    frames = arguments.frames

    def rival(script: str, *words: object) -> float | None:
        return peer(arguments.peer, script, *words) if arguments.peer else None

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = [root / "a", root / "b"]
        write(root / "warm", STEPS * SHARDS, 0)
        written = max(write(f, frames, i) for i, f in enumerate(folders))
        say("written", "written", written, "frames/s", rival("webdataset_write.py", frames // 5, root / "peer.tar"))
        pairs([root / "warm"], index=False)  # loads the kernels
        theirs = rival("webdataset_pairs.py", 0, *folders)
        opened, first, _ = pairs(folders, index=False)
        say("opened", "opened without an index", 2 * frames / opened, "frames/s", theirs)
        say("first", "pairs, opening and first epoch", first, "/s", theirs)
        pairs(folders)
        opened, _, warm = pairs(folders)
        say("reopened", "opened with an index", 2 * frames / opened, "frames/s", theirs)
        say("later", "pairs, later epochs", warm, "/s", theirs)
        say("workers", "the same, two workers there", warm, "/s", rival("webdataset_pairs.py", 2, *folders))
        packed = [root / "c", root / "d"]
        for i, folder in enumerate(packed):
            write(folder, frames // 5, i, "gzip")
        theirs = rival("webdataset_pairs.py", 0, *packed)
        _, first, warm = pairs(packed, cache=root / "cache", index=False)
        say("gzip.first", "gzip: pairs, unpacking and first epoch", first, "/s", theirs)
        say("gzip.later", "gzip: pairs, later epochs", warm, "/s", theirs)
        say("gzip.streamed", "gzip: steps streamed, buffer of 1 024", streamed(packed), "/s", theirs)


def streamed(paths: list[Path]) -> float:
    """Steps/s read one way, without a cache."""
    from penstock.formats.webdataset.streaming import ShardStream

    begin, count = time.perf_counter(), 0
    for path in paths:
        for block in ShardStream(path, shuffle=1024, rows=BATCH)():
            count += block.n
    return count / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(main())
