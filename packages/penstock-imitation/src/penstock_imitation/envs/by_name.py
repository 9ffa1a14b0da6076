"""Environments for `penstock record`: `benchmark/task`, with settings such as `env_cfg.toy_frame_stack=3`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock_imitation.envs.benchmark import Benchmark
from penstock_imitation.envs.config import Config, EnvConfig
from penstock_imitation.envs.registry import available, resolve

if TYPE_CHECKING:
    import gymnasium

__all__ = ["available", "described", "make"]


def make(env: str, settings: Sequence[str]) -> gymnasium.Env[Any, Any]:
    benchmark, config = _resolve(env, settings)
    return benchmark.factory(config)()


def described(env: str, settings: Sequence[str]) -> dict[str, Any]:
    """Return the configuration and the meaning of channels, for the metadata of a dataset."""
    benchmark, config = _resolve(env, settings)
    return {"env_cfg": config.to_mapping(), "color_space": benchmark.color_space(config).value}


def _resolve(env: str, settings: Sequence[str]) -> tuple[Benchmark, EnvConfig]:
    benchmark, _, task = env.partition("/")
    names = [f"env_cfg.benchmark_name={benchmark}", f"env_cfg.task_name={task}"]
    return resolve(Config.from_args([*names, *settings]).env_cfg)
