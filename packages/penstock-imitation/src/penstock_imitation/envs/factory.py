"""A factory of environments that is plain data: it can be pickled, and imports what it needs where it is called."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.spaces import Box
from penstock_imitation.envs.config import EnvConfig

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class Factory:
    """Builds one environment: calls the function that `builder` names, `"module:function"`, with the configuration.

    The module (and with it Gymnasium and the simulator) is imported where the factory is called: in the process that
    will step the environment. So benchmarks answer questions about spaces without any of these.

    Args:
        builder: Function that builds the environment, as `"module:function"`.
        config: Benchmark, task and preprocessing.

    Example:
        >>> build = Factory("penstock_imitation.envs.toy_env:build", EnvConfig(benchmark_name="toy", task_name="reach"))
        >>> build().reset(seed=0)[0].shape
        (3, 32, 32)
    """

    builder: str
    config: EnvConfig

    def __call__(self) -> gymnasium.Env[Any, Any]:
        module, _, function = self.builder.partition(":")
        return getattr(importlib.import_module(module), function)(self.config)


def image_space(*shape: int) -> Box:
    """Return the space of uint8 images of a shape, 0 to 255 everywhere.

    Args:
        shape: Sizes of the axes.

    Returns:
        The space.

    Example:
        >>> image_space(12, 96, 96).shape
        (12, 96, 96)
    """
    return Box(np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8), np.dtype(np.uint8))
