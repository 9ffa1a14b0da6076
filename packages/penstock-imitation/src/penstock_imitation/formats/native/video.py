"""Frames of videos as the rows of a column: of each video some frames, one behind the other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.video import VideoFiles, VideoRows
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field
from penstock.errors import FormatError
from penstock.files.remote import read_bytes

CACHE_BYTES = 1 << 30


@dataclass(frozen=True)
class Clip:
    """Frames `skip : skip + count` of the video at `path`. If the video is one frame short, its last frame is twice."""

    path: Path
    skip: int
    count: int


class ClipFrames:
    """Clips in order, a row a frame: `[3, H, W]` uint8, RGB."""

    def __init__(self, clips: Sequence[Clip], cache_bytes: int = CACHE_BYTES) -> None:
        self._clips: list[Clip] = list(clips)
        self._cache_bytes = cache_bytes
        self._files = VideoFiles([clip.path for clip in clips], layout="chw", cache_bytes=cache_bytes)
        self._rows = VideoRows(self._files, self._locate)
        self._first = offsets_of([clip.count for clip in clips])
        sizes = {(index.height, index.width) for index in map(self._files.index, range(len(clips)))}
        if len(sizes) != 1:
            raise FormatError(f"expected videos of one size, got {sorted(sizes)[:20]}", path=clips[0].path.parent)

    def __reduce__(self) -> tuple[Any, ...]:
        return ClipFrames, (self._clips, self._cache_bytes)

    def __len__(self) -> int:
        return int(self._first[-1])

    def nbytes(self, clip: int) -> int:
        """Return the bytes of the frames of a clip, decoded."""
        return self._clips[clip].count * self.field("step").row_bytes

    def field(self, align: Align) -> Field:
        return self._files.field(align)

    def digest(self) -> bytes:
        """Return a digest of the files and of what is read of them. Cost: one pass over the files."""
        digest = hashlib.sha256()
        for clip in self._clips:
            digest.update(f"{clip.skip} {clip.count} ".encode() + read_bytes(clip.path))
        return digest.digest()

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Decode rows into the covered places of `out`."""
        self._rows.read(selection, out)

    def _locate(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        files = np.searchsorted(self._first, rows, side="right") - 1
        frames = rows - self._first[files]
        for file in map(int, np.unique(files)):
            clip, count = self._clips[file], self._files.frame_count(file)
            wanted = clip.skip + clip.count
            if count < wanted - 1 or count <= clip.skip:
                raise FormatError(f"expected {wanted} frames, got {count}", path=clip.path)
            chosen = files == file
            frames[chosen] = np.minimum(frames[chosen] + clip.skip, count - 1)
        return files, frames
