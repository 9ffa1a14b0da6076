"""JPEG frames: recognised by their bytes, decoded within bounds, encoded on request. Needs Pillow (the extra
`images`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray, IntArray
from penstock.core.spaces import Box, Space
from penstock.errors import FormatError, SpecError, require
from penstock.formats.minari.spaces import is_image

MAGIC = b"\xff\xd8\xff"
PIXELS = 1 << 26  # of one frame; a hostile header may claim 4 10^9


def is_jpeg(blob: bytes) -> bool:
    """Whether bytes begin as a JPEG file does."""
    return blob.startswith(MAGIC)


def shape_of(blob: bytes) -> tuple[int, ...]:
    """The shape of the frame that a JPEG holds, from its header alone. Raises `FormatError`."""
    image = _open(blob)
    channels = len(image.getbands())
    return (image.height, image.width) if channels == 1 else (image.height, image.width, channels)


def decode(blob: bytes, nbytes: int) -> ByteArray:
    """The `[nbytes]` uint8 pixels of a JPEG. Raises `FormatError` if it holds another number, before decoding."""
    image = _open(blob)
    found = image.width * image.height * len(image.getbands())
    if found != nbytes:
        raise FormatError(f"expected an image of {nbytes} values, got {image.size} {image.mode}")
    try:
        return np.asarray(image, np.uint8).reshape(-1)
    except (OSError, SyntaxError, ValueError) as error:
        raise FormatError(f"expected a whole JPEG, got {error}") from error


def encode(frame: ByteArray) -> bytes:
    """The JPEG of one frame `[height, width]` or `[height, width, 3]`, at Pillow's default quality: it loses detail."""
    out = io.BytesIO()
    require("PIL.Image", "images").fromarray(frame).save(out, format="JPEG")
    return out.getvalue()


def check_encodable(path: str, space: Space) -> None:
    """Raise `SpecError` for an image space that JPEG has no colours for."""
    if is_image(space) and isinstance(space, Box) and len(space.shape) == 3 and space.shape[2] != 3:
        raise SpecError(f"expected 3 channels to encode {path} as JPEG, got {space.shape}; use images='raw'")


def _open(blob: bytes) -> Any:
    pillow = require("PIL.Image", "images")
    try:
        image = pillow.open(io.BytesIO(blob), formats=["JPEG"])
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise FormatError(f"expected a JPEG, got {blob[:4]!r}...: {error}") from error
    if image.width * image.height > PIXELS:
        raise FormatError(f"expected an image of at most {PIXELS} pixels, got {image.size}")
    return image


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Rows that are JPEG frames: `blobs(start, stop)` yields their bytes. Each row is decoded alone."""

    blobs: Callable[[int, int], Iterator[bytes]]
    row_bytes: int
    where: str

    def gather(self, start: IntArray, length: IntArray, at: IntArray, out: ByteArray) -> None:
        """Decode every frame of the spans."""
        frames = out.reshape(int(out.size) // self.row_bytes, self.row_bytes)
        for begin, rows, place in zip(start.tolist(), length.tolist(), at.tolist(), strict=True):
            for i, blob in enumerate(self.blobs(begin, begin + rows)):
                try:
                    frames[place + i] = decode(blob, self.row_bytes)
                except FormatError as error:
                    raise FormatError(str(error), where=f"{self.where}, row {begin + i} of the column") from error
