"""From columns of penstock to features of LeRobot, their types in Parquet, and Arrow arrays."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.containers.arrow import arrow
from penstock.containers.images import encode
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, SpecError
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.info import CAMERAS, INDICES, Feature
from penstock.formats.lerobot.names import name_of

Cameras = Literal["image", "video", "array"]

TASK = "task"
NUMBERED = ("frame_index", "episode_index", "index", "task_index")  # columns that the writer computes
_EXTENSION = "datasets.features.features.Array{}DExtensionType"


@dataclass(frozen=True)
class StoredFeature:
    """How a column is stored."""

    feature: Feature
    field: Field

    @property
    def described(self) -> dict[str, Any]:
        """The entry under `features` of `meta/info.json`."""
        camera = self.feature.dtype in CAMERAS
        shape = list(self.field.shape or (1,))
        depth = self.feature.depth
        return {
            "dtype": self.feature.dtype,
            "shape": shape,
            "names": ["height", "width", "channels"] if camera else None,
            **({} if depth is None else {"info": depth.described(video=self.feature.dtype == "video")}),
        }

    @property
    def arrow_field(self) -> Any:
        """Name and type in data files. The type of more dimensions is the one of `datasets`."""
        pa = arrow()
        name, shape = self.feature.name, () if self.field.shape == (1,) else self.field.shape
        if self.feature.dtype == "image":
            return pa.field(name, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
        if self.feature.dtype == "string":
            return pa.field(name, pa.string())
        kind = pa.from_numpy_dtype(self.field.dtype)
        if len(shape) < 2:
            return pa.field(name, pa.list_(kind, shape[0]) if shape else kind)
        for _ in shape:
            kind = pa.list_(kind)
        described = json.dumps([list(shape), self.field.dtype.name])
        extension = {"ARROW:extension:name": _EXTENSION.format(len(shape)), "ARROW:extension:metadata": described}
        return pa.field(name, kind, metadata=extension)

    def encoded(self, column: Array) -> Any:
        """Return rows as an Arrow array. Raises `DataError` for text that is not UTF-8."""
        pa = arrow()
        kind = self.arrow_field.type
        if isinstance(column, Ragged):
            try:
                return pa.array(column.strings(), pa.string())
            except UnicodeDecodeError as error:
                raise DataError(f"expected text in UTF-8 in {self.feature.path}, got {error}") from error
        if self.feature.dtype == "image":
            encoding = "png" if self.feature.depth is None else "tiff"  # as LeRobot does
            blobs = pa.array([encode(frame, encoding) for frame in column], pa.binary())
            return pa.StructArray.from_arrays([blobs, pa.nulls(len(column), pa.string())], fields=list(kind))
        array = pa.array(np.ascontiguousarray(column).reshape(-1))
        shape = () if self.field.shape == (1,) else self.field.shape
        if len(shape) == 1:
            return pa.FixedSizeListArray.from_arrays(array, shape[0])
        for i in reversed(range(len(shape))):
            count = len(column) * math.prod(shape[:i])
            array = pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * shape[i], pa.int32()), array)
        return array


def stored_features(
    spec: Spec, cameras: Cameras, depths: Mapping[str, tuple[Depth, bool]] = {}
) -> dict[str, StoredFeature]:
    """Return how the columns of a dataset are stored, by path."""
    features: dict[str, StoredFeature] = {}
    for path, field in spec.items():
        if path == TASK and field.kind == "text" and field.align == "step":
            continue
        name = name_of(path)
        if path in NUMBERED:
            raise SpecError(f"expected columns without {path!r}, which the format computes; leave it out (--drop)")
        if field.align != "step" or field.kind == "ragged" or "/" in name:
            raise SpecError(
                f"expected {path} with T rows of numbers or text, got {field.kind} rows, align={field.align!r}; "
                "penstock.convert adapts columns"
            )
        if path in depths:
            depth, video = depths[path]
            feature = Feature(name, path, "video" if video else "image", field.shape, depth, field.dtype)
        else:
            feature = Feature(name, path, _dtype(path, field, cameras), field.shape)
        features[path] = StoredFeature(feature, field)
    names = [stored.feature.name for stored in features.values()]
    if len(set(names)) < len(names):
        raise SpecError(f"expected columns whose names differ in LeRobot, got {names}")
    return features


def index_features() -> dict[str, dict[str, Any]]:
    """Return the entries under `features` of the columns that every dataset has."""
    return {
        name: {"dtype": "float32" if name == "timestamp" else "int64", "shape": [1], "names": None} for name in INDICES
    }


def columns_entry(stored: Mapping[str, StoredFeature]) -> dict[str, dict[str, Any]]:
    """Return paths and shapes by name of the feature, for reading the columns back as they were."""
    return {each.feature.name: {"path": path, "shape": list(each.field.shape)} for path, each in stored.items()}


def _dtype(path: str, field: Field, cameras: Cameras) -> str:
    if field.kind == "text":
        return "string"
    if cameras != "array" and field.dtype == np.uint8 and len(field.shape) == 3 and field.shape[2] == 3:
        return cameras
    if field.dtype.kind not in "biuf" or field.dtype.itemsize > 8 or len(field.shape) > 5 or 0 in field.shape:
        raise SpecError(f"expected {path} as numbers of up to 64 bits in up to 5 axes, got {field}")
    return field.dtype.name
