"""Reading an MCAP file through penstock against the reader of `mcap` alone: `python benchmarks/logs.py`.

Claim: penstock reads random windows of a log faster than `mcap`, because it unpacks only the chunks that have their
messages, and decodes each block once; and reads all of it, joined by a clock, in a small multiple of the time that
`mcap` and its decoders need for the messages alone.

The log has joints at 200 Hz and images as PNG at 20 Hz, of ROS 2, with chunks of 1 MiB packed by zstd. A window has 16
steps of an image and the joints. The peer seeks with `iter_decoded_messages` and the times of the window, and keeps the
newest joints for each image. Penstock has a new process's caches in each round. Rounds alternate, and the best counts.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np

JOINTS_HZ, IMAGES_HZ, WINDOW = 200, 20, 16
HEADER = "=" * 80 + "\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
STATE = f"std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n{HEADER}"
IMAGE = f"std_msgs/Header header\nstring format\nuint8[] data\n{HEADER}"
NAMES = [f"joint_{i}" for i in range(7)]
UNWANTED = ["**/header/frame_id", "joints/velocity/*", "joints/effort"]
COLUMNS = {"camera": "camera/image", "joints": [f"joints/position/{name}" for name in NAMES]}
CLOCK = {"reference": "camera", "within": 0.1}


def write(path: Path, seconds: int) -> None:
    """Write the log with the writer of `mcap-ros2-support`."""
    from mcap_ros2.writer import Writer
    from PIL import Image

    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=1 << 20)
        state = writer.register_msgdef("sensor_msgs/msg/JointState", STATE)
        image = writer.register_msgdef("sensor_msgs/msg/CompressedImage", IMAGE)
        for i in range(seconds * JOINTS_HZ):
            at = i * 10**9 // JOINTS_HZ
            header = {"stamp": {"sec": at // 10**9, "nanosec": at % 10**9}, "frame_id": "base"}
            position = rng.normal(size=7).tolist()
            message = {"header": header, "name": NAMES, "position": position, "velocity": position, "effort": []}
            writer.write_message("/joints", state, message, at, at)
            if i % (JOINTS_HZ // IMAGES_HZ) == 0:
                pixels = np.full((96, 96, 3), i % 251, np.uint8)
                pixels[::4] = rng.integers(0, 255, 3, np.uint8)
                buffer = io.BytesIO()
                Image.fromarray(pixels).save(buffer, "PNG")
                message = {"header": header, "format": "png", "data": buffer.getvalue()}
                writer.write_message("/camera", image, message, at, at)
        writer.finish()


def peer(path: Path, starts: list[int], steps: int) -> float:
    """Seconds of the reader of `mcap`, with decoders of ROS 2, for some ranges of images."""
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory
    from PIL import Image

    period = 10**9 // IMAGES_HZ
    begin = time.perf_counter()
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for start in starts:
            newest: Any = None
            rows: list[Any] = []
            first, last = start * period, (start + steps - 1) * period
            for _, channel, _, message in reader.iter_decoded_messages(
                ["/joints", "/camera"], starting_at=max(first - 10**9 // JOINTS_HZ, 0), ending_at=last
            ):
                if channel.topic == "/joints":
                    newest = message
                else:
                    rows.append((np.asarray(Image.open(io.BytesIO(message.data))), np.array(newest.position)))
            if len(rows) < steps:
                raise RuntimeError(f"expected {steps} images, got {len(rows)}")
    return time.perf_counter() - begin


def ours(path: Path, starts: list[int], steps: int) -> float:
    """Seconds of penstock, with opening, for some windows."""
    import penstock
    from penstock_logs.log import CACHE

    CACHE.clear()
    begin = time.perf_counter()
    with penstock.open(path, format="mapping", columns=COLUMNS, clock=CLOCK, leave_out=UNWANTED) as data:
        windows = data.windows(steps)
        for start in starts:
            windows[[start]]
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60, help="of the log")
    parser.add_argument("--windows", type=int, default=64)
    options = parser.parse_args()
    images = options.seconds * IMAGES_HZ
    starts = np.random.default_rng(1).integers(images - WINDOW, size=options.windows).tolist()
    tasks = {"random windows": (starts, WINDOW), "all of it": (list(range(0, images, images // 8)), images // 8)}
    print(f"{'':16} {'mcap':>10} {'penstock':>10} {'penstock is faster':>20}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.mcap"
        write(path, options.seconds)
        for name, (places, steps) in tasks.items():
            theirs, mine = float("inf"), float("inf")
            for _ in range(options.rounds):
                theirs = min(theirs, peer(path, places, steps))
                mine = min(mine, ours(path, places, steps))
            rows = len(places) * steps
            print(f"{name:16} {rows / theirs:8,.0f}/s {rows / mine:8,.0f}/s {theirs / mine:18.2f} x")
            figures.record(f"faster_than_mcap.{name.replace(' ', '_')}", theirs / mine, "x")


if __name__ == "__main__":
    main()
