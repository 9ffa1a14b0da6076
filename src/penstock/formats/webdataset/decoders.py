"""Decode the bytes of a member by its extension. Nothing is ever run."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.containers.images import decode as decode_image
from penstock.containers.npy import array_of
from penstock.containers.pickle import load, load_saved, loads
from penstock.core.arrays import AnyArray
from penstock.errors import DataError, FormatError, UnsafeDataError, require

_LONGEST = 1 << 14  # pixels of a side of an image that was resized or cropped
UNPACKED = 1 << 30  # bytes that one compressed member may become
IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "webp")
TEXTS = ("txt", "text", "transcript")
NUMBERS = ("cls", "cls2", "index", "inx", "id")
PICKLES = ("pickle", "pkl", "pyd")
TENSORS = ("pth", "pt")
MODES: Mapping[str, str] = {"rgb": "RGB", "gray": "L", "rgba": "RGBA"}


@dataclass(frozen=True, slots=True)
class MemberBytes:
    """The bytes of one member, and where they are from."""

    raw: bytes
    where: str
    path: object

    def error(self, message: str) -> FormatError:
        """A `FormatError` that names the place."""
        return FormatError(message, path=self.path, where=self.where)


Decode = Callable[[MemberBytes], Any]
Trust = Literal["pickle", False]


@dataclass(frozen=True)
class How:
    """How members are decoded."""

    images: str | None = None
    trust: Trust = False
    resize: int | tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    ragged: bool = False

    def __post_init__(self) -> None:
        sizes = [self.crop, (self.resize, self.resize) if isinstance(self.resize, int) else self.resize]
        for size in (size for size in sizes if size is not None):
            if len(size) != 2 or not all(type(n) is int and 0 < n <= _LONGEST for n in size):
                raise DataError(f"expected sizes of images as two numbers from 1 to {_LONGEST}, got {size}")
        if self.images is None and (self.resize is not None or self.crop is not None or self.ragged):
            raise DataError("expected images='rgb', 'gray' or 'rgba' with resize, crop or ragged, got None")
        if self.images is not None and self.images not in MODES:
            raise DataError(f"expected images to be one of {list(MODES)} or None, got {self.images!r}")
        if self.trust not in ("pickle", False):
            raise DataError(f"expected trust to be False or 'pickle', got {self.trust!r}")


def kind_of(extension: str) -> str:
    """The last part of an extension, which says what it is."""
    *before, last = extension.split(".")
    return f"{before[-1]}.gz" if last == "gz" and before else last


def decoder(extension: str, how: How) -> Decode | None:
    """The function that makes a value of a member's bytes; None for text, and for images without `how`."""
    kind = kind_of(extension)
    if kind.endswith(".gz"):
        inner = _decoder(kind[:-3], how)
        return lambda member: _unpacked(member) if inner is None else inner(_unpacked(member, MemberBytes))
    return _decoder(kind, how)


def is_pickle(extension: str) -> bool:
    """Whether the bytes are a pickle, perhaps a compressed one."""
    return kind_of(extension).removesuffix(".gz") in PICKLES


def is_text(extension: str) -> bool:
    """Whether the bytes are text."""
    return kind_of(extension) in TEXTS


def _decoder(kind: str, how: How) -> Decode | None:
    mode = how.images
    if kind in IMAGES and mode is not None:
        return lambda member: _sized(_image(member, MODES[mode]), how, member)
    if kind in PICKLES and how.trust == "pickle":
        return _trusted
    return _BY_KIND.get(kind)


def _unpacked(member: MemberBytes, wrap: Any = bytes) -> Any:
    try:
        raw = gzip.GzipFile(fileobj=io.BytesIO(member.raw)).read(UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise member.error(f"expected gzip, got {error}") from error
    if len(raw) > UNPACKED:
        message = f"expected at most {UNPACKED} bytes unpacked, got more"
        raise UnsafeDataError(message, path=member.path, where=member.where)
    return MemberBytes(raw, member.where, member.path) if wrap is MemberBytes else raw


def _json(member: MemberBytes) -> Any:
    try:
        return json.loads(member.raw)
    except (ValueError, RecursionError) as error:
        raise member.error(f"expected JSON, got {error}") from error


def _number(member: MemberBytes) -> int:
    text = member.raw.strip()
    if len(text) > 19 or not text.lstrip(b"+-").isdigit():
        raise member.error(f"expected an integer, got {text[:40]!r}")
    return int(text)


def _npy(member: MemberBytes) -> Any:
    return np.asarray(array_of(member.raw, path=member.path, where=member.where), order="C")


def _npz(member: MemberBytes) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    room = UNPACKED
    try:
        with zipfile.ZipFile(io.BytesIO(member.raw)) as archive:
            for entry in archive.infolist():
                if entry.file_size > room:
                    message = f"expected at most {UNPACKED} bytes unpacked, got more"
                    raise UnsafeDataError(message, path=member.path, where=member.where)
                room -= entry.file_size
                name = entry.filename.removesuffix(".npy")
                where = f"{entry.filename!r} of {member.where}"
                arrays[name] = np.asarray(array_of(archive.read(entry), path=member.path, where=where), order="C")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise member.error(f"expected an .npz file, got {error}") from error
    return arrays


def _pickle(member: MemberBytes) -> Any:
    return loads(member.raw, where=member.where, path=member.path)


def _trusted(member: MemberBytes) -> Any:
    """As data if it is data, and only otherwise as the program that the caller said to trust."""
    try:
        return _pickle(member)
    except UnsafeDataError:
        return load(member.raw, where=member.where, path=member.path, trust="pickle")


def _msgpack(member: MemberBytes) -> Any:
    msgpack: Any = require("msgpack", "msgpack")
    try:
        return msgpack.unpackb(member.raw, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise member.error(f"expected msgpack, got {error}") from error


def _cbor(member: MemberBytes) -> Any:
    cbor: Any = require("cbor2", "cbor")
    try:
        return cbor.loads(member.raw)
    except (cbor.CBORError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise member.error(f"expected CBOR, got {error}") from error


def _image(member: MemberBytes, mode: str) -> Any:
    try:
        return decode_image(member.raw, mode, most_pixels=UNPACKED // 4)
    except FormatError as error:
        error.locate(member.path, member.where)
        raise


def _sized(image: AnyArray, how: How, member: MemberBytes) -> AnyArray:
    """The image resized, and then cropped."""
    height, width = image.shape[:2]
    if how.resize is not None:
        if isinstance(how.resize, int):
            shorter = min(height, width)
            sides = (round(height * how.resize / shorter), round(width * how.resize / shorter))
        else:
            sides = how.resize
        pillow: Any = require("PIL.Image", "images")
        image = np.asarray(pillow.fromarray(image).resize(sides[::-1], pillow.Resampling.BILINEAR))
        height, width = sides
    if how.crop is None:
        return image
    if how.crop[0] > height or how.crop[1] > width:
        raise member.error(f"expected an image of at least {how.crop}, got {(height, width)}; give a resize, too")
    top, left = (height - how.crop[0]) // 2, (width - how.crop[1]) // 2
    return np.ascontiguousarray(image[top : top + how.crop[0], left : left + how.crop[1]])


def is_image(extension: str) -> bool:
    """Whether the bytes are an encoded image."""
    return kind_of(extension) in IMAGES


def _tensors(member: MemberBytes) -> Any:
    return load_saved(member.raw, where=member.where, path=member.path)


_BY_KIND: dict[str, Decode] = {
    "json": _json,
    "jsn": _json,
    "npy": _npy,
    "npz": _npz,
    "mp": _msgpack,
    "msg": _msgpack,
    "msgpack": _msgpack,
    "cbor": _cbor,
    **dict.fromkeys(NUMBERS, _number),
    **dict.fromkeys(PICKLES, _pickle),
    **dict.fromkeys(TENSORS, _tensors),
}
