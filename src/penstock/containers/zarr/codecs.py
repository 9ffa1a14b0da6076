"""Streams of compressors, and chunks whose values are not just bytes in order: filters, checksums, images, shards.

Filters change values one by one, axes are transposed, the values become bytes, and one compressor packs these. The size
before compression follows from the metadata, so a chunk that holds another one is an error before memory is taken.

Sources: the specifications of Zarr 2 and 3 (zarr-specs.readthedocs.io), and the parameters of numcodecs' filters.
"""

from __future__ import annotations

import bz2
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from penstock.containers.zarr.blosc import BloscBuffer
from penstock.core.arrays import AnyArray, ByteArray, read_only
from penstock.errors import FormatError, require
from penstock.kernels.crc32c import crc32c

JPEGXL = "imagecodecs_jpegxl"
FILTERS = ("delta", "fixedscaleoffset", "astype", "quantize", "bitround", "shuffle")
_CHECK = 4  # bytes of a CRC-32C behind the data that it covers
_ABSENT = (1 << 64) - 1  # offset and size of a chunk that a shard does not have


@dataclass(frozen=True, eq=False)
class ShardTable:
    """The chunks of a shard: their codecs, and the table of their places."""

    inner: ChunkCodecs
    counts: tuple[int, ...]
    has_checksum: bool
    at_end: bool

    @property
    def table_bytes(self) -> int:
        """Size of the table, with its checksum."""
        return 16 * math.prod(self.counts) + _CHECK * self.has_checksum

    def places(self, raw: ByteArray) -> list[tuple[int, int] | None]:
        """First byte and end of each chunk, in C order, None for a missing one."""
        size = self.table_bytes
        if len(raw) < size:
            raise FormatError(f"expected a shard with a table of {size} bytes, got {len(raw)} bytes")
        table = raw[len(raw) - size :] if self.at_end else raw[:size]
        if self.has_checksum:
            table = without_check(table)
        entries = np.frombuffer(table.tobytes(), "<u8").reshape(-1, 2).tolist()
        return [None if a == n == _ABSENT else self._place(a, n, len(raw)) for a, n in entries]

    @staticmethod
    def _place(begin: int, size: int, room: int) -> tuple[int, int]:
        if begin + size > room:
            raise FormatError(f"expected a chunk within a shard of {room} bytes, got {begin}:{begin + size}")
        return begin, begin + size


@dataclass(frozen=True, eq=False)
class ChunkCodecs:
    """How the values of a chunk are stored."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: bytes
    filters: tuple[Mapping[str, Any], ...] = ()
    axes: tuple[int, ...] | None = None
    packers: tuple[Mapping[str, Any], ...] = ()
    shards: ShardTable | None = None

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def one_image(self) -> bool:
        """Whether the chunk is one image in JPEG-XL, of 1 or 3 channels of uint8, without loss."""
        lossless = [packer["id"] == JPEGXL and packer.get("lossless") is True for packer in self.packers] == [True]
        other = self.filters or self.axes is not None or self.shards is not None
        return lossless and not other and is_jpegxl_image(self.dtype, self.shape[1:]) and self.shape[0] == 1

    @property
    def plain(self) -> bool:
        """Whether the bytes in order are the values, once a single compressor is undone."""
        packed = all(packer["id"] not in ("crc32c", JPEGXL) for packer in self.packers)
        return not self.filters and self.axes is None and self.shards is None and packed and len(self.packers) <= 1

    def check(self) -> None:
        """Raise `FormatError` for filters and compressors that are not known."""
        if self.shards is not None:
            self.shards.inner.check()
        for packer in self.packers:
            if packer["id"] not in ("blosc", "crc32c", JPEGXL):
                decoder_of(packer)
        if sum(packer["id"] != "crc32c" for packer in self.packers) > 1:
            raise FormatError(f"expected one compressor, got {[packer['id'] for packer in self.packers]}")
        dtype = self.dtype
        for stage in self.filters:
            dtype = _stored(stage, dtype)

    def empty(self) -> AnyArray:
        """A chunk where nothing was written."""
        return np.full(self.shape, np.frombuffer(self.fill, self.dtype)[0], self.dtype)

    def decode(self, raw: ByteArray) -> AnyArray:
        """The values of a chunk, C-contiguous or a view of such."""
        if self.shards is not None:
            return self._unsharded(raw)
        if self.packers and self.packers[-1]["id"] == JPEGXL:
            return _jpegxl(raw, self.shape, self.dtype)
        dtypes = [self.dtype]
        for stage in self.filters:
            dtypes.append(_stored(stage, dtypes[-1]))
        values = self._unpacked(raw, math.prod(self.shape) * dtypes[-1].itemsize).view(dtypes[-1])
        for stage, dtype in zip(reversed(self.filters), reversed(dtypes[:-1]), strict=True):
            values = np.ascontiguousarray(_UNFILTER[stage["id"]](values, stage)).view(np.uint8).view(dtype)
        if self.axes is None:
            return values.reshape(self.shape)
        stored = tuple(self.shape[axis] for axis in self.axes)
        return values.reshape(stored).transpose(np.argsort(self.axes))

    def _unpacked(self, raw: ByteArray, size: int) -> ByteArray:
        """The bytes before compressor and checksums, of which there are `size`."""
        sizes = [size]
        for packer in self.packers[:-1]:
            sizes.append(sizes[-1] + _CHECK if packer["id"] == "crc32c" else -1)
        for packer, expected in zip(reversed(self.packers), reversed(sizes), strict=False):
            raw = without_check(raw) if packer["id"] == "crc32c" else unpacked(packer, raw, expected)
        if len(raw) != size:
            raise FormatError(f"expected {size} bytes once decoded, got {len(raw)}")
        return raw if raw.flags.c_contiguous else np.ascontiguousarray(raw)

    def _unsharded(self, raw: ByteArray) -> AnyArray:
        assembled = self.empty()
        shards = self.shards
        if shards is None:
            return assembled
        inner = shards.inner
        for place, index in zip(shards.places(raw), np.ndindex(shards.counts), strict=True):
            if place is not None:
                where = tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, inner.shape, strict=True))
                assembled[where] = inner.decode(raw[place[0] : place[1]])
        return assembled


def unpacked(compressor: Mapping[str, Any], raw: ByteArray, size: int) -> ByteArray:
    """The `size` bytes that a compressor packed into `raw`."""
    if compressor["id"] == "blosc":
        buffer = BloscBuffer.of(raw, size)
        out = np.empty(size, np.uint8)
        buffer.whole(out)
        return out
    decoded = decoder_of(compressor)(raw, size)
    if len(decoded) != size:
        raise FormatError(f"expected {size} bytes once decoded, got {len(decoded) if len(decoded) < size else 'more'}")
    return decoded


def without_check(raw: ByteArray) -> ByteArray:
    """The bytes before their CRC-32C."""
    if len(raw) < _CHECK:
        raise FormatError(f"expected a checksum of {_CHECK} bytes, got {len(raw)} bytes")
    stored_checksum, computed_checksum = (
        int.from_bytes(raw[-_CHECK:].tobytes(), "little"),
        crc32c(read_only(raw[:-_CHECK])),
    )
    if stored_checksum != computed_checksum:
        raise FormatError(f"expected bytes with the checksum {stored_checksum:08x}, got {computed_checksum:08x}")
    return raw[:-_CHECK]


def is_jpegxl_image(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether rows of that dtype and shape can be stored as JPEG-XL."""
    return dtype == np.uint8 and len(shape) == 3 and shape[2] in (1, 3) and 0 not in shape


def _jpegxl(raw: ByteArray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    library: Any = require("imagecodecs", "jpegxl")
    try:
        image: AnyArray = library.jpegxl_decode(raw.tobytes(), numthreads=1)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        raise FormatError(f"expected a JPEG-XL image: {error}") from error
    if image.dtype != dtype or image.size != math.prod(shape):
        raise FormatError(f"expected an image of {dtype}{list(shape)}, got {image.dtype}{list(image.shape)}")
    return image.reshape(shape)


class JpegXLEncoder:
    """Encodes chunks of one image as the codec of imagecodecs does: without loss, whatever its configuration says."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._library: Any = require("imagecodecs", "jpegxl")
        self._effort = config.get("effort")

    def encode(self, chunk: AnyArray) -> bytes:
        """Encode `[1, h, w, channels]`."""
        return self._library.jpegxl_encode(chunk[0], lossless=True, effort=self._effort, numthreads=1)


def _dtype(stage: Mapping[str, Any], *names: str) -> np.dtype[Any]:
    """The plain dtype that a filter names under the first of `names` that it has."""
    text = next((stage[name] for name in names if stage.get(name) is not None), None)
    dtype = np.dtype(text) if isinstance(text, str) and len(text) <= 8 else None
    if dtype is None or dtype.kind not in "biuf":
        raise FormatError(f"expected a filter with a dtype of numbers, got {dict(stage)}")
    return dtype


def _stored(stage: Mapping[str, Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of values behind a filter."""
    match stage["id"]:
        case "delta" | "fixedscaleoffset" | "quantize":
            return _dtype(stage, "astype", "dtype")
        case "astype":
            return _dtype(stage, "encode_dtype")
        case "bitround":
            return dtype
        case "shuffle":
            element: Any = stage.get("elementsize", 4)
            if type(element) is not int or not 0 < element <= 64:
                raise FormatError(f"expected elements of 1 to 64 bytes, got {element!r}")
            return dtype
        case unknown:
            raise FormatError(f"expected filters among {list(FILTERS)}, got {str(unknown)[:100]!r}")


def _sums(values: AnyArray, stage: Mapping[str, Any]) -> AnyArray:
    """Differences are summed up, in the dtype of the values."""
    dtype = _dtype(stage, "dtype")
    return np.cumsum(values, dtype=dtype) if dtype.kind != "b" else np.logical_xor.accumulate(values)


def _scaled(values: AnyArray, stage: Mapping[str, Any]) -> AnyArray:
    scale, offset = (float(stage.get(name, 0)) for name in ("scale", "offset"))
    with np.errstate(all="ignore"):
        return (values / scale + offset).astype(_dtype(stage, "dtype"))


def _unshuffled(values: AnyArray, stage: Mapping[str, Any]) -> AnyArray:
    """Bytes of the same place in each element are together; those behind the last whole element follow."""
    raw = np.ascontiguousarray(values).view(np.uint8)
    element: int = stage.get("elementsize", 4)
    whole = len(raw) // element * element
    return np.concatenate([raw[:whole].reshape(element, -1).T.reshape(-1), raw[whole:]])


_UNFILTER: Mapping[str, Callable[[AnyArray, Mapping[str, Any]], AnyArray]] = {
    "delta": _sums,
    "fixedscaleoffset": _scaled,
    "astype": lambda values, stage: values.astype(_dtype(stage, "decode_dtype")),
    "quantize": lambda values, stage: values.astype(_dtype(stage, "dtype")),
    "bitround": lambda values, _: values,
    "shuffle": _unshuffled,
}


def tiles(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """The chunks that make up an array: the number of each along every axis, and its place."""
    counts = [-(-n // size) for n, size in zip(shape, chunk, strict=True)]
    for index in product(*map(range, counts)):
        corners = zip(index, chunk, shape, strict=True)
        yield index, tuple(slice(i * size, min((i + 1) * size, n)) for i, size, n in corners)


def decoder_of(compressor: Mapping[str, Any]) -> Callable[[ByteArray, int], ByteArray]:
    """How streams of a codec are decoded: `decode(raw, size)` gives at most `size + 1` bytes."""
    try:
        return _DECODERS[compressor["id"]]
    except KeyError:
        known = ["blosc", *_DECODERS]
        raise FormatError(f"expected a compressor among {known}, got {str(compressor['id'])[:100]!r}") from None


def _standard(make: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Callable[[ByteArray, int], ByteArray]:
    def decode(raw: ByteArray, size: int) -> ByteArray:
        stream = make()
        try:
            decoded = np.frombuffer(stream.decompress(raw.tobytes(), size + 1), np.uint8)
        except errors as error:
            raise FormatError(f"expected a sound stream: {error}") from error
        if len(decoded) == size and not stream.eof:
            raise FormatError("expected the end of the stream, which has its checksum, got none")
        return decoded

    return decode


def _sized(name: str, stated_size: Callable[[bytes], int | None]) -> Callable[[ByteArray, int], ByteArray]:
    """Of the library; `told` is the size that a stream claims, which must be right before memory is taken for it."""

    def decode(raw: ByteArray, size: int) -> ByteArray:
        codec: Any = require(f"numcodecs.{name}", "zarr")
        claimed = stated_size(raw[:18].tobytes())
        if claimed != size:
            raise FormatError(f"expected a stream that holds {size} bytes, got one that says {claimed}")
        out = np.empty(size, np.uint8)
        try:
            codec.decompress(raw, out)
        except (RuntimeError, ValueError) as error:
            raise FormatError(f"expected a sound stream: {error}") from error
        return out

    return decode


def _lz4_size(head: bytes) -> int | None:
    return struct.unpack("<i", head[:4])[0] if len(head) >= 4 else None


def _zstd_size(head: bytes) -> int | None:
    """The decoded size in a frame's header (RFC 8878, 3.1.1.1); None where it has none."""
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None
    flags = head[4]
    width = (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]
    offset = 5 + (0 if flags & 0x20 else 1) + (0, 1, 2, 4)[flags & 3]
    if not width or len(head) < offset + width:
        return None
    return int.from_bytes(head[offset : offset + width], "little") + (256 if width == 2 else 0)


_DECODERS: dict[str, Callable[[ByteArray, int], ByteArray]] = {
    "zlib": _standard(zlib.decompressobj, (zlib.error,)),
    "gzip": _standard(lambda: zlib.decompressobj(31), (zlib.error,)),
    "bz2": _standard(bz2.BZ2Decompressor, (OSError, ValueError)),
    "lzma": _standard(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), (lzma.LZMAError,)),
    "lz4": _sized("lz4", _lz4_size),
    "zstd": _sized("zstd", _zstd_size),
}
