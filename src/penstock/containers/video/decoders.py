"""Decoders of PyAV, shared by all video files of a process that were encoded alike.

A decoder holds the reference frames of its codec, some megabytes for each. So at most `cores()` work at a time, each in
one thread, because groups of pictures are independent, and idle ones are kept up to `IDLE` and `IDLE_BYTES`.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from penstock.containers.video.index import PALETTE, PacketIndex
from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.errors import FormatError, MissingExtraError, require
from penstock.flow import cores

PixelFormat = Literal["rgb24", "gray12le"]
PIXELS: dict[PixelFormat, tuple[np.dtype[Any], int]] = {"rgb24": (np.dtype("u1"), 3), "gray12le": (np.dtype("<u2"), 1)}
"""Dtype and channels of the pixels that frames are converted to."""

IDLE = 16  # most decoders that wait for work, at least one for each core
IDLE_BYTES = 1 << 28
SKIPS = ("h264",)  # codecs whose packets say whether any frame refers to theirs; HEVC says it of one layer alone
_REFERENCES = 12  # frames that a decoder holds, about: AV1 and HEVC have 8 to 16 reference frames and some in work
_FREED_BYTES = 1 << 24
_HIDDEN = 1 << 40  # first timestamp of frames that are not shown


class Decoder:
    """One decoder, used by one thread at a time."""

    def __init__(self, context: Any) -> None:
        av = require("av", "video")
        self._context = context
        self._packet, self._side_data = av.Packet, av.packet.PacketSideData
        self._palette = av.packet.packet_sidedata_type_from_literal(PALETTE)
        self._reformatter = av.video.reformatter.VideoReformatter()  # keeps the tables of a conversion for the next
        _keep_freed_memory()
        self.nbytes = int(context.width) * int(context.height) * 3 * _REFERENCES

    def frames(
        self,
        packets: Iterable[tuple[memoryview, int, bool]],
        palette: bytes = b"",
        wanted: Container[int] | None = None,
    ) -> Generator[tuple[int, Any]]:
        """Decode packets, beginning at a key frame, and yield what comes out of them.

        With `wanted`, other frames to which no frame refers are not decoded.
        """
        self._context.flush_buffers()  # forgets the end of the packets before, and their reference frames
        for i, (raw, number, is_key) in enumerate(packets):
            # A packet made of bytes would refer to them, and decoders read a little behind the end of a packet. One
            # made of a size owns padded memory.
            packet = self._packet(len(raw))
            packet.update(raw)
            packet.pts = number if number >= 0 else _HIDDEN + i
            packet.dts = i
            packet.is_keyframe = is_key  # some decoders (PNG) take other packets for changes of the frame before
            if palette and i == 0:
                colours = self._side_data(self._palette, len(palette))
                colours.update(palette)
                packet.set_sidedata(colours)
            skipped = wanted is not None and number not in wanted
            self._context.skip_frame = "NONREF" if skipped else "DEFAULT"
            yield from self._numbered(packet)
        yield from self._numbered(None)

    def _numbered(self, packet: Any) -> Generator[tuple[int, Any]]:
        for frame in self._context.decode(packet):
            if frame.pts < _HIDDEN:
                yield frame.pts, frame

    def pixels(self, frame: Any, width: int, height: int, format: PixelFormat) -> AnyArray:
        dtype, channels = PIXELS[format]
        scaled = (
            {"interpolation": "POINT"} if format != "rgb24" and (frame.width, frame.height) != (width, height) else {}
        )
        plane = self._reformatter.reformat(frame, width, height, format, **scaled, **_ONE_THREAD).planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(height, plane.line_size)
        return rows[:, : dtype.itemsize * channels * width].view(dtype).reshape(height, width, channels)


@cache
def _keep_freed_memory() -> None:
    """Let the allocator of C keep the memory of a converted frame for the next one.

    glibc gives freed memory back from twice the largest block on that was freed before, and each page of the next frame
    costs a fault then: a twentieth of the time of AV1 frames.
    """
    np.empty(_FREED_BYTES, np.uint8)


@contextmanager
def errors_of(path: Path, packet: int) -> Generator[None]:
    """Turn errors of a decoder into a `FormatError` that names the file."""
    av = require("av", "video")
    try:
        yield
    except av.FFmpegError as error:
        message = f"expected packets that can be decoded, got {error}"
        raise FormatError(message, path=path, where=f"packets from {packet} on") from error


class PooledDecoder(Protocol):
    """A decoder in a pool."""

    nbytes: int


D = TypeVar("D", bound=PooledDecoder)


class DecoderPool:
    """Decoders by encoding, as the comment at the top says. Used by any number of threads."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget all decoders, in a forked process: threads of the parent may have been at work with them."""
        self._lock = threading.Condition()
        self._idle: OrderedDict[tuple[str, int], Any] = OrderedDict()  # those used longest ago come first
        self._busy = self._number = 0

    @contextmanager
    def decoder(self, encoding: str, make: Callable[[], D]) -> Generator[D]:
        """Use a decoder for the block, an idle one of the same encoding if there is any."""
        with self._lock:
            while self._busy >= cores():
                self._lock.wait()
            self._busy += 1
            key = next((key for key in reversed(self._idle) if key[0] == encoding), None)
            decoder: D | None = None if key is None else self._idle.pop(key)
        try:
            decoder = decoder or make()
            yield decoder
            self._put_back(encoding, decoder)
        finally:
            with self._lock:
                self._busy -= 1
                self._lock.notify()

    def clear(self) -> None:
        with self._lock:
            self._idle.clear()

    def stats(self) -> dict[str, int]:
        """Return the numbers `busy` and `idle`, and `nbytes` of the idle decoders as they are estimated."""
        with self._lock:
            nbytes = sum(decoder.nbytes for decoder in self._idle.values())
            return {"busy": self._busy, "idle": len(self._idle), "nbytes": nbytes}

    def _put_back(self, encoding: str, decoder: PooledDecoder) -> None:
        with self._lock:
            self._number += 1
            self._idle[encoding, self._number] = decoder
            nbytes = sum(each.nbytes for each in self._idle.values())
            while self._idle and (len(self._idle) > max(IDLE, cores()) or nbytes > IDLE_BYTES):
                nbytes -= self._idle.popitem(last=False)[1].nbytes


POOL = DecoderPool()
os.register_at_fork(after_in_child=POOL.renew)
_ONE_THREAD = {"threads": 1}


def torchcodec_decoders() -> Any:
    """Return the module `torchcodec.decoders`."""
    try:
        return importlib.import_module("torchcodec.decoders")
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise MissingExtraError(
            f"torchcodec cannot be used: {reason}; install a version that fits torch, and FFmpeg, or use decoder='pyav'"
        ) from error


class TorchcodecDecoder:
    """Frames of one file by torchcodec, for machines whose GPU decodes video. Used by one thread at a time.

    torchcodec opens a file itself and makes its own index, so opening costs a pass over the file. Measured with
    torchcodec 0.13 on a CPU: frames of 8 bits equal PyAV's to the last bit, frames of 10 bits differ, because
    torchcodec converts colours in another way. It turns rotated videos, which are refused here.
    """

    def __init__(self, path: Path, index: PacketIndex, device: str) -> None:
        self.nbytes = index.width * index.height * 36  # 12 frames of references, as for PyAV
        self._path = path
        self._shape = (index.height, index.width, 3)
        self._decoder: Any = torchcodec_decoders().VideoDecoder(
            str(path), stream_index=index.stream, dimension_order="NHWC", num_ffmpeg_threads=1, device=device
        )
        if len(self._decoder) != len(index):
            message = f"expected {len(index)} frames, got {len(self._decoder)} from torchcodec; use decoder='pyav'"
            raise FormatError(message, path=path)

    def rgb(self, frames: IntArray) -> ByteArray:
        try:
            rgb: ByteArray = self._decoder.get_frames_at(frames.tolist()).data.cpu().numpy()
        except (RuntimeError, ValueError, IndexError) as error:
            message = f"expected frames that torchcodec decodes, got {error}"
            raise FormatError(message, path=self._path, where=f"frame {int(frames[0])}") from error
        if rgb.shape[1:] != self._shape:
            message = f"expected frames of shape {self._shape}, got {rgb.shape[1:]} from torchcodec; use decoder='pyav'"
            raise FormatError(message, path=self._path)
        return rgb
