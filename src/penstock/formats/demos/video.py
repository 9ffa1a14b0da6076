"""Frames of videos as the rows of a column: a video is decoded whole when one of its frames is read."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.cache import Cache
from penstock.core.arrays import AnyArray, ByteArray
from penstock.core.ragged import offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field
from penstock.errors import FormatError, UnsafeDataError, require

EXTRA = "video"
CACHE_BYTES = 1 << 30
SIDE = 1 << 13  # of a frame, at most


@dataclass(frozen=True)
class Clip:
    """Frames `skip : skip + count` of the video at `path`, each `height` by `width`."""

    path: Path
    skip: int
    count: int
    height: int
    width: int

    @property
    def nbytes(self) -> int:
        """Bytes of its frames, decoded."""
        return self.count * self.height * self.width * 3


class Video:
    """Clips in order, a row a frame: `[3, H, W]` uint8, RGB.

    A clip that is a frame short repeats the last one it has. Decoded clips are kept, the last used first, up to
    `cache_bytes` in all, and the last one in any case. Reads may be called from any number of threads. Raises
    `FormatError`, when read, for damaged videos.
    """

    def __init__(self, clips: Sequence[Clip], cache_bytes: int = CACHE_BYTES) -> None:
        sizes = {(clip.height, clip.width) for clip in clips}
        if len(sizes) != 1:
            raise FormatError(f"expected videos of one size, got {sorted(sizes)[:20]}", path=clips[0].path.parent)
        self._clips, self._kept = list(clips), Cache(max(cache_bytes, 1))
        self._first = offsets_of([clip.count for clip in clips])

    def __reduce__(self) -> tuple[Any, ...]:
        return Video, (self._clips, self._kept.limit)

    def __len__(self) -> int:
        return int(self._first[-1])

    def field(self, align: Align) -> Field:
        """The field of the column."""
        return Field(np.dtype(np.uint8), (3, self._clips[0].height, self._clips[0].width), align)

    def digest(self) -> bytes:
        """A digest of the files and of what is read of them. Cost: one pass over the files, nothing is decoded."""
        digest = hashlib.sha256()
        for clip in self._clips:
            digest.update(f"{clip.skip} {clip.count} ".encode() + clip.path.read_bytes())
        return digest.digest()

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Rows into the covered places of `out`: each video that they need is decoded once."""
        rows = selection.rows().ravel()
        places = np.flatnonzero(rows >= 0)
        clips = np.searchsorted(self._first, rows[places], side="right") - 1
        target = out.reshape(-1, *self.field("step").shape)
        for number in np.unique(clips).tolist():
            at = places[clips == number]
            target[at] = self._decoded(number)[rows[at] - self._first[number]]

    def _decoded(self, number: int) -> ByteArray:
        def sized() -> tuple[ByteArray, int]:
            frames = decode(self._clips[number])
            return frames, min(frames.nbytes, self._kept.limit)  # one that is too large is kept too, alone

        return self._kept.get(number, sized)


def size_of(path: Path) -> tuple[int, int]:
    """Height and width of the frames of a video, out of its header.

    Raises `FormatError` for what is no video, `MissingExtraError` without PyAV.
    """
    with _opened(path) as (_, stream):
        height, width = int(stream.height), int(stream.width)
    if not (0 < height <= SIDE and 0 < width <= SIDE):
        raise UnsafeDataError(f"expected frames of at most {SIDE} x {SIDE}, got {width} x {height}", path=path)
    return height, width


def decode(clip: Clip) -> ByteArray:
    """`[count, 3, H, W]` RGB; a missing last frame is the one before. Raises `FormatError` for a damaged video."""
    frames: list[ByteArray] = []
    with _opened(clip.path) as (container, stream):
        for frame in islice(container.decode(stream), clip.skip, clip.skip + clip.count):
            if (frame.height, frame.width) != (clip.height, clip.width):
                message = f"expected frames of {clip.width} x {clip.height}, got {frame.width} x {frame.height}"
                raise FormatError(message, path=clip.path)
            frames.append(frame.to_ndarray(format="rgb24").transpose(2, 0, 1))
    if len(frames) == clip.count - 1 and frames:
        frames.append(frames[-1])
    if len(frames) != clip.count:
        wanted = clip.skip + clip.count
        raise FormatError(f"expected {wanted} frames, got {len(frames)} after {clip.skip}", path=clip.path)
    return np.stack(frames)


@contextmanager
def _opened(path: Path) -> Generator[tuple[Any, Any], None, None]:
    """The container and its first video stream; their errors become a `FormatError`."""
    av = require("av", EXTRA)
    try:
        # A file that is open, and a demuxer that is named: FFmpeg gets no address to follow.
        with path.open("rb") as file, av.open(file, format="mp4") as container:
            streams = [stream for stream in container.streams.video if stream.codec_context is not None]
            if not streams:
                raise FormatError("expected a video that can be decoded, got none", path=path)
            yield container, streams[0]
    except FormatError:
        raise
    except (OSError, ValueError, av.FFmpegError) as error:
        raise FormatError(f"expected an mp4 video, got {error}", path=path) from error
