"""Join video files of one encoding into one file. Packets are copied, nothing is decoded or encoded again.

Frame `k` of a file is shown at `(n + k) / fps` seconds of the result, where `n` frames are in the files before it,
independent of the length that a container claims. Packet `p` is decoded at `(p - delay) / fps` seconds, where `delay`
is the largest number of packets that a frame of any file waits for. So these times increase. The table of packets is at
the front, so that a reader of a remote file has it with the first bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.video.index import EXTRA, PacketIndex, demuxer, open_video
from penstock.errors import DataError, require
from penstock.files.folders import atomic_path


def can_join(one: PacketIndex, other: PacketIndex) -> bool:
    """Return whether the packets of two files can be in one file."""
    alike = (one.encoding, one.time_base, one.rotation) == (other.encoding, other.time_base, other.rotation)
    return alike and all(len(each) == len(each.rank) for each in (one, other))  # no packet is hidden


def join_videos(paths: Sequence[Path], indexes: Sequence[PacketIndex], fps: float | Fraction, target: Path) -> None:
    """Write the frames of MP4 files into one MP4 file, which appears when it is complete."""
    if not all(can_join(indexes[0], each) for each in indexes):
        raise DataError(f"expected files of one encoding to join, got others among {[str(path) for path in paths]}")
    av = require("av", EXTRA)
    rate = Fraction(fps).limit_denominator(1001)
    delay = max(int((np.arange(len(each.rank)) - each.rank).max()) for each in indexes)
    with atomic_path(target, durable="file") as place, ExitStack() as stack:
        options = {"movflags": "faststart"}
        output = stack.enter_context(av.open(str(place), "w", format="mp4", options=options))
        stream: Any = None
        frames = number = 0
        for path, index in zip(paths, indexes, strict=True):
            tick = 1 / rate / index.time_base
            shift = round(frames * tick) - int(index.ticks[0])
            with open_video(path) as file, demuxer(file, path, 0) as (container, source):
                if stream is None:
                    stream = output.add_stream_from_template(source, opaque=True)  # a decoder cannot write
                    stream.time_base = source.time_base
                for packet in container.demux(source):
                    if packet.dts is None:
                        continue  # the flush packet after the last one
                    packet.pts += shift
                    packet.dts = round((number - delay) * tick)
                    number += 1
                    packet.stream = stream
                    output.mux(packet)
            frames += len(index)
