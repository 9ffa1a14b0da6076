"""Reading a LeRobot dataset.

Opening reads the metadata, the footer of each data file, and since version 3 the column `episode_index`, because
several episodes share a file. Episodes that cannot be read are left out, and a warning names them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import ParquetFile
from penstock.containers.cache import Cache
from penstock.containers.video.files import DecoderName
from penstock.core.boundary import is_of_data, parsing
from penstock.core.damage import collected_damage, warn_damage
from penstock.core.narrowing import is_dict
from penstock.core.ragged import offsets_of
from penstock.core.spaces import Space
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, FormatError, suggestion
from penstock.files.remote import FileState, file_state, remote_file
from penstock.formats.base.blocks import BlockRows
from penstock.formats.base.state import ArrayReader, RaggedReader, SourceState, StateSource
from penstock.formats.lerobot.columns import CountedRagged, DataFiles, ImageColumn, StoredColumn, TaskColumn, rows_of
from penstock.formats.lerobot.damage import Damage, with_frames, with_videos
from penstock.formats.lerobot.episodes import EpisodeEntry, read_entries, read_statistics, read_tasks
from penstock.formats.lerobot.info import CAMERAS, INDICES, INFO, INTERNAL, STATS, Feature, Info, read_info, read_json
from penstock.formats.lerobot.pending import read_pending
from penstock.formats.lerobot.video import FrameOptions, VideoColumn

Decode = Literal["rgb8", "bytes"]

FEW_VIDEOS = 256  # of episodes, whose files are looked into when a dataset is opened
FOOTER_BYTES = 64 << 20  # footers of Parquet files that stay in memory
TASK = "task"  # column with the text of each step's task
_INDEX = Field(np.dtype(np.int64))
_SECONDS = Field(np.dtype(np.float64))
_NAMED = 8  # episodes that a warning names


@dataclass(frozen=True, eq=False, kw_only=True)
class LeRobotState(SourceState):
    """State of an opened dataset."""

    info: Info
    data: DataFiles
    episodes: tuple[EpisodeEntry, ...]
    tasks: Mapping[int, str]
    damage: tuple[Damage, ...]


class LeRobotSource(StateSource[LeRobotState]):
    """A LeRobot dataset of version 2.0, 2.1 or 3.0.

    Args:
        path: Folder of the dataset.
        split: Name of the split to read, such as `"train"`. The default is None: all episodes.
        columns: Columns to read, by path (`"observations/state"`) or original name (`"observation.state"`). The default
            is None: all.
        decode: `"rgb8"` decodes images and video to `[height, width, channels]` uint8. `"bytes"` returns encoded
            images, and packets of video, as ragged columns. The default is `"rgb8"`.
        tolerance_s: Most seconds between the timestamp of a row and its frame in a video. The default is 1e-4.
        cache_bytes: Most bytes of decoded row groups that stay in memory. The default is 256 MiB.
        size: `(height, width)` to which frames of video are scaled (bilinear). The default is None: as stored.
        decoder: Decoder of video, `"pyav"` (the default) or `"torchcodec"`, which takes no `size`.
        device: Device on which torchcodec decodes, such as `"cuda"`. The default is `"cpu"`.
        frame_cache_bytes: Most bytes of decoded frames of video that stay in memory, divided among the cameras. The
            default 0 keeps none.
        check_videos: Whether episodes whose videos are damaged, or end before their table, are left out with a warning.
            This makes the index of each video file. The default is None: in datasets on this machine with at most
            256 videos of episodes. Without it, reading such an episode is an error.

    Raises:
        FormatError: The metadata is damaged, or no episode can be read.
        ArgumentError: There is no such split, column or value of an option, or an option of video without video.
        MissingExtraError: PyArrow is not installed.
    """

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
        unreadable: list[str] = []
        entries = read_entries(info, unreadable)
        if info.shared_files:
            pending = read_pending(info, {entry.index for entry in entries}, unreadable)
            entries += [episode.entry for episode in pending]
        damage = [Damage(message) for message in unreadable]
        if split is not None:
            first, last = info.split(split)
            entries = [entry for entry in entries if first <= entry.index < last]
        entries = with_videos(info, entries, columns, damage)
        if check_videos is None:
            check_videos = sum(len(entry.videos) for entry in entries) <= FEW_VIDEOS and not _is_remote(self._path)
        if check_videos:
            entries = with_frames(info, entries, columns, damage)
        data, kept = open_files(info, entries, damage, Cache(cache_bytes))
        if damage and not kept:
            raise FormatError(
                f"expected episodes that can be read, got {len(damage)} damaged ones: {damage[0].message}",
                path=self._path,
            )
        _warn(self._path, damage)
        tasks = read_tasks(info)
        names, left_out = _names(info, data, columns, has_tasks=tasks is not None)
        cameras = sum(info.features[name].dtype == "video" for name in names if name in info.features)
        if not (cameras and decode == "rgb8") and (size, decoder, device, frame_cache_bytes) != (
            None,
            "pyav",
            "cpu",
            0,
        ):
            raise ArgumentError(
                "expected size, decoder, device and frame_cache_bytes for video that is decoded, got a dataset "
                "without, or decode='bytes'; leave them out"
            )
        frames = FrameOptions(tolerance_s, size, decoder, device, frame_cache_bytes // max(cameras, 1))
        as_written = columns is None and decode == "rgb8" and size is None
        spaces = info.spaces() if as_written else (None, None)
        self._state = _state(info, data, kept, tasks or {}, tuple(damage), names, left_out, decode, frames, spaces)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._path, self._options)

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        entries = [self.state.episodes[e] for e in episodes]
        return [{**entry.extra, "episode_index": entry.index, "tasks": list(entry.tasks)} for entry in entries]

    @property
    def written_spec(self) -> Spec:
        """Columns that episodes to append have: without those that the format computes."""
        state = self.state
        own = state.info.entries.get(INTERNAL)
        columns = own.get("columns") if is_dict(own) else None
        chosen = [
            (feature.path, self.spec[feature.path])
            for name, feature in state.info.features.items()
            if feature.path in self.spec
            and name not in (INDICES if not is_dict(columns) or name not in columns else ())
        ]
        task = {TASK: self.spec[TASK]} if TASK in self.spec and (not is_dict(own) or own.get("task")) else {}
        return Spec(dict(chosen) | task, self.spec.observation_space, self.spec.action_space)

    def episode_statistics(self, episodes: Sequence[int]) -> list[dict[str, dict[str, Any]]]:
        """Return the stored statistics of episodes, by path of the column and figure, such as `"mean"` and `"q01"`.

        Args:
            episodes: Numbers of the episodes.
        """
        state = self.state
        indices = [state.episodes[e].index for e in episodes]
        stored = read_statistics(state.info, indices)
        return [_by_path(state.info, stored.get(index, {})) for index in indices]


def _is_remote(path: Path) -> bool:
    return remote_file(path / INFO) is not None


def _reopened(path: Path, options: Mapping[str, Any]) -> LeRobotSource:
    with collected_damage():  # said when the dataset was opened
        return LeRobotSource(path, **options)


def open_files(
    info: Info, entries: Sequence[EpisodeEntry], damage: list[Damage], cache: Cache
) -> tuple[DataFiles, list[EpisodeEntry]]:
    """Open the data files, and find the rows of each episode.

    Args:
        info: The dataset.
        entries: Episodes by their metadata.
        damage: Damage that is found is appended.
        cache: Cache of decoded blocks.

    Returns:
        The files, and the episodes that can be read.
    """
    footers = Cache(FOOTER_BYTES)
    files: list[ParquetFile] = []
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
            damage += [Damage(f"episode {entry.index}: {error}", entry.index) for entry in mine]
            continue
        for entry in mine:
            start, length = runs.get(entry.index, (0, 0))
            if length != entry.length:
                message = (
                    f"episode {entry.index}: expected {entry.length} rows next to each other, got {length} in {path}"
                )
                damage.append(Damage(message, entry.index))
                continue
            kept.append(entry)
            starts.append(before + start)
        files.append(file)
        rows += file.rows
        before += sum(file.rows)
    counts = [len(file.rows) for file in files]
    order = sorted(range(len(kept)), key=lambda i: kept[i].index)
    offsets = offsets_of([kept[i].length for i in order])
    data = DataFiles(
        files=tuple(files),
        file=np.repeat(np.arange(len(files)), counts),
        group=np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)]),
        rows=BlockRows.parts(offsets_of(rows), np.array([starts[i] for i in order], np.int64), offsets),
        cache=cache,
    )
    return data, [kept[i] for i in order]


def _runs(file: ParquetFile) -> dict[int, tuple[int, int]]:
    """Return first row and length of each episode in a file. An episode of several runs has the length -1."""
    runs: dict[int, tuple[int, int]] = {}
    with parsing(file.path, "episode_index"):
        index = np.asarray(rows_of(file.columns(range(len(file.rows)), "episode_index"), _INDEX))
    edges = np.flatnonzero(np.diff(index, prepend=index[:1] - 1, append=index[-1:] - 1))
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        number = int(index[start])
        runs[number] = (start, end - start) if number not in runs else (start, -1)
    return runs


def _names(
    info: Info, data: DataFiles, columns: Sequence[str] | None, *, has_tasks: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the features to read, and why others are left out. Raises `ArgumentError` for unknown columns."""
    left_out = dict(info.unknown)
    stored = set(data.files[0].schema.names) if data.files else set(info.features)
    for name, feature in info.features.items():
        if feature.dtype == "video":
            if feature.shape[2] != 3:
                left_out[name] = f"expected a video of 3 channels, got {feature.shape[2]}"
        elif name not in stored:
            left_out[name] = "the data files have no such column"
    names = [name for name in info.features if name not in left_out]
    if has_tasks and "task_index" in names and TASK not in info.features:
        names.append(TASK)
    if columns is None:
        return names, left_out
    known = {name if name == TASK else info.features[name].path: name for name in names} | {
        name: name for name in names
    }
    if unknown := [column for column in columns if column not in known]:
        hint = suggestion(unknown[0], known)
        raise ArgumentError(f"no column {unknown[0]!r}{hint}; there are {list(known)}")
    wanted = {known[column] for column in columns}
    return [name for name in names if name in wanted], left_out


def _state(
    info: Info,
    data: DataFiles,
    kept: Sequence[EpisodeEntry],
    tasks: Mapping[int, str],
    damage: tuple[Damage, ...],
    names: Sequence[str],
    left_out: Mapping[str, str],
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
        fields[feature.path] = Field(np.dtype(np.uint8), kind="ragged") if encoded else feature.field
        if feature.dtype == "video" and not encoded:
            fields[feature.path] = Field(np.dtype(np.uint8), frames.shape(feature.shape))
        if feature.dtype == "video" and kept:
            places = [entry.videos[name] for entry in kept]
            column = VideoColumn.of(places, offsets, data.column(_SECONDS, "timestamp"), feature.shape, frames)
        else:
            column = _column(feature, data, tasks, known=name in info.features)
        if isinstance(column, TaskColumn) or fields[feature.path].ragged:
            ragged[feature.path] = CountedRagged(column)
        else:
            arrays[feature.path] = column
    spec = Spec(fields, *spaces)
    return LeRobotState(
        spec=spec,
        offsets=offsets,
        digest=_digest(info, data, kept, spec),
        metadata=_metadata(info, names, left_out, damage),
        arrays=arrays,
        ragged=ragged,
        info=info,
        data=data,
        episodes=tuple(kept),
        tasks=tasks,
        damage=damage,
    )


def _column(
    feature: Feature, data: DataFiles, tasks: Mapping[int, str], *, known: bool
) -> StoredColumn | ImageColumn | TaskColumn:
    if not known:
        return TaskColumn(data.column(_INDEX, "task_index"), tasks)
    if feature.dtype in CAMERAS:  # also video of no episodes, which has no files
        return ImageColumn(data, feature.name, feature.shape)
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


def _metadata(
    info: Info, names: Sequence[str], left_out: Mapping[str, str], damage: Sequence[Damage]
) -> dict[str, Any]:
    kept = {name: value for name, value in info.entries.items() if name not in ("data_path", "video_path", INTERNAL)}
    own = info.entries.get(INTERNAL)
    written = own.get("metadata") if is_dict(own) else None
    stats = info.root / STATS
    entries: dict[str, Any] = {
        **(written if is_dict(written) else {}),
        **kept,
        "names": {info.features[name].path: name for name in names if name in info.features},
        "statistics": _by_path(info, read_json(stats)) if stats.is_file() else {},
    }
    if left_out:
        entries["left_out"] = [f"{name}: {why}" for name, why in left_out.items()]
    if damage:
        entries["damage"] = [each.message for each in damage]
    return entries


def _by_path(info: Info, stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {info.features[name].path: figures for name, figures in stored.items() if name in info.features}


def _warn(path: Path, damage: Sequence[Damage]) -> None:
    if not damage:
        return
    episodes = [each.episode for each in damage if each.episode is not None]
    more = f" and {len(episodes) - _NAMED} more" if len(episodes) > _NAMED else ""
    what = f"left out the episodes {episodes[:_NAMED]}{more}, which cannot be read" if episodes else "damaged metadata"
    warn_damage(f"{what}: {damage[0].message}; penstock check lists all - in {path / INFO}", stacklevel=5)
