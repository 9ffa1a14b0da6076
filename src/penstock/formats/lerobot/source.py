"""Reading a LeRobot dataset.

Opening reads the metadata, the footer of each data file, and since version 3 the column `episode_index`, because
several episodes share a file. Episodes that cannot be read are left out, and the account of the source names them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import ParquetFile
from penstock.containers.images import read_header
from penstock.containers.video.files import DecoderName
from penstock.core.boundary import is_of_data, parsing
from penstock.core.cache import Cache
from penstock.core.narrowing import is_dict
from penstock.core.ragged import offsets_of
from penstock.core.spaces import Space
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, FormatError, suggestion
from penstock.files.remote import FileState, file_state, remote_file
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.pieces import BlockRows
from penstock.formats.base.state import ArrayReader, RaggedReader, SourceState, StateSource
from penstock.formats.lerobot.columns import (
    BYTES,
    INDEX,
    TEXT,
    DataFiles,
    ImageColumn,
    StoredColumn,
    TaskColumn,
    encoded_images,
    rows_of,
)
from penstock.formats.lerobot.damage import Losses, add_unused_files, cameras, with_frames, with_videos
from penstock.formats.lerobot.depth import DEPTH
from penstock.formats.lerobot.episodes import EpisodeEntry, read_entries, read_statistics, read_tasks
from penstock.formats.lerobot.info import (
    CAMERAS,
    INDICES,
    INFO,
    INTERNAL,
    STATS,
    TASK,
    Feature,
    Info,
    read_info,
    read_json,
)
from penstock.formats.lerobot.joining import read_pending
from penstock.formats.lerobot.video import FrameOptions, VideoColumn

Decode = Literal["rgb8", "bytes"]

FEW_VIDEOS = 256  # of episodes, whose files are looked into when a dataset is opened
FOOTER_BYTES = 64 << 20  # footers of Parquet files that stay in memory
_SECONDS = Field(np.dtype(np.float64))
_MADE_BY_PANDAS = "__index_level_"  # start of the names of columns that number rows


@dataclass(frozen=True, eq=False, kw_only=True)
class LeRobotState(SourceState):
    """State of an opened dataset. `left_out` has the `episode_index` of each episode that is left out."""

    info: Info
    data: DataFiles
    episodes: tuple[EpisodeEntry, ...]
    tasks: Mapping[int, str]
    left_out: frozenset[int]

    @property
    def is_whole(self) -> bool:
        """Whether everything that has to do with episodes could be read."""
        return not any(each.level == "error" and each.thing in ("episode", "file") for each in self.account.left_out)


class LeRobotSource(StateSource[LeRobotState]):
    """A LeRobot dataset of version 2.0, 2.1 or 3.0."""

    def __init__(
        self,
        path: Path,
        *,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        decode: Decode = "rgb8",
        tolerance_s: float = 1e-4,
        cache_bytes: int = 256 << 20,
        size: tuple[int, int] | None = None,
        decoder: DecoderName = "pyav",
        device: str = "cpu",
        frame_cache_bytes: int = 0,
        check_videos: bool | None = None,
    ) -> None:
        if decode not in ("rgb8", "bytes"):
            raise ArgumentError(f"expected decode 'rgb8' or 'bytes', got {decode!r}")
        self._path = Path(path).absolute()
        self._options: dict[str, Any] = {
            "split": split,
            "columns": columns,
            "decode": decode,
            "tolerance_s": tolerance_s,
            "cache_bytes": cache_bytes,
            "size": size,
            "decoder": decoder,
            "device": device,
            "frame_cache_bytes": frame_cache_bytes,
            "check_videos": check_videos,
        }
        info = read_info(self._path)
        losses = Losses(self._path)
        entries = read_entries(info, losses.left_out)
        if info.shared_files:
            pending = read_pending(info, {entry.index for entry in entries}, losses.left_out)
            entries += [episode.entry for episode in pending]
        add_unused_files(info, entries, losses)
        known = _indices_by_file(entries)
        if split is not None:
            first, last = info.split(split)
            entries = [entry for entry in entries if first <= entry.index < last]
        read = cameras(info, columns)
        entries = with_videos(entries, read, losses)
        if check_videos is None:
            check_videos = sum(len(entry.videos) for entry in entries) <= FEW_VIDEOS and not _is_remote(self._path)
        self.checks_videos = check_videos
        if check_videos:
            entries = with_frames(info, entries, read, losses, tolerance_s)
        data, kept = open_files(info, entries, known, losses, Cache(cache_bytes))
        if losses.episodes and not kept:
            raise FormatError(
                f"expected episodes that can be read, got {len(losses.episodes)} damaged ones: "
                f"{losses.left_out[-1].where}: {losses.left_out[-1].message}",
                path=self._path,
            )
        tasks = read_tasks(info)
        info = with_image_types(info, data)
        names = _names(info, data, columns, losses, has_tasks=tasks is not None)
        read = [name for name in names if name in info.features and info.features[name].dtype == "video"]
        if not (read and decode == "rgb8") and (size, decoder, device, frame_cache_bytes) != (None, "pyav", "cpu", 0):
            raise ArgumentError(
                "expected size, decoder, device and frame_cache_bytes for video that is decoded, got a dataset "
                "without, or decode='bytes'; leave them out"
            )
        frames = FrameOptions(tolerance_s, size, decoder, device, frame_cache_bytes // max(len(read), 1))
        as_written = columns is None and decode == "rgb8" and size is None
        spaces = info.spaces() if as_written else (None, None)
        self._state = _state(info, data, kept, tasks or {}, losses, names, decode, frames, spaces)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LeRobotSource, self._path, **self._options), ()

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        entries = [self.state.episodes[e] for e in episodes]
        return [{**entry.extra, "episode_index": entry.index, "tasks": list(entry.tasks)} for entry in entries]

    @property
    def written_spec(self) -> Spec:
        """Columns that episodes to append have: without those that the format computes."""
        state = self.state
        own = state.info.internal
        columns = own.get("columns")
        chosen = [
            (feature.path, self.spec[feature.path])
            for name, feature in state.info.features.items()
            if feature.path in self.spec
            and name not in (INDICES if not is_dict(columns) or name not in columns else ())
        ]
        task = {TASK: self.spec[TASK]} if TASK in self.spec and (not own or own.get("task")) else {}
        return Spec(dict(chosen) | task, self.spec.observation_space, self.spec.action_space)

    def episode_statistics(self, episodes: Sequence[int]) -> list[dict[str, dict[str, Any]]]:
        """Return the stored statistics of episodes, by path of the column and figure, such as `"mean"` and `"q01"`."""
        state = self.state
        indices = [state.episodes[e].index for e in episodes]
        stored = read_statistics(state.info, indices)
        return [_by_path(state.info, stored.get(index, {})) for index in indices]


def _is_remote(path: Path) -> bool:
    return remote_file(path / INFO) is not None


def _indices_by_file(entries: Sequence[EpisodeEntry]) -> dict[Path, set[int]]:
    """Return the `episode_index` of the episodes of each data file."""
    indices: dict[Path, set[int]] = {}
    for entry in entries:
        indices.setdefault(entry.file, set()).add(entry.index)
    return indices


def open_files(
    info: Info, entries: Sequence[EpisodeEntry], known: Mapping[Path, set[int]], losses: Losses, cache: Cache
) -> tuple[DataFiles, list[EpisodeEntry]]:
    """Open the data files, and find the rows of each episode."""
    footers = Cache(FOOTER_BYTES)
    files: list[ParquetFile] = []
    schemas: dict[tuple[str, ...], None] = {}
    rows: list[int] = []  # of each block
    starts: list[int] = []  # stored row at which each kept episode starts
    kept: list[EpisodeEntry] = []
    before = 0  # rows of the files before
    by_file: dict[Path, list[EpisodeEntry]] = {}
    for entry in entries:
        by_file.setdefault(entry.file, []).append(entry)
    for path, mine in by_file.items():
        try:
            file = ParquetFile(path, footers)
            runs = _runs(file) if info.shared_files else {mine[0].index: (0, sum(file.rows))}
        except (FormatError, OSError) as error:
            if not isinstance(error, FormatError | FileNotFoundError) and not is_of_data(error):
                raise  # of the system or of a server: no episode may be left out for it
            reason = "missing-part" if isinstance(error, FileNotFoundError) else "bad-file"
            losses.add_episodes([entry.index for entry in mine], reason, str(error), path)
            continue
        for entry in mine:
            start, length = runs.get(entry.index, (0, 0))
            if length != entry.length:
                got = f"got {length}" if length >= 0 else "got several parts"
                message = f"expected {entry.length} rows next to each other, {got} in {losses.name(path)}"
                losses.add_episodes([entry.index], "damaged-part", message)
                continue
            kept.append(entry)
            starts.append(before + start)
        if unknown := sorted(runs.keys() - known[path]):
            of_unknown = "rows whose episode_index the metadata do not describe, such as "
            message = f"expected rows of episodes of the metadata, got {of_unknown}{unknown[0]}"
            losses.left_out.append(LeftOut("rows", losses.name(path), "unused-rows", message, len(unknown)))
        files.append(file)
        schemas[tuple(file.schema.names)] = None
        rows += file.rows
        before += sum(file.rows)
    counts = [len(file.rows) for file in files]
    order = sorted(range(len(kept)), key=lambda i: kept[i].index)
    offsets = offsets_of([kept[i].length for i in order])
    data = DataFiles(
        files=tuple(files),
        schemas=tuple(schemas),
        file=np.repeat(np.arange(len(files)), counts),
        group=np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)]),
        rows=BlockRows.parts(offsets_of(rows), np.array([starts[i] for i in order], np.int64), offsets),
        cache=cache,
        pages=Cache(cache.limit),
    )
    return data, [kept[i] for i in order]


def _runs(file: ParquetFile) -> dict[int, tuple[int, int]]:
    """Return first row and length of each episode in a file. An episode of several runs has the length -1."""
    runs: dict[int, tuple[int, int]] = {}
    with parsing(file.path, "episode_index"):
        index = np.asarray(rows_of(file.columns(range(len(file.rows)), "episode_index"), INDEX))
    edges = np.flatnonzero(np.diff(index, prepend=index[:1] - 1, append=index[-1:] - 1))
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        number = int(index[start])
        runs[number] = (start, end - start) if number not in runs else (start, -1)
    return runs


def with_image_types(info: Info, data: DataFiles) -> Info:
    """Return the features with the dtype and channels that pictures of one channel and depth maps have in the files."""
    features = dict(info.features)
    files = [file for file in data.files if sum(file.rows)]
    for name, feature in info.features.items():
        if feature.dtype != "image" or not (feature.depth or feature.shape[2] == 1) or not files:
            continue
        with suppress(FormatError):
            header = read_header(encoded_images(files[0].first(name))[0].tobytes())
            features[name] = replace(feature, shape=(*feature.shape[:2], header.shape[2]), pixels=header.dtype)
    return replace(info, features=features)


def _names(info: Info, data: DataFiles, columns: Sequence[str] | None, losses: Losses, *, has_tasks: bool) -> list[str]:
    """Return the features to read, and add the others to what is left out."""
    left_out = {name: ("unsupported-dtype", why) for name, why in info.unknown.items()}
    schemas = [set[str](schema) for schema in data.schemas]
    stored = set[str]().union(*schemas)
    for name, feature in info.features.items():
        if feature.dtype == "video":
            if feature.shape[2] != 3 and feature.depth is None:
                why = f"expected a video of 3 channels, or is_depth_map in its info, got {feature.shape[2]} channels"
                left_out[name] = "unsupported-dtype", why
        elif not all(name in schema for schema in schemas):
            got = "of some of them" if name in stored else "none"
            left_out[name] = "missing-part", f"expected a column of all data files, got {got}"
    names = [name for name in info.features if name not in left_out]
    for name in sorted(stored - info.features.keys() - info.unknown.keys()):
        if not name.startswith(_MADE_BY_PANDAS):
            left_out[name] = "unknown-layout", "expected a column that is among the features of meta/info.json"
    if has_tasks and "task_index" in names and TASK not in info.features:
        names.append(TASK)
    if columns is None:
        losses.left_out += [LeftOut("column", name, reason, why) for name, (reason, why) in left_out.items()]
        return names
    known = {name if name == TASK else info.features[name].path: name for name in names} | {
        name: name for name in names
    }
    if unknown := [column for column in columns if column not in known]:
        hint = suggestion(unknown[0], known)
        raise ArgumentError(f"no column {unknown[0]!r}{hint}; there are {list(known)}")
    wanted = {known[column] for column in columns}
    return [name for name in names if name in wanted]


def _state(
    info: Info,
    data: DataFiles,
    kept: Sequence[EpisodeEntry],
    tasks: Mapping[int, str],
    losses: Losses,
    names: Sequence[str],
    decode: Decode,
    frames: FrameOptions,
    spaces: tuple[Space | None, Space | None],
) -> LeRobotState:
    """Return the state, with a reader for each column."""
    offsets = offsets_of([entry.length for entry in kept])
    fields: dict[str, Field] = {}
    arrays: dict[str, ArrayReader] = {}
    ragged: dict[str, RaggedReader] = {}
    for name in names:
        feature = info.features.get(name, Feature(TASK, TASK, "string", ()))
        encoded = feature.dtype in CAMERAS and decode == "bytes"
        fields[feature.path] = BYTES if encoded else feature.field
        if feature.dtype == "video" and not encoded:
            fields[feature.path] = replace(feature.field, shape=frames.shape(feature.shape))
        if feature.dtype == "video" and kept:
            places = [entry.videos[name] for entry in kept]
            column = VideoColumn.of(places, offsets, data.column(_SECONDS, "timestamp"), feature, frames, info.fps)
        else:
            column = _column(feature, data, tasks, known=name in info.features)
        if isinstance(column, TaskColumn) or fields[feature.path].ragged:
            ragged[feature.path] = column
        else:
            arrays[feature.path] = column
    spec = Spec(fields, *spaces)
    used = {each.path: name for name in names if (each := info.features.get(name)) is not None and each.path != name}
    return LeRobotState(
        spec=spec,
        offsets=offsets,
        digest=_digest(info, data, kept, spec),
        metadata=_metadata(info, names),
        arrays=arrays,
        ragged=ragged,
        account=Account(tuple(losses.left_out), used),
        info=info,
        data=data,
        episodes=tuple(kept),
        tasks=tasks,
        left_out=frozenset(losses.episodes),
    )


def _column(
    feature: Feature, data: DataFiles, tasks: Mapping[int, str], *, known: bool
) -> StoredColumn | ImageColumn | TaskColumn:
    if not known:
        return TaskColumn(data, "task_index", TEXT, tasks)
    if feature.dtype in CAMERAS:  # also video of no episodes, which has no files
        return ImageColumn(data, feature.name, BYTES)
    return data.column(feature.field, feature.name)


def _digest(info: Info, data: DataFiles, kept: Sequence[EpisodeEntry], spec: Spec) -> Callable[[], str]:
    def digest() -> str:
        identity = [
            info.entries,
            [[entry.index, entry.length, entry.tasks] for entry in kept],
            [file.identity for file in data.files],
            [[str(name), state.size, state.mtime_ns] for name, state in _videos(info, kept)],
            spec.fingerprint,
        ]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    return digest


def _videos(info: Info, kept: Sequence[EpisodeEntry]) -> list[tuple[Path, FileState]]:
    """Return the name below the folder, size and time of each video file that exists."""
    files = dict.fromkeys(place.file for entry in kept for place in entry.videos.values())
    return [(file.relative_to(info.root), file_state(file)) for file in files if file.is_file()]


def _metadata(info: Info, names: Sequence[str]) -> dict[str, Any]:
    kept = {name: value for name, value in info.entries.items() if name not in ("data_path", "video_path", INTERNAL)}
    written = info.internal.get("metadata")
    stats = info.root / STATS
    features = {name: info.features[name] for name in names if name in info.features}
    depth = {each.path: each.depth.to_json(video=each.dtype == "video") for each in features.values() if each.depth}
    return {
        **(written if is_dict(written) else {}),
        **kept,
        "names": {feature.path: name for name, feature in features.items()},
        "statistics": _by_path(info, read_json(stats)) if stats.is_file() else {},
        **({DEPTH: depth} if depth else {}),
    }


def _by_path(info: Info, stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {info.features[name].path: figures for name, figures in stored.items() if name in info.features}
