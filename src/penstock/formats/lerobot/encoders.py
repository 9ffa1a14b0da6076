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
from penstock.formats.lerobot.depth import Depth


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of the encoders of a dataset, see `VideoWriter`."""

    codec: str = "libsvtav1"
    crf: int | None = None
    g: int = 2

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> EncoderSettings:
        """Return the settings that a dataset has in its metadata, where it has them."""
        crf, g = (value if type(value := entry.get(name)) is int else None for name in ("crf", "g"))
        return cls(str(entry.get("codec", "libsvtav1")), crf, g or 2)

    def open(self, path: Path, fps: float, depth: Depth | None = None) -> VideoWriter:
        """Begin a file, which replaces an existing one."""
        if depth is not None:
            return VideoWriter(path, fps, codec="libx265", pix_fmt="gray12le", options=_NO_LOSS, overwrite=True)
        return VideoWriter(path, fps, codec=self.codec, crf=self.crf, g=self.g, overwrite=True)


def encode_cameras(frames: Mapping[Path, tuple[Depth | None, AnyArray]], fps: float, settings: EncoderSettings) -> None:
    """Encode the frames of cameras at the same time."""
    with ExitStack() as stack:
        depths = [depth for depth, _ in frames.values()]
        writers = [stack.enter_context(settings.open(path, fps, depth)) for path, (depth, _) in frames.items()]
        for rows in zip(*(pixels for _, pixels in frames.values()), strict=True):
            for writer, depth, row in zip(writers, depths, rows, strict=True):
                writer.append(np.asarray(row) if depth is None else depth.codes(row))


_NO_LOSS = {"x265-params": "lossless=1:log-level=error"}
