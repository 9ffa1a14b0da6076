"""`DatasetInfo`: content of `meta/info.json` as an object."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from penstock.errors import ArgumentError
from penstock.formats.lerobot.creation import CHUNKS_SIZE, DATA, DATA_MB, VIDEO, VIDEO_MB
from penstock.formats.lerobot.info import TOOLS

_POSITIVE = ("fps", "chunks_size", "data_files_size_in_mb", "video_files_size_in_mb")


@dataclass
class DatasetInfo:
    """Content of `meta/info.json`. Entries are attributes; `info["fps"]` gives them, too, and warns as in LeRobot."""

    codebase_version: str
    fps: float
    features: dict[str, dict[str, Any]]
    total_episodes: int = 0
    total_frames: int = 0
    total_tasks: int = 0
    chunks_size: int = CHUNKS_SIZE
    data_files_size_in_mb: int = DATA_MB
    video_files_size_in_mb: int = VIDEO_MB
    data_path: str = DATA
    video_path: str | None = VIDEO
    robot_type: str | None = None
    splits: dict[str, str] = field(default_factory=dict[str, str])
    tools: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        for feature in self.features.values():
            feature["shape"] = tuple(feature["shape"])
        if wrong := {name: value for name in _POSITIVE if (value := getattr(self, name)) <= 0}:
            raise ArgumentError(f"expected numbers above 0, got {wrong}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the content of a JSON object. Entries of other programs and versions are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return the content as a JSON object."""
        entries = asdict(self)
        for feature in entries["features"].values():
            feature["shape"] = list(feature["shape"])
        if self.tools is None:
            del entries[TOOLS]
        return entries

    def get(self, key: str, default: Any = None) -> Any:
        """Return an entry, or a default."""
        return getattr(self, key, default)

    def __contains__(self, key: str) -> bool:
        return hasattr(self, key)

    def __getitem__(self, key: str) -> Any:
        self._known(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        """Change an entry, here and not in the file."""
        self._known(key)
        setattr(self, key, value)

    def _known(self, key: str) -> None:
        """Warn of access by item, as LeRobot does, and check the name of an entry."""
        message = f"info[{key!r}] is deprecated in LeRobot; use info.{key}"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        if key not in self:
            raise KeyError(f"no entry {key!r}; there are {[each.name for each in fields(self)]}")
