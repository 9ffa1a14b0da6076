"""The formats of data sets of scenarios: one class, made of a kind of files; and such files as a driving log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.group import CACHE_BYTES
from penstock.core.arrays import IntArray
from penstock.core.cache import Cache
from penstock.errors import DataError, FormatError, RemoteError
from penstock.formats.base.file_facts import FileSurvey
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock_driving.formats.l5kit.check import LogRate, check_tables
from penstock_driving.formats.l5kit.source import DrivingSource
from penstock_driving.formats.scenarios.argoverse2 import Argoverse2
from penstock_driving.formats.scenarios.nuplan import NuPlan
from penstock_driving.formats.scenarios.py123d import Py123D
from penstock_driving.formats.scenarios.scenario import ScenarioKind
from penstock_driving.formats.scenarios.tables import OF_FRAMES, ScenarioTables, survey_of
from penstock_driving.formats.scenarios.waymo import WaymoMotion


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


class ScenarioFormat(Format):
    """Scenes of another data set of driving, read in place. Read-only; `open` knows `cache_bytes`. See docs/sets.md."""

    kind: ClassVar[ScenarioKind]
    extras: ClassVar[tuple[str, ...]] = ("arrow",)

    def recognises(self, path: Path) -> bool:
        """Whether there are files of the kind. Cost: lists of some folders, and a look into some files."""
        try:
            return self.kind.recognises(path)
        except RemoteError:
            raise
        except OSError:
            return False  # a folder below that cannot be listed

    def open(self, path: Path, **options: Any) -> ScenarioSource:
        return ScenarioSource(self.kind, path, **options)

    @override
    def survey(self, paths: Sequence[Path]) -> FileSurvey | None:
        return survey_of(self.kind, self.kind.files(paths[0]))

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Look for missing frames, and with `deep` for tracks that are twice in a frame and impossible numbers."""
        try:
            tables = ScenarioTables.open(self.kind, path, Cache(CACHE_BYTES))
        except (FormatError, OSError) as error:
            yield Finding("unreadable", str(path), str(error))
            return
        rate = LogRate(self.kind.step, f"scenes of {self.kind.title}")
        yield from check_tables(tables, str(path), rate, deep=deep)


class Argoverse2Format(ScenarioFormat):
    """Argoverse 2 motion forecasting."""

    kind: ClassVar[ScenarioKind] = Argoverse2()
    name: ClassVar[str] = Argoverse2.name
    description: ClassVar[str] = Argoverse2.description


class WaymoFormat(ScenarioFormat):
    """Waymo Open Motion."""

    kind: ClassVar[ScenarioKind] = WaymoMotion()
    name: ClassVar[str] = WaymoMotion.name
    description: ClassVar[str] = WaymoMotion.description
    extras: ClassVar[tuple[str, ...]] = ()


class NuPlanFormat(ScenarioFormat):
    """nuPlan."""

    kind: ClassVar[ScenarioKind] = NuPlan()
    name: ClassVar[str] = NuPlan.name
    description: ClassVar[str] = NuPlan.description
    extras: ClassVar[tuple[str, ...]] = ()


class Py123DFormat(ScenarioFormat):
    """Logs of py123d."""

    kind: ClassVar[ScenarioKind] = Py123D()
    name: ClassVar[str] = Py123D.name
    description: ClassVar[str] = Py123D.description
