"""Arrays of Zarr 3: one `zarr.json` for a group or an array, and a list of codecs.

Source: the specification of Zarr 3 (zarr-specs.readthedocs.io), and the names under which zarr-python stores codecs of
numcodecs (`numcodecs.delta`) and text of fixed length.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.containers.zarr.codecs import ChunkCodecs, ShardTable
from penstock.containers.zarr.metadata import (
    NODE,
    ArrayMetadata,
    check_codecs,
    check_sizes,
    dtype_of,
    fill_of,
    sizes_of,
)
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import DataError, FormatError, UnsupportedDtypeError

_NUMBERS = {
    "bool": "|b1",
    **{
        f"{sign}int{8 * size}": f"{'|' if size == 1 else '<'}{sign or 'i'}{size}"
        for sign in ("", "u")
        for size in (1, 2, 4, 8)
    },
    **{f"float{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    **{f"complex{8 * size}": f"<c{size}" for size in (8, 16)},
}
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_LIBRARY = "numcodecs."
_FILTERS = ("delta", "fixedscaleoffset", "astype", "quantize", "bitround")
_KNOWN = frozenset(
    (
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"),
        *("attributes", "dimension_names", "storage_transformers"),
    )
)


def array_of_version3(entries: Mapping[str, Any], path: object = None, where: str = NODE) -> ArrayMetadata:
    """Check what the `zarr.json` of an array says."""
    place: Any = {"path": path, "where": where}
    if entries.get("zarr_format") != 3 or entries.get("node_type") != "array":
        stated = f"{entries.get('node_type')!r} of zarr_format {entries.get('zarr_format')!r}"
        raise FormatError(f"expected an array of zarr_format 3, got {stated}", **place)
    for name in entries.keys() - _KNOWN:
        entry = entries[name]
        if not is_dict(entry) or entry.get("must_understand") is not False:
            raise FormatError(f"expected no other keys than {sorted(_KNOWN)}, got {name!r}", **place)
    if entries.get("storage_transformers"):
        raise FormatError("expected no storage transformers, got some", **place)
    shape = sizes_of(entries.get("shape"), "shape", 0, place)
    grid, grid_options = _named(entries.get("chunk_grid"), "chunk_grid", place)
    if grid != "regular":
        raise FormatError(f"expected a regular chunk grid, got {grid!r}", **place)
    chunks = sizes_of(grid_options.get("chunk_shape"), "chunk_shape", 1, place)
    dtype = _dtype(entries.get("data_type"), place)
    check_sizes(shape, chunks, dtype, place)
    codecs = _codecs(entries.get("codecs"), chunks, dtype, _fill(entries.get("fill_value"), dtype, place), place)
    check_codecs(codecs, shape, place)
    encoding, key_options = _named(entries.get("chunk_key_encoding"), "chunk_key_encoding", place)
    separator: Any = key_options.get("separator", "/" if encoding == "default" else ".")
    if encoding not in ("default", "v2") or separator not in (".", "/"):
        raise FormatError(f"expected keys of chunks in the encoding 'default' or 'v2', got {encoding!r}", **place)
    prefix = f"c{separator}" if encoding == "default" else ""
    return ArrayMetadata(shape, chunks, codecs.dtype, entries.get("fill_value"), codecs, entries, separator, prefix)


def described_in_version3(
    dtype: np.dtype[Any], shape: tuple[int, ...], chunks: tuple[int, ...], compressor: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The `zarr.json` of a new array."""
    codecs: list[dict[str, Any]] = [
        {"name": "bytes", "configuration": {"endian": "big" if _is_big(dtype) else "little"}}
    ]
    if compressor is not None:
        codecs.append(_codec_of(compressor, dtype))
    return {
        "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": codecs,
        "data_type": _data_type(dtype),
        "fill_value": _fill_described(dtype),
        "node_type": "array",
        "shape": list(shape),
        "storage_transformers": [],
        "zarr_format": 3,
    }


def _is_big(dtype: np.dtype[Any]) -> bool:
    return dtype.newbyteorder("<") != dtype and dtype.itemsize > 1


def _named(value: Any, what: str, place: Any) -> tuple[str, Mapping[str, Any]]:
    """Name and configuration of an extension point, which may be a name alone."""
    described: Any = {"name": value} if isinstance(value, str) else value
    options: Any = described.get("configuration") or {} if is_dict(described) else None
    if not is_dict(described) or not isinstance(described.get("name"), str) or not is_dict(options):
        raise FormatError(f"expected {what} as an object with a name, got {repr(value)[:200]}", **place)
    return described["name"], options


def _dtype(value: Any, place: Any) -> np.dtype[Any]:
    name, options = _named(value, "data_type", place)
    size: Any = options.get("length_bytes")
    if name in _NUMBERS:
        return np.dtype(_NUMBERS[name])
    if name == "fixed_length_utf32" and type(size) is int and size % 4 == 0:
        return dtype_of(f"<U{size // 4}", **place)
    if name == "null_terminated_bytes" and type(size) is int:
        return dtype_of(f"|S{size}", **place)
    if name[:1] == "r" and name[1:].isascii() and name[1:].isdigit() and len(name) < 9 and not int(name[1:]) % 8:
        return dtype_of(f"|V{int(name[1:]) // 8}", **place)
    message = f"expected a data_type of numbers, text or bytes of fixed length, got {name[:100]!r}"
    raise UnsupportedDtypeError(message, **place)


def _data_type(dtype: np.dtype[Any]) -> Any:
    plain = dtype.newbyteorder("<") if dtype.itemsize > 1 and dtype.kind != "S" else dtype
    for name, code in _NUMBERS.items():
        if np.dtype(code) == plain:
            return name
    if dtype.kind == "U":
        return {"name": "fixed_length_utf32", "configuration": {"length_bytes": dtype.itemsize}}
    if dtype.kind == "S":
        return {"name": "null_terminated_bytes", "configuration": {"length_bytes": dtype.itemsize}}
    raise DataError(f"expected a dtype that zarr 3 has a place for, got {dtype}")


def _fill(value: Any, dtype: np.dtype[Any], place: Any) -> bytes:
    """The bytes of one value. Floats may be given by their bits, as `0x7fc00000`; raw bits are a list of bytes."""
    if isinstance(value, str) and value.startswith("0x") and dtype.kind == "f" and len(value) == 2 + 2 * dtype.itemsize:
        try:
            return bytes.fromhex(value[2:])[::-1]
        except ValueError:
            pass  # it is refused below, in words
    if dtype.kind == "V" and is_list(value) and all(type(n) is int and 0 <= n < 256 for n in value):
        if len(value) != dtype.itemsize:
            raise FormatError(f"expected a fill value of {dtype.itemsize} bytes, got {len(value)}", **place)
        return bytes(value)
    if dtype.kind == "S" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True).ljust(dtype.itemsize, b"\0")[: dtype.itemsize]
        except binascii.Error as error:
            raise FormatError(f"expected a fill value of bytes in base64, got {value[:100]!r}", **place) from error
    if dtype.kind == "c" and is_list(value):
        value = [
            {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(n, n) if isinstance(n, str) else n
            for n in value
        ]
    return fill_of(value, dtype, **place)


def _fill_described(dtype: np.dtype[Any]) -> Any:
    return {"b": False, "U": "", "S": "", "f": 0.0, "c": [0.0, 0.0]}.get(dtype.kind, 0)


def _codecs(
    value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], fill: bytes, place: Any, depth: int = 2
) -> ChunkCodecs:
    """The codecs of chunks of `shape`; their dtype has the stored order of bytes."""
    if not is_list(value) or not 1 <= len(value) <= 16:
        raise FormatError(f"expected a list of codecs, got {repr(value)[:200]}", **place)
    filters: list[Mapping[str, Any]] = []
    packers: list[Mapping[str, Any]] = []
    axes: tuple[int, ...] | None = None
    shards: ShardTable | None = None
    serialized = False
    for name, options in (_named(entry, "a codec", place) for entry in value):
        plain = name.removeprefix(_LIBRARY)
        if serialized and plain not in ("bytes", "sharding_indexed", "transpose", *_FILTERS):
            packers.append(_packer(name, options, place))
        elif not serialized and name == "bytes":
            serialized = True
            if options.get("endian") == "big":
                fill = np.frombuffer(fill, dtype).astype(dtype.newbyteorder(">")).tobytes()
                dtype = dtype.newbyteorder(">")
        elif not serialized and name == "sharding_indexed":
            serialized = True
            shards = _shards(options, shape, dtype, fill, place, depth)
            dtype, fill = shards.inner.dtype, shards.inner.fill
        elif not serialized and name == "transpose" and axes is None:
            axes = _axes(options.get("order"), len(shape), place)
        elif not serialized and plain in _FILTERS and axes is None:
            filters.append({**options, "id": plain})
        else:
            raise FormatError(f"expected codecs that can be read, in their order, got {name[:100]!r} there", **place)
    if not serialized:
        raise FormatError("expected the codec 'bytes' or 'sharding_indexed', got none", **place)
    if shards is not None and (filters or axes or packers):
        raise FormatError("expected no other codecs around shards, got some", **place)
    return ChunkCodecs(shape, dtype, fill, tuple(filters), axes, tuple(packers), shards)


def _axes(value: Any, count: int, place: Any) -> tuple[int, ...]:
    axes = sizes_of(value, "the order of axes", 0, place)
    if sorted(axes) != list(range(count)):
        raise FormatError(f"expected an order of {count} axes, got {list(axes)}", **place)
    return axes


def _packer(name: str, options: Mapping[str, Any], place: Any) -> Mapping[str, Any]:
    """A codec from bytes to bytes, as version 2 configures it."""
    config: dict[str, Any] = {**options, "id": name.removeprefix(_LIBRARY)}
    if name == "blosc":
        config.pop("typesize", None)
        shuffle = config.get("shuffle", "noshuffle")
        if shuffle not in _SHUFFLES:
            raise FormatError(f"expected the shuffle of Blosc to be one of {list(_SHUFFLES)}, got {shuffle!r}", **place)
        config["shuffle"] = _SHUFFLES.index(shuffle)
    return config


def _codec_of(compressor: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    options = {name: value for name, value in compressor.items() if name != "id"}
    match compressor["id"]:
        case "blosc":
            shuffle: Any = options.get("shuffle", 1)
            if shuffle == -1:  # by the size of an element
                shuffle = 2 if dtype.itemsize == 1 else 1
            return {
                "name": "blosc",
                "configuration": {**options, "shuffle": _SHUFFLES[shuffle], "typesize": dtype.itemsize},
            }
        case "zstd":
            config = {"level": options.get("level", 0), "checksum": bool(options.get("checksum", False))}
            return {"name": "zstd", "configuration": config}
        case "gzip":
            return {"name": "gzip", "configuration": {"level": options.get("level", 1)}}
        case name:
            return {"name": f"{_LIBRARY}{name}", "configuration": options}


def _shards(
    options: Mapping[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any], fill: bytes, place: Any, depth: int
) -> ShardTable:
    inner = sizes_of(options.get("chunk_shape"), "chunk_shape", 1, place)
    if len(inner) != len(shape) or any(n % size for n, size in zip(shape, inner, strict=True)) or depth == 0:
        raise FormatError(f"expected chunks that divide a shard of {list(shape)}, got {list(inner)}", **place)
    counts = tuple(n // size for n, size in zip(shape, inner, strict=True))
    if math.prod(counts) > 1 << 20:
        raise FormatError(f"expected at most {1 << 20} chunks in a shard, got {math.prod(counts)}", **place)
    codecs = _codecs(options.get("codecs"), inner, dtype, fill, place, depth - 1)
    index: Sequence[Any] = options.get("index_codecs") or [{"name": "bytes"}]
    names = [_named(entry, "a codec of the index", place) for entry in index]
    if [name for name, _ in names] not in (["bytes"], ["bytes", "crc32c"]) or names[0][1].get("endian") == "big":
        raise FormatError(f"expected an index of little-endian bytes, perhaps with a crc32c, got {names}", **place)
    location: Any = options.get("index_location", "end")
    if location not in ("start", "end"):
        raise FormatError(f"expected index_location 'start' or 'end', got {location!r}", **place)
    return ShardTable(codecs, counts, len(names) == 2, location == "end")
