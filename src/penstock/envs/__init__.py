"""Environments by benchmark name: configuration, spaces, construction and vectorisation.

Importing this package loads nothing else; `load_vec_env` needs Gymnasium, the rest does not.

>>> from penstock.envs import EnvConfig, spaces_of
>>> observation, action = spaces_of(EnvConfig(benchmark_name="toy", task_name="push"))
>>> observation.shape, action.shape
((3, 32, 32), (2,))
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from penstock.errors import require

if TYPE_CHECKING:
    from penstock.envs.benchmark import Benchmark
    from penstock.envs.config import Config, EnvConfig, EnvDataConfig, VecEnvOptions
    from penstock.envs.factory import Factory, image_space
    from penstock.envs.paths import demo_paths, find_processed, processed_dir
    from penstock.envs.registry import available, color_space_of, named, register, spaces_of, unregister
    from penstock.envs.toy import expert
    from penstock.envs.updates import update
    from penstock.envs.vector import env_seed, final_observations, load_vec_env

__all__ = [
    "Benchmark",
    "Config",
    "EnvConfig",
    "EnvDataConfig",
    "Factory",
    "VecEnvOptions",
    "available",
    "color_space_of",
    "demo_paths",
    "env_seed",
    "expert",
    "final_observations",
    "find_processed",
    "image_space",
    "load_vec_env",
    "named",
    "processed_dir",
    "register",
    "spaces_of",
    "unregister",
    "update",
]

_MODULES = {
    "benchmark": ("Benchmark",),
    "config": ("Config", "EnvConfig", "EnvDataConfig", "VecEnvOptions"),
    "factory": ("Factory", "image_space"),
    "paths": ("demo_paths", "find_processed", "processed_dir"),
    "registry": ("available", "color_space_of", "named", "register", "spaces_of", "unregister"),
    "toy": ("expert",),
    "updates": ("update",),
    "vector": ("env_seed", "final_observations", "load_vec_env"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'penstock.envs' has no attribute {name!r}")
    if _HOME[name] == "vector":
        require("gymnasium", "gymnasium")
    value = globals()[name] = pkgutil.resolve_name(f"penstock.envs.{_HOME[name]}:{name}")
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
