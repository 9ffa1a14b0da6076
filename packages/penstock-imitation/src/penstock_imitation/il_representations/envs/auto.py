"""Datasets and environments by the current configuration (`penstock_imitation.il_representations.envs.config`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from penstock.containers.pickle import ColorSpace
from penstock.errors import DataError, MissingExtraError, suggestion
from penstock.formats.webdataset.shards import has_shards
from penstock_imitation import envs
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.paths import find_processed, processed_dir
from penstock_imitation.envs.registry import color_space_of, resolve
from penstock_imitation.il_representations.data.metadata import COMPARED, Meta, differences
from penstock_imitation.il_representations.data.read_dataset import ILRDataset
from penstock_imitation.il_representations.envs.config import configured, current
from penstock_imitation.il_representations.envs.demos import COLUMNS, as_dict, chosen, open_demos

CONFIG_KEYS = ("type", "env_cfg", "env_data")


def load_dict_dataset(
    n_traj: int | None = None,
    *,
    task_name: str | None = None,
    frame_stack: int | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Return the native demonstrations of the current task in one dict.

    It has `obs`, `next_obs` `[T, C, H, W]`, `acts` `[T, ...]`, `dones` `[T]` bool, and `rews` and `infos` if the files
    have them.

    Trajectories follow one another, and the last step of each is done. `n_traj` takes the first so many, or with a
    `seed` some that are drawn from it. `task_name` and `frame_stack` (dm_control, procgen) go before the configuration.
    """
    changed: dict[str, Any] = {} if task_name is None else {"task_name": task_name}
    if frame_stack is not None:
        changed[f"{current().env_cfg.benchmark_name}_frame_stack"] = frame_stack
    with configured(changed) as config, open_demos(config) as demos:
        return as_dict(chosen(demos, n_traj, seed), COLUMNS.get(config.env_cfg.benchmark_name, {}))


load_dataset_dict = load_dict_dataset


def load_vec_env(
    *, seed: int | None = None, api: Literal["gymnasium", "stable_baselines3"] = "stable_baselines3"
) -> Any:
    """Return the current task's vector environment: a Stable-Baselines3 `VecEnv` (extra `sb3`), like the original, or
    with `api="gymnasium"` a `gymnasium.vector.VectorEnv`. Options and errors: `penstock_imitation.envs.load_vec_env`.
    """
    config = current()
    return envs.load_vec_env(config.env_cfg, config.venv_opts, seed=seed, api=api)


def load_color_space() -> ColorSpace:
    """Return the color space of the current benchmark's observations."""
    return color_space_of(current().env_cfg)


def benchmark_is_available() -> tuple[bool, str | None]:
    """Return whether environments of the current task can be built here and, if not, the missing requirement."""
    benchmark, env_cfg = resolve(current().env_cfg)
    try:
        benchmark.factory(env_cfg)
    except MissingExtraError as error:
        return False, str(error)
    return True, None


def get_data_dir(benchmark_name: str, task_key: str, data_type: str, data_root: str | None = None) -> str:
    """Return the folder of processed data: `<processed_data_root>/<data_type>/<benchmark_name>/<task_key>`."""
    with configured(env_data={} if data_root is None else {"data_root": data_root}) as config:
        return str(processed_dir(config.env_data, EnvConfig(benchmark_name, task_key), data_type))


def load_wds_datasets(configs: Sequence[Mapping[str, Any]]) -> tuple[list[ILRDataset], Meta]:
    """Return one dataset for each configuration, and their common `color_space`, `observation_space` and
    `action_space`.

    A configuration has some of the keys `type` ("demos" by default), `env_cfg` and `env_data`, mappings that update the
    current configuration recursively. Archives are looked for in `get_data_dir`, and also in the folder with task and
    benchmark swapped. `wds_n_trajs` and `wds_n_trans` of `env_data` limit trajectories and transitions.
    """
    if not configs:
        raise DataError("expected at least one dataset configuration, got none")
    datasets = [_dataset(config) for config in configs]
    first = {name: datasets[0].meta.get(name) for name in COMPARED}
    for number, dataset in enumerate(datasets):
        differing = differences(first, {name: dataset.meta.get(name) for name in COMPARED})
        if differing:
            raise DataError(
                f"expected datasets with the same spaces, got others in {dataset.paths[0]} than in "
                f"{datasets[0].paths[0]}: {'; '.join(differing)} (dataset config {number}, {dict(configs[number])})"
            )
    return datasets, first


def _dataset(config: Mapping[str, Any]) -> ILRDataset:
    if unknown := [key for key in config if key not in CONFIG_KEYS]:
        hint = suggestion(str(unknown[0]), CONFIG_KEYS)
        raise DataError(f"unknown key {unknown[0]!r} in the dataset config {dict(config)}{hint}")
    with configured(config.get("env_cfg", {}), env_data=config.get("env_data", {})) as here:
        folder = find_processed(here.env_data, here.env_cfg, str(config.get("type", "demos")))
    if not has_shards(folder):
        raise FileNotFoundError(
            f"expected archives (.tgz, .tar.zst, .tar) in {folder}, found none, for the dataset config {dict(config)}"
        )
    return ILRDataset(folder).first(n_trajs=here.env_data.wds_n_trajs, n_trans=here.env_data.wds_n_trans)
