"""Benchmarks by name, and what is known without building anything."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.core.spaces import Box, Discrete
from penstock.errors import DataError
from penstock_imitation import envs
from penstock_imitation.envs import (
    Benchmark,
    EnvConfig,
    available,
    color_space_of,
    named,
    register,
    registry,
    spaces_of,
    unregister,
)
from tests.test_architecture import exported

SHIPPED = ("gymnasium", "toy")


class Mine(Benchmark):
    """A benchmark of a user."""

    name = "mine"
    options = ("size",)

    def tasks(self):
        return ("dig",)

    def spaces(self, config):
        size = config.benchmark_options.get("size", 8)
        return Box(np.zeros(size), np.ones(size), np.dtype("float32")), Discrete(2)

    def factory(self, config):
        raise NotImplementedError


@pytest.fixture
def mine():
    register(Mine())
    yield
    unregister("mine")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_benchmarks(name) -> None:
    assert named(name).name == name
    assert named(name).context in {"fork", "spawn", "forkserver"}


@pytest.mark.parametrize("name", SHIPPED)
def test_spaces_and_colours_of_every_known_task(name) -> None:
    for task in named(name).tasks():
        config = EnvConfig(benchmark_name=name, task_name=task)
        observation, action = spaces_of(config)
        assert isinstance(observation, Box)
        assert isinstance(action, Box | Discrete)
        assert color_space_of(config).value == ("GRAY" if name == "atari" else "RGB")


def test_nothing_is_built_and_nothing_heavy_imported() -> None:
    script = """
import json, sys
from penstock_imitation.envs import available, color_space_of, named, spaces_of
for name in available():
    for task in named(name).tasks()[:2]:
        config = {"benchmark_name": name, "task_name": task}
        spaces_of(config), color_space_of(config)
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {
        "gymnasium",
        "torch",
        "mujoco",
        "ale_py",
        "dm_control",
        "pygame",
        "cv2",
        "PIL",
        "stable_baselines3",
        "sacred",
    }
    assert set(json.loads(done.stdout)) & heavy == set()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toi", "unknown benchmark 'toi'; did you mean 'toy'"),
        ("zzz", "unknown benchmark 'zzz'; there are"),
    ],
)
def test_unknown_names(name, message) -> None:
    for ask in (spaces_of, color_space_of):
        with pytest.raises(DataError, match=message):
            ask({"benchmark_name": name})


def test_a_benchmark_of_ones_own(mine) -> None:
    assert "mine" in available()
    config = EnvConfig(benchmark_name="mine", task_name="dig")
    assert spaces_of(config)[0].shape == (8,)
    assert spaces_of(config.updated({"benchmark_options": {"size": 3}}))[0].shape == (3,)
    with pytest.raises(DataError, match=r"option 'sise' of the benchmark 'mine'.*did you mean 'size'.*takes size"):
        spaces_of(config.updated({"benchmark_options": {"sise": 3}}))
    with pytest.raises(DataError, match="expected a name that is not taken yet, got 'mine'"):
        register(Mine())


def test_options_are_never_ignored() -> None:
    with pytest.raises(DataError, match=r"unknown option 'size' of the benchmark 'toy'.*it takes none"):
        spaces_of({"benchmark_name": "toy", "task_name": "reach", "benchmark_options": {"size": 3}})


def test_only_benchmarks_are_registered() -> None:
    with pytest.raises(DataError, match="expected a Benchmark"):
        register("toy")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="expected the name of a registered benchmark, got 'toy'"):
        unregister("toy")


@pytest.fixture
def points(monkeypatch):
    def use(*values):
        made = tuple(
            importlib.metadata.EntryPoint(name=name, value=value, group="penstock.benchmarks") for name, value in values
        )
        monkeypatch.setattr(registry, "_points", lambda: made)

    yield use
    registry._from_point.cache_clear()


def test_entry_points(points, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "plugin", inspect.getmodule(Mine))
    points(("mine", "plugin:Mine"), ("broken", "plugin:SHIPPED"), ("other", "plugin:Mine"))
    assert available() == (*SHIPPED, "mine", "broken", "other")
    assert isinstance(named("mine"), Benchmark)
    for name in ("broken", "other"):
        with pytest.raises(DataError, match=f"expected the entry point '{name}' to name the Benchmark of that name"):
            named(name)


def test_a_factory_is_built_where_spaces_are_not_known() -> None:
    config = {"benchmark_name": "gymnasium", "task_name": "FrozenLake-v1"}
    with pytest.raises(DataError, match=r"the spaces of 'FrozenLake-v1' are known for CartPole-v1.*build=True"):
        spaces_of(config)
    assert spaces_of(config, build=True) == (Discrete(16), Discrete(4))


def test_public_names_have_documents_and_homes() -> None:
    assert envs.__all__ == sorted(envs.__all__)
    assert envs.__all__ == exported(Path(envs.__file__).with_suffix(".pyi"))
    assert set(envs.__all__) <= set(dir(envs))
    for name in envs.__all__:
        assert inspect.getdoc(getattr(envs, name)), name
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = envs.nothing
