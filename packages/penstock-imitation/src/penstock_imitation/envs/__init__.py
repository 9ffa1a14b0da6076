"""Environments by benchmark name: configuration, spaces, construction and vectorisation.

Importing this package loads nothing else; `load_vec_env` needs Gymnasium, the rest does not.

>>> from penstock_imitation.envs import EnvConfig, spaces_of
>>> observation, action = spaces_of(EnvConfig(benchmark_name="toy", task_name="push"))
>>> observation.shape, action.shape
((3, 32, 32), (2,))
"""

from __future__ import annotations

from typing import Any, cast

import lazy_loader

from penstock.errors import require

_load, __dir__, __all__ = cast("tuple[Any, Any, list[str]]", lazy_loader.attach_stub(__name__, __file__))


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name == "gymnasium":
            require("gymnasium", "gymnasium")
        raise
