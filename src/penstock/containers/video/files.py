"""Frames of many video files, read in batches.

Wanted frames are divided into runs of packets, which are decoded in parallel. Each is converted to RGB once, and copied
to its places. A frame that does not come out of its run (a decoder that wants more frames before a recovery point) is
tried again from earlier key frames, before the file counts as damaged. After an error, rows of some frames may have
been written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.containers.video.decoders import (
    PIXELS,
    POOL,
    SKIPS,
    Decoder,
    PixelFormat,
    TorchcodecDecoder,
    errors_of,
    torchcodec_decoders,
)
from penstock.containers.video.index import (
    PacketIndex,
    PacketRun,
    WantedFrames,
    demuxer,
    divided,
    open_video,
    packet_index,
    pyav,
)
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.spec import Align, Field
from penstock.errors import ArgumentError, FormatError
from penstock.files.descriptors import PooledFile
from penstock.files.remote import Wanted, filled, is_mirrored, opened_state, read_at, remote_file
from penstock.flow import cores, for_each, map_on_threads

Layout = Literal["hwc", "chw"]
DecoderName = Literal["pyav", "torchcodec"]

INDEX_BYTES = 64 << 20  # of the indexes in memory; others are read again from the user's cache
PIECE = 1 << 22  # bytes, about, that are read from a file at a time
_INDEXED = 16  # files behind URLs whose indexes are made at a time
_SAMPLE = 1 << 16  # bytes at both ends of a file that are part of its digest


class VideoFiles:
    """Frames of video files, by number or by timestamp: RGB, or one channel of 12 bits.

    Frames of different files have one size. Frames are as PyAV's `to_ndarray(format="rgb24")` returns them, to the
    last bit, in any order of access. Rotation that players apply is not applied (`index(file).rotation` tells it).

    Reads may be called from any number of threads, also in forked processes. Pickled files are opened again where they
    are unpickled.

    Args:
        paths: Files in MP4, QuickTime, Matroska, WebM or AVI, in any codec that PyAV decodes. Links are followed.
        stream: Number of the stream among the video streams of each file. The default is 0.
        size: `(height, width)` to which frames are scaled (bilinear). The default None takes the size of the first
            file, and refuses files of other sizes.
        layout: `"hwc"` for rows of `[height, width, 3]`, `"chw"` for `[3, height, width]`.
        pixels: `"rgb24"` for colours, uint8; or `"gray12le"` for one channel of 12 bits, uint16, as depth maps have,
            which `decoder="pyav"` alone reads. The default is `"rgb24"`.
        threads: Most threads of a read. 0 decodes in the calling thread. The default None is the number of cores.
            All reads of a process together use one decoder a core at a time.
        cache_bytes: Decoded frames kept in memory, those used last. The default 0 keeps none. With a cache, all frames
            that are decoded on the way to a wanted one are kept too.
        decoder: `"pyav"`, the default, or `"torchcodec"`, which must be installed and takes no `size`.
        device: Device on which torchcodec decodes, such as `"cuda"`. The default is `"cpu"`.
        keep_index: Whether packet indexes are kept in the user's cache (`PENSTOCK_CACHE`). The default is True.

    Raises:
        ArgumentError: There are no paths, or an option has no such value.
        MissingExtraError: PyAV is not installed, or torchcodec if `decoder` names it.

    Example:
        >>> import tempfile
        >>> from penstock.containers.video import VideoFiles, VideoWriter
        >>> path = tempfile.mkdtemp() + "/film.mp4"
        >>> with VideoWriter(path, fps=10) as writer:
        ...     writer.append(np.zeros((4, 32, 48, 3), np.uint8))
        >>> files = VideoFiles([path])
        >>> out = np.empty((2, 32, 48, 3), np.uint8)
        >>> frames = files.frame_numbers(0, [0.3, 0.1], tolerance=0.01)
        >>> files.read([0, 0], frames, [0, 1], out)
        >>> frames.tolist(), int(out.max()) < 5
        ([3, 1], True)
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        stream: int = 0,
        size: tuple[int, int] | None = None,
        layout: Layout = "hwc",
        pixels: PixelFormat = "rgb24",
        threads: int | None = None,
        cache_bytes: int = 0,
        decoder: DecoderName = "pyav",
        device: str = "cpu",
        keep_index: bool = True,
    ) -> None:
        if not paths:
            raise ArgumentError("expected at least one video file, got none")
        pyav()
        if layout not in ("hwc", "chw"):
            raise ArgumentError(f"expected layout 'hwc' or 'chw', got {layout!r}")
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise ArgumentError(f"expected size=(height, width) of positive numbers, got {size!r}")
        if decoder not in ("pyav", "torchcodec"):
            raise ArgumentError(f"expected decoder 'pyav' or 'torchcodec', got {decoder!r}")
        if decoder == "torchcodec":
            torchcodec_decoders()
        if pixels not in PIXELS:
            raise ArgumentError(f"expected pixels among {list(PIXELS)}, got {pixels!r}")
        if decoder == "pyav" and device != "cpu":
            raise ArgumentError("expected device= with decoder='torchcodec' alone")
        if decoder == "torchcodec" and (size is not None or pixels != "rgb24"):
            raise ArgumentError("expected size= and pixels= with decoder='pyav' alone")
        self.paths = [Path(os.path.realpath(path)) for path in paths]
        self.layout: Layout = layout
        self._options: dict[str, Any] = {
            "stream": stream,
            "size": size,
            "layout": layout,
            "pixels": pixels,
            "threads": threads,
            "cache_bytes": cache_bytes,
            "decoder": decoder,
            "device": device,
            "keep_index": keep_index,
        }
        self._stream = stream
        self._size = size
        self._pixels: PixelFormat = pixels
        self.dtype, self._channels = PIXELS[pixels]
        self._keep_index = keep_index
        self._threads = cores() if threads is None else threads
        self._indexes = Cache(INDEX_BYTES)
        self._frames = Cache(cache_bytes) if cache_bytes else None
        self._open = [PooledFile(path, os.O_RDONLY) for path in self.paths]

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(VideoFiles, **self._options), (self.paths,)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def size(self) -> tuple[int, int]:
        """`(height, width)` of all frames. Without the option `size`, this makes the index of the first file."""
        if self._size is None:
            first = self.index(0)
            self._size = first.height, first.width
        return self._size

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of a row."""
        return (*self.size, self._channels) if self.layout == "hwc" else (self._channels, *self.size)

    def field(self, align: Align = "step") -> Field:
        """Return the field of a column of these frames: `dtype`, `shape`.

        Args:
            align: `"step"` or `"boundary"`.
        """
        return Field(self.dtype, self.shape, align)

    def index(self, file: int) -> PacketIndex:
        """Return the packet index of a file. Cost at first: one pass over the file, or 0.2 ms from the user's cache.

        Args:
            file: Number of the file.

        Raises:
            FormatError: The file is missing, damaged or no video that is known.
            MissingExtraError: PyAV is not installed.
        """

        def sized() -> tuple[PacketIndex, int]:
            index = packet_index(self.paths[file], self._stream, keep=self._keep_index)
            return index, index.nbytes

        return self._indexes.get(file, sized)

    def frame_count(self, file: int) -> int:
        """Return the number of frames of a file that can be read.

        Args:
            file: Number of the file.
        """
        return len(self.index(file))

    def timestamps(self, file: int) -> AnyArray:
        """Return `[F]` float64, the presentation times of the frames of a file in seconds, increasing.

        Args:
            file: Number of the file.
        """
        return self.index(file).seconds

    def frame_numbers(
        self, files: Any, timestamps: Any, tolerance: Any, *, within: tuple[Any, Any] | None = None
    ) -> IntArray:
        """Find the frames at some times.

        Args:
            files: Number of the file, or `[n]` numbers.
            timestamps: `[n]` seconds, as the files count them.
            tolerance: Most seconds between a time and the nearest frame, or `[n]` of them.
            within: Seconds from which on a frame may be for each time, and before which, `[n]` each. The default is
                None: anywhere in the file.

        Returns:
            `[n]` int64 numbers of the nearest frames.

        Raises:
            FormatError: No frame is within `tolerance` of a time.
        """
        times = np.asarray(timestamps, np.float64)
        numbers = np.broadcast_to(np.asarray(files, np.int64), times.shape)
        most = np.broadcast_to(np.asarray(tolerance, np.float64), times.shape)
        frames = np.empty(times.shape, np.int64)
        different: list[int] = np.unique(numbers).tolist()
        if self.remote:  # one answer after the other is slow
            unknown = [file for file in different if self._indexes.peek(file) is None]
            map_on_threads(self.index, unknown, _INDEXED, name="penstock-video-index")
        for file in different:
            chosen = numbers == file
            parts = None if within is None else (within[0][chosen], within[1][chosen])
            frames[chosen], distance = self.index(file).nearest(times[chosen], parts)
            if (far := distance > most[chosen]).any():
                ends = None if parts is None else parts[1][far]
                message = self.index(file).without_frames(times[chosen][far], distance[far], most[chosen][far], ends)
                raise FormatError(message, path=self.paths[file])
        return frames

    def read(self, file_numbers: Any, frame_numbers: Any, places: Any, out: AnyArray) -> None:
        """Decode frames into rows of a buffer.

        Args:
            file_numbers: `[n]` number of each frame's file.
            frame_numbers: `[n]` number of each frame in its file, in presentation order.
            places: `[n]` row of `out` for each frame.
            out: `[rows, *shape]` of `dtype`.

        Raises:
            FormatError: A file has no such frame, is damaged, was cut, or changed since it was opened.
        """
        wanted = WantedFrames.of(file_numbers, frame_numbers, places)
        if out.dtype != self.dtype or out.shape[1:] != self.shape:
            raise ArgumentError(f"expected out of [rows, {self.shape}] {self.dtype}, got {out.dtype} {out.shape}")
        left = self._from_cache(wanted, out)
        runs = [run for file, rows in wanted.by_file(left) for run in self._runs(file, wanted.frames, rows)]
        decode = self._decode if self._options["decoder"] == "pyav" else self._decode_torchcodec
        remote = self._ranges(runs)
        with filled(remote) if remote else nullcontext():
            for_each(lambda run: decode(run, wanted, out), runs, self._threads)

    @cached_property
    def remote(self) -> bool:
        """Whether any file is behind a URL."""
        return any(map(is_mirrored, self.paths))

    def remote_ranges(self, file_numbers: IntArray, frame_numbers: IntArray) -> list[Wanted]:
        """Return the bytes of packets behind URLs that `read` fetches.

        Args:
            file_numbers: `[n]` number of each frame's file.
            frame_numbers: `[n]` number of each frame in its file.

        Raises:
            FormatError: A file has no such frame.
        """
        wanted = WantedFrames.of(file_numbers, frame_numbers, np.arange(len(frame_numbers)))
        by_file = wanted.by_file(np.arange(len(wanted.frames)))
        return self._ranges([run for file, rows in by_file for run in self._runs(file, wanted.frames, rows)])

    def _ranges(self, runs: list[PacketRun]) -> list[Wanted]:
        """Bytes of remote files that runs need. They are fetched together, before the first run."""
        wanted: list[Wanted] = []
        for run in runs:
            if (remote := remote_file(self.paths[run.file])) is not None:
                index = self.index(run.file)
                packets = slice(int(index.start[run.frames].min()), int(index.packet[run.frames].max()) + 1)
                begin = index.offset[packets]
                wanted.append((remote, begin, begin + index.size[packets]))
        return wanted

    def packets(self, file_numbers: Any, frame_numbers: Any) -> Ragged:
        """Return the encoded packets of frames, as they are in the files.

        Args:
            file_numbers: `[n]` number of each frame's file.
            frame_numbers: `[n]` number of each frame in its file.

        Returns:
            `n` rows of uint8. A packet can be decoded only after the packets from its key frame on.

        Raises:
            FormatError: As `read`.
        """
        rows: list[bytes] = []
        for file, frame in zip(np.asarray(file_numbers).tolist(), np.asarray(frame_numbers).tolist(), strict=True):
            index = self.index(file)
            self._check_frames(file, index, np.array([frame]))
            packet = int(index.packet[frame])
            rows += [bytes(raw) for raw, _, _ in self._packets(file, index, packet, packet + 1)]
        return Ragged(np.frombuffer(b"".join(rows), np.uint8), offsets_of([len(row) for row in rows]))

    def digest(self) -> bytes:
        """Return a digest of the files: sizes, and 64 KiB at both ends, where containers have their tables of packets.

        Cost: two reads a file.
        """
        pixels = () if self._pixels == "rgb24" else (self._pixels,)  # digests of colours stay as in earlier versions
        digest = hashlib.sha256(repr((self._stream, self._size, self.layout, *pixels)).encode())
        for path in self.paths:
            with open_video(path) as file:
                fd = file.fileno()
                size = os.fstat(fd).st_size
                ends = read_at(path, fd, _SAMPLE, 0), read_at(path, fd, _SAMPLE, max(size - _SAMPLE, 0))
            digest.update(f"{size} ".encode() + b"".join(ends))
        return digest.digest()

    def close(self) -> None:
        """Close files and forget cached indexes and frames. They are opened again when they are read."""
        files, self._open = self._open, [PooledFile(path, os.O_RDONLY) for path in self.paths]
        for file in files:
            file.close()
        self._indexes.clear()
        if self._frames is not None:
            self._frames.clear()

    def _from_cache(self, wanted: WantedFrames, out: AnyArray) -> IntArray:
        """Copy cached frames. Returns the numbers of the other frames."""
        if self._frames is None:
            return np.arange(len(wanted.frames))
        missing: list[int] = []
        for row in range(len(wanted.frames)):
            pixels = self._frames.peek((int(wanted.files[row]), int(wanted.frames[row])))
            if pixels is None:
                missing.append(row)
            else:
                self._place(pixels, wanted.places_of(row), out)
        return np.array(missing, np.int64)

    def _place(self, pixels: AnyArray, places: IntArray, out: AnyArray) -> None:
        """Copy a frame `[height, width, channels]` to rows of the buffer."""
        for place in places.tolist():
            out[place] = pixels if self.layout == "hwc" else pixels.transpose(2, 0, 1)

    def _runs(self, file: int, frames: IntArray, rows: IntArray) -> Iterator[PacketRun]:
        """Divide the wanted frames of a file into runs. `rows` are in the order of increasing frames."""
        index = self.index(file)
        self._check_size(file, index)
        numbers = frames[rows]
        self._check_frames(file, index, numbers)
        return divided(file, index, numbers, rows)

    def _check_size(self, file: int, index: PacketIndex) -> None:
        if self._options["size"] is None and (index.height, index.width) != self.size:
            height, width = self.size
            raise FormatError(
                f"expected frames of {width} x {height} as in {self.paths[0].name}, got {index.width} x "
                f"{index.height}; size=({height}, {width}) scales all frames",
                path=self.paths[file],
            )

    def _check_frames(self, file: int, index: PacketIndex, frames: IntArray) -> None:
        low, high = int(frames.min()), int(frames.max())
        if low < 0 or high >= len(index):
            cut = f"; it claims {index.claimed} and was cut" if index.claimed > len(index) else ""
            frame = low if low < 0 else high
            raise FormatError(f"expected frame {frame}, got a video of {len(index)} frames{cut}", path=self.paths[file])

    def _decode(self, run: PacketRun, wanted: WantedFrames, out: AnyArray) -> None:
        """Decode a run, again with all frames and from earlier key frames as long as frames are missing."""
        index = self.index(run.file)
        rows = dict(zip(run.frames.tolist(), run.rows.tolist(), strict=True))
        first = int(index.start[run.frames].min())
        end = int(index.packet[run.frames].max()) + 1
        if self._frames is None and index.codec in SKIPS:
            self._decode_packets(run.file, index, first, end, rows, wanted, out, skip=True)
        step = 1
        while rows:
            self._decode_packets(run.file, index, first, end, rows, wanted, out)
            if rows and first == 0:
                message = f"expected {len(rows)} frames more, got none: their packets are damaged"
                raise FormatError(message, path=self.paths[run.file], where=f"frame {min(rows)}")
            key = int(np.searchsorted(index.keys, first)) - step
            first = int(index.keys[key]) if key >= 0 else 0
            step *= 2

    def _decode_packets(
        self,
        file: int,
        index: PacketIndex,
        first: int,
        end: int,
        rows: dict[int, int],
        wanted: WantedFrames,
        out: AnyArray,
        *,
        skip: bool = False,
    ) -> None:
        """Decode packets `first` to `end - 1` of a file; frames that come out leave `rows`."""
        height, width = self.size
        path = self.paths[file]
        with (
            closing(self._packets(file, index, first, end)) as packets,
            errors_of(path, first),
            POOL.decoder(index.encoding, lambda: self._made(path)) as decoder,
        ):
            for number, frame in decoder.frames(packets, index.palette, rows if skip else None):
                if number not in rows and self._frames is None:
                    continue
                if self._options["size"] is None and (frame.height, frame.width) != (height, width):
                    message = f"expected frames of {width} x {height}, got {frame.width} x {frame.height}"
                    raise FormatError(message, path=path, where=f"frame {number}")
                pixels = decoder.pixels(frame, width, height, self._pixels)
                if self._frames is not None:
                    pixels = self._frames.array((file, number), pixels.copy)
                if (row := rows.pop(number, None)) is not None:
                    self._place(pixels, wanted.places_of(row), out)
                if not rows:
                    return

    def _decode_torchcodec(self, run: PacketRun, wanted: WantedFrames, out: AnyArray) -> None:
        """Decode a run with torchcodec, which finds its packets itself."""
        index = self.index(run.file)
        path = self.paths[run.file]
        device: str = self._options["device"]
        with self._open[run.file] as fd:
            self._check_state(fd, index, path)
        name = f"torchcodec {path} {index.state} {device}"
        with POOL.decoder(name, lambda: TorchcodecDecoder(path, index, device)) as decoder:
            frames = decoder.rgb(run.frames)
        for rgb, number, row in zip(frames, run.frames.tolist(), run.rows.tolist(), strict=True):
            if self._frames is not None:
                self._frames.array((run.file, number), rgb.copy)
            self._place(rgb, wanted.places_of(row), out)

    @contextmanager
    def _descriptor(self, file: int) -> Generator[int]:
        """A descriptor of a file. Files on this machine share a few; a remote one is opened without being fetched."""
        if remote_file(self.paths[file]) is None:
            with self._open[file] as fd:
                yield fd
        else:
            with open_video(self.paths[file]) as opened:
                yield opened.fileno()

    def _check_state(self, fd: int, index: PacketIndex, path: Path) -> None:
        if opened_state(fd, path) != index.state:
            message = "expected the file as it was, got one that was replaced or changed; open the dataset again"
            raise FormatError(message, path=path)

    def _made(self, path: Path) -> Decoder:
        with open_video(path) as file, demuxer(file, path, self._stream) as (_, stream):
            return Decoder(stream.codec_context)

    def _packets(self, file: int, index: PacketIndex, first: int, end: int) -> Generator[tuple[memoryview, int, bool]]:
        """Bytes and frame number of packets, and whether each is a key frame, read in pieces of neighbours."""
        keys = set(index.keys[slice(*np.searchsorted(index.keys, [first, end]))].tolist())
        offset, size = index.offset[first:end], index.size[first:end]
        parts = np.cumsum(size, dtype=np.int64) // PIECE
        edges = np.flatnonzero((offset[1:] != offset[:-1] + size[:-1]) | (parts[1:] != parts[:-1])) + 1
        path = self.paths[file]
        with self._descriptor(file) as fd:
            self._check_state(fd, index, path)
            for a, b in zip([0, *edges.tolist()], [*edges.tolist(), len(offset)], strict=True):
                begin, length = int(offset[a]), int(offset[b - 1] + size[b - 1] - offset[a])
                raw = memoryview(read_at(path, fd, length, begin))
                if len(raw) < length:
                    message = f"expected {length} bytes, got {len(raw)}: the file was cut; restore it"
                    raise FormatError(message, path=path, where=f"byte {begin}")
                for p in range(a, b):
                    start = int(offset[p]) - begin
                    yield raw[start : start + int(size[p])], int(index.rank[first + p]), first + p in keys
