"""Make an archive of a task's native demonstrations.

    python -m penstock_imitation.il_representations.scripts.mkdataset_demos with env_cfg.benchmark_name=atari \\
        env_cfg.task_name=PongNoFrameskip-v4 env_data.data_root=~/data n_traj_total=20
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from penstock_imitation.envs.config import Config
from penstock_imitation.envs.paths import processed_dir
from penstock_imitation.il_representations.data.write_dataset import TaskWriter, get_meta_dict, replaced
from penstock_imitation.il_representations.envs.config import current
from penstock_imitation.il_representations.envs.demos import COLUMNS, chosen, open_demos
from penstock_imitation.il_representations.scripts.arguments import parsed

OPTIONS = {"seed": 0, "shuffle_traj_order": True, "n_traj_total": None, "suffix": ".tgz"}


def mkdataset_demos(
    *,
    config: Config | None = None,
    seed: int = 0,
    shuffle_traj_order: bool = True,
    n_traj_total: int | None = None,
    suffix: str = ".tgz",
) -> Path:
    """Write the demonstrations of the current task to `<processed data>/demos/<benchmark>/<task>/demos<suffix>`, and
    return that path.

    `n_traj_total` takes the first so many trajectories. With `shuffle_traj_order` they are written in an order drawn
    from `seed`. `suffix` says how the archive is compressed: `.tgz`, `.tar.zst` or `.tar`. Needs no simulator.

    Memory: the size of the native files.
    """
    config = config or current()
    target = processed_dir(config.env_data, config.env_cfg, "demos") / f"demos{suffix}"
    meta = get_meta_dict(config.env_cfg)
    names = COLUMNS.get(config.env_cfg.benchmark_name, {})
    with open_demos(config) as demos:
        taken = chosen(demos, n_traj_total, None)
        ordered = chosen(taken, None, seed, shuffle=True) if shuffle_traj_order else taken
        with replaced(target) as path, TaskWriter(path, demos.spec, meta, names) as writer:
            writer.write_all(ordered)
    return target


def main(arguments: Sequence[str]) -> None:
    """Run the program with arguments `key=value`, and print the path of the archive."""
    config, options = parsed(arguments, OPTIONS)
    print(mkdataset_demos(config=config, **options))


if __name__ == "__main__":
    main(sys.argv[1:])
