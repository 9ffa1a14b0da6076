"""Archives that are written here: laid out as the originals' are, and read by the same readers."""

from __future__ import annotations

import gzip
import itertools
import pickle
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zstandard
from webdataset import tariterators

from ilr_mirror.conftest import NATIVE, SHARDS
from penstock.containers.pickle import loads
from penstock.core.spaces import Box, Discrete
from penstock_imitation.envs.toy_scene import WHITE, find
from penstock_imitation.il_representations import (
    ColorSpace,
    ILRDataset,
    auto,
    configured,
    get_meta_dict,
    load_ilr_datasets,
    mkdataset_demos,
    mkdataset_random,
    write_frames,
)
from penstock_imitation.il_representations.scripts import mkdataset_demos as demos_script
from penstock_imitation.il_representations.scripts import mkdataset_random as random_script

FIELDS = ("acts", "dones", "frame", "infos", "next_obs", "obs", "rews")


def opened(path: Path) -> tarfile.TarFile:
    if path.name.endswith(".zst"):
        with path.open("rb") as file:
            content = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file).read()
        path = path.with_name("plain.tar")
        path.write_bytes(content)
    return tarfile.open(path)


def in_layout(path: Path, fields: tuple[str, ...] = FIELDS) -> int:
    """How many frames there are, if the members are named and ordered as the original writes them."""
    with opened(path) as archive:
        first, *names = archive.getnames()
    assert first == "_metadata.meta.pickle"
    frames = [names[i : i + len(fields)] for i in range(0, len(names), len(fields))]
    for number, frame in enumerate(frames):
        key = f"frame_{number:09d}"
        assert frame == [f"{key}.{field}.pickle" for field in fields]
        assert re.fullmatch(r"((?:.*/|)[^.]+)[.]([^/]*)", frame[0])  # how the webdataset library splits names
    return len(frames)


@pytest.mark.parametrize("suffix", [".tar", ".tgz", ".tar.gz", ".tar.zst"])
def test_frames_written_are_frames_read(suffix: str, tmp_path: Path) -> None:
    dataset = load_ilr_datasets([SHARDS / "A.tgz"])
    target = tmp_path / "new" / f"a{suffix}"
    write_frames(target, dataset.meta, dataset)
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert in_layout(target) == 16
    again = ILRDataset(target)
    assert again.meta == dataset.meta
    for ours, theirs in zip(again, dataset, strict=True):
        assert list(ours) == list(theirs)
        for key in FIELDS:
            assert type(ours[key]) is type(theirs[key])
            np.testing.assert_equal(ours[key], theirs[key])


def test_the_pickles_are_of_what_the_original_pickles(tmp_path: Path) -> None:
    """Byte for byte the same values, without the names that pickles give to parts that occur twice."""
    dataset = load_ilr_datasets([SHARDS / "A_plain.tar"])
    write_frames(tmp_path / "a.tar", dataset.meta, dataset)
    with tarfile.open(tmp_path / "a.tar") as ours, tarfile.open(SHARDS / "A_plain.tar") as theirs:
        for mine, other in zip(ours.getmembers(), theirs.getmembers(), strict=True):
            written, original = (a.extractfile(m).read() for a, m in ((ours, mine), (theirs, other)))  # type: ignore[union-attr]
            np.testing.assert_equal(loads(written), loads(original))
            assert mine.name.split(".", 1)[1] == other.name.split(".", 1)[1]


def test_the_same_frames_give_the_same_bytes(tmp_path: Path) -> None:
    frames = [{"obs": np.full((3, 4, 4), t, "u1"), "acts": t, "dones": t == 5, "infos": {"t": t}} for t in range(6)]
    for name in ("a.tgz", "b.tgz"):
        write_frames(tmp_path / name, {"env_cfg": {}}, iter(frames))
    assert gzip.decompress((tmp_path / "a.tgz").read_bytes()) == gzip.decompress((tmp_path / "b.tgz").read_bytes())
    assert [frame["frame"] for frame in ILRDataset(tmp_path / "a.tgz")] == list(range(6))


def test_an_archive_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a.tgz"
    frame = {"obs": np.zeros(2), "acts": 0, "dones": True}
    write_frames(target, {}, [frame])
    before = target.read_bytes()

    def broken() -> Iterator[dict[str, Any]]:
        yield frame
        raise RuntimeError("the simulator died")

    with pytest.raises(RuntimeError, match="died"):
        write_frames(target, {}, broken())
    with pytest.raises(ValueError, match="at least one frame"):
        write_frames(target, {}, [])
    with pytest.raises(ValueError, match="expected plain values"):
        write_frames(target, {}, [frame | {"infos": {"x": object()}}])
    assert [path.name for path in tmp_path.iterdir()] == ["a.tgz"]
    assert target.read_bytes() == before
    write_frames(target, {}, [frame] * 2)
    assert len(ILRDataset(target)) == 2
    with pytest.raises(ValueError, match=r"ends with \.tar, \.tgz or \.tar\.zst"):
        write_frames(tmp_path / "a.zip", {}, [frame])


@pytest.mark.parametrize(
    ("benchmark", "task", "action_space", "shape", "key"),
    [
        ("magical", "MoveToRegion-Demo-v0", Discrete(18), (12, 96, 96), "magical_preproc"),
        ("atari", "PongNoFrameskip-v4", Discrete(6), (4, 84, 84), None),
        ("dm_control", "finger-spin", Box, (9, 100, 100), "dm_control_frame_stack"),
        ("procgen", "coinrun", Discrete(15), (12, 64, 64), "procgen_frame_stack"),
    ],
)
def test_descriptions_need_no_environment(
    benchmark: str, task: str, action_space: Any, shape: tuple[int, ...], key: str | None
) -> None:
    with configured({"benchmark_name": benchmark, "task_name": task}):
        meta = get_meta_dict()
    assert set(meta) == {"env_cfg", "action_space", "observation_space", "color_space"}
    found = meta["action_space"]
    assert isinstance(found, Box) if action_space is Box else found == action_space
    assert meta["observation_space"].shape == shape
    assert meta["color_space"] is (ColorSpace.GRAY if benchmark == "atari" else ColorSpace.RGB)
    others = {"magical", "atari", "dm_control", "procgen", "minecraft", "toy", "gymnasium"} - {benchmark}
    assert not any(name.startswith(f"{other}_") for name in meta["env_cfg"] for other in others)
    assert key is None or key in meta["env_cfg"]


@pytest.mark.parametrize("suffix", [".tgz", ".tar.zst", ".tar"])
@pytest.mark.parametrize(
    ("benchmark", "task", "fields"),
    [
        ("magical", "MoveToRegion-Demo-v0", FIELDS),
        ("atari", "PongNoFrameskip-v4", tuple(field for field in FIELDS if field != "rews")),
        ("procgen", "coinrun", FIELDS),
    ],
)
def test_demonstrations_become_archives(
    benchmark: str, task: str, fields: tuple[str, ...], suffix: str, env_data: dict[str, Any]
) -> None:
    with configured({"benchmark_name": benchmark, "task_name": task}, env_data=env_data):
        native = auto.load_dict_dataset()
        path = mkdataset_demos(shuffle_traj_order=False, suffix=suffix)
        assert str(path) == f"{auto.get_data_dir(benchmark, task, 'demos')}/demos{suffix}"
        (dataset,), meta = auto.load_wds_datasets([{}])
        wanted = get_meta_dict()
    assert in_layout(path, fields) == len(dataset)
    frames = list(dataset)
    for key in set(native) - {"infos"}:
        np.testing.assert_array_equal([frame[key] for frame in frames], native[key])
    assert meta == {key: wanted[key] for key in meta}
    assert dataset.meta["env_cfg"] == wanted["env_cfg"]


def test_minecraft_needs_no_simulator(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "minecraft"
    folder.mkdir(parents=True)
    (folder / "MineRLNavigateVectorObf-v0").symlink_to(NATIVE / "minecraft" / "MineRLNavigateVectorObf-v0")
    config = {"benchmark_name": "minecraft", "task_name": "NavigateVectorObf"}
    with configured(config, env_data={"data_root": str(tmp_path)}):
        mkdataset_demos()
        (dataset,), _ = auto.load_wds_datasets([{}])
    assert {key: np.shape(value) for key, value in next(iter(dataset)).items() if key in ("obs", "acts")} == {
        "obs": (3, 64, 64),
        "acts": (64,),
    }


def test_the_order_of_trajectories_is_seeded(env_data: dict[str, Any]) -> None:
    orders: dict[int, list[int]] = {}
    with configured({"benchmark_name": "magical", "task_name": "MoveToRegion-Demo-v0"}, env_data=env_data):
        for seed in range(4):
            with ILRDataset(mkdataset_demos(seed=seed, suffix=".tar")).episodes as episodes:
                orders[seed] = [len(episode) for episode in episodes]
        assert all(sorted(order) == [5, 6, 7] for order in orders.values())
        assert len({tuple(order) for order in orders.values()}) > 1
        with ILRDataset(mkdataset_demos(seed=2, suffix=".tar")).episodes as episodes:
            assert [len(episode) for episode in episodes] == orders[2]
        with ILRDataset(mkdataset_demos(n_traj_total=2, suffix=".tar")).episodes as episodes:
            assert sorted(len(episode) for episode in episodes) == [5, 7]
        with pytest.raises(ValueError, match="n_traj from 1 to 3"):
            mkdataset_demos(n_traj_total=4)


def test_demonstrations_of_another_space_are_refused(env_data: dict[str, Any], tmp_path: Path) -> None:
    """The files are 20 x 20, the task 100 x 100; the original would write a description that is wrong."""
    config = {"benchmark_name": "dm_control", "task_name": "reacher-easy"}
    with configured(config, env_data=env_data), pytest.raises(TypeError, match=r"\(9, 100, 100\).*\(9, 20, 20\)"):
        mkdataset_demos()
    assert list(tmp_path.rglob("*.tgz")) == []


TOY = {"benchmark_name": "toy", "task_name": "reach"}


def rollouts(root: Path, seed: int, parallel: bool = False, **options: Any) -> ILRDataset:
    data = {"data_root": str(root)}
    with configured(TOY, {"venv_parallel": parallel, "n_envs": 2}, data):
        path = mkdataset_random(seed=seed, n_timesteps_min=150, **options)
        (dataset,), meta = auto.load_wds_datasets([{"type": "random"}])
        assert path == root / "data/processed/random/toy/reach" / path.name
        assert meta["action_space"] == Discrete(5)
    return dataset


def test_random_rollouts_become_archives(tmp_path: Path) -> None:
    dataset = rollouts(tmp_path, 0)
    frames = list(dataset)
    assert in_layout(dataset.paths[0]) == len(frames) >= 150
    assert frames[-1]["dones"]
    assert len(dataset.episodes) == sum(bool(frame["dones"]) for frame in frames) > 1
    for before, after in itertools.pairwise(frames):
        assert np.array_equal(before["next_obs"], after["obs"]) != bool(before["dones"])
    assert set(frames[0]["infos"]) == {"agent", "target", "floor"}
    assert {frame["acts"] for frame in frames} == set(range(5))
    for frame in frames:  # a step's infos are those that it returned: where the agent is seen afterwards
        np.testing.assert_allclose(find(frame["next_obs"], WHITE), frame["infos"]["agent"], atol=0.05)


def test_rollouts_are_seeded_with_and_without_processes(tmp_path: Path) -> None:
    def content(name: str, seed: int, parallel: bool = False) -> list[str]:
        return [str(frame) for frame in rollouts(tmp_path / name, seed, parallel)]

    first = content("a", 0)
    assert content("b", 0) == first
    assert content("c", 1) != first
    assert content("d", 0, True) == first


def test_no_steps() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        mkdataset_random(n_timesteps_min=0)


def test_the_programs(tmp_path: Path, env_data: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    demos_script.main(
        [
            "with",
            "env_cfg.benchmark_name=atari",
            "env_cfg.task_name=PongNoFrameskip-v4",
            f"env_data.data_root={tmp_path}",
            f"env_data.atari_demo_paths.PongNoFrameskip-v4={NATIVE}/atari/pong_synth.npz",
            "n_traj_total=2",
            "shuffle_traj_order=False",
            "suffix=.tar",
        ]
    )
    path = Path(capsys.readouterr().out.strip())
    assert path == tmp_path / "data/processed/demos/atari/PongNoFrameskip-v4/demos.tar"
    assert len(ILRDataset(path)) == 19 + 11
    with pytest.raises(ValueError, match="did you mean 'n_timesteps_min'"):
        random_script.main(["n_timesteps=5"])
    with pytest.raises(ValueError, match="unknown argument 'seed'"):
        random_script.main(["seed"])


def test_run_as_modules(tmp_path: Path) -> None:
    arguments = ["env_cfg.benchmark_name=toy", "env_cfg.task_name=push", "venv_opts.venv_parallel=False"]
    command = [sys.executable, "-W", "error", "-m", "penstock_imitation.il_representations.scripts.mkdataset_random"]
    rest = [*arguments, f"env_data.data_root={tmp_path}", "n_timesteps_min=120", "seed=3"]
    done = subprocess.run([*command, "with", *rest], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path == tmp_path / "data/processed/random/toy/push/random.tgz"
    assert next(iter(ILRDataset(path)))["acts"].shape == (2,)


def grouped(path: Path) -> list[dict[str, Any]]:
    """Samples as the webdataset library makes them of members, which is what the original builds on."""
    with gzip.open(path) as stream:
        files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
        return list(tariterators.group_by_keys(files))


def test_the_originals_libraries_read_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By plain pickle, with classes in the places of those that the original's environment has."""

    class Made:
        def __init__(self, **arguments: Any) -> None:
            self.arguments = arguments

    def inflate(cls: type, arguments: dict[str, Any]) -> Any:
        return cls(**arguments)

    color = Enum("ColorSpace", {"RGB": "RGB", "GRAY": "GRAY"})
    names = {
        "il_representations.envs.utils": ("_inflate_object", inflate),
        "gym.spaces.box": ("Box", Made),
        "gym.spaces.discrete": ("Discrete", Made),
        "imitation.augment.color": ("ColorSpace", color),
    }
    for module, (name, value) in names.items():
        parts = module.split(".")
        for i in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(".".join(parts[:i])))
        setattr(sys.modules[module], name, value)

    dataset = load_ilr_datasets([SHARDS / "A.tgz"])
    write_frames(tmp_path / "a.tgz", dataset.meta, dataset)
    described, *samples = grouped(tmp_path / "a.tgz")
    meta = pickle.loads(described["meta.pickle"])
    assert meta["color_space"] is color["RGB"]
    assert meta["action_space"].arguments == {"n": 18}
    assert {key: np.shape(value) for key, value in meta["observation_space"].arguments.items() if key != "dtype"} == {
        "low": (3, 8, 8),
        "high": (3, 8, 8),
        "shape": (3,),
    }
    for sample, frame in zip(samples, dataset, strict=True):
        for field in FIELDS:
            np.testing.assert_equal(pickle.loads(sample[f"{field}.pickle"]), frame[field])
