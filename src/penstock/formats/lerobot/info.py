"""`meta/info.json`: version, frame rate, features, splits, and the names of files. Everything is checked when read.

LeRobot joins the words of a name with dots, penstock has paths with the field's names (docs/formats/lerobot.md). A name
whose path would be below the path of another column keeps its dots: next to `action`, the column `action.arm` is
`actions.arm`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.boundary import json_object
from penstock.core.columns import under
from penstock.core.narrowing import is_dict, is_list
from penstock.core.spaces import Space
from penstock.core.spec import Field
from penstock.errors import ArgumentError, FormatError, SpecError, UnsafeDataError, suggestion
from penstock.files.remote import open_file
from penstock.formats.lerobot.depth import DEPTH, Depth
from penstock.formats.lerobot.language import MESSAGE_FIELDS

EXACT: Mapping[str, str] = {
    "next.reward": "rewards",
    "next.done": "terminations",
    "next.truncated": "truncations",
}
FIRST: Mapping[str, str] = {"observation": "observations", "action": "actions"}
_EXACT_BACK = {path: name for name, path in EXACT.items()}
_FIRST_BACK = {path: name for name, path in FIRST.items()}


def path_of(name: str) -> str:
    if name in EXACT:
        return EXACT[name]
    head, *rest = name.split(".")
    return "/".join([FIRST.get(head, head), *rest])


def name_of(path: str) -> str:
    if path in _EXACT_BACK:
        return _EXACT_BACK[path]
    head, *rest = path.split("/")
    return ".".join([_FIRST_BACK.get(head, head), *rest])


def paths_of(names: Iterable[str]) -> dict[str, str]:
    """Return the path of each feature. No path is below another one, and none occurs twice."""
    wanted = {name: path_of(name) for name in names}
    paths: dict[str, str] = {}
    for name, path in wanted.items():
        others = [other for known, other in wanted.items() if known != name]
        nested = any(under(other, path) for other in others)
        paths[name] = path.replace("/", ".") if nested else path
    return paths


INFO = "meta/info.json"
STATS = "meta/stats.json"
FOLDER = ".penstock"  # files of a writer: saved episodes that are not in the files of the dataset yet, and its lock
LOCK = f"{FOLDER}/lock"
TASK = "task"  # column with the text of the task of each step
INTERNAL = "penstock"  # entry with what only penstock reads
# Entries that describe stored data, or that the reader makes.
STRUCTURE = frozenset(
    (
        *("codebase_version", "total_episodes", "total_frames", "total_tasks", "total_chunks", "total_videos"),
        *("chunks_size", "data_files_size_in_mb", "video_files_size_in_mb", "splits", "data_path", "video_path"),
        *("features", INTERNAL, "names", "statistics", "fps", "robot_type", DEPTH),
    )
)
VERSIONS = ("v2.0", "v2.1", "v3.0")
LIMIT = 64 << 20  # bytes of a JSON file
CAMERAS = ("image", "video")
LANGUAGE = "language"  # dtype of the columns of annotations
TOOLS = "tools"  # entry with the tools that annotations call
INDICES = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_NUMBERS = re.compile(r"float(16|32|64)|u?int(8|16|32|64)|bool")
_HOLE = re.compile(r"\{(\w+)(?::0(\d)d)?\}")
_CHANNELS = ("channel", "channels", "c")
UINT8 = np.dtype(np.uint8)
MOST_CELLS = 1 << 28  # values in a row of a feature


@dataclass(frozen=True)
class Feature:
    """One column of a dataset."""

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    depth: Depth | None = None
    pixels: np.dtype[Any] = UINT8

    @property
    def is_text(self) -> bool:
        """Whether rows are text, also JSON of annotations."""
        return self.dtype in ("string", LANGUAGE)

    @property
    def field(self) -> Field:
        """Field of the column, with decoded images."""
        if self.is_text:
            return Field(np.dtype(np.uint8), kind="text")
        return Field(self.pixels if self.dtype in CAMERAS else np.dtype(self.dtype), self.shape)


@dataclass(frozen=True, eq=False)
class Info:
    """Content of `meta/info.json`."""

    root: Path
    version: str
    fps: float
    features: Mapping[str, Feature]
    unknown: Mapping[str, str]
    entries: Mapping[str, Any]

    @property
    def shared_files(self) -> bool:
        """Whether a file has several episodes, as since version 3."""
        return self.version.startswith("v3")

    @property
    def chunks_size(self) -> int:
        """Most files of a folder `chunk-000`."""
        return max(_integer(self.entries, "chunks_size", 1000), 1)

    @property
    def internal(self) -> dict[str, Any]:
        """What only penstock reads."""
        return _internal(self.entries)

    def spaces(self) -> tuple[Space | None, Space | None]:
        """Return the spaces of observations and actions, which only penstock writes."""
        stored = self.internal.get("spaces")
        if not is_dict(stored):
            return None, None
        try:
            observations, actions = (
                None if (space := stored.get(f"{name}_space")) is None else Space.from_json(space)
                for name in ("observation", "action")
            )
        except SpecError as error:
            raise FormatError(
                f"expected spaces, got {error}", path=self.root / INFO, where=f"{INTERNAL}.spaces"
            ) from error
        return observations, actions

    def data_file(self, **values: int) -> Path:
        return self._file("data_path", values)

    def video_file(self, key: str, **values: int) -> Path:
        return self._file("video_path", {"video_key": key, **values})

    def _file(self, entry: str, values: Mapping[str, int | str]) -> Path:
        template = self.entries.get(entry)
        if not isinstance(template, str):
            raise FormatError(f"expected text under {entry!r}, got {template!r}", path=self.root / INFO)
        known: dict[str, int | str] = dict(values)
        if "episode_index" in values:
            known["episode_chunk"] = int(values["episode_index"]) // self.chunks_size

        def filled(hole: re.Match[str]) -> str:
            if hole[1] not in known:
                raise FormatError(f"expected names among {list(known)} in {entry!r}, got {hole[1]!r}", path=self.root)
            return str(known[hole[1]]).zfill(int(hole[2] or 0))

        return self._below(_HOLE.sub(filled, template), entry)

    def _below(self, name: str, entry: str) -> Path:
        """Return the path of a file by its name; many episodes share a file, and paths are slow to make."""
        if (path := self._paths.get(name)) is None:
            path = Path(name)
            if ".." in path.parts or path.is_absolute() or "{" in name:
                message = f"expected a file in the folder under {entry!r}, got {name!r}"
                raise UnsafeDataError(message, path=self.root / INFO)
            path = self._paths[name] = self.root / path
        return path

    @cached_property
    def _paths(self) -> dict[str, Path]:
        return {}

    def split(self, name: str) -> tuple[int, int]:
        """Return the first episode of a split, and the one after its last."""
        splits = self.entries.get("splits")
        splits = splits if is_dict(splits) else {}
        if name not in splits:
            raise ArgumentError(f"no split {name!r}{suggestion(name, splits)}; there are {list(splits)}")
        match = re.fullmatch(r"(\d+):(\d+)", str(splits[name]))
        if match is None:
            raise FormatError(
                f"expected a range such as '0:10' for the split {name!r}, got {splits[name]!r}", path=self.root / INFO
            )
        return int(match[1]), int(match[2])


def read_json(path: Path) -> dict[str, Any]:
    with open_file(path) as file:
        raw = file.read(LIMIT + 1)
    if len(raw) > LIMIT:
        raise FormatError(f"expected at most {LIMIT} bytes, got more", path=path)
    return json_object(raw, path)


def has_info(root: Path) -> bool:
    """Return whether a folder has a `meta/info.json` with the version of a LeRobot dataset."""
    path = root / INFO
    if not path.is_file():
        return False
    entries = read_json(path)
    return "codebase_version" in entries and is_dict(entries.get("features"))


def read_info(root: Path) -> Info:
    """Read `meta/info.json`."""
    path = root / INFO
    entries = read_json(path)
    version = entries.get("codebase_version")
    if version not in VERSIONS:
        raise FormatError(f"expected a codebase_version among {VERSIONS}, got {version!r}", path=path)
    fps = entries.get("fps")
    if not isinstance(fps, (int, float)) or isinstance(fps, bool) or not (fps > 0 and math.isfinite(fps)):
        raise FormatError(f"expected a number of frames a second under 'fps', got {fps!r}", path=path)
    stored = entries.get("features")
    if not is_dict(stored):
        raise FormatError("expected an object under 'features'", path=path)
    paths = paths_of([str(name) for name in stored])
    features: dict[str, Feature] = {}
    unknown: dict[str, str] = {}
    for name, described in stored.items():
        try:
            features[str(name)] = _feature(str(name), paths[str(name)], described)
        except ValueError as error:
            unknown[str(name)] = str(error)
    return Info(root, version, float(fps), _as_written(features, entries, path), unknown, entries)


def _as_written(features: dict[str, Feature], entries: Mapping[str, Any], path: Path) -> dict[str, Feature]:
    """Return features with the paths and shapes of the columns that penstock wrote."""
    columns = _internal(entries).get("columns")
    if not is_dict(columns):
        return features
    written = dict(features)
    for name in features.keys() & columns.keys():
        described, feature = columns[name], features[name]
        place, shape = (described.get(key) for key in ("path", "shape")) if is_dict(described) else (None, None)
        if not isinstance(place, str) or not place or not is_list(shape):
            raise FormatError(f"expected path and shape of {name!r}, got {described!r}", path=path, where=INTERNAL)
        sizes = feature.shape if tuple(shape) not in ((), (1,)) or feature.shape else tuple(shape)
        written[name] = replace(feature, path=place, shape=sizes)
    if len({feature.path for feature in written.values()}) < len(written):
        raise FormatError("expected columns with different paths", path=path, where=INTERNAL)
    return written


def _feature(name: str, path: str, described: Any) -> Feature:
    if not is_dict(described):
        raise ValueError(f"expected an object, got {described!r}")
    dtype, shape = described.get("dtype"), described.get("shape")
    if not is_list(shape) or not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) > MOST_CELLS:
        raise ValueError(f"expected a list of sizes as shape, got {shape!r}")
    sizes = tuple(int(n) for n in shape)
    if dtype in CAMERAS:
        if len(sizes) != 3:
            raise ValueError(f"expected three sizes of a camera, got {sizes}")
        shape, depth = _channels_last(sizes, described.get("names")), Depth.of(described)
        if depth is None:
            return Feature(name, path, dtype, shape)
        return Feature(name, path, dtype, (*shape[:2], 1), depth, depth.dtype)
    if dtype == "string" or (dtype == LANGUAGE and name in MESSAGE_FIELDS):
        return Feature(name, path, dtype, ())
    if not isinstance(dtype, str) or not _NUMBERS.fullmatch(dtype):
        raise ValueError(f"expected the dtype of numbers, text, images or video, got {dtype!r}")
    return Feature(name, path, dtype, () if sizes == (1,) else sizes)


def _channels_last(shape: tuple[int, ...], names: Any) -> tuple[int, ...]:
    """Return `(height, width, channels)`, by the names of the axes or by their sizes."""
    order = [str(n).lower() for n in names] if is_list(names) and len(names) == 3 else []
    first = order[0] in _CHANNELS if any(n in _CHANNELS for n in order) else shape[0] <= 4 < shape[2]
    return (*shape[1:], shape[0]) if first else shape


def _internal(entries: Mapping[str, Any]) -> dict[str, Any]:
    own = entries.get(INTERNAL)
    return own if is_dict(own) else {}


def _integer(entries: Mapping[str, Any], name: str, default: int) -> int:
    value = entries.get(name, default)
    return value if type(value) is int else default
