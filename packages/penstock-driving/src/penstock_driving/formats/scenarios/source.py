"""Files of scenarios as a driving log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.group import CACHE_BYTES
from penstock.core.arrays import IntArray
from penstock.core.cache import Cache
from penstock.errors import DataError
from penstock_driving.formats.l5kit.source import DrivingSource
from penstock_driving.formats.scenarios.scenario import ScenarioKind
from penstock_driving.formats.scenarios.tables import OF_FRAMES, ScenarioTables


class ScenarioSource(DrivingSource):
    """Scenes of Argoverse 2, Waymo, nuPlan or py123d, read in place as rows of L5Kit.

    Cost: the first opening reads each file once, and keeps what it learned in the user's cache. A scene is read when a
    row of it is asked for; `cache_bytes` of the last ones are kept.
    """

    def __init__(self, kind: ScenarioKind, path: str | os.PathLike[str], *, cache_bytes: int = CACHE_BYTES) -> None:
        if cache_bytes < 0:
            raise DataError(f"expected cache_bytes from 0 on, got {cache_bytes!r}")
        self.path = path
        self._reopen = partial(ScenarioSource, kind, path, cache_bytes=cache_bytes)
        self.cache = Cache(cache_bytes)
        tables = ScenarioTables.open(kind, Path(path), self.cache)
        self._index = tables.index
        super().__init__(tables)

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Also what the file says of a scene: its id, the last frame of the past, tracks to predict. Cost: none."""
        entries = super().episode_metadata(episodes)
        return [{**entry, **self._index.entries(e)[1]} for e, entry in zip(episodes, entries, strict=True)]

    def track_ids(self, e: int) -> list[str]:
        """Return the ids of the tracks of a scene as the file has them; the agents' `track_id` `n` is number `n - 1`.

        Args:
            e: Number of the scene.

        Raises:
            IndexError: There is no such scene.
        """
        if not -len(self) <= e < len(self):
            raise IndexError(f"expected a scene within 0:{len(self)}, got {e}")
        return list(self._index.read(e % len(self)).track_ids)

    @override
    def nested_cuts(self, table: str, first: int, last: int) -> IntArray:
        """From the frames themselves, so that only their scenes are read."""
        if first >= last:
            return super().nested_cuts(table, first, last)
        spans = self.frames.read(first, last)[OF_FRAMES[table != "agents"]]
        return np.append(spans[:, 0], spans[-1, 1])
