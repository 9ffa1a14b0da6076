"""Entries of the account of a dataset: episodes that cannot be read, and files that belong to no episode."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np

from penstock.containers.video import VideoFiles
from penstock.core.arrays import AnyArray
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.lerobot.episodes import EpisodeEntry, VideoPlace, episode_files
from penstock.formats.lerobot.info import FOLDER, INFO, STATS, Info
from penstock.formats.lerobot.joining import journal_files
from penstock.formats.lerobot.video import bounds

META = ("tasks.jsonl", "tasks.parquet", "subtasks.parquet", "episodes.jsonl", "episodes_stats.jsonl")
_NAMED = 8  # episodes that a message names


class Losses:
    """Entries of the account, as they are found."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left_out: list[LeftOut] = []
        self.episodes: set[int] = set()  # `episode_index` of each episode that is left out

    def add_episodes(self, indices: Sequence[int], reason: str, message: str, file: Path | None = None) -> None:
        """Leave out episodes, unless they are left out already."""
        new = [index for index in indices if index not in self.episodes]
        if not new:
            return
        more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        names = f"episode {new[0]}" if len(new) == 1 else f"episodes {new[:_NAMED]}{more}"
        where = names if file is None else f"{self.name(file)}: {names}"
        self.episodes |= set(new)
        self.left_out.append(LeftOut("episode", where, reason, message, len(new)))

    def name(self, file: Path) -> str:
        """Return the name of a file below the folder of the dataset."""
        return file.relative_to(self.root).as_posix()


def with_videos(entries: Sequence[EpisodeEntry], names: Collection[str], losses: Losses) -> list[EpisodeEntry]:
    """Return the episodes whose video files exist. Cost: a look at each file."""
    for file, indices in _by_file(entries, names).items():
        if not file.is_file():
            losses.add_episodes(indices, "missing-part", "expected a video file, got none", file)
    return [entry for entry in entries if entry.index not in losses.episodes]


def with_frames(
    info: Info, entries: Sequence[EpisodeEntry], names: Collection[str], losses: Losses, tolerance: float
) -> list[EpisodeEntry]:
    """Return the episodes whose own frames last as long as their tables. Cost: the index of each file."""
    times: dict[Path, AnyArray] = {}
    for file, indices in _by_file(entries, names).items():
        try:
            times[file] = VideoFiles([file]).timestamps(0)
        except FormatError as error:
            losses.add_episodes(indices, "bad-file", str(error), file)
    for entry in entries:
        for name in names:
            place = entry.videos[name]
            if place.file not in times:
                continue
            own = own_frames(times[place.file], place, tolerance, info.fps)
            wanted = place.start + (entry.length - 1) / info.fps
            if not len(own) or own[-1] < wanted - 0.5 / info.fps:
                last = f", the last at {own[-1]:.6g} s" if len(own) else ""
                expected = f"expected {entry.length} frames up to {wanted:.6g} s in its part of "
                message = f"{expected}{losses.name(place.file)}, got {len(own)}{last}"
                losses.add_episodes([entry.index], "damaged-part", message)
    return [entry for entry in entries if entry.index not in losses.episodes]


def own_frames(times: AnyArray, place: VideoPlace, tolerance: float, fps: float) -> AnyArray:
    first, last = np.searchsorted(times, bounds(place, tolerance, fps)).tolist()
    return times[first:last]


def add_unused_files(info: Info, entries: Sequence[EpisodeEntry], losses: Losses) -> None:
    """Add the files in the folder of a dataset that are of no episode. Cost: the names of all files."""
    used = {*episode_files(info), *journal_files(info), *(entry.file for entry in entries)}
    used |= {place.file for entry in entries for place in entry.videos.values()}
    start = len(str(info.root)) + 1
    expected = {INFO, STATS, *(f"meta/{name}" for name in META), *(str(file)[start:] for file in used)}
    folders = {FOLDER}
    for folder in {name.rpartition("/")[0] for name in expected}:
        folders |= {folder, *(parent.as_posix() for parent in PurePath(folder).parents)}
    unused: dict[str, int] = {}  # files by name, or by the folder that has them
    for folder, inside, files in os.walk(info.root):
        place = folder[start:]
        if place == FOLDER:
            continue
        prefix = f"{place}/" if place else ""
        unused |= {name: 1 for file in files if (name := prefix + file) not in expected}
        for inner in [inner for inner in inside if prefix + inner not in folders]:
            inside.remove(inner)
            if inner in info.unknown:
                continue  # the videos of a feature that is left out by its name
            names = [f"{each}/{file}"[start:] for each, _, names in os.walk(f"{folder}/{inner}") for file in names]
            if names:
                unused[names[0] if len(names) == 1 else f"{prefix}{inner}/"] = len(names)
    left_out = unused_files(unused, "files that the metadata name")
    losses.left_out += [replace(entry, count=unused[entry.where]) for entry in left_out]


def cameras(info: Info, columns: Sequence[str] | None) -> list[str]:
    """Return the features of video that are read."""
    return [
        name
        for name, feature in info.features.items()
        if feature.dtype == "video" and (columns is None or name in columns or feature.path in columns)
    ]


def _by_file(entries: Sequence[EpisodeEntry], names: Collection[str]) -> dict[Path, list[int]]:
    """Return the indices of the episodes of each video file."""
    by_file: dict[Path, dict[int, None]] = {}
    for entry in entries:
        for name in names:
            by_file.setdefault(entry.videos[name].file, {})[entry.index] = None
    return {file: list(indices) for file, indices in by_file.items()}
