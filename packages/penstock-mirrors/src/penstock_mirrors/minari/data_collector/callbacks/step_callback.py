"""The callback that chooses the recorded data of each step."""

from __future__ import annotations

from typing import Any

import gymnasium

from penstock_mirrors.minari.dataset.step_data import StepData


class StepDataCallback:
    """Callback after each `reset` and `step` that returns the data to record. Subclass to change or add columns.

    Keys that `StepData` lacks become extra groups of the episode: their values are arrays, numbers or nested dicts of
    arrays and numbers, returned at `reset` and at every step, so that they have T + 1 rows like observations.
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
        """Return the step as the environment returned it; at `reset` all but `obs` and `info` are None."""
        return {
            "action": action,
            "observation": obs,
            "reward": rew,
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
        }
