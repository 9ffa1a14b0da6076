"""Create LeRobot datasets of version 3.0: options, types of columns in Parquet, and metadata without episodes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.containers.arrow import arrow, stored_leaves
from penstock.containers.images import encode
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_dict, is_list, is_mapping, is_scalar
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, DataError, SpecError, require
from penstock.files import atomic_file, atomic_path, open_locked, write_atomic
from penstock.formats.base.writer import NUMBERED
from penstock.formats.lerobot.depth import DEPTH, Depth, Unit
from penstock.formats.lerobot.info import (
    CAMERAS,
    FOLDER,
    INDICES,
    INFO,
    INTERNAL,
    LANGUAGE,
    LOCK,
    STRUCTURE,
    TASK,
    TOOLS,
    Feature,
    name_of,
    read_info,
)
from penstock.formats.lerobot.language import MESSAGE_FIELDS, messages_array, messages_type

Cameras = Literal["image", "video", "array"]

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
        if self.feature.is_text:
            return pa.field(name, messages_type(name) if self.feature.dtype == LANGUAGE else pa.string())
        kind = pa.from_numpy_dtype(self.field.dtype)
        if len(shape) < 2:
            return pa.field(name, pa.list_(kind, shape[0]) if shape else kind)
        for _ in shape:
            kind = pa.list_(kind)
        described = json.dumps([list(shape), self.field.dtype.name])
        extension = {"ARROW:extension:name": _EXTENSION.format(len(shape)), "ARROW:extension:metadata": described}
        return pa.field(name, kind, metadata=extension)

    def encoded(self, column: Array) -> Any:
        """Return rows as an Arrow array."""
        pa = arrow()
        kind = self.arrow_field.type
        if isinstance(column, Ragged):
            try:
                texts = column.strings()
            except UnicodeDecodeError as error:
                raise DataError(f"expected text in UTF-8 in {self.feature.path}, got {error}") from error
            language = self.feature.dtype == LANGUAGE
            return messages_array(texts, self.feature.name) if language else pa.array(texts, pa.string())
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
        return LANGUAGE if path in MESSAGE_FIELDS else "string"
    if cameras != "array" and field.dtype == np.uint8 and len(field.shape) == 3 and field.shape[2] == 3:
        return cameras
    if field.dtype.kind not in "biuf" or field.dtype.itemsize > 8 or len(field.shape) > 5 or 0 in field.shape:
        raise SpecError(f"expected {path} as numbers of up to 64 bits in up to 5 axes, got {field}")
    return field.dtype.name


DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
CHUNKS_SIZE = 1000  # this and the next two as in LeRobot
DATA_MB = 100
VIDEO_MB = 200
ENCODER = ("codec", "crf", "g", "pix_fmt", "codec_options")  # options of the encoder of video
DATA_LIMIT, VIDEO_LIMIT = "data_files_size_in_mb", "video_files_size_in_mb"


@dataclass(frozen=True, eq=False)
class WriteOptions:
    """Options of a new dataset."""

    fps: float | None = None
    robot_type: str | None = None
    cameras: Cameras = "image"
    depth: Mapping[str, str | Mapping[str, Any]] | None = None
    codec: str = "libsvtav1"
    crf: float | None = None
    g: int = 2
    pix_fmt: str | None = None
    codec_options: Mapping[str, str] | None = None
    data_files_size_in_mb: int = DATA_MB
    video_files_size_in_mb: int = VIDEO_MB
    chunks_size: int = CHUNKS_SIZE

    def __post_init__(self) -> None:
        if self.cameras not in ("image", "video", "array"):
            raise ArgumentError(f"expected cameras 'image', 'video' or 'array', got {self.cameras!r}")
        unchanged = (self.codec, self.crf, self.g, self.pix_fmt, self.codec_options) == (
            "libsvtav1",
            None,
            2,
            None,
            None,
        )
        if self.cameras != "video" and not unchanged:
            raise ArgumentError(
                f"expected {', '.join(ENCODER)} with cameras='video' alone, got cameras={self.cameras!r}"
            )
        if min(self.data_files_size_in_mb, self.video_files_size_in_mb, self.chunks_size) < 1:
            raise ArgumentError("expected data_files_size_in_mb, video_files_size_in_mb and chunks_size of at least 1")


def create_empty(path: Path, spec: Spec, metadata: Mapping[str, Any], options: WriteOptions) -> None:
    stored = stored_features(spec, options.cameras, _depths(spec, metadata, options))
    fps = metadata.get("fps") if options.fps is None else options.fps
    if not isinstance(fps, (int, float)) or not fps > 0:
        raise DataError(
            f"expected how many steps a second has, which LeRobot needs, got {fps!r}; say it as options={{'fps': 10}} "
            "(--option fps=10), or in the metadata of the source"
        )
    robot = metadata.get("robot_type") if options.robot_type is None else options.robot_type
    features = {each.feature.name: each.described for each in stored.values()}
    videos = any(each.feature.dtype == "video" for each in stored.values())
    internal = {
        "columns": columns_entry(stored),
        "metadata": own_metadata(metadata),
        "task": TASK in spec,
        **_encoding(options),
        "spaces": {name: value for name, value in spec.to_json().items() if name != "fields" and value is not None},
    }
    options = replace(options, fps=float(fps), robot_type=robot)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        _write_empty(temporary, features, options, internal, videos=videos, **lerobot_metadata(metadata))


def lerobot_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the metadata of a dataset that have a place in LeRobot: the tools of annotations."""
    tools = metadata.get(TOOLS)
    return {TOOLS: tools} if is_list(tools) and all(is_dict(tool) for tool in tools) else {}


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other entries, which only penstock reads."""
    elsewhere = STRUCTURE | lerobot_metadata(metadata).keys()
    return {name: value for name, value in metadata.items() if name not in elsewhere}


def create_features(
    path: Path, features: Mapping[str, Mapping[str, Any]], options: WriteOptions, *, videos: bool
) -> None:
    """Create an empty dataset with features as LeRobot describes them. `features_spec` has its columns."""
    if options.fps is None or not options.fps > 0:
        raise ArgumentError(f"expected fps above 0, got {options.fps!r}")
    if wrong := [name for name in features if "/" in name or name in index_features() or name == TASK]:
        raise SpecError(f"expected names without '/' that the format does not compute, got {wrong}")
    if not videos and any(each.get("dtype") == "video" for each in features.values()):
        raise SpecError("expected features without video, because use_videos is False")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        _write_empty(temporary, features, options, _encoding(options), videos=videos)
        info = read_info(temporary)
        wrong = [f"{name}: {why}" for name, why in info.unknown.items()]
        wrong += [
            f"{name}: expected 3 channels, or is_depth_map in its info, got {feature.shape[2]} channels"
            for name, feature in info.features.items()
            if feature.dtype in CAMERAS and feature.shape[2] != 3 and feature.depth is None
        ]
        wrong += [f"{name}: expected up to 5 axes" for name, each in info.features.items() if len(each.shape) > 5]
        if wrong:
            raise SpecError(f"expected features that can be stored, got {wrong}")


def features_spec(features: Mapping[str, Feature]) -> Spec:
    """Return the columns of episodes to write: the features that are not computed, and the text of the task."""
    fields = {feature.path: feature.field for name, feature in features.items() if name not in index_features()}
    return Spec({**fields, TASK: Field(np.dtype(np.uint8), kind="text")})


def _depths(spec: Spec, metadata: Mapping[str, Any], options: WriteOptions) -> dict[str, tuple[Depth, bool]]:
    """Return the unit and codes of each depth map, and whether it is stored in video."""
    entries = metadata.get(DEPTH) if options.depth is None else options.depth
    if options.depth is not None and options.cameras == "array":
        raise ArgumentError("expected depth with cameras 'image' or 'video', got cameras='array'")
    depths: dict[str, tuple[Depth, bool]] = {}
    for path, entry in entries.items() if is_mapping(entries) and options.cameras != "array" else ():
        described = {"unit": entry} if isinstance(entry, str) else entry
        try:
            depth = Depth.from_json(described)
        except (AttributeError, TypeError, ValueError) as error:
            raise ArgumentError(f"expected unit and codes of the depth map {path}, got {entry!r}") from error
        field = spec.get(path)
        dtypes = (
            [depth.dtype] if depth.unit or "depth_min" in described else [np.dtype(np.uint16), np.dtype(np.float32)]
        )
        if field is not None and field.dtype in dtypes and len(field.shape) == 3 and field.shape[2] == 1:
            depths[str(path)] = depth, options.cameras == "video" and "depth_min" in described
        elif options.depth is not None:
            raise SpecError(f"expected a column {path} of {dtypes[0]} [height, width, 1] for depth, got {field}")
    return depths


def _encoding(options: WriteOptions) -> dict[str, Any]:
    """Return how video is encoded, also when episodes are appended."""
    return {name: value for name in ENCODER if (value := getattr(options, name)) is not None}


def _write_empty(
    root: Path,
    features: Mapping[str, Mapping[str, Any]],
    options: WriteOptions,
    internal: Mapping[str, Any],
    *,
    videos: bool,
    **more: Any,
) -> None:
    """Write the metadata of a dataset without episodes."""
    fps = 0.0 if options.fps is None else options.fps
    info = {
        "codebase_version": "v3.0",
        "robot_type": options.robot_type,
        "total_episodes": 0,
        "total_frames": 0,
        "total_tasks": 0,
        "chunks_size": options.chunks_size,
        "data_files_size_in_mb": options.data_files_size_in_mb,
        "video_files_size_in_mb": options.video_files_size_in_mb,
        "fps": int(fps) if fps == int(fps) else fps,
        "splits": {},
        "data_path": DATA,
        "video_path": VIDEO if videos else None,
        "features": {**features, **index_features()},
        **more,
        INTERNAL: internal,
    }
    for folder in ("meta/episodes/chunk-000", "data/chunk-000", FOLDER):
        (root / folder).mkdir(parents=True)
    write_atomic(root / INFO, json_bytes(info))
    write_tasks(root, [])


TASKS = "meta/tasks.parquet"


def write_tasks(root: Path, tasks: Sequence[str]) -> None:
    """Write the tasks as a table whose index is the text, as pandas stores it."""
    pa = arrow()
    text = "__index_level_0__"
    described = [
        {
            "name": "task_index",
            "field_name": "task_index",
            "pandas_type": "int64",
            "numpy_type": "int64",
            "metadata": None,
        },
        {"name": None, "field_name": text, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ]
    schema = pa.schema(
        [("task_index", pa.int64()), (text, pa.string())],
        metadata={"pandas": json_bytes({"index_columns": [text], "column_indexes": [], "columns": described})},
    )
    columns = [pa.array(range(len(tasks)), pa.int64()), pa.array(list(tasks), pa.string())]
    write_tables(root / TASKS, schema, [pa.Table.from_arrays(columns, schema=schema)])


def write_tables(path: Path, schema: Any, tables: Iterable[Any]) -> None:
    """Write a Parquet file with a row group for each table, which appears when it is complete."""
    with (
        atomic_file(path, durable="file") as file,
        require("pyarrow.parquet", "arrow").ParquetWriter(file, schema, **stored_leaves(schema)) as writer,
    ):
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata), row_group_size=max(len(table), 1))


def tables_with(file: Any, columns: Mapping[str, AnyArray]) -> Iterator[Any]:
    """Yield the row groups of a Parquet file with other values in some columns."""
    pa = arrow()
    begin = 0
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, use_threads=False)
        for name, column in columns.items():
            place = table.schema.get_field_index(name)
            values = pa.array(column[begin : begin + len(table)]).cast(table.schema.field(place).type)
            table = table.set_column(place, table.schema.field(place), values)
        begin += len(table)
        yield table


def json_bytes(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, indent=4, default=_number).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"expected metadata that JSON can hold, got {error}") from error


def _number(value: object) -> Any:
    """Return numbers and arrays of NumPy as JSON has them."""
    if is_scalar(value) or is_array(value):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")


def change_sizes(root: Path, sizes: Mapping[str, int]) -> None:
    """Change the sizes of files and folders for episodes that are saved from now on."""
    if wrong := {name: size for name, size in sizes.items() if size < 1}:
        raise ArgumentError(f"expected sizes of at least 1, got {wrong}")
    change_entries(root, sizes)


def change_entries(root: Path, changed: Mapping[str, Any]) -> None:
    """Change entries of `meta/info.json`; None removes one."""
    with _locked_info(root) as entries:
        entries.update(changed)
        for name in [name for name in changed if changed[name] is None]:
            del entries[name]


def note_depth_units(root: Path, units: Mapping[str, Unit]) -> None:
    """Note the units of depth maps, before the first episode is saved."""
    with _locked_info(root) as entries:
        for name, unit in units.items():
            feature = entries["features"][name]
            entries["features"][name] = {**feature, "info": {**feature["info"], "depth_unit": unit}}


@contextmanager
def _locked_info(root: Path) -> Generator[dict[str, Any]]:
    """The content of `meta/info.json`, which the block changes, while no writer is open."""
    (root / FOLDER).mkdir(exist_ok=True)
    lock = open_locked(root / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        entries = dict(read_info(root).entries)
        yield entries
        write_atomic(root / INFO, json_bytes(entries), durable="folder")
    finally:
        os.close(lock)
