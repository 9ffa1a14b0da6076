"""Compressed archives: recognition by content, unpacking in a limit or ahead of a reader, first names, packing."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

from penstock.containers.tar.walk import Forward, TornError, after_end, entry
from penstock.errors import FormatError, RemoteError, UnsafeDataError, require
from penstock.files import atomic_file
from penstock.files.remote import open_file, read_in_order
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.flow.queue import QueueClosed

Compression = Literal["gzip", "zstd"] | None

WINDOW = 1 << 31  # the largest zstd window that is accepted, which is also its memory
PIECE = 1 << 20
FED = 1 << 16  # packed bytes in one step: the rest of them is copied at every read
_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ZSTD_LEVEL = 3
MEMBERS = 64
NBYTES = 1 << 22  # that are unpacked at most


def compression_of(head: bytes) -> Compression:
    """How a file is compressed that begins with `head`."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def opened(file: IO[bytes], path: object = None, limit: int | None = None) -> DecompressedStream:
    """The unpacked bytes of a file or pipe, read forward: gzip of any number of members, zstd of any number of frames,
    or the bytes themselves, by the first bytes of the file.

    Its `read` raises `FormatError` for damaged data, `TornError` where gzip is cut off, `UnsafeDataError` once there
    were more than `limit` bytes. Memory: 1 MiB and the window of the compression.
    """
    begun = _Begun(file)
    kind = compression_of(begun.head)
    if kind == "gzip":
        return DecompressedStream(_Gzip(begun), path, limit)
    if kind == "zstd":
        zstd: Any = require("zstandard", "zstd")
        reader = zstd.ZstdDecompressor(max_window_size=WINDOW).stream_reader(begun, read_across_frames=True)
        return DecompressedStream(reader, path, limit)
    return DecompressedStream(begun, path, limit)


class DecompressedStream:
    """Unpacked bytes with their errors in our words. `done` is how many were given."""

    def __init__(self, inner: Any, path: object, limit: int | None) -> None:
        self._inner = inner
        self._path = path
        self._limit = limit
        self.done = 0

    def read(self, n: int) -> bytes:
        try:
            part = self._inner.read(n)
        except RemoteError:
            raise
        except (OSError, EOFError, inflating().error) as error:
            raise self._damaged(error) from error
        except Exception as error:  # zstandard's own class, which cannot be named without the package
            if type(error).__name__ != "ZstdError":
                raise
            raise self._damaged(error) from error
        self.done += len(part)
        if self._limit is not None and self.done > self._limit:
            message = f"expected at most {self._limit} bytes unpacked, got more; raise cache_bytes if this is no bomb"
            raise UnsafeDataError(message, path=self._path)
        return part

    def _damaged(self, error: Exception) -> FormatError:
        kind = TornError if isinstance(error, EOFError) else FormatError
        return kind(f"damaged compression: {error}", path=self._path, where=f"unpacked byte {self.done}")


class _Begun:
    """A file whose first bytes were looked at; it need not be one that can go back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.head = b""
        while len(self.head) < 4 and (part := file.read(4 - len(self.head))):
            self.head += part
        self._left = self.head

    def read(self, n: int) -> bytes:
        if not self._left:
            return self._file.read(n)
        part, self._left = self._left[:n], self._left[n:]
        return part


@cache
def inflating() -> Any:
    """The module that inflates: zlib-ng's, two to four times as fast as zlib, or zlib where it was not built."""
    try:
        return importlib.import_module("zlib_ng.zlib_ng")
    except ImportError:
        return zlib


class _Gzip:
    """gzip members read in order, in larger pieces than Python's own reader takes."""

    def __init__(self, file: _Begun) -> None:
        self._file, self._left = file, b""
        self._module = inflating()
        self._inflate = self._module.decompressobj(31)  # 31: with gzip's header and checksum

    def read(self, n: int) -> bytes:
        while True:
            data = self._left or self._file.read(FED)
            if self._inflate.eof:
                data = data.lstrip(b"\0")  # padding between members
                if not data and not (data := self._file.read(FED)):
                    return b""
                if not data.startswith(b"\x1f"):
                    raise OSError(f"expected the end or another gzip member, got a tail that begins {data[:16]!r}")
                self._inflate, self._left = self._module.decompressobj(31), data
                continue
            if not data:
                raise EOFError("the file ends within a gzip member")
            out = self._inflate.decompress(data, n)
            self._left = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if out:
                return out


def unpack(source: Path, target: IO[bytes], limit: int, *, torn: Literal["refuse", "drop"] = "refuse") -> int:
    """Write the unpacked bytes of `source` to `target`; how many there were. `torn="drop"` takes the whole parts."""
    with read_in_order(source) as file:
        reader = opened(file, source, limit)
        with suppress(TornError) if torn == "drop" else nullcontext():
            while part := reader.read(PIECE):
                target.write(part)
    return reader.done


def check_packer(kind: Compression) -> None:
    """Raise `MissingExtraError` now rather than when an archive is full."""
    if kind == "zstd":
        require("zstandard", "zstd")


def pack(source: Path, target: Path, kind: Literal["gzip", "zstd"], level: int | None = None) -> None:
    """Compress `source` to `target`, which appears when complete, with its time, so a later change shows."""
    with open_file(source) as file, atomic_file(target, durable="file") as out:
        with compressor(out, kind, level) as packed:
            while part := file.read(PIECE):
                packed.write(part)
        out.flush()
        state = os.fstat(file.fileno())
        os.utime(out.fileno(), ns=(state.st_atime_ns, state.st_mtime_ns))


def pack_bytes(parts: Sequence[memoryview | bytes], kind: Literal["gzip", "zstd"]) -> bytes:
    """The parts, one behind the other, compressed as `pack` does. Memory: the result."""
    out = io.BytesIO()
    with compressor(out, kind) as packed:
        for part in parts:
            view = memoryview(part)
            for begin in range(0, len(view), PIECE):
                packed.write(view[begin : begin + PIECE])
    return out.getvalue()


def compressor(out: IO[bytes], kind: Literal["gzip", "zstd"], level: int | None = None) -> Any:
    """A file object that writes one gzip member or zstd frame to `out`, which stays open. Its block ends it."""
    if kind == "gzip":
        return gzip.GzipFile("", "wb", 6 if level is None else level, out, mtime=0)
    zstd: Any = require("zstandard", "zstd")
    packer = zstd.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level)
    return packer.stream_writer(out, closefd=False)


def glance(path: Path) -> Iterator[bytes]:
    """The names of the first members, compressed or not: at most `MEMBERS`, and of the first `NBYTES` bytes."""
    try:
        with open_file(path) as file:
            read, position = Forward(opened(file, path)).read, 0
            for _ in range(MEMBERS):
                if position > NBYTES:
                    break
                if (header := entry(read, position, path)) is None:
                    begin, _ = after_end(read, position, path)
                    if begin is None:
                        break
                    position = begin
                    continue
                member, position = header
                if member is not None:
                    yield member.name
    except OSError as error:
        raise FormatError(f"expected an archive, got {error}", path=path) from error


class Ahead:
    """File of the unpacked bytes of an archive, which a thread reads ahead."""

    def __init__(self, open: Callable[[], IO[bytes]], path: object, limit: int) -> None:
        # The reading itself is the source of the map: it has to go forward, so it is one thread's work.
        limits = PrefetchLimits(1, max(1, limit), limit)
        self._pieces = OrderedMap(_as_it_is, _pieces(open, path), limits, weigh=len, name=f"unpacking {path}")
        self._pieces.start()
        self._piece = memoryview(b"")  # rest of the piece that is being read

    def read(self, n: int) -> bytes:
        if not self._piece:
            try:
                self._piece = memoryview(self._pieces.get())
            except (StopIteration, QueueClosed):
                return b""
        piece, self._piece = self._piece[:n], self._piece[n:]
        return bytes(piece)

    def close(self) -> None:
        """Release what was unpacked, and end the thread."""
        self._piece = memoryview(b"")
        self._pieces.close()


def _pieces(open: Callable[[], IO[bytes]], path: object) -> Generator[bytes]:
    with open() as file:
        reader = opened(file, path)
        while piece := reader.read(PIECE):
            yield piece


def _as_it_is(piece: bytes) -> bytes:
    return piece
