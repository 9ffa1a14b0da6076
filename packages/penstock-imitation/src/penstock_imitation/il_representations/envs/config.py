"""The current configuration: what functions take that are called without one, as Sacred's ingredients did it.

`configured` sets it for a block. With `penstock-imitation[sacred]`, `env_cfg_ingredient`, `venv_opts_ingredient` and
`env_data_ingredient` are ingredients: while a run of an experiment that has them is under way, the current
configuration is the run's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from penstock_imitation.envs.config import PARTS, Config, EnvConfig, EnvDataConfig, VecEnvOptions
from penstock_imitation.envs.sacred import ingredients

__all__ = ["Config", "EnvConfig", "EnvDataConfig", "VecEnvOptions", "configured", "current"]

_CURRENT: ContextVar[Config] = ContextVar("il_representations_config")


def current() -> Config:
    """Return the configuration of the innermost `configured` block, else of Sacred's run, else the defaults."""
    return _CURRENT.get(None) or _of_sacred() or Config()


@contextmanager
def configured(
    env_cfg: EnvConfig | Mapping[str, Any] | None = None,
    venv_opts: VecEnvOptions | Mapping[str, Any] | None = None,
    env_data: EnvDataConfig | Mapping[str, Any] | None = None,
) -> Generator[Config]:
    """Change the current configuration within the block; mappings update it recursively.

    Each thread, and each asyncio task, has its own configuration.
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
    return _sacred()[section]


@dataclass
class _Run:
    """A run of Sacred, and the configuration that each of our ingredients has in it."""

    run: Any
    sections: dict[str, Mapping[str, Any]]


_RUNS: list[_Run] = []  # one begun within another is behind it


@cache
def _sacred() -> dict[str, Any]:
    """The ingredients by section, which are one in all of the process. Each tells of a run before its main function.

    Functions that Sacred captures keep the configuration of the last run that was made, even of one that failed or has
    ended. Hence a run's is read when it begins, and forgotten when it no longer runs.
    """

    def remembered(section: str, ingredient: Any) -> Any:
        @ingredient.pre_run_hook
        def begin(_config: Mapping[str, Any], _run: Any) -> None:
            runs = _running()
            if not runs or runs[-1].run is not _run:
                runs.append(_Run(_run, {}))
            runs[-1].sections[section] = _config

        return ingredient

    return {
        part.section: remembered(part.section, section_ingredient)
        for part, section_ingredient in zip(PARTS, ingredients(), strict=True)
    }


def _running() -> list[_Run]:
    """The runs under way, the innermost last."""
    _RUNS[:] = [each for each in _RUNS if each.run.status == "RUNNING"]
    return _RUNS


def _of_sacred() -> Config | None:
    """The configuration of the innermost run that has our ingredients and has not ended."""
    runs = _running()
    return Config.from_mapping(runs[-1].sections) if runs else None
