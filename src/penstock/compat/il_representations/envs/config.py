"""The current configuration: what functions take that are called without one, as Sacred's ingredients did it.

`configured` sets it for a block. With Sacred (extra `sacred`), `env_cfg_ingredient`, `venv_opts_ingredient` and
`env_data_ingredient` are ingredients: in a run of an experiment that has them, the current configuration is the run's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from penstock.envs.config import PARTS, Config, EnvConfig, EnvDataConfig, VecEnvOptions
from penstock.envs.sacred import ingredients

__all__ = ["Config", "EnvConfig", "EnvDataConfig", "VecEnvOptions", "configured", "current"]

_CURRENT: ContextVar[Config] = ContextVar("il_representations_config")


def current() -> Config:
    """The configuration of the innermost `configured` block; outside of any, that of Sacred's run, or the defaults.

    >>> current().env_cfg.task_name
    'finger-spin'
    """
    return _CURRENT.get(None) or _of_sacred() or Config()


@contextmanager
def configured(
    env_cfg: EnvConfig | Mapping[str, Any] | None = None,
    venv_opts: VecEnvOptions | Mapping[str, Any] | None = None,
    env_data: EnvDataConfig | Mapping[str, Any] | None = None,
) -> Generator[Config]:
    """Within the block, the current configuration has these keys; mappings update it recursively.

    Each thread, and each task of asyncio, has a configuration of its own. Raises `DataError` for an unknown key, naming
    the one that was probably meant.

    >>> with configured({"task_name": "reacher-easy"}), configured({"dm_control_frame_stack": 1}) as config:
    ...     config.env_cfg.task_name, current().env_cfg.dm_control_frame_stack
    ('reacher-easy', 1)
    """
    given = {"env_cfg": env_cfg, "venv_opts": venv_opts, "env_data": env_data}
    parts = {name: part.to_mapping() if isinstance(part, PARTS) else part for name, part in given.items()}
    token = _CURRENT.set(current().updated({name: part for name, part in parts.items() if part is not None}))
    try:
        yield current()
    finally:
        _CURRENT.reset(token)


def __getattr__(name: str) -> Any:
    section = name.removesuffix("_ingredient")
    if section == name or section not in Config.key_names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _sacred()[section][0]


@cache
def _sacred() -> dict[str, tuple[Any, Callable[[], Mapping[str, Any]]]]:
    """By section: the ingredient, which is one in all of the process, and what reads its configuration in a run."""

    def captured(ingredient: Any) -> Callable[[], Mapping[str, Any]]:
        @ingredient.capture
        def config_of(_config: Mapping[str, Any]) -> Mapping[str, Any]:
            return _config

        return config_of

    return {part.section: (made, captured(made)) for part, made in zip(PARTS, ingredients(), strict=True)}


def _of_sacred() -> Config | None:
    """The configuration of the run, if the ingredients are used in one."""
    if not _sacred.cache_info().currsize:
        return None
    found = {section: read() for section, (_, read) in _sacred().items()}
    return (
        Config.from_mapping({section: config for section, config in found.items() if config})
        if any(found.values())
        else None
    )
