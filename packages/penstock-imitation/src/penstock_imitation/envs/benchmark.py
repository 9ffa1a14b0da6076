"""One benchmark: its tasks, what their observations are, and how one environment of it is built."""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.containers.pickle import ColorSpace
from penstock.core.spaces import Space
from penstock.errors import MissingExtraError

if TYPE_CHECKING:
    import gymnasium

    from penstock_imitation.envs.config import EnvConfig


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
