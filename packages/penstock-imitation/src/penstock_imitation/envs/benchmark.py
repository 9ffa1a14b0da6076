"""One benchmark: its tasks, what their observations are, and how one environment of it is built."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from penstock.containers.pickle import ColorSpace
from penstock.core.spaces import Box, Space
from penstock.errors import MissingExtraError
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


def demand(modules: Iterable[str], how: str) -> None:
    """Raise `MissingExtraError` unless all modules can be found; `how` tells the user what to do about it."""
    missing = [module for module in modules if module not in sys.modules and importlib.util.find_spec(module) is None]
    if missing:
        names, verb = ", ".join(missing), "is" if len(missing) == 1 else "are"
        raise MissingExtraError(f"{names} {verb} not installed; {how}")


Context = Literal["fork", "spawn", "forkserver"]


class Benchmark(ABC):
    """A family of environments. Stateless; its libraries are imported in `factory`'s product alone.

    `context` is how subprocesses have to be started: `"spawn"` wherever there is an OpenGL context, for those do not
    survive a fork. `options` are the keys of `EnvConfig.benchmark_options` that it takes; any other is refused.

    Example:
        >>> from penstock_imitation.envs import named
        >>> benchmark = named("toy")
        >>> isinstance(benchmark, Benchmark), "reach" in benchmark.tasks()
        (True, True)
    """

    name: ClassVar[str]
    context: ClassVar[Context] = "spawn"
    options: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def tasks(self) -> tuple[str, ...]:
        """The task names whose spaces are known without building anything."""

    @abstractmethod
    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """Observation and action space after preprocessing, of one environment, without building it.

        Raises `DataError` for a task whose spaces are not known; the message lists the known tasks.

        Args:
            config: Benchmark, task and preprocessing.
        """

    def color_space(self, config: EnvConfig) -> ColorSpace:
        """Meaning of the channels of observations.

        Args:
            config: Benchmark, task and preprocessing.
        """
        return ColorSpace.RGB

    @abstractmethod
    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """A picklable function that builds one environment with all preprocessing, frame stack included.

        Raises `MissingExtraError` (naming the extra, or what no registry has) if the benchmark's library is missing.

        Args:
            config: Benchmark, task and preprocessing.
        """
