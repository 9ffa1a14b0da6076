"""The data of one step, under singular names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, TypedDict, cast


class StepData(TypedDict):
    """The data of one environment step. Further keys, nested dicts of arrays, are recorded as extra groups."""

    observation: Any
    action: Any | None
    reward: SupportsFloat | None
    terminated: bool | None
    truncated: bool | None
    info: dict[str, Any]


# The names that callbacks written for older releases of the standard's library use.
_OLD_NAMES = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "terminations": "terminated",
    "truncations": "truncated",
    "termination": "terminated",
    "truncation": "truncated",
    "infos": "info",
}


def singular(step: Mapping[str, Any]) -> StepData:
    """Return `step` with the current keys, from the keys of any release."""
    return cast("StepData", {_OLD_NAMES.get(key, key): value for key, value in step.items()})
