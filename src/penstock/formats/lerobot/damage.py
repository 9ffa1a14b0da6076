"""What cannot be read of a dataset: its messages, and episodes whose videos are missing, damaged or too short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.containers.video import VideoFiles
from penstock.errors import FormatError
from penstock.formats.lerobot.episodes import EpisodeEntry
from penstock.formats.lerobot.info import Info


@dataclass(frozen=True)
class Damage:
    """Something that cannot be read.

    Args:
        message: What is wrong, and where.
        episode: `episode_index` of the episode that is left out, or None.
    """

    message: str
    episode: int | None = None


def with_videos(
    info: Info, entries: Sequence[EpisodeEntry], columns: Sequence[str] | None, damage: list[Damage]
) -> list[EpisodeEntry]:
    """Return the episodes whose video files exist, as far as their cameras are read. Cost: a look at each file."""
    cameras = _cameras(info, columns)
    exists: dict[Path, bool] = {}
    kept: list[EpisodeEntry] = []
    for entry in entries:
        files = [entry.videos[name].file for name in cameras]
        for file in files:
            exists.setdefault(file, file.is_file())
        missing = [str(file) for file in files if not exists[file]]
        if missing:
            damage.append(Damage(f"episode {entry.index}: expected video files, got none at {missing}", entry.index))
        else:
            kept.append(entry)
    return kept


def with_frames(
    info: Info, entries: Sequence[EpisodeEntry], columns: Sequence[str] | None, damage: list[Damage]
) -> list[EpisodeEntry]:
    """Return the episodes whose videos last as long as their tables. Cost: the index of each file."""
    cameras = _cameras(info, columns)
    paths = list(dict.fromkeys(entry.videos[name].file for entry in entries for name in cameras))
    if not paths:
        return list(entries)
    last: dict[Path, float] = {}
    broken: dict[Path, str] = {}
    files = VideoFiles(paths)
    for number, path in enumerate(paths):
        try:
            times = files.timestamps(number)
        except FormatError as error:
            broken[path] = str(error)
            continue
        last[path] = float(times[-1]) if len(times) else -1.0
    kept: list[EpisodeEntry] = []
    for entry in entries:
        reasons: list[str] = []
        for name in cameras:
            place = entry.videos[name]
            wanted = place.start + (entry.length - 1) / info.fps
            if place.file in broken:
                reasons.append(broken[place.file])
            elif last[place.file] < wanted - 0.5 / info.fps:
                reasons.append(f"expected frames up to {wanted:.6g} s, got {last[place.file]:.6g} s in {place.file}")
        if reasons:
            damage.append(Damage(f"episode {entry.index}: {reasons[0]}", entry.index))
        else:
            kept.append(entry)
    return kept


def _cameras(info: Info, columns: Sequence[str] | None) -> list[str]:
    """Return the features of video that are read."""
    return [
        name
        for name, feature in info.features.items()
        if feature.dtype == "video" and (columns is None or name in columns or feature.path in columns)
    ]
