"""The callback that decides what is recorded of each step."""

from __future__ import annotations

from typing import Any

import gymnasium

from penstock.compat.minari.dataset.step_data import StepData


class StepDataCallback:
    """Called after each `reset` and `step`; what it returns is recorded. Subclass to change or add columns.

    Keys beyond those of `StepData` become extra groups of the episode: their values are arrays, numbers or nested
    dicts of them, given at `reset` and at every step, so that they have T + 1 rows as observations do.
    """

    def __call__(
        self,
        env: gymnasium.Env[Any, Any],
        obs: Any,
        info: dict[str, Any],
        action: Any | None = None,
        rew: Any | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
    ) -> StepData:
        """The step as it came from the environment; at `reset` all but `obs` and `info` are None."""
        return {
            "action": action,
            "observation": obs,
            "reward": rew,
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
        }
