"""Saved episodes that are not in the files of a dataset yet.

A Parquet file has its footer at its end, so a file that is still growing cannot be read, and a killed recording would
lose it. Each saved episode is therefore a small Parquet file in the folder `.penstock`, complete when it appears, next
to a video file of each camera, which is there before. The schema of the Parquet file has what the metadata of episodes
will say. `finalize` of the writer joins these files. LeRobot ignores the folder; penstock reads its episodes as part of
the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.boundary import parsing
from penstock.core.narrowing import is_dict
from penstock.errors import FormatError, require
from penstock.formats.base.account import LeftOut
from penstock.formats.lerobot.episodes import KEY, EpisodeEntry, VideoPlace, number
from penstock.formats.lerobot.info import Info

FOLDER = ".penstock"
LOCK = f"{FOLDER}/lock"


@dataclass(frozen=True, eq=False)
class PendingEpisode:
    """An episode in a file of its own."""

    path: Path
    entry: EpisodeEntry
    statistics: Mapping[str, Mapping[str, Any]]


def piece_path(root: Path, index: int) -> Path:
    """Return the file of a pending episode."""
    return root / FOLDER / f"episode-{index:06d}.parquet"


def video_path(root: Path, index: int, name: str) -> Path:
    """Return the video of a camera of a pending episode."""
    return root / FOLDER / f"episode-{index:06d}.{name}.mp4"


def read_pending(info: Info, known: set[int], damage: list[LeftOut]) -> list[PendingEpisode]:
    """Return the pending episodes in the order of their index."""
    episodes: list[PendingEpisode] = []
    for path in sorted((info.root / FOLDER).glob("episode-*.parquet")):
        try:
            episode = read_pending_episode(info, path)
        except FormatError as error:
            damage.append(LeftOut("episode", path.relative_to(info.root).as_posix(), "bad-file", str(error)))
            continue
        if episode.entry.index not in known:
            episodes.append(episode)
    return sorted(episodes, key=lambda episode: episode.entry.index)


def read_pending_episode(info: Info, path: Path) -> PendingEpisode:
    """Return the pending episode of a file. Raises `FormatError` for a damaged one."""
    with parsing(path):
        stored: Any = json.loads(require("pyarrow.parquet", "arrow").read_schema(path).metadata[KEY])
        if not is_dict(stored):
            raise FormatError(f"expected an object in the schema, got {stored!r}")
        index = number(stored["episode_index"])
        cameras = [name for name, feature in info.features.items() if feature.dtype == "video"]
        videos = {name: VideoPlace(video_path(info.root, index, name), 0.0, None) for name in cameras}
        entry = EpisodeEntry(
            index=index,
            length=number(stored["length"]),
            file=path,
            tasks=tuple(str(task) for task in stored["tasks"]),
            videos=videos,
            extra=dict(stored["metadata"]),
        )
        return PendingEpisode(path, entry, stored["statistics"])
