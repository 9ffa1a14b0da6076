"""The formats of data sets of scenarios: one class, made of a kind of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.containers.zarr.group import CACHE_BYTES
from penstock.core.cache import Cache
from penstock.errors import FormatError, RemoteError
from penstock.formats.base.file_facts import FileSurvey
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock_driving.formats.l5kit.check import LogRate, check_tables
from penstock_driving.formats.scenarios.argoverse2 import Argoverse2
from penstock_driving.formats.scenarios.nuplan import NuPlan
from penstock_driving.formats.scenarios.py123d import Py123D
from penstock_driving.formats.scenarios.scenario import ScenarioKind
from penstock_driving.formats.scenarios.source import ScenarioSource
from penstock_driving.formats.scenarios.tables import ScenarioTables, survey_of
from penstock_driving.formats.scenarios.waymo import WaymoMotion


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
        """Open for reading."""
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
