"""The benchmark `gymnasium`: every environment that Gymnasium can make by id, as states or as pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.core.spaces import Box, Discrete, Space
from penstock.errors import DataError, require
from penstock_imitation.envs.benchmark import Benchmark, Context, Factory, image_space
from penstock_imitation.envs.config import EnvConfig

if TYPE_CHECKING:
    import gymnasium

_PI = np.pi


def _box(low: list[float], high: list[float]) -> Box:
    return Box(np.array(low, np.float32), np.array(high, np.float32), np.dtype(np.float32))


_CART = [4.8, np.inf, 24 * _PI / 180, np.inf]
_HILL = _box([-1.2, -0.07], [0.6, 0.07])
_LINKS = [1.0, 1.0, 1.0, 1.0, 4 * _PI, 9 * _PI]

# id -> its space of states, its action space, height and width of its pictures: classic control, by heart
CLASSIC: dict[str, tuple[Box, Space, tuple[int, int]]] = {
    "CartPole-v1": (_box([-x for x in _CART], _CART), Discrete(2), (400, 600)),
    "Pendulum-v1": (_box([-1, -1, -8], [1, 1, 8]), _box([-2], [2]), (500, 500)),
    "MountainCar-v0": (_HILL, Discrete(3), (400, 600)),
    "MountainCarContinuous-v0": (_HILL, _box([-1], [1]), (400, 600)),
    "Acrobot-v1": (_box([-x for x in _LINKS], _LINKS), Discrete(3), (500, 500)),
}


class Gymnasium(Benchmark):
    """Any environment of Gymnasium; `task_name` is its id.

    Observations are the environment's own. With `gymnasium_pixels` they are what it draws, uint8 channels first, a
    stack of `gymnasium_frame_stack` (the first frame repeated), each side `gymnasium_size` pixels, or the number that
    the environment has. Nothing needs a screen: unless they are set, `SDL_VIDEODRIVER` becomes `dummy` and `MUJOCO_GL`
    becomes `egl` where pictures are asked for.
    """

    name: ClassVar[str] = "gymnasium"
    context: ClassVar[Context] = "spawn"

    def tasks(self) -> tuple[str, ...]:
        """Classic control; other ids can be built, but their spaces are not known before."""
        return tuple(CLASSIC)

    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """Those of classic control."""
        _check(config)
        if config.task_name not in CLASSIC:
            raise DataError(
                f"the spaces of {config.task_name!r} are known for {', '.join(CLASSIC)} alone; of others one has "
                "to be built: spaces_of(env_cfg, build=True)"
            )
        state, action, picture = CLASSIC[config.task_name]
        if not config.gymnasium_pixels:
            return state, action
        height, width = picture if config.gymnasium_size is None else (config.gymnasium_size,) * 2
        return image_space(3 * config.gymnasium_frame_stack, height, width), action

    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """Raises `DataError` for an id that Gymnasium does not know, `MissingExtraError` without Gymnasium."""
        _check(config)
        require("gymnasium", "gymnasium")
        import gymnasium

        try:
            env_spec = gymnasium.spec(config.task_name)
        except gymnasium.error.Error as error:
            raise DataError(
                f"expected the id of an environment of Gymnasium, got {config.task_name!r}: {error}"
            ) from None
        if config.gymnasium_pixels and env_spec.id in CLASSIC:
            require("pygame", "classic")
        return Factory("penstock_imitation.envs.gymnasium_build:build", config)


def _check(config: EnvConfig) -> None:
    if not config.gymnasium_pixels and (config.gymnasium_size is not None or config.gymnasium_frame_stack != 1):
        raise DataError(
            "expected env_cfg.gymnasium_size and env_cfg.gymnasium_frame_stack together with env_cfg.gymnasium_pixels: "
            f"pictures have a size and are stacked; got {config.gymnasium_size} and {config.gymnasium_frame_stack}"
        )
