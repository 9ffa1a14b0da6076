"""Scenes of Argoverse 2, Waymo Open Motion, nuPlan and py123d, read in place as rows of L5Kit's tables.

A `ScenarioKind` turns a file into `Scenario`s; everything else is shared: `ScenarioTables` makes them four arrays, and
`ScenarioSource` a driving log.
"""

from penstock_driving.formats.scenarios.format import (
    Argoverse2Format,
    NuPlanFormat,
    Py123DFormat,
    ScenarioSource,
    WaymoFormat,
)

ARGOVERSE2 = Argoverse2Format()
WAYMO = WaymoFormat()
NUPLAN = NuPlanFormat()
PY123D = Py123DFormat()

__all__ = ["ARGOVERSE2", "NUPLAN", "PY123D", "WAYMO", "ScenarioSource"]
