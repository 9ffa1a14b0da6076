"""The benchmark `procgen`: games whose levels are made by a procedure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.core.spaces import Discrete, Space
from penstock.errors import DataError, suggestion
from penstock_imitation.envs.benchmark import Benchmark, Context, Factory, demand, image_space
from penstock_imitation.envs.config import EnvConfig

if TYPE_CHECKING:
    import gymnasium

SIZE, ACTIONS = 64, 15
TASKS = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot"),
    *("heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)


class Procgen(Benchmark):
    """A task is the name of a game: `coinrun`. Levels 0 to 99 of the easy distribution.

    Observations are uint8 `[3 * n, 64, 64]` with `procgen_frame_stack` n, oldest frame first, black before an episode's
    first frame. A game starts again without a reset when it is over, so its last picture cannot be had: an episode's
    last observation shows the picture before it again. The library's builds are for Python 3.7 to 3.10, so here it runs
    where somebody has built it.
    """

    name: ClassVar[str] = "procgen"
    context: ClassVar[Context] = "spawn"

    def tasks(self) -> tuple[str, ...]:
        """Sixteen games."""
        return TASKS

    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """Images, and 15 actions."""
        _check(config.task_name)
        return image_space(3 * config.procgen_frame_stack, SIZE, SIZE), Discrete(ACTIONS)

    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """Raises `DataError` for an unknown game, `MissingExtraError` without the package procgen."""
        _check(config.task_name)
        demand(
            ["procgen", "gymnasium"],
            "no registry has a build of procgen for Python 3.11 or later: build it from its source "
            "(the repository openai/procgen), with gym3; its demonstrations are readable without it",
        )
        return Factory("penstock_imitation.envs.procgen_env:build", config)


def _check(task: str) -> None:
    if task not in TASKS:
        raise DataError(
            f"unknown task {task!r} of the benchmark 'procgen'{suggestion(task, TASKS)}; there are {', '.join(TASKS)}"
        )
