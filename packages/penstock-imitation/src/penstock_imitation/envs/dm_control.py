"""The benchmark `dm_control`: the DeepMind Control Suite, seen by its first camera."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.core.spaces import Box, Space
from penstock.errors import DataError, suggestion
from penstock_imitation.envs.benchmark import Benchmark, Context, Factory, demand, image_space
from penstock_imitation.envs.config import EnvConfig

if TYPE_CHECKING:
    import gymnasium

SIZE = 100

# The suite's domains: how many actuators, which tasks. dm_control 1.0.
_DOMAINS: dict[str, tuple[int, str]] = {
    "acrobot": (1, "swingup swingup_sparse"),
    "ball_in_cup": (2, "catch"),
    "cartpole": (1, "balance balance_sparse swingup swingup_sparse two_poles three_poles"),
    "cheetah": (6, "run"),
    "dog": (38, "stand walk trot run fetch"),
    "finger": (2, "spin turn_easy turn_hard"),
    "fish": (5, "upright swim"),
    "hopper": (4, "stand hop"),
    "humanoid": (21, "stand walk run run_pure_state"),
    "humanoid_CMU": (56, "stand walk run"),
    "manipulator": (5, "bring_ball bring_peg insert_ball insert_peg"),
    "pendulum": (1, "swingup"),
    "point_mass": (2, "easy hard"),
    "quadruped": (12, "walk run escape fetch"),
    "reacher": (2, "easy hard"),
    "stacker": (5, "stack_2 stack_4"),
    "walker": (6, "stand walk run"),
}
_OWN = {("lqr", "lqr_2_1"): 1, ("lqr", "lqr_6_2"): 2, ("swimmer", "swimmer6"): 5, ("swimmer", "swimmer15"): 14}
_ACTUATORS = {(domain, task): n for domain, (n, tasks) in _DOMAINS.items() for task in tasks.split()} | _OWN
_TASKS = {f"{domain}-{task}".replace("_", "-"): (domain, task) for domain, task in _ACTUATORS}

# How often an action is repeated, by domain; the others: 4.
_REPEATS = {"finger": 2, "cheetah": 4, "walker": 8, "cartpole": 8, "reacher": 8, "ball_in_cup": 8}


class DmControl(Benchmark):
    """A task is `<domain>-<task>` of the suite, with `-` for `_`: `finger-spin`, `ball-in-cup-catch`.

    Observations are uint8 `[3 * n, 100, 100]` with `dm_control_frame_stack` n, oldest frame first, black before an
    episode's first frame. Actions are float32 from -1 to 1. Each is repeated (finger 2 times; cheetah and what is not
    named here 4; walker, cartpole, reacher and ball-in-cup 8) and the rewards are summed. Infos: `internal_state`, the
    physics before the action, and `discount`. An episode whose time is up (1000 steps of the suite) is truncated; it
    terminates where the suite's discount is 0.
    """

    name: ClassVar[str] = "dm_control"
    context: ClassVar[Context] = "spawn"

    def tasks(self) -> tuple[str, ...]:
        return tuple(_TASKS)

    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """Images, and a number from -1 to 1 for each actuator."""
        ones = np.ones(_ACTUATORS[suite_task(config.task_name)], np.float32)
        return image_space(3 * config.dm_control_frame_stack, SIZE, SIZE), Box(-ones, ones, ones.dtype)

    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """Raises `DataError` for an unknown task, `MissingExtraError` without dm_control."""
        suite_task(config.task_name)
        demand(["dm_control", "gymnasium"], "install with: pip install 'penstock-imitation[dm-control]'")
        return Factory("penstock_imitation.envs.dm_control_env:build", config)


def suite_task(name: str) -> tuple[str, str]:
    """Domain and task of a name, as the suite writes them."""
    if name not in _TASKS:
        known = ", ".join(_TASKS)
        raise DataError(
            f"unknown task {name!r} of the benchmark 'dm_control'{suggestion(name, _TASKS)}; known: {known}"
        )
    return _TASKS[name]


def repeats(domain: str) -> int:
    """How many steps of the suite an action lasts."""
    return _REPEATS.get(domain, 4)
