"""Writing episodes as a TFDS dataset with one shard of `tf.train.Example` messages, which TFDS reads.

Float32, bools and integers are lists of numbers. Other dtypes, and arrays of more than `_PLAIN` values, are the bytes
of a tensor, which keeps every bit. Images of uint8 are PNG or JPEG. Rows of varying length are tensors whose first size
varies. See `kernels/examples.py` for the wire format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.images import encode
from penstock.containers.tfrecord import index_records, map_records, record_of
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, DataError, FormatError, SpecError
from penstock.files import AppendLog, atomic_path, move, sync, write_atomic
from penstock.formats.base.writer import Writer, check_columns, check_open
from penstock.formats.rlds.features import (
    ENDS,
    FEATURES,
    INFO,
    METADATA,
    OTHERS,
    OWN,
    STEPS,
    VERSION,
    Images,
    OwnFile,
    RLDSFeature,
    feature_of_column,
    read_info,
    read_own,
    splits_of,
)

_FLAGS = ("is_first", "is_last", "is_terminal")
_NAME = re.compile(r"[A-Za-z]\w*")
_VERSION = "1.0.0"
_PLAIN = 64  # values of a row that are stored as a list of numbers
_SIDE = 8  # smaller arrays are no images
_CLASSES = "tensorflow_datasets.core.features."
_LISTS = {"f": 2, "b": 3, "i": 3, "u": 3}  # field of a Feature, by kind of dtype


class RLDSWriter(Writer):
    """Appends episodes to the shard of a dataset that penstock created. One writer at a time."""

    def __init__(self, path: Path) -> None:
        self._folder = path
        own, info = read_own(path), read_info(path)
        shards = [file for split in splits_of(path, info).values() for file in split.paths]
        if own is None or len(shards) != 1:
            raise FormatError(
                f"expected one shard next to {OWN}, as penstock creates it; convert the dataset", path=path
            )
        self._own = own
        self._name = str(info["name"])
        self._images: Images = own.images
        self._features = _stored_features(own.spec, own.images)
        self._log = AppendLog(shards[0], b"", "a shard of records")
        index = index_records(map_records(shards[0]))
        self._log.truncate(index.end)  # a killed writer may have left a part of a record
        self._count = len(index.begin)
        self._bytes = int(index.size.sum())
        self._closed = False
        _write_info(path, self._name, [])  # the number of records is in it only while no writer is open

    @classmethod
    def create(
        cls, path: Path, spec: Spec, metadata: Mapping[str, Any], *, name: str | None = None, images: Images = "png"
    ) -> RLDSWriter:
        """Create an empty dataset with a split `train`, and open it."""
        if images not in ("png", "jpeg", "raw"):
            raise ArgumentError(f"expected images 'png', 'jpeg' or 'raw', got {images!r}")
        if name is not None and not _NAME.fullmatch(name):
            raise ArgumentError(f"expected a name of letters, digits and _, which begins with a letter, got {name!r}")
        name = name or _name_of(path)
        if path.exists():
            raise FileExistsError(f"{path} exists already; delete it, or open it with append")
        rlds_features = _stored_features(spec, images)
        last = "observation" if "boundary" in spec.aligns else "step"
        own = OwnFile(
            spec, {feature.path: column for column, feature in rlds_features.items()}, last, dict(metadata), images
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, durable="folder") as new_folder:
            new_folder.mkdir()
            (new_folder / FEATURES).write_text(json.dumps(_tree(rlds_features, images), indent=2))
            (new_folder / OWN).write_text(json.dumps(own.to_json()))
            (new_folder / INFO).write_text(json.dumps({"name": name, "version": _VERSION, "fileFormat": "tfrecord"}))
            (new_folder / f"{name}-train.tfrecord-00000-of-00001").touch()
        return cls(path)

    @override
    def write(self, episode: Episode) -> int:
        check_open(not self._closed)
        check_columns(episode, self._own.spec)
        data = self._message(episode)
        self._log.append(record_of(data))
        self._count += 1
        self._bytes += len(data)
        return self._count - 1

    @override
    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        own = self._own
        self._own = OwnFile(own.spec, own.columns, own.last_step, {**own.metadata, **metadata}, own.images)
        write_atomic(self._folder / OWN, json.dumps(self._own.to_json()).encode())

    @override
    def close(self) -> None:
        if not self._closed:
            self._log.close()
            _write_info(self._folder, self._name, [_split_of([self._count], self._bytes)])
        self._closed = True

    def _message(self, episode: Episode) -> bytes:
        rows = len(episode) + (self._own.last_step == "observation")
        number = np.arange(rows)
        lists: dict[str, bytes] = {}
        flags: dict[str, Any] = {"is_first": number == 0, "is_last": number == rows - 1}
        flags["is_terminal"] = np.zeros(rows, np.bool_)
        for column, feature in self._features.items():
            values = episode.columns[column]
            if column in ENDS and not isinstance(values, Ragged):
                values = _shifted(values, rows)
            if feature.path == f"{STEPS}/is_terminal":
                flags["is_terminal"] = values
            else:
                values = _padded(values, rows) if feature.of_step else values
                lists[feature.path] = _list_of(feature, values, self._images)
        for name, values in flags.items():
            flag = RLDSFeature(f"{STEPS}/{name}", "number", np.dtype(np.bool_))
            lists[flag.path] = _list_of(flag, values, self._images)
        try:
            described = json.dumps(dict(episode.metadata))
        except (TypeError, ValueError) as error:
            raise DataError(f"expected metadata that JSON can hold, got {dict(episode.metadata)}: {error}") from error
        text = RLDSFeature(OTHERS, "text", np.dtype(np.uint8))
        lists[OTHERS] = _list_of(text, Ragged.from_strings([described]), self._images)
        return _message_of(lists)


def _name_of(path: Path) -> str:
    """Return the name of a dataset for TFDS: the folder's, or of the folder above it if this is a version."""
    above = path.parent.name if VERSION.fullmatch(path.name) else path.name
    return above if _NAME.fullmatch(above) else "dataset"


def _write_info(path: Path, name: str, splits: list[dict[str, Any]]) -> None:
    """Write `dataset_info.json`."""
    info = {"name": name, "version": _VERSION, "fileFormat": "tfrecord", "splits": splits}
    write_atomic(path / INFO, json.dumps(info).encode())


def _split_of(lengths: Sequence[int], nbytes: int) -> dict[str, Any]:
    """The entry of the split `train`, with the number of records of each shard."""
    return {
        **{"name": "train", "shardLengths": [str(length) for length in lengths], "numBytes": str(nbytes)},
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
    }


def join_datasets(parts: Sequence[Path], out: Path, place: Path) -> None:
    """Move the shards of datasets into one dataset, where they are numbered. A second call continues after a kill."""
    out.mkdir(parents=True, exist_ok=True)
    described = [read_info(part) for part in parts]
    own = str(described[0]["name"])
    name = _name_of(place) if own == _name_of(parts[0]) else own
    for file in (FEATURES, OWN):
        write_atomic(out / file, (parts[0] / file).read_bytes())
    for number, part in enumerate(parts):
        shard = part / f"{own}-train.tfrecord-00000-of-00001"
        if shard.exists():  # an earlier call did not move it
            move(shard, out / f"{name}-train.tfrecord-{number:05d}-of-{len(parts):05d}")
    splits = [info["splits"][0] for info in described]
    lengths = [int(length) for split in splits for length in split["shardLengths"]]
    _write_info(out, name, [_split_of(lengths, sum(int(split["numBytes"]) for split in splits))])
    sync(out)


def _stored_features(spec: Spec, images: Images) -> dict[str, RLDSFeature]:
    features: dict[str, RLDSFeature] = {}
    for column, field in spec.items():
        path = column if field.align == "episode" else f"{STEPS}/{feature_of_column(column)}"
        if column == "truncations":  # is_last cannot say whether an episode that ends early was truncated
            path = f"{STEPS}/truncation"
        if column in ENDS and (field.dtype != np.bool_ or field.shape or field.align != "step"):
            raise SpecError(f"expected {column} as one bool for each step, got {field}")
        features[column] = _feature_of(path, field, images)
    for column, feature in features.items():
        flags = {f"{STEPS}/{name}" for name in _FLAGS if column != "terminations"}
        others = {OTHERS, *flags, *(each.path for name, each in features.items() if name != column)}
        lost = spec[column].align == "episode" and column.split("/", maxsplit=1)[0] in (STEPS, METADATA)
        if lost or any(f"{feature.path}/".startswith(f"{path}/") for path in others):
            raise SpecError(f"expected columns with features of their own, got {column} as {feature.path}")
    return features


def _tree(features: Mapping[str, RLDSFeature], images: Images) -> dict[str, Any]:
    """Return the content of `features.json`."""
    nested: dict[str, Any] = {STEPS: {}, METADATA: {}}
    flags = [RLDSFeature(f"{STEPS}/{name}", "number", np.dtype(np.bool_)) for name in _FLAGS]
    text = RLDSFeature(OTHERS, "text", np.dtype(np.uint8))
    for feature in {each.path: each for each in (*flags, text, *features.values())}.values():
        *groups, leaf = feature.path.split("/")
        node = nested
        for group in groups:
            node = node.setdefault(group, {})
        node[leaf] = feature

    def built(node: Any) -> dict[str, Any]:
        if isinstance(node, RLDSFeature):
            return _tree_of(node, images)
        return _group_of({name: built(child) for name, child in node.items()})

    children = {name: built(child) for name, child in nested.items() if name != STEPS}
    return _group_of({**children, STEPS: _steps_of({n: built(c) for n, c in nested[STEPS].items()})})


def _feature_of(path: str, field: Field, images: Images) -> RLDSFeature:
    dtype = field.dtype.newbyteorder("=")
    if dtype.kind not in _LISTS:
        raise SpecError(f"expected columns of numbers or text, got {path} as {field}")
    if field.kind == "text":
        return RLDSFeature(path, "text", dtype)
    if field.ragged:
        return RLDSFeature(path, "bytes", dtype, (None, *field.shape))
    if images != "raw" and dtype == np.uint8 and _is_image(field.shape, images):
        return RLDSFeature(path, "image", dtype, field.shape)
    plain = dtype == np.float32 or dtype.kind in "biu"
    kind = "number" if plain and 0 < math.prod(field.shape) <= _PLAIN else "bytes"
    return RLDSFeature(path, kind, dtype, field.shape)


def _is_image(shape: tuple[int, ...], images: Images) -> bool:
    channels = (1, 3) if images == "jpeg" else (1, 3, 4)
    return len(shape) == 3 and min(shape[:2]) >= _SIDE and shape[2] in channels


def _tree_of(feature: RLDSFeature, images: Images) -> dict[str, Any]:
    """Return the node of a feature in `features.json`."""
    shape = {"dimensions": ["-1" if size is None else str(size) for size in feature.shape]}
    if feature.kind == "text":
        return {"pythonClassName": f"{_CLASSES}text_feature.Text", "text": {}}
    if feature.kind == "image":
        content = {"shape": shape, "dtype": "uint8", "encodingFormat": images}
        return {"pythonClassName": f"{_CLASSES}image_feature.Image", "image": content}
    encoding = "none" if feature.kind == "number" else "bytes"
    content = {"shape": shape if feature.shape else {}, "dtype": feature.dtype.name, "encoding": encoding}
    return {"pythonClassName": f"{_CLASSES}tensor_feature.Tensor", "tensor": content}


def _group_of(children: Mapping[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": f"{_CLASSES}features_dict.FeaturesDict", "featuresDict": {"features": dict(children)}}


def _steps_of(children: Mapping[str, Any]) -> dict[str, Any]:
    inner = {"feature": _group_of(children), "length": "-1"}
    return {"pythonClassName": f"{_CLASSES}dataset_feature.Dataset", "sequence": inner}


def _message_of(lists: Mapping[str, bytes]) -> bytes:
    """Return the Example that has these Features by name."""
    entries = (_field(1, _field(1, key.encode()) + _field(2, feature)) for key, feature in lists.items())
    return _field(1, b"".join(entries))


def _list_of(feature: RLDSFeature, rows: Array, images: Images) -> bytes:
    if isinstance(rows, Ragged):
        size = rows.values.itemsize * math.prod(rows.values.shape[1:])
        data = np.ascontiguousarray(rows.values).tobytes()
        return _blobs(rows.offsets * size, data)
    values = np.ascontiguousarray(rows, feature.dtype)
    if feature.kind == "number":
        if values.dtype.kind == "f":
            return _field(2, _field(1, values.tobytes()) if values.size else b"")
        return _field(3, _field(1, _varints(values.reshape(-1).astype(np.int64))) if values.size else b"")
    if feature.kind == "image" and images != "raw":
        blobs = [encode(row, images) for row in values]
        return _blobs(offsets_of([len(blob) for blob in blobs]), b"".join(blobs))
    row = values.dtype.itemsize * math.prod(values.shape[1:])
    return _blobs(np.arange(len(values) + 1) * row, values.tobytes())


def _varints(values: IntArray) -> bytes:
    """Return numbers as varints of 1 to 10 bytes, end to end."""
    words = np.ascontiguousarray(values).view(np.uint64)
    sizes = np.ones(len(words), np.int64)
    for bits in range(7, 64, 7):
        sizes += words >> np.uint64(bits) != 0
    offsets = offsets_of(sizes)
    out = np.empty(int(offsets[-1]), np.uint8)
    for k in range(10):
        more = sizes > k
        group = (words[more] >> np.uint64(7 * k)) & np.uint64(127)
        out[offsets[:-1][more] + k] = group | ((sizes[more] > k + 1).astype(np.uint64) << np.uint64(7))
    return out.tobytes()


def _padded(rows: Array, count: int) -> Array:
    """Return rows with a last row of zeros, or none, to make `count`."""
    if len(rows) == count:
        return rows
    if isinstance(rows, Ragged):
        return Ragged(rows.values, np.append(rows.offsets, rows.offsets[-1:]))
    return np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]), rows.dtype)])


def _shifted(flags: AnyArray, count: int) -> AnyArray:
    """Return flags of actions as flags of the steps that they lead to, if these are one more."""
    return np.concatenate([np.zeros(count - len(flags), np.bool_), flags])


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _size(len(payload)) + payload


def _size(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def _blobs(offsets: IntArray, data: bytes) -> bytes:
    places: list[int] = offsets.tolist()
    return _field(1, b"".join(_field(1, data[a:b]) for a, b in pairwise(places)))
