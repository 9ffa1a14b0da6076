"""The current configuration with and without Sacred, and the modules that an import loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock_imitation.il_representations as package
from penstock_imitation.il_representations.envs import config

EXPERIMENT = """
from penstock_imitation.il_representations import auto, configured, current
from penstock_imitation.il_representations import env_cfg_ingredient, env_data_ingredient, venv_opts_ingredient
from penstock_imitation.il_representations.envs.config import env_cfg_ingredient as again
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


RUNS = """
import logging
from penstock_imitation.il_representations import current, env_cfg_ingredient
from sacred import Experiment

def experiment(main, name="test", parts=(env_cfg_ingredient,)):
    made = Experiment(name, ingredients=list(parts), save_git_info=False)
    made.main(main)
    return made

def told(label):
    print("RUN", label, current().env_cfg.task_name)

def fails():
    told("fails")
    raise RuntimeError("on purpose")

def outer():
    experiment(lambda: told("inner"), "inner").run(config_updates={"env_cfg": {"task_name": "cheetah-run"}})
    told("outer")

logging.disable(logging.CRITICAL)
experiment(lambda: told("first")).run(config_updates={"env_cfg": {"task_name": "reacher-easy"}})
told("after")
for updates in ({"env_cfg": {"task": "x"}}, {"env_cfg": {"task_name": 3}}, {"env_cfg": 3}):
    try:
        experiment(lambda: told("never")).run(config_updates=updates)
    except Exception as error:
        print("RUN", type(error).__name__)
    told("after")
try:
    experiment(fails).run(config_updates={"env_cfg": {"task_name": "reacher-easy"}})
except RuntimeError:
    told("after")
experiment(lambda: told("without"), "other", ()).run()
experiment(outer).run(config_updates={"env_cfg": {"task_name": "reacher-easy"}})
told("last")
"""


def told_by(script: str, folder: Path) -> list[str]:
    (folder / "script.py").write_text(script)
    source = Path(__file__).parents[4] / "src"
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{folder}"}
    command = [sys.executable, "-W", "ignore", "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("RUN ") for line in done.stdout.splitlines() if line.startswith(("RUN", "BLOCK"))]


def test_a_run_leaves_no_configuration_behind(tmp_path: Path) -> None:
    """Nor does one that failed, and a run within a run gives the outer one's back."""
    assert told_by(RUNS, tmp_path) == [
        "first reacher-easy",
        "after finger-spin",
        *("ConfigAddedError", "after finger-spin", "DataError", "after finger-spin"),
        *("ConfigAddedError", "after finger-spin"),
        *("fails reacher-easy", "after finger-spin"),
        "without finger-spin",
        *("inner cheetah-run", "outer reacher-easy", "last finger-spin"),
    ]


def test_sacreds_run_is_the_current_configuration(tmp_path: Path) -> None:
    told = told_by(EXPERIMENT, tmp_path)
    assert told == ["PongNoFrameskip-v4 PongNoFrameskip-v4 5 GRAY", "BLOCK cheetah-run 5"]


def test_names() -> None:
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name).__doc__ for name in package.__all__)
    for module in (package, config):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = module.nothing


def test_the_door_loads_nothing_before_it_is_used() -> None:
    code = "import penstock_imitation.il_representations as d, sys; d.configured; d.write_frames; d.mkdataset_demos"
    check = "print({'torch', 'sacred', 'gymnasium', 'stable_baselines3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {check}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
