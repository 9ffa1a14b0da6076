"""The current configuration without Sacred and with it; what the door loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.compat.il_representations as door
from penstock.compat.il_representations.envs import config

EXPERIMENT = """
from penstock.compat.il_representations import auto, configured, current
from penstock.compat.il_representations import env_cfg_ingredient, env_data_ingredient, venv_opts_ingredient
from penstock.compat.il_representations.envs.config import env_cfg_ingredient as again
from sacred import Experiment

assert again is env_cfg_ingredient
parts = [env_cfg_ingredient, venv_opts_ingredient, env_data_ingredient]
experiment = Experiment("test", ingredients=parts, save_git_info=False)

@env_cfg_ingredient.capture
def task(task_name):
    return task_name

@experiment.main
def run():
    print("RUN", task(), current().env_cfg.task_name, current().venv_opts.n_envs, auto.load_color_space().value)
    with configured({"task_name": "cheetah-run"}):
        print("BLOCK", current().env_cfg.task_name, current().venv_opts.n_envs)

assert current().env_cfg.task_name == "finger-spin"
updates = {"env_cfg": {"benchmark_name": "atari", "task_name": "PongNoFrameskip-v4"}, "venv_opts": {"n_envs": 5}}
experiment.run(config_updates=updates)
"""


def test_sacreds_run_is_the_current_configuration(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(EXPERIMENT)
    source = Path(__file__).parents[3] / "src"
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    told = [line for line in done.stdout.splitlines() if line.startswith(("RUN", "BLOCK"))]
    assert told == ["RUN PongNoFrameskip-v4 PongNoFrameskip-v4 5 GRAY", "BLOCK cheetah-run 5"], done.stderr


def test_names() -> None:
    assert set(door.__all__) <= set(dir(door))
    assert all(getattr(door, name).__doc__ for name in door.__all__)
    for module in (door, config):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = module.nothing


def test_the_door_loads_nothing_before_it_is_used() -> None:
    code = "import penstock.compat.il_representations as d, sys; d.configured; d.write_frames; d.mkdataset_demos"
    check = "print({'torch', 'sacred', 'gymnasium', 'stable_baselines3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {check}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
