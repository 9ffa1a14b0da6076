"""Frames by torchcodec, a choice for machines whose GPU decodes video.

torchcodec opens a file itself and makes its own index. So a decoder belongs to a file here, and opening one costs a
pass over the file. Measured with torchcodec 0.13 on a CPU: frames of 8 bits equal PyAV's to the last bit, frames of 10
bits differ, because torchcodec converts colours in another way. It turns rotated videos, which are refused here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from penstock.containers.video.index import PacketIndex
from penstock.core.arrays import ByteArray, IntArray
from penstock.errors import FormatError, MissingExtraError


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
    """Decoder of one file, used by one thread at a time."""

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
        """Decode frames."""
        try:
            rgb: ByteArray = self._decoder.get_frames_at(frames.tolist()).data.cpu().numpy()
        except (RuntimeError, ValueError, IndexError) as error:
            message = f"expected frames that torchcodec decodes, got {error}"
            raise FormatError(message, path=self._path, where=f"frame {int(frames[0])}") from error
        if rgb.shape[1:] != self._shape:
            message = f"expected frames of shape {self._shape}, got {rgb.shape[1:]} from torchcodec; use decoder='pyav'"
            raise FormatError(message, path=self._path)
        return rgb
