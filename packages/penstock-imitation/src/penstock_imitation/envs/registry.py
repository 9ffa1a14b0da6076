"""Benchmarks by name, loaded when first asked for; and what is known of a task without building anything."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.containers.pickle import ColorSpace
from penstock.core.spaces import Space
from penstock.errors import DataError, require, suggestion
from penstock_imitation.envs.benchmark import Benchmark
from penstock_imitation.envs.config import EnvConfig

if TYPE_CHECKING:
    import gymnasium

GROUP = "penstock.benchmarks"

# name -> module:class; a module is imported when its benchmark is asked for
_SHIPPED = {
    "gymnasium": "penstock_imitation.envs.gymnasium_envs:Gymnasium",
    "toy": "penstock_imitation.envs.toy:Toy",
}
_registered: dict[str, Benchmark] = {}


def register(benchmark: Benchmark) -> None:
    """Make a benchmark of your own known by its `name`, in this process.

    An entry point in the group `penstock.benchmarks` (its name the benchmark's, its value the class) does it for every
    process.

    Args:
        benchmark: The benchmark.

    Raises:
        DataError: The name is taken, or it is no `Benchmark`.

    Example:
        >>> from penstock_imitation.envs.toy import Toy
        >>> class Mine(Toy):
        ...     name = "mine"
        >>> register(Mine())
        >>> "mine" in available()
        True
        >>> unregister("mine")
    """
    if not isinstance(benchmark, Benchmark):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"expected a Benchmark to register, got {benchmark!r}")
    if benchmark.name in available():
        raise DataError(
            f"expected a name that is not taken yet, got {benchmark.name!r}; there are {', '.join(available())}"
        )
    _registered[benchmark.name] = benchmark


def unregister(name: str) -> None:
    """Forget a benchmark that `register` made known.

    Args:
        name: Name of the benchmark.

    Raises:
        DataError: No benchmark of that name was registered.

    Example:
        >>> from penstock_imitation.envs.toy import Toy
        >>> class Mine(Toy):
        ...     name = "mine"
        >>> register(Mine())
        >>> unregister("mine")
        >>> "mine" in available()
        False
    """
    if name not in _registered:
        raise DataError(f"expected the name of a registered benchmark, got {name!r}{suggestion(name, _registered)}")
    del _registered[name]


def available() -> tuple[str, ...]:
    """Return the names of all benchmarks: shipped, registered, and of entry points. Imports none of them.

    Returns:
        Names.

    Example:
        >>> "toy" in available()
        True
    """
    return tuple(dict.fromkeys([*_SHIPPED, *_registered, *(point.name for point in _points())]))


def named(name: str) -> Benchmark:
    """Return the benchmark of a name.

    Args:
        name: Name of the benchmark.

    Returns:
        The benchmark.

    Raises:
        DataError: The name is unknown; the message suggests similar ones.

    Example:
        >>> named("toy").name
        'toy'
    """
    if name in _registered:
        return _registered[name]
    if name in _SHIPPED:
        module, _, kind = _SHIPPED[name].partition(":")
        return getattr(importlib.import_module(module), kind)()
    for point in _points():
        if point.name == name:
            return _from_point(point)
    raise DataError(f"unknown benchmark {name!r}{suggestion(name, available())}; there are {', '.join(available())}")


def resolve(env_cfg: EnvConfig | Mapping[str, Any]) -> tuple[Benchmark, EnvConfig]:
    """The benchmark that a configuration names, and the configuration, which may be a plain mapping of its keys."""
    config = env_cfg if isinstance(env_cfg, EnvConfig) else EnvConfig.from_mapping(env_cfg)
    benchmark = named(config.benchmark_name)
    for option in config.benchmark_options:
        if option not in benchmark.options:
            known = f"it takes {', '.join(benchmark.options)}" if benchmark.options else "it takes none"
            raise DataError(
                f"unknown option {option!r} of the benchmark {benchmark.name!r} in env_cfg.benchmark_options"
                f"{suggestion(option, benchmark.options)}; {known}"
            )
    return benchmark, config


def spaces_of(env_cfg: EnvConfig | Mapping[str, Any], *, build: bool = False) -> tuple[Space, Space]:
    """Return observation and action space of one environment, after preprocessing, without building it.

    With `build`, an environment is built and closed again if the benchmark does not know the task's spaces. Cost:
    microseconds to milliseconds; with `build` the cost of the environment.

    Args:
        env_cfg: Keys of `EnvConfig`, as an object or a mapping.
        build: Whether to build an environment if the benchmark does not know the spaces. The default is False.

    Returns:
        Observation space and action space.

    Raises:
        DataError: The benchmark is unknown, or the spaces of the task are.

    Example:
        >>> spaces_of({"benchmark_name": "toy", "task_name": "reach"})[1]
        Discrete(n=5, start=0)
    """
    benchmark, config = resolve(env_cfg)
    if build and config.task_name not in benchmark.tasks():
        return _built_spaces(benchmark.factory(config))
    return benchmark.spaces(config)


def color_space_of(env_cfg: EnvConfig | Mapping[str, Any]) -> ColorSpace:
    """Return the meaning of the channels of observations, without building an environment.

    Args:
        env_cfg: Keys of `EnvConfig`, as an object or a mapping.

    Returns:
        The colour space.

    Example:
        >>> color_space_of({"benchmark_name": "toy", "task_name": "reach"})
        <ColorSpace.RGB: 'RGB'>
    """
    benchmark, config = resolve(env_cfg)
    return benchmark.color_space(config)


def _built_spaces(factory: Callable[[], gymnasium.Env[Any, Any]]) -> tuple[Space, Space]:
    """The spaces of the environment that `factory` builds; it is closed again."""
    convert = require("penstock.recording.spaces", "gymnasium").from_gymnasium
    env = factory()
    try:
        return convert(env.observation_space), convert(env.action_space)
    finally:
        env.close()


@cache
def _points() -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=GROUP))


@cache
def _from_point(point: importlib.metadata.EntryPoint) -> Benchmark:
    entry = point.load()
    benchmark = entry() if isinstance(entry, type) else entry
    if not isinstance(benchmark, Benchmark) or benchmark.name != point.name:
        raise DataError(
            f"expected the entry point {point.name!r} to name the Benchmark of that name, got {benchmark!r}"
        )
    return benchmark
