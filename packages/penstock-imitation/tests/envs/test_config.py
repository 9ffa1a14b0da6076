"""Configurations: every key and default, nothing unknown, and the same in every form."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.containers.pickle import loads
from penstock.errors import DataError, FormatError
from penstock_imitation.envs import (
    Config,
    EnvConfig,
    EnvDataConfig,
    VecEnvOptions,
    demo_paths,
    find_processed,
    processed_dir,
)
from penstock_imitation.envs.section import update

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "pickles"
PARTS = (EnvConfig, VecEnvOptions, EnvDataConfig)

DEFAULTS = {
    "env_cfg": {
        "benchmark_name": "dm_control",
        "task_name": "finger-spin",
        "magical_preproc": "LoResCHW4E",
        "magical_remove_null_actions": False,
        "dm_control_frame_stack": 3,
        "dm_control_full_env_names": {
            "finger-spin": "DMC-Finger-Spin-v0",
            "cheetah-run": "DMC-Cheetah-Run-v0",
            "walker-walk": "DMC-Walker-Walk-v0",
            "cartpole-swingup": "DMC-Cartpole-Swingup-v0",
            "reacher-easy": "DMC-Reacher-Easy-v0",
            "ball-in-cup-catch": "DMC-Ball-In-Cup-Catch-v0",
        },
        "minecraft_max_env_steps": None,
        "procgen_frame_stack": 4,
        "gymnasium_pixels": False,
        "gymnasium_size": None,
        "gymnasium_frame_stack": 1,
        "toy_frame_stack": 1,
        "benchmark_options": {},
    },
    "venv_opts": {"venv_parallel": True, "n_envs": 2},
    "env_data": {
        "data_root": ".",
        "processed_data_root": "data/processed",
        "wds_n_trajs": None,
        "wds_n_trans": None,
        "magical_demo_dirs": {
            "MoveToCorner-Demo-v0": "data/magical/move-to-corner/",
            "MoveToRegion-Demo-v0": "data/magical/move-to-region/",
            "MatchRegions-Demo-v0": "data/magical/match-regions/",
            "MakeLine-Demo-v0": "data/magical/make-line/",
            "FixColour-Demo-v0": "data/magical/fix-colour/",
            "FindDupe-Demo-v0": "data/magical/find-dupe/",
            "ClusterColour-Demo-v0": "data/magical/cluster-colour/",
            "ClusterShape-Demo-v0": "data/magical/cluster-shape/",
        },
        "dm_control_demo_patterns": {
            "finger-spin": "data/dm_control/finger-spin-*.pkl.gz",
            "cheetah-run": "data/dm_control/cheetah-run-*.pkl.gz",
            "walker-walk": "data/dm_control/walker-walk-*.pkl.gz",
            "cartpole-swingup": "data/dm_control/cartpole-swingup-*.pkl.gz",
            "reacher-easy": "data/dm_control/reacher-easy-*.pkl.gz",
            "ball-in-cup-catch": "data/dm_control/ball-in-cup-catch-*.pkl.gz",
        },
        "atari_demo_paths": {
            "BreakoutNoFrameskip-v4": "data/atari/BreakoutNoFrameskip-v4_rollouts_500_ts_100_traj.npz",
            "PongNoFrameskip-v4": "data/atari/PongNoFrameskip-v4_rollouts_500_ts_100_traj.npz",
        },
        "procgen_demo_paths": {
            "coinrun": "procgen/demo_coinrun.pickle",
            "fruitbot": "procgen/demo_fruitbot.pickle",
            "ninja": "procgen/demo_ninja.pickle",
            "jumper": "procgen/demo_jumper.pickle",
            "miner": "procgen/demo_miner.pickle",
        },
    },
}


def test_every_key_has_its_default() -> None:
    assert Config().to_mapping() == DEFAULTS
    assert Config.from_mapping({}) == Config() == Config.from_mapping(DEFAULTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_mapping_and_back(part) -> None:
    assert part.from_mapping(part().to_mapping()) == part()
    assert pickle.loads(pickle.dumps(part())) == part()
    assert json.loads(json.dumps(part().to_mapping())) == part().to_mapping()


@pytest.mark.parametrize("part", PARTS)
def test_parts_cannot_be_changed_from_outside(part) -> None:
    name = part.key_names()[-1]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(part(), name, 1)
    given = part().to_mapping()
    made = part.from_mapping(given)
    for value in (*given.values(), *made.to_mapping().values()):
        if isinstance(value, dict):
            value["new"] = "thing"
    assert made == part()


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"env_cfg": {"task": "cheetah-run"}},
            r"unknown key 'env_cfg.task'; did you mean 'task_name'\?; the keys are",
        ),
        ({"env_cfg": {"zzz": 1}}, "unknown key 'env_cfg.zzz'; the keys are benchmark_name"),
        ({"env_data": {"Data_Root": "x"}}, "did you mean 'data_root'"),
        (
            {"venv_opt": {}},
            r"unknown key 'venv_opt'; did you mean 'venv_opts'\?; the keys are env_cfg,",
        ),
        ({"n_envs": 3}, "unknown key 'n_envs'; did you mean 'venv_opts.n_envs'"),
        ({"venv_opts": {3: 3}}, "unknown key 'venv_opts.3'"),
        ({"env_cfg": None}, "expected a mapping of the keys of env_cfg, got None"),
        ({"venv_opts": {"n_envs": 0}}, "expected an integer of at least 1 for venv_opts.n_envs, got 0"),
        ({"venv_opts": {"n_envs": True}}, "got True"),
        ({"venv_opts": {"n_envs": 2.0}}, "got 2.0"),
        ({"venv_opts": {"venv_parallel": "no"}}, "expected True or False for venv_opts.venv_parallel, got 'no'"),
        ({"env_cfg": {"task_name": 3}}, "expected text for env_cfg.task_name, got 3"),
        ({"env_cfg": {"task_name": ""}}, "expected text"),
        ({"env_cfg": {"dm_control_full_env_names": {"a": 1}}}, "expected a mapping of text to text for env_cfg.dm_con"),
        ({"env_cfg": {"dm_control_full_env_names": None}}, "expected a mapping of text to text"),
        ({"env_cfg": {"benchmark_options": {1: 1}}}, "expected a mapping with text as its keys"),
        ({"env_data": {"wds_n_trajs": 1, "wds_n_trans": 2}}, r"both \(1 and 2\)"),
        ({"env_data": {"wds_n_trajs": -1}}, "at least 1 or None"),
    ],
)
def test_what_is_wrong_is_named(mapping, message) -> None:
    for attempt in (Config.from_mapping, Config().updated):
        with pytest.raises(DataError, match=message):
            attempt(mapping)


def test_values_are_checked_without_a_mapping_too() -> None:
    with pytest.raises(DataError, match="expected an integer of at least 1"):
        EnvConfig(dm_control_frame_stack=0)
    with pytest.raises(DataError, match="expected an EnvConfig for env_cfg"):
        Config(env_cfg={"task_name": "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize("nothing", [None, [], "task_name=x", 3])
def test_a_configuration_is_a_mapping(nothing) -> None:
    for attempt in (Config.from_mapping, Config().updated, EnvConfig.from_mapping, EnvConfig().updated):
        with pytest.raises(DataError, match="expected a mapping of the keys of"):
            attempt(nothing)


def test_stored_metadata_are_a_configuration() -> None:
    with tarfile.open(GOLDEN / "shard_random.tar.gz") as shard:
        stored = loads(shard.extractfile(shard.next()).read())["env_cfg"]
    assert "__doc__" in stored
    config = EnvConfig.from_mapping(stored)
    assert (config.benchmark_name, config.task_name, config.procgen_frame_stack) == ("magical", "MoveToRegion", 4)


def test_update_merges_mappings_and_replaces_the_rest() -> None:
    defaults = {"a": {"x": 1, "y": {"z": 2}}, "b": [1, 2], "c": 3, "d": {"e": 1}}
    config = {"a": {"y": {"w": 5}}, "b": [9], "c": None, "d": None, "new": {"k": 1}}
    before = json.dumps([defaults, config])
    merged = update(defaults, config)
    assert merged == {"a": {"x": 1, "y": {"z": 2, "w": 5}}, "b": [9], "c": None, "d": None, "new": {"k": 1}}
    merged["a"]["y"]["w"] = merged["b"][0] = merged["new"]["k"] = 77
    assert json.dumps([defaults, config]) == before


TREES = st.recursive(
    st.none() | st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(MAPPINGS, MAPPINGS)
def test_update_is_idempotent_and_pure(defaults, config) -> None:
    before = json.dumps([defaults, config])
    merged = update(defaults, config)
    assert update(merged, config) == merged
    assert update(defaults, {}) == defaults
    assert set(merged) == {*defaults, *config}
    assert json.dumps([defaults, config]) == before


def test_new_keys_belong_into_free_tables_alone() -> None:
    updated = EnvDataConfig().updated({"atari_demo_paths": {"Qbert-v4": "q.npz"}})
    assert updated.atari_demo_paths == {**DEFAULTS["env_data"]["atari_demo_paths"], "Qbert-v4": "q.npz"}
    assert EnvConfig().updated({"benchmark_options": {"a": {"b": [1]}}}).benchmark_options == {"a": {"b": [1]}}


def test_yaml_and_back(tmp_path) -> None:
    config = Config.from_args(["env_cfg.task_name=wälker", "env_data.procgen_demo_paths.x=~/x", "venv_opts.n_envs=7"])
    config.to_yaml(tmp_path / "c.yaml")
    assert Config.from_yaml(tmp_path / "c.yaml") == config
    config.env_data.to_yaml(tmp_path / "d.yaml")
    assert EnvDataConfig.from_yaml(tmp_path / "d.yaml") == config.env_data
    (tmp_path / "few.yaml").write_text("venv_opts: {n_envs: 3}\n")
    assert Config.from_yaml(tmp_path / "few.yaml") == Config(venv_opts=VecEnvOptions(n_envs=3))
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert Config.from_yaml(tmp_path / "empty.yaml") == Config()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[1, 2]", FormatError, r"expected a mapping of keys to values, got list - in .*c\.yaml"),
        ("venv_opts: {n_envs: 3", FormatError, "expected YAML"),
        (
            "venv_opts: {n_envs: 3}\nvenv_opts: {n_envs: 4}\n",
            FormatError,
            "every key once, got 'venv_opts' twice",
        ),
        ("venv_opts: {n_envs: 3, n_envs: 4}\n", FormatError, "got 'n_envs' twice"),
        ("[1]: {n_envs: 3}\n", FormatError, r"expected keys that are text, got \[\[1\]\]"),
        ("3: {n_envs: 3}\n", FormatError, "expected keys that are text"),
        ("venv_opts: &a {n_envs: *a}\n", FormatError, "expected YAML"),
        ("venv_opts: {n_env: 3}\n", DataError, r"did you mean 'n_envs'.* - in .*c\.yaml"),
        ("venv_opts: !!python/object/apply:os.getcwd []\n", FormatError, "expected YAML"),
    ],
)
def test_yaml_files_that_are_wrong(tmp_path, text, error, message) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(error, match=message):
        Config.from_yaml(tmp_path / "c.yaml")


def test_arguments() -> None:
    config = Config.from_args(
        [
            "venv_opts.n_envs=4",
            "venv_opts.venv_parallel=false",
            "env_cfg.magical_preproc=null",
            "env_cfg.task_name='on'",
            "env_data.procgen_demo_paths.a.b=x=y",
            "env_data.atari_demo_paths={Qbert: q.npz}",
            'env_cfg.benchmark_options={"n": [1, 2]}',
            "venv_opts.n_envs=5",
        ]
    )
    assert config.venv_opts == VecEnvOptions(False, 5)
    assert (config.env_cfg.magical_preproc, config.env_cfg.task_name) == (None, "on")
    assert config.env_data.procgen_demo_paths["a.b"] == "x=y"
    assert config.env_data.atari_demo_paths["Qbert"] == "q.npz"
    assert config.env_cfg.benchmark_options == {"n": [1, 2]}
    assert Config.from_args(["env_cfg.task_name=x"], config).venv_opts == config.venv_opts
    assert VecEnvOptions.from_args(["n_envs=3"]) == VecEnvOptions(n_envs=3)


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("task_name", "expected arguments of the form key=value, got 'task_name'"),
        ("task_name=x", "did you mean 'env_cfg.task_name'"),
        ("env_cfg.tsk_name=x", "unknown key 'env_cfg.tsk_name'; did you mean 'task_name'"),
        ("env_cfg.task_name.more=x", "expected env_cfg.task_name without anything below it, got 'task_name.more'"),
        ("env_cfg.task_name=3", "expected text for env_cfg.task_name, got 3"),
        ("env_cfg.nothing.more=3", "unknown key 'env_cfg.nothing'"),
        ("venv_opts.n_envs={1", "expected YAML"),
    ],
)
def test_arguments_that_are_wrong(arg, message) -> None:
    with pytest.raises(ValueError, match=message):
        Config.from_args([arg])


def test_where_processed_data_lie(tmp_path) -> None:
    data, config = EnvDataConfig(data_root=str(tmp_path)), EnvConfig(benchmark_name="magical", task_name="T")
    root = tmp_path / "data" / "processed"
    assert processed_dir(data, config) == root / "demos" / "magical" / "T"
    assert processed_dir(data, config, "random") == root / "random" / "magical" / "T"
    assert processed_dir(data.updated({"processed_data_root": "/x"}), config) == Path("/x/demos/magical/T")
    with pytest.raises(FileNotFoundError, match=r"demos/magical/T or .*demos/T/magical, got neither"):
        find_processed(data, config)
    other = root / "demos" / "T" / "magical"
    other.mkdir(parents=True)
    assert find_processed(data, config) == other
    processed_dir(data, config).mkdir(parents=True)
    assert find_processed(data, config) == processed_dir(data, config)


@pytest.mark.parametrize(
    ("benchmark", "task", "files"),
    [
        ("magical", "MoveToRegion-Demo-v0", ["data/magical/move-to-region/a.pkl.gz"]),
        ("magical", "MoveToRegion", ["data/magical/move-to-region/a.pkl.gz", "data/magical/move-to-region/b.pkl.gz"]),
        ("dm_control", "finger-spin", [f"data/dm_control/finger-spin-{k}.pkl.gz" for k in range(3)]),
        ("atari", "PongNoFrameskip-v4", ["data/atari/PongNoFrameskip-v4_rollouts_500_ts_100_traj.npz"]),
        ("procgen", "coinrun", ["procgen/demo_coinrun.pickle"]),
        ("minecraft", "Treechop", ["data/minecraft/MineRLTreechop-v0"]),
    ],
)
def test_demonstrations_are_found(tmp_path, monkeypatch, benchmark, task, files) -> None:
    root = tmp_path / "wild[1]card"
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    config = EnvConfig(benchmark_name=benchmark, task_name=task)
    assert demo_paths(EnvDataConfig(data_root=str(root)), config) == [root / name for name in sorted(files)]
    monkeypatch.setenv("HOME", str(root))
    assert demo_paths(EnvDataConfig(data_root="~"), config) == [root / name for name in sorted(files)]
    monkeypatch.chdir(root)
    assert demo_paths(EnvDataConfig(), config) == [Path(name) for name in sorted(files)]
    with pytest.raises(FileNotFoundError, match="got nothing there; set env_data"):
        demo_paths(EnvDataConfig(data_root=str(tmp_path)), config)


def test_demonstrations_in_a_home_and_unknown_ones(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine-1.pkl.gz").touch()
    data = EnvDataConfig(dm_control_demo_patterns={"finger-spin": "~/mine-*.pkl.gz"})
    assert demo_paths(data, EnvConfig()) == [tmp_path / "mine-1.pkl.gz"]
    with pytest.raises(DataError, match="no demonstrations of 'finger-spn'; did you mean 'finger-spin'"):
        demo_paths(data, EnvConfig(task_name="finger-spn"))
    with pytest.raises(DataError, match="the benchmark 'toy' has no demonstrations;"):
        demo_paths(data, EnvConfig(benchmark_name="toy"))
    with pytest.raises(DataError, match="unknown benchmark 'atary'; did you mean 'atari'"):
        demo_paths(data, EnvConfig(benchmark_name="atary"))


EXPERIMENT = """
import json

from penstock_imitation.envs.config import Config
from penstock_imitation.envs.sacred import ingredients
from sacred import Experiment

parts = ingredients()
experiment = Experiment("test", ingredients=list(parts), save_git_info=False)

@parts[0].named_config
def cheetah():
    "With a docstring, which Sacred puts among the keys."
    task_name = "cheetah-run"

@experiment.main
def run(_config):
    assert "__doc__" in _config["env_cfg"]
    print("CONFIG", json.dumps(Config.from_mapping({key: _config[key] for key in Config.key_names()}).to_mapping()))

experiment.run(named_configs=["env_cfg.cheetah"], config_updates={"venv_opts": {"n_envs": 5}})
"""


def _python(code, *, path: Path) -> subprocess.CompletedProcess[str]:
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{path}"}
    (path / "script.py").write_text(code)
    command = [sys.executable, "script.py"]
    return subprocess.run(command, capture_output=True, text=True, cwd=path, env=environment, check=False)


def test_sacred_ingredients(tmp_path) -> None:
    done = _python(EXPERIMENT, path=tmp_path)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("CONFIG")] or [done.stderr]
    expected = Config.from_args(["env_cfg.task_name=cheetah-run", "venv_opts.n_envs=5"])
    assert json.loads(line.removeprefix("CONFIG ")) == expected.to_mapping()


def test_sacred_without_what_it_imports(tmp_path) -> None:
    (tmp_path / "pkg_resources.py").write_text("raise ModuleNotFoundError('no', name='pkg_resources')")
    done = _python("import penstock_imitation.envs.sacred as s; s.ingredients()", path=tmp_path)
    assert "MissingExtraError: sacred imports pkg_resources, which setuptools no longer has" in done.stderr


@pytest.mark.parametrize("part", PARTS)
def test_equal_parts_have_one_hash(part) -> None:
    assert {part(): 1}[part()] == 1
    assert hash(Config()) == hash(Config.from_mapping(Config().to_mapping()))


def test_tables_in_any_order_have_one_hash() -> None:
    tables = [{"a": 1, "b": {"c": [1, {"d": None}]}}, {"b": {"c": (1.0, {"d": None})}, "a": True}]
    one, other = (EnvConfig(benchmark_options=table) for table in tables)
    assert one == other
    assert len({one, other, EnvConfig(benchmark_options={"a": 2})}) == 2
