"""Make an archive of random rollouts of a task's environments.

    python -m penstock_imitation.il_representations.scripts.mkdataset_random with env_cfg.benchmark_name=toy \\
        env_cfg.task_name=reach n_timesteps_min=5000
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock
from penstock.core.spec import Spec
from penstock.errors import DataError
from penstock_imitation import envs
from penstock_imitation.envs.config import Config
from penstock_imitation.envs.paths import processed_dir
from penstock_imitation.il_representations.data.metadata import Meta
from penstock_imitation.il_representations.data.write_dataset import TaskWriter, get_meta_dict, replaced
from penstock_imitation.il_representations.envs.config import current
from penstock_imitation.il_representations.scripts.arguments import parsed

OPTIONS = {"seed": 0, "n_timesteps_min": 100_000, "suffix": ".tgz"}


def mkdataset_random(
    *, config: Config | None = None, seed: int = 0, n_timesteps_min: int = 100_000, suffix: str = ".tgz"
) -> Path:
    """Drive the current task's environments at random, write their whole episodes to
    `<processed data>/random/<benchmark>/<task>/random<suffix>`, and give that path.

    There are at least `n_timesteps_min` steps in it. The same `seed` and number of environments give the same archive,
    with or without processes. `suffix` says how it is compressed: `.tgz`, `.tar.zst` or `.tar`.

    Memory: one episode of each environment.
    """
    if n_timesteps_min < 1:
        raise DataError(f"expected n_timesteps_min of at least 1, got {n_timesteps_min}")
    config = config or current()
    target = processed_dir(config.env_data, config.env_cfg, "random") / f"random{suffix}"
    meta = get_meta_dict(config.env_cfg)
    venv = envs.load_vec_env(config.env_cfg, config.venv_opts, seed=seed)
    with replaced(target) as path, _collector(path, venv, meta) as collector:
        anything: Any = collector  # its spaces have no type there
        anything.action_space.seed(seed)
        collector.reset()
        while collector.steps < n_timesteps_min:
            collector.step(anything.action_space.sample())
    return target


def _collector(path: Path, venv: Any, meta: Meta) -> penstock.recording.VectorCollector:
    """Return a collector that writes every finished episode."""

    def writer(spec: Spec) -> TaskWriter:
        return TaskWriter(path, spec, meta)

    options: Any = {"record_infos": "error", "episode_metadata": None, "autoseed": False, "unfinished": "drop"}
    return penstock.recording.VectorCollector(venv, writer, **options)


def main(arguments: Sequence[str]) -> None:
    """Run the program with arguments `key=value`, and print the path of the archive."""
    config, options = parsed(arguments, OPTIONS)
    print(mkdataset_random(config=config, **options))


if __name__ == "__main__":
    main(sys.argv[1:])
