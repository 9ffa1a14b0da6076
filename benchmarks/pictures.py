"""Random batches of encoded pictures against their decoder alone: `python benchmarks/pictures.py`.

Claim: batches take at most a third more CPU time than *reads*, also on a machine that is shared with others.

*decoder* decodes bytes in memory into memory of three batches in turn, as a loader does. *reads* gets the bytes as
penstock does: it opens the same files, looks at their states, reads the same bytes and closes them, and does nothing
else in Python; no reader that keeps no files open takes less. RLDS is mapped, and has no such calls. *batches* are all
columns, *pictures* that column alone. Pillow and OpenCV decode the same bytes into new memory. Runs alternate on one
core, and the least CPU time of `--rounds` counts. A batch has pictures of nearly as many episodes. Figures are
microseconds a picture.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
from PIL import Image

import penstock
from penstock.containers import images
from penstock.formats.lerobot import columns as lerobot
from penstock.formats.lerobot import creation
from penstock.formats.rlds import columns as rlds

KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # format and options, Parquet of Minari
    "minari-jpeg": ("minari", {"data_format": "parquet", "images": "jpeg"}),
    "lerobot-png": ("lerobot", {"fps": 10, "cameras": "image"}),
    "lerobot-jpeg": ("lerobot", {"fps": 10, "cameras": "image"}),
    "rlds-png": ("rlds", {"images": "png"}),
    "rlds-jpeg": ("rlds", {"images": "jpeg"}),
}
OTHERS = ("Pillow", "OpenCV")
SIZES = {"96x96": (96, 96, 1600, 64, 10), "640x480": (480, 640, 48, 16, 3)}  # rows, columns, steps, batch, episode


def pictures(count: int, height: int, width: int) -> np.ndarray:
    """Waves of colour, a disc and some noise, of which JPEG makes as much as of pictures by a camera."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    noise = rng.normal(0, 4, (height, width, 3))
    frames = np.empty((count, height, width, 3), np.uint8)
    for frame in frames:
        waves = rng.uniform(0.01, 0.06, (3, 2)) @ np.stack([x.ravel(), y.ravel()]) + rng.uniform(0, 6, (3, 1))
        colours = 127 + 80 * np.sin(waves).T.reshape(height, width, 3)
        column, row = rng.integers(0, width), rng.integers(0, height)
        colours[(x - column) ** 2 + (y - row) ** 2 < (height // 6) ** 2] = rng.integers(0, 255, 3)
        frame[...] = np.clip(colours + noise, 0, 255)
    return frames


def written(folder: Path, kind: str, height: int, width: int, steps: int, episode: int) -> Path:
    columns = {"observations": pictures(steps, height, width), "actions": np.zeros((steps, 2), np.float32)}
    flags = {"terminations": np.zeros(steps, bool), "truncations": np.arange(steps) % episode == episode - 1}
    data = penstock.from_arrays(
        {**columns, "rewards": np.zeros(steps), **flags}, lengths=[episode] * (steps // episode)
    )
    name, options = KINDS[kind]
    path = folder / f"{kind}-{height}-v0"
    encode = images.encode
    jpeg = kind == "lerobot-jpeg"  # which LeRobot reads and does not write
    with mock.patch.object(creation, "encode", lambda pixels, _, **__: encode(pixels, "jpeg")) if jpeg else ExitStack():
        penstock.convert(data, path, format=name, options=options, fill_missing=name == "minari")
    return path


def decoded_calls(samples: penstock.MapDataset, batch: int) -> list[tuple[bytes, tuple[int, ...], dict[str, bool]]]:
    """Return bytes, shape and options of each picture that an epoch decodes."""
    calls: list[tuple[bytes, tuple[int, ...], dict[str, bool]]] = []
    with ExitStack() as stack:
        for module in (images, lerobot, rlds):
            noted = mock.patch.object(module, "decode_into", lambda blob, out, **k: calls.append((blob, out.shape, k)))
            stack.enter_context(noted)
        load(samples, batch)
    return calls


def load(samples: penstock.MapDataset, batch: int) -> None:
    for _ in samples.loader(batch_size=batch, threads=1):
        pass


def epochs_of(samples: penstock.MapDataset, batch: int, epochs: int) -> Callable[[], None]:
    """Return a function that loads whole epochs: in jobs over two of them, a picture that comes twice is decoded once.

    The loader is the same in all calls, for its first jobs take new memory.
    """
    loader = samples.loader(batch_size=batch, threads=1)

    def run() -> None:
        for _ in range(epochs):
            for _ in loader:
                pass

    return run


def reads_of_files(samples: penstock.MapDataset, batch: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return files with sizes and places of what an epoch reads of them by `pread`, in order."""
    reads: list[tuple[str, list[tuple[int, int]]]] = []
    files: dict[int, list[tuple[int, int]]] = {}
    opened, read = os.open, os.pread

    def noted_open(path: str, *args: Any, **options: Any) -> int:
        fd = opened(path, *args, **options)
        files[fd] = []
        reads.append((os.fspath(path), files[fd]))
        return fd

    def noted_read(fd: int, size: int, place: int) -> bytes:
        files[fd].append((size, place))
        return read(fd, size, place)

    with mock.patch.object(os, "open", noted_open), mock.patch.object(os, "pread", noted_read):
        load(samples, batch)
    return [(path, places) for path, places in reads if places]


def measured(path: Path, batch: int, rounds: int, epochs: int) -> dict[str, float]:
    """Return microseconds of CPU time a picture by what runs."""
    samples = penstock.open(path).steps().shuffle(seed=0)
    calls = decoded_calls(samples, batch)
    memory = np.empty((3 * batch, *calls[0][1]), np.uint8)
    name = next(name for name in samples[:1] if name.startswith("observation"))
    files = reads_of_files(samples.select_columns(name), batch)

    def decoder() -> None:
        for i, (blob, _, options) in enumerate(calls * epochs):
            images.decode_into(blob, memory[i % len(memory)], **options)

    def reads() -> None:
        decoded, options = 0, calls[0][2]
        for file, places in files * epochs:
            fd = os.open(file, os.O_RDONLY)
            os.fstat(fd)
            blobs = [os.pread(fd, size, place) for size, place in places]
            os.fstat(fd)
            os.close(fd)
            for blob in blobs:
                images.decode_into(blob, memory[decoded % len(memory)], **options)
                decoded += 1
        assert decoded == len(calls) * epochs

    def opencv() -> None:
        for blob, _, _ in calls:
            cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_COLOR)

    runs: dict[str, Callable[[], object]] = {
        "decoder": decoder,
        "reads": reads if files else decoder,
        "batches": epochs_of(samples, batch, epochs),
        "pictures": epochs_of(samples.select_columns(name), batch, epochs),
        "Pillow": lambda: [np.asarray(Image.open(io.BytesIO(blob))) for blob, _, _ in calls],
        "OpenCV": opencv,
    }
    best = dict.fromkeys(runs, np.inf)
    for _ in range(rounds):
        for run, function in runs.items():
            begin = time.process_time()
            function()
            decoded = len(calls) * (1 if run in OTHERS else epochs)
            best[run] = min(best[run], (time.process_time() - begin) / decoded * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    cv2.setNumThreads(1)
    print(f"{'':32} decoder    reads  batches pictures   Pillow   OpenCV   reads / batches, / pictures")
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            height, width, steps, batch, episode = SIZES[size]
            for kind in given.kinds:
                path = written(Path(folder), kind, height, width, steps, episode)
                found = measured(path, batch, given.rounds, given.epochs)
                times = " ".join(f"{value:8.1f}" for value in found.values())
                shares = f"{found['reads'] / found['batches']:.2f} {found['reads'] / found['pictures']:.2f}"
                print(f"{kind:20} {size:10} {times}   {shares}", flush=True)


if __name__ == "__main__":
    main()
