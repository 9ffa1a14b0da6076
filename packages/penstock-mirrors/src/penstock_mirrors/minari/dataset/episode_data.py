"""One episode of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.core.arrays import AnyArray, BoolArray
from penstock.core.narrowing import is_array, is_dict, is_tuple


@dataclass(frozen=True, eq=False)
class EpisodeData:
    """One episode of T steps: `observations` and `infos` have T + 1 rows, everything else T.

    `observations` and `actions` have the structure of their spaces (arrays, dicts, tuples, lists of strings).
    `extras` holds what the step callback recorded beyond the standard's keys, as nested dicts.
    """

    id: int
    observations: Any
    actions: Any
    rewards: AnyArray
    terminations: BoolArray
    truncations: BoolArray
    infos: dict[str, Any]
    extras: dict[str, Any] = field(default_factory=dict[str, Any])

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def total_steps(self) -> int:
        return len(self)

    def __repr__(self) -> str:
        parts = {
            "id": self.id,
            "total_steps": len(self),
            "observations": _outline(self.observations),
            "actions": _outline(self.actions),
            "rewards": f"ndarray of {len(self.rewards)} floats",
            "terminations": f"ndarray of {len(self.terminations)} bools",
            "truncations": f"ndarray of {len(self.truncations)} bools",
            "infos": f"dict with the following keys: {list(self.infos)}",
        }
        return f"EpisodeData({', '.join(f'{name}={text}' for name, text in parts.items())})"


def _outline(value: Any) -> str:
    match value:
        case _ if is_array(value):
            return f"ndarray of shape {value.shape} and dtype {value.dtype}"
        case _ if is_dict(value):
            return "{" + ", ".join(f"{key}: {_outline(inner)}" for key, inner in value.items()) + "}"
        case _ if is_tuple(value):
            return "(" + ", ".join(_outline(inner) for inner in value) + ")"
        case _:
            return repr(value)
