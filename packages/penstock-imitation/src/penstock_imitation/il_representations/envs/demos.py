"""Native demonstrations by configuration: their paths, how to open them, and all of them as one dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.columns import nest
from penstock.core.ragged import Ragged
from penstock.data.dataset import EpisodeDataset
from penstock.data.open import open
from penstock.errors import DataError
from penstock_imitation.envs.config import Config, EnvConfig
from penstock_imitation.envs.paths import demo_paths

_KINDS = {"minecraft": "minerl"}  # where a kind of demonstrations is not called as its benchmark
_OPTIONS: Mapping[str, Callable[[EnvConfig], dict[str, Any]]] = {
    "magical": lambda env: {
        "preprocessor": env.magical_preproc,
        "remove_null_actions": env.magical_remove_null_actions,
    },
    "dm_control": lambda env: {"frame_stack": env.dm_control_frame_stack},
    "procgen": lambda env: {"frame_stack": env.procgen_frame_stack},
}


# Where the benchmark's observations and actions are not all that the files have.
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "minecraft": {"observations": "observations/pov", "actions": "actions/vector"}
}


def open_demos(config: Config) -> EpisodeDataset:
    """Return the demonstrations of the task, with the preprocessing and the frame stack of its environments."""
    env = config.env_cfg
    kind = _KINDS.get(env.benchmark_name, env.benchmark_name)
    options = _OPTIONS[env.benchmark_name](env) if env.benchmark_name in _OPTIONS else {}
    return open(_location(config), format="native", kind=kind, **options)


def _location(config: Config) -> Path:
    """Return the file, or the folder or pattern that matches all files."""
    env, data = config.env_cfg, config.env_data
    paths = demo_paths(data, env)
    if len(paths) == 1:
        return paths[0]
    if env.benchmark_name != "dm_control":
        return paths[0].parent
    return Path(data.data_root).expanduser() / Path(data.dm_control_demo_patterns[env.task_name]).expanduser()


def chosen(demos: EpisodeDataset, n_traj: int | None, seed: int | None, *, shuffle: bool = False) -> EpisodeDataset:
    """Return `n_traj` trajectories: the first, or random ones drawn from `seed`, in their order or shuffled."""
    count = len(demos) if n_traj is None else n_traj
    if not 0 < count <= len(demos):
        raise DataError(f"expected n_traj from 1 to {len(demos)}, the number of trajectories, got {n_traj}")
    if seed is None:
        return demos[:count]
    drawn = np.random.default_rng(seed).permutation(len(demos))[:count]
    return demos[drawn if shuffle else np.sort(drawn)]


def as_dict(demos: EpisodeDataset, names: Mapping[str, str]) -> dict[str, Any]:
    """Return all steps in order: `obs` and `next_obs` `[T, C, H, W]` (a dict of them where observations are one),
    `acts` `[T, ...]`, `dones` `[T]` bool, and `rews` `[T]` and `infos` `[T]` dicts where the files have them.

    `names` are the columns of observations and actions, where these are not all of those below these names. `dones` is
    True at the last step of every trajectory, however it ended. Cost: two copies of all observations.
    """
    steps = demos.transitions()[:]
    tree = steps.tree()
    dones = np.zeros(steps.n, np.bool_)
    dones[np.cumsum(demos.episodes.length) - 1] = True
    seen, done = names.get("observations", "observations"), names.get("actions", "actions")
    arrays = {"obs": _below(tree, seen), "next_obs": _below(tree, f"next_{seen}"), "acts": _below(tree, done)}
    arrays["dones"] = dones
    if "rewards" in tree:
        arrays["rews"] = tree["rewards"]
    if any(path.startswith("infos/") for path in demos.spec):
        arrays["infos"] = _infos(demos)
    return arrays


def _infos(demos: EpisodeDataset) -> Any:
    """Return the dicts of all steps, `[T]` objects; a trajectory's last dict also has the entries of its end."""
    rows: list[dict[str, Any]] = []
    for episode in demos:
        columns = {p.removeprefix("infos/"): a for p, a in episode.columns.items() if p.startswith("infos/")}
        whole = {p: a for p, a in columns.items() if demos.spec[f"infos/{p}"].align == "episode"}
        lists = {p: a.strings() if isinstance(a, Ragged) else a for p, a in columns.items() if p not in whole}
        steps = [{path: rows[t] for path, rows in lists.items()} for t in range(len(episode))]
        metadata = {k.removeprefix("infos/"): v for k, v in episode.metadata.items() if k.startswith("infos/")}
        steps[-1] |= {path: array[0] for path, array in whole.items()} | metadata
        rows += [nest(step) for step in steps]
    infos = np.empty(len(rows), object)
    infos[:] = rows
    return infos


def _below(tree: Any, path: str) -> Any:
    return reduce(getitem, path.split("/"), tree)
