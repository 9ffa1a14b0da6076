"""Frames of videos a second: penstock, the decoder alone, and LeRobot's own loading, on the same files in one run.

    python benchmarks/video.py [--peer PYTHON] [--rounds 2] [--cpu] [--batches 16]

First table: random windows of frames of 480 x 640 from files that `VideoWriter` encoded, in batches of 128 frames.
*Decoder* is PyAV alone, on the same packets of the same groups of pictures, with as many threads: it decodes and
converts to RGB (`to_ndarray`), and does not look for packets or fill a batch. The table compares the CPU time of all
threads. Claim: penstock takes at most 1.3 times as much.

Second table, with `--peer`: a dataset of two cameras that LeRobot 0.4.4 writes (AV1, a key frame every 2 frames), and
random windows of 4 frames of each camera in batches of 32. LeRobot loads with its `delta_timestamps`, by torchcodec and
by PyAV, in a `DataLoader` with a worker for each core; penstock loads with a `Loader` with a thread for each core.
*Drop-in* is `penstock_mirrors.lerobot` in the same `DataLoader` as LeRobot. Each loads one epoch, after a first batch
that fills caches. Other work on the machine changes the rates, so the table also has the CPU time of a frame, of all
threads and worker processes. Frames of LeRobot and of the drop-in are floats, those of penstock bytes. Claim: penstock
loads at least 3 times as many frames a second. *Decoder alone* is PyAV on the packets of the same batches of both
cameras, with a thread for each core: no loader that decodes each batch by itself needs less CPU time. With
`frame_cache_bytes`, decoded frames stay in memory, and a small dataset is decoded once.

Third table, with `--cpu` alone: CPU time of one frame of the same batches, loaded on one core. *Decoding* is libdav1d
on the packets that the wanted frames need, each once, without converting them: the part that no loader without a cache
can save, so the last column is the most that such a loader can gain. The peer needs `lerobot==0.6.1`
(`make .build/lerobot.stamp`) and, for torchcodec, an FFmpeg that it finds.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import numpy as np

HEIGHT, WIDTH, FPS, WINDOW, BATCH = 480, 640, 30, 4, 32
EPISODES, STEPS, CAMERAS = 6, 100, ("front", "wrist")
OURS = {"dropin": "penstock, drop-in", "decoder": "decoder alone", "cached": "penstock, frames in memory"}
KINDS = {"av1_g2": ("libsvtav1", 2, {"preset": "10"}), "h264_g2": ("libx264", 2, {}), "h264_g50": ("libx264", 50, {})}


def picture(i: int, seed: int = 0) -> np.ndarray:
    """`[HEIGHT, WIDTH, 3]` coloured boxes that move over a texture."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(40, 200, (HEIGHT // 16, WIDTH // 16, 3), np.uint8)
    image = coarse.repeat(16, 0).repeat(16, 1) + rng.integers(0, 12, (HEIGHT, WIDTH, 1), np.uint8)
    for box in range(6):
        y, x = (37 * box + 2 * i) % (HEIGHT - 60), (91 * box + 3 * i) % (WIDTH - 80)
        image[y : y + 60, x : x + 80] = rng.integers(0, 256, 3, np.uint8)
    return image


def cpu_of(work: Callable[[], object]) -> float:
    """Seconds of CPU that all threads take."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def decoder_alone(files: Any, numbers: np.ndarray, frames: np.ndarray, threads: int) -> Callable[[], None]:
    """Decodes the packets that these frames need, and converts the wanted frames, with contexts and packets at hand."""
    import av

    groups: list[tuple[int, int, int, set[int]]] = []
    for file in np.unique(numbers).tolist():
        index = files.index(file)
        for frame in np.unique(frames[numbers == file]).tolist():
            first, last = int(index.start[frame]), int(index.packet[frame])
            if groups and groups[-1][0] == file and first <= groups[-1][2] + 1:
                groups[-1] = (file, groups[-1][1], max(last, groups[-1][2]), groups[-1][3] | {frame})
            else:
                groups.append((file, first, last, {frame}))
    raw = [path.read_bytes() for path in files.paths]

    def context() -> Any:
        with av.open(str(files.paths[0])) as container:
            made = container.streams.video[0].codec_context
        made.thread_count = 1
        return made

    contexts = [context() for _ in range(threads)]

    def decode(decoder: Any, file: int, first: int, last: int, wanted: set[int]) -> None:
        index = files.index(file)
        decoder.flush_buffers()
        for p in range(first, last + 1):
            begin, size = int(index.offset[p]), int(index.size[p])
            packet = av.Packet(size)
            packet.update(raw[file][begin : begin + size])
            packet.pts = int(index.rank[p])
            for frame in decoder.decode(packet):
                if frame.pts in wanted:
                    frame.to_ndarray(format="rgb24")
        for frame in decoder.decode(None):
            if frame.pts in wanted:
                frame.to_ndarray(format="rgb24")

    def work() -> None:
        left, lock = iter(groups), threading.Lock()

        def run(decoder: Any) -> None:
            while True:
                with lock:
                    group = next(left, None)
                if group is None:
                    return
                decode(decoder, *group)

        running = [threading.Thread(target=run, args=(each,)) for each in contexts]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    return work


def against_the_decoder(folder: Path, rounds: int) -> None:
    """Print and record the first table."""
    from penstock.containers.video import VideoFiles, VideoWriter
    from penstock.flow import cores

    print(f"{'CPU ms':10} {'window':>7} {'penstock':>10} {'decoder':>10} {'of the decoder':>17}")
    worst = 0.0
    for kind, (codec, g, options) in KINDS.items():
        paths = [folder / f"{kind}_{number}.mp4" for number in range(3)]
        for number, path in enumerate(paths):
            with VideoWriter(path, FPS, codec=codec, g=g, options=options) as writer:
                for i in range(120):
                    writer.append(picture(i, number))
        files = VideoFiles(paths)
        for window in (1, 4, 16):
            rng = np.random.default_rng(window)
            count = 128 // window
            numbers = rng.integers(0, 3, count).repeat(window)
            frames = (rng.integers(0, 120 - window, count)[:, None] + np.arange(window)).ravel()
            out = np.empty((len(frames), HEIGHT, WIDTH, 3), np.uint8)
            places = np.arange(len(frames))
            alone = decoder_alone(files, numbers, frames, cores())
            seconds, bare = np.inf, np.inf
            for _ in range(rounds):
                seconds = min(seconds, cpu_of(lambda: files.read(numbers, frames, places, out)))  # noqa: B023
                bare = min(bare, cpu_of(alone))
            worst = max(worst, seconds / bare)
            frame = 1000 * seconds / len(frames), 1000 * bare / len(frames)
            print(f"{kind:10} {window:7} {frame[0]:10.2f} {frame[1]:10.2f} {seconds / bare:16.2f}x")
            figures.record(f"{kind}.window{window}", seconds / len(frames), "s")
    figures.record("time_of_decoder", worst, "x")


def lerobot() -> Any:
    """Import LeRobot without libraries that loading does not use."""
    import types

    import torch

    class Absent(types.ModuleType):
        __path__: list[str] = []  # noqa: RUF012

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    torch.library.register_fake = lambda *_, **__: lambda fn: fn  # its torchvision may be of another torch
    for name in ("accelerate", "accelerate.utils", "safetensors", "safetensors.torch"):
        sys.modules.setdefault(name, Absent(name))
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset


def write(root: Path) -> None:
    """Write the dataset with LeRobot."""
    camera = {"dtype": "video", "shape": (HEIGHT, WIDTH, 3), "names": ["height", "width", "channels"]}
    vector = {"dtype": "float32", "shape": (6,), "names": None}
    features = {f"observation.images.{name}": camera for name in CAMERAS} | {"action": vector}
    features["observation.state"] = vector
    data = lerobot().create("penstock/video", FPS, features, root=root, use_videos=True, streaming_encoding=True)
    for episode in range(EPISODES):
        for i in range(STEPS):
            images = {
                f"observation.images.{name}": picture(i, episode + 100 * number) for number, name in enumerate(CAMERAS)
            }
            numbers = np.full(6, i, np.float32)
            data.add_frame({**images, "action": numbers, "observation.state": numbers, "task": "move"})
        data.save_episode()
    data.finalize()


def epoch_of(make: Callable[[], Any]) -> tuple[float, float]:
    """Frames a second, and seconds of CPU for a frame, of all batches of an iterator, after one batch of another."""
    next(iter(make()))
    gc.collect()  # worker processes of the first iterator end, so that their time is not counted
    before, begin = _cpu_seconds(), time.perf_counter()
    samples = sum(1 for batch in make() for _ in batch["index"])
    seconds = time.perf_counter() - begin
    gc.collect()  # worker processes have ended, so that their time is counted
    frames = samples * WINDOW * len(CAMERAS)
    return frames / seconds, (_cpu_seconds() - before) / frames


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def load_with_lerobot(root: Path, backend: str) -> tuple[float, float]:
    """Frames a second, and seconds of CPU for a frame, of a `DataLoader` over LeRobot's dataset or the drop-in."""
    import torch

    if backend == "dropin":
        from penstock_mirrors.lerobot import LeRobotDataset as Dataset
    else:
        Dataset = lerobot()
    offsets = [i / FPS for i in range(WINDOW)]
    windows = {f"observation.images.{name}": offsets for name in CAMERAS}
    chosen = None if backend == "dropin" else backend
    data = Dataset("penstock/video", root=root, delta_timestamps=windows, video_backend=chosen)
    cores = len(os.sched_getaffinity(0))
    return epoch_of(lambda: iter(torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=cores)))


def load_with_penstock(root: Path, *, cache_bytes: int = 0) -> tuple[float, float]:
    """Frames a second, and seconds of CPU for a frame, of a `Loader`. With a cache, all frames are in it before."""
    import penstock

    data = penstock.open(root, frame_cache_bytes=cache_bytes)
    if cache_bytes:
        for episode in data:
            assert len(episode)
    windows = data.windows(WINDOW, pad="repeat").shuffle(seed=0)
    return epoch_of(lambda: iter(windows.loader(batch_size=BATCH)))


def decode_alone(root: Path, batches: int) -> tuple[float, float]:
    """Frames a second, and seconds of CPU for a frame, of the decoder alone, on the frames of the same batches."""
    import penstock
    from penstock.flow import cores

    source = penstock.open(root).source
    cameras = [source.state.arrays[f"observations/images/{name}"] for name in CAMERAS]
    windows = penstock.open(root, columns=["frame_index", "episode_index"]).windows(WINDOW, pad="repeat")
    windows = windows.shuffle(seed=0)
    seconds = used = 0.0
    for number in range(batches):
        batch = windows[number * BATCH : (number + 1) * BATCH]
        rows = (source.offsets[batch["episode_index"]] + batch["frame_index"]).ravel()
        for camera in cameras:
            work = decoder_alone(camera.files, *camera.locate(rows), cores())
            begin = time.perf_counter()
            used += cpu_of(work)
            seconds += time.perf_counter() - begin
    frames = batches * BATCH * WINDOW * len(CAMERAS)
    return frames / seconds, used / frames


def cpu_of_loading(root: Path, way: str, batches: int) -> float:
    """Seconds of CPU for a frame, of loading on one core, after a first batch."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if way == "penstock":
        import penstock

        windows = penstock.open(root).windows(WINDOW, pad="repeat").shuffle(seed=0)
        each: Any = iter(windows.loader(batch_size=BATCH, threads=0))
    else:
        import torch

        torch.set_num_threads(1)
        times = {f"observation.images.{name}": [i / FPS for i in range(WINDOW)] for name in CAMERAS}
        data = lerobot()("penstock/video", root=root, delta_timestamps=times, video_backend=way)
        each = iter(torch.utils.data.DataLoader(data, BATCH, shuffle=True))
    next(each)
    begin = time.process_time()
    for _ in range(batches):
        next(each)
    return (time.process_time() - begin) / (batches * BATCH * WINDOW * len(CAMERAS))


def cpu_of_decoding(root: Path, batches: int) -> float:
    """Seconds of CPU for a wanted frame, of decoding the packets of the same windows once, without converting them."""
    import av

    import penstock
    from penstock.containers.video.decoders import Decoder

    source = penstock.open(root).source
    windows = penstock.open(root, columns=["frame_index", "episode_index"]).windows(WINDOW, pad="repeat")
    windows = windows.shuffle(seed=0)
    seconds, frames = 0.0, 0
    for number in range(batches):
        batch = windows[number * BATCH : (number + 1) * BATCH]
        rows = (source.offsets[batch["episode_index"]] + batch["frame_index"]).ravel()
        for name in CAMERAS:
            camera = source.state.arrays[f"observations/images/{name}"]
            files, numbers = camera.locate(rows)
            for file in np.unique(files).tolist():
                index, raw = camera.files.index(file), camera.files.paths[file].read_bytes()
                wanted = np.unique(numbers[files == file])
                needed = [np.arange(index.start[f], index.packet[f] + 1) for f in wanted.tolist()]
                packets = np.unique(np.concatenate(needed))
                with av.open(str(camera.files.paths[file])) as container:
                    context = container.streams.video[0].codec_context
                    context.thread_count = 1
                    decoder = Decoder(context)
                    begin = time.process_time()
                    for run in np.split(packets, np.flatnonzero(np.diff(packets) > 1) + 1):
                        parts = [memoryview(raw)[index.offset[p] : index.offset[p] + index.size[p]] for p in run]
                        is_key = np.isin(run, index.keys).tolist()
                        list(decoder.frames(zip(parts, index.rank[run].tolist(), is_key, strict=True)))
                    seconds += time.process_time() - begin
            frames += len(rows)
    return seconds / frames


def cpu_against_lerobot(peer: str, folder: Path, rounds: int, batches: int) -> None:
    """Print and record the third table."""
    root = str(folder / "dataset")
    if called(peer, "--write", root) is None:
        raise SystemExit("LeRobot wrote no dataset")
    seconds: dict[str, float] = {}
    for _ in range(rounds):
        for way in ("penstock", "torchcodec", "pyav", "decoding"):
            python = peer if way in ("torchcodec", "pyav") else sys.executable
            found = called(python, "--load", way, "--root", root, "--batches", str(batches), "--cpu")
            if found is not None:
                seconds[way] = min(seconds.get(way, np.inf), found)
    print(f"\n{'CPU time of one frame':28} {'ms':>8} {'of penstock':>12} {'of decoding':>12}")
    for way, found in seconds.items():
        parts = found / seconds["penstock"], found / seconds["decoding"]
        print(f"{way:28} {1000 * found:8.2f} {parts[0]:10.2f} x {parts[1]:10.2f} x")
        figures.record(f"frame.{way}", found, "s")
        if way != "penstock":
            figures.record(f"less_than.{way}", found / seconds["penstock"], "x")


def called(python: str, *words: str) -> Any:
    """What this script prints last in another process, None if that fails."""
    done = subprocess.run([python, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(words[:2])} ended early: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def against_lerobot(peer: str, folder: Path, rounds: int, batches: int) -> None:
    """Print and record the second table: rounds alternate between the ways of loading."""
    root = str(folder / "dataset")
    if called(peer, "--write", root) is None:
        raise SystemExit("LeRobot wrote no dataset")
    rates: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for _ in range(rounds):
        for way in ("penstock", "torchcodec", "pyav", *OURS):
            python = peer if way in ("torchcodec", "pyav") else sys.executable
            measured = called(python, "--load", way, "--root", root, "--batches", str(batches))
            if measured is not None:
                rates[way] = max(rates.get(way, 0.0), measured[0])
                cpu[way] = min(cpu.get(way, np.inf), measured[1])
    print(f"\n{'loading':28} {'frames/s':>10} {'penstock is faster':>20} {'CPU of a frame':>16} {'of penstock':>12}")
    for way, rate in rates.items():
        name = OURS.get(way, way if way == "penstock" else f"LeRobot, {way}")
        faster, more = rates["penstock"] / rate, cpu[way] / cpu["penstock"]
        print(f"{name:28} {rate:10,.0f} {faster:18.2f} x {1000 * cpu[way]:13.2f} ms {more:10.2f} x")
        figures.record(f"load.{way}", rate, "/s")
        figures.record(f"cpu.{way}", cpu[way], "s")
        if way != "penstock":
            figures.record(f"faster_than.{way}", faster, "x")
            figures.record(f"less_than.{way}", more, "x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="interpreter with lerobot")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--cpu", action="store_true", help="only the third table")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--load", choices=("penstock", "torchcodec", "pyav", "decoding", *OURS), help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    if options.write:
        write(Path(options.write))
        print(0)
    elif options.load == "decoding":
        print(cpu_of_decoding(Path(options.root), options.batches))
    elif options.load and options.cpu:
        print(cpu_of_loading(Path(options.root), options.load, options.batches))
    elif options.load == "penstock":
        print(json.dumps(load_with_penstock(Path(options.root))))
    elif options.load == "cached":
        print(json.dumps(load_with_penstock(Path(options.root), cache_bytes=2 << 30)))
    elif options.load == "decoder":
        print(json.dumps(decode_alone(Path(options.root), options.batches)))
    elif options.load:
        print(json.dumps(load_with_lerobot(Path(options.root), options.load)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PENSTOCK_CACHE"] = str(Path(folder) / "cache")
            if options.cpu:
                cpu_against_lerobot(options.peer, Path(folder), options.rounds, options.batches)
                return
            against_the_decoder(Path(folder), options.rounds)
            if options.peer:
                against_lerobot(options.peer, Path(folder), options.rounds, options.batches)


if __name__ == "__main__":
    main()
