"""MineRL's demonstrations, version 3: a folder a stream, with a video and an archive of arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from penstock.containers.npz import NpzArchive, names_of
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_dict
from penstock.core.order import natural
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.remote import read_bytes
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.infos import plain
from penstock.formats.base.source import Source
from penstock.formats.demos.source import Kind
from penstock.formats.demos.trajectories import NUMBERS, Track, source_of
from penstock_imitation.formats.native.unpack import MAX_BYTES
from penstock_imitation.formats.native.video import CACHE_BYTES, Clip, ClipFrames

ARRAYS = "rendered.npz"
VIDEO = "recording.mp4"
METADATA = "metadata.json"
FRAMES = "true_video_frame_count"
_TEXT = 1 << 24  # bytes of a metadata.json


class MineRLKind(Kind):
    """Stream folders of `rendered.npz` and `recording.mp4`; see `read_minerl`."""

    name: ClassVar[str] = "minerl"
    description: ClassVar[str] = "MineRL streams of rendered.npz and recording.mp4"
    options: ClassVar[tuple[str, ...]] = ("video", "cache_bytes", "max_bytes")

    def recognises(self, path: Path) -> bool:
        """By the names of the arrays of the first stream."""
        try:
            first = next(_streams(path), None)
        except (OSError, ValueError):
            return False
        names = [] if first is None else names_of(first / ARRAYS)
        return "reward" in names and any(name.startswith("action$") for name in names)

    def open(self, path: Path, **options: Any) -> Source:
        return read_minerl(path, **options)


def read_minerl(
    path: Path, *, video: bool = True, cache_bytes: int = CACHE_BYTES, max_bytes: int = MAX_BYTES
) -> Source:
    """The stream in a folder, or all streams in a folder of them, in natural order.

    `observation$a$b` is the column `observations/a/b` (T + 1 rows), `action$a$b` is `actions/a/b`, `reward` is
    `rewards`; the account names what holds no numbers. The frames are `observations/pov` `[T + 1, 3,
    H, W]` uint8, RGB; they need the extra `video`, and `video=False` leaves them out. A video begins with frames from
    before its recording: the excess of `true_video_frame_count` in the metadata over the states is skipped. The last
    frame is the video's own; where it lacks that one, the one before is repeated. The last step of a stream is
    terminated.

    Cost: the arrays of all streams, and at first one pass over the videos. A read decodes from the last key frame on,
    and keeps at most `cache_bytes` of decoded frames: where there are more, read stream after stream, or with
    `shuffle(pool=...)`.
    """
    streams = sorted(_streams(path), key=lambda stream: natural(stream.name))
    if not streams:
        raise FormatError(f"expected a folder with {ARRAYS}, or a folder of such folders, found none", path=path)
    arrays: dict[str, LeftOut] = {}
    tracks = [_track(stream, max_bytes, arrays) for stream in streams]
    left_out = [*(arrays[name] for name in sorted(arrays)), *_other_files(path, streams)]
    metadata: dict[str, Any] = {"kind": MineRLKind.name, "color_space": "RGB"}
    environment = streams[0].absolute().parent.name
    metadata |= {"env_name": environment} if environment.startswith("MineRL") else {}
    if not video:
        left_out += [LeftOut("file", VIDEO, "skipped", "left out with video=False", len(streams))]
        return source_of(tracks, metadata, path=path, left_out=left_out)
    clips = [_clip(stream, track) for stream, track in zip(streams, tracks, strict=True)]
    frames = ClipFrames(clips, cache_bytes)
    for number, clip in enumerate(clips):
        if (size := frames.nbytes(number)) > max_bytes:
            message = f"expected at most {max_bytes} bytes of frames, got {size}; `max_bytes` allows them"
            raise UnsafeDataError(message, path=clip.path)
    return source_of(tracks, metadata, path=path, frames={"pov": frames}, left_out=left_out)


def _streams(path: Path) -> Iterator[Path]:
    """The folders with arrays at or below `path`."""
    if (path / ARRAYS).is_file():
        yield path
    elif path.is_dir():
        yield from (inner for inner in path.iterdir() if (inner / ARRAYS).is_file())


def _other_files(path: Path, streams: Sequence[Path]) -> list[LeftOut]:
    """Files of streams that are not of the format, and files and folders next to streams; also folders without arrays,
    which may be streams that were not downloaded as a whole."""
    single = streams == [path]
    expected = f"{ARRAYS}, {VIDEO} and {METADATA} in the folder of each stream"
    inside = [entry for stream in streams for entry in stream.iterdir() if entry.name not in (ARRAYS, VIDEO, METADATA)]
    beside = [] if single else [entry for entry in path.iterdir() if entry not in streams]
    torn = [entry for entry in beside if (entry / VIDEO).is_file()]
    names = [entry.relative_to(path).as_posix() for entry in (*inside, *beside) if entry not in torn]
    left_out = [LeftOut("file", entry.name, "bad-file", f"expected {ARRAYS} in a stream, got none") for entry in torn]
    return [*left_out, *unused_files(names, expected)]


def _track(stream: Path, max_bytes: int, left_out: dict[str, LeftOut]) -> Track:
    """The arrays of a stream; `left_out` takes arrays that are no columns."""
    path = stream / ARRAYS
    archive = NpzArchive(path, max_bytes)
    arrays = {name: archive.array(name) for name in archive}
    for name, array in arrays.items():
        if not _fits(name, array):
            message = (
                f"expected rows of numbers called action$... or observation$..., got {array.dtype}{list(array.shape)}"
            )
            reason = "unused-array" if array.dtype.kind in NUMBERS else "unsupported-dtype"
            left_out.setdefault(name, LeftOut("array", name, reason, message))
    columns: dict[str, dict[str, AnyArray]] = {"action": {}, "observation": {}}
    for name, array in arrays.items():
        kind, _, rest = name.partition("$")
        if kind in columns and _fits(name, array):
            columns[kind][rest.replace("$", "/")] = array
    rewards = arrays.get("reward")
    if rewards is None or rewards.ndim != 1 or rewards.dtype.kind not in NUMBERS or not columns["action"]:
        message = f"expected reward as [T] numbers and at least one action$..., got {sorted(arrays)[:20]}"
        raise FormatError(message, path=path)
    states = len(rewards) + 1
    for kind, rows in (("action", states - 1), ("observation", states)):
        for name, array in columns[kind].items():
            if len(array) != rows:
                message = f"expected {rows} rows for {states - 1} rewards, got {len(array)}"
                raise FormatError(message, path=path, where=f"{kind}${name}")
    metadata = {"stream": stream.name, **plain(_metadata(stream))}
    seen = {name: [array] for name, array in columns["observation"].items()}
    return Track(seen, columns["action"], rewards, terminated=True, metadata=metadata)


def _fits(name: str, array: AnyArray) -> bool:
    """Whether an array can be a column, and is none of ours: frames have the name `pov`."""
    kind, _, rest = name.partition("$")
    if name == "reward":
        return True
    plain_name = bool(rest) and all(rest.split("$")) and rest != "pov" and "/" not in rest
    return kind in ("action", "observation") and plain_name and array.dtype.kind in NUMBERS and array.ndim > 0


def _metadata(stream: Path) -> Mapping[str, Any]:
    path = stream / METADATA
    if not path.is_file():
        return {}
    if path.stat().st_size > _TEXT:
        raise UnsafeDataError(f"expected at most {_TEXT} bytes of metadata", path=path)
    try:
        entries = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected JSON, got {error}", path=path) from error
    if not is_dict(entries):
        raise FormatError(f"expected an object, got {type(entries).__name__}", path=path)
    return entries


def _clip(stream: Path, track: Track) -> Clip:
    path = stream / VIDEO
    states = track.steps + 1
    total = track.metadata.get(FRAMES)
    if not path.is_file():
        raise FormatError(f"expected {VIDEO}, found none; `video=False` reads the rest", path=stream)
    if type(total) is not int or total < states:
        message = f"expected {FRAMES} of at least {states}, as many as there are states, got {total!r}"
        raise FormatError(message, path=stream / METADATA)
    return Clip(path, total - states, states)
