"""The environments of the benchmark `toy`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from penstock.core.arrays import ImageArray
from penstock.core.spaces import Box, Discrete
from penstock_imitation.envs import toy
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.toy_scene import CORAL, FLOORS, GOLD, TEAL, WHITE, Point, Shape, draw
from penstock_imitation.envs.wrappers import FrameStack

Step = tuple[ImageArray, float, bool, bool, dict[str, Any]]


class ToyEnv(gymnasium.Env[ImageArray, Any]):
    """One task of the benchmark `toy`; a seed decides all of it. `render` draws the same scene larger."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's type)

    def __init__(self, task: str, render_mode: str | None = None) -> None:
        self._name = task
        self._task = toy.task(task)
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, toy.SIZE, toy.SIZE), np.uint8)
        match self._task.actions:
            case Discrete(n=n):
                self.action_space = gymnasium.spaces.Discrete(n)
            case Box(low=low, high=high):
                self.action_space = gymnasium.spaces.Box(low, high, low.shape, np.float32)
            case other:
                raise TypeError(f"a task with actions {other}")
        self._agent = self._target = self._box = self._heading = np.zeros(2)
        self._floor = self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ImageArray, dict[str, Any]]:
        """Place all objects again, apart from each other."""
        super().reset(seed=seed)
        draw_point = self.np_random.uniform
        self._steps, self._floor = 0, int(self.np_random.integers(len(FLOORS)))
        self._target = draw_point(0.18, 0.82, 2)
        self._box = _apart(lambda: draw_point(0.32, 0.68, 2), [self._target], 0.25)
        others = [self._target, self._box] if self._name == "push" else [self._target]
        self._agent = _apart(lambda: draw_point(0.12, 0.88, 2), others, 0.3 if self._name != "push" else 0.2)
        angle = draw_point(0, 2 * np.pi)
        self._heading = np.array([np.cos(angle), np.sin(angle)])
        return self._picture(toy.SIZE), self._info()

    def step(self, action: Any) -> Step:
        """Move the agent, then what it pushes or chases."""
        self._steps += 1
        wanted = toy.MOVES[action] if self._name != "push" else np.clip(np.asarray(action, np.float64), -1, 1)
        self._agent = _inside(self._agent + self._task.speed * wanted, toy.AGENT)
        if self._name == "push":
            self._shove()
        elif self._name == "chase":
            self._flee()
        done = self._done()
        truncated = self._steps >= self._task.limit and not done
        return self._picture(toy.SIZE), 1.0 if done else -0.01, done, truncated, self._info()

    def render(self) -> Any:
        """`[256, 256, 3]` uint8."""
        return np.ascontiguousarray(self._picture(256).transpose(1, 2, 0))

    def _shove(self) -> None:
        """What overlaps the agent moves out of its way; at a wall, the agent has to give way."""
        reach, apart = toy.AGENT + toy.BOX, self._box - self._agent
        gap = float(np.hypot(*apart))
        if gap < reach:
            along = apart / gap if gap > 0 else np.array([1.0, 0.0])
            self._box = _inside(self._agent + reach * along, toy.BOX)
            self._agent = _inside(self._box - reach * along, toy.AGENT)

    def _flee(self) -> None:
        """On in its direction, turned a little by chance and away from the agent, and off the walls."""
        away = self._target - self._agent
        turn = self._heading + 0.35 * away / max(float(np.hypot(*away)), 1e-9) + self.np_random.normal(0, 0.25, 2)
        self._heading = turn / max(float(np.hypot(*turn)), 1e-9)
        wanted = self._target + 0.6 * self._task.speed * self._heading
        self._target = _inside(wanted, toy.PREY)
        self._heading = np.where(self._target == wanted, self._heading, -self._heading)

    def _done(self) -> bool:
        mover = self._box if self._name == "push" else self._agent
        near = toy.AGENT + toy.PREY if self._name == "chase" else 0.08
        return bool(np.hypot(*(mover - self._target)) < near)

    def _info(self) -> dict[str, Any]:
        places = {"agent": self._agent, "target": self._target}
        if self._name == "push":
            places["box"] = self._box
        return {**{name: place.astype(np.float32) for name, place in places.items()}, "floor": self._floor}

    def _picture(self, size: int) -> ImageArray:
        agent = Shape("disc", self._agent, toy.AGENT, WHITE)
        if self._name == "chase":
            return draw([Shape("disc", self._target, toy.PREY, TEAL), agent], self._floor, size)
        ring = Shape("ring", self._target, toy.RING, GOLD)
        box = [Shape("square", self._box, toy.BOX, CORAL)] if self._name == "push" else []
        return draw([ring, *box, agent], self._floor, size)


def build(config: EnvConfig) -> gymnasium.Env[Any, Any]:
    """One environment of a configuration, with its frame stack."""
    env = ToyEnv(config.task_name)
    return env if config.toy_frame_stack == 1 else FrameStack(env, config.toy_frame_stack, start="repeat")


def _inside(place: Point, radius: float) -> Point:
    return np.clip(place, radius, 1 - radius)


def _apart(draw_point: Any, others: list[Point], distance: float) -> Point:
    """A point that keeps its distance from the others; any of the plane's places does within a few draws."""
    while True:
        point = draw_point()
        if all(np.hypot(*(point - other)) >= distance for other in others):
            return point
