"""Writing il-representations' layout: a sample a step, every value a pickle, which the original code reads."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.pickle import ColorSpace
from penstock.containers.tar import TarAppender, member
from penstock.containers.tar.header import BLOCK
from penstock.containers.tar.writer import Heads, Piece, appendable, replace_archive
from penstock.core.arrays import BoolArray, IntArray
from penstock.core.columns import nest, under
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.space_json import compact
from penstock.core.spaces import Box, Discrete, Space
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, SpecError
from penstock.files.mapping import map_file
from penstock.formats.base.infos import TRUNCATED
from penstock.formats.base.metadata import plain_metadata
from penstock.formats.base.writer import PartStart
from penstock.formats.webdataset import seed
from penstock.formats.webdataset.content import META
from penstock.formats.webdataset.shards import shards_of
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.writer import ShardWriter, cut_description, start

START, STOP = b"\x80\x04", b"."
DEPTH = 64
_NONE = b"N"
_TRUE = b"\x88"
_FALSE = b"\x89"


def dumps(value: Any) -> bytes:
    """The pickle of a value of dicts, lists, tuples, text, bytes, numbers, arrays, spaces and colour spaces."""
    return START + _value(value, DEPTH) + STOP


@lru_cache(1024)
def around(dtype: str, shape: tuple[int, ...], scalar: bool) -> tuple[bytes, bytes]:
    """The bytes before and after the values of an array, or of a NumPy number, in a pickle of nothing else."""
    before, after = _around(dtype, shape, scalar)
    return START + before, after + STOP


def _around(dtype: str, shape: tuple[int, ...], scalar: bool) -> tuple[bytes, bytes]:
    size = np.dtype(dtype).itemsize * math.prod(shape)
    if scalar:
        return _global("numpy.core.multiarray", "scalar") + _dtype(dtype) + _length(size), b"\x86R"
    prefix = _global("numpy.core.multiarray", "_reconstruct") + _global("numpy", "ndarray") + b"K\0\x85C\1b\x87R"
    state = b"(K\1" + _value(shape, DEPTH) + _dtype(dtype) + _FALSE
    return prefix + state + _length(size), b"tb"


def _value(value: Any, depth: int) -> bytes:
    if depth == 0:
        raise DataError(f"expected values nested less than {DEPTH} deep")
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    for kind, write in _LEAVES:
        if isinstance(value, kind):
            return write(value)
    for kind, write in _NESTED:
        if isinstance(value, kind):
            return write(value, depth - 1)
    raise DataError(f"expected plain values, arrays and spaces, got {type(value).__name__}")


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes((value,))
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(raw) > 255:
        raise DataError(f"expected integers of at most 255 bytes, got {len(raw)}")
    return b"\x8a" + bytes((len(raw),)) + raw


def _text(value: str) -> bytes:
    raw = value.encode()
    short = len(raw) < 256
    return (b"\x8c" + bytes((len(raw),)) if short else b"X" + len(raw).to_bytes(4, "little")) + raw


def _length(size: int) -> bytes:
    if size < 256:
        return b"C" + bytes((size,))
    return b"B" + size.to_bytes(4, "little") if size < 1 << 32 else b"\x8e" + size.to_bytes(8, "little")


def _mapping(value: Mapping[Any, Any], depth: int) -> bytes:
    inner = b"".join(_value(k, depth) + _value(v, depth) for k, v in value.items())
    return b"}(" + inner + b"u" if value else b"}"


def _list(value: list[Any], depth: int) -> bytes:
    return b"](" + b"".join(_value(v, depth) for v in value) + b"e" if value else b"]"


def _tuple(value: tuple[Any, ...], depth: int) -> bytes:
    inner = b"".join(_value(v, depth) for v in value)
    if len(value) > 3:
        return b"(" + inner + b"t"
    return inner + (b")", b"\x85", b"\x86", b"\x87")[len(value)]


def _numpy(value: Any) -> bytes:
    if value.dtype.kind not in "biufc":
        raise DataError(f"expected arrays of numbers, got {value.dtype}")
    before, after = _around(value.dtype.str, value.shape, isinstance(value, np.generic))
    return before + value.tobytes() + after


def _space(value: Space) -> bytes:
    """A space as il-representations stores it: a call of its function with the class and its arguments."""
    code = _global("il_representations.envs.utils", "_inflate_object")
    if isinstance(value, Box):
        arguments = {"low": value.low, "high": value.high, "shape": value.shape}
        inner = b"".join(_value(k, DEPTH) + _value(v, DEPTH) for k, v in arguments.items())
        inner = b"}(" + inner + _text("dtype") + _dtype(value.dtype.str) + b"u"
        return code + _global("gym.spaces.box", "Box") + inner + b"\x86R"
    if isinstance(value, Discrete):
        sized = {"n": value.n} if value.start == 0 else {"n": value.n, "start": value.start}
        return code + _global("gym.spaces.discrete", "Discrete") + _mapping(sized, DEPTH) + b"\x86R"
    raise DataError(f"expected a Box or Discrete space, which this layout can hold, got {value}")


def _enum(value: Enum) -> bytes:
    return _global("imitation.augment.color", "ColorSpace") + _text(str(value.value)) + b"\x85R"


def _dtype(dtype: str) -> bytes:
    code = _global("numpy", "dtype") + _text(dtype[1:]) + _FALSE + _TRUE + b"\x87R"
    minus = b"J\xff\xff\xff\xff"
    return code + b"(K\3" + _text(dtype[0]) + _NONE * 3 + minus * 2 + b"K\0tb"


def _global(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + b"\x93"


def _float(value: float) -> bytes:
    return b"G" + struct.pack(">d", value)


def _bytes(value: bytes) -> bytes:
    return _length(len(value)) + value


_LEAVES: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (np.ndarray | np.generic, _numpy),
    (Enum, _enum),
    (int, _integer),
    (float, _float),
    (str, _text),
    (bytes, _bytes),
    (Space, _space),
)
_NESTED: tuple[tuple[Any, Callable[[Any, int], bytes]], ...] = ((Mapping, _mapping), (list, _list), (tuple, _tuple))


HEAD = f"{META}.{seed.META_EXTENSION}"
_PADDING = bytes(BLOCK)
_DERIVED = ("dones", "frame", "terminations", "truncations", "next_observations")

Rows = Callable[[int], Sequence[Piece]]  # step to the pieces of a pickle


class SeedWriter(ShardWriter):
    """`_metadata.meta.pickle` first, then `frame_000000000.<field>.pickle` of every step."""

    layout: ClassVar[str] = seed.NAME
    _spec: Spec
    _metadata: dict[str, Any]

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> SeedWriter:
        check_spec(spec)
        start(Path(path), _head(spec, plain_metadata(metadata or {})), options.get("compression"))
        return cls(path, **options)

    def _continue(self, source: ShardSource) -> None:
        self._spec, self._frames = source.spec, len(source.samples)
        self._metadata = {k: v for k, v in source.metadata.items() if k != "discontinuous_steps"}
        check_spec(self._spec)

    @property
    @override
    def spec(self) -> Spec:
        return self._spec

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries, in every archive, because each has all. Cost: the archives are written again."""
        merged = self._metadata | plain_metadata(metadata)
        head, shards = _head(self._spec, merged), shards_of(self.path)
        if packed := [shard.name for shard in shards if shard.suffix != ".tar"]:
            raise DataError(f"expected archives that are not compressed, got {packed[0]}; change metadata before")
        if several := [shard.name for shard in shards if len(appendable(map_file(shard), shard).archives) > 1]:
            message = f"expected one archive in each file, got several in {several[0]}"
            raise DataError(f"{message}; change metadata after `penstock reshard`")
        if self._archive is not None:
            self._archive.close()
        for shard in shards:
            _rewrite(shard, head)
        self._archive = TarAppender(shards[-1])
        self._metadata = merged

    def _head(self) -> bytes:
        return _head(self._spec, self._metadata)

    def _begins(self, source: ShardSource) -> IntArray:
        return source.offsets[:-1]

    @override
    def begin_at(self, start: PartStart) -> None:
        super().begin_at(start)
        self._frames = start.step

    def _written(self, episode: Episode) -> None:
        self._frames += len(episode)

    def _members(self, episode: Episode, number: int) -> Iterator[Piece]:
        check_ends(episode)
        fields = [(Heads(_key(0), f".{name}.pickle").head, rows) for name, rows in _fields(episode, self._frames)]
        for t in range(len(episode)):
            key = _key(self._frames + t)
            for head, rows in fields:
                payload = rows(t)
                size = sum(map(len, payload))
                yield head(key, size)
                yield from payload
                yield _PADDING[: -size % BLOCK]


def _rewrite(path: Path, head: bytes) -> None:
    """Put another description in front of the members of an archive."""
    replace_archive(path, [head, cut_description(path)[1]])


def _key(frame: int) -> str:
    return f"frame_{frame:09d}"


def check_spec(spec: Spec) -> None:
    """Raise `SpecError` for columns that the layout has no place for."""
    wrong = [path for path, field in spec.items() if not _fits(path, field)]
    required = ("observations", "actions")
    missing = [name for name in required if not any(under(name, path) for path in spec)]
    if not ({"terminations", "truncations"} <= set(spec) or "dones" in spec):
        missing.append("terminations and truncations")
    if wrong or missing:
        raise SpecError(
            f"expected columns that the layout 'seed' has a place for: observations of T + 1 rows, actions, "
            "terminations, truncations, others of T rows, and infos of arrays with a row an episode; "
            f"missing {missing}, without a place {wrong}"
        )


def check_ends(episode: Episode) -> None:
    """Raise `DataError` if the last step of an episode, and no other, is not the one that is done."""
    dones = _dones(episode)
    if len(dones) == 0 or not dones[-1] or dones[:-1].any():
        raise DataError(
            "expected the last step of an episode, and no other, to be terminated or truncated, for this layout cuts "
            f"episodes there; got {np.flatnonzero(dones).tolist()[:5]} of {len(dones)} steps"
        )


def _dones(episode: Episode) -> BoolArray:
    names = [name for name in ("terminations", "truncations") if name in episode.spec] or ["dones"]
    return np.logical_or.reduce([np.asarray(episode.columns[name]).astype(np.bool_) for name in names])


def _own(name: str, value: Any) -> bool:
    """Whether an entry of an episode's metadata has its own place in the last infos."""
    return name.startswith("infos/") and isinstance(value, bool | int | float | str)


def _fits(path: str, field: Field) -> bool:
    numbers = field.kind == "array" and field.dtype.kind in "biufc"
    if under("observations", path):
        return numbers and field.align == "boundary"
    if under("infos", path) and field.align == "episode":
        return numbers and field.shape != ()  # a number in the last infos is metadata of its episode
    return field.align == "step" and (numbers or (under("infos", path) and field.kind == "text"))


def _head(spec: Spec, metadata: Mapping[str, Any]) -> bytes:
    color = metadata.get("color_space")
    if color not in (None, "RGB", "GRAY"):
        raise DataError(f"expected color_space to be 'RGB' or 'GRAY', got {color!r}")
    spaces = {"action_space": spec.action_space, "observation_space": spec.observation_space}
    known = {name: space for name, space in spaces.items() if isinstance(space, Box | Discrete)}
    metadata_of_task: dict[str, Any] = {"env_cfg": {}, **known, **metadata}
    if color is not None:
        metadata_of_task["color_space"] = ColorSpace(color)
    others = {name: space for name, space in spaces.items() if space is not None and name not in known}
    fields = {path: field.to_json() for path, field in spec.items()}
    bounds = {name: compact(space, arrays=True) for name, space in others.items()}
    metadata_of_task[seed.SPEC] = {"fields": fields, **bounds}
    return member(HEAD, dumps(metadata_of_task))


def _fields(episode: Episode, frames: int) -> Iterator[tuple[str, Rows]]:
    """Name and pickle by step of every member of a sample, in the order of the names."""
    spec = episode.spec
    entries: dict[str, Rows] = {"frame": lambda t: (dumps(frames + t),)}
    entries |= {"obs": _named(episode, "observations", 0), "next_obs": _next(episode)}
    entries |= {"acts": _named(episode, "actions", 0), "infos": _infos(episode)}
    dtype = spec["dones"].dtype if "dones" in spec else np.dtype(np.bool_)
    entries["dones"] = _rows(_dones(episode).astype(dtype))
    if any(under("rewards", path) for path in spec):
        entries["rews"] = _named(episode, "rewards", 0)
    others = {path.split("/")[0] for path in spec} - set(seed.NAMES.values()) - set(_DERIVED)
    entries |= {name: _named(episode, name, 0) for name in others}
    yield from sorted(entries.items())


def _next(episode: Episode) -> Rows:
    """As they were stored, where they are not the next observations."""
    if any(under("next_observations", path) for path in episode.spec):
        return _named(episode, "next_observations", 0)
    return _named(episode, "observations", 1)


def _named(episode: Episode, name: str, late: int) -> Rows:
    """The pickles of the column `name`, or of a dict of those below it, `late` rows later."""
    inside = {path[len(name) + 1 :]: a for path, a in episode.columns.items() if under(name, path)}
    if "" in inside:
        return _rows(np.asarray(inside[""])[late:])
    return lambda t: (dumps(nest({path: _at(array, t + late) for path, array in inside.items()})),)


def _rows(array: Any) -> Rows:
    """The bytes of a row stay where they are until they are written."""
    before, after = around(array.dtype.str, array.shape[1:], array.ndim == 1)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    width = array.dtype.itemsize * math.prod(array.shape[1:])
    return lambda t: (before, data[t * width : (t + 1) * width], after)


def _at(array: Any, t: int) -> Any:
    return array[t].tobytes().decode() if isinstance(array, Ragged) else array[t]


def _infos(episode: Episode) -> Rows:
    """A dict of every step; the last one also has the metadata of the episode."""
    spec = episode.spec
    inside = {path[len("infos/") :]: a for path, a in episode.columns.items() if under("infos", path)}
    late = {path: inside.pop(path)[0] for path in list(inside) if spec[f"infos/{path}"].align == "episode"}
    last, empty = late | _last(episode), dumps({})

    def rows(t: int) -> Sequence[Piece]:
        ends = t == len(episode) - 1
        if not inside and not ends:
            return (empty,)
        values = {path: _at(array, t) for path, array in inside.items()}
        return (dumps(nest(values | last) if ends else nest(values)),)

    return rows


def _last(episode: Episode) -> dict[str, Any]:
    """Paths and values that only the last infos have."""
    metadata = plain_metadata(episode.metadata)
    infos = {k.removeprefix("infos/"): v for k, v in metadata.items() if _own(k, v)}
    if rest := {k: v for k, v in metadata.items() if not _own(k, v)}:
        infos[seed.EXTRA] = json.dumps(rest)
    if "truncations" in episode.spec:
        infos[TRUNCATED] = bool(np.asarray(episode.columns["truncations"])[-1])
    return infos
