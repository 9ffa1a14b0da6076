"""The environments of the benchmark `atari`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from penstock.core.arrays import ImageArray
from penstock.errors import DataError, require
from penstock_imitation.envs.atari import SIZE, STACK
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.wrappers import FrameStack, gray, shrink

Played = tuple[float, bool, bool, dict[str, Any]]  # reward, terminated, truncated, info

NOOP = 0
FIRE = 1
SECOND = 2
NOOPS, REPEAT = 30, 4


class AtariEnv(gymnasium.Env[ImageArray, Any]):
    """One game, a frame `[1, 84, 84]` an observation; it behaves as Stable-Baselines3's `AtariWrapper`.

    The emulator draws only the two frames of a step that are looked at. One difference: a seed begins a new game even
    where a life was lost.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, task: str) -> None:
        ale = require("ale_py", "atari", "penstock-imitation")
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
        gymnasium.register_envs(ale)
        options: dict[str, Any] = {"frameskip": 1, "obs_type": "ram", "render_mode": "rgb_array"}
        self._game: Any = gymnasium.make(task, disable_env_checker=True, **options).unwrapped
        self._ale = self._game.ale
        meanings = self._game.get_action_meanings()
        self._waits = meanings[FIRE] == "FIRE" and len(meanings) > SECOND
        self._screens = np.zeros((2, *self._ale.getScreenDims(), 3), np.uint8)
        self._lives, self._over = 0, True
        self.render_mode = "rgb_array"
        self.action_space = self._game.action_space
        self.observation_space = gymnasium.spaces.Box(0, 255, (1, SIZE, SIZE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ImageArray, dict[str, Any]]:
        """Begin a game, or go on after a lost life."""
        picture, info = self._resume() if seed is None and not self._over else self._begin(seed)
        if self._waits:
            for button in (FIRE, SECOND):
                _, terminated, truncated, info = self._live(button)
                picture = self._brighter()
                if terminated or truncated:
                    self._resume() if not self._over else self._begin(seed)
        return self._small(picture), info

    def step(self, action: Any) -> tuple[ImageArray, float, bool, bool, dict[str, Any]]:
        """Four frames with one action."""
        if not self.action_space.contains(action):
            raise DataError(f"expected an action in {self.action_space}, got {action!r}")
        reward, terminated, truncated, info = self._live(int(action))
        return self._small(self._brighter()), float(np.sign(reward)), terminated, truncated, info

    def render(self) -> Any:
        """`[height, width, 3]` uint8: the console's screen."""
        return self._ale.getScreenRGB()

    def _begin(self, seed: int | None) -> tuple[ImageArray, dict[str, Any]]:
        """A new game, and nothing done in it for a while."""
        self._over = False
        _, info = self._game.reset(seed=seed)
        for _ in range(int(self._game.np_random.integers(1, NOOPS + 1))):
            _, _, terminated, truncated, info = self._game.step(NOOP)
            if terminated or truncated:
                _, info = self._game.reset(seed=seed)
        self._lives = self._ale.lives()
        return self._ale.getScreenRGB(), info

    def _resume(self) -> tuple[ImageArray, dict[str, Any]]:
        """The same game, with a life less."""
        _, terminated, truncated, info = self._skip(NOOP)
        if terminated or truncated:
            return self._begin(None)
        self._lives = self._ale.lives()
        return self._brighter(), info

    def _live(self, action: int) -> Played:
        """Frames of one action; a lost life terminates. Some games have no lives for some frames before their end."""
        reward, terminated, truncated, info = self._skip(action)
        self._over = terminated or truncated
        lives = self._ale.lives()
        lost = 0 < lives < self._lives
        self._lives = lives
        return reward, terminated or lost, truncated, info

    def _skip(self, action: int) -> Played:
        reward = 0.0
        terminated = False
        truncated = False
        info: dict[str, Any] = {}
        for frame in range(REPEAT):
            _, gained, terminated, truncated, info = self._game.step(action)
            reward += gained
            if frame >= REPEAT - 2:
                self._ale.getScreenRGB(self._screens[frame - REPEAT + 2])
            if terminated or truncated:
                break
        return reward, terminated, truncated, info

    def _brighter(self) -> ImageArray:
        """Sprites may be drawn in every second frame only."""
        return np.maximum(*self._screens)

    def _small(self, picture: ImageArray) -> ImageArray:
        return shrink(gray(picture), SIZE, SIZE)[None]


def build(config: EnvConfig) -> gymnasium.Env[Any, Any]:
    """One environment of a configuration, with its frame stack."""
    return FrameStack(AtariEnv(config.task_name), STACK, start="zero")
