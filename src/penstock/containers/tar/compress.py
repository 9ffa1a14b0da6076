"""Compressed archives: what they are told by, and how they are unpacked within a limit."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from pathlib import Path
from typing import IO, Any, Literal, cast

from penstock.containers.tar import header as tar
from penstock.errors import FormatError, UnsafeDataError, require

Compression = Literal["gzip", "zstd"] | None

WINDOW = 1 << 31  # the largest zstd window that is accepted, which is also its memory
PIECE = 1 << 20
_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ZSTD_LEVEL = 3


def compression_of(head: bytes) -> Compression:
    """How a file is compressed that begins with `head`.

    >>> compression_of(gzip.compress(b"")), compression_of(b"frame_000")
    ('gzip', None)
    """
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def is_archive(path: Path) -> bool:
    """Whether a file begins as an archive does, compressed or not; never raises.

    A zstd file is believed by its name where the library is not there. Cost: one small read.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(tar.BLOCK)
            if (kind := compression_of(head)) is not None:
                file.seek(0)
                head = opened(file, kind).read(tar.BLOCK)
        return head == tar.ZERO or bool(tar.parse(head, path, 0))
    except ImportError:
        return path.name.endswith((".tar.zst", ".tzst"))
    except (OSError, EOFError, ValueError, IndexError, zlib.error):
        return False
    except Exception as error:  # zstandard's own class, which is not there to be named without the library
        if type(error).__name__ == "ZstdError":
            return False
        raise


def opened(file: IO[bytes], kind: Compression) -> IO[bytes]:
    """A stream of the unpacked bytes: gzip of any number of members, zstd of any number of frames.

    Raises `MissingExtraError` where zstd has no library.
    """
    if kind == "gzip":
        return cast("IO[bytes]", _Gzip(file))
    if kind == "zstd":
        zstd: Any = require("zstandard", "zstd")
        return zstd.ZstdDecompressor(max_window_size=WINDOW).stream_reader(file, read_across_frames=True)
    return file


class _Gzip:
    """gzip members read one after the other; twice as fast as Python's own reader, for it takes larger pieces."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, b""
        self._inflate = zlib.decompressobj(31)  # 31: with gzip's header and checksum

    def read(self, n: int) -> bytes:
        """At most `n` bytes, fewer than one only at the end. Raises `zlib.error`, `EOFError`."""
        while True:
            data = self._left or self._file.read(PIECE)
            if self._inflate.eof:
                data = data.lstrip(b"\0")  # padding between members
                if not data and not (data := self._file.read(PIECE)):
                    return b""
                self._inflate, self._left = zlib.decompressobj(31), data
                continue
            if not data:
                raise EOFError("the file ends within a gzip member")
            out = self._inflate.decompress(data, n)
            self._left = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if out:
                return out


def unpack(source: Path, target: IO[bytes], limit: int) -> int:
    """Write the unpacked bytes of `source` to `target`; how many there were.

    Raises `FormatError` for damaged data, `UnsafeDataError` for more than `limit` bytes. Memory: 1 MiB and the window.
    """
    done = 0
    with open(source, "rb") as file:
        kind = compression_of(file.read(4))
        file.seek(0)
        reader = opened(file, kind)
        while part := _piece(reader, source, done):
            done += len(part)
            if done > limit:
                message = f"expected at most {limit} bytes unpacked, got more; raise cache_bytes if this is no bomb"
                raise UnsafeDataError(message, path=source)
            target.write(part)
    return done


def pack(source: Path, target: Path, kind: Literal["gzip", "zstd"], level: int | None = None) -> None:
    """Compress `source` to `target`, which appears complete or not at all: the same bytes for the same bytes."""
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(source, "rb") as file, open(fd, "wb") as out:
            with _compressor(out, kind, level) as packed:
                while part := file.read(PIECE):
                    packed.write(part)
            out.flush()
            os.fchmod(fd, 0o644)
            os.fsync(fd)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _compressor(out: IO[bytes], kind: Literal["gzip", "zstd"], level: int | None) -> Any:
    if kind == "gzip":
        return gzip.GzipFile("", "wb", 6 if level is None else level, out, mtime=0)
    zstd: Any = require("zstandard", "zstd")
    packer = zstd.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level)
    return packer.stream_writer(out, closefd=False)


def _piece(reader: IO[bytes], path: Path, done: int) -> bytes:
    try:
        return reader.read(PIECE)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"damaged compression: {error}", path=path, where=f"unpacked byte {done}") from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise FormatError(f"damaged compression: {error}", path=path, where=f"unpacked byte {done}") from error
