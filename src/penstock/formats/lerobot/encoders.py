"""Encoding the cameras of an episode, each with an encoder and a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.video import VideoWriter
from penstock.core.arrays import AnyArray


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of the encoders of a dataset, see `VideoWriter`.

    Args:
        codec: Encoder. The default is `"libsvtav1"`.
        crf: Quality. The default is None: the default of the encoder.
        g: Frames from one key frame to the next. The default is 2.
    """

    codec: str = "libsvtav1"
    crf: int | None = None
    g: int = 2

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> EncoderSettings:
        """Return the settings that a dataset has in its metadata, where it has them."""
        crf, g = (value if type(value := entry.get(name)) is int else None for name in ("crf", "g"))
        return cls(str(entry.get("codec", "libsvtav1")), crf, g or 2)

    def open(self, path: Path, fps: float) -> VideoWriter:
        """Begin a file, which replaces an existing one."""
        return VideoWriter(path, fps, codec=self.codec, crf=self.crf, g=self.g, overwrite=True)


def encode_cameras(frames: Mapping[Path, AnyArray], fps: float, settings: EncoderSettings) -> None:
    """Encode the frames of cameras at the same time.

    Args:
        frames: `[n, height, width, 3]` uint8 by file, as many of each.
        fps: Frames a second.
        settings: Settings of the encoders.
    """
    with ExitStack() as stack:
        writers = [stack.enter_context(settings.open(path, fps)) for path in frames]
        for rows in zip(*frames.values(), strict=True):
            for writer, row in zip(writers, rows, strict=True):
                writer.append(np.asarray(row))
