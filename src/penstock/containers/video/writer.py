"""Write a video file from frames, encoded by its own thread; and join video files of one encoding into one file.

The encoder works behind the caller: `append` copies frames into a queue of at most `QUEUE_BYTES` bytes and returns. One
thread for each writer encodes them in order, so several cameras use several cores. The file is written under a hidden
name and takes its own when the writer is closed; a killed writer leaves the old file, or none.

Joining copies packets. Frame `k` of a file is shown at `(n + k) / fps` seconds of the result, where `n` frames are in
the files before it, independent of the length that a container claims. Packet `p` is decoded at `(p - delay) / fps`
seconds, where `delay` is the largest number of packets that a frame of any file waits for. So these times increase.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np

from penstock.containers.video.decoders import PIXELS, PixelFormat
from penstock.containers.video.index import EXTRA, PacketIndex, demuxer, open_video
from penstock.core.arrays import AnyArray
from penstock.core.turns import HomeProcess
from penstock.errors import ArgumentError, DataError, require
from penstock.files.replace import Durability, atomic_file, atomic_path
from penstock.flow import BlockQueue, QueueClosed

QUEUE_BYTES = 1 << 26
FEW_FRAMES = 16  # of a video whose packets wait for its end: more than libx265 may decode before it shows one
CONTAINERS = {".mp4": "mp4", ".mov": "mov", ".mkv": "matroska", ".webm": "webm", ".avi": "avi"}
LOSSLESS = {"ffv1": "bgr0", "libx264rgb": "rgb24"}  # no loss by a change of colours; the first has a byte to spare
THREADS = "/proc/self/task"


class VideoWriter:
    """Encoder of one video file. Use it in a `with` block: an error in the block discards the file.

    Args:
        path: The file. Its suffix chooses the container: `.mp4`, `.mov`, `.mkv`, `.webm` or `.avi`.
        fps: Frames a second, a number or a fraction.
        codec: Encoder of PyAV: `"libsvtav1"` (AV1), `"libx264"` (H.264), `"libx265"` (HEVC), `"libvpx-vp9"`, or
            `"ffv1"` for frames that are read again to the last bit, or `"libx264rgb"` with `crf=0`. The default is
            `"libsvtav1"`.
        g: Frames from one key frame to the next. The default 2 makes random access cheap; 250 makes small files.
        crf: Quality, lower is better. The default is 30 for AV1 and 23 for H.264; lossless codecs have none.
        pix_fmt: Format of the encoded pixels. The default is `"yuv420p"`, and RGB for `"ffv1"` and `"libx264rgb"`.
            `"gray12le"` takes frames of one channel of 12 bits, as `VideoFiles(..., pixels="gray12le")` reads them.
        options: More options of the encoder, such as `{"preset": "8"}`.
        overwrite: Whether an existing file is replaced. The default is False.
        durable: What is flushed to the disk before the file gets its name: `"none"` (the default), `"file"`, or
            `"folder"`, so that the file survives a loss of power.

    Raises:
        ArgumentError: The suffix or the encoder is unknown, or a number is out of range.
        FileExistsError: The file exists and `overwrite` is False.
        MissingExtraError: PyAV is not installed.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/film.mp4"
        >>> with VideoWriter(path, fps=30, codec="libx264", g=10) as writer:
        ...     writer.append(np.zeros((5, 48, 64, 3), np.uint8))
        >>> writer.frames
        5
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fps: float | Fraction,
        *,
        codec: str = "libsvtav1",
        g: int = 2,
        crf: int | None = None,
        pix_fmt: str | None = None,
        options: Mapping[str, str] | None = None,
        overwrite: bool = False,
        durable: Durability = "none",
    ) -> None:
        self.path = Path(path)
        self.frames = 0
        self._rate = Fraction(fps).limit_denominator(1001)
        self._codec = codec
        self._pix_fmt = pix_fmt or LOSSLESS.get(codec, "yuv420p")
        self._pixels: PixelFormat = "gray12le" if self._pix_fmt == "gray12le" else "rgb24"
        if self._rate <= 0 or g < 1:
            raise ArgumentError(f"expected fps above 0 and g of at least 1, got {fps} and {g}")
        container = CONTAINERS.get(self.path.suffix.lower())
        if container is None:
            raise ArgumentError(
                f"expected a file with one of the suffixes {sorted(CONTAINERS)}, got {self.path.name!r}"
            )
        av = require("av", "video")
        if codec not in av.codecs_available:
            raise ArgumentError(f"expected an encoder of this PyAV, got {codec!r}")
        # The encoder of AV1 prints to the terminal unless this variable allows errors only.
        os.environ.setdefault("SVT_LOG", "1")
        if not overwrite and self.path.exists():
            raise FileExistsError(f"{self.path} exists; overwrite=True replaces it")
        quality = {} if crf is None else {"crf": str(crf)}
        if crf is None and codec == "libsvtav1":
            quality = {"crf": "30"}
        self._settings = {"g": str(g), **quality, **(options or {})}
        self._av = av
        self._home = HomeProcess("video writer")
        self._shape: tuple[int, int] | None = None
        self._queue: BlockQueue[AnyArray] = BlockQueue(1 << 20, QUEUE_BYTES)
        self._error: BaseException | None = None
        self._file = (container, overwrite, durable)
        self._thread = threading.Thread(target=self._run, name="penstock-video-writer", daemon=True)
        self._aborted = False
        self._closed = False
        _OPEN.add(self)
        self._thread.start()

    def append(self, frames: AnyArray) -> None:
        """Add frames.

        Args:
            frames: `[n, height, width, 3]` or `[height, width, 3]` uint8, RGB; with `pix_fmt="gray12le"` one channel of
                uint16. They are copied.

        Raises:
            DataError: The array is none of these, has another size than the frames before, or the encoder refused
                earlier frames.
            OSError: The file cannot be written.
        """
        self._home.check()
        if self._closed:
            raise DataError(f"expected an open writer, got one that was closed - in {self.path}")
        frames = np.asarray(frames)
        if frames.ndim == 3:
            frames = frames[None]
        dtype, channels = PIXELS[self._pixels]
        if frames.dtype != dtype or frames.ndim != 4 or frames.shape[3] != channels:
            message = (
                f"expected frames of [n, height, width, {channels}] {dtype}, got {frames.dtype} {list(frames.shape)}"
            )
            raise DataError(f"{message} - in {self.path}")
        size = frames.shape[1:3]
        if self._shape is None:
            self._check_size(size)
            self._shape = size
        if size != self._shape:
            raise DataError(f"expected frames of {list(self._shape)} pixels, got {list(size)} - in {self.path}")
        for frame in frames:
            try:
                self._queue.put(np.array(frame, order="C"))
            except QueueClosed:
                self._stop()
            self.frames += 1

    def close(self) -> None:
        """Encode what waits, and give the file its name. Without any frame there is no file.

        Raises:
            DataError: The encoder refused the frames.
            OSError: The file cannot be written.
        """
        self._home.check()
        if not self._closed:
            self._closed = True
            self._queue.close()
            self._stop()

    def abort(self) -> None:
        """Discard the file. An existing file stays as it is."""
        if self._home.is_here and not self._closed:
            self._closed = self._aborted = True
            self._queue.close()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def _check_size(self, size: tuple[int, int]) -> None:
        if "420" in self._pix_fmt and (size[0] % 2 or size[1] % 2):
            message = f"expected an even height and width for {self._pix_fmt}, got {list(size)}"
            raise DataError(
                f"{message}; pix_fmt='yuv444p' and the lossless codec='ffv1' take any size - in {self.path}"
            )

    def _stop(self) -> None:
        """Wait for the thread and raise its error."""
        self._closed = True
        self._thread.join()
        error = self._error
        if isinstance(error, (self._av.FFmpegError, ValueError)) and not isinstance(error, OSError):
            raise DataError(f"expected frames that {self._codec} encodes, got {error} - in {self.path}") from error
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            first = next(iter(self._queue), None)
            if first is not None:
                self._encode(first)
        except _AbortedError:
            pass
        except BaseException as error:  # noqa: BLE001  raised by `append` and `close`
            self._error = error
            self._queue.close()

    def _encode(self, first: AnyArray) -> None:
        """Encode the first frame and all others."""
        av, (container, overwrite, durable) = self._av, self._file
        height, width = first.shape[:2]
        with ExitStack() as stack:
            file = stack.enter_context(atomic_file(self.path, overwrite=overwrite, durable=durable))
            output = stack.enter_context(av.open(file, "w", format=container))
            stream = output.add_stream(self._codec, rate=self._rate, options=self._settings)
            stream.width, stream.height = width, height
            stream.pix_fmt = self._pix_fmt
            few = FEW_FRAMES if self._codec == "libx265" else 0
            packets: list[Any] = []
            number, frame = 0, first
            while frame is not None:
                pixels = frame if self._pixels == "rgb24" else frame[..., 0]
                picture = av.VideoFrame.from_ndarray(pixels, format=self._pixels)
                picture.pts = number
                picture.time_base = 1 / self._rate
                with same_priority() if number == 0 else nullcontext():  # the first frame opens the encoder
                    packets += stream.encode(picture)
                number += 1
                if number >= few:
                    output.mux(packets)
                    packets.clear()
                frame = next(iter(self._queue), None)
                if self._aborted:
                    raise _AbortedError
            packets += stream.encode(None)
            if number < few:
                _set_decoding_times(packets)
            output.mux(packets)


def _set_decoding_times(packets: Sequence[Any]) -> None:
    """Give packets, in the order of decoding, the latest rising times of which none is after its frame is shown.

    libx265 derives the first of these times from later frames, so in a video of few frames they are undefined.
    """
    shown = sorted(packet.pts for packet in packets)
    delay = max((time - packet.pts for time, packet in zip(shown, packets, strict=True)), default=0)
    for time, packet in zip(shown, packets, strict=True):
        packet.dts = time - delay


class _AbortedError(Exception):
    """Leaves the blocks of an encoder, so that the file is discarded."""


_OPEN: weakref.WeakSet[VideoWriter] = weakref.WeakSet()


def _discard_open() -> None:
    """Discard unfinished files when the interpreter exits: a thread that is stopped within an encoder may crash."""
    for writer in list(_OPEN):
        writer.abort()


atexit.register(_discard_open)


@contextmanager
def same_priority() -> Generator[None]:
    """Give the thread that runs the block, and all threads that begin within it, the scheduling that it had before.

    SVT-AV1, the encoder of AV1, asks for the highest real-time priority where it runs as root: for its own threads, and
    for the thread that opens it, with all that this thread starts later. Such threads take a core before all others: a
    command that encodes on a thread for each core stops everything else on the machine for seconds. The
    encoder has no option against it. Elsewhere than on Linux nothing is changed.
    """
    if sys.platform != "linux":
        yield
        return
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    before = set(os.listdir(THREADS))
    try:
        yield
    finally:
        for thread in (0, *map(int, set(os.listdir(THREADS)) - before)):
            with suppress(ProcessLookupError):  # the thread has ended
                if os.sched_getscheduler(thread) != policy:
                    os.sched_setscheduler(thread, policy, priority)


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
