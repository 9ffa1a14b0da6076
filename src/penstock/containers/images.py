"""Encoded images: shape and dtype from the header, decoded within bounds into memory of the caller, and encoded.

The header is read first: an image of another shape, or of more pixels than the limit, is refused before any pixel is
decoded. Colours of 16 bits are kept by `decode_into`; `decode` takes their upper 8 bits.

Pillow decodes any image, and says what is wrong with a damaged one. PNG images without palette and interlacing are
decoded here, and JPEG images by simplejpeg, where it is installed, with the same result, into the rows of the caller.
An image with which they have the least trouble goes to Pillow.
"""

from __future__ import annotations

import importlib
import io
import math
import struct
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from penstock.containers.tar.compress import inflating
from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.ragged import ranges
from penstock.core.turns import ForkSafeLock
from penstock.errors import DataError, FormatError, UnsafeDataError, require
from penstock.flow import cores, for_each
from penstock.kernels.png import undo_filters

Encoding = Literal["png", "jpeg", "tiff"]

PNG_START = b"\x89PNG\r\n\x1a\n"
JPEG_START = b"\xff\xd8\xff"
READABLE = ("JPEG", "PNG", "PPM", "TIFF", "WEBP")  # decoders of Pillow that may run on data
MOST_PIXELS = 1 << 26  # of one image; a hostile header may claim 4 10^9
THREAD_BYTES = 1 << 20  # of pixels, from which on several threads pay,
IMAGE_BYTES = 24 << 10  # if each image has so many

_CHANNELS = {"L": 1, "I;16": 1, "F": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_DTYPES = {"I;16": np.dtype(np.uint16), "F": np.dtype(np.float32)}  # of modes that are not uint8
_DEPTHS = {"jpeg": (np.uint8,), "png": (np.uint8, np.uint16), "tiff": (np.uint8, np.uint16, np.float32)}
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_PNG_HEAD = struct.Struct(">8sI4sIIBBBBBI")  # start, size and name of the first chunk, its fields, its checksum
_PNG_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by the type of colour; palettes are left out
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_ELSEWHERE = (b"tRNS", b"acTL", b"fdAT")  # chunks that change what the pixels are, beside those that must be known
_COLOURS = {"Gray": "GRAY", "YCbCr": "RGB"}  # what simplejpeg decodes as Pillow does, and to which colours
_NATIVE = {"1": "L", "I;16B": "I;16", "PA": "RGBA", "CMYK": "RGB", "La": "LA", "RGBa": "RGBA"}


# Threads that decode small images at a time wait for the interpreter before and after each: two take longer than one.
_SMALL_IMAGES = nullcontext() if sysconfig.get_config_var("Py_GIL_DISABLED") else ForkSafeLock()


@dataclass(frozen=True)
class ImageHeader:
    """The header of an encoded image."""

    encoding: str
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]


def is_jpeg(blob: bytes) -> bool:
    """Return whether bytes begin as a JPEG file does."""
    return blob.startswith(JPEG_START)


def is_png(blob: bytes) -> bool:
    """Return whether bytes begin as a PNG file does."""
    return blob.startswith(PNG_START)


def read_header(blob: bytes) -> ImageHeader:
    """Return what the header of an encoded image says. No pixel is decoded."""
    image, mode = _opened(blob, MOST_PIXELS)
    return ImageHeader(image.format.lower(), (image.height, image.width, _CHANNELS[mode]), _dtype(mode))


def decode(blob: bytes, mode: str | None = None, *, most_pixels: int = MOST_PIXELS) -> AnyArray:
    """Decode one image into new memory."""
    if (quick := _quickly(blob, mode, most_pixels)) is not None:
        return quick
    image, native = _opened(blob, most_pixels)
    return _pixels(image, native if mode is None else mode)


def decode_into(blob: bytes, out: AnyArray, *, convert: bool = False, fast_jpeg: bool = False) -> None:
    if fast_jpeg:
        require("simplejpeg", "jpeg")
    shape = out.shape if out.ndim == 3 else (*out.shape, 1)
    if math.prod(shape[:2]) <= MOST_PIXELS:
        whole = out.reshape(shape) if out.flags.c_contiguous else np.empty(shape, out.dtype)
        if _decode_png(blob, whole) or _decode_jpeg(blob, whole, fast=fast_jpeg):
            if not out.flags.c_contiguous:
                out[...] = whole.reshape(out.shape)
            return
    image, mode = _opened(blob, MOST_PIXELS)
    decoded_shape = (image.height, image.width, _CHANNELS[mode])
    wanted = _MODES.get(shape[-1]) if convert and _dtype(mode) == np.uint8 else mode
    if decoded_shape[:2] != shape[:2] or out.dtype != _dtype(mode) or wanted is None or _CHANNELS[wanted] != shape[-1]:
        raise FormatError(f"expected an image {out.dtype}{out.shape}, got {image.format} {_dtype(mode)}{decoded_shape}")
    out[...] = _pixels(image, wanted).reshape(out.shape)


def decode_rows(blobs: Sequence[bytes], out: AnyArray, *, where: str = "", first: int = 0, **options: bool) -> None:
    """Decode an image into each row of an array with the options of `decode_into`, on all cores."""
    column = f"{where}, " if where else ""
    decode_to(blobs, out, range(len(blobs)), lambda i: f"{column}row {first + i} of the column", **options)


def decode_to(
    blobs: Sequence[bytes], out: AnyArray, rows: Sequence[int], where: Callable[[int], str], **options: bool
) -> None:
    """Decode image `i` into row `rows[i]` of an array on all cores. An error names the place `where(i)`."""

    def decode_one(i: int) -> None:
        try:
            decode_into(blobs[i], out[rows[i]], **options)
        except FormatError as error:
            raise type(error)(str(error), where=where(i)) from error

    decode_each(decode_one, len(blobs), len(blobs) * out[:1].nbytes)


def decode_each(decode_one: Callable[[int], object], count: int, nbytes: int) -> None:
    """Call `decode_one` for each of `count` images of `nbytes` of pixels together, on all cores if it pays."""
    small = nbytes < count * IMAGE_BYTES
    size = max(count // (4 * cores()), 1) if nbytes >= THREAD_BYTES and not small else max(count, 1)

    def decode_part(begin: int) -> None:
        for i in range(begin, min(begin + size, count)):
            decode_one(i)

    with _SMALL_IMAGES if small else nullcontext():
        for_each(decode_part, range(0, count, size))


def encode(pixels: AnyArray, encoding: Encoding, *, quality: int = 75, compression: int = 6) -> bytes:
    grey = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    channels = 1 if grey.ndim == 2 else grey.shape[-1]
    known = (1, 3) if encoding == "jpeg" else (1,) if grey.dtype != np.uint8 else (1, 2, 3, 4)
    if grey.ndim not in (2, 3) or channels not in known or grey.dtype not in _DEPTHS[encoding] or not grey.size:
        raise DataError(f"expected an image that {encoding} can hold, got {pixels.dtype}{pixels.shape}")
    out = io.BytesIO()
    image: Any = require("PIL.Image", "images").fromarray(np.ascontiguousarray(grey))
    options = {"jpeg": {"quality": quality}, "png": {"compress_level": compression}, "tiff": {"compression": "raw"}}
    image.save(out, format=encoding.upper(), **options[encoding])
    return out.getvalue()


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Rows of a column that are encoded images. Each row is decoded alone."""

    blobs: Callable[[IntArray, IntArray], list[bytes]]
    shape: tuple[int, ...]
    where: str

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Decode the images of all spans together, on all cores."""
        stored, rows = ranges(start, length).tolist(), ranges(destination, length).tolist()
        frames = out.reshape(-1, *self.shape)
        decode_to(self.blobs(start, length), frames, rows, lambda i: f"{self.where}, row {stored[i]} of the column")


@cache
def _optional(name: str) -> Any:
    """Return a module, or None where it is not installed."""
    with suppress(ImportError):
        return importlib.import_module(name)
    return None


def _png_header(blob: bytes) -> tuple[tuple[int, int, int], int] | None:
    """Return shape and bits of a channel of a PNG image, or None for one that Pillow has to read."""
    if not is_png(blob) or len(blob) < _PNG_HEAD.size:
        return None
    _, size, name, width, height, depth, colour, method, filters, interlaced, checksum = _PNG_HEAD.unpack_from(blob)
    if (size, name, method, filters, interlaced) != (13, b"IHDR", 0, 0, 0) or not width * height:
        return None
    if depth not in (8, 16) or colour not in _PNG_CHANNELS or inflating().crc32(blob[12:29]) != checksum:
        return None
    return (height, width, _PNG_CHANNELS[colour]), depth


def _png_data(blob: bytes) -> bytes | memoryview | None:
    """Return the compressed pixels of a PNG image, or None for one that Pillow has to read."""
    crc32, view = inflating().crc32, memoryview(blob)
    parts: list[memoryview] = []
    begin, complete = _PNG_HEAD.size, False
    while begin + 12 <= len(blob):
        size, name = _PNG_CHUNK.unpack_from(blob, begin)
        end = begin + 8 + size
        if end + 4 > len(blob) or crc32(view[begin + 4 : end]) != int.from_bytes(blob[end : end + 4]):
            return None
        if name == b"IEND":
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if name == b"IDAT":
            if complete:
                return None
            parts.append(view[begin + 8 : end])
        elif name in _PNG_ELSEWHERE or not name[0] & 32:  # a small first letter marks optional chunks
            return None
        else:
            complete = bool(parts)
        begin = end + 4
    return None


def _decode_png(blob: bytes, out: AnyArray) -> bool:
    """Decode a PNG image into a C-contiguous array `[h, w, channels]`. Returns False for one that Pillow has to read.

    No more is inflated than fits the array.
    """
    header = _png_header(blob)
    if header is None or header[0] != out.shape or 8 * out.dtype.itemsize != header[1]:
        return False
    if (data := _png_data(blob)) is None:
        return False
    module = inflating()
    size = out.nbytes + len(out)  # each row begins with the number of its filter
    inflate = module.decompressobj()
    try:
        raw = inflate.decompress(data, size + 1)  # one more, to see the end
    except module.error:
        return False
    if len(raw) != size or not inflate.eof or inflate.unused_data:
        return False
    pixels = out.reshape(-1).view(np.uint8)
    if not undo_filters(np.frombuffer(raw, np.uint8), pixels, len(out), out.itemsize * out.shape[2]):
        return False
    if out.itemsize == 2 and sys.byteorder == "little":
        out.byteswap(inplace=True)
    return True


def _jpeg_header(blob: bytes) -> tuple[tuple[int, int, int], str] | None:
    """Return shape and colours of a JPEG image, or None for one that Pillow has to read."""
    if not is_jpeg(blob) or (module := _optional("simplejpeg")) is None:
        return None
    try:
        height, width, stored, _ = module.decode_jpeg_header(blob)
    except ValueError:
        return None
    colours = _COLOURS.get(stored)
    return None if colours is None else ((height, width, 1 if colours == "GRAY" else 3), colours)


def _decode_jpeg(blob: bytes, out: AnyArray, *, fast: bool = False) -> bool:
    """Decode a JPEG image into a C-contiguous array `[h, w, channels]`. Returns False for one that Pillow has to read.

    simplejpeg has the library and the defaults of Pillow: the accurate transform, and smooth colours. `fast` takes
    the transform that TensorFlow chooses for speed, and then every pixel equals TensorFlow's. simplejpeg refuses images
    about which the library warns; Pillow says whether these are damaged.
    """
    header = _jpeg_header(blob)
    if header is None or header[0] != out.shape or out.dtype != np.uint8:
        return False
    try:
        _optional("simplejpeg").decode_jpeg(blob, header[1], fastdct=fast, buffer=out)
    except ValueError:
        return False
    return True


def _quickly(blob: bytes, mode: str | None, most_pixels: int) -> AnyArray | None:
    """Return the pixels of an image without Pillow, or None if that cannot be."""
    png = _png_header(blob)
    if png is not None and (png[1] == 8 or png[0][2] == 1):
        shape, depth = png
    elif (jpeg := _jpeg_header(blob)) is not None:
        shape, depth = jpeg[0], 8
    else:
        return None
    same = mode is None or (mode == _MODES[shape[2]] and depth == 8)
    if not same or shape[0] * shape[1] > most_pixels:
        return None
    out = np.empty(shape, np.uint8 if depth == 8 else np.uint16)
    if not (_decode_png if png is not None else _decode_jpeg)(blob, out):
        return None
    return out[..., 0] if shape[2] == 1 else out


def _opened(blob: bytes, most_pixels: int) -> tuple[Any, str]:
    """Return the image with its header read, and the mode that its pixels become."""
    pillow: Any = require("PIL.Image", "images")
    try:
        image = pillow.open(io.BytesIO(blob), formats=READABLE)
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        why = "" if isinstance(error, pillow.UnidentifiedImageError) else f": {error}"
        raise FormatError(
            f"expected an image ({', '.join(READABLE)}), got bytes that begin with {blob[:8]!r}{why}"
        ) from error
    if image.width * image.height > most_pixels:
        raise UnsafeDataError(f"expected an image of at most {most_pixels} pixels, got {image.size}")
    mode: str = image.mode
    if mode == "P":
        mode = "RGBA" if "transparency" in image.info else "RGB"
    mode = _NATIVE.get(mode, "I;16" if mode == "I" and image.format != "TIFF" else mode)  # 32 bits in TIFF alone
    if mode not in _CHANNELS:
        raise FormatError(f"expected an image in grey or RGB, got one of mode {image.mode}")
    return image, mode


def _dtype(mode: str) -> np.dtype[Any]:
    return _DTYPES.get(mode, np.dtype(np.uint8))


def _pixels(image: Any, mode: str) -> AnyArray:
    try:
        if mode == image.mode or mode in _DTYPES:
            return np.asarray(image).astype(_dtype(mode), copy=False)
        return np.asarray(image.convert(mode))
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise FormatError(f"expected a whole image, got {error}") from error
