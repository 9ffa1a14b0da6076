"""The benchmark `toy`: three small tasks on a plane, seen as pictures of 32 x 32 pixels. Needs no simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, Float32Array, FloatArray, IntArray
from penstock.core.spaces import Box, Discrete, Space
from penstock.errors import DataError, require, suggestion
from penstock_imitation.envs.benchmark import Benchmark, Context, Factory, image_space
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.toy_scene import CORAL, GOLD, TEAL, WHITE, find

if TYPE_CHECKING:
    import gymnasium

SIZE = 32
# Radii.
AGENT = 0.085
BOX = 0.09
RING = 0.12
PREY = 0.065
Expert = Callable[[ByteArray], AnyArray]


@dataclass(frozen=True)
class ToyTask:
    """A task: its action space, how many steps an episode has at most, how far the agent moves in one."""

    actions: Space
    limit: int
    speed: float


TASKS = {
    "reach": ToyTask(Discrete(5), 50, 0.07),
    "push": ToyTask(Box(np.full(2, -1.0), np.full(2, 1.0), np.dtype(np.float32)), 100, 0.05),
    "chase": ToyTask(Discrete(9), 80, 0.06),
}

_HALF = np.sqrt(0.5)
# meaning of action `a` of a discrete task: rest, right, left, down, up, and the diagonals
MOVES = np.array(
    [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [_HALF, _HALF], [_HALF, -_HALF], [-_HALF, _HALF], [-_HALF, -_HALF]]
)


class Toy(Benchmark):
    """`reach` a ring (5 actions), `push` a box into it (2 forces), `chase` something that flees (9 actions).

    Observations are uint8 `[3, 32, 32]`, or `[3 * n, 32, 32]` with `toy_frame_stack` n (the first frame repeated).
    An episode terminates when the task is done, with a reward of 1 (each other step: -0.01), and is truncated after
    50, 100 or 80 steps. Infos have the true positions, `[2]` float32, x to the right and y down, from 0 to 1: `agent`
    and `target`, for `push` also `box`; and the number of the `floor`, which means nothing.
    """

    name: ClassVar[str] = "toy"
    context: ClassVar[Context] = "spawn"

    def tasks(self) -> tuple[str, ...]:
        """reach, push, chase."""
        return tuple(TASKS)

    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """Pictures, and what the task takes."""
        return image_space(3 * config.toy_frame_stack, SIZE, SIZE), task(config.task_name).actions

    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """Raises `DataError` for an unknown task, `MissingExtraError` without Gymnasium."""
        task(config.task_name)
        require("gymnasium", "gymnasium")
        return Factory("penstock_imitation.envs.toy_env:build", config)


def task(name: str) -> ToyTask:
    if name not in TASKS:
        raise DataError(f"unknown task {name!r} of the benchmark 'toy'{suggestion(name, TASKS)}; there are {[*TASKS]}")
    return TASKS[name]


def expert(name: str) -> Expert:
    """Return a scripted policy that solves a task nearly always. It sees only the picture, so it fits any rollout.

    The policy takes observations uint8 `[..., 3 * n, 32, 32]` (the last frame counts), of one environment or of a
    batch, and returns actions.

    Args:
        name: Name of the task: `"reach"`, `"push"` or `"chase"`.

    Returns:
        The policy, a function of observations.

    Raises:
        DataError: The task is unknown.

    Example:
        >>> import gymnasium
        >>> from penstock_imitation.envs.toy_env import ToyEnv
        >>> from penstock.recording.rollout import rollout
        >>> rollout(ToyEnv("reach"), expert("reach"), episodes=3, seed=0).returns[0] > 0.5
        True
    """
    task(name)
    return _EXPERTS[name]


def _discrete(observation: ByteArray, color: tuple[int, int, int], moves: int) -> IntArray:
    """The move that leads closest to what has that colour; rest if it cannot be seen."""
    frame = observation[..., -3:, :, :]
    away = np.nan_to_num(find(frame, color) - find(frame, WHITE))
    speed = TASKS["reach" if moves == 5 else "chase"].speed
    left = np.linalg.norm(away[..., None, :] - speed * MOVES[:moves], axis=-1)
    return left.argmin(axis=-1)


def _push(observation: ByteArray) -> Float32Array:
    """Walk around the box to the side away from the ring, then straight through it."""
    frame = observation[..., -3:, :, :]
    agent, box, ring = (find(frame, color) for color in (WHITE, CORAL, GOLD))
    back = _unit(np.nan_to_num(box - ring))
    side = np.stack([-back[..., 1], back[..., 0]], axis=-1)
    reach = AGENT + BOX
    behind, beside = (((agent - box) * axis).sum(axis=-1, keepdims=True) for axis in (back, side))
    turn = np.where(beside < 0, -1.0, 1.0)
    push = -back - 4.0 * beside / reach * side
    around = turn * side * (1.4 * reach - np.abs(beside)) / reach + 0.6 * back
    approach = box + 1.25 * reach * back - agent
    ready = (behind > 0.5 * reach) & (np.abs(beside) < 0.3 * reach)
    clear = (behind > 0.6 * reach) | (np.abs(beside) > 1.2 * reach)
    way = np.where(ready, push, np.where(clear, approach, around))
    return np.clip(np.nan_to_num(_unit(way)), -1, 1).astype(np.float32)


def _unit(vectors: FloatArray) -> FloatArray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


_EXPERTS: dict[str, Expert] = {
    "reach": lambda observation: _discrete(observation, GOLD, 5),
    "push": _push,
    "chase": lambda observation: _discrete(observation, TEAL, 9),
}
