"""PNG images as most files have them, decoded into memory of the caller without Pillow.

The chunks are walked and their checksums compared, zlib-ng inflates, and a kernel undoes the filters, in the memory of
the caller. This reads whole images of 8 or 16 bits a channel, grey or colour, without interlacing and palettes. For any
other image, and for one with the least damage, `decode_png` returns False, and Pillow decides what it is: it knows the
rest of the format, and what damage can be borne. So this only makes fast what both read alike.

Bounds: the caller's array has the shape of the header before anything is inflated, and never more is inflated than fits
it. One core, against Pillow: 64 x 96 in 108 µs against 190, 480 x 640 in 4.4 ms against 6.0; inflating is three
quarters of it. Source: W3C, "Portable Network Graphics (PNG) Specification".
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass

import numpy as np

from penstock.containers.tar.compress import inflating
from penstock.core.arrays import AnyArray
from penstock.kernels.png import undo_filters

START = b"\x89PNG\r\n\x1a\n"
HEAD = struct.Struct(">8sI4sIIBBBBBI")  # start, size and name of the first chunk, its seven fields, its checksum
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by the type of colour
ELSEWHERE = (b"tRNS", b"acTL", b"fdAT")  # optional chunks that change what the pixels are


@dataclass(frozen=True)
class PlainHeader:
    """The header of an image that can be decoded here.

    Args:
        shape: `(height, width, channels)`.
        depth: Bits of a channel, 8 or 16.
    """

    shape: tuple[int, int, int]
    depth: int


def plain_header(blob: bytes) -> PlainHeader | None:
    """Return the header of a PNG image, or None for images that are not decoded here."""
    if len(blob) < HEAD.size:
        return None
    start, size, name, width, height, depth, colour, method, filtering, interlaced, checksum = HEAD.unpack_from(blob)
    if (start, size, name, method, filtering, interlaced) != (START, 13, b"IHDR", 0, 0, 0) or not width * height:
        return None
    if depth not in (8, 16) or colour not in CHANNELS or inflating().crc32(blob[12:29]) != checksum:
        return None
    return PlainHeader((height, width, CHANNELS[colour]), depth)


def decode_png(blob: bytes, out: AnyArray) -> bool:
    """Decode an image into an array of just its shape and dtype.

    Args:
        blob: A whole file of one image.
        out: `[h, w, channels]`, uint8 or uint16, C-contiguous.

    Returns:
        Whether the image was decoded. If not, it is another kind of image or damaged, and `out` has any values.
    """
    header = plain_header(blob)
    if header is None or header.shape != out.shape or 8 * out.dtype.itemsize != header.depth:
        return False
    packed = _packed(blob)
    height, width, _ = header.shape
    size = out.nbytes + height
    if packed is None:
        return False
    module = inflating()
    inflate = module.decompressobj()
    try:
        raw: bytes = inflate.decompress(packed, size + 1)  # one more, to see the end
    except module.error:
        return False
    pixels = out.reshape(-1).view(np.uint8)
    if len(raw) != size or not inflate.eof or inflate.unused_data:
        return False
    if not undo_filters(np.frombuffer(raw, np.uint8), pixels, height, out.nbytes // (height * width)):
        return False
    if out.dtype.itemsize == 2 and sys.byteorder == "little":
        out.byteswap(inplace=True)
    return True


def _packed(blob: bytes) -> bytes | memoryview | None:
    """Return the compressed pixels of an image, or None if a chunk is damaged or changes what the pixels are."""
    crc32, view = inflating().crc32, memoryview(blob)
    parts: list[memoryview] = []
    at, ended = HEAD.size, False
    while at + 12 <= len(blob):
        size = int.from_bytes(view[at : at + 4], "big")
        name, end = blob[at + 4 : at + 8], at + 8 + size
        if end + 4 > len(blob) or crc32(view[at + 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
            return None
        if name == b"IDAT":
            if ended:
                return None
            parts.append(view[at + 8 : end])
        elif name == b"IEND":
            return parts[0] if len(parts) == 1 else b"".join(parts)
        elif name in ELSEWHERE or not name[0] & 32:  # a small first letter marks optional chunks
            return None
        else:
            ended = bool(parts)
        at = end + 4
    return None
