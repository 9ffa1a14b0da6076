"""The packet index of a video file: where each packet is, and which packets a frame needs.

A file is demuxed once. Reading a frame then needs no demuxer, and thousands of files that were encoded alike share a
few decoders.

* Building compares the bytes at each `offset` with the packets of the demuxer, because containers may store packets in
  pieces (MPEG-TS) or put a header before them (Matroska, AVI). A stream with other packets is refused.
* `rank[p]` is the frame number of packet `p`, or -1 if its frame is not shown (edit lists). The decoder gets it as
  timestamp and returns it with the frame, so odd time bases are no special cases.
* Decoding from packet `start[f]` yields frame `f`: the last key frame before it, or the one before that, if `f` is
  shown before its key frame (an open group of pictures).

The index is kept in the user's cache and never comes with the data, whose author could make any bytes look like
packets. It counts while the file has the same size, time and inode; folders say nothing. The index of a file that was
written within `SETTLED` of its reading is not kept, because two versions of the file may have one time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from penstock.containers.video.boxes import check_boxes
from penstock.core.arrays import AnyArray, IntArray
from penstock.errors import FormatError, MissingExtraError, UnsafeDataError, require
from penstock.files.descriptors import open_regular
from penstock.files.remote import FileState, open_file, opened_state, read_at, remote_file
from penstock.files.user_cache import IndexFile

EXTRA = "video"
LEAST_PYAV = 17
SIDE = 1 << 13  # most pixels of a side of a frame
MAGIC = b"penstock video index 3\n"
CACHE_BYTES = 1 << 30  # of the indexes of all files together
IN_ORDER = ("libdav1d", "libaom-av1", "av1", "vp9", "libvpx-vp9")  # decoders of codecs without reordering of packets
PALETTE = "palette"  # name of FFmpeg's side data of a packet
_HEADER = 64  # most bytes between the position that a demuxer gives and the first byte of the packet
_SEARCHED = 4096  # bytes of a file that say which container it is
_KEY, _HIDDEN = 1, 2


@dataclass(frozen=True, eq=False)
class PacketIndex:
    """Packets of one video stream in decoding order, and its `F` frames in presentation order.

    Args:
        state: The file when the index was made.
        offset: `[P]` int64 first byte of each packet.
        size: `[P]` int32 bytes of each packet.
        rank: `[P]` int32 frame number of each packet, -1 for frames that are not shown.
        keys: `[K]` int32 increasing numbers of the packets that hold key frames.
        ticks: `[F]` int64 increasing timestamps of the frames, in units of `time_base`.
        time_base: Seconds of one tick.
        width: Pixels of a frame.
        height: Pixels of a frame.
        codec: Name of the decoder, such as `"h264"`.
        encoding: Digest of all parameters that a decoder needs. Files with equal digests can share decoders.
        stream: Number of the stream among all streams of the file.
        rotation: Degrees, counterclockwise, by which a player turns the frames. Frames are read as they are stored.
        claimed: Frames that the file claims to have; 0 if it claims nothing.
        palette: Colours of the values of paletted frames, which decoders get with the first packet. Empty for others.

    Example:
        >>> import tempfile
        >>> from penstock.containers.video import VideoWriter
        >>> path = Path(tempfile.mkdtemp(), "film.mkv")
        >>> with VideoWriter(path, fps=10, codec="ffv1") as writer:
        ...     writer.append(np.zeros((3, 16, 16, 3), np.uint8))
        >>> index = packet_index(path)
        >>> len(index), index.codec, (index.height, index.width)
        (3, 'ffv1', (16, 16))
    """

    state: FileState
    offset: IntArray
    size: AnyArray
    rank: AnyArray
    keys: AnyArray
    ticks: IntArray
    time_base: Fraction
    width: int
    height: int
    codec: str
    encoding: str
    stream: int
    rotation: int
    claimed: int
    palette: bytes = b""

    def __len__(self) -> int:
        return len(self.ticks)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, with the derived ones."""
        return sum(a.nbytes for a in (self.offset, self.size, self.rank, self.keys, self.ticks)) + 8 * len(self.ticks)

    @cached_property
    def packet(self) -> AnyArray:
        """`[F]` int32 packet of each frame."""
        shown = np.flatnonzero(self.rank >= 0)
        packet = np.empty(len(self.ticks), np.int32)
        packet[self.rank[shown]] = shown
        return packet

    @cached_property
    def start(self) -> AnyArray:
        """`[F]` int32 packet from which decoding yields each frame."""
        frames = np.arange(len(self.ticks))
        if not len(self.keys):
            return np.zeros(len(frames), np.int32)
        key = np.searchsorted(self.keys, self.packet, side="right") - 1
        while (early := (key > 0) & (self.rank[self.keys[key]] > frames)).any():
            key = key - early
        return np.where(key >= 0, self.keys[key], 0).astype(np.int32)

    @property
    def seconds(self) -> AnyArray:
        """`[F]` float64 presentation time of each frame in seconds, as the container gives it."""
        return self.ticks * (self.time_base.numerator / self.time_base.denominator)

    def nearest(self, seconds: AnyArray, within: tuple[AnyArray, AnyArray] | None = None) -> tuple[IntArray, AnyArray]:
        """Find the frames whose timestamps are nearest to the given times.

        Args:
            seconds: `[n]` float64 times.
            within: `[n]` float64 times from which on a frame may be, and before which. The default is None: anywhere.

        Returns:
            `[n]` int64 frame numbers, and `[n]` float64 distances in seconds, infinite where there is no frame.
        """
        times = self.seconds
        if not len(times):
            return np.zeros(len(seconds), np.int64), np.full(len(seconds), np.inf)
        right = np.clip(np.searchsorted(times, seconds), 1, max(len(times) - 1, 1))
        left = right - 1
        right = np.minimum(right, len(times) - 1)
        frames = np.where(np.abs(times[right] - seconds) < np.abs(seconds - times[left]), right, left).astype(np.int64)
        if within is None:
            return frames, np.abs(times[frames] - seconds)
        first, last = np.searchsorted(times, within[0]), np.searchsorted(times, within[1]) - 1
        frames = np.clip(frames, np.minimum(first, len(times) - 1), np.maximum(last, 0))
        return frames, np.where(first <= last, np.abs(times[frames] - seconds), np.inf)

    def without_frames(self, seconds: AnyArray, distance: AnyArray, tolerance: AnyArray, ends: AnyArray | None) -> str:
        """Return the message about times that have no frame near enough.

        Args:
            seconds: `[n]` the times, n at least 1.
            distance: `[n]` seconds to the nearest frame, infinite where no frame may be taken.
            tolerance: `[n]` most seconds.
            ends: `[n]` seconds before which the frames may be, or None.
        """
        worst = int(distance.argmax())
        last = f"; the last frame of the file is at {self.seconds[-1]:.6g} s" if len(self) else ""
        cut = f" (it claims {self.claimed} frames and has {len(self)})" if self.claimed > len(self) else ""
        part = ""
        if ends is not None and np.isfinite(ends[worst]):
            part = f" in its part of the file, up to {max(ends[worst], 0):.3f} s"
        nearest = "none" if np.isinf(distance[worst]) else f"one {distance[worst]:.6g} s away"
        return (
            f"expected a frame within {tolerance[worst]:.3g} s of {seconds[worst]:.6g} s{part}, got "
            f"{nearest}: {len(seconds)} of the wanted times have no frame{last}{cut}"
        )


def packet_index(path: Path, stream: int = 0, *, keep: bool = True) -> PacketIndex:
    """Return the packet index of a file, from the user's cache or by demuxing the file.

    Args:
        path: The file.
        stream: Number of the stream among the video streams of the file.
        keep: Whether to use the user's cache.

    Returns:
        The index.

    Raises:
        FormatError: The file is missing, empty, damaged, no video in a container that is known, or it has no such
            stream.
        MissingExtraError: PyAV is not installed.

    Example:
        >>> import tempfile
        >>> from penstock.containers.video import VideoWriter
        >>> path = Path(tempfile.mkdtemp(), "film.mkv")
        >>> with VideoWriter(path, fps=10, codec="ffv1") as writer:
        ...     writer.append(np.zeros((3, 16, 16, 3), np.uint8))
        >>> packet_index(path).packet.tolist()
        [0, 1, 2]
    """
    with open_video(path) as file:
        fd = file.fileno()
        state = opened_state(fd, path)
        if not state.size:
            raise FormatError("expected a video, got an empty file", path=path)
        kept = IndexFile.of("videos", f"{path} {stream}", MAGIC, CACHE_BYTES) if keep else None
        key = f"{path} {stream} {state}"
        if kept is not None and (entries := kept.read(key)) is not None:
            return _index(state, *entries)
        header, arrays = _demuxed(file, path, stream)
        if opened_state(fd, path) != state:
            raise FormatError("expected a file that stays as it is, got one that changed while it was read", path=path)
        if kept is not None:
            kept.write(key, header, arrays, settled=state.is_settled)
        return _index(state, header, arrays)


def pyav() -> Any:
    av = require("av", EXTRA)
    if int(av.__version__.split(".")[0]) < LEAST_PYAV:
        raise MissingExtraError(
            f"expected PyAV {LEAST_PYAV} or newer for video, got {av.__version__}; run pip install 'penstock[video]'"
        )
    return av


def open_video(path: Path) -> IO[bytes]:
    """Open a regular file. A remote file fetches what is read through the object."""
    fd = open_regular(path, follow=True, fetch=False)
    if remote_file(path) is None:
        return open(fd, "rb")
    os.close(fd)
    return open_file(path)


@contextmanager
def demuxer(file: IO[bytes], path: Path, stream: int) -> Generator[tuple[Any, Any]]:
    """Open the container in a file, and one of its video streams. Errors of PyAV become `FormatError`."""
    av = pyav()
    try:
        # The demuxer is named, and reads an open file: FFmpeg gets no address or playlist to follow.
        with av.open(file, format=_container(file, path), metadata_errors="replace") as container:
            streams = [each for each in container.streams.video if each.codec_context is not None]
            if stream >= len(streams):
                message = f"expected a video stream {stream} that can be decoded, got {len(streams)} streams"
                raise FormatError(message, path=path)
            chosen = streams[stream]
            chosen.codec_context.thread_count = 1  # groups of pictures are decoded in parallel instead
            yield container, chosen
    except FormatError:
        raise
    except (OSError, ValueError, av.FFmpegError) as error:
        raise FormatError(f"expected a video, got one that is damaged or cut: {error}", path=path) from error


def _container(file: IO[bytes], path: Path) -> str:
    """Name of the demuxer, by content. Whatever the file is called, playlists and image lists are never opened."""
    head = read_at(path, file.fileno(), _SEARCHED, 0)
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"styp"):
        return "mp4"
    if head[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if head[:4] == b"RIFF" and head[8:11] == b"AVI":
        return "avi"
    raise FormatError(f"expected a video in MP4, QuickTime, Matroska, WebM or AVI, got {head[:16]!r}", path=path)


def _demuxed(file: IO[bytes], path: Path, stream: int) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Header and arrays of the index of a file; a table of packets that says all saves the pass over it."""
    rows: list[tuple[int, int, int, int]] = []
    first: Any = None  # the first frame knows how players turn it
    palette = b""
    if _container(file, path) == "mp4":
        check_boxes(path, file.fileno(), os.fstat(file.fileno()).st_size)
    with demuxer(file, path, stream) as (container, chosen):
        context = chosen.codec_context
        _check_size(context, path)
        listed = _listed(container, chosen, os.fstat(file.fileno()).st_size)
        for packet in container.demux(chosen):
            if first is not None and listed is not None and rows[0] == listed[0]:
                rows = listed
                break
            if not packet.size or packet.is_corrupt:
                continue  # the flush packet after the last one, or a part of a packet at the end of a cut file
            if packet.has_sidedata("new_extradata"):
                message = "expected one encoding in a stream, got packets with new parameters; encode the video again"
                raise FormatError(message, path=path, where=f"packet {len(rows)}")
            if packet.has_sidedata(PALETTE):
                colours = bytes(packet.get_sidedata(PALETTE))
                if rows and colours != palette:
                    message = "expected one palette in a stream, got packets with another one; encode the video again"
                    raise FormatError(message, path=path, where=f"packet {len(rows)}")
                palette = colours
            tick = packet.dts if packet.pts is None and not context.has_b_frames else packet.pts
            if tick is None:
                raise FormatError("expected a timestamp, got none", path=path, where=f"packet {len(rows)}")
            offset = _offset(file.fileno(), packet, path)
            if offset is None:
                message = "expected packets that are stored in one piece; copy the video into an MP4 file"
                raise FormatError(message, path=path, where=f"packet {len(rows)}")
            rows.append((offset, packet.size, tick, _KEY * packet.is_keyframe + _HIDDEN * packet.is_discard))
            if first is None:
                first = next(iter(context.decode(packet)), None)
        if first is None:
            first = next(iter(context.decode(None)), None)
        if first is None:
            raise FormatError("expected frames, got none: the file is cut or empty", path=path)
        header = {**_described(context, palette), "rotation": first.rotation, "claimed": chosen.frames}
        header["stream"] = chosen.index
        header |= {"time_base": [chosen.time_base.numerator, chosen.time_base.denominator]}
    columns = np.array(rows, np.int64).T
    return header, {"offset": columns[0], "size": columns[1], "ticks": columns[2], "flags": columns[3].astype(np.uint8)}


def _listed(container: Any, stream: Any, size: int) -> list[tuple[int, int, int, int]] | None:
    """The packets that the table of an MP4 file lists, up to the first one that a file of `size` bytes lacks.

    The table has decoding times alone. So it serves codecs that show frames in the order of their packets, which AV1
    and VP9 do by definition. None for other files, and for tables that are incomplete (fragmented files).
    """
    entries = stream.index_entries
    if "mp4" not in container.format.name or stream.codec_context.name not in IN_ORDER or len(entries) != stream.frames:
        return None
    rows: list[tuple[int, int, int, int]] = []
    for entry in entries:
        if entry.pos < 0 or entry.size <= 0:
            return None
        if entry.pos + entry.size > size:
            break
        flags = _KEY * entry.is_keyframe + _HIDDEN * entry.is_discard
        rows.append((entry.pos, entry.size, entry.timestamp, flags))
    return rows or None


def _offset(fd: int, packet: Any, path: Path) -> int | None:
    """First byte of a packet in its file, or None if the file has it in pieces."""
    if packet.pos is None or packet.pos < 0:
        return None
    raw = bytes(packet)
    place = read_at(path, fd, len(raw) + _HEADER, packet.pos).find(raw)
    return None if place < 0 else packet.pos + place


def _check_size(context: Any, path: Path) -> None:
    width, height = int(context.width), int(context.height)
    if not (0 < height <= SIDE and 0 < width <= SIDE):
        raise UnsafeDataError(f"expected frames of at most {SIDE} x {SIDE}, got {width} x {height}", path=path)


def _described(context: Any, palette: bytes) -> dict[str, Any]:
    """Size, codec, palette, and the digest of all parameters of a decoder."""
    colours = (context.color_range, context.colorspace, context.color_primaries, context.color_trc)
    numbers = [context.width, context.height, context.bits_per_coded_sample, *map(int, colours)]
    names = [context.name, context.codec_tag, context.pix_fmt, context.profile]
    digest = hashlib.sha256(repr((numbers, names)).encode() + (context.extradata or b"") + palette)
    sizes = {"width": context.width, "height": context.height, "codec": context.name, "palette": palette.hex()}
    return {**sizes, "encoding": digest.hexdigest()}


def _index(state: FileState, header: dict[str, Any], arrays: dict[str, AnyArray]) -> PacketIndex:
    ticks, flags = arrays["ticks"], arrays["flags"]
    shown = np.flatnonzero(flags & _HIDDEN == 0)
    order = shown[np.argsort(ticks[shown], kind="stable")]
    rank = np.full(len(ticks), -1, np.int32)
    rank[order] = np.arange(len(order))
    return PacketIndex(
        state=state,
        offset=arrays["offset"],
        size=arrays["size"].astype(np.int32),
        rank=rank,
        keys=np.flatnonzero(flags & _KEY).astype(np.int32),
        ticks=ticks[order],
        time_base=Fraction(*header["time_base"]),
        width=header["width"],
        height=header["height"],
        codec=header["codec"],
        encoding=header["encoding"],
        stream=header["stream"],
        rotation=header["rotation"],
        claimed=header["claimed"],
        palette=bytes.fromhex(header["palette"]),
    )


RUN = 48  # packets of a run, about, so that the runs of a batch can be divided among threads


class WantedFrames(NamedTuple):
    """Different frames, sorted by file and frame, and the rows of the buffer that each of them has."""

    files: IntArray
    frames: IntArray
    places: IntArray
    first: IntArray  # places of frame i are places[first[i] : first[i + 1]]

    @classmethod
    def of(cls, files: Any, frames: Any, places: Any) -> WantedFrames:
        """Sort frames and merge equal ones."""
        wide = [np.asarray(each, np.int64).reshape(-1) for each in np.broadcast_arrays(files, frames, places)]
        order = np.lexsort((wide[1], wide[0]))
        file, frame, place = (each[order] for each in wide)
        new = np.ones(len(order), np.bool_)
        new[1:] = (file[1:] != file[:-1]) | (frame[1:] != frame[:-1])
        first = np.flatnonzero(new)
        return cls(file[first], frame[first], place, np.append(first, len(order)))

    def places_of(self, row: int) -> IntArray:
        """Rows of the buffer for frame `row`."""
        return self.places[self.first[row] : self.first[row + 1]]

    def by_file(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Some of the frames, grouped by file."""
        files = self.files[rows]
        edges = np.flatnonzero(files[1:] != files[:-1]) + 1
        for part in np.split(rows, edges):
            if len(part):
                yield int(self.files[part[0]]), part


class PacketRun(NamedTuple):
    """Wanted frames of one file that are decoded together."""

    file: int
    frames: IntArray  # increasing
    rows: IntArray  # numbers of these frames among all different frames of the read


def divided(file: int, index: PacketIndex, numbers: IntArray, rows: IntArray) -> Iterator[PacketRun]:
    """Divide the wanted frames of a file into runs."""
    start, packet = index.start[numbers], index.packet[numbers]
    begin, last = 0, int(packet[0])
    for i in range(1, len(rows)):
        # A frame continues the run if its group of pictures is the one in work, or the next one.
        if start[i] > last + 1 or (start[i] > start[begin] and last - start[begin] >= RUN):
            yield PacketRun(file, numbers[begin:i], rows[begin:i])
            begin, last = i, int(packet[i])
        last = max(last, int(packet[i]))
    yield PacketRun(file, numbers[begin:], rows[begin:])
