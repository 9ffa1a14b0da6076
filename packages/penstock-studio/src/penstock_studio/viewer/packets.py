"""Packets of stored video for a decoder in the browser, which shows a frame by its number."""

from __future__ import annotations

import json
import struct
from itertools import count
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from penstock.containers.video import PacketIndex, VideoFiles
from penstock.containers.video.index import demuxer, open_video
from penstock.core.arrays import IntArray
from penstock.errors import FormatError
from penstock.files.remote import opened_state, read_at
from penstock.formats.base.source import Source
from penstock.formats.base.state import SourceState, StateSource

UNSPECIFIED = 2  # of FFmpeg: the file does not say how its colours are coded
FULL_RANGE = 2


@runtime_checkable
class StoredFrames(Protocol):
    """Reader of a column whose rows are frames of video files."""

    files: VideoFiles

    def locate(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the file number and the frame number of rows."""
        ...


def stored_frames(source: Source, camera: str) -> StoredFrames | None:
    """Return the reader of a camera whose frames are in video files, or None."""
    if not isinstance(source, StateSource):
        return None
    state = cast("StateSource[SourceState]", source).state
    reader = state.arrays.get(camera)
    return reader if isinstance(reader, StoredFrames) and not reader.files.remote else None


def packets_of(frames: StoredFrames, rows: IntArray) -> bytes:
    """Return what a decoder needs to show rows, whose frames are in one file: a header, and packets one after another.

    The header is JSON behind its size: `config` for `VideoDecoder`, or None where no browser knows the codec; the
    `frames` of the rows; and `packets` in decoding order, each with its size, its frame (-1 if it is not shown) and
    whether it is a key frame.
    """
    files, numbers = frames.locate(rows)
    file = int(files[0]) if len(files) else 0
    index = frames.files.index(file)
    config = _config(frames.files.paths[file], index) if len(set(files.tolist())) == 1 else None
    if config is None or (index.height, index.width) != frames.files.size:
        return _message({"config": None, "frames": [], "packets": []}, b"")
    first, end = int(index.start[numbers].min()), int(index.packet[numbers].max()) + 1
    keys = set(index.keys.tolist())
    listed = [[int(index.size[p]), int(index.rank[p]), p in keys] for p in range(first, end)]
    header = {"config": config, "frames": numbers.tolist(), "packets": listed}
    return _message(header, _bytes_of(frames.files.paths[file], index, first, end))


def _message(header: dict[str, Any], content: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + content


def _bytes_of(path: Path, index: PacketIndex, first: int, end: int) -> bytes:
    with open_video(path) as file:
        if opened_state(file.fileno(), path) != index.state:
            message = "expected the file as it was, got one that was replaced or changed; open the dataset again"
            raise FormatError(message, path=path)
        places = zip(index.offset[first:end].tolist(), index.size[first:end].tolist(), strict=True)
        return b"".join(read_at(path, file.fileno(), size, offset) for offset, size in places)


def _config(path: Path, index: PacketIndex) -> dict[str, Any] | None:
    """What `VideoDecoder.configure` wants."""
    with open_video(path) as file:
        for number in count():
            with demuxer(file, path, number) as (_, chosen):
                if chosen.index != index.stream:
                    continue
                context = chosen.codec_context
                setup = bytes(context.extradata or b"")
                codec = codec_text(context.codec.canonical_name, setup)
                if codec is None:
                    return None
                config: dict[str, Any] = {"codec": codec, "codedWidth": index.width, "codedHeight": index.height}
                if context.colorspace == UNSPECIFIED:  # as FFmpeg takes it, so that colours are as in the rows
                    full = context.color_range == FULL_RANGE
                    config["colorSpace"] = {"matrix": "smpte170m", "primaries": "bt709", "transfer": "bt709"}
                    config["colorSpace"]["fullRange"] = full
                if codec.startswith(("avc1", "hvc1")):
                    config["description"] = list(setup)
                return config
    return None


def codec_text(name: str, setup: bytes) -> str | None:
    """Return the codec and its profile as browsers write them, from FFmpeg's name and the parameters of a stream.

    None stands for codecs that they do not know. Sources: RFC 6381; the AV1, VP9 and HEVC bindings for ISO BMFF.
    """
    if name == "h264" and len(setup) > 3 and setup[0] == 1:
        return f"avc1.{setup[1:4].hex()}"
    if name == "av1" and len(setup) > 3:
        profile, level = setup[1] >> 5, setup[1] & 31
        flags = setup[2]
        depth = (12 if flags & 32 else 10) if flags & 64 else 8
        return f"av01.{profile}.{level:02}{'H' if flags & 128 else 'M'}.{depth:02}"
    if name == "vp8":
        return "vp8"
    if name == "vp9":
        return "vp09.00.10.08"
    if name == "hevc" and len(setup) > 12 and setup[0] == 1:
        compatible = int(f"{int.from_bytes(setup[2:6]):032b}"[::-1], 2)
        return f"hvc1.{setup[1] & 31}.{compatible:x}.{'H' if setup[1] & 32 else 'L'}{setup[12]}.{setup[6]:x}"
    return None
