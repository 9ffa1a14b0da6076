"""Write episodes as `tf.train.Example` messages, and describe their features as TFDS does.

Float32, bools and integers are lists of numbers. Other dtypes, and arrays of more than `PLAIN` values, are the bytes of
a tensor, which keeps every bit. Images of uint8 are PNG or JPEG. Rows of varying length are tensors whose first size
varies. See `kernels/examples.py` for the wire format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.containers.images import encode
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.spec import Field
from penstock.errors import SpecError
from penstock.formats.rlds.features import RLDSFeature
from penstock.formats.rlds.names import Images

PLAIN = 64  # values of a row that are stored as a list of numbers
SIDE = 8  # smaller arrays are no images
_CLASSES = "tensorflow_datasets.core.features."
_LISTS = {"f": 2, "b": 3, "i": 3, "u": 3}  # field of a Feature, by kind of dtype


def feature_of(path: str, field: Field, images: Images) -> RLDSFeature:
    """Return the feature in which a column is stored. Raises `SpecError` for a dtype that TFDS does not have."""
    dtype = field.dtype.newbyteorder("=")
    if dtype.kind not in _LISTS:
        raise SpecError(f"expected columns of numbers or text, got {path} as {field}")
    if field.kind == "text":
        return RLDSFeature(path, "text", dtype)
    if field.ragged:
        return RLDSFeature(path, "bytes", dtype, (None, *field.shape))
    if images != "raw" and dtype == np.uint8 and is_image(field.shape, images):
        return RLDSFeature(path, "image", dtype, field.shape)
    plain = dtype == np.float32 or dtype.kind in "biu"
    kind = "number" if plain and 0 < math.prod(field.shape) <= PLAIN else "bytes"
    return RLDSFeature(path, kind, dtype, field.shape)


def is_image(shape: tuple[int, ...], images: Images) -> bool:
    """Return whether arrays of a shape are stored as images."""
    channels = (1, 3) if images == "jpeg" else (1, 3, 4)
    return len(shape) == 3 and min(shape[:2]) >= SIDE and shape[2] in channels


def tree_of(feature: RLDSFeature, images: Images) -> dict[str, Any]:
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


def group_of(children: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node of a dict of features."""
    return {"pythonClassName": f"{_CLASSES}features_dict.FeaturesDict", "featuresDict": {"features": dict(children)}}


def steps_of(children: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node of the steps."""
    inner = {"feature": group_of(children), "length": "-1"}
    return {"pythonClassName": f"{_CLASSES}dataset_feature.Dataset", "sequence": inner}


def message_of(lists: Mapping[str, bytes]) -> bytes:
    """Return the Example that has these Features by name."""
    entries = (_field(1, _field(1, key.encode()) + _field(2, feature)) for key, feature in lists.items())
    return _field(1, b"".join(entries))


def list_of(feature: RLDSFeature, rows: Array, images: Images) -> bytes:
    """Return the Feature with the values of rows. Raises `DataError` for images that cannot be encoded."""
    if isinstance(rows, Ragged):
        size = rows.values.itemsize * math.prod(rows.values.shape[1:])
        data = np.ascontiguousarray(rows.values).tobytes()
        return _blobs(rows.offsets * size, data)
    values = np.ascontiguousarray(rows, feature.dtype)
    if feature.kind == "number":
        if values.dtype.kind == "f":
            return _field(2, _field(1, values.tobytes()) if values.size else b"")
        return _field(3, _field(1, varints(values.reshape(-1).astype(np.int64))) if values.size else b"")
    if feature.kind == "image" and images != "raw":
        blobs = [encode(row, images) for row in values]
        return _blobs(offsets_of([len(blob) for blob in blobs]), b"".join(blobs))
    row = values.dtype.itemsize * math.prod(values.shape[1:])
    return _blobs(np.arange(len(values) + 1) * row, values.tobytes())


def varints(values: IntArray) -> bytes:
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


def padded(rows: Array, count: int) -> Array:
    """Return rows with a last row of zeros, or none, so that there are `count`."""
    if len(rows) == count:
        return rows
    if isinstance(rows, Ragged):
        return Ragged(rows.values, np.append(rows.offsets, rows.offsets[-1:]))
    return np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]), rows.dtype)])


def shifted(flags: AnyArray, count: int) -> AnyArray:
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
