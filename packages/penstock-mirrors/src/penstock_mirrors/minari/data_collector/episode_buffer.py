"""One episode in the making, filled step by step or handed in whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_array, is_list, is_mapping, is_tuple
from penstock.errors import DataError
from penstock_mirrors.minari.dataset.step_data import StepData, singular

_STEP_KEYS = frozenset(StepData.__annotations__)


@dataclass(frozen=True, eq=False)
class EpisodeBuffer:
    """One episode: values are lists that grow, or arrays of a whole episode, in the structure of the spaces.

    A new buffer has the first observation alone. Arrays are copied when they are taken in, so an environment may
    reuse its own.
    """

    id: int | None = None
    seed: int | None = None
    options: dict[str, Any] | None = None
    observations: Any = None
    actions: Any = None
    rewards: Any = field(default_factory=list[Any])
    terminations: Any = field(default_factory=list[Any])
    truncations: Any = field(default_factory=list[Any])
    infos: dict[str, Any] | None = None
    extras: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("observations", "infos", "extras"):
            set_fields(self, **{name: _copied(getattr(self, name))})

    def add_step_data(self, step_data: StepData | Mapping[str, Any]) -> EpisodeBuffer:
        """Return this episode with one more step, whose keys are singular or plural. Lists are shared, not copied."""
        step = singular(step_data)
        extras = {key: value for key, value in step.items() if key not in _STEP_KEYS}
        return replace(
            self,
            observations=_joined(self.observations, step["observation"], "observation"),
            actions=_joined(self.actions, step["action"], "action", first=True),
            rewards=_joined(self.rewards, step["reward"], "reward"),
            terminations=_joined(self.terminations, step["terminated"], "terminated"),
            truncations=_joined(self.truncations, step["truncated"], "truncated"),
            infos=_joined(self.infos, step["info"], "info", first=True),
            extras=_joined(self.extras, extras, "extras", first=True) if extras or self.extras else None,
        )

    def __len__(self) -> int:
        return len(self.rewards)


def _joined(buffered: Any, value: Any, where: str, first: bool = False) -> Any:
    """`value` appended to each leaf of `held`; with `first`, None starts lists of one value."""
    if buffered is None:
        return _listed(value) if first else _copied(value)
    if is_mapping(value):
        return _joined_dict(buffered, value, where)
    if is_tuple(value):
        if not is_tuple(buffered) or len(buffered) != len(value):
            raise DataError(f"expected {_shape_of(buffered)}, got a tuple of {len(value)} - at {where}")
        return tuple(_joined(h, v, f"{where}/{i}") for i, (h, v) in enumerate(zip(buffered, value, strict=True)))
    if isinstance(buffered, (Mapping, tuple)):
        raise DataError(f"expected {_shape_of(buffered)}, got a {type(value).__name__} - at {where}")
    if is_list(buffered):
        buffered.append(_copied(value))
        return buffered
    return [buffered, _copied(value)]


def _joined_dict(buffered: Any, value: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not is_mapping(buffered) or buffered.keys() != value.keys():
        raise DataError(
            f"expected {_shape_of(buffered)}, got the keys {sorted(value)} - at {where}; every step needs the same "
            "keys: fill in what is missing in a StepDataCallback, or collect with record_infos='union'"
        )
    return {key: _joined(buffered[key], value[key], f"{where}/{key}") for key in buffered}


def _shape_of(buffered: Any) -> str:
    if is_mapping(buffered):
        return f"the keys {sorted(buffered)}"
    return f"a tuple of {len(buffered)}" if is_tuple(buffered) else "a single value"


def _listed(value: Any) -> Any:
    if is_mapping(value):
        return {key: _listed(inner) for key, inner in value.items()}
    return tuple(_listed(inner) for inner in value) if is_tuple(value) else [_copied(value)]


def _copied(value: Any) -> Any:
    """Arrays copied, containers of them rebuilt; lists are the caller's buffers and stay themselves."""
    if is_array(value):
        return value.copy()
    if is_mapping(value):
        return {key: _copied(inner) for key, inner in value.items()}
    return tuple(_copied(inner) for inner in value) if is_tuple(value) else value
