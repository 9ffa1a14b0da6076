"""The benchmark `minecraft`: the obfuscated tasks of MineRL."""

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

SIZE = 64
CODE = 64
BOUND = 1.05
_GOALS = ("Navigate", "NavigateExtreme", "ObtainDiamond", "ObtainIronPickaxe")
TASKS = ("TreechopVectorObf", *(f"{goal}{dense}VectorObf" for goal in _GOALS for dense in ("", "Dense")))


class Minecraft(Benchmark):
    """A task is a name such as `NavigateVectorObf`, which becomes `MineRLNavigateVectorObf-v0`.

    Observations are uint8 `[3, 64, 64]`; an action is the task's obfuscated vector, float32 `[64]` from -1.05 to 1.05.
    After `minecraft_max_env_steps` steps, if that is set, an episode is truncated. MineRL is a source distribution that
    needs gym 0.19, Java 8 and a download of the game, so here it runs where somebody has it; and each environment is a
    separate game, so better one than several (`n_envs` 1, `venv_parallel` False).
    """

    name: ClassVar[str] = "minecraft"
    context: ClassVar[Context] = "spawn"

    def tasks(self) -> tuple[str, ...]:
        """Nine tasks whose actions are vectors."""
        return TASKS

    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """An image, and a vector."""
        full_name(config.task_name)
        bound = np.full(CODE, BOUND, np.float32)
        return image_space(3, SIZE, SIZE), Box(-bound, bound, bound.dtype)

    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """Raises `DataError` for an unknown task, `MissingExtraError` without the package minerl."""
        full_name(config.task_name)
        demand(
            ["minerl", "gym", "gymnasium"],
            "no registry has a build of MineRL 0.3 or 0.4 (package minerl): it is built from source, with gym 0.19 "
            "and Java 8, and downloads the game; its demonstrations are readable without it",
        )
        return Factory("penstock_imitation.envs.minecraft_env:build", config)


def full_name(task: str) -> str:
    """The id that MineRL knows a task by."""
    if task not in TASKS:
        raise DataError(
            f"unknown task {task!r} of the benchmark 'minecraft'{suggestion(task, TASKS)}; there are {', '.join(TASKS)}"
        )
    return f"MineRL{task}-v0"
